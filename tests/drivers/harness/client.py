"""The base class of clients, and the protocol with programs that run their own checks."""

import os
import shutil
import signal
import subprocess
import threading

from cache import command
from server import HOST


class Way:
    """The options of the server, and the settings of its clients."""

    # Whether the server listens on port 9042 of a separate address, rather than on any free port.
    on_usual_port = False

    def __init__(self, name, *options):
        self.name = name
        self._options = options

    def server_options(self, _tare, _directory, _cache):
        """Returns the options for `tare db`. The directory exists as long as the server."""
        return list(self._options)

    def environment(self, _server):
        """Returns the environment variables for a client."""
        return {}


class Secured(Way):
    """With a password and TLS."""

    user, password = "tare", "a password: with spaces, and ünïcode"

    def server_options(self, tare, directory, _cache):
        users = directory / "users"
        words = [tare, "db", "password", self.user]
        users.write_text(command(words, told=f"{self.password}\n"))
        certificate, key = directory / "certificate.pem", directory / "key.pem"
        words = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"]
        words += ["ec_paramgen_curve:prime256v1", "-nodes", "-days", "7", "-subj", "/CN=tare"]
        words += ["-addext", f"subjectAltName=IP:{HOST},DNS:localhost"]
        command([*words, "-keyout", key, "-out", certificate])
        return ["--auth-file", str(users), "--tls-cert", str(certificate), "--tls-key", str(key)]

    def environment(self, server):
        authority = str(server.directory / "certificate.pem")
        return {"TARE_USER": self.user, "TARE_PASSWORD": self.password, "TARE_CA": authority}


# Every acknowledged write must survive kill -9, so each is synced first.
PLAIN = Way("plain", "--durability", "sync")
USUAL_PORT = Way("plain")
USUAL_PORT.on_usual_port = True
SECURE = Secured("secure")
OPENSSL = {"openssl": "openssl"}


class Client:
    """A client: how to install it, and its checks."""

    name = ""
    about = ""
    # The programs that it needs, with their Debian packages.
    needs = {}
    ways = (PLAIN,)

    def missing(self):
        found = {program: shutil.which(program) for program in self.needs}
        return [f"{name} (package {self.needs[name]})" for name in found if not found[name]]

    def prepare(self, cache):
        """Downloads and builds what the client needs. Does nothing if that is done."""

    def run(self, cache, server, way, report):
        raise NotImplementedError


def checks(server, way, report, words, *, deadline_s=180, **environment):
    """Runs a program with its own checks, as `WORDS... HOST PORT WAY`.

    It prints `ok NAME` or `FAILED NAME: WHY` for each check. When it prints `restart`, the server
    is killed (-9) and started again, and the program gets the line `restarted`. It exits with 0, or
    with 1 after a FAILED line. Any other exit code is a failure.
    """
    words = [*map(str, words), server.host, str(server.port), way.name]
    environment = {name: str(value) for name, value in environment.items()}
    failed_before = len(report.failures)
    process = subprocess.Popen(
        words,
        env={**os.environ, **way.environment(server), **environment},
        cwd=server.directory,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    # Children of the process may hold its output open, so the whole session is killed.
    timer = threading.Timer(deadline_s, os.killpg, (process.pid, signal.SIGKILL))
    timer.start()
    try:
        for line in process.stdout:
            line = line.rstrip("\n")
            if line == "restart":
                server.kill_and_start()
                process.stdin.write("restarted\n")
                process.stdin.flush()
            else:
                report.take(line)
        code = process.wait()
    finally:
        is_late = not timer.is_alive()
        timer.cancel()
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if is_late:
        report.failed("the checks come to an end", f"not within {deadline_s} s")
    elif code != int(len(report.failures) > failed_before):
        report.failed("the checks come to an end", f"exit code {code}")


def printed_by(words, directory, deadline_s, **environment):
    """Runs a program without its own checks. Returns its output and its exit code.

    The code is None if the program was killed at the deadline. The output then ends with a note.
    """
    process = subprocess.Popen(
        [str(word) for word in words],
        env={**os.environ, **{name: str(value) for name, value in environment.items()}},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=deadline_s)[0], process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        return f"{process.communicate()[0]}\nno end within {deadline_s} s", None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
