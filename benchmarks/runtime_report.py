"""Predicted against measured: the statistics and tables of the benchmarks of executed steps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from statistics import median

from runtime_jobs import Times
from tables import as_text

from planner.model.units import format_bytes, format_ns
from planner.runtime.executors.trace import Event
from planner.runtime.measuring.measured import off_by, timeline_of
from planner.solving.timeline import Timeline
from planner.view.chart import Chart


@dataclass(frozen=True, slots=True)
class Measured:
    """What one variant was predicted to take, and took.

    Parameters
    ----------
    name : str
        Its name.
    predicted_ns : int or None
        The prediction.
    rounds : tuple of tuple of int
        Measured times of each round, in ns.
    """

    name: str
    predicted_ns: int | None
    rounds: tuple[tuple[int, ...], ...]

    @property
    def medians_ns(self) -> tuple[float, ...]:
        """The median of each round."""
        return tuple(map(median, self.rounds))

    @property
    def median_ns(self) -> int:
        """The median of the rounds."""
        return round(median(self.medians_ns))

    @property
    def error(self) -> float | None:
        """See `planner.runtime.measuring.measured.off_by`; None without a prediction."""
        return None if self.predicted_ns is None else off_by(self.predicted_ns, self.median_ns)


@dataclass(frozen=True, slots=True)
class Ranking:
    """How well predictions rank variants.

    Parameters
    ----------
    right, wrong : int
        Pairs of variants ranked as measured, and the other way round.
    tied : int
        Pairs predicted to be equal that are not.
    within_noise : int
        Pairs whose measured order changes from round to round: they count neither way.
    mistakes : tuple of str
        The pairs ranked wrongly.
    """

    right: int
    wrong: int
    tied: int
    within_noise: int
    mistakes: tuple[str, ...]

    @property
    def tau(self) -> float | None:
        """Kendall's rank correlation over the pairs that differ in every round."""
        pairs = self.right + self.wrong + self.tied
        return (self.right - self.wrong) / pairs if pairs else None


def as_measured(name: str, rows: Sequence[Sequence[int]]) -> str:
    """Return what transfers of all sizes took, as a line."""
    return f"{name} as measured: " + ", ".join(
        f"{format_bytes(size)} {time / 1e6:.3g} ms" for size, time in rows
    )


def measured(name: str, predicted_ns: int | None, times: Times, value: str = "step_ns") -> Measured:
    """Return one kind of time of a variant, beside its prediction.

    Parameters
    ----------
    name : str
        Of the variant.
    predicted_ns : int or None
        The prediction.
    times : dict
        What `take_turns` returned.
    value : str
        A field of `planner.runtime.measuring.measured.StepTime`.
    """
    rounds = tuple(tuple(getattr(step, value) for step in turn) for turn in times[name])
    return Measured(name, predicted_ns, rounds)


def ranking(variants: Sequence[Measured]) -> Ranking:
    """Compare the predicted and the measured order of all pairs of variants of one setting."""
    right = wrong = tied = noise = 0
    mistakes = []
    known = [variant for variant in variants if variant.predicted_ns is not None]
    for one, other in combinations(known, 2):
        signs = {(a > b) - (a < b) for a, b in zip(one.medians_ns, other.medians_ns, strict=True)}
        if len(signs) > 1 or signs == {0}:
            noise += 1
            continue
        assert one.predicted_ns is not None
        assert other.predicted_ns is not None
        predicted = one.predicted_ns - other.predicted_ns
        if predicted == 0:
            tied += 1
        elif (predicted > 0) == (signs == {1}):
            right += 1
        else:
            wrong += 1
            loss = abs(one.median_ns - other.median_ns) / min(one.median_ns, other.median_ns)
            mistakes.append(f"{one.name} against {other.name} ({loss:.1%} apart)")
    return Ranking(right, wrong, tied, noise, tuple(mistakes))


def ratio(one: Measured, other: Measured) -> tuple[float, float, float]:
    """Return how many times `one` takes of `other`, round by round: median, lowest, highest."""
    each = sorted(a / b for a, b in zip(one.medians_ns, other.medians_ns, strict=True))
    return median(each), each[0], each[-1]


def table(variants: Sequence[Measured], reference: str, first: str = "plan") -> str:
    """Return the table of one setting; speed-ups are over the variant of name `reference`."""
    base = next(variant for variant in variants if variant.name == reference)
    columns = (first, "predicted", "measured", "rounds", "off by", f"against {reference}", "rounds")
    rows = []
    for one in variants:
        low, high = min(one.medians_ns), max(one.medians_ns)
        middle, least, most = ratio(base, one)
        predicted = "–" if one.predicted_ns is None else format_ns(one.predicted_ns)
        error = "–" if one.error is None else f"{one.error:+.1%}"
        rounds = f"{format_ns(round(low))} – {format_ns(round(high))}"
        ratios = (f"{middle:.2f}", f"{least:.2f} – {most:.2f}")
        rows.append((one.name, predicted, format_ns(one.median_ns), rounds, error, *ratios))
    return as_text(columns, rows)


def against(
    settings: Sequence[tuple[str, Sequence[Measured]]], name: str, others: Sequence[str]
) -> str:
    """Return the table of how many times as long as variant `name` the others take."""
    rows = []
    for setting, variants in settings:
        found = {variant.name: variant for variant in variants}
        cells = []
        for other in others:
            middle, low, high = ratio(found[other], found[name])
            cells.append(f"{middle:.2f}× ({low:.2f} – {high:.2f})")
        rows.append((setting, *cells))
    return as_text(("setting", *others), rows)


def summary(settings: Sequence[tuple[str, Sequence[Measured]]]) -> str:
    """Return how good all predictions were: errors, and rank correlations within each setting."""
    errors = [
        abs(variant.error)
        for _, variants in settings
        for variant in variants
        if variant.error is not None
    ]
    worst = f"{max(errors):.1%} at worst"
    about = f"{len(errors)} predictions, off by {median(errors):.1%} (median), {worst}."
    header = ("setting", "pairs that differ in every round", "ranked rightly", "Kendall's τ")
    rows = []
    for name, variants in settings:
        found = ranking(variants)
        clear = found.right + found.wrong + found.tied
        tau = "–" if found.tau is None else f"{found.tau:.2f}"
        mistakes = "; ".join(found.mistakes) or "–"
        rows.append((name, f"{clear} of {clear + found.within_noise}", found.right, tau, mistakes))
    return f"{about}\n\n{as_text((*header, 'wrongly'), rows)}"


def side_by_side(about: str, runs: Sequence[tuple[str, Sequence[Event]]]) -> Chart[Timeline]:
    """Return the second last step of one rank under several variants as one chart."""
    resources: list[str] = []
    intervals, took = [], []
    for name, events in runs:
        begins = {event.step: event.start_ns for event in events if event.kind == "backward"}
        step = max(begins) - 1
        took.append(f"{format_ns(begins[step + 1] - begins[step])} under {name}")
        timeline = timeline_of([events], step)
        new = {resource: resource.replace("rank 0", name) for resource in timeline.resources}
        resources += new.values()
        intervals += [
            replace(interval, resource=new[interval.resource]) for interval in timeline.intervals
        ]
    title = f"{about}: a step took {' and '.join(took)}"
    return Chart(title, Timeline(tuple(resources), tuple(intervals)), None)
