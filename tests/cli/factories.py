"""Commands, started once a rank as a launcher starts them, and models for them; needs torch."""

import os
import sys
from pathlib import Path

from torch import Tensor, nn, ones

from planner.cli import main
from planner.runtime.measuring import contention
from tests.runtime.launching import launch


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


def _commands(folder: str, commands: list[str]) -> list[int]:
    os.chdir(folder)
    os.environ["TORCHELASTIC_ERROR_FILE"] = f"error-{os.environ['RANK']}.json"
    contention.SAMPLE_S = 0.005  # computation beside transfers is timed for a moment
    statuses = []
    for number, words in enumerate(commands):
        os.environ["MASTER_PORT"] = str(int(os.environ["MASTER_PORT"]) + (number > 0))
        sys.stdout.write(f"== {number}\n")
        statuses.append(main(words.format(rank=os.environ["RANK"]).split()))
    return statuses


def commanded(ranks: int, folder: Path, *commands: str, ends: int = 0) -> list[list[str]]:
    """Return the output of each rank for each command; all ranks exit alike.

    In a command ``{rank}`` stands for the number of the rank. Why rank 0 failed, as launchers are
    told, stands in `error-0.json`.
    """
    outcomes = launch(_commands, ranks, str(folder), list(commands))
    for outcome in outcomes:
        assert outcome.value == [ends] * len(commands), outcome.output
    return [_sections(outcome.output) for outcome in outcomes]


def _sections(output: str) -> list[str]:
    """Return the parts of an output, without progress, which a slow machine shows."""
    lines = [line for line in output.splitlines(keepends=True) if "planner: network: " not in line]
    return [part.partition("\n")[2] for part in "".join(lines).split("== ")[1:]]
