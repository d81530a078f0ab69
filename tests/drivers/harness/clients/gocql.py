"""The gocql driver, and its own tests."""

import os
import shutil

from cache import DRIVERS, command
from client import OPENSSL, PLAIN, SECURE, Client, checks

SOURCE = DRIVERS / "gocql"
GO = {"go": "golang-go"}
MODULE = "github.com/apache/cassandra-gocql-driver/v2"
# The tests that need a database. Without `gocql_debug` some of the driver's assertions are off.
TAGS = "cassandra gocql_debug"


def built(cache):
    """Returns the directory with the checks (`checks`) and the driver's tests (`suite`)."""
    inputs = [SOURCE / name for name in ("go.mod", "go.sum", "main.go", "scalars.go")]

    def make(directory):
        go = {
            "CGO_ENABLED": 0,
            "GOFLAGS": "-trimpath -modcacherw -mod=readonly -buildvcs=false",
            "GOTOOLCHAIN": "local",
            "GOMODCACHE": directory / "modules",
            "GOCACHE": os.environ.get("GOCACHE", directory / "objects"),
        }
        command(["go", "build", "-ldflags=-s -w", "-o", directory / "checks", "."], cwd=SOURCE, **go)
        suite = ["go", "test", "-vet=off", "-ldflags=-s -w", "-tags", TAGS, "-c"]
        command([*suite, "-o", directory / "suite", MODULE], cwd=SOURCE, **go)
        # The objects are many times larger than the programs.
        shutil.rmtree(directory / "objects", ignore_errors=True)

    return cache.have("gocql", [*inputs, TAGS, command(["go", "version"])], make)


class Gocql(Client):
    name = "gocql"
    about = "gocql, the Go driver of Apache Cassandra"
    needs = {**GO, **OPENSSL}
    ways = (PLAIN, SECURE)

    def prepare(self, cache):
        built(cache)

    def run(self, cache, server, way, report):
        checks(server, way, report, [built(cache) / "checks"])
