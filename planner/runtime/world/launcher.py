"""What the launcher of a job, such as torchrun, says in a process's environment."""

import os

from planner.errors import InvalidInputError, PlannerError

__all__ = ["attempt", "holds_store", "job", "listed"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MAX_RANKS = 2**16


def job() -> tuple[int, int, str, int]:
    """Return this process's rank, the number of ranks, and the host and port where they meet.

    Raises
    ------
    PlannerError
        If no launcher has started this process.
    InvalidInputError
        If what the launcher says cannot be.
    """
    values = {}
    for name in _VARIABLES:
        text = os.environ.get(name)
        if text is None:
            raise PlannerError(
                f"{name} is not set: start the program with a launcher, such as "
                "torchrun --nproc-per-node 2 …"
            )
        values[name] = text
    numbers = {}
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        if not values[name].isdecimal() or int(values[name]) > _MAX_RANKS:
            raise InvalidInputError(name, f"expected a number, got {values[name]!r}")
        numbers[name] = int(values[name])
    rank, size = numbers["RANK"], numbers["WORLD_SIZE"]
    if rank >= size:
        raise InvalidInputError("RANK", f"expected less than WORLD_SIZE ({size}), got {rank}")
    return rank, size, values["MASTER_ADDR"], numbers["MASTER_PORT"]


def attempt() -> str:
    """Return which start of the job this is, in a store that outlives a start.

    In one that does not, launchers need not agree: each counts only its own processes' failures.
    """
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if _launcher_holds_store() else "0"


def holds_store(rank: int) -> bool:
    """Tell whether the job's store ends with the process of a rank: no launcher holds it."""
    return rank == 0 and not _launcher_holds_store()


def _launcher_holds_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def listed(variable: str) -> tuple[str, ...]:
    """Return the names that a variable lists, separated by commas; none if it is not set."""
    return tuple(name for name in os.environ.get(variable, "").split(",") if name)
