"""OR-Tools' CP-SAT, the same for all families: one worker, a fixed seed, ends at the deadline.

So a model has the same solution on every machine, unless the deadline passes.
"""

from typing import Any

from ortools.sat.python import cp_model

from planner.solving.deadline import Deadline


def solved(model: Any, deadline: Deadline, **parameters: Any) -> tuple[Any, bool, bool]:
    """Return the solver of a model, whether it has a solution, and whether that is proven best.

    Without a solution: whether infeasibility is proven. `parameters` are further ones of CP-SAT.
    """
    solver = cp_model.CpSolver()
    parameters |= {"num_workers": 1, "random_seed": 1}
    # With a callback that can cancel, Ctrl-C must reach the caller, not CP-SAT.
    parameters["catch_sigint_signal"] = deadline.cancel is None
    if deadline.remaining_s is not None:
        parameters["max_time_in_seconds"] = deadline.remaining_s
    for name, value in parameters.items():
        setattr(solver.parameters, name, value)
    with deadline.stopping(solver.stop_search):
        status = solver.solve(model)
    assert status != cp_model.MODEL_INVALID, model.validate()
    found = status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    return solver, found, status in (cp_model.OPTIMAL, cp_model.INFEASIBLE)
