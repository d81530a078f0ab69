"""The DataStax driver for Python, and the virtual environment that cqlsh shares with it."""

import shutil

from cache import DRIVERS, command
from client import OPENSSL, PLAIN, SECURE, Client, checks

REQUIREMENTS = DRIVERS / "python/requirements.txt"


def virtual_environment(cache):
    """The directory of the programs of the virtual environment, made if need be."""

    def make(directory):
        venv = directory / "venv"
        shutil.rmtree(venv, ignore_errors=True)
        command(["python3", "-m", "venv", venv])
        pip = [venv / "bin/pip", "install", "--quiet", "--disable-pip-version-check"]
        command([*pip, "--only-binary", ":all:", "--requirement", REQUIREMENTS])

    # A virtual environment belongs to the interpreter that it was made by.
    version = command(["python3", "-VV"])
    return cache.have("python", [REQUIREMENTS, version], make) / "venv/bin"


class PythonDriver(Client):
    name = "python"
    about = "cassandra-driver, the DataStax driver for Python"
    needs = {"python3": "python3-venv", **OPENSSL}
    ways = (PLAIN, SECURE)

    def prepare(self, cache):
        virtual_environment(cache)

    def run(self, cache, server, way, report):
        program = [virtual_environment(cache) / "python", DRIVERS / "python/checks.py"]
        checks(server, way, report, program)
