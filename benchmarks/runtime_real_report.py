"""The tables and sentences of `runtime_real`, from what was measured of all settings."""

from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import partial
from math import exp, log
from statistics import fmean, median

from runtime_real_gradients import (
    ALONE,
    BLIND,
    BY_LAYER,
    DDP,
    OURS,
    PAPER,
    PLANNED,
    STATIC,
    TUNED,
    WHOLE,
)
from runtime_real_kept import Setting, Task
from runtime_real_shards import AHEAD, EXACT, FSDP2, KEPT, ONE
from runtime_report import Measured, against, ranking, ratio, summary, table

from planner.model.units import counted
from planner.runtime.measuring.measured import off_by
from planner.solving.advice import MARGIN, WORTH, gain_to_ask

BEST = "best DDP"
BEST_OF_OTHERS = "DDP that was fastest in the other rounds"
"""By chance, the fastest of equally fast variants seems faster than it is; this one does not."""

BALANCED = 0.5, 2.0
"""Communication over computation, where there is most to gain."""

OURS_RUN = PLANNED, WHOLE, PAPER, BY_LAYER, OURS
"""What our executor follows, with contention known."""

FEWEST = 3
"""Number of models from which on one is left out in turn."""

MARGINS = tuple(Fraction(step, 20) for step in range(11))
"""Margins tried when one is left out."""

Found = Sequence[tuple[Task, Setting]]


def shown(task: Task, setting: Setting) -> str:
    """Return the table of one setting."""
    said = {None: "", True: " The answer says: keep DDP.", False: " The answer says: run the plan."}
    drift = ""
    if setting.drift is not None:
        drift = f"; afterwards the model computed for {1 + setting.drift:.2f} times as long"
    load = (
        f" Others took {setting.before:.0%} of the processors before and {setting.during:.0%} "
        f"meanwhile{drift}{'' if setting.quiet else ': more than these times bear'}."
        f"{f' This is try {setting.tries}.' if setting.tries > 1 else ''}"
    )
    about = f"{setting.about}.{said[keeps_ddp(setting)]}{load}"
    return f"### {task.title}\n\n{about}\n\n{table(setting.variants, DDP)}\n"


def summaries(found: Found) -> str:
    """Return the tables over all settings, part by part."""
    texts = []
    parts = {part: [pair for pair in found if pair[0].part == part] for part in PARTS}
    for part, title in PARTS.items():
        if not parts[part]:
            continue
        texts.append(f"### {title}\n\n{_gains(part, parts[part])}")
        rows = [(task.title, told_apart(setting)) for task, setting in parts[part]]
        told = ", ".join(title.split(", ")[1:])
        heading = f"### predicted against measured{f', {told}' if told else ''}"
        texts.append(f"{heading}\n\n{summary(rows)}\n\n{_ranked(rows)}")
    return "\n\n".join(texts)


PARTS = {
    "gradients": f"{PLANNED} against the others",
    "shards": f"{EXACT} against the others, shards",
    "waiting": f"{PLANNED} against the others, layers that wait",
}


def told_apart(setting: Setting) -> list[Measured]:
    """Return the variants with predictions of what happened, each kind of them once."""
    kinds: dict[tuple[tuple[int, ...], ...], Measured] = {}
    for variant in setting.variants:
        # One prediction leaves out what was measured, the other only repeats the profile.
        if variant.name not in (BLIND, ALONE):
            kinds.setdefault(variant.rounds, variant)
    return list(kinds.values())


def keeps_ddp(setting: Setting, margin: Fraction = MARGIN) -> bool | None:
    """Return whether an answer with these predictions says to keep DDP; None without a plan."""
    known = {variant.name: variant.predicted_ns for variant in setting.variants}
    plan_ns = known.get(PLANNED)
    ddp = [ns for name, ns in known.items() if name.startswith(DDP) and ns is not None]
    if not plan_ns or not ddp:
        return None
    share = Fraction(setting.sending_ns or 0, min(ddp))
    return Fraction(min(ddp), plan_ns) < gain_to_ask(share, margin)


def rivals_in(setting: Setting, kind: str) -> list[Measured]:
    """Return torch's own variants whose name begins so."""
    return [one for one in setting.variants if one.name.startswith(kind) and one.name != OURS]


def fastest(setting: Setting, kind: str) -> Measured:
    """Return the fastest of torch's variants of a kind."""
    return min(rivals_in(setting, kind), key=lambda variant: variant.median_ns)


def fastest_of_others(setting: Setting, kind: str) -> Measured:
    """Return, for each round, the one of torch's variants that was fastest in the others."""
    variants = rivals_in(setting, kind)

    def elsewhere(variant: Measured, number: int) -> float:
        medians = variant.medians_ns
        return median((*medians[:number], *medians[number + 1 :]) or medians)

    count = len(variants[0].rounds)
    chosen = [min(variants, key=partial(elsewhere, number=number)) for number in range(count)]
    rounds = tuple(variant.rounds[number] for number, variant in enumerate(chosen))
    return Measured(BEST_OF_OTHERS, None, rounds)


def _gains(part: str, found: Found) -> str:
    own, name, rival = (EXACT, "best FSDP2", FSDP2) if part == "shards" else (PLANNED, BEST, DDP)
    settings = [
        (
            task,
            setting,
            [
                *setting.variants,
                Measured(name, None, fastest(setting, rival).rounds),
                fastest_of_others(setting, rival),
            ],
        )
        for task, setting in found
    ]
    others = (
        (name, FSDP2, KEPT, AHEAD, DDP, BY_LAYER, ONE)
        if part == "shards"
        else (name, DDP, STATIC, BLIND, BY_LAYER)
    )
    rows = [(task.title, variants) for task, _, variants in settings]
    texts = [against(rows, own, others)]
    compared = (name, rival) if part != "shards" else (DDP, BY_LAYER, ONE, name)
    texts += [_mean(settings, own, other) for other in compared]
    if all(_has_tuned(variants) for _, _, variants in settings):
        texts += [_mean(settings, TUNED, other) for other in (name, BEST_OF_OTHERS)]
    if part == "shards":
        texts.append(_of_gloo(settings))
    else:
        texts += [_advised(settings), _missed([row[1:] for row in settings])]
        if len({task.rate for task, _, _ in settings}) > 1:
            texts += _by_rate(settings)
        texts += _left_out(settings)
    return "\n\n".join(texts)


def _mean(
    settings: Sequence[tuple[Task, Setting, Sequence[Measured]]], own: str, other: str
) -> str:
    """Return a sentence about how many times as fast as another variant the plans are."""
    gains, balanced, slower = [], [], []
    for task, setting, variants in settings:
        known = {variant.name: variant for variant in variants}
        middle, _, most = ratio(known[other], known[own])
        gains.append(middle)
        if BALANCED[0] <= setting.ratio <= BALANCED[1]:
            balanced.append(middle)
        if most < 1:
            slower.append(f"{task.title} ({middle:.2f})")
    text = (
        f"{own} over {other}: {_geometric(gains)} in the geometric mean ({min(gains):.2f} at least)"
    )
    if balanced:
        text += (
            f", {_geometric(balanced)} of the {len(balanced)} where communication is between a "
            "half and twice the computation"
        )
    return f"{text}; slower in every round: {', '.join(slower) or 'nowhere'}."


def _of_gloo(settings: Sequence[tuple[Task, Setting, Sequence[Measured]]]) -> str:
    """Return a sentence about what a ratio to FSDP2 is one of: gloo's reduce-scatter."""
    longer = []
    for _, _, variants in settings:
        known = {variant.name: variant.median_ns for variant in variants}
        longer.append(known[KEPT] / known[DDP])
    return (
        f"{KEPT}, sends as many bytes as {DDP} and takes {_geometric(longer)} times as long: a "
        "ratio to FSDP2 is first one of gloo's reduce-scatter to its all-reduce, not one of plans."
    )


def _geometric(ratios: Sequence[float]) -> str:
    return f"{exp(fmean(map(log, ratios))):.3f}"


def _advised(settings: Sequence[tuple[Task, Setting, Sequence[Measured]]]) -> str:
    """Return a sentence about whether the answers were right to keep DDP, or not to.

    Keeping is right where the plan gains less than what is worth it, or not in every round; running
    the plan where it is no slower than the bucket size that turns out to be the best.
    """
    kept = run = kept_rightly = run_rightly = 0
    forgone, gains = 0.0, []
    for _, setting, variants in settings:
        gain, right = _measured_gain(variants), _rightly(variants, bool(keeps_ddp(setting)))
        if keeps_ddp(setting):
            kept += 1
            kept_rightly += right
            forgone = max(forgone, gain - 1)
        else:
            run += 1
            run_rightly += right
            gains.append(gain)
    gained = f" (plans gained {forgone:.1%} at most)" if kept else ""
    ran = f" ({_geometric(gains)} times as fast in the geometric mean)" if gains else ""
    return (
        f"What answers say before anything runs: {kept} times to keep DDP, {kept_rightly} times "
        f"rightly{gained}; {run} times to run the plan, {run_rightly} times rightly{ran}."
    )


def _by_rate(settings: Sequence[tuple[Task, Setting, Sequence[Measured]]]) -> Iterator[str]:
    """Yield a sentence about each rate: gains, how many plans are run, what predictions miss."""
    for rate in sorted({task.rate for task, _, _ in settings}, reverse=True):
        own = [(setting, variants) for task, setting, variants in settings if task.rate == rate]
        gains = [_measured_gain(variants) for _, variants in own]
        run = [gain for gain, (one, _) in zip(gains, own, strict=True) if not keeps_ddp(one)]
        advised = ""
        if run:
            advised = f"; where it is to run, {_geometric(run)} ({counted(len(run), 'model')})"
        tried = ""
        if all(_has_tuned(variants) for _, variants in own):
            tuned = [_measured_gain(variants, TUNED) for _, variants in own]
            tried = f" {TUNED}: {_geometric(tuned)} ({min(tuned):.2f} to {max(tuned):.2f})."
        yield (
            f"At {rate} Mbit/s {PLANNED} over {BEST}: {_geometric(gains)} in the geometric mean "
            f"({min(gains):.2f} to {max(gains):.2f}){advised}.{tried} {_missed(own)}"
        )


def _missed(settings: Sequence[tuple[Setting, Sequence[Measured]]]) -> str:
    """Return a sentence about what predictions of the chosen plan miss."""
    errors: dict[bool, list[float]] = {True: [], False: []}
    for setting, variants in settings:
        error = next(variant for variant in variants if variant.name == PLANNED).error
        errors[bool(keeps_ddp(setting))].append(abs(error or 0.0))
    every = errors[True] + errors[False]
    text = (
        f"{PLANNED} is predicted {median(every):.1%} off in the median, {max(every):.1%} at worst"
    )
    if errors[False]:
        run = errors[False]
        text += f" (where it is to run {median(run):.1%}, {max(run):.1%})"
    slower, rest = zip(*(_slower(variants) for _, variants in settings), strict=True)
    if None not in rest:
        text += (
            f". Steps without transfers took {median(slower):.1%} longer than in the profile in "
            f"the median ({min(slower):.1%} to {max(slower):.1%}); at their speed {PLANNED} is "
            f"predicted {median(rest):.1%} off, {max(rest):.1%} at worst"
        )
    return f"{text}."


def _slower(variants: Sequence[Measured]) -> tuple[float, float | None]:
    """Return by how much a step without transfers took longer than the profile says.

    And the error of the chosen plan's prediction if its computation had been predicted so; None if
    no such steps were measured.
    """
    known = {variant.name: variant for variant in variants}
    alone, plan = known.get(ALONE), known[PLANNED]
    if alone is None or alone.predicted_ns is None or plan.predicted_ns is None:
        return 0.0, None
    longer_ns = alone.median_ns - alone.predicted_ns
    error = off_by(plan.predicted_ns + longer_ns, plan.median_ns)
    return longer_ns / alone.predicted_ns, abs(error or 0.0)


def _has_tuned(variants: Sequence[Measured]) -> bool:
    return TUNED in {variant.name for variant in variants}


def _measured_gain(variants: Sequence[Measured], own: str = PLANNED) -> float:
    known = {variant.name: variant for variant in variants}
    return ratio(known[BEST], known[own])[0]


def _predicted_gain(variants: Sequence[Measured]) -> float:
    known = {variant.name: variant.predicted_ns for variant in variants}
    ddp = [ns for name, ns in known.items() if name.startswith(DDP) and ns is not None]
    return min(ddp) / (known[PLANNED] or 1)


def _rightly(variants: Sequence[Measured], keep: bool) -> bool:
    """Return whether to keep DDP, or to run the plan, was right."""
    known = {variant.name: variant for variant in variants}
    middle, least, _ = ratio(known[BEST], known[PLANNED])
    return middle < WORTH or least <= 1 if keep else middle >= 1


def _left_out(settings: Sequence[tuple[Task, Setting, Sequence[Measured]]]) -> list[str]:
    """Return sentences about what predictions are off by, and about `MARGIN`.

    One model is left out in turn: the margin under which most decisions of the others are right,
    the smallest of equally good ones, decides its settings.
    """
    models = sorted({task.model for task, _, _ in settings})
    if len(models) < FEWEST:
        return []
    over = [_predicted_gain(variants) / _measured_gain(variants) - 1 for _, _, variants in settings]
    chosen, right, run = {}, 0, 0
    for model in models:
        others = [(each, variants) for task, each, variants in settings if task.model != model]
        chosen[model] = max(MARGINS, key=lambda margin: (_right(others, margin), -margin))
    for task, setting, variants in settings:
        run += not keeps_ddp(setting, chosen[task.model])
        right += _right([(setting, variants)], chosen[task.model])
    plans = [
        abs(variant.error)
        for _, _, variants in settings
        for variant in variants
        if variant.name in OURS_RUN and variant.error is not None
    ]
    predicted = (
        f"Plans that our executor follows are predicted {median(plans):.1%} off in the median, "
        f"{max(plans):.1%} at worst ({len(plans)} of them)."
    )
    least, most = (f"{float(margin):g}" for margin in (min(chosen.values()), max(chosen.values())))
    margins = (
        f"Gains over the best DDP are predicted too high by {median(over):.1%} in the median, "
        f"{max(over):.1%} at most. The margin, a gain for each share of a step in which sending "
        f"takes processor time, that is best for all models but one is {least} to {most} "
        f"({float(MARGIN):g} is used); by it, {run} plans run of the model left out, and {right} "
        f"of {len(settings)} decisions are right."
    )
    return [predicted, margins]


def _right(settings: Sequence[tuple[Setting, Sequence[Measured]]], margin: Fraction) -> int:
    """Return how many decisions are right with a margin."""
    return sum(_rightly(variants, bool(keeps_ddp(one, margin))) for one, variants in settings)


def _ranked(rows: Sequence[tuple[str, Sequence[Measured]]]) -> str:
    ranks = [ranking(variants) for _, variants in rows]
    clear = sum(one.right + one.wrong + one.tied for one in ranks)
    right = sum(one.right for one in ranks)
    spreads = [
        (max(variant.medians_ns) - min(variant.medians_ns)) / variant.median_ns
        for _, variants in rows
        for variant in variants
    ]
    share = f" ({right / clear:.0%})" if clear else ""
    return (
        f"Of {clear} pairs that differ in every round, {right} are ranked rightly{share}. A "
        f"variant's slowest round is {median(spreads):.1%} slower than its fastest (median)."
    )
