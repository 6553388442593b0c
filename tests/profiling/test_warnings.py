"""How much times vary, and what a profile warns of; times are made up."""

import pytest

pytest.importorskip("torch")

from planner.model.layers import Layer
from planner.profiling.timing import Run, spread_of, warnings_of
from planner.solving.diagnostics import Spread
from tests.profiling.models import linear, measured


def run_of(forward: int, backward: int) -> Run:
    return Run((forward, backward), [forward], [backward], [None])


def test_one_repetition_tells_no_spread() -> None:
    assert spread_of([run_of(1, 1)], ()) is None
    assert spread_of([run_of(0, 0)] * 3, ()) == Spread(0, 0)
    layers = [Layer("a", 30, 60, 0, forward_spread_ns=12, backward_spread_ns=15)] * 2
    assert spread_of([run_of(8, 2), run_of(9, 1), run_of(9, 5)], layers) == Spread(0.2, 0.3)


def test_layers_that_are_not_the_whole_pass_are_warned_about() -> None:
    """Ten short layers, each held up in one of ten repetitions: medians know of none of them."""
    bare = [(10_100_000, 10_000_000)] * 10
    runs = [run_of(10_100_000, 10_000_000)] * 10
    said = warnings_of(linear(), bare, runs, None, [Layer("all", 1_900_000, 9_500_000, 0)])
    (text,) = (one for one in said if "sum to" in one)
    assert "forward pass sum to 1.9 ms, the whole pass took 10.1 ms" in text


def test_a_profile_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("planner.model.machine.processors", lambda: 1)
    monkeypatch.setattr("torch.get_num_threads", lambda: 2)
    marked = measured(linear())
    assert "2 threads on 1 processor" in marked.provenance.warnings[0]
