"""All clients in the order in which they run, with the fastest first."""

from clients.cassandra import Cassandra
from clients.cqlsh import Cqlsh
from clients.gocql import Gocql
from clients.gocql_suite import GocqlSuite
from clients.java import Java
from clients.latte import Latte
from clients.python_driver import PythonDriver
from clients.rust_scylla import RustScylla
from clients.scylla_suite import ScyllaSuite
from clients.stress import Stress
from clients.ycsb import Ycsb

ALL = (
    Cassandra(),
    PythonDriver(),
    Cqlsh(),
    Java(),
    Gocql(),
    RustScylla(),
    Stress(),
    Ycsb(),
    GocqlSuite(),
    ScyllaSuite(),
    Latte(),
)
