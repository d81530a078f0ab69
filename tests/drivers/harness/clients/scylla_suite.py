"""The integration tests of the `scylla` crate. Those that fail are listed in docs/reference/cql.md."""

import re

from client import USUAL_PORT, Client, printed_by
from clients.rust_scylla import CARGO, LIBRARY, built
from listed import judge

DEADLINE_S = 400
VERDICT = re.compile(r"^test (\S+)(?: - should panic)? \.\.\. (ok|FAILED|ignored)", re.MULTILINE)
WORDS = {"ok": "PASS", "FAILED": "FAIL", "ignored": "SKIP"}


class ScyllaSuite(Client):
    name = "scylla-suite"
    about = "the integration tests of the scylla crate"
    needs = {**CARGO, **LIBRARY}
    ways = (USUAL_PORT,)

    def prepare(self, cache):
        built(cache)

    def run(self, cache, server, way, report):
        node = f"{server.host}:{server.port}"
        words = [built(cache) / "suite", "--test-threads", "4"]
        nodes = {"SCYLLA_URI": node, "SCYLLA_URI2": node, "SCYLLA_URI3": node}
        printed, _ = printed_by(words, server.directory, DEADLINE_S, **nodes)
        verdicts = {name: WORDS[verdict] for name, verdict in VERDICT.findall(printed)}
        judge("scylla", verdicts, printed, report)
