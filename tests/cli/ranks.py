"""Commands, started once a rank as a launcher starts them; needs torch."""

import os
import sys
from pathlib import Path

from planner.cli import main
from planner.runtime.measuring import contention
from tests.runtime.launching import launch


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
    """Return what each rank prints during each command; all of them end alike.

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
