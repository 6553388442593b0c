"""Training on Apache Spark: single iterations as jobs, and groups of them as barrier stages.

Needs the extra `spark`, and Java. Nothing here decides anything: plans say who sums what, and the
rule of `planner.drizzle.adjusted` says how many iterations the next group has.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from planner.errors import MissingExtraError

if TYPE_CHECKING:
    from planner.runtime.spark.connecting import connect, slots_of
    from planner.runtime.spark.groups import GroupRecord, train_groups
    from planner.runtime.spark.jobs import train_jobs
    from planner.runtime.spark.standalone import StandaloneCluster
    from planner.runtime.spark.training import Reached, Training, sgd

_HOMES = {
    "GroupRecord": "groups",
    "Reached": "training",
    "StandaloneCluster": "standalone",
    "Training": "training",
    "connect": "connecting",
    "sgd": "training",
    "slots_of": "connecting",
    "train_groups": "groups",
    "train_jobs": "jobs",
}

__all__ = [
    "GroupRecord",
    "Reached",
    "StandaloneCluster",
    "Training",
    "connect",
    "sgd",
    "slots_of",
    "train_groups",
    "train_jobs",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in ("pyspark", "py4j", "torch"):
            raise
        raise MissingExtraError(error.name, "spark") from error
