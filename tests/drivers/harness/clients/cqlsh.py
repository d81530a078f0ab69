"""cqlsh 6.2, which shares the virtual environment of the Python driver."""

from client import OPENSSL, PLAIN, SECURE, Client, printed_by
from clients.python_driver import virtual_environment

DEADLINE_S = 60
ROWS = 500
CREATE = """
CREATE KEYSPACE shell WITH replication = {'class': 'NetworkTopologyStrategy', 'datacenter1': 1};
CREATE TABLE shell.readings (
    sensor text, at timestamp, id int, value double, note text, raw blob, day date, took duration,
    PRIMARY KEY ((sensor), at, id)
) WITH CLUSTERING ORDER BY (at DESC, id ASC) AND comment = 'of a shell' AND default_time_to_live = 0;
CREATE TABLE shell."Quoted" ("Key" int PRIMARY KEY, "select" varint);
"""


class Cqlsh(Client):
    name = "cqlsh"
    about = "the shell of Cassandra: DESCRIBE, COPY, SELECT"
    needs = {"python3": "python3-venv", **OPENSSL}
    ways = (PLAIN, SECURE)

    def prepare(self, cache):
        virtual_environment(cache)

    def run(self, cache, server, way, report):
        program = virtual_environment(cache) / "cqlsh"
        if way is SECURE:
            self._secure(program, server, way, report)
            return
        shell = Shell(program, server, report)
        shell.contains("CREATE", CREATE, [])
        shell.contains(
            "SELECT of one row, its types and quotes",
            "INSERT INTO shell.readings (sensor, at, id, value, note, raw, day, took) VALUES ("
            "'north', '2024-02-29 23:59:58.123+0000', 1, 1.5, 'it''s; ünï', 0xcafe, '2024-02-29', 1h2m);"
            "SELECT * FROM shell.readings;",
            ["north", "2024-02-29 23:59:58.123000+0000", "1.5", "it's; ünï", "0xcafe", "1h2m", "(1 rows)"],
        )
        shell.contains(
            "a quoted name and a varint",
            'INSERT INTO shell."Quoted" ("Key", "select") VALUES (1, -340282366920938463463374607431768211456);'
            'SELECT "select" FROM shell."Quoted" WHERE "Key" = 1;',
            ["-340282366920938463463374607431768211456"],
        )
        shell.contains("DESCRIBE KEYSPACES", "DESCRIBE KEYSPACES;", ["shell", "system_schema"])
        shell.contains("DESCRIBE CLUSTER", "DESCRIBE CLUSTER;", ["Partitioner: ", "Murmur3Partitioner"])
        shell.contains(
            "DESCRIBE TABLES", "USE shell; DESCRIBE TABLES;", ["readings", "Quoted"]
        )
        shell.contains(
            "DESCRIBE TABLE",
            "DESCRIBE TABLE shell.readings;",
            ["CREATE TABLE shell.readings", "CLUSTERING ORDER BY (at DESC, id ASC)", "'of a shell'"],
        )
        shell.contains("DESCRIBE of a system table", "DESCRIBE TABLE system.local;", ["CREATE TABLE"])
        shell.contains(
            "an error has its words and its code", "SELECT nothing FROM shell.readings;",
            ["InvalidRequest", "code=2200"], code=2,
        )
        self._describe_again(shell, report)
        self._copy(shell, server, report)

    def _secure(self, program, server, way, report):
        """Connects with TLS and a password. The server must refuse a wrong password."""
        told = way.environment(server)
        trust = {"SSL_CERTFILE": told["TARE_CA"], "SSL_VALIDATE": "true"}
        query = "SELECT key FROM system.local;"
        for password, code, words in [(told["TARE_PASSWORD"], 0, ["local"]), ("wrong", 1, [])]:
            options = ["--ssl", "--username", told["TARE_USER"], "--password", password]
            # Checking a password takes seconds in a debug build.
            options += ["--connect-timeout", "30"]
            shell = Shell(program, server, report, options, **trust)
            name = "a wrong password is refused" if code else "over TLS with a password"
            shell.contains(name, query, words, code=code)

    def _describe_again(self, shell, report):
        """Checks that the output of DESCRIBE recreates the same schema."""
        described = shell.ask("DESCRIBE KEYSPACE shell;")
        again = ""
        if "CREATE TABLE" in described:
            again = shell.ask(f"DROP KEYSPACE shell;\n{described}\nDESCRIBE KEYSPACE shell;")
        good = described.strip() == again.strip()
        report.check("DESCRIBE KEYSPACE can be run again", good, f"{described!r} became {again!r}")

    def _copy(self, shell, server, report):
        given, taken = server.directory / "given.csv", server.directory / "taken.csv"
        lines = [
            f"s{n % 5},2024-01-01 00:{n // 60:02}:{n % 60:02}.000+0000,{n},{n}.25,\"a \"\"note\"\", {n},\",0x{n:04x}"
            for n in range(ROWS)
        ]
        given.write_text("".join(f"{line}\n" for line in lines))
        columns = "(sensor, at, id, value, note, raw)"
        options = "WITH NUMPROCESSES = 1 AND QUOTE = '\"' AND ESCAPE = '\"'"
        shell.contains(
            f"COPY FROM of {ROWS} rows",
            f"COPY shell.readings {columns} FROM '{given}' {options};"
            "SELECT count(*) FROM shell.readings;",
            [f"{ROWS} rows imported", f" {ROWS}\n"],
        )
        shell.contains(
            "COPY TO",
            f"COPY shell.readings {columns} TO '{taken}' {options}"
            " AND DATETIMEFORMAT = '%Y-%m-%d %H:%M:%S.000%z';",
            [f"{ROWS} rows exported"],
        )
        same = taken.exists() and sorted(taken.read_text().split()) == sorted(given.read_text().split())
        report.check("COPY brings the same rows back", same, f"{ROWS} rows differ")


class Shell:
    def __init__(self, program, server, report, options=(), **environment):
        self._words = [program, "--no-color", *options, server.host, server.port]
        self._environment = environment
        self._home = server.directory
        self._report = report

    def ask(self, text, code=0):
        """Runs statements and returns their output, followed by an unexpected exit code."""
        path = self._home / "statements.cql"
        path.write_text(text)
        # cqlsh keeps its history and settings in HOME.
        environment = {"HOME": self._home, "PYTHONWARNINGS": "ignore", "LC_ALL": "C.UTF-8"}
        environment |= self._environment
        words = [*self._words, "-f", path]
        printed, ended = printed_by(words, self._home, DEADLINE_S, **environment)
        # cqlsh warns that it was built for a newer Cassandra.
        lines = printed.splitlines(keepends=True)
        told = "" if ended == code else f"\nexit code {ended}"
        return "".join(line for line in lines if not line.startswith("WARNING: cqlsh was built")) + told

    def contains(self, name, text, expected, code=0):
        printed = self.ask(text, code)
        missing = [words for words in expected if words not in printed]
        good = not missing and "exit code" not in printed
        self._report.check(name, good, f"expected {missing} in {printed!r}")
