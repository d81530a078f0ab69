"""Other people's clients against `tare db`.

run TARE [CLIENT...]       gets what the clients need, then runs them, each against a server of its own
run --prepare [CLIENT...]  only gets and builds what they need
run --list                 the clients

Without a name all are run. A client whose tools are not installed is skipped by name. Prints a line
per check; exits with 1 if one failed.
"""

import signal
import sys
import time
import traceback
from pathlib import Path

from cache import Cache, Unobtainable
from clients import ALL
from report import Report
from server import Server, ServerDied

USAGE = 2


def chosen(names):
    known = {client.name: client for client in ALL}
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"no client is called {', '.join(unknown)}; there are {', '.join(known)}")
        sys.exit(USAGE)
    if names:
        return [known[name] for name in names]
    return ALL


def run(client, cache, tare, report):
    """Prepares a client and, with a program to run it against, runs it."""
    missing = client.missing()
    if missing:
        report.skip(client.name, missing)
        return
    began = time.monotonic()
    try:
        client.prepare(cache)
        if tare is None:
            print(f"{client.name}: ready after {time.monotonic() - began:.0f} s")
            return
        for way in client.ways:
            report.begin(client.name, way.name)
            with Server(tare, way, cache) as server:
                try:
                    client.run(cache, server, way, report)
                    server.stop(report)
                finally:
                    server.tell_if(report.failed_now)
    except (Unobtainable, ServerDied) as error:
        report.failed(client.name, str(error))
    except Exception:  # a fault of the harness; the other clients are run all the same
        report.failed(client.name, traceback.format_exc())
    print(f"   ({time.monotonic() - began:.0f} s)")


def main(words):
    # A signal unwinds the stack, so that servers end and directories go.
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    match words:
        case ["--list"]:
            for client in ALL:
                print(f"{client.name:18} {client.about}")
            return 0
        case ["--prepare", *names]:
            tare = None
        case [tare, *names] if not tare.startswith("-"):
            tare = Path(tare).resolve()
        case _:
            print(__doc__.strip())
            return USAGE
    report, cache = Report(), Cache()
    for client in chosen(names):
        run(client, cache, tare, report)
    return report.finish() if tare else int(bool(report.failures))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
