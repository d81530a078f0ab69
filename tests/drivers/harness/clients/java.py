"""The Java driver, and the jars that cassandra-stress shares with it."""

import shutil

from cache import DRIVERS, command
from client import OPENSSL, PLAIN, SECURE, Client, checks

POM = DRIVERS / "java/pom.xml"
JAVA = {"java": "default-jdk-headless", "javac": "default-jdk-headless", "mvn": "maven"}


def jars(cache):
    """Returns the directory of the jars (`target` in pom.xml), which come from Maven Central."""

    def make(directory):
        shutil.rmtree(directory / "target", ignore_errors=True)
        shutil.copy(POM, directory)
        command(["mvn", "--quiet", "--batch-mode", "generate-resources"], cwd=directory)

    return cache.have("java", [POM], make) / "target"


class Java(Client):
    name = "java"
    about = "java-driver-core, the Java driver 4 of Apache Cassandra"
    needs = {**JAVA, **OPENSSL}
    ways = (PLAIN, SECURE)

    def prepare(self, cache):
        jars(cache)

    def run(self, cache, server, way, report):
        words = ["java", "-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        words += ["-cp", f"{jars(cache)}/lib/*", DRIVERS / "java/Checks.java"]
        checks(server, way, report, words)
