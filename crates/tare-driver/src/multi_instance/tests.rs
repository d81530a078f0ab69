use super::*;
use tare_lab::study::KeyDistribution;

/// A driver with a prepared result.
struct Scripted {
    load: SliceLoad,
    edges: Vec<Edge>,
    /// Waits for a message before its edges.
    gate: Option<mpsc::Receiver<()>>,
    /// Gets a message after them.
    begun: Option<mpsc::Sender<()>>,
    asked: mpsc::Sender<Pacing>,
}

impl Driver for Scripted {
    fn open(
        &mut self,
        addresses: &[SocketAddr],
        _deadline: Duration,
    ) -> Result<TargetId, PartError> {
        Ok(TargetId(addresses[0].port().into()))
    }

    fn populate(
        &mut self,
        _target: TargetId,
        _workload: &WorkloadSpec,
        _seed: u64,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), PartError> {
        progress(10, 10);
        Ok(())
    }

    fn run(
        &mut self,
        _target: TargetId,
        order: &SliceOrder,
        edge: &mut dyn FnMut(Edge),
    ) -> Result<SliceLoad, PartError> {
        self.asked.send(order.pacing)?;
        if let Some(gate) = &self.gate {
            gate.recv_timeout(Duration::from_secs(10))?;
        }
        self.edges.iter().for_each(|one| edge(*one));
        if let Some(begun) = &self.begun {
            begun.send(())?;
        }
        Ok(self.load.clone())
    }

    fn close(&mut self, _target: TargetId) -> Result<(), PartError> {
        Ok(())
    }

    fn pids(&self) -> Vec<u32> {
        vec![1]
    }

    fn stop(&mut self) -> Result<(), PartError> {
        Ok(())
    }
}

fn times(values: &[u64]) -> Vec<u8> {
    let mut histogram = histogram::new();
    values.iter().for_each(|ns| histogram::record(&mut histogram, *ns));
    histogram::encode(&histogram)
}

fn load(operations: u64, service: &[u64]) -> SliceLoad {
    SliceLoad {
        window_ns: 1_000,
        operations,
        errors: vec![("timed out".into(), operations)],
        unsent: 1,
        sent_late: Some(operations / 10),
        client_cpu_ns: 5,
        busiest_thread_ns: 0,
        response: Vec::new(),
        service: times(service),
        loaders: Vec::new(),
        instances: Vec::new(),
        paths: Vec::new(),
        seconds: Vec::new(),
    }
}

fn order(pacing: Pacing) -> SliceOrder {
    let workload = WorkloadSpec {
        name: "w".into(),
        workload: None,
        workload_text: None,
        write_share: 1.0,
        rows: 10,
        columns: 1,
        column_bytes: 1,
        keys: KeyDistribution::Uniform,
        connections: 1,
        in_flight: 1,
        load: tare_lab::study::LoadSize::default(),
        latency_share: 0.0,
        rate_only: false,
        slo: None,
        reads_from_disk: None,
        replicas: tare_lab::study::Replicas::default(),
        connection: tare_lab::study::ClientConnection::default(),
        attached_rows: None,
        rate_per_s: None,
        options: Vec::new(),
    };
    let (lead_in, window) = (Duration::ZERO, Duration::from_millis(1));
    SliceOrder { workload, pacing, lead_in, window, seed: 1 }
}

fn addresses() -> [SocketAddr; 2] {
    [7, 8].map(|port| ([127, 0, 0, 1], port).into())
}

#[test]
fn loads_add_up_and_rate_is_divided() {
    let (asked, paces) = mpsc::channel();
    let edges = vec![Edge::Begin, Edge::End];
    let (open, gate) = mpsc::channel();
    let first = Scripted {
        load: load(3, &[100, 200]),
        edges: vec![Edge::Begin],
        gate: None,
        begun: Some(open),
        asked: asked.clone(),
    };
    // The second driver begins after the first.
    let second = Scripted { load: load(4, &[300]), edges, gate: Some(gate), begun: None, asked };
    let mut multi_instance = MultiInstance {
        drivers: vec![Box::new(first), Box::new(second)],
        targets: Targets::default(),
    };
    let three = [addresses().as_slice(), &addresses()[..1]].concat();
    let error = multi_instance.open(&three, Duration::ZERO).unwrap_err().to_string();
    assert!(error.contains("up to 2 instances of the system, not 3"), "{error}");
    let target = multi_instance.open(&addresses(), Duration::ZERO).unwrap();
    let mut seen = Vec::new();
    let workload = order(Pacing::Closed).workload;
    multi_instance.populate(target, &workload, 1, &mut |done, all| seen.push((done, all))).unwrap();
    assert_eq!(seen, [(10, 20), (20, 20)]);
    let mut edges = Vec::new();
    let pacing = Pacing::Open { rate_per_s: 100.0 };
    let sum = multi_instance.run(target, &order(pacing), &mut |edge| edges.push(edge)).unwrap();
    assert_eq!(edges, [Edge::Begin, Edge::End]);
    assert_eq!((sum.operations, sum.unsent, sum.client_cpu_ns, sum.window_ns), (7, 2, 10, 1_000));
    assert_eq!(sum.errors, [("timed out".to_string(), 7)]);
    assert_eq!(sum.service, times(&[100, 200, 300]));
    let each: Vec<(u64, u64)> = sum
        .instances
        .iter()
        .map(|one| (one.operations, one.latency_ns.map_or(0, |latency| latency[1])))
        .collect();
    assert_eq!(each, [(3, 200), (4, 300)]);
    assert!(sum.response.is_empty());
    let half = Pacing::Open { rate_per_s: 50.0 };
    assert_eq!(paces.try_iter().collect::<Vec<_>>(), [half, half]);
    assert_eq!(multi_instance.pids(), [1, 1]);
    multi_instance.close(target).unwrap();
    let error = multi_instance.close(target).unwrap_err().to_string();
    assert!(error.contains("no target 0"), "{error}");
}

#[test]
fn fewer_instances_use_the_first_drivers() {
    let (asked, paces) = mpsc::channel();
    let one = |operations| -> Box<dyn Driver + Send> {
        let (edges, asked) = (vec![Edge::Begin, Edge::End], asked.clone());
        Box::new(Scripted { load: load(operations, &[1]), edges, gate: None, begun: None, asked })
    };
    let drivers = vec![one(1), one(2)];
    let mut multi_instance = MultiInstance { drivers, targets: Targets::default() };
    let target = multi_instance.open(&addresses()[..1], Duration::ZERO).unwrap();
    let mut seen = Vec::new();
    let workload = order(Pacing::Closed).workload;
    multi_instance.populate(target, &workload, 1, &mut |done, all| seen.push((done, all))).unwrap();
    assert_eq!(seen, [(10, 10)]);
    let pacing = Pacing::Open { rate_per_s: 100.0 };
    let sum = multi_instance.run(target, &order(pacing), &mut |_| {}).unwrap();
    assert_eq!((sum.operations, sum.instances.len()), (1, 1));
    assert_eq!(paces.try_iter().collect::<Vec<_>>(), [pacing]);
    assert!(multi_instance.open(&[], Duration::ZERO).is_err());
}

#[test]
fn windows_that_never_overlap_are_refused() {
    let (asked, _paces) = mpsc::channel();
    let one = |edges: &[Edge]| -> Box<dyn Driver + Send> {
        let (edges, gate, asked) = (edges.to_vec(), None, asked.clone());
        Box::new(Scripted { load: load(1, &[1]), edges, gate, begun: None, asked })
    };
    let drivers = vec![one(&[Edge::Begin, Edge::End]), one(&[])];
    let mut multi_instance = MultiInstance { drivers, targets: Targets::default() };
    let target = multi_instance.open(&addresses(), Duration::ZERO).unwrap();
    let error =
        multi_instance.run(target, &order(Pacing::Closed), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("set a longer schedule.window"), "{error}");
}

#[test]
fn loaders_of_all_instances_are_one_each() {
    let slice = |loader, operations, begin_offset_ns, waited_ns| LoaderSlice {
        loader,
        window_ns: 100,
        operations,
        cpu_ns: 10,
        busiest_thread_ns: 10 * u64::from(loader + 1),
        waited_ns,
        begin_offset_ns,
        end_offset_ns: -begin_offset_ns,
        clock_error_ns: operations,
    };
    let load = |loaders| SliceLoad { loaders, ..SliceLoad::default() };
    let mut loads = [
        load(vec![slice(0, 5, -9, Some(4)), slice(1, 1, 2, Some(1))]),
        load(vec![slice(0, 7, 3, Some(8)), slice(1, 1, 1, None)]),
    ];
    // The second window opened 20 ns before the accounts were read, and closed when they were.
    let read = Edges { begin_ns: Some(120), end_ns: Some(200) };
    let seen = Edges { begin_ns: Some(100), end_ns: Some(200) };
    seen.compare_with(read, &mut loads[1].loaders);
    let sum = sum(&loads).unwrap().loaders;
    assert_eq!(sum.len(), 2);
    let LoaderSlice { operations, cpu_ns, begin_offset_ns, end_offset_ns, waited_ns, .. } = sum[0];
    assert_eq!((operations, cpu_ns, waited_ns), (12, 20, Some(6)));
    assert_eq!((begin_offset_ns, end_offset_ns), (-17, 9));
    assert_eq!((sum[0].clock_error_ns, sum[1].waited_ns, sum[1].loader), (7, None, 1));
}
