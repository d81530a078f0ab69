//! Invented records with known causes, analysed like any other.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2DeflateSerializer};
use tare_lab::ablation::Plan;
use tare_lab::doubt::Doubt;
use tare_lab::environment::EnvironmentSpec;
use tare_lab::probe::Counter;
use tare_lab::record::{DoubtRecord, EnvironmentRecord, Phase, Record, Slice};
use tare_lab::stacks::{CLIENT, PartCpu, SYSTEM, SampledStack, StackKind, StackSlice};
use tare_std::rng::Rng;

use crate::fixture;

const ROUNDS: u32 = 12;
const OPERATIONS: u64 = 10_000;

/// A record and its stacks.
pub(super) struct World {
    pub(super) record: Record,
    pub(super) stacks: Vec<StackSlice>,
}

/// Name, server CPU per operation in µs, and the change from a pinned process.
pub(super) type FakeEnvironment = (&'static str, f64, fn(&mut EnvironmentSpec));

impl World {
    /// The first is the baseline; its control is added. Throughput falls as the CPU cost rises.
    pub(super) fn of(places: &[FakeEnvironment]) -> Self {
        let (template, _) = fixture::single_round();
        let native = &template.environments[0].spec;
        let spec = |(name, us, change): &FakeEnvironment| {
            let mut spec = native.clone();
            spec.name = (*name).to_string();
            change(&mut spec);
            (spec, *us)
        };
        Self::with(&places.iter().map(spec).collect::<Vec<_>>())
    }

    pub(super) fn with(specs: &[(EnvironmentSpec, f64)]) -> Self {
        let (mut record, _) = fixture::single_round();
        let baseline = specs[0].0.clone();
        let like = record.slices.iter().find(|one| one.phase == Phase::Capacity).unwrap().clone();
        let place = record.environments[0].clone();
        let environment = |spec: &EnvironmentSpec, control: bool| EnvironmentRecord {
            spec: spec.clone(),
            control,
            ..place.clone()
        };
        record.study.baseline.clone_from(&baseline.name);
        record.study.environments = specs.iter().map(|(spec, _)| spec.clone()).collect();
        record.study.published.clear();
        record.environments = specs.iter().map(|(spec, _)| environment(spec, false)).collect();
        let again =
            EnvironmentSpec { name: format!("{} again", baseline.name), ..baseline.clone() };
        record.environments.push(environment(&again, true));
        record.doubts.clear();
        record.slices.clear();
        let mut all = specs.to_vec();
        all.push((again, specs[0].1));
        let mut rng = Rng::new(5);
        for block in 0..ROUNDS {
            for (position, (spec, us)) in all.iter().enumerate() {
                let us = us * (1.0 + 0.005 * rng.normal());
                record.slices.push(Slice {
                    id: i64::try_from(record.slices.len()).unwrap() + 1,
                    round: block,
                    position: u32::try_from(position).unwrap(),
                    environment: spec.name.clone(),
                    operations: OPERATIONS,
                    // One CPU that is always busy.
                    window_ns: ns(us),
                    system_cpu_ns: ns(us),
                    layer_cpu_ns: Vec::new(),
                    busy_time: None,
                    client_cpu_ns: 0,
                    throttled_ns: None,
                    counters: Vec::new(),
                    // No rule reads histograms, which take most of an analysis.
                    response: Vec::new(),
                    service: Vec::new(),
                    void: None,
                    ..like.clone()
                });
            }
        }
        Self { record, stacks: Vec::new() }
    }

    /// An explanation of `to` against the baseline, with a cost for each set of layers.
    pub(super) fn explained(to: fn(&mut EnvironmentSpec), us: fn(&EnvironmentSpec) -> f64) -> Self {
        let (template, _) = fixture::single_round();
        let from = template.environments[0].spec.clone();
        let mut last = EnvironmentSpec { name: "box".into(), ..from.clone() };
        to(&mut last);
        let (plan, specs) = Plan::new(&from, &last, &|_| true, 32, 1).unwrap();
        let specs: Vec<(EnvironmentSpec, f64)> =
            specs.into_iter().map(|spec| (spec.clone(), us(&spec))).collect();
        let mut world = Self::with(&specs);
        world.record.host.push(plan.fact());
        world
    }

    /// The slices of an environment.
    pub(super) fn slices(mut self, environment: &str, change: impl Fn(u32, &mut Slice)) -> Self {
        let ours = |one: &&mut Slice| one.environment == environment;
        self.record.slices.iter_mut().filter(ours).for_each(|one| change(one.round, one));
        self
    }

    /// Slices at the fixed rate, with response times in µs.
    pub(super) fn latencies(
        mut self,
        environment: &str,
        operations: u64,
        us: impl Fn(&mut Rng) -> f64,
    ) -> Self {
        let mut rng = Rng::new(environment.len() as u64);
        let ours = self.record.slices.iter().filter(|one| one.environment == environment);
        for like in ours.cloned().collect::<Vec<_>>() {
            let mut histogram = Histogram::<u64>::new(3).unwrap();
            let weather = 1.0 + 0.01 * rng.normal();
            for _ in 0..operations {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a time"
                )]
                histogram.record((1e3 * weather * us(&mut rng)) as u64).unwrap();
            }
            let mut response = Vec::new();
            V2DeflateSerializer::new().serialize(&histogram, &mut response).unwrap();
            let id = i64::try_from(self.record.slices.len()).unwrap() + 1;
            self.record.slices.push(Slice {
                id,
                phase: Phase::Latency,
                response,
                operations,
                ..like
            });
        }
        self
    }

    /// Adds a counter per operation.
    pub(super) fn counter(self, environment: &str, name: &str, per_operation: f64) -> Self {
        self.slices(environment, |block, slice| {
            let wander = 1.0 + f64::from(block % 3) / 100.0;
            let value = per_operation * wander * slice.operations as f64;
            slice.counters.push(Counter { name: name.into(), value });
        })
    }

    pub(super) fn setting(mut self, environment: &str, key: &str, value: &str) -> Self {
        for one in &mut self.record.environments {
            if one.spec.name == environment {
                one.settings.retain(|(known, _)| known != key);
                one.settings.push((key.into(), value.into()));
            }
        }
        self
    }

    /// Adds a doubt about some slices of an environment.
    pub(super) fn doubt(mut self, environment: &str, doubt: &Doubt, slices: usize) -> Self {
        let ours = self.record.slices.iter().filter(|one| one.environment == environment);
        let ids: Vec<i64> = ours.map(|one| one.id).take(slices).collect();
        self.record.doubts.extend(ids.into_iter().map(|id| DoubtRecord {
            slice: Some(id),
            environment: None,
            doubt: doubt.clone(),
        }));
        self
    }

    pub(super) fn blocks(mut self, blocks: u32) -> Self {
        self.record.slices.retain(|one| one.round < blocks);
        self
    }

    pub(super) fn without_control(mut self) -> Self {
        let control = self.record.environments.pop().unwrap().spec.name;
        self.record.slices.retain(|one| one.environment != control);
        self
    }

    /// Stacks of an environment: samples of the system by subsystem, each 0.1 µs per operation.
    pub(super) fn stacks(mut self, environment: &str, subsystems: &[(&str, u64)]) -> Self {
        for round in 0..5u32 {
            let noise = u64::from(round % 2);
            let mut stacks: Vec<SampledStack> = subsystems
                .iter()
                .map(|(subsystem, samples)| SampledStack {
                    part: SYSTEM.into(),
                    subsystem: (*subsystem).into(),
                    folded: format!("main;{}_[k]", subsystem.replace(' ', "_")),
                    samples: samples + noise,
                })
                .collect();
            let all: u64 = stacks.iter().map(|one| one.samples).sum();
            stacks.push(SampledStack {
                part: CLIENT.into(),
                subsystem: "client".into(),
                folded: "load".into(),
                samples: 10,
            });
            let cpu = |part: &str, samples: u64| PartCpu {
                part: part.into(),
                cpu_ns: samples * 100 * OPERATIONS,
                idle_poll_ns: 0,
            };
            self.stacks.push(StackSlice {
                id: 0,
                round,
                position: 0,
                environment: environment.into(),
                workload: self.record.study.workloads[0].name.clone(),
                started_unix_ms: 0,
                window_ns: 1_000_000_000,
                operations: OPERATIONS,
                rate_per_s: 10_000.0,
                kind: StackKind::OnCpu,
                event: "cpu-clock at 999 Hz".into(),
                cpu: vec![cpu(SYSTEM, all), cpu(CLIENT, 10)],
                stacks,
                void: None,
            });
        }
        self
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a positive time")]
pub(super) fn ns(us: f64) -> u64 {
    (us * 1e3 * OPERATIONS as f64) as u64
}
