"""Texts for names and numbers on the page."""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil, floor, log10

from msgspec import UNSET

from planner.families.iteration import JOINT
from planner.jsonio.iteration_answer import IterationAnswer, RunnerUp, SchedulingAnswer
from planner.model.units import counted, format_bytes, format_factor, format_ns, format_share
from planner.solving.targets import TARGETS, Target

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

_EXACT = 1e-12
_MAX_NAMES = 2


def target_of(answer: IterationAnswer) -> Target | None:
    """Return the plan's target, or None."""
    return None if answer.target is UNSET else TARGETS[answer.target.name]


def by_reason(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, None]]:
    """Return the names for each reason, from pairs of a name and its reason."""
    names: dict[str, dict[str, None]] = {}
    for name, reason in pairs:
        names.setdefault(reason, {})[name] = None
    return names


def scheduling_text(scheduling: SchedulingAnswer) -> str:
    """Return the size of a group of iterations and what scheduling costs with it."""
    size, iteration_ns, overhead = (
        scheduling.group_size,
        scheduling.iteration_ns,
        scheduling.overhead,
    )
    if size is None or iteration_ns is None or overhead is None:
        reason = "" if scheduling.reason is UNSET else scheduling.reason
        return f"scheduling: no group size, {reason}"
    return (
        f"scheduling: groups of {counted(size, 'iteration')}, {format_share(overhead)} overhead, "
        f"{format_ns(iteration_ns)} an iteration with it, {scheduling.speedup:.2f}x groups of one"
    )


def runner_up_text(runner_up: RunnerUp, objective_ns: int) -> str:
    """Return how much longer the next best way takes, and what would make it win."""
    way = f"{runner_up.algorithm}, {runner_up.mode}"
    longer = runner_up.objective_ns / objective_ns - 1 if objective_ns else 0.0
    if not longer:
        return f"{way}, equally long"
    text = f"{way}, {format_share(longer)} longer; "
    if runner_up.dominated_by is not None:
        return f"{text}{runner_up.dominated_by} costs no more for any size, so it can never win"
    if not runner_up.wins_if:
        return (
            text + "no cost of start-ups or messages, no bandwidth makes it win (× 1/1024 … 1024)"
        )
    ways = " or ".join(
        f"{_CHANGES[change.what]} {format_factor(change.factor)}" for change in runner_up.wins_if
    )
    return f"{text}it would win if {ways}"


def as_sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def percent(share: float) -> str:
    """Return a relative distance as text."""
    if share < 5e-5:
        return "<0.01%" if share > _EXACT else "0%"
    return f"{share:.2%}" if share < 1 else f"{share:,.0%}"


def times(ratio: float) -> str:
    """Return a ratio as text, such as a speed-up."""
    return f"{ratio:.2f}×" if ratio < 100 else f"{ratio:,.0f}×"


def factor_text(factor: Fraction) -> str:
    """Return a factor as text."""
    return f"× {factor}"


def size_text(size: int) -> str:
    """Return a size in a fitting unit, with the exact bytes in brackets if they differ."""
    short = format_bytes(size)
    return short if short.endswith(" B") else f"{short} ({size:,} B)"


def abbreviated(names: tuple[str, ...]) -> str:
    """Return the first and the last of many names, with their number."""
    if len(names) <= _MAX_NAMES:
        return ", ".join(names)
    return f"{names[0]} … {names[-1]} ({len(names)} parameters)"


def ticks(low: float, high: float, count: int) -> list[float]:
    """Return about `count` round numbers from `low` to `high`, in steps of 1, 2 or 5."""
    if not high > low:
        return [low]
    rough = (high - low) / max(count, 1)
    power = 10.0 ** floor(log10(rough))
    step = next(power * digit for digit in (1, 2, 5, 10) if power * digit >= rough * (1 - 1e-9))
    return [n * step for n in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)]


def logarithmic_ticks(low: float, high: float, count: int) -> list[float]:
    """Return round numbers for a logarithmic axis: 1, 2, 5 of each decade, or decades only.

    Short ranges have evenly spaced numbers.
    """
    decades = range(floor(log10(low)), ceil(log10(high)) + 1)
    for digits in ((1, 2, 5), (1,)):
        round_numbers = [digit * 10.0**decade for decade in decades for digit in digits]
        round_numbers = [tick for tick in round_numbers if low <= tick <= high]
        if 3 <= len(round_numbers) <= count + 2:
            return round_numbers
    return round_numbers if len(round_numbers) >= 3 else ticks(low, high, count)


def tick_text(value: float) -> str:
    """Return a tick's number without binary rounding errors."""
    return f"{value:,.10g}"
