"""Models for commands that measure beside them; needs torch."""

import os
from pathlib import Path

from torch import Tensor, nn, ones


class _Counted(nn.Linear):
    """Leaves a byte behind for each forward pass, and prints what nobody should read."""

    def forward(self, inputs: Tensor) -> Tensor:
        print("a model that talks")
        with Path(f"passes-{os.environ.get('RANK', '0')}").open("a") as passes:
            passes.write(str(len(inputs)))
        return super().forward(inputs)


class _Failing(nn.Linear):
    def forward(self, inputs: Tensor) -> Tensor:
        raise ValueError("no")


def counted() -> nn.Module:
    """Return a model that counts its passes in a file of its rank in the current directory."""
    return _Counted(16, 4)


def failing() -> nn.Module:
    """Return a model whose forward pass fails."""
    return _Failing(16, 4)


def failing_on_rank_1() -> nn.Module:
    """Return a model, but not on rank 1 of a job."""
    if os.environ["RANK"] == "1":
        raise ValueError("only here")
    return _Counted(16, 4)


def whole() -> tuple[nn.Module, tuple[Tensor]]:
    """Return a model with its inputs."""
    return _Counted(16, 4), (ones(2, 16),)
