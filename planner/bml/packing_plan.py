"""Result of packing spanning trees in a BCube, and its load, in fractions."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from planner.bml.spanning import Port, Tree

__all__ = ["Packing", "load_of"]


@dataclass(frozen=True, slots=True)
class Packing:
    """Spanning trees of the living servers, each with its share of the gradient.

    The bound is proven by `prices`: it is the cost of a minimum spanning tree at these prices,
    divided by their sum.
    """

    trees: tuple[Tree, ...]
    weights: tuple[Fraction, ...]  # above 0, of sum 1
    load: Fraction  # largest load of a NIC in one direction, in gradients
    bound: Fraction  # lower bound on the load of every packing
    timed_out: bool
    prices: tuple[tuple[Port, int], ...] = ()  # 0 for NICs that are not named


def load_of(trees: Sequence[Tree], weights: Sequence[Fraction]) -> Fraction:
    """Return the largest load of a NIC: the sum of the weights of the hops that use it."""
    unit = lcm(*(weight.denominator for weight in weights))
    loads: dict[Port, int] = {}
    for tree, weight in zip(trees, weights, strict=True):
        share = weight.numerator * (unit // weight.denominator)
        for first, second, level in tree:
            loads[first, level] = loads.get((first, level), 0) + share
            loads[second, level] = loads.get((second, level), 0) + share
    return Fraction(max(loads.values(), default=0), unit)
