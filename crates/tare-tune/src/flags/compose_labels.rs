//! The labels that docker compose, docker-compose and podman-compose give to every container: the
//! service, the directory of the project, and its files.

use std::path::{Path, PathBuf};

/// The label with the name of the service.
pub const SERVICE: &str = "com.docker.compose.service";
/// The label with the names of the files.
pub const FILES: &str = "com.docker.compose.project.config_files";
/// The label with the directory of the project: that of the first file, if nothing else is said.
pub const FOLDER: &str = "com.docker.compose.project.working_dir";

/// Returns for each compose file that a container was made from where it may be, the likeliest
/// first. docker compose writes whole paths. The others write what they were called with, from a
/// directory that no label has.
pub fn files<'l>(label: impl Fn(&str) -> Option<&'l str>) -> Vec<Vec<PathBuf>> {
    let folder = Path::new(label(FOLDER).unwrap_or_default());
    let names = label(FILES).map_or_else(Vec::new, |names| names.split(',').collect());
    names.into_iter().map(|name| places(folder, Path::new(name.trim()))).collect()
}

fn places(folder: &Path, name: &Path) -> Vec<PathBuf> {
    if name.is_absolute() {
        return vec![name.into()];
    }
    let beside_first = name.file_name().map(|last| folder.join(last));
    let above = folder.ancestors().map(|called_in| called_in.join(name));
    let mut all: Vec<PathBuf> = beside_first.into_iter().chain(above).collect();
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_files_may_be_beside_the_first_or_above() {
        let check = |names: Option<&'static str>, expect: &[&[&str]]| {
            let label = |name: &str| if name == FOLDER { Some("/srv/shop") } else { names };
            let found: Vec<Vec<String>> = files(label)
                .iter()
                .map(|places| places.iter().map(|place| place.display().to_string()).collect())
                .collect();
            assert_eq!(found, expect, "{names:?}");
        };
        check(
            Some("/srv/a.yml, b.yml"),
            &[&["/srv/a.yml"], &["/srv/shop/b.yml", "/srv/b.yml", "/b.yml"]],
        );
        let called_above =
            ["/srv/shop/a.yml", "/srv/shop/shop/a.yml", "/srv/shop/a.yml", "/shop/a.yml"];
        check(Some("shop/a.yml"), &[&called_above]);
        check(None, &[]);
    }
}
