"""What a measurement ran on."""

import importlib.metadata
import os
import platform
from pathlib import Path

import torch
from torch import nn

__all__ = ["processor", "versions"]


def processor(model: nn.Module, described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the names of what computes `model`: the processor, and an accelerator if in use."""
    cores = os.cpu_count() or 1
    names = [f"{_model_name(described)}, {cores} {'core' if cores == 1 else 'cores'}"]
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    names += sorted({torch.cuda.get_device_name(device) for device in devices})
    return "; ".join(names)


def versions() -> dict[str, str]:
    """Return the versions of the software that matters."""
    try:
        planner = importlib.metadata.version("planner")
    except importlib.metadata.PackageNotFoundError:
        planner = "unknown"
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "planner": planner,
    }


def _model_name(described: Path) -> str:
    try:
        lines = described.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name" and value.strip():
            return value.strip()
    return platform.processor() or platform.machine() or "unknown processor"
