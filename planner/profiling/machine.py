"""What a measurement of a model ran on."""

from pathlib import Path

import torch
from torch import nn

from planner import machine

__all__ = ["processor", "versions"]


def processor(model: nn.Module, described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the names of what computes `model`: the processor, and an accelerator if in use."""
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    accelerators = sorted({torch.cuda.get_device_name(device) for device in devices})
    return "; ".join([machine.processor(described), *accelerators])


def versions() -> dict[str, str]:
    """Return the versions of the software that matters."""
    return machine.versions(torch=str(torch.__version__))
