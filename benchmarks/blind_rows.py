"""The rows of `blind.py`: what others measured of training steps, as `data/blind` has it.

A file is a source: its address, licence and date, by which rule rows were chosen, what is assumed
of them. Its groups are a model on a system, their rows the steps at several numbers of
accelerators; the first is the smallest.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal

FOLDER = Path(__file__).parents[1] / "data" / "blind"
SOURCES = (
    "dlperf",
    "llm-foundry",
    "mlperf-2.1",
    "mlperf-4.0",
    "mlperf-3.0",
    "mlperf-3.1",
    "examples",
)

Rule = Literal["ddp", "horovod", "fsdp"]


@dataclass(frozen=True, slots=True)
class Row:
    """A step at one scale: accelerators, hosts, samples of the whole batch, samples a second.

    A batch is computed in `accumulated` parts, one after the other; `reshard` says whether
    parameters are given up between the forward and the backward pass, and gathered again.
    """

    accelerators: int
    hosts: int
    batch: int
    per_s: Fraction
    accumulated: int = 1
    reshard: bool = False
    path: str = ""

    @property
    def step_ns(self) -> int:
        """How long the step took."""
        return round(self.batch * 10**9 / self.per_s)

    @property
    def local(self) -> Fraction:
        """Samples of an accelerator."""
        return Fraction(self.batch, self.accelerators)


@dataclass(frozen=True, slots=True)
class Group:
    """A model on a system, by rising scale.

    `clusters` describe one host, and several; `gradient_bytes` and `parameter_bytes` are those of
    one number as it is sent; with `recomputed` the backward pass computes the forward pass again.
    """

    source: str
    model: str
    system: str
    clusters: tuple[str, str]
    rule: Rule
    gradient_bytes: int
    parameter_bytes: int
    recomputed: bool
    rows: tuple[Row, ...]

    @property
    def base(self) -> Row:
        """The smallest scale, the only one that is looked at to predict the others."""
        return self.rows[0]


@dataclass(frozen=True, slots=True)
class Source:
    """A file: where its rows come from, and whether no choice was made by looking at them."""

    name: str
    about: Mapping[str, Any]
    groups: tuple[Group, ...]

    @property
    def held_out(self) -> bool:
        """Whether nothing was changed after its errors were known."""
        return bool(self.about["held_out"])


def _row(record: Mapping[str, Any]) -> Row:
    fields = {name: record[name] for name in Row.__slots__ if name in record}
    return Row(**{**fields, "per_s": Fraction(str(record["per_s"]))})


def read_source(name: str) -> Source:
    """Read one file of rows."""
    about = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    groups = tuple(
        Group(
            name,
            record["model"],
            record["system"],
            tuple(record["clusters"]),
            record["rule"],
            record["gradient_bytes"],
            record.get("parameter_bytes", 4),
            record.get("recomputed", False),
            tuple(map(_row, record["rows"])),
        )
        for record in about.pop("groups")
    )
    return Source(name, about, groups)
