"""How long published training steps take at larger scales, predicted from the smallest of each.

    python benchmarks/blind.py [--quick]

The rows are others' measurements (`data/blind`: sources, licences, by which rules they were chosen,
what is assumed of them); how steps are predicted says `blind_model`, why they are missed
`blind_reasons`. Nothing of a row is used but its scale and its batch, unless it is the smallest of
its model and system. `first` are the errors without the fixed share, which was put in after a look
at the sources that are not held out. Beside them stand perfect linear scaling, and an affine cost
by data sheet, along one ring, beside no computation: as such, and with the same fixed share.
"""

import argparse
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from statistics import fmean, median

from blind_model import FIXED, affine_ns, computation_of, linear_ns, scaled_ns, step_ns
from blind_reasons import MISS, REASONS, reason_of
from blind_rows import SOURCES, Group, Row, read_source
from tables import rows_below

QUICK = ("llm-foundry",)
OTHERS = ("first", "linear", "affine", "shared")
"""Predictions beside the one that counts, as `LABELS` name them."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A row and what was predicted of it, in ns."""

    group: Group
    row: Row
    predicted_ns: int
    first_ns: int
    linear_ns: int
    affine_ns: int
    shared_ns: int
    reason: str = ""

    def error(self, name: str = "predicted") -> float:
        """Return by which share a prediction is too long; below 0 if it is too short."""
        return float(Fraction(getattr(self, f"{name}_ns"), self.row.step_ns) - 1)

    @property
    def constant(self) -> bool:
        """Whether accelerators have as many samples as at the smallest scale."""
        return self.row.local == self.group.base.local


def predictions(group: Group) -> list[Predicted]:
    """Return the predictions of all larger scales of a group."""
    computation = computation_of(group)
    known = [
        Predicted(
            group,
            row,
            step_ns(group, row, scaled_ns(group, row, computation)),
            step_ns(group, row, scaled_ns(group, row, computation, Fraction(0))),
            linear_ns(group, row),
            affine_ns(group, row),
            affine_ns(group, row, FIXED),
        )
        for row in group.rows[1:]
    ]
    errors = {one.row.accelerators: one.error() for one in known}
    return [
        replace(one, reason=reason_of(group, one.row, errors, one.error("shared"))) for one in known
    ]


def mean_of(known: Iterable[Predicted], name: str = "predicted") -> float:
    """Return the mean absolute error."""
    return fmean(abs(one.error(name)) for one in known)


def summary(known: Sequence[Predicted]) -> tuple[str, ...]:
    """Return the cells that say how good predictions are."""
    near = sum(abs(one.error()) <= MISS for one in known)
    return (
        str(len(known)),
        f"{mean_of(known):.1%}",
        f"{median(abs(one.error()) for one in known):.1%}",
        f"{near} of {len(known)}",
        *(f"{mean_of(known, name):.1%}" for name in OTHERS),
    )


LABELS = ("first", "linear", "affine", "affine, share")
SUMMARY = ("rows", "mean error", "median", "within 10 %", *LABELS)


def main() -> None:
    """Print how far predictions are off, by source, by batch, by reason, and row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--quick", action="store_true", help=f"only {' and '.join(QUICK)}")
    sources = [read_source(name) for name in (QUICK if parser.parse_args().quick else SOURCES)]
    held_out = {source.name: source.held_out for source in sources}
    groups = [group for source in sources for group in source.groups]
    known = [one for group in groups for one in predictions(group)]
    print("## In all\n")
    kept = {"held out": True, "others": False}
    in_all = {
        name: [k for k in known if held_out[k.group.source] is so] for name, so in kept.items()
    }
    _summaries("sources", {**in_all, "all": known})
    print("## By source\n")
    by_source = {name: [k for k in known if k.group.source == name] for name in held_out}
    rows_below(
        ("source", "held out", *SUMMARY),
        [
            (name, "yes" if held_out[name] else "no", *summary(some))
            for name, some in by_source.items()
        ],
    )
    print("## By the samples of an accelerator\n")
    kinds = {"constant (weak scaling)": True, "changed": False}
    by_batch = {name: [k for k in known if k.constant == is_so] for name, is_so in kinds.items()}
    _summaries("samples", by_batch)
    _from_hosts(groups)
    print("## Misses by reason\n")
    rows_below(
        ("reason", "misses", "mean error", "meaning"),
        [
            (reason, str(len(some)), f"{mean_of(some):.1%}", meaning)
            for reason, meaning in REASONS.items()
            if (some := [one for one in known if one.reason == reason])
        ],
    )
    print("## Every row\n")
    rows_below(ROW, map(_cells, known))


def _summaries(what: str, known: Mapping[str, Sequence[Predicted]]) -> None:
    """Print how good predictions are, by what they are of."""
    rows = [(name, *summary(some)) for name, some in known.items() if some]
    rows_below((what, *SUMMARY), rows)


def _from_hosts(groups: Iterable[Group]) -> None:
    """Print the errors of rows that began at one accelerator, predicted from a whole host."""
    later = [
        replace(group, rows=group.rows[1:])
        for group in groups
        if group.base.accelerators == 1 and len(group.rows) > 2
    ]
    if not later:
        return
    print("## Where the smallest is one accelerator, from one host\n")
    beyond = [one for group in later for one in predictions(group)]
    among = {(one.group.source, one.group.system, one.group.model) for one in beyond}
    assert len(among) == len(later)
    rows_below(SUMMARY, [summary(beyond)])


ROW = (
    "source",
    "model",
    "system",
    "accelerators",
    "batch",
    "from",
    "measured",
    "predicted",
    "error",
    *LABELS,
    "reason",
)


def _cells(one: Predicted) -> tuple[str, ...]:
    group, row = one.group, one.row
    return (
        group.source,
        group.model,
        group.system,
        str(row.accelerators),
        str(row.batch),
        str(group.base.accelerators),
        f"{row.step_ns / 10**6:.1f} ms",
        f"{one.predicted_ns / 10**6:.1f} ms",
        *(f"{one.error(name):+.1%}" for name in ("predicted", *OTHERS)),
        one.reason,
    )


if __name__ == "__main__":
    main()
