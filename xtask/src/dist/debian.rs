//! The Debian package: an `ar` archive of a version, a control archive and a data archive (deb(5)).
//! It has no scripts, so that installing it runs nothing and removing it leaves nothing.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;

use super::Release;
use super::archive::{FILE, PROGRAM, Tar, gzip};
use super::files::Files;

pub(super) fn write(files: &Files, release: &Release, out: &Path) -> anyhow::Result<PathBuf> {
    let mut data = Tar::new();
    let mut bytes = 0;
    let mut add = |path: &str, mode, content: &[u8]| {
        bytes += content.len();
        data.add(path, mode, content)
    };
    add("usr/bin/tare", PROGRAM, &files.program)?;
    add("usr/share/bash-completion/completions/tare", FILE, &files.bash)?;
    add("usr/share/doc/tare/copyright", FILE, &files.license)?;
    add("usr/share/fish/vendor_completions.d/tare.fish", FILE, &files.fish)?;
    for (name, text) in &files.man {
        add(&format!("usr/share/man/man1/{name}.gz"), FILE, &gzip(text)?)?;
    }
    for (name, text) in &files.studies {
        add(&format!("usr/share/tare/studies/{name}"), FILE, text)?;
    }
    add("usr/share/zsh/vendor-completions/_tare", FILE, &files.zsh)?;
    let mut control = Tar::new();
    control.add("control", FILE, fields(release, bytes).as_bytes())?;
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar.gz", gzip(&control.finish()?)?),
        ("data.tar.gz", gzip(&data.finish()?)?),
    ];
    let name = format!("tare_{}_{}.deb", release.version, release.machine.architecture());
    let path = out.join(name);
    fs::write(&path, ar(&members)).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// The control file. The program is static, so that nothing is needed to start it.
fn fields(release: &Release, bytes: usize) -> String {
    format!(
        "Package: tare\n\
         Version: {}\n\
         Architecture: {}\n\
         Maintainer: Tare <tare@localhost>\n\
         Installed-Size: {}\n\
         Recommends: runc, iproute2, nftables\n\
         Section: admin\n\
         Priority: optional\n\
         Description: weighs what isolation layers cost a database\n \
         Runs one database natively and in containers or virtual machines whose layers\n \
         differ one at a time, and reports what each layer costs, with intervals.\n",
        release.version,
        release.machine.architecture(),
        bytes.div_ceil(1024)
    )
}

/// An `ar` archive in its common form: a line of 60 bytes before each member, members at even
/// offsets.
fn ar(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, bytes) in members {
        let size = bytes.len();
        let line = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, "100644");
        archive.extend(line.as_bytes());
        archive.extend(bytes);
        if size % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_at_even_offsets() {
        let archive = ar(&[("one", b"odd".to_vec()), ("two", b"even".to_vec())]);
        assert_eq!(archive.len(), 8 + 60 + 4 + 60 + 4);
        assert!(archive[8 + 60 + 4..].starts_with(b"two "));
        assert_eq!(&archive[8 + 58..8 + 60], b"`\n");
    }
}
