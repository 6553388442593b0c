"""Executing plans over gloo: the adapter, the executors, and what they measured.

The executors need torch; what reads plans (`planner.programs`) and compares measurements
with them (`planner.runtime.measured`) does not. Nothing here decides anything.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.errors import MissingExtraError

if TYPE_CHECKING:
    from planner.runtime.attaching import attach
    from planner.runtime.bcube import BcubeAllReduce
    from planner.runtime.collectives import AllReduce, Ring
    from planner.runtime.executor import Executor
    from planner.runtime.joining import join
    from planner.runtime.sweep import measure_network
    from planner.runtime.trial import Trial, run_ddp, run_plan
    from planner.runtime.world import World

_HOMES = {
    "AllReduce": "collectives",
    "BcubeAllReduce": "bcube",
    "Executor": "executor",
    "Ring": "collectives",
    "Trial": "trial",
    "World": "world",
    "attach": "attaching",
    "join": "joining",
    "measure_network": "sweep",
    "run_ddp": "trial",
    "run_plan": "trial",
}

__all__ = [
    "AllReduce",
    "BcubeAllReduce",
    "Executor",
    "Ring",
    "Trial",
    "World",
    "attach",
    "join",
    "measure_network",
    "run_ddp",
    "run_plan",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("torch", "torch") from error
