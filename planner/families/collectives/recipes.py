"""Algorithms by name: their costs, their programs, and recipes, as answers carry them.

A program of many ranks is long, but the name of its generator and a few numbers, its recipe,
determine it. `made` builds it again; `planner.families.bml.program` does so for programs around
failures.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import partial
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from planner.families.collectives.cost import Collective, Fabric
from planner.families.collectives.exchange import (
    bml_on,
    bml_program,
    direct_on,
    direct_program,
    halving_doubling_bcube_program,
    halving_doubling_on,
    halving_doubling_program,
    hierarchical_bcube_program,
    hierarchical_on,
    hierarchical_program,
    routed_program,
    tensors_on,
    tree_groups,
)
from planner.families.collectives.program import Program
from planner.families.collectives.rails import RAIL_PROGRAMS
from planner.families.collectives.ring import (
    bruck_program,
    ring_bcube_program,
    ring_on,
    ring_program,
)
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.topologies import BCube, Failures, Rails
from planner.model.validation import integer, one_of

MAX_RANKS = 2**16


class Recipe(NamedTuple):
    """The generator of a program, and its arguments.

    Attributes
    ----------
    generator : str
        A key of `GENERATORS`.
    shape : tuple of int
        Arguments: the number of ranks; group sizes, innermost first; n and k of a BCube; or hosts
        and accelerators per host.
    failed : Failures
        Failed parts of a BCube, for a program that avoids them (`planner.families.bml.program`).
    """

    generator: str
    shape: tuple[int, ...]
    failed: Failures = Failures()


_Place = int | tuple[int, ...] | BCube | Rails


class _Generator(NamedTuple):
    """How a shape is checked and read, and how the program of the result is made."""

    place: Callable[[tuple[int, ...]], _Place]
    make: Callable[[Any], Program]


def _numbers(shape: tuple[int, ...], count: int | None) -> tuple[int, ...]:
    if not shape or (count is not None and len(shape) != count):
        raise InvalidInputError("shape", f"expected {count or 'some'} numbers, got {len(shape)}")
    numbers = tuple(
        integer(number, f"shape[{place}]", minimum=1, maximum=MAX_RANKS)
        for place, number in enumerate(shape)
    )
    ranks = 1
    for number in numbers if count != 2 else ():
        ranks *= number
        if ranks > MAX_RANKS:
            raise InvalidInputError("shape", f"expected at most {MAX_RANKS} ranks, got more")
    return numbers


def _ranks(shape: tuple[int, ...]) -> int:
    return _numbers(shape, 1)[0]


def _bcube(shape: tuple[int, ...]) -> BCube:
    n, k = _numbers(shape, 2)
    _numbers((n,) * k, None)
    return BCube(n, k)


def _rails(shape: tuple[int, ...]) -> Rails:
    hosts, accelerators = _numbers(shape, 2)
    _numbers((hosts * accelerators,), 1)
    return Rails(hosts, accelerators, Fraction(1))


GENERATORS: Mapping[str, _Generator] = MappingProxyType(
    {
        "ring": _Generator(_ranks, ring_program),
        "halving_doubling": _Generator(_ranks, halving_doubling_program),
        "bruck": _Generator(_ranks, bruck_program),
        "direct": _Generator(_ranks, direct_program),
        "hierarchical": _Generator(partial(_numbers, count=None), hierarchical_program),
        "bml": _Generator(_bcube, bml_program),
        "ring_bcube": _Generator(_bcube, ring_bcube_program),
        "halving_doubling_bcube": _Generator(_bcube, halving_doubling_bcube_program),
        "hierarchical_bcube": _Generator(_bcube, hierarchical_bcube_program),
        "routed_bcube": _Generator(_bcube, routed_program),
        **{f"{name}_rails": _Generator(_rails, make) for name, make in RAIL_PROGRAMS.items()},
    }
)
"""The generators by name."""


def made(recipe: Recipe) -> Program:
    """Return the program of a recipe; recipes with failures are for `bml.replan`."""
    place, make = GENERATORS[one_of(recipe.generator, GENERATORS, "generator")]
    if recipe.failed:
        raise InvalidInputError("failed", f"{recipe.generator} knows no failures")
    return make(place(recipe.shape))


def ranks_of(recipe: Recipe) -> int:
    """Return the number of ranks of a recipe's program, without generating it."""
    place = GENERATORS[recipe.generator].place(recipe.shape)
    if isinstance(place, int | tuple):
        return place if isinstance(place, int) else prod(place)
    return place.servers


# ---
# All algorithms for the servers of one BCube, and the choice among them.

Tensors = Sequence[Any] | None


class Algorithm(NamedTuple):
    """The cost and the program of an algorithm, for a BCube's servers and their tensors."""

    cost: Callable[[BCube, Tensors], Collective]
    program: Callable[[BCube], Program] | None = None


def _on_bcube(
    cost: Callable[[BCube], Collective], program: Callable[[BCube], Program]
) -> Algorithm:
    return Algorithm(lambda bcube, _: cost(bcube), program)


def _on_fattree(
    cost: Callable[[Fabric], Collective], program: Callable[[int], Program]
) -> Algorithm:
    """Return an algorithm on a Fat-Tree with as many servers, and switches with as many ports."""
    return Algorithm(
        lambda bcube, _: cost(Fabric.of_bcube(bcube)), lambda bcube: program(bcube.servers)
    )


def _given(tensors: Tensors) -> Sequence[Any]:
    if tensors is None:
        reason = "whole tensors cannot be placed without their sizes"
        raise NotApplicableError("tensors", reason)
    return tensors


_ps, _shuffle = partial(direct_on, "ps"), partial(direct_on, "shuffle")

COLLECTIVES: Mapping[str, Algorithm] = MappingProxyType(
    {
        "bml_bcube": _on_bcube(bml_on, bml_program),
        "ps_bcube": _on_bcube(_ps, routed_program),
        "ring_bcube": _on_bcube(ring_on, ring_bcube_program),
        "shuffle_bcube": _on_bcube(_shuffle, routed_program),
        "halving_doubling_bcube": _on_bcube(halving_doubling_on, halving_doubling_bcube_program),
        "hierarchical_bcube": _on_bcube(hierarchical_on, hierarchical_bcube_program),
        "ring_fattree": _on_fattree(ring_on, ring_program),
        "ps_fattree": _on_fattree(_ps, direct_program),
        "hierarchical_fattree": Algorithm(
            lambda bcube, _: hierarchical_on(Fabric.of_bcube(bcube)),
            lambda bcube: hierarchical_program(
                tree_groups(bcube.servers, Fabric.of_bcube(bcube).tree)
            ),
        ),
        "halving_doubling_fattree": _on_fattree(halving_doubling_on, halving_doubling_program),
        "shuffle_fattree": _on_fattree(_shuffle, direct_program),
        "k_nics_fattree": Algorithm(
            lambda bcube, _: direct_on("k_nics", Fabric.of_bcube(bcube, bcube.k)),
            lambda bcube: direct_program(bcube.servers, bcube.k),
        ),
        "ps_tensors_fattree": Algorithm(
            lambda bcube, known: tensors_on(Fabric.of_bcube(bcube), _given(known))
        ),
    }
)
"""Each algorithm on each topology, for the servers and switch ports of a BCube."""


def program(name: str, bcube: BCube) -> Program:
    """Return the program of an algorithm of `COLLECTIVES`, message by message.

    Errors are those of `collective`; where whole tensors are placed, there is none.
    """
    make = COLLECTIVES[one_of(name, COLLECTIVES, "method")].program
    if make is None:
        raise NotApplicableError("method", f"{name} has a cost, but no program")
    return make(bcube)


def collective(name: str, bcube: BCube, *, tensors: Tensors = None) -> Collective:
    """Return the cost of an algorithm of `COLLECTIVES`; NotApplicableError if it does not apply.

    A Fat-Tree has as many servers as the BCube, and switches with as many ports. `tensors` are the
    bytes of each tensor, in order of creation, for the algorithm that places whole tensors.
    """
    return COLLECTIVES[one_of(name, COLLECTIVES, "method")].cost(bcube, tensors)


def compare(bcube: BCube, *, tensors: Tensors = None) -> tuple[Collective, ...]:
    """Return the costs of all algorithms that apply to the servers of a BCube.

    Parameters and errors are those of `collective`.
    """
    applicable = []
    for name in COLLECTIVES:
        try:
            applicable.append(collective(name, bcube, tensors=tensors))
        except NotApplicableError:
            continue
    return tuple(applicable)
