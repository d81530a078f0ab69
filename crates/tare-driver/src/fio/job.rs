//! Job files for fio. All jobs name their files alike, so that one job reads what another has
//! written.

use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use tare_lab::driver::Pacing;

use super::options::Options;

/// The server replaces this with the place of the files.
pub(super) const PLACE: &str = "{place}";

/// The longest run of a job that is not stopped: its driver is gone by then.
const RUNTIME_MAX: Duration = Duration::from_secs(3600);

/// Returns where the jobs keep their data: each in a file of its own below a directory, or in a
/// part of its own of a block device.
pub(super) fn placement(data: &Path, is_directory: bool, size: u64) -> String {
    let data = data.display();
    match is_directory {
        true => format!("directory={data}"),
        false => format!("filename={data}\noffset_increment={size}"),
    }
}

/// The size of a write while files are filled, in bytes.
const FILL_BYTES: u64 = 1 << 20;

/// The size of a write while a device is preconditioned (SNIA Solid State Storage Performance Test
/// Specification: sequential writes of 128 KiB), in bytes.
const PRECONDITION_BYTES: u64 = 128 << 10;

/// Returns the job that writes every byte of every file once, in order.
pub(super) fn fill(options: &Options) -> String {
    let mut job = files(options);
    // Plain writes work everywhere, whatever engine will be measured.
    let bs = FILL_BYTES.min(options.size);
    let _ =
        write!(job, "rw=write\nbs={bs}\nioengine=psync\nfallocate=none\nend_fsync=1\nrandseed=1\n");
    job
}

/// Returns the job that is measured: after the lead-in it runs until it is stopped. `None` if the
/// rate is below one operation per second for a job, which fio cannot pace.
pub(super) fn measured(
    options: &Options,
    pacing: Pacing,
    lead_in: Duration,
    seed: u64,
) -> Option<String> {
    let mut job = load(options, seed);
    let _ = write!(
        job,
        "time_based=1\nramp_time={}ms\nruntime={}\n",
        lead_in.as_millis(),
        (lead_in + RUNTIME_MAX).as_secs()
    );
    if let Pacing::Open { rate_per_s } = pacing {
        let [reads, writes] = rates(options, rate_per_s)?;
        let _ = write!(job, "rate_iops={reads},{writes}\nrate_process={}\n", options.rate_process);
    }
    Some(job)
}

/// Returns the job that writes every byte so many times, in order, as fast as the device takes it.
pub(super) fn precondition(options: &Options) -> String {
    let mut job = files(options);
    let bs = PRECONDITION_BYTES.min(options.size);
    let loops = options.precondition;
    let _ = write!(
        job,
        "rw=write\nbs={bs}\nioengine={}\niodepth=32\nloops={loops}\nend_fsync=1\nrandseed=1\n",
        options.ioengine
    );
    job
}

/// Returns the job that ends once it is steady by fio's criterion, or at the limit.
pub(super) fn conditioning(
    options: &Options,
    (criterion, duration_s, limit_s): (&str, u64, u64),
    seed: u64,
) -> String {
    let mut job = load(options, seed);
    let _ = write!(
        job,
        "time_based=1\nruntime={limit_s}\nsteadystate={criterion}\n\
         steadystate_duration={duration_s}\n"
    );
    job
}

/// Returns the job of one round of so many seconds.
pub(super) fn round(options: &Options, seconds: u64, seed: u64) -> String {
    let mut job = load(options, seed);
    let _ = write!(job, "time_based=1\nruntime={seconds}\n");
    job
}

/// Returns the whole operations/s of each job for (reads, writes): fio paces each job and each
/// direction by itself. Rounding loses at most half an operation/s of each.
fn rates(options: &Options, rate_per_s: f64) -> Option<[u64; 2]> {
    let share = match options.rw.as_str() {
        "read" | "randread" => 1.0,
        "write" | "randwrite" => 0.0,
        _ => options.rwmixread as f64 / 100.0,
    };
    let each = rate_per_s / options.numjobs as f64;
    let whole = |share: f64| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
        let rate = (each * share).round().clamp(0.0, 4e9) as u64;
        rate
    };
    let rates = [whole(share), whole(1.0 - share)];
    let starved = |rate: u64, share: f64| rate == 0 && share > 0.0;
    (!starved(rates[0], share) && !starved(rates[1], 1.0 - share)).then_some(rates)
}

/// Returns where the files are, and how many of what size.
fn files(options: &Options) -> String {
    let Options { size, numjobs, direct, .. } = options;
    format!(
        "[tare]\n{PLACE}\nsize={size}\nnumjobs={numjobs}\ndirect={}\nthread=1\n\
         group_reporting=1\n",
        u8::from(*direct)
    )
}

fn load(options: &Options, seed: u64) -> String {
    let mut job = files(options);
    let Options { rw, rwmixread, bs, iodepth, ioengine, fsync, fdatasync, .. } = options;
    let _ = write!(
        job,
        "rw={rw}\nrwmixread={rwmixread}\nbs={bs}\niodepth={iodepth}\nioengine={ioengine}\n\
         fsync={fsync}\nfdatasync={fdatasync}\nlat_percentiles=1\nclat_percentiles=0\n\
         randseed={}\n",
        // fio's seed is signed; 31 bits of ours fit whatever its width.
        seed >> 33
    );
    if let Some(distribution) = &options.random_distribution {
        let _ = writeln!(job, "random_distribution={distribution}");
    }
    job
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fio::options::tests::asked;

    fn options(words: &[(&str, &str)]) -> Options {
        Options::read(&asked(words)).unwrap()
    }

    fn line<'j>(job: &'j str, name: &str) -> Option<&'j str> {
        job.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))
    }

    #[test]
    fn measured_job_reads_the_filled_files() {
        let options = options(&[("numjobs", "4"), ("size", "8M"), ("iodepth", "16")]);
        let lead_in = Duration::from_millis(150);
        let job = measured(&options, Pacing::Closed, lead_in, 11 << 33).unwrap();
        let fill = fill(&options);
        for name in ["size", "numjobs", "direct"] {
            assert_eq!(line(&job, name), line(&fill, name), "{name}");
        }
        assert_eq!((line(&job, "rw"), line(&fill, "rw")), (Some("randread"), Some("write")));
        assert_eq!((line(&job, "ramp_time"), line(&job, "randseed")), (Some("150ms"), Some("11")));
        assert_eq!((line(&job, "time_based"), line(&fill, "time_based")), (Some("1"), None));
        assert_eq!(line(&job, "rate_iops"), None);
    }

    #[test]
    fn preconditioning_writes_all_bytes_several_times() {
        let options = options(&[("rw", "randread"), ("size", "8M"), ("precondition", "2")]);
        let job = precondition(&options);
        let expect = [("rw", "write"), ("bs", "131072"), ("loops", "2"), ("size", "8388608")];
        for (name, value) in expect {
            assert_eq!(line(&job, name), Some(value), "{name}");
        }
        let round = round(&options, 7, 1);
        assert_eq!((line(&round, "rw"), line(&round, "runtime")), (Some("randread"), Some("7")));
        assert_eq!(line(&round, "ramp_time"), None);
    }

    #[test]
    fn device_jobs_have_separate_parts() {
        let at = |directory| placement(Path::new("/data"), directory, 4096);
        assert_eq!(at(true), "directory=/data");
        assert_eq!(at(false), "filename=/data\noffset_increment=4096");
    }

    #[test]
    fn rate_is_divided_among_jobs_and_directions() {
        let check = |words: &[(&str, &str)], rate_per_s, expect: Option<&str>| {
            let job = measured(&options(words), Pacing::Open { rate_per_s }, Duration::ZERO, 1);
            assert_eq!(job.as_deref().and_then(|job| line(job, "rate_iops")), expect, "{words:?}");
        };
        check(&[("rw", "randread"), ("numjobs", "4")], 1000.0, Some("250,0"));
        check(&[("rw", "write")], 1000.4, Some("0,1000"));
        check(&[("rw", "randrw"), ("rwmixread", "70"), ("numjobs", "2")], 1000.0, Some("350,150"));
        check(&[("rw", "randread"), ("numjobs", "4")], 1.0, None);
        check(&[("rw", "randrw"), ("rwmixread", "99")], 10.0, None);
    }
}
