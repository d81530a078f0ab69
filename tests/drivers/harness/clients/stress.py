"""cassandra-stress: its write, read and mixed workloads on its own schema.

Its exit code is 0 whatever happens, so the operations done and the errors that it prints are
compared with what was asked.
"""

import re

from client import Client, printed_by
from clients.java import JAVA, jars

OPERATIONS = 20000
THREADS = 32
DEADLINE_S = 120
# write, read, and the mix of them that is its default.
WORKLOADS = ("write", "read", "mixed ratio(write=1,read=1)")


class Stress(Client):
    name = "cassandra-stress"
    about = "the load tool of Cassandra 4.0: write, read, mixed"
    needs = JAVA

    def prepare(self, cache):
        jars(cache)

    def run(self, cache, server, way, report):
        jar_directory = jars(cache)
        cassandra = next(jar_directory.glob("apache-cassandra-*"))
        classes = [cassandra / "conf", jar_directory / "lib/HdrHistogram-2.1.12.jar"]
        classes += [cassandra / "lib/*", cassandra / "tools/lib/*"]
        java = ["java", "-XX:TieredStopAtLevel=1", "-cp", ":".join(map(str, classes))]
        for workload in WORKLOADS:
            words = [*java, "org.apache.cassandra.stress.Stress", *workload.split()]
            words += [f"n={OPERATIONS}", "no-warmup", "-rate", f"threads={THREADS}"]
            words += ["-node", server.host, "-port", f"native={server.port}"]
            printed, _ = printed_by(words, server.directory, DEADLINE_S)
            judge(workload, printed, report)


def judge(workload, printed, report):
    """All operations done, none failed; what it says of each is on a line of its own."""
    done, errors = figure(printed, "Total partitions"), figure(printed, "Total errors")
    good = done == OPERATIONS and errors == 0
    last = "\n".join(line for line in printed.splitlines()[-40:] if not line.startswith("\tat "))
    why = f"{done} operations of {OPERATIONS}, {errors} errors; it said:\n{last}"
    report.check(f"{workload}: {OPERATIONS} operations, no error", good, why)


def figure(printed, name):
    found = re.search(rf"^{name} *: *([\d,]+)", printed, re.MULTILINE)
    return int(found[1].replace(",", "")) if found else None
