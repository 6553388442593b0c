"""The machine and the software a measurement ran on, for its provenance."""

import importlib.metadata
import os
import platform
from pathlib import Path

__all__ = ["own_version", "processor", "versions"]


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
    return {"python": platform.python_version(), **others, "planner": own_version("unknown")}


def own_version(missing: str = "(not installed)") -> str:
    """Return the version of this package; `missing` if it is not installed."""
    try:
        return importlib.metadata.version("planner")
    except importlib.metadata.PackageNotFoundError:
        return missing
