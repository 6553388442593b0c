"""The processor and the software versions behind a measurement."""

from pathlib import Path

import torch
from torch import nn

from planner.model import machine


def processor(model: nn.Module, described: Path = Path("/proc/cpuinfo")) -> str:
    """Return the name of the processor, and of the accelerators that `model` is on."""
    devices = {parameter.device for parameter in model.parameters() if parameter.is_cuda}
    accelerators = sorted({torch.cuda.get_device_name(device) for device in devices})
    return "; ".join([machine.processor(described), *accelerators])


def versions() -> dict[str, str]:
    """Return the versions of planner, Python and torch."""
    return machine.versions(torch=str(torch.__version__))
