"""Problems of gradient synchronisation that mean nothing, or do not fit."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import Any

import pytest

from planner.families.bml import Failures, Problem, Schedule, solve
from planner.families.bml.problem import MAX_DAMAGED_NICS, MAX_LAYERS
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.test_solver import NET

SIZES: dict[str, tuple[Callable[[], object], str, str]] = {
    "one port": (lambda: BCube(1, 2), "n", "expected an integer >= 2, got 1"),
    "no level": (lambda: BCube(2, 0), "k", "expected an integer >= 1, got 0"),
    "a billion levels": (lambda: BCube(2, 10**9), "k", "at most 2^62 NICs"),
    "too many levels": (lambda: BCube(2, 57), "k", "at most 2^62 NICs"),
    "too many ports": (lambda: BCube(2**32, 2), "k", "at most 2^62 NICs"),
    "half a port": (lambda: BCube(2.5, 1), "n", "expected an integer >= 2"),  # type: ignore[arg-type]
    "no size": (lambda: Problem(BCube(2, 1), NET), "gradient_bytes", "missing"),
    "no layers": (lambda: Problem(BCube(2, 1), NET, layer_bytes=()), "gradient_bytes", "missing"),
    "less than nothing": (
        lambda: Problem(BCube(2, 1), NET, -1),
        "gradient_bytes",
        "expected an integer >= 0, got -1",
    ),
    "beyond 2^62": (
        lambda: Problem(BCube(2, 1), NET, 2**62 + 1),
        "gradient_bytes",
        "expected an integer <=",
    ),
    "a word": (
        lambda: Problem(BCube(2, 1), NET, "1"),  # type: ignore[arg-type]
        "gradient_bytes",
        "expected an integer >= 0, got '1'",
    ),
    "true": (lambda: Problem(BCube(2, 1), NET, True), "gradient_bytes", "got true"),
    "a bad layer": (
        lambda: Problem(BCube(2, 1), NET, layer_bytes=(1, -2)),
        "layer_bytes[1]",
        "expected an integer >= 0, got -2",
    ),
    "layers beyond 2^62": (
        lambda: Problem(BCube(2, 1), NET, layer_bytes=(2**62, 1)),
        "layer_bytes",
        "expected a sum <=",
    ),
    "too many layers": (
        lambda: Problem(BCube(2, 1), NET, layer_bytes=(1,) * (MAX_LAYERS + 1)),
        "layer_bytes",
        "expected at most 4096 layers, got 4097",
    ),
    "another sum": (
        lambda: Problem(BCube(2, 1), NET, 4, (1, 2)),
        "gradient_bytes",
        "expected the sum of layer_bytes (3), got 4",
    ),
    "no element": (
        lambda: Problem(BCube(2, 1), NET, 4, element_bytes=0),
        "element_bytes",
        "expected an integer >= 1, got 0",
    ),
    "a part of an element": (
        lambda: Problem(BCube(2, 1), NET, 6, element_bytes=4),
        "gradient_bytes",
        "expected a multiple of element_bytes (4), got 6",
    ),
    "a part of an element of a layer": (
        lambda: Problem(BCube(2, 1), NET, layer_bytes=(4, 6), element_bytes=4),
        "layer_bytes[1]",
        "expected a multiple of element_bytes (4), got 6",
    ),
    "too slow": (
        lambda: Problem(BCube(2, 1), Network(Fraction(1, 100)), 2**62),
        "link_bytes_per_s",
        "the time to send the gradient must fit in 63 bits",
    ),
}


def failing(**failed: Any) -> Callable[[], object]:
    return lambda: Problem(BCube(3, 2), NET, 9, failed=Failures(**failed))


FAILED: dict[str, tuple[Callable[[], object], str, str]] = {
    "a server beyond": (failing(servers={9}), "failed.servers", "expected an integer <= 8, got 9"),
    "a server below": (failing(servers={-1}), "failed.servers", "expected an integer >= 0, got -1"),
    "a server's name": (failing(servers={"a"}), "failed.servers", "got 'a'"),
    "true": (failing(servers={True}), "failed.servers", "got true"),
    "no pair": (failing(nics={3}), "failed.nics", "expected pairs, got 3"),
    "three": (failing(nics={(0, 0, 0)}), "failed.nics", "expected pairs"),
    "no such server": (failing(nics={(9, 0)}), "failed.nics", "expected an integer <= 8, got 9"),
    "no such level": (failing(nics={(0, 2)}), "failed.nics", "expected an integer <= 1, got 2"),
    "level of switch": (failing(switches={(2, 0)}), "failed.switches", "expected an integer <= 1"),
    "switch": (failing(switches={(0, 3)}), "failed.switches", "expected an integer <= 2, got 3"),
    "no set": (failing(servers=3), "servers", "expected a set, got 3"),
    "a string": (failing(nics="00"), "nics", "expected a set, got '00'"),
    "lists": (failing(nics=[[0, 1]]), "nics", "expected a set of integers or of pairs"),
    "too large a network": (
        lambda: Problem(BCube(2, 17), NET, 9, failed=Failures(frozenset({0}))),
        "failed",
        f"expected a network of at most {MAX_DAMAGED_NICS} NICs",
    ),
}
REFUSED = {**SIZES, **{f"failed: {name}": one for name, one in FAILED.items()}}


@pytest.mark.parametrize(("make", "path", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_what_means_nothing_is_refused(make: Callable[[], object], path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        make()
    assert error.value.path == path
    assert message in error.value.message


def test_lists_will_do() -> None:
    failed = Failures([0], [(1, 1)], [(0, 2)])  # type: ignore[arg-type]
    assert failed == Failures(frozenset({0}), frozenset({(1, 1)}), frozenset({(0, 2)}))
    assert failed
    assert not Failures()
    problem = Problem(BCube(3, 2), NET, layer_bytes=[1, 2])  # type: ignore[arg-type]
    assert (problem.layer_bytes, problem.size_bytes, problem.chunks) == ((1, 2), 3, (1, 2))
    assert Problem(BCube(3, 2), NET, 3).chunks == (3,)


def test_bad_requests() -> None:
    problem = Problem(BCube(2, 2), NET, 8)
    with pytest.raises(InvalidInputError, match="did you mean 'trees'") as error:
        solve(problem, method="tree")
    assert error.value.path == "method"
    with pytest.raises(InvalidInputError) as error:
        solve(problem, time_limit=0)
    assert error.value.path == "time_limit_s"


def test_times_beyond_63_bits_are_refused() -> None:
    """T_F just fits, and all start-up costs together do not."""
    problem = Problem(BCube(2, 3), Network(Fraction(10**9), 2**62), 8)
    with pytest.raises(InvalidInputError, match="the time must fit in 63 bits"):
        solve(problem)


def test_the_largest_of_all() -> None:
    network = Network(Fraction(2**62))
    result = solve(Problem(BCube(4, 3), network, 2**62))
    assert result.objective_ns is not None
    least = ceil(Fraction(2 * 63 * 10**9, 3 * 64))
    assert result.lower_bound_ns == least
    assert result.objective_ns - least <= 1  # pieces differ by a byte, links carry 2^62 a second
    for bcube in (BCube(2, 56), BCube(2**30, 2), BCube(2**62, 1)):
        assert solve(Problem(bcube, network, 2**62)).plan == Schedule(bcube)


def test_no_layers_are_a_tuple_whatever_they_came_as() -> None:
    given = Problem(BCube(2, 2), Network(Fraction(10**9)), 40, [])  # type: ignore[arg-type]
    assert {given} == {Problem(BCube(2, 2), Network(Fraction(10**9)), 40)}
