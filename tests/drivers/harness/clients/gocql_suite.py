"""gocql's own integration tests. Those that fail, and why, are listed in docs/reference/cql.md."""

import re

from client import USUAL_PORT, Client, printed_by
from clients.gocql import GO, built
from listed import judge

DEADLINE_S = 300
VERDICT = re.compile(r"^--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


class GocqlSuite(Client):
    name = "gocql-suite"
    about = "gocql's own integration tests"
    needs = GO
    ways = (USUAL_PORT,)

    def prepare(self, cache):
        built(cache)

    def run(self, cache, server, way, report):
        words = [built(cache) / "suite", "-test.v", f"-test.timeout={DEADLINE_S}s"]
        words += ["-proto=5", "-rf=1", "-clusterSize=1", "-gocql.cversion=4.0.0", "-retries=1"]
        words += [f"-cluster={server.host}"]
        # The empty PATH stops a test that would start a container from an image on the network.
        nowhere = {"PATH": server.directory}
        printed, _ = printed_by(words, server.directory, DEADLINE_S + 30, **nowhere)
        verdicts = {name: verdict for verdict, name in VERDICT.findall(printed)}
        judge("gocql", verdicts, printed, report)
