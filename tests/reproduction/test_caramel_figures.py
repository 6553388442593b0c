"""Caramel's remade figures: two numbers are fitted, and what is quick is what the page shows."""

import caramel
import pytest
from caramel_model import (
    DEPTHS,
    FITTED,
    STARTUP_US,
    Setting,
    by_horovod,
    fit,
    ladder,
    network,
    problem_of,
    problem_with,
    profile,
)
from caramel_networks import PRINTED, as_printed


def test_horovod_has_the_one_utilisation_that_is_fitted() -> None:
    name, workers, target = FITTED
    made = by_horovod(problem_of(name, Setting(workers)))
    computed = sum(op.duration_ns for op in problem_of(name, Setting(workers)).graph.ops)
    assert computed / made.iteration_ns == pytest.approx(float(target), abs=1e-3)


@pytest.mark.parametrize("name", PRINTED)
def test_networks_have_the_papers_tensors(name: str) -> None:
    tensors, mebibytes = PRINTED[name]
    graph = as_printed(name, profile(name).dataflow())
    assert len(graph.parameters) == tensors
    size = sum(parameter.size_bytes for parameter in graph.parameters) / 2**20
    assert size == pytest.approx(mebibytes, abs=0.05)
    assert graph.ops == profile(name).dataflow().ops


def test_no_other_start_up_is_closer_to_the_second_bar() -> None:
    name, workers, _ = FITTED
    factor = fit()

    def distance(startup_us: int) -> float:
        problem = problem_with(name, Setting(workers, startup_us=startup_us), factor)
        step = ladder(problem)[0]
        return abs(100 * step.utilisation - caramel.PRINTED_STEPS[1])

    assert distance(STARTUP_US) < min(distance(STARTUP_US - 50), distance(STARTUP_US + 50))


@pytest.mark.slow
def test_other_printed_steps_change_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caramel, "STARTUPS_US", ())
    before = caramel.figure_11()
    monkeypatch.setattr(caramel, "PRINTED_STEPS", (10, 20, 30, 40))
    after = caramel.figure_11()
    assert after != before
    columns = [
        [line.split("|")[3] for line in text.splitlines() if line.count("|") == 5]
        for text in (before, after)
    ]
    assert len(columns[0]) >= 5
    assert columns[0] == columns[1]


def test_costs_by_depth_have_the_two_printed_factors() -> None:
    """Depth 8: 3 times the start-up, 40 % of the time per byte: 14/8 of it at 10 Gb/s."""
    cost = network(8)
    first, last = cost.at_depth(DEPTHS[0]), cost.at_depth(DEPTHS[-1])
    assert last.cost_ns(0) == 3 * first.cost_ns(0)
    sent = [one.cost_ns(10**9) - one.cost_ns(0) for one in (first, last)]
    assert sent[1] == pytest.approx(0.4 * sent[0])
    assert sent[1] == pytest.approx(10**9 * 14 / 8 * 8 / 10)
