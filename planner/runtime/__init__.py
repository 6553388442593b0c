"""Run plans over gloo: attach a plan to a training loop, execute its transfers, measure the steps.

Executors need torch. Reading plans (`planner.programs`) and comparing measurements with them
(`planner.runtime.measuring.measured`) do not. The runtime follows plans and makes no decisions.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.model.errors import MissingExtraError

if TYPE_CHECKING:
    from planner.runtime.attaching import attach
    from planner.runtime.collectives.bcube import BcubeAllReduce
    from planner.runtime.collectives.interpreter import Interpreter, collective_of
    from planner.runtime.collectives.ring import AllReduce, Ring
    from planner.runtime.ddp_hook import Audit, audit, follow_order
    from planner.runtime.executors.base import Executor
    from planner.runtime.measuring.sweep import measure_network
    from planner.runtime.measuring.trial import Trial, run_ddp, run_plan
    from planner.runtime.planning import make_plan
    from planner.runtime.takeover import Takeover, take_over
    from planner.runtime.tuning import Tuned, tune
    from planner.runtime.world.joining import join
    from planner.runtime.world.world import World

_HOMES = {
    "AllReduce": "collectives.ring",
    "Audit": "ddp_hook",
    "BcubeAllReduce": "collectives.bcube",
    "Executor": "executors.base",
    "Interpreter": "collectives.interpreter",
    "Ring": "collectives.ring",
    "Takeover": "takeover",
    "Trial": "measuring.trial",
    "Tuned": "tuning",
    "World": "world.world",
    "attach": "attaching",
    "audit": "ddp_hook",
    "collective_of": "collectives.interpreter",
    "follow_order": "ddp_hook",
    "join": "world.joining",
    "make_plan": "planning",
    "measure_network": "measuring.sweep",
    "run_ddp": "measuring.trial",
    "run_plan": "measuring.trial",
    "take_over": "takeover",
    "tune": "tuning",
}

__all__ = [
    "AllReduce",
    "Audit",
    "BcubeAllReduce",
    "Executor",
    "Interpreter",
    "Ring",
    "Takeover",
    "Trial",
    "Tuned",
    "World",
    "attach",
    "audit",
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise MissingExtraError("torch", "torch") from error
