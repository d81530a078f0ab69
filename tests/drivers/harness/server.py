"""Runs `tare db` on a loopback address, with its data in a temporary directory."""

import random
import socket
import subprocess
import tempfile
import time
from pathlib import Path

HOST = "127.0.0.1"
USUAL_PORT = 9042
READY_S = 30
STOP_S = 30
# An OPTIONS frame of protocol version 4. The response is SUPPORTED.
OPTIONS = bytes([4, 0, 0, 0, 5, 0, 0, 0, 0])
SUPPORTED = 6


class ServerDied(Exception):
    """The server does not respond or has ended unexpectedly."""


class Server:
    def __init__(self, tare, way, cache):
        self._tare = tare
        self._work = tempfile.TemporaryDirectory(prefix="tare-drivers.")
        self.directory = Path(self._work.name)
        self._log = self.directory / "log"
        self._process = None
        self.host, self.port = usual_port() if way.on_usual_port else free_port()
        self._options = way.server_options(tare, self.directory, cache)

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._work.cleanup()

    def start(self):
        words = [self._tare, "db", "--data", self.directory / "data"]
        words += ["--state", self.directory / "state", "--listen", self.host, "--port", self.port]
        words += ["--smp", 2, "--overprovisioned", "yes", *self._options]
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        deadline = time.monotonic() + READY_S
        while not self._answers():
            if self._process.poll() is not None:
                raise ServerDied(f"tare db ended with {self._process.returncode}:\n{self._said()}")
            if time.monotonic() > deadline:
                raise ServerDied(f"tare db does not answer in {READY_S} s:\n{self._said()}")
            time.sleep(0.02)

    def _answers(self):
        try:
            with socket.create_connection((self.host, self.port), timeout=1) as connection:
                if "--tls-cert" in self._options:
                    return True
                connection.sendall(OPTIONS)
                header = connection.recv(9)
                return len(header) > 4 and header[4] == SUPPORTED
        except OSError:
            return False

    def kill_and_start(self):
        """Kills the server like a crash, and starts it on the same data and port."""
        self._process.kill()
        self._process.wait()
        self.start()

    def is_alive(self):
        return self._process.poll() is None

    def stop(self, report):
        """Stops the server with SIGTERM. It must still run, and exit with 0."""
        if not self.is_alive():
            report.failed("the server still runs", f"it ended with {self._process.returncode}")
            return
        self._process.terminate()
        try:
            code = self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            report.failed("the server ends on SIGTERM", f"not within {STOP_S} s")
            return
        report.check("the server still runs and ends on SIGTERM", code == 0, f"exit code {code}")

    def _said(self):
        lines = self._log.read_text(errors="replace").splitlines()
        return "\n".join(lines[-30:])

    def tell_if(self, wanted):
        """Prints the end of the server's log if `wanted`."""
        if wanted:
            print(f"tare db said:\n{self._said()}", flush=True)


def free_port():
    """Returns a free port of the usual loopback address."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return HOST, probe.getsockname()[1]


def usual_port():
    """Returns a loopback address whose port 9042 is free. Some suites support no other port."""
    while True:
        host = f"127.{random.randint(1, 254)}.{random.randint(1, 254)}.{random.randint(1, 254)}"
        with socket.socket() as probe:
            try:
                probe.bind((host, USUAL_PORT))
            except OSError:
                continue
            return host, USUAL_PORT
