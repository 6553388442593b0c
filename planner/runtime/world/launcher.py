"""The environment variables of a launcher, such as torchrun."""

import os

from planner.model.errors import InvalidInputError, PlannerError

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_MAX_RANKS = 2**16


def job() -> tuple[int, int, str, int]:
    """Return rank, number of ranks, host and port of this process's job.

    Without a launcher a `PlannerError` is raised, for invalid values an `InvalidInputError`.
    """
    for name in _VARIABLES:
        if name not in os.environ:
            raise PlannerError(
                f"{name} is not set: start the program with a launcher, such as "
                "torchrun --nproc-per-node 2 …"
            )
    numbers = []
    for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"):
        text = os.environ[name]
        if not text.isdecimal() or int(text) > _MAX_RANKS:
            raise InvalidInputError(name, f"expected a number, got {text!r}")
        numbers.append(int(text))
    rank, size, port = numbers
    if rank >= size:
        raise InvalidInputError("RANK", f"expected less than WORLD_SIZE ({size}), got {rank}")
    return rank, size, os.environ["MASTER_ADDR"], port


def attempt() -> str:
    """Return the restart count of the job, for a store that outlives a restart.

    It is "0" without such a store, since each launcher counts only its own processes' failures.
    """
    return os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") if _launcher_holds_store() else "0"


def holds_store(rank: int) -> bool:
    """Return whether the store ends with the process of this rank: no launcher holds it."""
    return rank == 0 and not _launcher_holds_store()


def _launcher_holds_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def listed(variable: str) -> tuple[str, ...]:
    """Return the comma-separated names in a variable; none if it is not set."""
    return tuple(name for name in os.environ.get(variable, "").split(",") if name)
