"""Keeps a processor from halting while something is measured on it.

A virtual machine that halts a processor gives it away, and finds it slow when it comes back: steps
that wait for the network then take up to half as long again, whatever they do. A loop at idle
priority runs only where nothing else does, so the processor never halts. It takes the time of a
context switch from what it makes way for.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Loop:
    """A loop at idle priority on the processors of this process."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, __file__])

    @property
    def time_s(self) -> float:
        """Processor time that it took so far."""
        text = Path(f"/proc/{self._process.pid}/stat").read_text("ascii")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        """End it."""
        self._process.kill()
        self._process.wait()


@contextmanager
def awake() -> Iterator[Loop]:
    """Keep the processor to which this process is bound awake."""
    loop = Loop()
    try:
        yield loop
    finally:
        loop.end()


def main() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(10**6):
            pass


if __name__ == "__main__":
    main()
