"""CBC under a deadline, which neither PuLP nor CBC keeps by itself.

Problem: solve a PuLP model with CBC and be back when the time is up.

Method: PuLP writes the model and reads the solution; CBC is told the time that is left, and ended
where it goes on. It looks at its clock between the steps of its search only: of a large model the
first relaxation alone may take minutes. Writing cannot be interrupted, so it is not begun where
it would not end in time.

Guarantee: back some tenths of a second after the deadline. Source: own.
"""

import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pulp
from pulp.apis.coin_api import pulp_cbc_path

from planner.deadline import Deadline, TimeUpError

__all__ = ["solve_with_cbc"]

WRITING = 4
"""Writing a model takes up to so many times as long as building it took."""

GRACE_S = 0.2
"""What CBC is given beyond the deadline to write down the best it has found."""


def solve_with_cbc(model: Any, deadline: Deadline, built_s: float) -> None:
    """Solve a model, and leave values and status in it.

    Parameters
    ----------
    model : pulp.LpProblem
        What to solve.
    deadline : Deadline
        When to be back.
    built_s : float
        How long building the model took, in seconds.

    Raises
    ------
    TimeUpError
        If the deadline passed before CBC had anything to say.
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
    """Run PuLP's own program on a file of ours.

    Raises
    ------
    TimeUpError
        If it was still running some time after the deadline, or when somebody cancelled.
    """
    quiet, left = subprocess.DEVNULL, deadline.remaining_s
    own = deadline.cancel is not None  # Ctrl-C on a terminal is for whoever cancels
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
