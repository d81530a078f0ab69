"""Keeps the downloads and builds of clients in one directory.

The directory is $TARE_DRIVERS_CACHE, or /var/cache/tare/drivers, or target/drivers if the latter
cannot be written. Every entry has a digest of its inputs, and a lock, so that a run in the background
and one in the foreground do not build it twice.
"""

import contextlib
import fcntl
import hashlib
import os
import subprocess
from pathlib import Path

DRIVERS = Path(__file__).resolve().parent.parent
REPOSITORY = DRIVERS.parent.parent


class Unobtainable(Exception):
    """A download or build failed. The text ends with the output of the command."""


class Cache:
    def __init__(self):
        self.root = self._root()

    @staticmethod
    def _root():
        usual = Path("/var/cache/tare/drivers")
        told = os.environ.get("TARE_DRIVERS_CACHE")
        for root in [Path(told)] if told else [usual, REPOSITORY / "target/drivers"]:
            with contextlib.suppress(PermissionError):
                root.mkdir(parents=True, exist_ok=True)
                if os.access(root, os.W_OK):
                    return root
        raise Unobtainable(f"cannot write to {told or usual}; set TARE_DRIVERS_CACHE")

    def __truediv__(self, name):
        return self.root / name

    def have(self, name, made_from, make):
        """Calls make(directory) unless the entry was made from the same files and words before.

        Results of other inputs stay in the directory, and `make` replaces them.
        """
        digest = hashlib.sha256()
        for part in made_from:
            content = part.read_bytes() if isinstance(part, Path) else part.encode()
            digest.update(len(content).to_bytes(8, "big") + content)
        directory = self.root / name
        directory.mkdir(exist_ok=True)
        stamp = directory / ".made-from"
        with open(self.root / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if stamp.exists() and stamp.read_text() == digest.hexdigest():
                return directory
            stamp.unlink(missing_ok=True)
            make(directory)
            stamp.write_text(digest.hexdigest())
        return directory


def command(words, *, cwd=None, told="", **environment):
    """Runs a download or build command, and returns its output.

    `told` is its standard input.
    """
    words = [str(word) for word in words]
    environment = {name: str(value) for name, value in environment.items()}
    done = subprocess.run(
        words,
        cwd=cwd,
        env={**os.environ, **environment},
        input=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        last = "\n".join(done.stdout.splitlines()[-15:])
        raise Unobtainable(f"`{' '.join(words)}` ended with {done.returncode}:\n{last}")
    return done.stdout
