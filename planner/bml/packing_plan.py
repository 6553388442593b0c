"""A fractional packing of spanning trees in a BCube: what it is, and its load, in fractions."""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

from planner.bml.spanning import Port, Tree

__all__ = ["Packing", "load_of"]


@dataclass(frozen=True, slots=True)
class Packing:
    """Spanning trees of the living servers with the share of the gradient each carries.

    Attributes
    ----------
    trees : tuple of Tree
        Spanning trees; each share is summed along its tree and broadcast back along it.
    weights : tuple of Fraction
        Their shares, above 0, of sum 1.
    load : Fraction
        Largest load of a NIC in one direction, in gradients, for exactly these weights.
    bound : Fraction
        Proven bound on the load of every packing.
    timed_out : bool
        Whether the deadline cut in.
    prices : tuple of (Port, int)
        Proof of the bound: it is what a minimum spanning tree costs at these prices, divided by
        their sum. NICs which are not named have price 0.
    """

    trees: tuple[Tree, ...]
    weights: tuple[Fraction, ...]
    load: Fraction
    bound: Fraction
    timed_out: bool
    prices: tuple[tuple[Port, int], ...] = ()


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
