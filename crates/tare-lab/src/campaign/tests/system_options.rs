//! Environments with options of the system of their own.

use super::*;
use crate::PartError;
use crate::environment::{Endpoint, Launch};
use crate::fake::FakeSystem;
use crate::system::System;

/// The fake system, with a setting that shows which one it is.
struct SystemWithOption(FakeSystem);

impl System for SystemWithOption {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn launch(&self, cpus: usize) -> Launch {
        self.0.launch(cpus)
    }

    fn settings(&self, _at: &Endpoint) -> Result<Vec<(String, String)>, PartError> {
        Ok(vec![("polling".into(), "off".into())])
    }
}

#[test]
fn an_environment_runs_the_system_with_its_own_options() {
    let world = FakeHost::new(1);
    let scratch = RecordFolder::new();
    let options = vec![("polling".to_string(), "off".to_string())];
    let mut study = two();
    study.environments[1].system.clone_from(&options);
    let writer = RecordWriter::create(&scratch.path(), &opening(&study)).unwrap();
    let (common, own) = (world.system(), SystemWithOption(world.system()));
    let mut driver = world.driver();
    let mut make = |spec: &EnvironmentSpec| world.environment(spec);
    let parts = Parts {
        systems_with_options: vec![(options.clone(), &own)],
        ..Parts::new(&mut make, &common, &mut driver, &world, plan())
    };
    run(parts, &study, writer, &mut NoObserver, &AtomicBool::new(false)).unwrap();
    let record = Record::read(&scratch.path()).unwrap();
    let of = |name: &str| record.environments.iter().find(|one| one.spec.name == name).unwrap();
    assert_eq!(of("box").settings, options);
    assert_eq!(of("box").spec.system, options, "the record keeps the options");
    for name in ["native", "native again"] {
        assert!(of(name).spec.system.is_empty() && of(name).settings != options, "{name}");
    }
}
