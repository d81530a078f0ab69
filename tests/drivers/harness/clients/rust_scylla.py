"""The Rust driver `scylla`, and its own tests."""

import json
import shutil
from pathlib import Path

from cache import DRIVERS, REPOSITORY, command
from client import OPENSSL, PLAIN, SECURE, Client, checks

SOURCE = DRIVERS / "rust-scylla"
CARGO = {"cargo": "rustup, see ./test", "cc": "gcc"}
# The driver's TLS is that of the system: the other library that it can take, of cryptography too, takes
# longer to build than all the rest.
LIBRARY = {"pkg-config": "pkg-config and libssl-dev"}
# These start clusters by a crate that is not published.
UNBUILDABLE = "ccm"
# This one brings in a JSON schema validator for a table (system.clients) that Cassandra lacks too.
LEFT_OUT = "startup_options"


def built(cache):
    """The directory with the checks (`checks`) and the crate's tests (`suite`), built if need be."""
    sources = sorted((SOURCE / "src").iterdir())

    def make(directory):
        package = directory / "package"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(SOURCE, package)
        shutil.copytree(crate() / "tests/integration", package / "tests/integration")
        without(package / "tests/integration/main.rs", UNBUILDABLE)
        without(package / "tests/integration/session/mod.rs", LEFT_OUT)
        words = ["test", "--no-run", "--locked", "--test", "integration", "--message-format", "json"]
        words += ["--manifest-path", package / "Cargo.toml", "--target-dir", directory / "target"]
        # In the repository, so that it is the repository's own toolchain, which links statically.
        printed = command(["cargo", *words], cwd=REPOSITORY, OPENSSL_STATIC=1)
        for line in printed.splitlines():
            if line.startswith('{"reason":"compiler-artifact"'):
                artifact = json.loads(line)
                if artifact["executable"]:
                    name = {"bin": "checks", "test": "suite"}[artifact["target"]["kind"][0]]
                    shutil.copy(artifact["executable"], directory / name)

    inputs = [SOURCE / "Cargo.toml", SOURCE / "Cargo.lock", *sources, UNBUILDABLE, LEFT_OUT]
    return cache.have("rust-scylla", [*inputs, REPOSITORY / "rust-toolchain.toml"], make)


def crate():
    """The unpacked source of the crate, which has its tests."""
    words = ["metadata", "--locked", "--format-version", "1"]
    printed = command(
        ["cargo", "--quiet", *words, "--manifest-path", SOURCE / "Cargo.toml"], cwd=REPOSITORY
    )
    document = next(line for line in printed.splitlines() if line.startswith("{"))
    packages = json.loads(document)["packages"]
    return Path(next(p for p in packages if p["name"] == "scylla")["manifest_path"]).parent


def without(path, module):
    """Takes `mod MODULE;` out of a file."""
    lines = path.read_text().splitlines(keepends=True)
    left = [line for line in lines if not line.rstrip().endswith(f"mod {module};")]
    path.chmod(0o644)
    path.write_text("".join(left))


class RustScylla(Client):
    name = "rust-scylla"
    about = "scylla, the Rust driver of ScyllaDB"
    needs = {**CARGO, **LIBRARY, **OPENSSL}
    ways = (PLAIN, SECURE)

    def prepare(self, cache):
        built(cache)

    def run(self, cache, server, way, report):
        checks(server, way, report, [built(cache) / "checks"])
