"""Recipes: the name of a program's generator and a few numbers, as answers carry them.

A program of many ranks is long, but its generator's name and shape determine it. `made` builds it
again; `planner.families.bml.program` does so for programs around failures.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from math import prod
from types import MappingProxyType
from typing import Any, NamedTuple

from planner.families.collectives.exchange import (
    bml_program,
    direct_program,
    halving_doubling_bcube_program,
    halving_doubling_program,
    hierarchical_bcube_program,
    hierarchical_program,
    routed_program,
)
from planner.families.collectives.program import Program
from planner.families.collectives.rails import RAIL_PROGRAMS
from planner.families.collectives.ring import bruck_program, ring_bcube_program, ring_program
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube, Failures, Rails
from planner.model.validation import integer
from planner.solving.methods import known_method

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
    """What a shape describes, checked, and the program of that."""

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


def _groups(shape: tuple[int, ...]) -> tuple[int, ...]:
    return _numbers(shape, None)


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
        "hierarchical": _Generator(_groups, hierarchical_program),
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
    place, make = GENERATORS[known_method(recipe.generator, GENERATORS, "generator")]
    if recipe.failed:
        raise InvalidInputError("failed", f"{recipe.generator} knows no failures")
    return make(place(recipe.shape))


def ranks_of(recipe: Recipe) -> int:
    """Return the number of ranks of a recipe's program, without generating it."""
    place = GENERATORS[recipe.generator].place(recipe.shape)
    if isinstance(place, int | tuple):
        return place if isinstance(place, int) else prod(place)
    return place.servers
