"""The machine and the software a measurement ran on, for its provenance."""

import os
import platform
import time
from pathlib import Path
from typing import NamedTuple

__all__ = ["VERSION", "Load", "affinity", "own_version", "processor", "processors", "versions"]

VERSION = "0.1.0"
"""Of this package. It stands here, so that a copy that is not installed has one, and no other
distribution of the same name is asked."""

_LEAST_S = 0.2
"""Over less, the system's clock ticks would look like load."""


def processor(described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor, and how many cores it has.

    Parameters
    ----------
    described : Path
        Where Linux describes it.
    """
    try:
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = next(filter(None, named), platform.processor() or platform.machine())
    cores = os.cpu_count() or 1
    return f"{name or 'unknown processor'}, {cores} {'core' if cores == 1 else 'cores'}"


def versions(**others: str) -> dict[str, str]:
    """Return the versions of Python, of `others`, and of this package."""
    return {"python": platform.python_version(), **others, "planner": own_version()}


def own_version() -> str:
    """Return the version of this package."""
    return VERSION


def affinity() -> frozenset[int]:
    """Return the numbers of the processors that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def processors() -> int:
    """Return how many processors this process may run on."""
    return len(affinity())


class Load(NamedTuple):
    """What has been computed until now, in seconds.

    Attributes
    ----------
    time_s : float
        Now.
    own_s : float
        What this process has computed, all its threads together.
    all_s : float or None
        What all processors have; None where the system does not count.
    """

    time_s: float
    own_s: float
    all_s: float | None

    @classmethod
    def now(cls, counted: Path = Path("/proc/stat")) -> "Load":
        """Return what Linux counts in a file."""
        return cls(time.monotonic(), time.process_time(), _busy_s(counted))

    def others(self, since: "Load", own_s: float | None = None) -> float | None:
        """Return how many processors others kept busy, on average; None where that is unknown.

        Parameters
        ----------
        since : Load
            From when on. The system counts hundredths of seconds: 0.2 s at least tell something.
        own_s : float, optional
            What one's own processes computed meanwhile; by default what this one did.
        """
        passed = self.time_s - since.time_s
        if self.all_s is None or since.all_s is None or passed < _LEAST_S:
            return None
        own = self.own_s - since.own_s if own_s is None else own_s
        return max(self.all_s - since.all_s - own, 0.0) / passed


def _busy_s(counted: Path) -> float | None:
    """Return what all processors have computed since the start of the system, in seconds."""
    try:
        fields = counted.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, fields)
        busy = user + nice + system + interrupts + soft + stolen
        return busy / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
