"""The advice about DDP, the gains over defaults, and the table of regrets."""

from fractions import Fraction

from msgspec import UNSET

from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.jsonio.what_if import AdviceAnswer, ProspectAnswer, RegretAnswer
from planner.model.units import format_ns
from planner.solving.what_if import WORTH
from planner.view.html import Html, joined, paragraph, table
from planner.view.wording import percent

COLUMNS = ("if", "this plan", "best plan found", "regret", "ddp", "layer by layer")
"""Header of a table of regrets."""


def advice_text(advice: AdviceAnswer) -> str:
    """Return the advice: run the plan, or keep DDP."""
    cap = advice.bucket_cap_mb
    buckets = "its default buckets" if cap is None else f"bucket_cap_mb={cap}"
    ddp = f"DDP with {buckets} ({format_ns(advice.ddp_ns)})"
    if not advice.keep_ddp:
        return f"worth running: {advice.gain:.2f} times as fast as {ddp}, the best of its sizes"
    if advice.gain > 1:
        text = f"keep DDP: the plan gains only {percent(advice.gain - 1)} over {ddp}"
    else:
        text = f"keep DDP: the plan gains nothing over {ddp}"
    if advice.at_most is None or advice.at_most <= advice.gain:
        return text
    most = percent(max(advice.at_most - 1, 0.0))
    bound = "as much as 0.01%" if most.startswith("<") else f"more than {most}"
    return f"{text}; none gains {bound}"


def target_text(answer: CaramelAnswer | IbatchAnswer | IterationAnswer) -> str:
    """Return the gain over the target's default; empty without a target."""
    target, priced = answer.target, answer.targets
    if target is UNSET or priced is UNSET or target.name not in priced:
        return ""
    price = priced[target.name]
    if not price.plan_ns:
        return ""
    default = f"the default of {target.version} ({format_ns(price.default_ns)})"
    if Fraction(price.default_ns, price.plan_ns) < WORTH:
        gain = percent(price.default_ns / price.plan_ns - 1)
        return f"keep {default}: the plan gains {gain} over it"
    return f"worth setting: {price.default_ns / price.plan_ns:.2f} times as fast as {default}"


def prospect_text(prospect: ProspectAnswer) -> str:
    """Return the plan's expected cost over its scenarios, and its loss without them."""
    value, bound = prospect.value_ns, prospect.lower_bound_ns
    above = f", {percent(value / bound - 1)} above the bound" if bound else ""
    costs = f"in the scenarios it was planned for: {format_ns(round(value))}{above}"
    if prospect.gain <= 1:
        return f"{costs}; no plan that was tried bears that better"
    return (
        f"{costs}; the usual plan takes {percent(prospect.gain - 1)} longer in them, and "
        f"{percent(max(1 - 1 / prospect.loss, 0.0))} less without them"
    )


def cells(row: RegretAnswer) -> tuple[str, ...]:
    """Return a row of a table of regrets."""
    times = (row.plan_ns, row.best_ns, row.ddp_ns, row.layers_ns)
    plan, best, ddp, layers = ("–" if time is None else format_ns(time) for time in times)
    return _scenario(row), plan, best, _regret(row), ddp, layers


def regret_table(answer: IterationAnswer) -> Html:
    """Return the table of regrets with an explanation."""
    rows = () if answer.regret is UNSET else answer.regret
    return joined(
        paragraph(
            "The plan as it is, beside the best plan found for these numbers. The regret is how "
            "much longer it takes than the best plan there is: at least by what it takes longer "
            "than the best one found, at most by what it exceeds the lower bound."
        ),
        table("The plan if the numbers are others", COLUMNS, list(map(cells, rows))),
    )


def _scenario(row: RegretAnswer) -> str:
    factors = {
        "computation": row.computation,
        "start-ups": row.startup,
        "bandwidth": row.bandwidth,
    }
    parts = [f"{what} × {factor:g}" for what, factor in factors.items() if factor != 1]
    if row.late:
        parts.append(f"a rank falls behind by {row.late:g} of the backward pass")
    return ", ".join(parts) or "as planned"


def _regret(row: RegretAnswer) -> str:
    least = percent(row.at_least - 1)
    if row.at_most is None:
        return f"from {least}"
    most = percent(row.at_most - 1)
    return least if least == most else f"{least} – {most}"
