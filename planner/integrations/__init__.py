"""Plans inside the training frameworks people use, each by what the framework itself offers for it.

Nothing of a framework is imported, nor torch, before something here is used: `take_over` and `tune`
are for loops of one's own; `hooks` for DDP; `lightning`, `accelerate` and `transformers` for
the frameworks of these names.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.errors import MissingExtraError

if TYPE_CHECKING:
    from planner.integrations.hooks import Audit, audit, follow_order
    from planner.integrations.planning import make_plan
    from planner.integrations.takeover import Takeover, take_over
    from planner.integrations.tuning import Tuned, tune

_HOMES = {
    "Audit": "hooks",
    "Takeover": "takeover",
    "Tuned": "tuning",
    "audit": "hooks",
    "take_over": "takeover",
    "follow_order": "hooks",
    "make_plan": "planning",
    "tune": "tuning",
}

__all__ = [
    "Audit",
    "Takeover",
    "Tuned",
    "audit",
    "follow_order",
    "make_plan",
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
