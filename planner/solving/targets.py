"""Targets: systems that plans are exported to, and the constraints that each puts on a plan.

A plan made for a target obeys all of its rules, so it costs there what was predicted.
`docs/target_rules.toml` has the rules, with the lines of the target's code that they were read
from. All four targets that sum gradients send whole parameters, one transfer after the other, and
begin the next forward pass when all have arrived. They differ in the order in which parameters fill
buckets, in when a bucket closes, and in when it leaves.

Sizes that are settings count elements where the target counts elements; ``default_*`` are the
target's own values.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from planner.model.errors import InvalidInputError
from planner.model.validation import one_of, shown
from planner.solving.bucketing import DDP_LIMITS

Order = Literal["recorded", "ready", "reversed"]
"""Order in which parameters fill buckets.

"recorded": as worker 0's gradients became ready. "ready": as the last worker's become ready.
"reversed": the reverse of the model's order.
"""

Buckets = Literal["any", "filled", "fitting"]
"""Buckets that a target can be given.

"any": any consecutive parameters. "filled": one size; a bucket closes once it has reached the size.
"fitting": one size that no bucket exceeds, except a single larger parameter.
"""

PLANNER = "planner"
"""The target without rules: planner's own runtime."""


@dataclass(frozen=True, slots=True)
class Target:
    """A system that plans can be exported to, and its rules."""

    name: str  # in requests
    title: str  # full name
    version: str  # from which the rules were read
    order: Order
    buckets: Buckets
    default_bytes: tuple[int, int] | None  # largest first and largest other bucket by default
    default_elements: int | None = None  # largest bucket by default, where it counts elements
    elements_per_worker: int = 0  # least elements of a default bucket per worker
    # Whether a bucket leaves only when the gradient after it is ready, while computation waits for
    # the bucket before. Otherwise it leaves when its own gradients are ready.
    leaves_late: bool = False
    cycle_ns: int = 0  # period at which it polls for complete buckets; 0 if it is notified
    # What applies the exported file, here ``EXPORT.json``: lines for a shell, before the job, and
    # lines of the training script.
    commands: tuple[str, ...] = ()
    code: tuple[str, ...] = ()
    algorithms: tuple[str, ...] = ("ring",)  # collective algorithms that its library can be set to
    sharded: bool = False  # whether each worker keeps a share of all parameters

    @property
    def settings(self) -> tuple[str, ...]:
        """Further settings in addition to the buckets, one per line."""
        return self.commands + self.code

    def limits(self, workers: int, element_bytes: int) -> tuple[int, int]:
        """Return the default's largest first bucket and largest other buckets (bytes)."""
        if self.default_bytes is not None:
            return self.default_bytes
        assert self.default_elements is not None
        elements = max(self.default_elements, self.elements_per_worker * workers)
        return elements * element_bytes, elements * element_bytes


@dataclass(frozen=True, slots=True)
class Exported:
    """Iteration time of a plan under a target's rules, and of the target's default."""

    plan_ns: int | None  # None if the target cannot run the plan
    default_ns: int
    reason: str = ""  # why it cannot


_RING = "export NCCL_ALGO=Ring  # gloo has no other"

_IMPORTS = ("import json", "from pathlib import Path")
"""Imports that the code of an export needs."""

_DDP = Target(
    name="ddp",
    title="DistributedDataParallel",
    version="torch 2.13",
    order="recorded",
    buckets="any",
    default_bytes=DDP_LIMITS,
    commands=(_RING,),
    code=(
        "from torch.nn.parallel import DistributedDataParallel",
        'buckets = json.loads(Path("EXPORT.json").read_text())["bucket_cap_mb_list"]',
        "model = DistributedDataParallel(model, bucket_cap_mb_list=buckets)",
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
    commands=(_RING, "export HOROVOD_DISABLE_GROUP_FUSION=1  # on all ranks"),
    code=(
        'groups = json.loads(Path("EXPORT.json").read_text())["planner"]["groups"]',
        "parameters = dict(model.named_parameters())",
        "groups = [[parameters[name] for name in group] for group in groups]",
        "optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters(), groups=groups)",
    ),
)

_DEEPSPEED = Target(
    name="deepspeed",
    title="DeepSpeed (ZeRO)",
    version="0.19.5",
    order="recorded",
    buckets="fitting",
    default_bytes=None,
    default_elements=500_000_000,
    leaves_late=True,
    commands=(_RING,),
    code=('config |= json.loads(Path("EXPORT.json").read_text())  # of deepspeed.initialize',),
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
    commands=(
        _RING,
        'python -c \'import json; print(*json.load(open("EXPORT.json"))["arguments"])\'',
    ),
)

FSDP2 = Target(
    name="fsdp2",
    title="FSDP2",
    version="torch 2.13",
    order="ready",
    buckets="any",
    default_bytes=None,
    commands=(_RING,),
    code=(
        "# a plan of fsdp; for pulls of ibatch call fully_shard as EXPORT.json says",
        "from planner.programs import program_of",
        "from planner.runtime.fsdp2 import as_fsdp2",
        'as_fsdp2(model, program_of(Path("PLAN.json").read_bytes()), mesh)',
    ),
    sharded=True,
)
"""The target that shards parameters: `fsdp` plans iterations for it, `ibatch` only its pulls."""

TARGETS: Mapping[str, Target] = MappingProxyType(
    {target.name: target for target in (_DDP, _HOROVOD, _DEEPSPEED, _MEGATRON)}
)
"""Targets that sum gradients, by their name in requests."""

EVERY: Mapping[str, Target] = MappingProxyType({**TARGETS, FSDP2.name: FSDP2})
"""All targets."""

TARGET_NAMES = (*EVERY, PLANNER)
"""Every target name that requests accept."""


def target_of(name: str, path: str = "target") -> Target | None:
    """Return a target by its name; None for planner's own runtime, which has no rules.

    InvalidInputError, at `path`, if the name is unknown.
    """
    if name == PLANNER:
        return None
    return EVERY[one_of(name, TARGET_NAMES, path)]


def to_apply(target: Target, plan: str, file: str) -> Mapping[str, Sequence[str]]:
    """Return the lines that apply a plan made for a target: for a shell, and for Python.

    `plan` is its file and `file` that of its export, which the first line writes.
    """
    export = shlex.join(("planner", "export", target.name, plan, "-o", file))
    commands, code = (
        [line.replace("PLAN.json", plan).replace("EXPORT.json", file) for line in lines]
        for lines in (target.commands, target.code)
    )
    shell = {"in a shell": [export, *commands]}
    return {**shell, "in Python": [*_IMPORTS, *code]} if code else shell


def check_summing(target: object) -> None:
    """Raise `InvalidInputError` unless `target` is None or a target that sums gradients."""
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
