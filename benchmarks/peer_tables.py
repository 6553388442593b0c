"""The tables of `iteration_peers`: one row a case, and one a method over all of them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from peer_cases import BASELINE, PeerCase, Ratios, standings

from planner.families.iteration import JOINT
from planner.model.units import format_ns, format_share, printable

_NONE = "–"

_LEGEND = (
    "Numbers under the methods: how many times as fast as with DDP an iteration is. Above bound: "
    "how much longer it is than any plan must be under the joint plan's op order. Computation ×: "
    "what the profiles' computation times were multiplied by. Methods that name no algorithm are "
    "credited with the best one that any library has (--json says which), even if their own has "
    "only rings: planner plan --for gives a target what it has."
)


def report(cases: Sequence[PeerCase], scales: Sequence[Fraction], methods: Sequence[str]) -> str:
    """Return all tables, of every case too.

    Parameters
    ----------
    cases : sequence of PeerCase
        All cases, of all scales.
    scales : sequence of Fraction
        Scales of computation, each with its tables.
    methods : sequence of str
        Methods to show.
    """
    return _tables(cases, scales, methods, (case_table, summary_table))


def summary(cases: Sequence[PeerCase], scales: Sequence[Fraction], methods: Sequence[str]) -> str:
    """Return what `report` says over all cases, without a row for each."""
    return _tables(cases, scales, methods, (summary_table,))


def _tables(
    cases: Sequence[PeerCase],
    scales: Sequence[Fraction],
    methods: Sequence[str],
    tables: Sequence[Callable[[Sequence[PeerCase], Sequence[str]], str]],
) -> str:
    blocks = []
    for scale in scales:
        own = [case for case in cases if case.computation == scale]
        blocks.append(f"## computation × {scale_text(scale)}")
        blocks += [table(own, methods) for table in tables]
    credited = "\n".join((*_assumed(cases), *_credited(cases)))
    return "\n\n".join([*blocks, _LEGEND, credited, *_footnotes(cases, methods)])


def case_table(cases: Iterable[PeerCase], methods: Sequence[str]) -> str:
    """Return a row a case: the joint plan, DDP's time, and what each method gains over it."""
    others = [method for method in methods if method != BASELINE]
    header = ["profile", "cluster", "iteration", "synchronised by", "above bound", BASELINE]
    rows = []
    for case in cases:
        result = case.result(JOINT)
        plan = None if result is None else result.plan
        rows.append(
            [
                case.profile,
                case.cluster,
                _time(case.time_ns(JOINT)),
                _NONE if plan is None else f"{' + '.join(plan.algorithms)}, {plan.mode}",
                above_text(case.over_bound(JOINT)),
                _time(case.time_ns(BASELINE)),
                *(times_text(case.speedup(method)) for method in others),
            ]
        )
    return markdown([*header, *others], rows, 2)


def summary_table(cases: Sequence[PeerCase], methods: Sequence[str]) -> str:
    """Return a row a method: its gain and its distance to the bound, over all cases."""
    header = ["method", "cases", "speed-up over ddp", "from", "to", "above bound", "worst"]
    rows = []
    for standing in standings(cases, methods):
        gain, over = standing.speedup, standing.over_bound
        rows.append(
            [
                standing.method,
                str(standing.cases),
                *(picked(gain, times_text, pick) for pick in ("mean", "least", "most")),
                *(picked(over, above_text, pick) for pick in ("mean", "most")),
            ]
        )
    return markdown(header, rows)


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], named: int = 1) -> str:
    """Return a table in Markdown, its columns aligned: the first `named` ones to the left."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    rules = [
        "-" * width if place < named else "-" * (width - 1) + ":"
        for place, width in enumerate(widths)
    ]
    lines = []
    for cells in (header, rules, *rows):
        aligned = [
            cell.ljust(width) if place < named else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(aligned)} |")
    return "\n".join(lines)


def scale_text(scale: Fraction) -> str:
    """Return a scale of computation as a person reads it."""
    return f"{float(scale):.4g}"


def _footnotes(cases: Sequence[PeerCase], methods: Sequence[str]) -> list[str]:
    """Return why methods have no plan, and in how many cases."""
    counts: dict[tuple[str, str], list[PeerCase]] = {}
    for case in cases:
        for method in methods:
            reason = case.reason(method)
            if reason:
                counts.setdefault((method, reason), []).append(case)
    together: dict[tuple[str, str], list[str]] = {}
    for (method, reason), own in counts.items():
        together.setdefault((reason, _places(own, len(cases))), []).append(method)
    notes = [
        f"{_NONE} {', '.join(names)}: {reason} ({places})"
        for (reason, places), names in together.items()
    ]
    return ["\n".join(notes)] if notes else []


def _places(cases: Sequence[PeerCase], of: int) -> str:
    clusters = dict.fromkeys(case.cluster for case in cases)
    return f"{len(cases)} of {of} cases: {printable(', '.join(clusters))}"


def picked(spread: Ratios | None, shown: Callable[[float | None], str], pick: str) -> str:
    """Return one figure of a spread as text, if there is any."""
    return shown(None if spread is None else getattr(spread, pick))


def _assumed(cases: Sequence[PeerCase]) -> Iterator[str]:
    """Yield where start-ups are no measurement, if anywhere."""
    some = [case for case in cases if case.assumed_startups]
    if some:
        yield f"start-ups are assumed, not measured ({_places(some, len(cases))})"


def _credited(cases: Sequence[PeerCase]) -> Iterator[str]:
    """Yield by which algorithms DDP's plans travel."""
    own: dict[str, list[PeerCase]] = {}
    for case in cases:
        result = case.result(BASELINE)
        if result is not None and result.plan is not None:
            own.setdefault(" + ".join(result.plan.algorithms), []).append(case)
    for name, some in own.items():
        yield f"{BASELINE} by {name} ({_places(some, len(cases))})"


def _time(value: int | None) -> str:
    return _NONE if value is None else format_ns(value)


def times_text(ratio: float | None) -> str:
    """Return a speed-up as a person reads it."""
    return _NONE if ratio is None else f"{ratio:.2f}" if ratio >= 0.1 else f"{ratio:.2g}"


def above_text(ratio: float | None) -> str:
    """Return the distance of a ratio above 1."""
    return _NONE if ratio is None else format_share(ratio - 1)
