"""All algorithms side by side for the servers of one BCube, and the choice among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.collectives.bml import bml_bcube
from planner.collectives.collective import Collective
from planner.collectives.exchange import (
    k_nics_fattree,
    ps_bcube,
    ps_fattree,
    shuffle_bcube,
    shuffle_fattree,
)
from planner.collectives.fabric import Fabric
from planner.collectives.halving_doubling import halving_doubling_bcube, halving_doubling_fattree
from planner.collectives.hierarchical import hierarchical_bcube, hierarchical_fattree
from planner.collectives.ring import ring_bcube, ring_fattree
from planner.collectives.tensor_servers import ps_tensors_fattree, ps_tensors_greedy_fattree
from planner.errors import InvalidInputError, NotApplicableError
from planner.methods import known_method
from planner.network import Network
from planner.topologies import BCube

__all__ = ["COLLECTIVES", "choose", "collective", "compare"]

Tensors = Sequence[Any] | None
Maker = Callable[[BCube, Tensors], Collective]


def _bcube(make: Callable[[BCube], Collective]) -> Maker:
    return lambda bcube, _: make(bcube)


def _fattree(make: Callable[[Fabric], Collective]) -> Maker:
    return lambda bcube, _: make(Fabric.beside(bcube))


def _placed(make: Callable[[Fabric, Iterable[Any]], Collective]) -> Maker:
    def made(bcube: BCube, tensors: Tensors) -> Collective:
        if tensors is None:
            raise NotApplicableError(
                "tensors", "whole tensors cannot be placed without their sizes"
            )
        return make(Fabric.beside(bcube), tensors)

    return made


COLLECTIVES: Mapping[str, Maker] = MappingProxyType(
    {
        "bml_bcube": _bcube(bml_bcube),
        "ps_bcube": _bcube(ps_bcube),
        "ring_bcube": _bcube(ring_bcube),
        "shuffle_bcube": _bcube(shuffle_bcube),
        "halving_doubling_bcube": _bcube(halving_doubling_bcube),
        "hierarchical_bcube": _bcube(hierarchical_bcube),
        "ring_fattree": _fattree(ring_fattree),
        "ps_fattree": _fattree(ps_fattree),
        "hierarchical_fattree": _fattree(hierarchical_fattree),
        "halving_doubling_fattree": _fattree(halving_doubling_fattree),
        "shuffle_fattree": _fattree(shuffle_fattree),
        "k_nics_fattree": lambda bcube, _: k_nics_fattree(Fabric.beside(bcube, bcube.k)),
        "ps_tensors_fattree": _placed(ps_tensors_fattree),
        "ps_tensors_greedy_fattree": _placed(ps_tensors_greedy_fattree),
    }
)
"""Each algorithm on each topology, by its name, for the servers and the switches of a BCube."""


def collective(name: str, bcube: BCube, *, tensors: Tensors = None) -> Collective:
    """Return one algorithm of `COLLECTIVES`; it raises NotApplicableError if it cannot be used.

    Parameters
    ----------
    name : str
        Its name.
    bcube : BCube
        Its servers and switches; a Fat-Tree has as many servers, and switches with as many ports.
    tensors : sequence of int, optional
        Bytes of each tensor, in order of creation, for the algorithms that place whole ones.

    Raises
    ------
    InvalidInputError
        If the name is unknown (path ``method``), or the tensors are none.
    """
    return COLLECTIVES[known_method(name, COLLECTIVES)](bcube, tensors)


def compare(bcube: BCube, *, tensors: Tensors = None) -> tuple[Collective, ...]:
    """Return every algorithm that can be used for the servers of a BCube.

    Parameters and errors are those of `collective`.
    """
    applicable = []
    for name in COLLECTIVES:
        try:
            applicable.append(collective(name, bcube, tensors=tensors))
        except NotApplicableError:
            continue
    return tuple(applicable)


def choose(collectives: Iterable[Collective], network: Network, gradient_bytes: int) -> Collective:
    """Return the fastest; of equally fast ones the one with the least hardware.

    Ties go to fewer switches, then fewer NICs, fewer steps, and the name.

    Raises
    ------
    InvalidInputError
        If there is none, or a time does not fit in 63 bits.
    """
    best = min(
        collectives,
        key=lambda candidate: (
            candidate.time_ns(network, gradient_bytes),
            candidate.switches,
            candidate.nics,
            candidate.steps,
            candidate.name,
        ),
        default=None,
    )
    if best is None:
        raise InvalidInputError("collectives", "expected at least one, got none")
    return best
