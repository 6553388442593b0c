"""Mixed-integer program over all batches, an independent cross-check of the exact methods.

Model: a path of arcs (batches) from 0 to L, one binary variable per arc; the constraints of both
objectives are in docs/ibatch.md ("Why two solvers cross-check").
Guarantee: optimal up to the solver's tolerance; plans are priced exactly afterwards. At a time
limit, which includes building and writing the model, returns CBC's incumbent or a greedy plan.
Complexity: exponential; L²/2 variables and 2L rows, for Eq. 4 up to L²/2 rows; up to
`planner.families.ibatch.methods.MAX_LAYERS` layers.
Source: own; PuLP with its bundled CBC.
"""

import subprocess
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

# highspy, which PuLP loads if installed, and OR-Tools bring two builds of one library; only the
# first one loads. PuLP works without highspy, so OR-Tools is imported first.
import ortools.sat.python.cp_model  # noqa: F401
import pulp
from pulp.apis.coin_api import pulp_cbc_path

from planner.families.ibatch.bounds import nothing_covers, out_of_time
from planner.families.ibatch.problem import Arc, Plan, Problem
from planner.solving.deadline import Deadline, TimeUpError
from planner.solving.methods import Outcome


def solve_milp(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Minimise the objective with CBC; raise `TimeUpError` if building the model is late."""
    begin = time.monotonic()
    program = _Program(problem, deadline)
    model = program.model
    if problem.objective == "makespan":
        program.add_makespan()
    else:
        program.add_paper_model()
    _solve_with_cbc(model, deadline, time.monotonic() - begin)
    late = deadline.remaining_s == 0
    if late and model.sol_status != pulp.LpSolutionIntegerFeasible:
        return out_of_time(problem)  # CBC says "infeasible" if it runs out of time
    if model.status == pulp.LpStatusInfeasible:
        return Outcome(None, infeasibility=nothing_covers(problem))
    stops = [arc.stop for arc, x in program.chosen if (x.value() or 0.0) > 0.5]
    return Outcome(
        problem.plan([0, *sorted(stops)]), timed_out=model.sol_status != pulp.LpSolutionOptimal
    )


class _Program:
    """The program of a path of arcs; methods add an objective and its constraints."""

    def __init__(self, problem: Problem, deadline: Deadline) -> None:
        self.problem, self.deadline = problem, deadline
        arcs = problem.arcs(deadline)
        # CBC uses floating point: scale the largest time to 10^6.
        longest = max([arc.communication for arc in arcs] + [problem.compute_prefix[-1], 1])
        self.scale = longest / 1e6
        self.model = pulp.LpProblem("ibatch", pulp.LpMinimize)
        self.chosen: list[tuple[Arc, Any]] = []
        balance: list[list[tuple[Any, int]]] = [[] for _ in range(problem.layers + 1)]
        for number, arc in enumerate(arcs):
            deadline.check()
            x = self.model.add_variable(f"x{number}", cat=pulp.LpBinary)
            self.chosen.append((arc, x))
            balance[arc.start].append((x, 1))
            balance[arc.stop].append((x, -1))
        for boundary, terms in enumerate(balance[:-1]):
            self._add(pulp.LpAffineExpression(terms) == (1 if boundary == 0 else 0))

    def _add(self, constraint: Any) -> None:
        self.deadline.check()
        self.model.addConstraint(constraint)

    def add_makespan(self) -> None:
        """Minimise the time from the first start to the last end."""
        count, computed, scale = self.problem.layers, self.problem.compute_prefix, self.scale
        rest = [(computed[count] - time) / scale for time in computed]
        steps: list[list[tuple[Any, float]]] = [[] for _ in range(count + 1)]
        for arc, x in self.chosen:
            steps[arc.start].append((x, -(arc.communication / scale + rest[arc.start])))
            steps[arc.stop].append((x, rest[arc.start]))
        makespan = self.model.add_variable("makespan", lowBound=0)
        self.model.setObjective(makespan)
        previous: list[tuple[Any, float]] = []
        for layer in range(count):
            end = self.model.add_variable(f"e{layer}", lowBound=0)
            self._add(pulp.LpAffineExpression([(end, 1.0), *steps[layer], *previous]) == 0)
            self._add(makespan - end >= 0)
            previous = [(end, -1.0)]

    def add_paper_model(self) -> None:
        """Minimise Eq. 4 under Eq. 5."""
        count = self.problem.layers
        into: list[list[tuple[int, Any]]] = [[] for _ in range(count + 1)]
        out: list[list[tuple[int, Any]]] = [[] for _ in range(count + 1)]
        costs = []
        for arc, x in self.chosen:
            into[arc.stop].append((arc.computation, x))
            out[arc.start].append((arc.communication, x))
            last = arc.computation if arc.stop == count else 0
            costs.append((x, (arc.communication + last) / self.scale))
        self.model.setObjective(pulp.LpAffineExpression(costs))
        for boundary in range(1, count):
            for threshold in {computation for computation, _ in into[boundary]}:
                needed = [(x, 1) for computation, x in into[boundary] if computation >= threshold]
                covering = [(x, -1) for sending, x in out[boundary] if sending >= threshold]
                self._add(pulp.LpAffineExpression(needed + covering) <= 0)


# ---
# CBC with a time limit that holds; neither PuLP nor CBC enforces a limit by itself.
#
# PuLP writes the model and reads the solution; CBC runs as a subprocess and is killed after the
# deadline. CBC checks its clock only between search steps, and the root relaxation of a large model
# may take minutes. Writing the model cannot be interrupted, so it does not start if too little time
# is left. Guarantee: returns a few tenths of a second after the deadline. Source: own.

WRITING = 4
"""Writing a model takes up to this many times as long as building it took."""

GRACE_S = 0.2
"""Time (s) for CBC to write its best solution after the deadline."""


def _solve_with_cbc(model: Any, deadline: Deadline, built_s: float) -> None:
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
