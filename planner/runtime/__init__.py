"""Run plans over gloo: attach a plan to a training loop, execute its transfers, measure the steps.

Executors need torch. Reading plans (`planner.programs`) and comparing measurements with them
(`planner.runtime.measuring.measured`) do not. The runtime follows plans and makes no decisions.
"""

from typing import TYPE_CHECKING, Any

from planner.model.errors import MissingExtraError
from planner.model.loading import loader

if TYPE_CHECKING:
    from planner.runtime.attaching import attach, take_over
    from planner.runtime.collectives.interpreter import BcubeAllReduce, Interpreter, collective_of
    from planner.runtime.collectives.ring import AllReduce, Ring
    from planner.runtime.ddp import follow_order
    from planner.runtime.executors.base import Executor
    from planner.runtime.measuring.sweep import measure_network
    from planner.runtime.measuring.trial import Trial, run_ddp, run_plan
    from planner.runtime.tuning import Tuned, make_plan, tune
    from planner.runtime.world.joining import join
    from planner.runtime.world.world import World

__all__ = [
    "AllReduce",
    "BcubeAllReduce",
    "Executor",
    "Interpreter",
    "Ring",
    "Trial",
    "Tuned",
    "World",
    "attach",
    "collective_of",
    "follow_order",
    "join",
    "make_plan",
    "measure_network",
    "run_ddp",
    "run_plan",
    "take_over",
    "tune",
]

_HOMES = {
    "attaching": ("attach", "take_over"),
    "collectives.interpreter": ("BcubeAllReduce", "Interpreter", "collective_of"),
    "collectives.ring": ("AllReduce", "Ring"),
    "ddp": ("follow_order",),
    "executors.base": ("Executor",),
    "measuring.sweep": ("measure_network",),
    "measuring.trial": ("Trial", "run_ddp", "run_plan"),
    "tuning": ("Tuned", "make_plan", "tune"),
    "world.joining": ("join",),
    "world.world": ("World",),
}

_load = loader(__name__, _HOMES)


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("torch", "torch") from error
