"""The Python driver against a CQL server: checks.py HOST PORT WAY.

The protocol version is left to the driver, so that it begins with the newest and has to be told
to step down. Prints one line per check; exits with 1 if one failed.
"""

import os
import socket
import ssl
import struct
import sys
import time
import uuid
from datetime import date, datetime, timedelta
from datetime import time as clock
from decimal import Decimal

from cassandra import AlreadyExists, ConsistencyLevel, InvalidRequest
from cassandra.auth import PlainTextAuthProvider
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile, NoHostAvailable
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import ConstantReconnectionPolicy, RoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, BatchType, SimpleStatement, dict_factory
from cassandra.util import Date, Duration, Time

KEYSPACE = "tare_python"
ROWS = 1000
failures = 0

# Every scalar type: its name, and values that must come back as they went.
SCALARS = {
    "ascii": ["plain", ""],
    "bigint": [-(2**63), 2**63 - 1],
    "blob": [bytes(range(256)), b""],
    "boolean": [True, False],
    "date": [Date(date(1969, 7, 20)), Date(2**31 - 1)],
    "decimal": [Decimal("-123456789012345678901234567890.123456789"), Decimal("0E+3")],
    "double": [-1.5, 5e-324],
    "duration": [Duration(-1, -2, -3), Duration(14, 31, 2**62)],
    "float": [0.25, float("inf")],
    "inet": ["127.0.0.1", "2001:db8::1"],
    "int": [-(2**31), 2**31 - 1],
    "smallint": [-(2**15), 2**15 - 1],
    "text": ["ünï'cødé 🐘", ""],
    "time": [Time(clock(23, 59, 59, 999999)), Time(0)],
    "timestamp": [datetime(2000, 2, 29, 23, 59, 58, 123000), datetime(1960, 1, 1)],
    "timeuuid": [uuid.UUID("50554d6e-29bb-11e5-b345-feff819cdc9f"), uuid.uuid1()],
    "tinyint": [-128, 127],
    "uuid": [uuid.UUID("123e4567-e89b-12d3-a456-426614174000"), uuid.UUID(int=0)],
    "varchar": ["same as text", "x" * 70000],
    "varint": [-(2**200), 0],
}


def check(name, got, expected):
    global failures
    if got == expected:
        print(f"ok       {name}", flush=True)
    else:
        failures += 1
        print(f"FAILED   {name}: expected {expected!r}, got {got!r}", flush=True)


def attempt(name, run, *arguments):
    """Runs a part of the checks; its end by an error is a failed check, not the end of the run."""
    try:
        run(*arguments)
    except Exception as error:  # whatever it is, it was not expected
        check(name, f"{type(error).__name__}: {error}", "no error")


def check_raises(name, error, run):
    try:
        got = run()
    except error as raised:
        check(name, isinstance(raised, error), True)
    except Exception as other:  # the wrong error is a failed check, not the end of the run
        check(name, repr(other), error.__name__)
    else:
        check(name, got, error.__name__)


def check_system_tables(cluster, session, port):
    local = session.execute("SELECT * FROM system.local WHERE key='local'").one()
    check("system.local has this host", local["key"], "local")
    check("system.local has tokens", len(local["tokens"]) > 0, True)
    check("system.local has a CQL version", local["cql_version"].startswith("3."), True)
    check("system.peers is empty", list(session.execute("SELECT * FROM system.peers")), [])
    check("one host is known", len(cluster.metadata.all_hosts()), 1)
    check("the host is up", [host.is_up for host in cluster.metadata.all_hosts()], [True])
    check("the port is kept", {host.endpoint.port for host in cluster.metadata.all_hosts()}, {port})
    check("the token map is there", len(cluster.metadata.token_map.ring) > 0, True)


def make_schema(session):
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    create = (
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.execute(create)
    check_raises("a keyspace that exists", AlreadyExists, lambda: session.execute(create))
    session.set_keyspace(KEYSPACE)
    columns = ", ".join(f"c_{kind} {kind}" for kind in SCALARS)
    session.execute(f"CREATE TABLE scalars (id int PRIMARY KEY, {columns})")
    session.execute("CREATE TABLE IF NOT EXISTS scalars (id int PRIMARY KEY)")
    session.execute("CREATE TABLE pairs (a text, b int, v blob, PRIMARY KEY ((a, b)))")
    session.execute(
        "CREATE TABLE series (k int, t int, n text, v int, PRIMARY KEY (k, t, n)) "
        "WITH CLUSTERING ORDER BY (t DESC, n ASC) AND gc_grace_seconds = 3600 "
        "AND compaction = {'class': 'SizeTieredCompactionStrategy'} AND comment = 'tried'"
    )


def check_schema(cluster, session):
    known = cluster.metadata.keyspaces[KEYSPACE].tables
    check("the driver sees the tables", sorted(known), ["pairs", "scalars", "series"])
    columns = {name: column.cql_type for name, column in known["scalars"].columns.items()}
    expected = {f"c_{kind}": "text" if kind == "varchar" else kind for kind in SCALARS}
    check("the driver sees the types", columns, {"id": "int", **expected})
    key = [column.name for column in known["pairs"].partition_key]
    check("the driver sees the partition key", key, ["a", "b"])
    order = [(column.name, column.is_reversed) for column in known["series"].clustering_key]
    check("the driver sees the clustering order", order, [("t", True), ("n", False)])
    options = known["series"].options
    check("the driver sees the options", options["gc_grace_seconds"], 3600)
    check("the driver sees the comment", options["comment"], "tried")
    check("the driver can export the schema", "tried" in known["series"].export_as_string(), True)
    session.execute("ALTER TABLE pairs ADD (more text, and_more int)")
    added = sorted(cluster.metadata.keyspaces[KEYSPACE].tables["pairs"].columns)
    check("the driver sees added columns", added, ["a", "and_more", "b", "more", "v"])


def check_scalars(session):
    columns = list(SCALARS)
    names = ", ".join(f"c_{kind}" for kind in columns)
    markers = ", ".join("?" * len(columns))
    insert = session.prepare(f"INSERT INTO scalars (id, {names}) VALUES (?, {markers})")
    select = session.prepare("SELECT * FROM scalars WHERE id = ?")
    for row in range(2):
        values = {f"c_{kind}": SCALARS[kind][row] for kind in columns}
        session.execute(insert, {"id": row, **values})
        got = session.execute(select, (row,)).one()
        for kind in columns:
            check(f"{kind} comes back, value {row}", got[f"c_{kind}"], values[f"c_{kind}"])
    session.execute(insert, [2] + [None] * len(columns))
    got = session.execute(select, (2,)).one()
    check("nulls come back", {got[f"c_{kind}"] for kind in columns}, {None})
    partial = session.prepare("INSERT INTO scalars (id, c_text, c_int) VALUES (:id, :c_text, :n)")
    session.execute(partial, {"id": 0, "c_text": "new"})
    got = session.execute(select, (0,)).one()
    check("an unset value leaves the old one", (got["c_text"], got["c_int"]), ("new", -(2**31)))
    check("no row for another key", session.execute(select, (9,)).one(), None)
    session.execute("INSERT INTO scalars (id, c_text) VALUES (3, 'it''s')")
    simple = session.execute("SELECT c_text AS text FROM scalars WHERE id = %s", (3,)).one()
    check("literals and aliases", simple, {"text": "it's"})


def check_many(session):
    insert = session.prepare("INSERT INTO pairs (a, b, v) VALUES (?, ?, ?)")
    select = session.prepare("SELECT v FROM pairs WHERE a = ? AND b = ?")
    rows = [(f"key{n % 7}", n, n.to_bytes(4, "big") * 75) for n in range(ROWS)]
    written = execute_concurrent_with_args(session, insert, rows, concurrency=64)
    check(f"{ROWS} writes in flight", all(result.success for result in written), True)
    keys = [row[:2] for row in rows]
    read = execute_concurrent_with_args(session, select, keys, concurrency=64)
    got = [result.result_or_exc.one()["v"] for result in read]
    check(f"{ROWS} reads in flight", got == [row[2] for row in rows], True)
    check("count", session.execute("SELECT count(*) FROM pairs").one(), {"count": ROWS})
    pages = SimpleStatement("SELECT b FROM pairs", fetch_size=100)
    got = sorted(row["b"] for row in session.execute(pages))
    check("a scan in pages", got, list(range(ROWS)))


def check_clustering(session):
    insert = session.prepare("INSERT INTO series (k, t, n, v) VALUES (?, ?, ?, ?)")
    rows = [(1, t, n, t * 10) for t in range(100) for n in ("a", "b")]
    execute_concurrent_with_args(session, insert, rows, concurrency=64)

    def times(where, **settings):
        statement = SimpleStatement(f"SELECT t, n FROM series WHERE k = 1 {where}", **settings)
        return [(row["t"], row["n"]) for row in session.execute(statement)]

    newest_first = [(t, n) for t in reversed(range(100)) for n in ("a", "b")]
    check("a partition in its order", times(""), newest_first)
    check("a partition in pages", times("", fetch_size=7), newest_first)
    backwards = times("ORDER BY t ASC, n DESC", fetch_size=7)
    check("a partition backwards in pages", backwards, newest_first[::-1])
    inside = [(t, n) for t, n in newest_first if 10 <= t < 20]
    check("a range", times("AND t >= 10 AND t < 20"), inside)
    check("a limit", times("AND t >= 10 AND t < 20 LIMIT 3"), inside[:3])
    check("IN", times("AND t IN (5, 99) AND n = 'b'"), [(99, "b"), (5, "b")])
    session.execute("DELETE FROM series WHERE k = 1 AND t > 49")
    check("a deleted range", times("")[0], (49, "a"))
    session.execute("DELETE FROM series WHERE k = 1 AND t = 49 AND n = 'a'")
    check("a deleted row", times("")[0], (49, "b"))
    session.execute("DELETE v FROM series WHERE k = 1 AND t = 49 AND n = 'b'")
    row = session.execute("SELECT v FROM series WHERE k = 1 AND t = 49 AND n = 'b'").one()
    check("a deleted column", row, {"v": None})
    session.execute("UPDATE series SET v = 7 WHERE k = 1 AND t = 49 AND n = 'b'")
    row = session.execute("SELECT v FROM series WHERE k = 1 AND t = 49 AND n = 'b'").one()
    check("an update", row, {"v": 7})
    session.execute("DELETE FROM series WHERE k = 1")
    check("a deleted partition", times(""), [])


def check_tuples(session):
    """Conditions on several clustering columns at once."""
    session.execute("CREATE TABLE triples (k int, a int, b int, PRIMARY KEY (k, a, b))")
    insert = session.prepare("INSERT INTO triples (k, a, b) VALUES (1, ?, ?)")
    pairs = [(a, b) for a in range(5) for b in range(5)]
    execute_concurrent_with_args(session, insert, pairs, concurrency=16)

    def found(where, *values):
        prepared = session.prepare(f"SELECT a, b FROM triples WHERE k = 1 AND {where}")
        return [(row["a"], row["b"]) for row in session.execute(prepared, values)]

    check("a range of tuples", found("(a, b) > (?, ?) AND (a) < (3)", 1, 3), [pair for pair in pairs if (1, 3) < pair < (3,)])
    check("a range of one tuple", found("(a, b) >= ?", (4, 1)), [pair for pair in pairs if pair >= (4, 1)])
    check("IN of tuples", found("(a, b) IN ((1, 1), (0, 4), (7, 7))"), [(0, 4), (1, 1)])
    check("IN of a list", found("a IN ? AND b > 3", [3, 1]), [(1, 4), (3, 4)])


def check_batches(session):
    insert = session.prepare("INSERT INTO series (k, t, n, v) VALUES (?, ?, ?, ?)")
    for kind in (BatchType.LOGGED, BatchType.UNLOGGED):
        batch = BatchStatement(batch_type=kind)
        for t in range(5):
            batch.add(insert, (10 + kind.value, t, "x", t))
        batch.add(f"INSERT INTO series (k, t, n) VALUES ({10 + kind.value}, 5, 'y')")
        batch.add(SimpleStatement("DELETE FROM series WHERE k = %s"), (99,))
        session.execute(batch)
        rows = session.execute(f"SELECT t FROM series WHERE k = {10 + kind.value}")
        check(f"a batch, {kind}", [row["t"] for row in rows], [5, 4, 3, 2, 1, 0])
    session.execute(
        "BEGIN UNLOGGED BATCH USING TIMESTAMP 5 INSERT INTO series (k, t, n, v) VALUES (12, 1, 'x', 1); "
        "UPDATE series SET v = 2 WHERE k = 12 AND t = 2 AND n = 'x' APPLY BATCH"
    )
    rows = session.execute("SELECT t, writetime(v) AS w FROM series WHERE k = 12")
    check("a batch as text", [tuple(row.values()) for row in rows], [(2, 5), (1, 5)])
    counter = BatchStatement(batch_type=BatchType.COUNTER)
    counter.add("INSERT INTO scalars (id) VALUES (1)")
    check_raises("a counter batch takes only counters", InvalidRequest, lambda: session.execute(counter))


def check_counters(session):
    session.execute("CREATE TABLE counters (k int PRIMARY KEY, n counter)")
    add = session.prepare("UPDATE counters SET n = n + ? WHERE k = ?")
    session.execute(add, (5, 1))
    counter = BatchStatement(batch_type=BatchType.COUNTER)
    for by, k in [(1, 1), (2, 1), (-7, 2)]:
        counter.add(add, (by, k))
    counter.add("UPDATE counters SET n = n - 1 WHERE k = 2")
    session.execute(counter)
    rows = session.execute("SELECT k, n FROM counters WHERE k IN (1, 2)")
    check("counters", [(row["k"], row["n"]) for row in rows], [(1, 8), (2, -8)])


def check_transactions(session):
    insert = session.prepare("INSERT INTO series (k, t, n, v) VALUES (30, 1, 'x', ?) IF NOT EXISTS")
    check("a row is inserted once", session.execute(insert, (1,)).was_applied, True)
    refused = session.execute(insert, (2,)).one()
    check("the row that is there", refused, {"[applied]": False, "k": 30, "t": 1, "n": "x", "v": 1})
    update = session.prepare("UPDATE series SET v = ? WHERE k = 30 AND t = 1 AND n = 'x' IF v = ?")
    check("the expected value", session.execute(update, (5, 1)).was_applied, True)
    check("another value", session.execute(update, (6, 1)).one(), {"[applied]": False, "v": 5})


def check_time_to_live(session):
    session.execute("INSERT INTO scalars (id, c_int, c_text) VALUES (50, 1, 'x') USING TTL 1000")
    session.execute("UPDATE scalars USING TTL 1 SET c_int = 2 WHERE id = 50")
    session.execute("INSERT INTO scalars (id, c_int) VALUES (51, 1) USING TTL 1 AND TIMESTAMP 9")
    row = session.execute("SELECT ttl(c_text) AS left FROM scalars WHERE id = 50").one()
    check("ttl() says what is left", 990 < row["left"] <= 1000, True)
    deadline = time.monotonic() + 20
    while session.execute("SELECT id FROM scalars WHERE id = 51").one():
        if time.monotonic() > deadline:
            break
        time.sleep(0.1)
    gone = session.execute("SELECT id FROM scalars WHERE id = 51").one()
    check("a row is gone after its time", gone, None)
    row = session.execute("SELECT c_int, c_text FROM scalars WHERE id = 50").one()
    check("a cell is gone after its time", row, {"c_int": None, "c_text": "x"})


def check_errors(session):
    check_raises("a syntax error", SyntaxException, lambda: session.execute("SELEC 1"))
    check_raises("an unknown table", InvalidRequest, lambda: session.execute("SELECT * FROM no"))
    check_raises(
        "an unknown column", InvalidRequest, lambda: session.prepare("SELECT no FROM pairs")
    )
    session.execute(
        "CREATE TABLE collections (k int, c int, s int STATIC, l list<int>, m map<text, int>, "
        "w set<text>, t tuple<int, text>, PRIMARY KEY (k, c))"
    )
    insert = session.prepare("INSERT INTO collections (k, c, s, l, m, w, t) VALUES (?, ?, ?, ?, ?, ?, ?)")
    session.execute(insert, (1, 1, 7, [3, 1], {"b": 2, "a": 1}, {"y", "x"}, (5, "five")))
    session.execute("UPDATE collections SET l = l + [2], m['c'] = 3, w = w - {'x'} WHERE k = 1 AND c = 1")
    session.execute("INSERT INTO collections (k, c) VALUES (1, 2)")
    first, second = session.execute("SELECT * FROM collections WHERE k = 1")
    check("a list", first["l"], [3, 1, 2])
    session.execute(session.prepare("UPDATE collections SET l[?] = ? WHERE k = 1 AND c = 1"), (1, 9))
    session.execute("UPDATE collections SET l = l - [3] WHERE k = 1 AND c = 1")
    check("a list that was changed", session.execute("SELECT l FROM collections WHERE k = 1 AND c = 1").one()["l"], [9, 2])
    check("a condition on a static column", session.execute("UPDATE collections SET s = 8 WHERE k = 1 IF s = 7").was_applied, True)
    check("a condition on an entry", session.execute("DELETE FROM collections WHERE k = 1 AND c = 1 IF m['a'] = 2").was_applied, False)
    check("a map", dict(first["m"]), {"a": 1, "b": 2, "c": 3})
    check("a set", set(first["w"]), {"y"})
    check("a tuple", first["t"], (5, "five"))
    check("a static column", [first["s"], second["s"]], [7, 7])
    refused = {
        "increments of what is no counter": "UPDATE scalars SET c_int = c_int + 1 WHERE id = 1",
        "user types": "CREATE TYPE refused (a int)",
        "indexes": "CREATE INDEX ON scalars (c_int)",
        "views": "CREATE MATERIALIZED VIEW v AS SELECT * FROM scalars WHERE id IS NOT NULL PRIMARY KEY (id)",
        "filtering without ALLOW FILTERING": "SELECT * FROM scalars WHERE c_int = 1",
    }
    for what, statement in refused.items():
        refuse = lambda statement=statement: session.execute(statement)
        check_raises(f"{what} are refused by name", InvalidRequest, refuse)
    key = session.execute("SELECT key FROM system.local").one()
    check("the connection lives on", key, {"key": "local"})


def check_restart(cluster, session):
    """What was acknowledged is there after a crash, and the driver goes on by itself."""
    insert = session.prepare("INSERT INTO pairs (a, b, v) VALUES (?, ?, ?)")
    select = session.prepare("SELECT v FROM pairs WHERE a = ? AND b = ?")
    for n in range(100):
        session.execute(insert, ("durable", n, b"before"))
    print("restart", flush=True)
    sys.stdin.readline()
    deadline = time.monotonic() + 30
    while True:
        try:
            got = session.execute(select, ("durable", 99)).one()
            break
        except (NoHostAvailable, OSError) as error:
            if time.monotonic() > deadline:
                raise error
            time.sleep(0.1)
    check("a statement prepared before kill -9 runs after it", got, {"v": b"before"})
    count = sum(session.execute(select, ("durable", n)).one() is not None for n in range(100))
    check("all acknowledged writes are there after kill -9", count, 100)
    session.execute(insert, ("durable", 100, b"after"))
    got = session.execute(select, ("durable", 100)).one()
    check("writes go on after kill -9", got, {"v": b"after"})
    check("the schema is there after kill -9", "pairs" in cluster.metadata.keyspaces[KEYSPACE].tables, True)


def connect(host, port, **settings):
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        row_factory=dict_factory,
        consistency_level=ConsistencyLevel.QUORUM,
        request_timeout=30,
    )
    return Cluster(
        [host],
        port=port,
        execution_profiles={EXEC_PROFILE_DEFAULT: profile},
        reconnection_policy=ConstantReconnectionPolicy(0.2, None),
        **{"connect_timeout": 30, "control_connection_timeout": 30, **settings},
    )


def check_versions(host, port):
    """Every version that the server says it speaks works when a client insists on it."""
    for version in (4, 5):
        for compression in ("lz4", False):
            cluster = connect(host, port, protocol_version=version, compression=compression)
            session = cluster.connect()
            compresses = cluster.control_connection._connection.compressor is not None
            check(f"version {version}, compression {compression}", compresses, bool(compression))
            large = session.execute(f"SELECT * FROM {KEYSPACE}.scalars WHERE id = 1").one()
            check(f"version {version}, compression {compression}, 70 kB", len(large["c_varchar"]), 70000)
            cluster.shutdown()


def check_refused_versions(host, port):
    """A version that is not spoken is refused in one that every client can read."""
    for version in (66, 65, 6, 3, 2):
        with socket.create_connection((host, port), timeout=10) as connection:
            connection.sendall(struct.pack(">BBhBi", version, 0, 0, 5, 0))
            answer = connection.recv(4096)
        response, _, _, opcode, _, code = struct.unpack(">BBhBiI", answer[:13])
        got = (response in (0x84, 0x85), opcode, code, b"unsupported protocol version" in answer)
        check(f"version {version} is refused in one that is known", got, (True, 0, 0x0A, True))


def check_plain(host, port):
    cluster = connect(host, port)
    session = cluster.connect()
    check("the driver steps down to version 5", cluster.protocol_version, 5)
    check("and compresses", cluster.control_connection._connection.compressor is not None, True)
    attempt("system tables", check_system_tables, cluster, session, port)
    make_schema(session)
    attempt(check_schema.__name__, check_schema, cluster, session)
    for part in (
        check_scalars,
        check_many,
        check_clustering,
        check_tuples,
        check_batches,
        check_counters,
        check_transactions,
        check_time_to_live,
        check_errors,
    ):
        attempt(part.__name__, part, session)
    attempt(check_versions.__name__, check_versions, host, port)
    attempt(check_refused_versions.__name__, check_refused_versions, host, port)
    attempt(check_restart.__name__, check_restart, cluster, session)
    session.execute("TRUNCATE pairs")
    check("truncate", session.execute("SELECT count(*) FROM pairs").one(), {"count": 0})
    session.execute("DROP TABLE pairs")
    session.execute(f"DROP KEYSPACE {KEYSPACE}")
    check("the driver sees the drop", KEYSPACE in cluster.metadata.keyspaces, False)
    cluster.shutdown()


def check_secure(host, port):
    """With TLS and a password; without one of them, or with a wrong one, the server refuses."""
    trusted = ssl.create_default_context(cafile=os.environ["TARE_CA"])
    right = PlainTextAuthProvider(os.environ["TARE_USER"], os.environ["TARE_PASSWORD"])
    wrong = PlainTextAuthProvider(os.environ["TARE_USER"], "wrong")
    options = {"server_hostname": host}
    for version in (4, 5):
        settings = {"ssl_context": trusted, "ssl_options": options, "protocol_version": version}
        cluster = connect(host, port, auth_provider=right, **settings)
        row = cluster.connect().execute("SELECT key FROM system.local").one()
        check(f"version {version} over TLS with a password", row, {"key": "local"})
        cluster.shutdown()
        refused = {
            "a wrong password": {**settings, "auth_provider": wrong},
            "no password": settings,
            "no TLS": {"auth_provider": right, "protocol_version": version, "connect_timeout": 3},
        }
        for what, settings in refused.items():
            cluster = connect(host, port, **settings)
            check_raises(f"version {version}: {what} is refused", NoHostAvailable, cluster.connect)
            cluster.shutdown()


def main():
    host, port, way = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    attempt("the whole run", {"plain": check_plain, "secure": check_secure}[way], host, port)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
