"""Makes the page of the targets' rules, from `target_rules.toml`."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

from planner.solving.targets import EVERY, Target

RULES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""For each target by its name rows of a topic, the rule, and file and line of the target's code."""

_OPENING = """# Rules of the targets

What each target does with a plan's transfers, as read from its code. Plans made [for a
target](../exports.md#plan-for-a-target) keep to its rules; sources are files and lines of the
version that is named. Those of FSDP2 are for pulls
by themselves (`ibatch`): whole iterations under FSDP2 are planned by [`fsdp`](../fsdp.md).
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_OPENING, *(line for target in EVERY.values() for line in _rows(target))])


def _rows(target: Target) -> Iterator[str]:
    yield from (f"## {target.title}, {target.version}", "")
    yield from ("| about | rule | source |", "| --- | --- | --- |")
    yield from (f"| {about} | {says} | `{source}` |" for about, says, source in RULES[target.name])
    yield from (
        "",
        "To set beside the buckets: " + "; ".join(f"`{one}`" for one in target.settings),
    )
    yield ""
