//! `tare disk`: measures the throughput of a disk at saturation, and its latency at lower rates.

use std::fs;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, bail};
use indicatif::{ProgressBar, ProgressStyle};
use tare_disk::{
    Doubt, EngineError, Figure, Kind, LoadReport, MeasureError, Options, Progress, Report, Steady,
    SteadyReport, Target, io_properties, measure,
};
use tare_env::inside::GuestInfo;
use tare_host::device;
use tare_host::journal::{Entry, Journal};
use tare_report::disk_map::{DiskCell, DiskMap};
use tare_report::html::disk::{DiskChart, DiskFigure, DiskLatency, DiskLoad};
use tare_std::units::{nanoseconds, significant};

use crate::cli::Disk;
use crate::exit::{Exit, ExitWith};
use crate::stream::{say, write_file};
use crate::{cleanup, inside, signals};

pub(crate) fn run(options: &Disk, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    if inside::must_boot(&options.inside) {
        return run_in_guest(options, state, out);
    }
    let guest = inside::current_guest(&options.inside);
    let state = inside::state_directory(&options.inside, state);
    // The process on the host copies these files.
    let written = |path: &Option<PathBuf>| match &guest {
        Some(_) => path.as_deref().map(inside::result),
        None => path.clone(),
    };
    let (map, chart, io_properties) =
        (written(&options.map), written(&options.chart), written(&options.io_properties));
    let target = Target::find(&options.path, Path::new("/")).exit_with(Exit::Host)?;
    if let Some(named) = &options.destroy_data_on {
        device::check(&options.path, std::slice::from_ref(named), Path::new("/"))
            .exit_with(Exit::Host)?;
    }
    let writes = target.kind == Kind::Directory || options.destroy_data_on.is_some();
    if !writes && (options.map.is_some() || options.io_properties.is_some()) {
        return Err(anyhow::anyhow!(
            "--map and --io-properties need writes, and {} is only read; name a directory, or a \
             device with --destroy-data-on",
            options.path.display()
        ))
        .exit_with(Exit::Usage);
    }
    announce_steady(options, &target, writes)?;
    let stop = signals::stop_flag()?;
    let measured = match target.kind {
        Kind::Directory => measure_in_directory(options, &target, state, &stop),
        Kind::File | Kind::Device => run_measurement(options, &target, None, &stop),
    };
    let mut report = match measured {
        Ok(report) => report,
        Err(error) => return exit_of(error),
    };
    if let Some(GuestInfo { kernel, accelerator, .. }) = guest {
        report.doubts.insert(0, Doubt::Inside { kernel, accelerator });
    }
    if let (Some(path), Some(map)) = (&map, disk_map(&report)) {
        write_picture(path, || map.html(), || map.svg())?;
    }
    if let Some(path) = &chart {
        let chart = disk_chart(&report);
        write_picture(path, || chart.html(), || chart.svg())?;
    }
    if options.json {
        serde_json::to_writer_pretty(&mut *out, &report).context("cannot print the result")?;
        writeln!(out)?;
    } else if io_properties.as_deref() != Some(Path::new("-")) {
        print(&report, out)?;
    }
    if let Some(path) = &io_properties {
        write_io_properties(&report, path, out)?;
    }
    Ok(match stop.load(Ordering::Relaxed) {
        true => Exit::Interrupted,
        false => Exit::Success,
    })
}

/// Measures a disk inside a guest, and copies the requested files to the host.
fn run_in_guest(options: &Disk, state: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let stop = signals::stop_flag()?;
    inside::run(&options.inside, state, out, &stop, |folder| {
        for path in [&options.map, &options.chart, &options.io_properties].into_iter().flatten() {
            inside::fetch_result(folder, path)?;
        }
        Ok(())
    })
}

/// Measures on a new file, which is journalled first and removed afterwards, also after a failure.
fn measure_in_directory(
    options: &Disk,
    target: &Target,
    state: &Path,
    stop: &AtomicBool,
) -> Result<Report, anyhow::Error> {
    cleanup::before_run(state);
    let journal = Journal::create(state, &[]).exit_with(Exit::Host)?;
    let path = target.path.join(format!("{}-disk", journal.prefix()));
    journal.write(vec![Entry::file(path.clone())])?;
    let report = run_measurement(options, target, Some(path), stop);
    let errors = journal.close();
    if let (Ok(_), Some(error)) = (&report, errors.first()) {
        bail!("{}", tare_host::error_line(error));
    }
    report
}

/// Returns what to measure, without the file of a directory.
fn plan(options: &Disk) -> Options {
    let writes_max = if options.yes { u64::MAX } else { Steady::UNASKED_BYTES };
    let steady = |round| Steady { round, writes_max };
    Options {
        file: None,
        destroy: options.destroy_data_on.is_some(),
        size_bytes: options.size,
        budget: options.budget,
        map: options.map.is_some(),
        steady: options.steady.map(steady),
        seed: options.seed,
    }
}

/// Prints what making the disk steady costs, or refuses it before anything is written.
fn announce_steady(options: &Disk, target: &Target, writes: bool) -> anyhow::Result<()> {
    let plan = plan(options);
    let Some(how) = plan.steady else { return Ok(()) };
    if !writes {
        return Err(anyhow::anyhow!(
            "--steady writes, and {} is only read; name a directory, or a device with \
             --destroy-data-on",
            options.path.display()
        ))
        .exit_with(Exit::Usage);
    }
    let bytes = match tare_disk::size(target, &plan) {
        Ok(bytes) => bytes,
        Err(error) => return exit_of(error.into()).map(drop),
    };
    let needed = Steady::sequential_bytes(bytes);
    if needed > how.writes_max {
        return Err(anyhow::anyhow!(
            "--steady would write {} GB in sequence, and then at random; flash wears with every \
             byte, so pass --yes, or give a smaller --size",
            needed / 1_000_000_000
        ))
        .exit_with(Exit::Usage);
    }
    say(&how.cost(bytes));
    Ok(())
}

fn run_measurement(
    options: &Disk,
    target: &Target,
    file: Option<PathBuf>,
    stop: &AtomicBool,
) -> Result<Report, anyhow::Error> {
    let options = Options { file, ..plan(options) };
    let bar = progress_bar(options.budget);
    let mut show = |progress: &Progress| {
        let left = progress.budget.saturating_sub(progress.spent).as_secs();
        bar.set_position(progress.spent.as_secs());
        bar.set_message(format!("{}, {left} s left", progress.what));
    };
    let report = measure(target, &options, stop, &mut show);
    bar.finish_and_clear();
    Ok(report?)
}

/// Returns a progress bar, hidden if standard error is no terminal.
fn progress_bar(budget: Duration) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:30} {msg}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(budget.as_secs()).with_style(style)
}

/// Returns the exit code of an interrupted measurement, or the error with its exit code.
fn exit_of(error: anyhow::Error) -> anyhow::Result<Exit> {
    let exit = match error.downcast_ref::<MeasureError>() {
        Some(error) if error.interrupted() => return Ok(Exit::Interrupted),
        Some(
            MeasureError::Engine(EngineError::Ring { .. })
            | MeasureError::Open { .. }
            | MeasureError::NoDirect { .. },
        ) => Exit::Host,
        Some(_) => Exit::Failure,
        None => return Err(error),
    };
    Err(error).exit_with(exit)
}

fn write_io_properties(report: &Report, path: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let disk = report.io_properties().context("not every figure of io_properties was measured")?;
    let point = report.mount.as_ref().map_or(report.path.as_path(), |mount| &mount.point);
    let text = io_properties::yaml(point, &disk);
    write_file(path, &text, out).map(drop)
}

/// Writes a page if the name of the file ends in `.html`, else an SVG file.
fn write_picture(
    path: &Path,
    html: impl Fn() -> String,
    svg: impl Fn() -> String,
) -> anyhow::Result<()> {
    let is_page = path.extension().is_some_and(|extension| extension == "html");
    let text = if is_page { html() } else { svg() };
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

fn disk_chart(report: &Report) -> DiskChart {
    let figure = |of: &Figure| DiskFigure { value: of.value, ends: of.low.zip(of.high) };
    let load = |load: &LoadReport| DiskLoad {
        name: load.load.to_string(),
        random: load.random,
        block_bytes: load.block_bytes,
        climb: load.climb.iter().map(|step| (step.depth, step.operations_per_s)).collect(),
        saturation_depth: load.saturation_depth,
        saturated: figure(&load.operations_per_s),
        latencies: load
            .points
            .iter()
            .map(|point| DiskLatency {
                percent: 100.0 * point.share,
                p50: figure(&point.latency.p50_ns),
                p99: figure(&point.latency.p99_ns),
            })
            .collect(),
    };
    DiskChart {
        title: format!("{} on {}", report.path.display(), report.device.name),
        loads: report.loads.iter().map(load).collect(),
    }
}

fn disk_map(report: &Report) -> Option<DiskMap> {
    let map = report.map.as_ref()?;
    let cell = |cell: &tare_disk::Cell| DiskCell {
        read_percent: cell.read_percent,
        write_percent: cell.write_percent,
        p95_ns: cell.read_p95_ns.map(|ns| ns as f64),
        overloaded: cell.unsent_share > 0.01,
    };
    Some(DiskMap {
        title: format!("{} on {}", report.path.display(), report.device.name),
        read_per_s: map.read_per_s,
        write_bytes_per_s: map.write_bytes_per_s,
        probe_percent: map.probe_percent,
        write_block_bytes: map.write_block_bytes,
        cell_s: map.cell_s,
        cells: map.cells.iter().map(cell).collect(),
    })
}

fn print(report: &Report, out: &mut dyn Write) -> anyhow::Result<()> {
    let layers: Vec<&str> = report.device.layers.iter().map(|layer| layer.name.as_str()).collect();
    let on = report.mount.as_ref().map(|mount| format!(" ({})", mount.file_system));
    writeln!(
        out,
        "{}{} on {}: {} MiB read{} over, {:.0} s",
        report.path.display(),
        on.unwrap_or_default(),
        layers.join(" on "),
        report.size_bytes >> 20,
        if report.loads.iter().any(|load| load.write) { " and written" } else { "" },
        report.spent_s,
    )?;
    if let Some(SteadyReport { passes, round_s, rounds_per_s, written_bytes, seconds, .. }) =
        &report.steady
    {
        writeln!(
            out,
            "made steady before: {passes} passes, and {} rounds of {round_s} s; {} MiB written, \
             {seconds:.0} s",
            rounds_per_s.len(),
            written_bytes >> 20,
        )?;
    }
    writeln!(
        out,
        "\n{:<18}{:>11}  {:<22}{:>7}{:>13}",
        "at saturation", "rate", "95 % interval", "depth", "CPU per I/O"
    )?;
    for load in &report.loads {
        let (figure, unit) = rate(load);
        let cpu = format!("{} µs", significant(load.cpu_us_per_operation.value, 3));
        writeln!(
            out,
            "{:<18}{:>11}  {:<22}{:>7}{:>13}",
            load.load,
            format!("{} {unit}", significant(figure.value, 3)),
            interval(&figure, |value| significant(value, 3)),
            load.saturation_depth,
            cpu,
        )?;
    }
    writeln!(
        out,
        "\n{:<18}{:>6}{:>10}{:>10}{:>10}{:>10}{:>10}  95 % interval of p99",
        "latency", "at", "p50", "p95", "p99", "p99.9", "max"
    )?;
    for load in &report.loads {
        for point in &load.points {
            let latency = &point.latency;
            write!(out, "{:<18}{:>4.0} %", load.load, 100.0 * point.share)?;
            for figure in [latency.p50_ns, latency.p95_ns, latency.p99_ns, latency.p999_ns] {
                write!(out, "{:>10}", nanoseconds(figure.value))?;
            }
            let max = nanoseconds(latency.max_ns as f64);
            writeln!(out, "{max:>10}  {}", interval(&latency.p99_ns, nanoseconds))?;
        }
    }
    let rounds = report.loads.first().map_or(0, |load| load.operations_per_s.rounds);
    writeln!(
        out,
        "\nn = {rounds} rounds; latency in the open loop from the intended start; 1 MB = 1,000,000 bytes"
    )?;
    for doubt in &report.doubts {
        writeln!(out, "doubt: {doubt}")?;
    }
    Ok(())
}

/// Returns the rate that describes a load: bandwidth if sequential, operations per second if
/// random.
fn rate(load: &LoadReport) -> (Figure, &'static str) {
    let mega = |value: f64| value / 1e6;
    let bytes = load.bytes_per_s;
    match load.random {
        true => (load.operations_per_s, "/s"),
        false => {
            let (low, high) = (bytes.low.map(mega), bytes.high.map(mega));
            (Figure { value: mega(bytes.value), low, high, rounds: bytes.rounds }, "MB/s")
        }
    }
}

fn interval(figure: &Figure, show: impl Fn(f64) -> String) -> String {
    match (figure.low, figure.high) {
        (Some(low), Some(high)) => format!("[{}, {}]", show(low), show(high)),
        _ => "-".into(),
    }
}
