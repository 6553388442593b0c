"""What frameworks gain by a plan: the examples on two emulated hosts.

    python benchmarks/integrations.py [--quick]

Each script of `examples` that torchrun starts runs as it is on two hosts with links of 1 Gbit/s:
network namespaces of this machine, whose cores they share, one each. It profiles its model, times
the network, plans, and trains under the framework's DDP and as planned; what it prints is printed:
medians of steps, of rank 0. Of Ray, whose cluster is this machine alone, both are over loopback.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from emulated_cluster import Host, Layout, cluster, reason_unavailable
from tables import head, row

ROOT = Path(__file__).parents[1]
RATE = 10**9
SCRIPTS = {
    "ddp": "DDP, hooks",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "transformers": "Transformers' Trainer",
    "fsdp2": "FSDP2",
}
PRINTED = re.compile(r": ([\d.]+) ms a step; as planned: ([\d.]+) ms; ([\d.]+) times")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few steps, two scripts")
    quick = parser.parse_args().quick
    reason = reason_unavailable()
    if reason is not None:
        print(f"skipped: {reason}")
        return
    steps = 8 if quick else 40
    head(("framework", "network", "its own (ms)", "as planned (ms)", "times as fast"))
    with cluster(Layout.flat(2), RATE) as hosts:
        for place, (name, title) in enumerate(list(SCRIPTS.items())[: 2 if quick else None]):
            row((title, "1 Gbit/s", *on_hosts(hosts, name, steps, 29500 + place)))
    if not quick:
        with tempfile.TemporaryDirectory() as folder:
            command = ["--storage", folder, "--steps", str(steps)]
            row(("Ray Train", "loopback", *figures([started("ray", command, {})])))


def started(
    name: str, options: list[str], variables: dict[str, str], before: tuple[str, ...] = ()
) -> subprocess.Popen[str]:
    """Start a script of `examples`."""
    return subprocess.Popen(
        [*before, sys.executable, str(ROOT / "examples" / f"with_{name}.py"), *options],
        env={
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}",
            "RAY_USAGE_STATS_ENABLED": "0",
            **variables,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def on_hosts(hosts: Sequence[Host], name: str, steps: int, port: int) -> tuple[str, ...]:
    """Run a script on every host; return what it says."""
    processes = []
    for host in hosts:
        variables = {
            **host.environment(port),
            "LOCAL_WORLD_SIZE": "1",
            "NODE_RANK": str(host.index),
        }
        core = str(sorted(os.sched_getaffinity(0))[host.index % len(os.sched_getaffinity(0))])
        before = ("ip", "netns", "exec", host.namespace, "taskset", "-c", core)
        processes.append(started(name, ["--steps", str(steps)], variables, before))
    return figures(processes)


def figures(processes: list[subprocess.Popen[str]]) -> tuple[str, ...]:
    """Return the times that a script prints, when all its ranks have ended."""
    texts = [process.communicate()[0] for process in processes]
    for process, text in zip(processes, texts, strict=True):
        if process.returncode:
            sys.exit(text[-3000:])
    match = PRINTED.search(texts[0])
    if match is None:
        sys.exit(texts[0][-3000:])
    return match.groups()


if __name__ == "__main__":
    main()
