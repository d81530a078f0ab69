"""latte: its basic write and read workloads. Its exit code is not trusted: its report is read."""

import json
import os
from pathlib import Path

from cache import REPOSITORY, command
from client import Client, printed_by
from clients.rust_scylla import CARGO

VERSION = "0.29.0"
OPERATIONS = 20000
DEADLINE_S = 120


def built(cache):
    """The directory with `bin/latte`, built if need be."""

    def make(directory):
        words = ["install", "latte-cli", "--version", VERSION, "--locked", "--debug", "--force"]
        words += ["--root", directory, "--target-dir", directory / "target"]
        # In the repository, so that it is the repository's own toolchain.
        command(["cargo", *words], cwd=REPOSITORY, CARGO_PROFILE_DEV_DEBUG="0")

    return cache.have("latte", [VERSION], make)


def workloads():
    """The directory of the workloads that come with the source."""
    home = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    return next(home.glob(f"registry/src/*/latte-cli-{VERSION}/workloads"))


class Latte(Client):
    name = "latte"
    about = "the load tool on the Rust driver: basic write and read"
    needs = CARGO

    def prepare(self, cache):
        built(cache)

    def run(self, cache, server, way, report):
        latte = built(cache) / "bin/latte"
        node = f"{server.host}:{server.port}"
        for name in ("write", "read"):
            workload = workloads() / f"basic/{name}.rn"
            results = server.directory / f"{name}.json"
            words = ["run", workload, "-d", OPERATIONS, "-w", 0, "-p", 64, "-q", "-o", results, node]
            for step in (["schema", workload, node], ["load", workload, node], words):
                said, code = printed_by([latte, *step], server.directory, DEADLINE_S)
                if code != 0:
                    report.failed(f"{name}: {step[0]}", f"exit code {code}:\n{said[-2000:]}")
                    break
            else:
                result = json.loads(results.read_text())["result"]
                done, errors = result["cycle_count"], result["error_count"]
                good = done == OPERATIONS and errors == 0
                report.check(f"{name}: {OPERATIONS} operations, no error", good, f"{done}, {errors} errors")
