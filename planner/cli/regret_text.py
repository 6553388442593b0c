"""The text about a plan's gain over DDP and its regrets."""

from collections.abc import Iterator

from msgspec import UNSET

from planner.draw import format_table
from planner.jsonio.caramel import CaramelAnswer
from planner.jsonio.ibatch import IbatchAnswer
from planner.jsonio.iteration_answer import IterationAnswer
from planner.report.regret import COLUMNS, advice_text, cells, prospect_text, target_text

__all__ = ["beside", "kept"]


def kept(answer: object) -> str:
    """Return the advice to keep DDP, or nothing."""
    advice = getattr(answer, "advice", UNSET)
    return advice_text(advice) if advice is not UNSET and advice.keep_ddp else ""


def beside(answer: object) -> Iterator[str]:
    """Yield the advice and the table of regrets, as far as the answer has them."""
    if not isinstance(answer, CaramelAnswer | IbatchAnswer | IterationAnswer):
        return
    if not isinstance(answer, IbatchAnswer) and answer.advice is not UNSET:
        yield advice_text(answer.advice)
    yield from _targets(answer)
    if answer.prospect is not UNSET:
        yield prospect_text(answer.prospect)
    if answer.regret is not UNSET and answer.regret:
        yield ""
        yield format_table(COLUMNS, list(map(cells, answer.regret)))


def _targets(answer: CaramelAnswer | IbatchAnswer | IterationAnswer) -> Iterator[str]:
    """Yield the gain over the target's default and how to apply the plan."""
    text, target = target_text(answer), answer.target
    if text and target is not UNSET:
        yield text
        yield f"to apply it: planner export {target.name} PLAN; " + "; ".join(target.settings)
