//! The container of a service of a compose file, by the labels that docker compose and
//! podman-compose give to each container. The file itself is not read.

use std::collections::HashMap;
use std::path::Path;

use tare_host::error_line;
use tare_tune::flags::compose_labels;

use super::engine::{Engine, Kind, Labelled};

/// Returns the engine and the name of the one running container of a service.
pub(super) fn find(file: &Path, service: &str) -> Result<(&'static str, String), String> {
    let shown = file.display();
    let path = file.canonicalize().map_err(|error| {
        format!("cannot find the compose file {shown}: {error}; write its path from here")
    })?;
    let (mut found, mut missing) = (Vec::new(), None);
    let mut has_answered = false;
    for kind in [Kind::Docker, Kind::Podman] {
        let all = Engine::connect(kind).map_err(|error| error_line(&error)).and_then(|engine| {
            let label = format!("{}={service}", compose_labels::SERVICE);
            engine.labelled(&label).map_err(|error| error_line(&error))
        });
        match all {
            Ok(all) => {
                has_answered = true;
                let own = all.into_iter().filter(|one| is_of(&one.labels, &path));
                found.extend(own.map(|one| (kind.name(), one)));
            }
            Err(error) => missing = missing.or(Some(error)),
        }
    }
    match missing.filter(|_| !has_answered) {
        Some(error) => Err(error),
        None => choose(found, &format!("service {service} of {shown}"), service),
    }
}

/// Returns the one that runs.
fn choose(
    found: Vec<(&'static str, Labelled)>,
    what: &str,
    service: &str,
) -> Result<(&'static str, String), String> {
    let is_there = !found.is_empty();
    let mut running = found.into_iter().filter(|(_, one)| one.runs);
    match (running.next(), running.next()) {
        (Some((engine, one)), None) => Ok((engine, one.name)),
        (Some((engine, one)), Some((_, other))) => Err(format!(
            "{what} has several running containers, {} and {}; write container = \"{engine}:{}\"",
            one.name, other.name, one.name
        )),
        (None, _) if is_there => {
            Err(format!("no container of {what} runs; docker compose start {service} starts it"))
        }
        (None, _) => {
            Err(format!("there is no container of {what}; docker compose up -d {service} makes it"))
        }
    }
}

/// Returns whether a container was made from a compose file, given by its whole path.
fn is_of(labels: &HashMap<String, String>, file: &Path) -> bool {
    let files = compose_labels::files(|name| labels.get(name).map(String::as_str)).into_iter();
    let mut there = files.filter_map(|places| {
        let first = places.into_iter().find(|place| place.exists());
        first.and_then(|place| place.canonicalize().ok())
    });
    there.any(|path| path == file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(name: &str, runs: bool) -> (&'static str, Labelled) {
        ("docker", Labelled { name: name.into(), runs, ..Labelled::default() })
    }

    #[test]
    fn one_running_container_is_chosen() {
        let check = |found: Vec<(&'static str, Labelled)>, expect: &str| {
            let found = choose(found, "service db of compose.yml", "db");
            let found =
                found.map_or_else(|error| error, |(engine, name)| format!("{engine}:{name}"));
            assert!(found.contains(expect), "{found}");
        };
        check(
            vec![container("shop-db-1", true), container("shop-db-0", false)],
            "docker:shop-db-1",
        );
        check(
            vec![],
            "there is no container of service db of compose.yml; docker compose up -d db",
        );
        check(vec![container("shop-db-1", false)], "docker compose start db");
        let two = vec![container("shop-db-1", true), container("shop-db-2", true)];
        check(two, "shop-db-1 and shop-db-2; write container = \"docker:shop-db-1\"");
    }

    #[test]
    fn files_are_compared_by_their_whole_paths() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        std::fs::create_dir(folder.join("shop")).unwrap();
        let file = folder.join("shop/docker-compose.yml");
        let above = folder.join("docker-compose.yml");
        for file in [&file, &above] {
            std::fs::write(file, "services: {}\n").unwrap();
        }
        let labels = |files: &str| {
            let shop = folder.join("shop");
            let pairs =
                [(compose_labels::FILES, files), (compose_labels::FOLDER, shop.to_str().unwrap())];
            pairs.map(|(name, value)| (name.to_string(), value.to_string())).into()
        };
        let whole = format!("/srv/other.yml,{}", file.display());
        for files in [whole.as_str(), "docker-compose.yml", "base.yml,./docker-compose.yml"] {
            assert!(is_of(&labels(files), &file), "{files}");
            assert!(!is_of(&labels(files), &above), "{files}");
        }
        // docker-compose and podman-compose write a path from where they were called.
        assert!(is_of(&labels("shop/docker-compose.yml"), &file));
        assert!(!is_of(&labels("compose.yml"), &file));
        assert!(!is_of(&HashMap::new(), &file));
    }
}
