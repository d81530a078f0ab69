//! Several instances: their throughput stacked for each environment, and figures over their number.

use tare_lab::analysis::{InstanceFigures, Scaling, ScalingPoint};

use super::lines::{Height, LineAxis, LinePoint, LineSeries, draw, nth_style};
use super::{COLOURS, as_f64, trim_rate};
use crate::figures::{clean, micros, rate, with_interval};
use crate::html::svg::{Scale, Svg, TextAnchor};
use crate::instances::times;

/// Pixels of the name above a bar, of the bar, and of the axis.
const LABEL: f64 = 20.0;
const BAR: f64 = 22.0;
const GAP: f64 = 8.0;
const AXIS: f64 = 28.0;

/// Draws a bar for each environment, with a part for each instance.
pub(in crate::html) fn stacked(figures: &[InstanceFigures], id: &str) -> Option<String> {
    let sum = |one: &InstanceFigures| {
        one.instances.iter().map(|instance| instance.operations_per_s).sum::<f64>()
    };
    let most = figures.iter().map(sum).reduce(f64::max).filter(|most| *most > 0.0)?;
    let describe = |one: &InstanceFigures| {
        let each: Vec<String> =
            one.instances.iter().map(|instance| rate(instance.operations_per_s)).collect();
        format!("{}: {} op/s", clean(&one.environment), each.join(", "))
    };
    let description = figures.iter().map(describe).collect::<Vec<_>>().join(". ");
    let row = LABEL + BAR + GAP;
    let height = as_f64(figures.len()) * row + AXIS;
    let mut svg = Svg::new(id, height, "Throughput of each instance, stacked", &description);
    let scale = Scale::linear(0.0, most);
    let floor = height - AXIS;
    for tick in scale.ticks(5) {
        svg.line(scale.x(tick), 0.0, scale.x(tick), floor, "grid");
        svg.text(scale.x(tick), floor + 16.0, TextAnchor::Middle, "tick", &trim_rate(tick));
    }
    for (index, one) in figures.iter().enumerate() {
        let top = as_f64(index) * row;
        let name = format!("{}: {} op/s each", clean(&one.environment), range(one));
        svg.text(0.0, top + 14.0, TextAnchor::Start, "label", &name);
        let mut from = 0.0;
        for (number, instance) in one.instances.iter().enumerate() {
            let to = from + instance.operations_per_s;
            let class = format!("block {}", COLOURS[number % COLOURS.len()]);
            let text = format!("C{}: {} op/s", number + 1, rate(instance.operations_per_s));
            let (left, width) = (scale.x(from), scale.x(to) - scale.x(from));
            // A gap between the parts separates two of one colour.
            svg.rect(left, top + LABEL, (width - 0.3).max(0.1), BAR, &class, &text);
            from = to;
        }
    }
    Some(svg.finish())
}

/// Returns the slowest and the fastest instance, `98.5k to 104k`. Their sum is not given: they are
/// medians of each, and do not add up to that of the whole.
fn range(one: &InstanceFigures) -> String {
    let each = || one.instances.iter().map(|instance| instance.operations_per_s);
    let [slowest, fastest] = [each().reduce(f64::min), each().reduce(f64::max)]
        .map(|figure| figure.map_or_else(|| "-".to_string(), rate));
    if slowest == fastest { slowest } else { format!("{slowest} to {fastest}") }
}

/// What is drawn over the number of instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::html) enum OverInstances {
    /// Throughput over that of the fewest instances.
    Times,
    /// CPU time per operation.
    Cpu,
}

/// Draws a figure over the number of instances, a line for each group of environments.
pub(in crate::html) fn over_instances(
    scalings: &[Scaling],
    what: OverInstances,
    id: &str,
) -> Option<String> {
    let all = || scalings.iter().flat_map(|one| &one.points);
    let mut numbers: Vec<u32> = all().map(|point| point.instances).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let ticks: Vec<(f64, String)> =
        numbers.iter().map(|number| (f64::from(*number), number.to_string())).collect();
    let names: Vec<String> = scalings
        .iter()
        .map(|one| one.points.first().map(|point| clean(&point.environment)).unwrap_or_default())
        .collect();
    let series = scalings.iter().zip(&names).enumerate().map(|(e, (one, name))| LineSeries {
        e,
        name,
        style: nth_style(e),
        points: one.points.iter().filter_map(|point| line_point(point, what)).collect(),
    });
    let series: Vec<LineSeries<'_>> = series.filter(|one| one.points.len() > 1).collect();
    let form: fn(f64) -> String = match what {
        OverInstances::Times => times,
        OverInstances::Cpu => |us| format!("{} \u{b5}s", micros(us)),
    };
    let title = match what {
        OverInstances::Times => "Throughput over that of the fewest instances",
        OverInstances::Cpu => "Server CPU per operation over the number of instances",
    };
    let axis = LineAxis { ticks: &ticks, unit: "instances".into() };
    let height = Height { form: &form, zero: false, may_be_log: false, ends: None, width: None };
    draw((id, title), &axis, &height, &series, &[])
}

fn line_point(point: &ScalingPoint, what: OverInstances) -> Option<LinePoint> {
    let x = f64::from(point.instances);
    let (figure, text) = match what {
        // The fewest instances are what the others are compared with.
        OverInstances::Times => match point.times {
            None if point.step.is_none() => {
                (None, "1, the others are compared with it".to_string())
            }
            times_of => (Some(times_of?), format!("{} times", with_interval(&times_of?, times))),
        },
        OverInstances::Cpu => {
            (Some(point.cpu_us?), format!("{} \u{b5}s", with_interval(&point.cpu_us?, micros)))
        }
    };
    let ends =
        figure.filter(tare_lab::analysis::Interval::is_bounded).map(|one| (one.low, one.high));
    let value = figure.map_or(1.0, |one| one.value);
    Some(LinePoint { x, value, ends, hollow: false, text: format!("{x} instances: {text}") })
}
