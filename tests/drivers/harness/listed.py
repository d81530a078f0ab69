"""Compares third-party suites with the list of their failing cases in docs/reference/cql.md.

A table there, below a heading that starts with the suite's name, lists every failing case with the
reason. The run fails if a case fails and is not listed, if a listed case passes, or if a listed case
was not run. If the reason starts with "at times", the case may pass or fail, because its result
depends on timing.
"""

import os
import re
from pathlib import Path

from cache import REPOSITORY

PAGE = REPOSITORY / "docs/reference/cql.md"
HEADING = re.compile(r"^#+ +(.*)$")
AT_TIMES = "at times"
ROW = re.compile(r"^\| *`([^`]+)` *\| *(.*?) *\|$")


def listed(suite):
    """Returns the cases that are known to fail: name to reason."""
    cases, inside = {}, False
    for line in PAGE.read_text().splitlines():
        if heading := HEADING.match(line):
            inside = heading[1].split()[0] in (suite, f"`{suite}`")
        elif inside and (row := ROW.match(line)):
            cases[row[1]] = row[2]
    return cases


def judge(suite, verdicts, printed, report):
    """Reports differences from the list. `verdicts` has PASS, FAIL or SKIP by the name of a case.

    If $TARE_DRIVERS_KEEP names a directory, the output of the suite is kept there.
    """
    if keep := os.environ.get("TARE_DRIVERS_KEEP"):
        (Path(keep) / f"{suite}.txt").write_text(printed)
    known = listed(suite)
    good = True
    for name, verdict in sorted(verdicts.items()):
        if verdict == "FAIL" and name not in known:
            report.failed(name, f"fails, and is not listed in {PAGE.name}")
            good = False
        elif verdict != "FAIL" and not known.get(name, AT_TIMES).startswith(AT_TIMES):
            report.failed(name, f"{verdict}, but listed in {PAGE.name} as failing: {known[name]}")
            good = False
    for name in sorted(known.keys() - verdicts.keys()):
        report.failed(name, f"listed in {PAGE.name}, but was not run")
        good = False
    count = {verdict: list(verdicts.values()).count(verdict) for verdict in ("PASS", "FAIL", "SKIP")}
    print(f"         {suite}: {count['PASS']} pass, {count['FAIL']} fail, {count['SKIP']} skip")
    if not count["PASS"]:
        last = "\n".join(printed.splitlines()[-20:])
        report.failed(f"the suite {suite} runs", f"no case passed; it said:\n{last}")
    elif good:
        report.ok(f"the suite {suite} fails where {PAGE.name} says, and nowhere else")
