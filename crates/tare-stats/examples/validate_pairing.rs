//! Compares orders of slices, references, robust means and covariates on simulated campaigns with a
//! known truth, for the table in docs/concepts/cost.md. Run
//! `cargo run --release --package tare-stats --example validate_pairing`.
//!
//! Model, after residuals of recorded campaigns on a machine of 2 CPUs: the log of CPU time per
//! operation of a slice is the environment's plus the host's state plus noise of 4.5 %. The state
//! is an Ornstein-Uhlenbeck process of 2.5 s and 12 %. The client's CPU time per operation follows
//! the state by 0.8, with noise of 5 %. A slice takes 70 ms. A campaign measures 8 environments
//! and the baseline for a time that gives the usual order the number of rounds shown; the others
//! get as many rounds as fit into the same time.
#![expect(clippy::print_stdout, reason = "printing is what this program is for")]

use tare_stats::methods::{self, t_quantile};
use tare_stats::starts::over_starts;
use tare_stats::{Estimate, estimate, median};
use tare_std::rng::Rng;

const CAMPAIGNS: usize = 4000;
const SEED: u64 = 42;
const ROUNDS: [usize; 5] = [3, 5, 10, 40, 100];
const ENVIRONMENTS: usize = 9;
const SLICE_S: f64 = 0.07;
const STATE_S: f64 = 2.5;
const STATE: f64 = 0.12;
const NOISE: f64 = 0.045;
const CLIENT_NOISE: f64 = 0.05;

/// What disturbs slices in addition to state and noise.
#[derive(Clone, Copy)]
enum Disturbance {
    None,
    /// The host gets faster by 10 % in every 100 slices.
    Drift,
    /// The noise is lognormal, with the same standard deviation.
    Skew,
    /// One slice in ten has noise five times as wide.
    Storms,
    /// Every slice of one round in twenty is disturbed by 50 % noise.
    BadRounds,
}

/// The order of slices, and which baseline belongs to which slice.
#[derive(Clone, Copy, PartialEq)]
enum Order {
    /// Random order in every round.
    Random,
    /// Random order, with the baseline in the middle.
    Middle,
    /// The baseline before and after every other environment; its reference is their mean.
    Beside,
    /// Each round twice, the second time in reverse order; both count as one.
    Mirrored,
}

/// The log ratios of a campaign for one environment, and those of the client.
#[derive(Default)]
struct Pairs {
    server: Vec<f64>,
    client: Vec<f64>,
}

/// A host whose state changes while slices run.
struct Host {
    rng: Rng,
    state: f64,
    slices: f64,
    disturbance: Disturbance,
    bad: bool,
}

impl Host {
    fn new(seed: u64, campaign: usize, disturbance: Disturbance) -> Self {
        let mut rng = Rng::stream(seed, campaign as u64);
        let state = STATE * rng.normal();
        Self { rng, state, slices: 0.0, disturbance, bad: false }
    }

    fn next_round(&mut self) {
        self.bad = matches!(self.disturbance, Disturbance::BadRounds) && self.rng.below(20) == 0;
    }

    /// Runs a slice. Returns the logs of the server's and of the client's CPU time per operation.
    fn slice(&mut self) -> (f64, f64) {
        let kept = (-SLICE_S / STATE_S).exp();
        self.state = kept * self.state + STATE * (1.0 - kept * kept).sqrt() * self.rng.normal();
        self.slices += 1.0;
        let mut noise = NOISE * self.rng.normal();
        match self.disturbance {
            Disturbance::None => {}
            Disturbance::Drift => noise -= 0.1 * self.slices / 100.0,
            Disturbance::Skew => {
                // exp of a normal number has a standard deviation of 2.16.
                noise = NOISE / 2.16 * (self.rng.normal().exp() - 1.0);
            }
            Disturbance::Storms if self.rng.below(10) == 0 => noise *= 5.0,
            Disturbance::Storms => {}
            Disturbance::BadRounds if self.bad => noise += 0.5 * self.rng.normal(),
            Disturbance::BadRounds => {}
        }
        let client = 0.8 * self.state + CLIENT_NOISE * self.rng.normal();
        (self.state + noise, client)
    }
}

fn campaign(host: &mut Host, order: Order, rounds: usize) -> Pairs {
    // Slices per round of each order; the campaign has the time of `rounds` random rounds.
    let slices = rounds * ENVIRONMENTS;
    let per_round = match order {
        Order::Random | Order::Middle => ENVIRONMENTS,
        Order::Beside => 2 * (ENVIRONMENTS - 1) + 1,
        Order::Mirrored => 2 * ENVIRONMENTS,
    };
    let mut pairs = Pairs::default();
    for _ in 0..(slices / per_round).max(1) {
        host.next_round();
        let mut places: Vec<usize> = (0..ENVIRONMENTS).collect();
        host.rng.shuffle(&mut places);
        if order == Order::Middle {
            let (at, middle) = (places.iter().position(|e| *e == 0), ENVIRONMENTS / 2);
            places.swap(at.unwrap_or(0), middle);
        }
        // The baseline is environment 0; the one that is compared is environment 1.
        let mut seen = [(0.0, 0.0); ENVIRONMENTS];
        let (mut server, mut client) = (0.0, 0.0);
        match order {
            Order::Random | Order::Middle => {
                for place in &places {
                    seen[*place] = host.slice();
                }
                (server, client) = (seen[1].0 - seen[0].0, seen[1].1 - seen[0].1);
            }
            Order::Mirrored => {
                for place in places.iter().chain(places.iter().rev()) {
                    let slice = host.slice();
                    seen[*place].0 += slice.0 / 2.0;
                    seen[*place].1 += slice.1 / 2.0;
                }
                (server, client) = (seen[1].0 - seen[0].0, seen[1].1 - seen[0].1);
            }
            Order::Beside => {
                let mut before = host.slice();
                for place in places.iter().filter(|place| **place != 0) {
                    let here = host.slice();
                    let after = host.slice();
                    if *place == 1 {
                        server = here.0 - f64::midpoint(before.0, after.0);
                        client = here.1 - f64::midpoint(before.1, after.1);
                    }
                    before = after;
                }
            }
        }
        pairs.server.push(server);
        pairs.client.push(client);
    }
    pairs
}

type Method = fn(&Pairs) -> Option<Estimate>;

/// Student's t on the mean without the tenth of the values at either end (Yuen, Biometrika 61,
/// 1974).
fn trimmed(pairs: &Pairs) -> Option<Estimate> {
    let mut sorted = pairs.server.clone();
    sorted.sort_unstable_by(f64::total_cmp);
    let (n, cut) = (sorted.len(), sorted.len() / 10);
    let kept = n - 2 * cut;
    let mean = sorted[cut..n - cut].iter().sum::<f64>() / kept as f64;
    for at in 0..cut {
        sorted[at] = sorted[cut];
        sorted[n - 1 - at] = sorted[n - 1 - cut];
    }
    let winsorized = sorted.iter().sum::<f64>() / n as f64;
    let squares: f64 = sorted.iter().map(|x| (x - winsorized).powi(2)).sum();
    let h = kept as f64;
    let error = (squares / (h * (h - 1.0))).sqrt();
    let half = t_quantile(kept - 1) * error;
    let rounds = u32::try_from(n).ok()?;
    Some(Estimate { centre: mean, low: mean - half, high: mean + half, rounds })
}

/// Tare's rule on what remains of the ratios after a fit of the client's.
fn with_client(pairs: &Pairs) -> Option<Estimate> {
    let n = pairs.server.len() as f64;
    if n < 5.0 {
        return estimate(&pairs.server);
    }
    let middle = median(pairs.client.iter().copied())?;
    let mean = pairs.server.iter().sum::<f64>() / n;
    let both = pairs.client.iter().zip(&pairs.server);
    let product: f64 = both.map(|(c, s)| (c - middle) * (s - mean)).sum();
    let squares: f64 = pairs.client.iter().map(|c| (c - middle).powi(2)).sum();
    // The layers do not touch the client here, so its true ratio is 0.
    let slope = product / squares;
    let rest: Vec<f64> =
        pairs.client.iter().zip(&pairs.server).map(|(c, s)| s - slope * c).collect();
    estimate(&rest)
}

/// Prints how often the intervals over starts and over rounds hold the truth, of a campaign of 120
/// rounds with 10 % noise of a pair, if environment and baseline each differ by 2 % from start to
/// start.
fn print_starts() {
    println!("| starts | over starts | over rounds | share of the starts |");
    println!("|---:|---:|---:|---:|");
    for starts in [3, 4, 6, 10] {
        let mut rng = Rng::new(SEED);
        let (mut over, mut flat, mut share) = (0, 0, 0.0);
        for _ in 0..CAMPAIGNS {
            let groups: Vec<Vec<f64>> = (0..starts)
                .map(|_| {
                    let luck = 0.02 * (rng.normal() - rng.normal());
                    (0..120 / starts).map(|_| luck + 0.1 * rng.normal()).collect()
                })
                .collect();
            let Some(found) = over_starts(&groups) else { continue };
            over += usize::from(!found.estimate.excludes(0.0));
            let rounds = estimate(&groups.concat());
            flat += usize::from(rounds.is_some_and(|rounds| !rounds.excludes(0.0)));
            share += found.share;
        }
        let percent = |count: f64| 100.0 * count / CAMPAIGNS as f64;
        let (over, flat) = (percent(over as f64), percent(flat as f64));
        println!("| {starts} | {over:.1} % | {flat:.1} % | {:.0} % |", percent(share));
    }
    println!();
}

fn main() {
    print_starts();
    let rule: Method = |pairs| estimate(&pairs.server);
    let student: Method = |pairs| methods::student_t(&pairs.server);
    let ways: [(&str, Order, Method); 7] = [
        ("random order, tare's rule", Order::Random, rule),
        ("random order, student t", Order::Random, student),
        ("random order, trimmed mean", Order::Random, trimmed),
        ("random order, client as covariate", Order::Random, with_client),
        ("baseline in the middle", Order::Middle, rule),
        ("baseline beside each", Order::Beside, rule),
        ("each round mirrored", Order::Mirrored, rule),
    ];
    let disturbances = [
        ("none", Disturbance::None),
        ("drift", Disturbance::Drift),
        ("skew", Disturbance::Skew),
        ("storms", Disturbance::Storms),
        ("bad rounds", Disturbance::BadRounds),
    ];
    println!("| disturbance | way | 3 rounds | 5 rounds | 10 rounds | 40 rounds | 100 rounds |");
    println!("|---|---|---:|---:|---:|---:|---:|");
    for (disturbed, disturbance) in disturbances {
        for (name, order, method) in ways {
            let cells: Vec<String> = ROUNDS
                .iter()
                .map(|rounds| {
                    let (mut covered, mut widths) = (0, Vec::new());
                    for number in 0..CAMPAIGNS {
                        let mut host = Host::new(SEED, number, disturbance);
                        let pairs = campaign(&mut host, order, *rounds);
                        let Some(found) = method(&pairs) else { continue };
                        covered += usize::from(!found.excludes(0.0));
                        widths.push(100.0 * (found.high - found.low));
                    }
                    let width = median(widths).unwrap_or(f64::INFINITY);
                    let coverage = 100.0 * covered as f64 / CAMPAIGNS as f64;
                    match width.is_finite() {
                        true => format!("{coverage:.1} % ({width:.1})"),
                        false => "no interval".into(),
                    }
                })
                .collect();
            println!("| {disturbed} | {name} | {} |", cells.join(" | "));
        }
    }
}
