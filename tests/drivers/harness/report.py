"""What the clients found: a line per check, and the sum of them."""

import os


class Report:
    def __init__(self):
        self.failures = []
        self.skipped = []
        self.passed = 0
        self._client = ""
        self._failed_before = 0

    def begin(self, client, way):
        self._client = client if way == "plain" else f"{client}, {way}"
        self._failed_before = len(self.failures)
        print(f"== {self._client}", flush=True)

    @property
    def failed_now(self):
        """Whether a check has failed since `begin`."""
        return len(self.failures) > self._failed_before

    def ok(self, name):
        self.passed += 1
        print(f"ok       {name}", flush=True)

    def failed(self, name, why):
        self.failures.append(f"{self._client}: {name}" if self._client else name)
        print(f"FAILED   {name}: {why}", flush=True)

    def check(self, name, good, why):
        """A check with its own reason for failing."""
        if good:
            self.ok(name)
        else:
            self.failed(name, why)

    def skip(self, client, missing):
        """Notes that a client does not run because tools are not installed. `cargo xtask ci` reads the
        file that TARE_SKIPS names; crates/tare-testkit/src/skip.rs says what its lines are."""
        self.skipped.append(client)
        print(f"skipped: {client}: needs {', '.join(missing)}", flush=True)
        if file := os.environ.get("TARE_SKIPS"):
            with open(file, "a", encoding="utf-8") as skips:
                for tool in missing:
                    fields = ["tests/drivers", client, "not-installed", tool, f"needs {tool}"]
                    skips.write("\t".join(fields) + "\n")

    def take(self, line):
        """A line that a client printed: a check of its own, or just words."""
        verdict, _, rest = line.partition(" ")
        if verdict == "ok":
            self.ok(rest.strip())
        elif verdict == "FAILED":
            name, _, why = rest.strip().partition(": ")
            self.failed(name, why)
        elif line:
            print(f"         {line}", flush=True)

    def finish(self):
        """Prints the sum; returns the exit code."""
        skipped = f", {len(self.skipped)} clients skipped" if self.skipped else ""
        print(f"{self.passed} checks passed, {len(self.failures)} failed{skipped}")
        for failure in self.failures:
            print(f"  failed: {failure}")
        return int(bool(self.failures))
