"""The machine and software of a measurement, for its provenance."""

import os
import platform
import time
from pathlib import Path
from typing import NamedTuple

VERSION = "0.1.0"
"""Version of this package. A constant, because a copy that is not installed has no metadata, and
another distribution may have the same name."""

_LEAST_S = 0.2  # over shorter intervals, the system's clock ticks would look like load


def processor(described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor and its number of cores, from Linux's description."""
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
    return {"python": platform.python_version(), **others, "planner": VERSION}


def affinity() -> frozenset[int]:
    """Return the numbers of the processors on which this process may run."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def processors() -> int:
    """Return the number of processors on which this process may run."""
    return len(affinity())


def page_faults() -> int:
    """Return the page faults of this process so far that read no file; 0 if unknown."""
    try:
        import resource
    except ImportError:  # Windows
        return 0
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)


class Load(NamedTuple):
    """Processor time used so far (s), for the load of other processes."""

    time_s: float  # monotonic clock
    own_s: float  # processor time of this process, all threads
    all_s: float | None  # of all processors; None if the system does not count

    @classmethod
    def now(cls, counted: Path = Path("/proc/stat")) -> "Load":
        """Return the current counts; `counted` is Linux's file of all processors."""
        return cls(time.monotonic(), time.process_time(), _busy_s(counted))

    def others(self, since: "Load", own_s: float | None = None) -> float | None:
        """Return the mean number of processors that other processes kept busy; None if unknown.

        `own_s` is the processor time of the caller's processes, by default of this one alone. The
        result is None for intervals under 0.2 s: the system counts hundredths of seconds.
        """
        passed = self.time_s - since.time_s
        if self.all_s is None or since.all_s is None or passed < _LEAST_S:
            return None
        own = self.own_s - since.own_s if own_s is None else own_s
        return max(self.all_s - since.all_s - own, 0.0) / passed


def _busy_s(counted: Path) -> float | None:
    """Return the processor time (s) of all processors since the system's start."""
    try:
        fields = counted.read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
        user, nice, system, _idle, _waiting, interrupts, soft, stolen = map(int, fields)
        busy = user + nice + system + interrupts + soft + stolen
        return busy / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
