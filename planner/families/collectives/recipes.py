"""Recipes: the name of a program's generator and a few numbers, as answers carry them.

A program of many ranks is long, but its generator's name and shape determine it. `made` builds it
again; `planner.families.bml.program` does so for programs around failures.
"""

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from math import prod
from types import MappingProxyType
from typing import NamedTuple

from planner.families.collectives.bml import bml_program
from planner.families.collectives.bruck import bruck_program
from planner.families.collectives.exchange import direct_program, routed_program
from planner.families.collectives.halving_doubling import (
    halving_doubling_bcube_program,
    halving_doubling_program,
)
from planner.families.collectives.hierarchical import (
    hierarchical_bcube_program,
    hierarchical_program,
)
from planner.families.collectives.program import Program
from planner.families.collectives.rails import RAIL_PROGRAMS
from planner.families.collectives.ring import ring_bcube_program, ring_program
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


def _ranks(make: Callable[[int], Program], shape: tuple[int, ...]) -> Program:
    return make(*_numbers(shape, 1))


def _groups(shape: tuple[int, ...]) -> Program:
    return hierarchical_program(_numbers(shape, None))


def _bcube(make: Callable[[BCube], Program], shape: tuple[int, ...]) -> Program:
    n, k = _numbers(shape, 2)
    _numbers((n,) * k, None)
    return make(BCube(n, k))


def _rails(name: str, shape: tuple[int, ...]) -> Program:
    hosts, accelerators = _numbers(shape, 2)
    _numbers((hosts * accelerators,), 1)
    return RAIL_PROGRAMS[name](Rails(hosts, accelerators, Fraction(1)))


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


GENERATORS: Mapping[str, Callable[[tuple[int, ...]], Program]] = MappingProxyType(
    {
        "ring": partial(_ranks, ring_program),
        "halving_doubling": partial(_ranks, halving_doubling_program),
        "bruck": partial(_ranks, bruck_program),
        "direct": partial(_ranks, direct_program),
        "hierarchical": _groups,
        "bml": partial(_bcube, bml_program),
        "ring_bcube": partial(_bcube, ring_bcube_program),
        "halving_doubling_bcube": partial(_bcube, halving_doubling_bcube_program),
        "hierarchical_bcube": partial(_bcube, hierarchical_bcube_program),
        "routed_bcube": partial(_bcube, routed_program),
        **{f"{name}_rails": partial(_rails, name) for name in RAIL_PROGRAMS},
    }
)
"""The generators by name."""


def made(recipe: Recipe) -> Program:
    """Return the program of a recipe; recipes with failures are for `bml.replan`."""
    make = GENERATORS[known_method(recipe.generator, GENERATORS, "generator")]
    if recipe.failed:
        raise InvalidInputError("failed", f"{recipe.generator} knows no failures")
    return make(recipe.shape)


def ranks_of(recipe: Recipe) -> int:
    """Return the number of ranks of a recipe's program, without generating it."""
    generator, shape, _ = recipe
    if generator == "bml" or generator.endswith("_bcube"):
        n, k = _numbers(shape, 2)
        _numbers((n,) * k, None)
        return int(n**k)
    pairs = generator.endswith("_rails")
    return prod(_numbers(shape, 2 if pairs else None if generator == "hierarchical" else 1))
