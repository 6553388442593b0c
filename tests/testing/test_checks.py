"""`planner.testing` passes what is right, and catches what is not; its page is what it says."""

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from planner.programs import Batch, GradientProgram
from planner.solving.deadline import Deadline
from planner.solving.methods import Outcome
from planner.testing import check_executor, check_method, ladder
from planner.testing.executors import ELEMENT_BYTES, Gradient, Run
from tests.recipes.halves import HALVES, Plan, Problem, evaluate, exact, greedy

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")

six = st.builds(Problem, st.lists(st.integers(0, 30), min_size=6, max_size=6))
LARGE = Problem(range(1, 29))


def claims_too_much(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    found = greedy(problem, deadline)
    assert found.plan is not None
    return replace(found, lower_bound=evaluate(problem, found.plan).end_ns)


def uses_a_third_link(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    return Outcome(Plan((2,) * len(problem.transfer_ns)))


def ignores_its_deadline(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    return exact(problem, Deadline(None))


def takes_the_order_of_a_set(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    """Of 2^6 plans two other processes make this one's once in 4,000 times."""
    order = list({f"transfer {place}" for place in range(32)})
    links = (order.index(f"transfer {place}") % 2 for place in range(len(problem.transfer_ns)))
    return Outcome(Plan(tuple(links)))


def shortens_its_problem(problem: Problem, deadline: Deadline) -> Outcome[Plan]:
    object.__setattr__(problem, "transfer_ns", tuple(time // 2 for time in problem.transfer_ns))
    return greedy(problem, deadline)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "why", "examples"),
    [
        (claims_too_much, "a plan of auto costs less than the lower bound", 40),
        (uses_a_third_link, "made no plan", 1),
        (ignores_its_deadline, "did not end at its time limit", 1),
        (takes_the_order_of_a_set, "another process plans otherwise", 2),
        (shortens_its_problem, "changed its problem", 8),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_methods_that_lie_are_caught_by_the_rung_that_is_about_their_lie(
    method: Callable[[Problem, Deadline], Outcome[Plan]],
    why: str,
    examples: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ladder, "_GRACE_S", 2.0)
    with pytest.raises(AssertionError, match=why):
        check_method(HALVES, method, six, large=LARGE, examples=examples)


@pytest.mark.slow
@pytest.mark.parametrize(("method", "large"), [("auto", LARGE), ("greedy", None)])
def test_honest_methods_pass(method: str, large: Problem | None) -> None:
    check_method(HALVES, method, six, large=large, examples=10)


@pytest.mark.slow
@pytest.mark.pages
def test_on_the_page_the_wrong_method_is_caught_and_the_right_one_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong, right, parametrised = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)
    (told,) = re.findall(r"```text\n(.*?)\n```", PAGE, flags=re.DOTALL)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "halves_at_first.py").write_text(wrong)
    with pytest.raises(AssertionError) as caught:
        import_module("halves_at_first")
    said = f"AssertionError: {caught.value}"
    assert said[:50] == told[:50]  # the end depends on what was drawn
    assert told.splitlines()[1] in "".join(caught.value.__notes__)
    defined = wrong.rpartition("check_method(")[0]
    (tmp_path / "halves_mended.py").write_text(f"{defined}\n{right}\n{parametrised}")
    import_module("halves_mended").test_every_method("greedy")


Gradients = dict[str, Gradient]


def follow(
    program: GradientProgram,
    gradients: Gradients,
    ready: Iterator[str],
    all_reduce: Callable[[Gradient], None],
) -> None:
    """Send each batch once all before it are sent and all that it holds is ready."""
    there = set[str]()
    waiting = list(program.batches)
    for name in ready:
        there.add(name)
        while waiting and {piece.parameter for piece in waiting[0].pieces} <= there:
            parts = []
            for piece in waiting.pop(0).pieces:
                stop = None if piece.stop is None else piece.stop // ELEMENT_BYTES
                parts.append(gradients[piece.parameter][piece.start // ELEMENT_BYTES : stop])
            message = np.concatenate(parts)
            all_reduce(message)
            for part in parts:
                part[:], message = message[: len(part)], message[len(part) :]


def together(program: GradientProgram) -> GradientProgram:
    return GradientProgram((Batch(tuple(it for batch in program.batches for it in batch.pieces)),))


def inside_out(program: GradientProgram) -> GradientProgram:
    return GradientProgram(tuple(Batch(batch.pieces[::-1]) for batch in program.batches))


def test_an_executor_that_follows_the_plan_passes() -> None:
    check_executor(follow)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (lambda program, own, _, sums: follow(program, own, iter(own), sums), "not ready"),
        (
            lambda program, *given: follow(GradientProgram(program.batches[::-1]), *given),
            "something else",
        ),
        (lambda program, *given: follow(inside_out(program), *given), "something else"),
        (lambda program, *given: follow(together(program), *given), "1 transfers, not"),
        (
            lambda program, own, ready, sums: follow(
                program, {name: own[name].copy() for name in ready}, iter(own), sums
            ),
            "is not the sum",
        ),
    ],
    ids=["at once", "backwards", "pieces backwards", "all together", "forgets the sums"],
)
def test_an_executor_that_does_something_else_is_caught(run: Run, why: str) -> None:
    with pytest.raises(AssertionError, match=why):
        check_executor(run)
