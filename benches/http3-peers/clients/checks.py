"""Runs the checks of a client of HTTP/3, and prints a line for each of them. The server is that of nginx.conf in the folder above."""

import argparse
import os
import signal
import sys
import time

FILE_BYTES = 5120
LARGE_BYTES = 1_000_000


def expect(got, wanted):
    if got != wanted:
        raise AssertionError(f"{str(got)[:200]!r} instead of {str(wanted)[:200]!r}")


class Server:
    def __init__(self, port, pid):
        self.port = port
        self.pid = pid

    def url(self, path):
        return f"https://localhost:{self.port}{path}"

    def reload(self):
        if not self.pid:
            raise AssertionError("skipped: no --pid")
        os.kill(self.pid, signal.SIGHUP)


def run(description, checks):
    """Calls each function with a server. Exits with status 1 if one of them fails."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--port", type=int, default=8443)
    parser.add_argument("--pid", type=int, help="master process, which gets HUP during a download")
    options = parser.parse_args()
    failed = False
    for name, check in checks:
        began = time.monotonic()
        try:
            check(Server(options.port, options.pid))
            print(f"ok      {name} ({time.monotonic() - began:.1f} s)")
        except Exception as why:
            failed = True
            print(f"FAILED  {name}: {why!r}")
    sys.exit(failed)
