"""Systems that plans are exported to, and what each of them can be told: constraints of a plan.

A plan made for a target keeps to all of its rules, so that it costs there what was promised; each
rule stands beside the line of the target's code that it was read from. All four targets that sum up
gradients send whole parameters, one transfer after the other, and begin the next forward pass when
all have arrived. They differ in the order in which parameters fill buckets, in what closes one, and
in when it leaves.

Sizes that are settings count elements where the target's do; ``default_*`` are the target's own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, NamedTuple

from planner.bucketing import DDP_LIMITS
from planner.errors import InvalidInputError
from planner.solving.methods import known_method
from planner.validation import shown

__all__ = [
    "EVERY",
    "FSDP2",
    "PLANNER",
    "TARGETS",
    "TARGET_NAMES",
    "Buckets",
    "Exported",
    "Order",
    "Rule",
    "Target",
    "check_summing",
    "target_of",
]

Order = Literal["recorded", "ready", "reversed"]
"""Parameters as worker 0's gradients became ready, as the last worker's do, or in the reverse of
the model's order."""

Buckets = Literal["any", "filled", "fitting"]
"""What buckets can be: any consecutive parameters; those that one size makes, where a bucket closes
once it has that size; or those that one size makes which none exceeds, but for a single larger
parameter."""

PLANNER = "planner"
"""The target without rules: planner's own runtime."""


class Rule(NamedTuple):
    """One rule of a target.

    Attributes
    ----------
    about : str
        What it is about.
    says : str
        The rule.
    source : str
        File and line of the target's code.
    """

    about: str
    says: str
    source: str


@dataclass(frozen=True, slots=True)
class Target:
    """What a system can be told of a plan of gradients.

    Attributes
    ----------
    name : str
        What users call it.
    title, version : str
        Its name, and the version the rules were read from.
    order : Order
        In which parameters fill buckets.
    buckets : Buckets
        What buckets can be.
    default_bytes : tuple of (int, int), optional
        Largest first bucket and largest other ones of its default, in bytes.
    default_elements : int, optional
        The same of all buckets, in elements, where it counts those.
    elements_per_worker : int
        What each worker adds to that at least.
    leaves_late : bool
        Whether a bucket leaves when the gradient after it is ready, where computation waits for
        the bucket before; or when its own are.
    cycle_ns : int
        How often it looks for complete buckets; 0 if it is told.
    settings : tuple of str
        What to set beside buckets, line by line.
    rules : tuple of Rule
        All of this as found in its code.
    algorithms : tuple of str
        How its library can be told to sum up.
    sharded : bool
        Whether each worker keeps a share of all parameters.
    """

    name: str
    title: str
    version: str
    order: Order
    buckets: Buckets
    default_bytes: tuple[int, int] | None
    default_elements: int | None = None
    elements_per_worker: int = 0
    leaves_late: bool = False
    cycle_ns: int = 0
    settings: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    algorithms: tuple[str, ...] = ("ring",)
    sharded: bool = False

    def limits(self, workers: int, element_bytes: int) -> tuple[int, int]:
        """Return the largest first bucket and the largest others of its default, in bytes."""
        if self.default_bytes is not None:
            return self.default_bytes
        assert self.default_elements is not None
        elements = max(self.default_elements, self.elements_per_worker * workers)
        return elements * element_bytes, elements * element_bytes


@dataclass(frozen=True, slots=True)
class Exported:
    """A plan under a target's rules.

    Attributes
    ----------
    plan_ns : int or None
        What an iteration takes; None if the target cannot be told the plan.
    default_ns : int
        What it takes by the target's default.
    reason : str
        Why it cannot be told; empty if it can.
    """

    plan_ns: int | None
    default_ns: int
    reason: str = ""


_DDP = Target(
    name="ddp",
    title="DistributedDataParallel",
    version="torch 2.13",
    order="recorded",
    buckets="any",
    default_bytes=DDP_LIMITS,
    settings=(
        "NCCL_ALGO=Ring",
        "DistributedDataParallel(model, bucket_cap_mb_list=…), the list as exported",
    ),
    rules=(
        Rule("barrier", "backward ends when all have arrived", "c10d/reducer.hpp:289"),
        Rule("pieces", "whole parameters", "c10d/reducer.hpp:607"),
        Rule("order", "as ready in the first step on rank 0", "c10d/reducer.hpp:137,209"),
        Rule("buckets", "any consecutive ones", "nn/parallel/distributed.py:146"),
        Rule("leaves", "when complete, after all before it", "c10d/reducer.hpp:232,285"),
        Rule("default", "first 1 MiB, others 25 MiB", "c10d/reducer.hpp:30-31"),
        Rule("algorithms", "the library's all-reduce: ring", "c10d/reducer.hpp:538"),
    ),
)

_HOROVOD = Target(
    name="horovod",
    title="Horovod",
    version="0.28.1",
    order="ready",
    buckets="any",
    default_bytes=(128 * 2**20, 128 * 2**20),
    cycle_ns=10**6,
    settings=("NCCL_ALGO=Ring", "HOROVOD_DISABLE_GROUP_FUSION=1"),
    rules=(
        Rule("barrier", "the optimiser's step waits for all", "torch/optimizer.py:255,324"),
        Rule("pieces", "whole parameters", "torch/optimizer.py:212"),
        Rule("order", "as ready on all ranks", "torch/optimizer.py:238-249"),
        Rule("buckets", "any groups", "torch/optimizer.py:88,148-165"),
        Rule("leaves", "in the next cycle after it is complete", "common/operations.cc:751-761"),
        Rule("default", "what a cycle finds, up to 128 MiB", "common/operations.cc:519,527"),
        Rule("algorithms", "the library's all-reduce: ring", "common/ops/nccl_operations.cc:257"),
    ),
)

_DEEPSPEED = Target(
    name="deepspeed",
    title="DeepSpeed, stage 2",
    version="0.19.5",
    order="recorded",
    buckets="fitting",
    default_bytes=None,
    default_elements=500_000_000,
    leaves_late=True,
    settings=("NCCL_ALGO=Ring",),
    rules=(
        Rule("barrier", "the last bucket is waited for", "zero/stage_1_and_2.py:908-910"),
        Rule("pieces", "whole parameters", "zero/stage_1_and_2.py:1177-1203"),
        Rule("order", "as ready", "zero/stage_1_and_2.py:1177"),
        Rule("buckets", "one size, never above", "zero/stage_1_and_2.py:1177"),
        Rule("leaves", "when the next gradient is ready", "zero/stage_1_and_2.py:1177-1179"),
        Rule("overlap", "computation waits for the one before", "zero/stage_1_and_2.py:1337"),
        Rule("default", "500,000,000 elements; overlap_comm is credited", "zero/config.py:113,385"),
        Rule("not counted", "the all-gather behind the step", "zero/stage_1_and_2.py:2370"),
        Rule("algorithms", "the library's all-reduce: ring", "zero/stage_1_and_2.py:1416"),
    ),
)

_MEGATRON = Target(
    name="megatron",
    title="Megatron Core",
    version="0.19.0",
    order="reversed",
    buckets="filled",
    default_bytes=None,
    default_elements=40_000_000,
    elements_per_worker=1_000_000,
    settings=("NCCL_ALGO=Ring", "--overlap-grad-reduce"),
    rules=(
        Rule("barrier", "gradients are finished before the step", "param_and_grad_buffer.py:781"),
        Rule("pieces", "whole parameters", "param_and_grad_buffer.py:973-983"),
        Rule("order", "the model's, reversed", "param_and_grad_buffer.py:973"),
        Rule("buckets", "one size, reached", "param_and_grad_buffer.py:979"),
        Rule("leaves", "when complete", "param_and_grad_buffer.py:857-878"),
        Rule(
            "default",
            "40,000,000 elements, 1,000,000 a worker if more; overlap is credited",
            "distributed_data_parallel.py:69",
        ),
        Rule("algorithms", "the library's all-reduce: ring", "param_and_grad_buffer.py:725"),
    ),
)

FSDP2 = Target(
    name="fsdp2",
    title="FSDP2",
    version="torch 2.13",
    order="ready",
    buckets="any",
    default_bytes=None,
    settings=("NCCL_ALGO=Ring", "planner.runtime.fsdp2.as_fsdp2, or fully_shard as exported"),
    rules=(
        Rule("barrier", "gradients are scattered before the step", "_fsdp_state.py:395-432"),
        Rule("pieces", "whole modules", "_fully_shard.py:110-135"),
        Rule("order", "scattered as ready, gathered as used", "_fsdp_param_group.py:540,588"),
        Rule("buckets", "modules in one call of fully_shard", "_fully_shard.py:133"),
        Rule("leaves", "gathers all at once, if unsharded ahead", "_fsdp_param_group.py:372"),
        Rule("default", "every module, or all in one: the faster", "_fully_shard.py:110"),
        Rule("credited", "reshard_after_forward=False", "_fully_shard.py:246-260"),
        Rule("algorithms", "the library's collectives: ring", "_fsdp_param_group.py:407"),
    ),
    sharded=True,
)
"""The target that shards parameters. Problem `fsdp` plans whole iterations for it, `ibatch` its
pulls by themselves, by these rules."""

TARGETS: Mapping[str, Target] = MappingProxyType(
    {target.name: target for target in (_DDP, _HOROVOD, _DEEPSPEED, _MEGATRON)}
)
"""Targets that sum up gradients, by the name requests use."""

EVERY: Mapping[str, Target] = MappingProxyType({**TARGETS, FSDP2.name: FSDP2})
"""All targets."""

TARGET_NAMES = (*EVERY, PLANNER)
"""Every name that can be asked for."""


def target_of(name: str, path: str = "target") -> Target | None:
    """Return a target by its name; None for planner's own runtime, which has no rules.

    Raises
    ------
    InvalidInputError
        If there is none of that name; the path is the field.
    """
    if name == PLANNER:
        return None
    return EVERY[known_method(name, TARGET_NAMES, path)]


def check_summing(target: object) -> None:
    """Check a target of plans that sum up gradients; None is one.

    Raises
    ------
    InvalidInputError
        If it is no target, or shards parameters; the path is ``target``.
    """
    if target is None:
        return
    if not isinstance(target, Target):
        raise InvalidInputError("target", f"expected a Target, got {shown(target)}")
    if target.sharded:
        raise InvalidInputError(
            "target",
            f"{target.title} shards parameters, which problem fsdp plans: send it forward_ns, "
            "backward_ns and parameter_bytes of the layers, and meshes, or run "
            f"planner plan PROFILE --cluster CLUSTER --for {target.name}",
        )
