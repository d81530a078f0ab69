//! The options of a study for several instances of a system in one environment.

use tare_lab::study::OptionInfo;
use tare_lab::system::Instances;

use super::options::{OptionError, Options};

/// How many instances there are.
pub(crate) const INSTANCES: OptionInfo = OptionInfo {
    name: "instances",
    values: &[],
    help: "how many of it an environment runs, with its CPUs and limits divided (default 1)",
};

/// Whether they form a cluster.
pub(crate) const CLUSTER: OptionInfo = OptionInfo {
    name: "cluster",
    values: &["true", "false"],
    help: "true: the instances are the nodes of one cluster; false: each is separate (default)",
};

/// Reads the options of instances. A system that forms no clusters has no option `cluster`.
pub(crate) fn read(options: &Options) -> Result<Instances, OptionError> {
    let cluster = options.text("cluster") == Some("true");
    let count = options.count("instances", if cluster { 2 } else { 1 })?;
    if cluster && count < 2 {
        let wanted = "a cluster of at least 2 nodes";
        return Err(options.bad("instances", &count.to_string(), wanted));
    }
    Ok(Instances { count, cluster })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_lab::study::SystemSpec;

    #[test]
    fn instances_and_cluster_are_read() {
        let read = |pairs: &[(&str, &str)]| {
            let options = pairs.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            let spec = SystemSpec { name: "cassandra".into(), options };
            read(&Options::new(&spec)).map_err(|error| error.to_string())
        };
        let some = |count, cluster| Ok(Instances { count, cluster });
        assert_eq!(read(&[]), Ok(Instances::ONE));
        assert_eq!(read(&[("instances", "3")]), some(3, false));
        assert_eq!(read(&[("instances", "3"), ("cluster", "true")]), some(3, true));
        assert_eq!(read(&[("cluster", "true")]), some(2, true));
        assert_eq!(read(&[("cluster", "false")]), Ok(Instances::ONE));
        let error = read(&[("instances", "1"), ("cluster", "true")]).unwrap_err();
        assert!(error.contains("a cluster of at least 2 nodes"), "{error}");
        assert!(read(&[("instances", "0")]).is_err());
    }
}
