"""Texts for names and numbers on the page."""

from collections.abc import Iterable
from fractions import Fraction
from math import ceil, floor, log10

from msgspec import UNSET

from planner.families.iteration import JOINT
from planner.jsonio.iteration_answer import IterationAnswer
from planner.model.units import format_bytes
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

CHANGES = {
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
