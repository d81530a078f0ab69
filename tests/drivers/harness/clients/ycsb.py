"""YCSB: its core workloads A and D, by a binding of ours (ycsb/CqlBinding.java).

YCSB's own Cassandra binding is not on Maven Central; its core is. YCSB checks the values that it
reads (`dataintegrity`), and its exit code is 0 whatever happens, so what it prints is compared with
what was asked.
"""

import re
import shutil

from cache import DRIVERS, command
from client import Client, printed_by
from clients.java import JAVA

POM = DRIVERS / "ycsb/pom.xml"
SOURCES = [DRIVERS / "ycsb/CqlBinding.java", DRIVERS / "ycsb/Execute.java"]
LOGGING = "org.slf4j.simpleLogger.defaultLogLevel=warn\n"
# A release that every Java from this one on runs.
RELEASE = "11"

ROWS = 5000
OPERATIONS = 20000
THREADS = 16
DEADLINE_S = 120
KEYSPACE = "ycsb"
# All kinds of operations, whose default shares are not 0.
KINDS = ("read", "update", "insert", "scan", "readmodifywrite")
# The shares of the operations, and how keys are drawn.
# https://github.com/brianfrankcooper/YCSB/wiki/Core-Workloads
WORKLOADS = {
    "A": ({"read": 0.5, "update": 0.5}, "zipfian"),
    "D": ({"read": 0.95, "insert": 0.05}, "latest"),
}


class Ycsb(Client):
    name = "ycsb"
    about = "YCSB 0.17.0, workloads A and D, by a binding of ours"
    needs = {**JAVA, "jar": "default-jdk-headless"}

    def prepare(self, cache):
        jars(cache)

    def run(self, cache, server, way, report):
        statements = [
            f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
            "{'class': 'SimpleStrategy', 'replication_factor': 1}",
            f"CREATE TABLE {KEYSPACE}.usertable (y_id varchar PRIMARY KEY, "
            + ", ".join(f"field{number} varchar" for number in range(10))
            + ")",
        ]
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", f"{jars(cache)}/lib/*"]
        command([*java, "tare.ycsb.Execute", server.host, server.port, *statements])
        judge("load", ycsb(java, server, "-load", {}, "uniform"), {"insert": ROWS}, report)
        for workload, (shares, keys) in WORKLOADS.items():
            printed = ycsb(java, server, "-t", shares, keys)
            counts = {kind: round(share * OPERATIONS) for kind, share in shares.items()}
            judge(workload, printed, counts, report)


def jars(cache):
    """Returns the directory whose `lib` has YCSB's core, the driver and our binding, as jars."""

    def make(directory):
        target = directory / "target"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copy(POM, directory)
        command(["mvn", "--quiet", "--batch-mode", "generate-resources"], cwd=directory)
        classes = target / "classes"
        classes.mkdir()
        (classes / "simplelogger.properties").write_text(LOGGING)
        words = ["javac", "--release", RELEASE, "-cp", f"{target}/lib/*", "-d", classes]
        command([*words, *SOURCES])
        command(["jar", "--create", "--file", target / "lib/tare-binding.jar", "-C", classes, "."])

    return cache.have("ycsb", [POM, *SOURCES, LOGGING, RELEASE], make) / "target"


def ycsb(java, server, phase, shares, keys):
    """Runs a phase (`-load`, or `-t`, the mix) to its end, and returns what it prints."""
    words = [*java, "site.ycsb.Client", phase, "-threads", THREADS, "-db", "tare.ycsb.CqlBinding"]
    properties = {
        "workload": "site.ycsb.workloads.CoreWorkload",
        "requestdistribution": keys,
        "recordcount": ROWS,
        "operationcount": OPERATIONS,
        "dataintegrity": "true",
        "fieldlengthdistribution": "constant",
        "hosts": server.host,
        "port": server.port,
        "cassandra.keyspace": KEYSPACE,
    }
    properties |= {f"{kind}proportion": shares.get(kind, 0) for kind in KINDS}
    for name, value in properties.items():
        words += ["-p", f"{name}={value}"]
    printed, _ = printed_by(words, server.directory, DEADLINE_S)
    return printed


def judge(name, printed, expected, report):
    """Each kind of operation ran about as often as expected, all succeeded, all values were right."""
    done = {kind: figure(printed, kind.upper(), "Return=OK") for kind in expected}
    total, wanted = sum(done.values()), sum(expected.values())
    last = "\n".join(printed.splitlines()[-30:])
    said = f"of {expected} it did {done}; it said:\n{last}"
    report.check(f"{name}: {wanted} operations, no error", total == wanted, said)
    # The kinds are drawn, so their counts differ from the shares by a few standard deviations.
    near = all(abs(done[kind] - count) < 5 * wanted**0.5 for kind, count in expected.items())
    report.check(f"{name}: the mix is that of the workload", near, said)
    if "read" in expected:
        right = figure(printed, "VERIFY", "Return=OK")
        why = f"{right} of {done['read']} reads returned the values written; it said:\n{last}"
        report.check(f"{name}: every read has the right values", right == done["read"], why)


def figure(printed, kind, name):
    found = re.search(rf"^\[{kind}\], {name}, (\d+)$", printed, re.MULTILINE)
    return int(found[1]) if found else 0
