#!/usr/bin/env python3
"""Measures the CPU time per request of HTTP/3 servers in alternating turns: measure.py TIDEGATE NAME=PID:URL...

Each server runs already, serves the same file, and is named with the process whose CPU time counts, together with its
descendants. `tidegate bench` makes a fixed number of requests in each turn. Writes a table, and JSON with --json FILE."""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

TICKS = os.sysconf("SC_CLK_TCK")


def descendants(pid):
    found = [pid]
    for process in found:
        for task in os.listdir(f"/proc/{process}/task"):
            with open(f"/proc/{process}/task/{task}/children") as children:
                found += [int(child) for child in children.read().split()]
    return found


def cpu_seconds(pid):
    """User and system time of a process and its descendants (proc_pid_stat(5), fields 14 and 15)."""
    total = 0
    for process in descendants(pid):
        with open(f"/proc/{process}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def turn(tidegate, url, options):
    """Makes the requests; returns the number of answers."""
    command = [tidegate, "bench", url, "--http3", "-q", "--json", "-"]
    command += ["-n", str(options.requests), "-c", str(options.connections), "-m", str(options.streams)]
    command += ["--no-keepalive"] if options.handshakes else []
    done = subprocess.run(command, capture_output=True, text=True)
    try:
        report = json.loads(done.stdout)["points"][0]["rounds"][0]
    except (ValueError, LookupError):
        sys.exit(f"{url}: {done.stderr}")
    # A handshake may time out on a busy machine.
    if report["answers"] < options.requests * 0.99:
        sys.exit(f"{url}: {report['answers']} answers of {options.requests}, failures {report['failures']}")
    return report["answers"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tidegate")
    parser.add_argument("servers", nargs="+", metavar="NAME=PID:URL")
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--requests", type=int, default=30000)
    parser.add_argument("-c", "--connections", type=int, default=16)
    parser.add_argument("-m", "--streams", type=int, default=16)
    parser.add_argument("--handshakes", action="store_true", help="a new connection for each request")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    servers = []
    for text in options.servers:
        name, rest = text.split("=", 1)
        pid, url = rest.split(":", 1)
        servers.append((name, int(pid), url))
    figures = {name: [] for name, _, _ in servers}
    # The first turn warms caches up, and does not count.
    for number in range(options.turns + 1):
        for name, pid, url in servers if number % 2 == 0 else reversed(servers):
            before = cpu_seconds(pid)
            answers = turn(options.tidegate, url, options)
            # The server's closing packets.
            time.sleep(0.1)
            if number > 0:
                figures[name].append((cpu_seconds(pid) - before) / answers * 1e6)
    first = statistics.median(next(iter(figures.values())))
    print("| Server | CPU time per request (µs, median) | Least and most | Ratio |")
    print("|---|---:|---:|---:|")
    for name, values in figures.items():
        middle = statistics.median(values)
        print(f"| {name} | {middle:.1f} | {min(values):.1f} to {max(values):.1f} | {middle / first:.2f} |")
    print(f"\nLoad of the machine at the end (1 minute): {os.getloadavg()[0]:.1f} on {os.cpu_count()} CPUs")
    if options.json:
        with open(options.json, "w") as out:
            json.dump({"options": vars(options), "microseconds": figures}, out, indent=1)


if __name__ == "__main__":
    main()
