"""The rules of DDP and FSDP2 stand where they are said to stand, in the torch that is installed."""

import inspect
import re
import tomllib
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.nn.parallel import distributed as module

from planner.solving.bucketing import DDP_LIMITS

PATH = Path(__file__).parents[2] / "docs" / "target_rules.toml"
RULES = tomllib.loads(PATH.read_text(encoding="utf-8"))
TORCH = Path(torch.__file__).parent
FOLDERS = {
    "c10d": TORCH / "include" / "torch" / "csrc" / "distributed",
    "nn": TORCH,
    "": TORCH / "distributed" / "fsdp" / "_fully_shard",
}
THERE = {
    ("ddp", "barrier"): "finalize_backward",
    ("ddp", "pieces"): "compute_bucket_assignment_by_size",
    ("ddp", "order"): "rebuild_buckets|push_rebuilt_params",
    ("ddp", "leaves"): "next_bucket_|mark_bucket_ready",
    ("ddp", "default"): "kDefaultFirstBucketBytes|kDefaultBucketBytesCap",
    ("ddp", "algorithms"): "all_reduce_bucket",
    ("ddp", "buckets"): "has_custom_per_bucket_caps",
    ("fsdp2", "barrier"): "wait_event|post_backward_final_callback",
    ("fsdp2", "pieces"): "module",
    ("fsdp2", "order"): "def pre_forward|def post_backward",
    ("fsdp2", "buckets"): "group",
    ("fsdp2", "leaves"): "def unshard",
    ("fsdp2", "default"): "module",
    ("fsdp2", "credited"): "reshard_after_forward",
    ("fsdp2", "algorithms"): "foreach_all_gather",
}


def lines(source: str) -> list[str]:
    """Return the lines a source names."""
    name, places = source.split(":")
    folder = FOLDERS[name.split("/")[0] if "/" in name else ""]
    text = (folder / name).read_text().splitlines()
    spans = (place.partition("-") for place in places.split(","))
    return [line for first, _, last in spans for line in text[int(first) - 1 : int(last or first)]]


@pytest.mark.skipif(
    not torch.__version__.startswith("2.13"), reason="rules were read in torch 2.13"
)
@pytest.mark.parametrize(("target", "about"), THERE)
def test_rules_stand_where_they_are_said_to(target: str, about: str) -> None:
    (source,) = (source for topic, _, source in RULES[target] if topic == about)
    assert any(re.search(THERE[target, about], line) for line in lines(source)), source


def test_every_rule_is_looked_up() -> None:
    rules = {(name, about) for name in ("ddp", "fsdp2") for about, _, _ in RULES[name]}
    assert rules == set(THERE)


def test_ddp_s_defaults_and_options() -> None:
    first, others = DDP_LIMITS
    assert first == getattr(distributed, "_DEFAULT_FIRST_BUCKET_BYTES")  # noqa: B009 - not exported
    assert others == module._DEFAULT_BUCKET_CAP_MB * 2**20
    assert "bucket_cap_mb_list" in inspect.signature(DistributedDataParallel).parameters
