"""What frameworks gain by a plan: the examples on two emulated hosts.

    python benchmarks/integrations.py [--quick]

Each script of `examples` that torchrun starts runs as it is on two hosts with links of 1 Gbit/s,
and of 200 Mbit/s: network namespaces of this machine, a core each. It profiles its model, times the
network, plans, and trains under the framework's DDP and as planned; what it prints is printed:
medians of steps, of rank 0. Of Ray, whose cluster is this machine alone, both are over loopback.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from emulated_cluster import Host, Layout, cluster, reason_unavailable
from tables import head, row

ROOT = Path(__file__).parents[1]
RATES = {"1 Gbit/s": 10**9, "200 Mbit/s": 2 * 10**8}
SCRIPTS = {
    "ddp": "DDP, hooks",
    "lightning": "Lightning",
    "accelerate": "Accelerate",
    "transformers": "Transformers' Trainer",
    "fsdp2": "FSDP2",
}
FAILED = "a rank failed: "
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
    for network, rate in list(RATES.items())[1 if quick else 0 :]:
        with cluster(Layout.flat(2), rate) as hosts:
            for place, (name, title) in enumerate(list(SCRIPTS.items())[: 2 if quick else None]):
                row((title, network, *on_hosts(hosts, name, steps, 29500 + place)))
    if not quick:
        with tempfile.TemporaryDirectory() as folder:
            command = (sys.executable, script("ray"), "--storage", folder, "--steps", str(steps))
            row(("Ray Train", "loopback", *figures([started(command, {})])))


def started(command: Sequence[str], variables: Mapping[str, str]) -> subprocess.Popen[str]:
    """Start a command that runs a script of `examples`."""
    return subprocess.Popen(
        command,
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


def script(name: str) -> str:
    """Return where a script of `examples` is."""
    return str(ROOT / "examples" / f"with_{name}.py")


def on_hosts(hosts: Sequence[Host], name: str, steps: int, port: int) -> tuple[str, ...]:
    """Run a script on every host by torchrun; return what it says."""
    processes = []
    for host in hosts:
        variables = host.environment(port)
        core = str(sorted(os.sched_getaffinity(0))[host.index % len(os.sched_getaffinity(0))])
        torchrun = (
            *("ip", "netns", "exec", host.namespace, "taskset", "-c", core),
            *(sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(hosts)}"),
            *(f"--node-rank={host.index}", "--nproc-per-node=1"),
            *(f"--master-addr={variables['MASTER_ADDR']}", f"--master-port={port}"),
        )
        processes.append(started((*torchrun, script(name), "--steps", str(steps)), variables))
    return figures(processes)


def figures(processes: list[subprocess.Popen[str]]) -> tuple[str, ...]:
    """Return the times that a script prints, when all its ranks have ended."""
    with ThreadPoolExecutor() as threads:
        texts = list(threads.map(partial(text_of, others=processes), processes))
    if failed := [text for text in texts if text.startswith(FAILED)]:
        sys.exit(max(failed, key=len))
    match = PRINTED.search(texts[0])
    if match is None:
        sys.exit(texts[0][-3000:])
    return match.groups()


def text_of(process: subprocess.Popen[str], others: Sequence[subprocess.Popen[str]]) -> str:
    """Return what a rank prints; if it fails, end the others, which would wait for it."""
    text = process.communicate()[0]
    if process.returncode == 0:
        return text
    for other in others:
        other.terminate()
    return FAILED if process.returncode < 0 else FAILED + text[-3000:]


if __name__ == "__main__":
    main()
