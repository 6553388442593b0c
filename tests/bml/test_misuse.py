"""Problems of gradient synchronisation that mean nothing, or do not fit."""

from collections.abc import Callable
from fractions import Fraction
from math import ceil
from typing import Any

import numpy as np
import pytest

from planner.families.bml import Failures, Problem, Schedule, solve
from planner.families.bml.problem import MAX_DAMAGED_NICS, MAX_LAYERS
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.topologies import BCube
from tests.bml.plans import NET

Make = Callable[[], object]


def cube(n: Any, k: int) -> Make:
    return lambda: BCube(n, k)


def problem(size: Any = None, *, network: Network = NET, **fields: Any) -> Make:
    return lambda: Problem(BCube(2, 1), network, size, **fields)


def failing(**failed: Any) -> Make:
    return lambda: Problem(BCube(3, 2), NET, 9, failed=Failures(**failed))


def asking(**options: Any) -> Make:
    return lambda: solve(Problem(BCube(2, 2), NET, 8), **options)


@pytest.mark.parametrize(
    ("make", "path", "message"),
    [
        (cube(1, 2), "n", "expected an integer >= 2, got 1"),
        (cube(2, 0), "k", "expected an integer >= 1, got 0"),
        (cube(2, 10**9), "k", "at most 2^62 NICs"),
        (cube(2, 57), "k", "at most 2^62 NICs"),
        (cube(2**32, 2), "k", "at most 2^62 NICs"),
        (cube(2.5, 1), "n", "expected an integer >= 2"),
        (problem(), "gradient_bytes", "missing"),
        (problem(layer_bytes=()), "gradient_bytes", "missing"),
        (problem(-1), "gradient_bytes", "expected an integer >= 0, got -1"),
        (problem(2**62 + 1), "gradient_bytes", "expected an integer <="),
        (problem("1"), "gradient_bytes", "expected an integer >= 0, got '1'"),
        (problem(True), "gradient_bytes", "got true"),
        (problem(layer_bytes=(1, -2)), "layer_bytes[1]", "expected an integer >= 0, got -2"),
        (problem(layer_bytes=(2**62, 1)), "layer_bytes", "expected a sum <="),
        (problem(layer_bytes=(1,) * (MAX_LAYERS + 1)), "layer_bytes", "4096 layers, got 4097"),
        (problem(4, layer_bytes=(1, 2)), "gradient_bytes", "sum of layer_bytes (3), got 4"),
        (problem(4, element_bytes=0), "element_bytes", "expected an integer >= 1, got 0"),
        (problem(6, element_bytes=4), "gradient_bytes", "multiple of element_bytes (4), got 6"),
        (
            problem(layer_bytes=(4, 6), element_bytes=4),
            "layer_bytes[1]",
            "element_bytes (4), got 6",
        ),
        (
            problem(2**62, network=Network(Fraction(1, 100))),
            "link_bytes_per_s",
            "the time to send the gradient must fit in 63 bits",
        ),
        (failing(servers={9}), "failed.servers", "expected an integer <= 8, got 9"),
        (failing(servers={-1}), "failed.servers", "expected an integer >= 0, got -1"),
        (failing(servers={"a"}), "failed.servers", "got 'a'"),
        (failing(servers={True}), "failed.servers", "got true"),
        (failing(nics={3}), "failed.nics", "expected pairs, got 3"),
        (failing(nics={(0, 0, 0)}), "failed.nics", "expected pairs"),
        (failing(nics={(9, 0)}), "failed.nics", "expected an integer <= 8, got 9"),
        (failing(nics={(0, 2)}), "failed.nics", "expected an integer <= 1, got 2"),
        (failing(switches={(2, 0)}), "failed.switches", "expected an integer <= 1"),
        (failing(switches={(0, 3)}), "failed.switches", "expected an integer <= 2, got 3"),
        (failing(servers=3), "servers", "expected a set, got 3"),
        (failing(nics="00"), "nics", "expected a set, got '00'"),
        (failing(nics=[[0, 1]]), "nics", "expected a set of integers or of pairs"),
        (
            lambda: Problem(BCube(2, 17), NET, 9, failed=Failures(frozenset({0}))),
            "failed",
            f"expected a network of at most {MAX_DAMAGED_NICS} NICs",
        ),
        (asking(method="tree"), "method", "did you mean 'trees'"),
        (asking(time_limit=0), "time_limit_s", "expected"),
        (  # T_F just fits, and all start-up costs together do not
            lambda: solve(Problem(BCube(2, 3), Network(Fraction(10**9), 2**62), 8)),
            "latency_ns",
            "the time must fit in 63 bits",
        ),
    ],
)
def test_what_means_nothing_is_refused(make: Make, path: str, message: str) -> None:
    with pytest.raises(InvalidInputError) as error:
        make()
    assert error.value.path == path
    assert message in error.value.message


def test_lists_will_do() -> None:
    failed = Failures([0], [(1, 1)], [(0, 2)])  # type: ignore[arg-type]
    assert failed == Failures(frozenset({0}), frozenset({(1, 1)}), frozenset({(0, 2)}))
    assert failed
    assert not Failures()
    layers = Problem(BCube(3, 2), NET, layer_bytes=[1, 2])  # type: ignore[arg-type]
    assert (layers.layer_bytes, layers.size_bytes, layers.chunks) == ((1, 2), 3, (1, 2))
    one = Problem(BCube(3, 2), NET, 3, [])  # type: ignore[arg-type]
    assert {one} == {Problem(BCube(3, 2), NET, 3)}
    assert one.chunks == (3,)


def test_the_largest_of_all() -> None:
    network = Network(Fraction(2**62))
    result = solve(Problem(BCube(4, 3), network, 2**62))
    assert result.objective_ns is not None
    least = ceil(Fraction(2 * 63 * 10**9, 3 * 64))
    assert result.lower_bound_ns == least
    assert result.objective_ns - least <= 1  # pieces differ by a byte, links carry 2^62 a second
    for bcube in (BCube(2, 56), BCube(2**30, 2), BCube(2**62, 1)):
        assert solve(Problem(bcube, network, 2**62)).plan == Schedule(bcube)


def test_failed_parts_are_python_s_integers() -> None:
    servers: Any = {np.int64(2)}
    nics: Any = {(np.int32(1), np.int64(0))}
    given = Failures(servers, nics)
    assert repr(given) == "Failures(servers=[2], nics=[(1, 0)], switches=[])"
    assert given == Failures(frozenset({2}), frozenset({(1, 0)}))
