"""Keeps a processor from halting while something is measured on it.

A virtual machine that halts a processor gives it away, and finds it slow when it comes back: steps
that wait for the network then take up to half as long again, whatever they do. A loop at idle
priority runs only where nothing else does, so the processor never halts. It takes the time of a
context switch from what it makes way for.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Self


class Awake:
    """Keeps the processor to which this process is bound awake, as a context manager."""

    def __enter__(self) -> Self:
        self._loop = subprocess.Popen([sys.executable, __file__])
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.kill()
        self._loop.wait()

    @property
    def time_s(self) -> float:
        """Processor time that the loop took so far."""
        text = Path(f"/proc/{self._loop.pid}/stat").read_text("ascii")
        user, system = text.rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    parent = os.getppid()
    while os.getppid() == parent:
        for _ in range(10**6):
            pass


if __name__ == "__main__":
    main()
