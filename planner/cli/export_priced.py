"""The price of an exported plan under the rules of its target."""

from collections.abc import Sequence

from msgspec import UNSET

from planner.model.errors import PlannerError
from planner.model.units import format_ns, printable
from planner.solving.targets import EVERY


def made_for(answer: object) -> str | None:
    """Return the name of the plan's target, or None."""
    target = getattr(answer, "target", UNSET)
    return None if target is UNSET else str(target.name)


def check_worth(tool: str, answers: Sequence[object], *, anyway: bool) -> list[str]:
    """Return notes on a plan's time under the tool's rules, compared with the tool's default.

    Raises PlannerError if the default is faster, unless `anyway`, or if the tool cannot follow the
    plan.
    """
    priced = [getattr(answer, "targets", UNSET) for answer in answers]
    known = [table[tool] for table in priced if table is not UNSET and tool in table]
    if tool not in EVERY or len(known) != 1:
        return []
    (price,), title = known, EVERY[tool].title
    remedy = f"plan for it (--for {tool})"
    if price.plan_ns is None:
        raise PlannerError(f"{'' if price.reason is UNSET else printable(price.reason)}: {remedy}")
    times = (
        f"by the rules of {title} this plan takes {format_ns(price.plan_ns)}, "
        f"its default {format_ns(price.default_ns)}"
    )
    if price.plan_ns > price.default_ns and not anyway:
        raise PlannerError(f"{times}: {remedy}, keep the default, or write it with --anyway")
    settings = EVERY[tool].settings if made_for(answers[0]) == tool else ()
    return [times, *(f"to set beside it: {line}" for line in settings)]
