"""Apache Cassandra itself: no client, and no checks here. The program's own tests start it."""

import shutil

from cache import DRIVERS, command
from client import Client

POM = DRIVERS / "cassandra/pom.xml"


class Cassandra(Client):
    name = "cassandra"
    about = "the jars of Apache Cassandra, for tests of systems (no checks here)"
    needs = {"java": "default-jdk-headless", "mvn": "maven"}
    ways = ()

    def prepare(self, cache):
        def make(directory):
            shutil.rmtree(directory / "target", ignore_errors=True)
            shutil.copy(POM, directory)
            command(["mvn", "--quiet", "--batch-mode", "generate-resources"], cwd=directory)

        cache.have("cassandra", [POM], make)
