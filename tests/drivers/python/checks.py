"""The Python driver against a CQL server: checks.py HOST PORT.

The protocol version is left to the driver, so that it begins with the newest and has to be told
to step down. Prints one line per check; exits with 1 if one failed.
"""

import sys
import uuid
from datetime import datetime

from cassandra import AlreadyExists, InvalidRequest
from cassandra.cluster import EXEC_PROFILE_DEFAULT, Cluster, ExecutionProfile
from cassandra.concurrent import execute_concurrent_with_args
from cassandra.policies import RoundRobinPolicy, TokenAwarePolicy
from cassandra.protocol import SyntaxException
from cassandra.query import BatchStatement, SimpleStatement, dict_factory

KEYSPACE = "tare_python"
ROWS = 1000
failures = 0


def check(name, got, expected):
    global failures
    if got == expected:
        print(f"ok       {name}")
    else:
        failures += 1
        print(f"FAILED   {name}: expected {expected!r}, got {got!r}")


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


def check_schema(cluster, session):
    session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    create = (
        f"CREATE KEYSPACE {KEYSPACE} WITH replication = "
        "{'class': 'SimpleStrategy', 'replication_factor': 1}"
    )
    session.execute(create)
    check_raises("a keyspace that exists", AlreadyExists, lambda: session.execute(create))
    session.set_keyspace(KEYSPACE)
    session.execute(
        "CREATE TABLE values_of (id int PRIMARY KEY, t text, big bigint, b blob, f boolean, "
        "d double, u uuid, moment timestamp)"
    )
    session.execute("CREATE TABLE IF NOT EXISTS values_of (id int PRIMARY KEY)")
    session.execute(
        "CREATE TABLE pairs (a text, b int, v blob, PRIMARY KEY ((a, b)))"
    )
    known = cluster.metadata.keyspaces[KEYSPACE].tables
    check("the driver sees the tables", sorted(known), ["pairs", "values_of"])
    columns = {name: column.cql_type for name, column in known["values_of"].columns.items()}
    check("the driver sees the types", columns["moment"], "timestamp")
    key = [column.name for column in known["pairs"].partition_key]
    check("the driver sees the partition key", key, ["a", "b"])


def check_values(session):
    insert = session.prepare(
        "INSERT INTO values_of (id, t, big, b, f, d, u, moment) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    )
    select = session.prepare("SELECT * FROM values_of WHERE id = ?")
    row = {
        "id": -1,
        "t": "ünï'cødé",
        "big": -(2**63),
        "b": bytes(range(256)),
        "f": True,
        "d": -1.5,
        "u": uuid.UUID("123e4567-e89b-12d3-a456-426614174000"),
        "moment": datetime(2000, 2, 29, 23, 59, 58, 123000),
    }
    session.execute(insert, row)
    check("all types come back", session.execute(select, (-1,)).one(), row)
    session.execute(insert, (1, "", None, b"", False, 0.0, None, None))
    got = session.execute(select, (1,)).one()
    check("empty and null stay apart", (got["t"], got["b"], got["big"]), ("", b"", None))
    partial = session.prepare("INSERT INTO values_of (id, t, big) VALUES (:id, :t, :big)")
    session.execute(partial, {"id": -1, "t": "new"})
    got = session.execute(select, (-1,)).one()
    check("an unset value leaves the old one", (got["t"], got["big"]), ("new", -(2**63)))
    check("no row for another key", session.execute(select, (2,)).one(), None)
    session.execute("INSERT INTO values_of (id, t) VALUES (3, 'it''s')")
    simple = session.execute("SELECT t AS text FROM values_of WHERE id = %s", (3,)).one()
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


def check_errors(session):
    check_raises("a syntax error", SyntaxException, lambda: session.execute("SELEC 1"))
    check_raises("an unknown table", InvalidRequest, lambda: session.execute("SELECT * FROM no"))
    check_raises(
        "an unknown column", InvalidRequest, lambda: session.prepare("SELECT no FROM pairs")
    )
    batch = BatchStatement()
    batch.add(SimpleStatement("INSERT INTO values_of (id) VALUES (1)"))
    check_raises("a batch is refused by name", InvalidRequest, lambda: session.execute(batch))
    check("the connection lives on", session.execute("SELECT key FROM system.local").one(), {"key": "local"})


def main():
    host, port = sys.argv[1], int(sys.argv[2])
    profile = ExecutionProfile(
        load_balancing_policy=TokenAwarePolicy(RoundRobinPolicy()),
        row_factory=dict_factory,
        request_timeout=30,
    )
    cluster = Cluster([host], port=port, execution_profiles={EXEC_PROFILE_DEFAULT: profile})
    try:
        session = cluster.connect()
        check("the driver steps down to version 4", cluster.protocol_version, 4)
        check_system_tables(cluster, session, port)
        check_schema(cluster, session)
        check_values(session)
        check_many(session)
        check_errors(session)
        session.execute("TRUNCATE pairs")
        check("truncate", session.execute("SELECT count(*) FROM pairs").one(), {"count": 0})
        session.execute("DROP TABLE pairs")
        session.execute(f"DROP KEYSPACE {KEYSPACE}")
        check("the driver sees the drop", KEYSPACE in cluster.metadata.keyspaces, False)
    finally:
        cluster.shutdown()
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
