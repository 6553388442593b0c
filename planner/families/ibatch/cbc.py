"""CBC with a time limit that holds; neither PuLP nor CBC keeps one by itself.

PuLP writes the model and reads the solution; CBC runs as a subprocess and is killed after the
deadline. CBC checks its clock only between search steps, and the root relaxation of a large model
may take minutes. Writing the model cannot be interrupted, so it does not start if too little time
is left.

Guarantee: returns a few tenths of a second after the deadline. Source: own.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pulp
from pulp.apis.coin_api import pulp_cbc_path

from planner.solving.deadline import Deadline, TimeUpError

WRITING = 4
"""Writing a model takes up to this many times as long as building it took."""

GRACE_S = 0.2
"""Time (s) for CBC to write its best solution after the deadline."""


def solve_with_cbc(model: Any, deadline: Deadline, built_s: float) -> None:
    """Solve a `pulp.LpProblem`, and store values and status in it.

    `built_s` is the time (s) that building the model took. Raises `TimeUpError` if CBC found
    nothing before the deadline.
    """
    left = deadline.remaining_s
    if left is not None and left < WRITING * built_s:
        raise TimeUpError
    with TemporaryDirectory() as folder:
        written, solution_file = Path(folder, "model.mps"), Path(folder, "model.sol")
        variables, names, rows, _ = model.writeMPS(str(written), rename=1)
        deadline.check()
        left = deadline.remaining_s
        command = [pulp_cbc_path, str(written)]
        command += [] if left is None else ["-sec", str(left), "-timeMode", "elapsed"]
        command += ["-threads", "1", "-randomSeed", "1", "-solve"]
        command += ["-printingOptions", "all", "-solution", str(solution_file)]
        _run(command, deadline)
        solution = pulp.COIN_CMD().readsol_MPS(str(solution_file), model, variables, names, rows)
    status, values, *_, sol_status = solution
    model.assignVarsVals(values)
    model.assignStatus(status, sol_status)


def _run(command: list[str], deadline: Deadline) -> None:
    """Run CBC; raise `TimeUpError` if it is stopped after the deadline or on cancellation."""
    quiet, left = subprocess.DEVNULL, deadline.remaining_s
    own = deadline.cancel is not None  # then Ctrl-C must reach the caller, not CBC
    with subprocess.Popen(
        command, stdin=quiet, stdout=quiet, stderr=quiet, start_new_session=own
    ) as process:
        try:
            with deadline.stopping(process.kill):
                status = process.wait(None if left is None else left + GRACE_S)
        except BaseException as error:
            process.kill()
            if isinstance(error, subprocess.TimeoutExpired):
                raise TimeUpError from None
            raise
    if status and own:
        deadline.check()
    if status:
        raise subprocess.CalledProcessError(status, command)
