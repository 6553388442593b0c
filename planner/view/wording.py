"""Texts about plans, on pages and in terminals."""

from collections.abc import Iterable, Iterator
from fractions import Fraction

from msgspec import UNSET

from planner.families.iteration import JOINT
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import VERBS, IterationAnswer, RunnerUp, SchedulingAnswer
from planner.jsonio.what_if import AdviceAnswer, ProspectAnswer, RegretAnswer
from planner.model.units import counted, format_factor, format_ns, format_share
from planner.solving.advice import WORTH
from planner.solving.targets import TARGETS, Target, to_apply

ALGORITHMS = {
    "none": "nothing is sent",
    "ring": "around a ring of all workers",
    "halving_doubling": "recursive halving and doubling",
    "hierarchical": "level by level through the network",
    "ps": "parameter servers on all machines",
    "shuffle": "a shuffle, every worker with every other",
    "bml": "BML, over all NICs of a BCube at once",
    "bml_rounds": "BML around failures, in parts that follow each other",
    "mixed": "for each transfer the algorithm that suits its size",
}

MODES = {
    "replicated": "every worker updates all parameters",
    "sharded": "every worker updates its share of the parameters",
}

METHODS = {
    JOINT: "this plan",
    "ddp": "PyTorch DDP with its default buckets",
    "horovod": "Horovod's tensor fusion",
    "mg_wfbp": "MG-WFBP's merged gradients",
    "bytescheduler": "ByteScheduler's partitions by priority",
    "layer_by_layer": "every layer by itself, as soon as it is ready",
    "ps": "MXNet's key-value store, each parameter by itself",
    "caramel": "Caramel by itself",
    "ibatch": "iBatch by itself",
    "bml": "BML by itself, behind the backward pass",
    "bigdl": "BigDL by itself, two shuffles behind the backward pass",
}
"""Descriptions of methods whose names do not suffice."""

_CHANGES = {
    "startup": "start-ups cost",
    "message": "further messages cost",
    "bandwidth": "the network carried",
}
"""Changes that would make another plan win; ``3 times as much`` follows."""

_MAX_NAMES = 2


def target_of(answer: IterationAnswer) -> Target | None:
    """Return the plan's target, or None."""
    return None if answer.target is UNSET else TARGETS[answer.target.name]


def sent_text(answer: IterationAnswer, between: str = ", ") -> str:
    """Return the number of transfers of each kind."""
    kinds = [transfer.kind for transfer in answer.transfers or ()]
    return between.join(
        counted(kinds.count(kind), name, f"{name}es" if kind == "push" else "")
        for kind, name in VERBS.items()
        if kind in kinds
    )


def by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, None]]:
    """Return the names for each reason, from pairs of a name and its reason."""
    names: dict[str, dict[str, None]] = {}
    for name, reason in pairs:
        names.setdefault(reason, {})[name] = None
    return names


def scheduling_text(scheduling: SchedulingAnswer) -> str:
    """Return the size of a group of iterations and what scheduling costs with it."""
    size, iteration_ns = scheduling.group_size, scheduling.iteration_ns
    overhead = scheduling.overhead
    if size is None or iteration_ns is None or overhead is None:
        return f"scheduling: no group size, {scheduling.reason or ''}"
    return (
        f"scheduling: groups of {counted(size, 'iteration')}, {format_share(overhead)} overhead, "
        f"{format_ns(iteration_ns)} an iteration with it, {scheduling.speedup:.2f}x groups of one"
    )


def runner_up_text(runner_up: RunnerUp, objective_ns: int) -> str:
    """Return the extra time of the runner-up, and the change that would make it win."""
    way = f"{runner_up.algorithm}, {runner_up.mode}"
    longer = runner_up.objective_ns / objective_ns - 1 if objective_ns else 0.0
    if not longer:
        return f"{way}, equally long"
    text = f"{way}, {format_share(longer)} longer; "
    if runner_up.wins_if:
        ways = " or ".join(
            f"{_CHANGES[change.what]} {format_factor(change.factor)}"
            for change in runner_up.wins_if
        )
        return f"{text}it would win if {ways}"
    if runner_up.timed_out is True:
        return f"{text}time ran out before it was known what makes it win"
    return f"{text}no cost of start-ups or messages, no bandwidth makes it win (× 1/1024 … 1024)"


def as_sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def times(ratio: float) -> str:
    """Return a ratio as text, such as a speed-up."""
    return f"{ratio:.2f}×" if ratio < 100 else f"{ratio:,.0f}×"


def abbreviated(names: tuple[str, ...]) -> str:
    """Return the first and the last of many names, with their number."""
    if len(names) <= _MAX_NAMES:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)} parameters)"


def about_ns(time: int) -> str:
    """Return a predicted time with two significant digits: no model predicts better."""
    step = 10 ** max(len(str(time)) - 2, 0)
    return format_ns((time + step // 2) // step * step)


# ---
# Advice about DDP, gains over defaults, and regrets.

REGRET_COLUMNS = ("if", "this plan", "best plan found", "regret", "ddp", "layer by layer")
"""Header of a table of regrets."""


def advice_text(advice: AdviceAnswer) -> str:
    """Return the advice: run the plan, or keep DDP."""
    cap = advice.bucket_cap_mb
    buckets = "its default buckets" if cap is None else f"bucket_cap_mb={cap}"
    ddp = f"DDP with {buckets} ({format_ns(advice.ddp_ns)})"
    if not advice.keep_ddp:
        faster = f"{advice.gain:.2f} times as fast as {ddp}, the best of its sizes"
        if advice.contention:
            return f"worth running: {faster}"
        return f"worth trying: {faster}, if transfers take nothing from computation (not measured)"
    if advice.gain >= WORTH:
        asked = format_share(advice.least_gain - 1)
        text = (
            f"keep DDP: the plan gains {format_share(advice.gain - 1)} over {ddp}, less than the "
            f"{asked} to ask for where sending takes so much from computation"
        )
    elif advice.gain > 1:
        text = f"keep DDP: the plan gains only {format_share(advice.gain - 1)} over {ddp}"
    else:
        text = f"keep DDP: the plan gains nothing over {ddp}"
    if advice.at_most is None or advice.at_most <= advice.gain:
        return text
    most = format_share(max(advice.at_most - 1, 0.0))
    bound = "as much as 0.01%" if most.startswith("<") else f"more than {most}"
    return f"{text}; none gains {bound}"


def standing(default: str, default_ns: int, plan_ns: int) -> tuple[str, bool]:
    """Return the gain of a plan over a target's default, and whether to keep the default."""
    ratio, named = default_ns / plan_ns, f"the default of {default} ({format_ns(default_ns)})"
    if Fraction(default_ns, plan_ns) < WORTH:
        gain = format_share(ratio - 1) if ratio > 1 else "nothing"
        return f"keep {named}: the plan gains {gain} over it", True
    return f"worth setting: {times(ratio)} as fast as {named}", False


def target_text(answer: CaramelAnswer | IbatchAnswer | IterationAnswer) -> tuple[str, bool]:
    """Return `standing` over the default of the plan's target; nothing without a target."""
    target, priced = answer.target, answer.targets
    price = None if target is UNSET or priced is UNSET else priced.get(target.name)
    if target is UNSET or price is None or not price.plan_ns:
        return "", False
    return standing(target.version, price.default_ns, price.plan_ns)


def applied(target: Target, plan: str | None, file: str | None = None) -> Iterator[str]:
    """Yield the lines that apply a plan made for a target, and can be pasted.

    `plan` is its file, and `file` that of its export.
    """
    known = to_apply(
        target, "plan.json" if plan in (None, "-") else plan, file or f"{target.name}.json"
    )
    for where, lines in known.items():
        yield from ("", f"to apply it, {where}:", *lines)


def prospect_text(prospect: ProspectAnswer) -> str:
    """Return the plan's expected cost over its scenarios, and its loss without them."""
    value, bound = prospect.value_ns, prospect.lower_bound_ns
    above = f", {format_share(value / bound - 1)} above the bound" if bound else ""
    costs = f"in the scenarios it was planned for: {format_ns(round(value))}{above}"
    if prospect.gain <= 1:
        return f"{costs}; no plan that was tried bears that better"
    return (
        f"{costs}; the usual plan takes {format_share(prospect.gain - 1)} longer in them, and "
        f"{format_share(max(1 - 1 / prospect.loss, 0.0))} less without them"
    )


def regret_cells(row: RegretAnswer) -> tuple[str, ...]:
    """Return a row of a table of regrets."""
    known = (row.plan_ns, row.best_ns, row.ddp_ns, row.layers_ns)
    plan, best, ddp, layers = ("–" if time is None else format_ns(time) for time in known)
    return scenario_text(row), plan, best, _regret(row), ddp, layers


def scenario_text(row: RegretAnswer) -> str:
    """Return the perturbed numbers of a scenario."""
    factors = {
        "computation": row.computation,
        "start-ups": row.startup,
        "bandwidth": row.bandwidth,
    }
    parts = [f"{what} × {factor:g}" for what, factor in factors.items() if factor != 1]
    if row.late:
        parts.append(f"a rank falls behind by {row.late:g} of the backward pass")
    if row.shared is True:
        parts.append("all channels carry one transfer at a time")
    return ", ".join(parts) or "as planned"


def _regret(row: RegretAnswer) -> str:
    least = format_share(row.at_least - 1)
    if row.at_most is None:
        return f"from {least}"
    most = format_share(row.at_most - 1)
    return least if least == most else f"{least} – {most}"
