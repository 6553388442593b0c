"""What ``planner compare`` prints: the table of methods, and the lines above and below it."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import UNSET

from planner.cli.compare_options import ASSUMED
from planner.jsonio.answer_base import AnswerBase
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.fsdp import FsdpAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.model.profiles import Profile
from planner.model.units import format_bytes, format_ns, format_share, printable
from planner.solving.compare import Case, Column, Comparison
from planner.solving.family import Family
from planner.solving.result import Result
from planner.solving.targets import EVERY, FSDP2
from planner.solving.views import epoch_text
from planner.view.table import format_table
from planner.view.wording import (
    REGRET_COLUMNS,
    advice_text,
    applied,
    by_reason,
    prospect_text,
    regret_cells,
    standing,
    target_text,
)

AnyFamily: TypeAlias = Family[Any, Any, Any]

_UNITS: Mapping[str, Callable[[Any], str]] = {
    "ns": format_ns,
    "share": lambda share: format_share(float(share)),
    "epoch": epoch_text,
}
"""How `planner.solving.compare.Column.unit` writes numbers."""
LONG = 120
"""Warnings with more characters are printed with their first reason only."""


def _above(result: Result[Any, Any], bound_ns: int | None) -> str:
    if result.plan is None:
        return "–"
    if bound_ns and result.objective_ns is not None and result.objective_ns >= bound_ns:
        return format_share(result.objective_ns / bound_ns - 1)
    return format_share(result.gap)


_ENDS: Mapping[str, Callable[[Result[Any, Any], int | None], str]] = {
    "above bound": _above,
    "status": lambda result, _: result.status,
    "run time": lambda result, _: format_ns(round(result.runtime_s * 1e9)),
}
"""Last columns that many families share."""


def table(
    family: AnyFamily, problem: Any, comparison: Comparison[Any, Any]
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the header and the rows of a comparison."""
    bounds = {row.method: row.lower_bound_ns for row in comparison.rows}
    bound = bounds.get(family.bounding)

    planned = [row for row in comparison.rows if row.plan is not None]  # these rows come first
    without = ["–"] * (len(comparison.rows) - len(planned))

    def cells(column: Column) -> list[str]:
        values: list[Any] = [
            row.objective_ns
            if column.value is None
            else column.value(problem, row.plan, row.evaluation)
            for row in planned
        ]
        if column.unit == "bytes":
            shown = [format_bytes(size, max(values)) for size in values]
        else:
            known = _UNITS.get(column.unit, lambda value: format(value, column.unit))
            shown = list(map(known, values))
        return shown + without

    columns = [
        [row.method for row in comparison.rows],
        *map(cells, family.columns),
        *([_ENDS[end](row, bound) for row in comparison.rows] for end in family.ends),
    ]
    header = (family.heading, *(column.title for column in family.columns), *family.ends)
    return header, list(zip(*columns, strict=True))


def lines(
    family: AnyFamily,
    case: Case[Any],
    comparison: Comparison[Any, Any],
    best: AnswerBase | None,
    file: str | None,
) -> Iterator[str]:
    """Yield the lines of a comparison above the drawing of its best plan.

    `best` is the answer that is written, into `file` if given.
    """
    caveats = (*(case.profile.caveats if case.profile else ()), *case.warnings)
    if best is not None and best.warnings is not UNSET:
        caveats = best.warnings
    yield from warning_lines(sorted(caveats, key=lambda text: text != ASSUMED))
    first, *others = map(printable, case.lines or family.about(case))
    yield first
    if case.profile is not None and case.place is not None:
        yield provenance(case.profile)
        yield f"network: {printable(case.place.about)}"
    yield from others
    yield ""
    yield format_table(*table(family, case.problem, comparison))
    yield from reasons(comparison.rows)
    for reason, names in by_reason(comparison.left_out).items():
        yield printable(f"left out: {', '.join(names)} ({reason})")
    yield from map(printable, family.notes(case, comparison))
    if case.sentence is not None:
        yield ""
        yield printable(case.sentence(comparison.rows[0].plan if comparison.rows else None))
    remarks = [*lines_below(best, file), *_verdict(best, comparison, file)]
    if remarks and remarks[0]:
        yield ""
    yield from remarks


def _verdict(
    answer: AnswerBase | None, comparison: Comparison[Any, Any], file: str | None
) -> Iterator[str]:
    """Yield lines on whether a plan for FSDP2 beats its default, and if so, how to set it."""
    known = {row.method: row.objective_ns for row in comparison.rows if row.objective_ns}
    if not isinstance(answer, FsdpAnswer) or not known or answer.method == FSDP2.name:
        return
    plan_ns, default_ns = min(known.values()), known.get(FSDP2.name)
    if default_ns is not None:  # else the default does not fit the memory
        text, keep = standing(f"{FSDP2.title}, a unit a layer", default_ns, plan_ns)
        yield text
        if keep:
            return
    yield from applied(FSDP2, file)


def reasons(rows: Iterable[Result[Any, Any]]) -> Iterator[str]:
    """Yield the reasons why methods have no plan, each once."""
    known = [(row.method, row.infeasibility.reason) for row in rows if row.infeasibility]
    for reason, names in by_reason(known).items():
        yield printable(f"{', '.join(names)}: {reason}")


def provenance(profile: Profile) -> str:
    """Return a line about the origin of a profile."""
    origin = profile.provenance
    about = ["profile", origin.kind, origin.date, origin.processor]
    samples = f", batch size {profile.batch_size}" if profile.batch_size else ""
    return printable(" ".join(filter(None, about)) + samples)


def warning_lines(warnings: Sequence[str]) -> list[str]:
    """Return warnings as lines; a long one has its first reason and the number of the others."""
    lines = []
    for text in map(printable, warnings):
        first, *more = text.split("; ") if len(text) > LONG else (text,)
        others = "reason" if len(more) == 1 else "reasons"
        rest = f"; {len(more)} more {others}: see `warnings` in the file" if more else ""
        lines.append(f"warning: {first}{rest}")
    return lines


def kept(answer: object) -> str:
    """Return the advice of an answer if it says to keep DDP, else an empty text."""
    advice = getattr(answer, "advice", UNSET)
    return advice_text(advice) if advice is not UNSET and advice.keep_ddp else ""


def lines_below(answer: object, file: str | None) -> Iterator[str]:
    """Yield the lines of an answer: the advice, then the table of regrets, if it has them.

    The command that applies the plan names the plan's `file`.
    """
    if not isinstance(answer, CaramelAnswer | IbatchAnswer | IterationAnswer):
        return
    if not isinstance(answer, IbatchAnswer) and answer.advice is not UNSET:
        yield advice_text(answer.advice)
    text, keep = target_text(answer)
    if text and answer.target is not UNSET:  # what a plan for a target gains, how to apply it
        yield text
        if not keep:
            yield from applied(EVERY[answer.target.name], file)
    if answer.prospect is not UNSET:
        yield prospect_text(answer.prospect)
    if answer.regret is not UNSET and answer.regret:
        yield ""
        yield format_table(REGRET_COLUMNS, list(map(regret_cells, answer.regret)))
