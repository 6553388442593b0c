"""An emulated cluster on one machine: hosts and switches with links of a chosen rate.

    python benchmarks/emulated_cluster.py --bcube 3,2 --rate 50Mb/s -- python train.py

runs the command once on every host, with what `torch.distributed` needs to know in its environment,
prints what each one writes behind the name of its host, and ends with the worst exit status.

Next to the network under test runs one of unlimited rate, ``ctl0``, where the processes meet. Needs
Linux, root, and the commands ``ip`` and ``tc``; without them it ends with status 2 and the reason.

A cluster that was killed leaves its network namespaces behind. The next one, or ``--clean``,
removes those of dead processes, with all that runs there.

For other scripts and tests::

    with cluster(Layout.bcube(3, 2), 50_000_000) as hosts:
        hosts[4].environment(port=29500)  # for a worker there
        hosts[4].enter()                  # in the worker
        hosts[4].link("eth1", up=False)   # pull a cable
"""

import argparse
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence

from emulated_hosts import Host, Layout
from emulated_network import clean, cluster, require_tools

from planner.model.errors import InvalidInputError, PlannerError
from planner.model.units import parse_rate


def _on_every_host(hosts: Sequence[Host], command: Sequence[str], port: int) -> int:
    """Run a command on every host, print what it writes, and return the worst exit status."""

    def relay(host: Host, process: subprocess.Popen[str]) -> None:
        for line in process.stdout or ():
            # One write a line, so that lines of different hosts do not mix.
            sys.stdout.write(f"[host {host.index}] {line.rstrip()}\n")
            sys.stdout.flush()

    processes: list[subprocess.Popen[str]] = []
    threads: list[threading.Thread] = []
    for host in hosts:
        process = subprocess.Popen(  # what the user asks for
            ["ip", "netns", "exec", host.namespace, *command],
            env={**os.environ, **host.environment(port)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        processes.append(process)
        threads.append(threading.Thread(target=relay, args=(host, process), daemon=True))
        threads[-1].start()
    statuses = [process.wait() for process in processes]
    for thread in threads:
        thread.join(1)  # what the command left in the background may keep the pipe open
    return max(status if status >= 0 else 128 - status for status in statuses)


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Run a command on every host of an emulated cluster.",
        epilog="example: %(prog)s --bcube 3,2 --rate 50Mb/s -- python train.py",
    )
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--flat", metavar="HOSTS", type=int, help="hosts on one switch a NIC")
    what.add_argument("--bcube", metavar="N,K", help="BCube(n, k): n^k hosts of k NICs")
    what.add_argument("--clean", action="store_true", help="remove what killed runs left")
    parser.add_argument("--nics", type=int, default=1, help="NICs of each host of --flat")
    parser.add_argument(
        "--rate", help="rate of every link, such as 50Mb/s; without limit if absent"
    )
    parser.add_argument("--port", type=int, default=29500, help="port of the meeting point")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    arguments = parser.parse_args(argv)
    if arguments.command[:1] == ["--"]:
        del arguments.command[0]
    if not arguments.clean and not arguments.command:
        parser.error("expected a command after --")
    return arguments


def _layout(arguments: argparse.Namespace) -> Layout:
    if arguments.bcube is None:
        return Layout.flat(arguments.flat, arguments.nics)
    match = re.fullmatch(r"(\d{1,4}),(\d{1,4})", arguments.bcube)
    if match is None:
        raise InvalidInputError("--bcube", f"expected n,k such as 3,2, got {arguments.bcube!r}")
    return Layout.bcube(int(match[1]), int(match[2]))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _arguments(argv)
    try:
        if arguments.clean:
            require_tools()
            for name in clean():
                print(f"removed {name}")
            return 0
        layout = _layout(arguments)
        rate = None if arguments.rate is None else int(8 * parse_rate(arguments.rate, "--rate"))
        with cluster(layout, rate) as hosts:
            return _on_every_host(hosts, arguments.command, arguments.port)
    except PlannerError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
