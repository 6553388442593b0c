"""All algorithms for the servers of one BCube, and the choice among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, NamedTuple

from planner.families.collectives.cost import Collective, Fabric
from planner.families.collectives.exchange import (
    bml_on,
    bml_program,
    direct_on,
    direct_program,
    groups_of,
    halving_doubling_bcube_program,
    halving_doubling_on,
    halving_doubling_program,
    hierarchical_bcube_program,
    hierarchical_on,
    hierarchical_program,
    routed_program,
)
from planner.families.collectives.program import Program
from planner.families.collectives.ring import ring_bcube_program, ring_on, ring_program
from planner.families.collectives.tensor_servers import tensors_on, tensors_program
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.methods import known_method

Tensors = Sequence[Any] | None


class Algorithm(NamedTuple):
    """The cost and the program of an algorithm, for a BCube's servers and their tensors."""

    cost: Callable[[BCube, Tensors], Collective]
    program: Callable[[BCube, Tensors], Program]


def _bcube(cost: Callable[[BCube], Collective], program: Callable[[BCube], Program]) -> Algorithm:
    return Algorithm(lambda bcube, _: cost(bcube), lambda bcube, _: program(bcube))


def _fattree(cost: Callable[[Fabric], Collective], program: Callable[[int], Program]) -> Algorithm:
    """Return an algorithm on a Fat-Tree with as many servers, and switches with as many ports."""
    return Algorithm(
        lambda bcube, _: cost(Fabric.beside(bcube)), lambda bcube, _: program(bcube.servers)
    )


def _tensors(*, balanced: bool) -> Algorithm:
    def given(tensors: Tensors) -> Sequence[Any]:
        if tensors is None:
            reason = "whole tensors cannot be placed without their sizes"
            raise NotApplicableError("tensors", reason)
        return tensors

    return Algorithm(
        lambda bcube, known: tensors_on(Fabric.beside(bcube), given(known), balanced=balanced),
        lambda bcube, known: tensors_program(given(known), bcube.servers, balanced=balanced),
    )


_ps, _shuffle = partial(direct_on, "ps"), partial(direct_on, "shuffle")

COLLECTIVES: Mapping[str, Algorithm] = MappingProxyType(
    {
        "bml_bcube": _bcube(bml_on, bml_program),
        "ps_bcube": _bcube(_ps, routed_program),
        "ring_bcube": _bcube(ring_on, ring_bcube_program),
        "shuffle_bcube": _bcube(_shuffle, routed_program),
        "halving_doubling_bcube": _bcube(halving_doubling_on, halving_doubling_bcube_program),
        "hierarchical_bcube": _bcube(hierarchical_on, hierarchical_bcube_program),
        "ring_fattree": _fattree(ring_on, ring_program),
        "ps_fattree": _fattree(_ps, direct_program),
        "hierarchical_fattree": Algorithm(
            lambda bcube, _: hierarchical_on(Fabric.beside(bcube)),
            lambda bcube, _: hierarchical_program(groups_of(Fabric.beside(bcube))),
        ),
        "halving_doubling_fattree": _fattree(halving_doubling_on, halving_doubling_program),
        "shuffle_fattree": _fattree(_shuffle, direct_program),
        "k_nics_fattree": Algorithm(
            lambda bcube, _: direct_on("k_nics", Fabric.beside(bcube, bcube.k)),
            lambda bcube, _: direct_program(bcube.servers, bcube.k),
        ),
        "ps_tensors_fattree": _tensors(balanced=False),
        "ps_tensors_greedy_fattree": _tensors(balanced=True),
    }
)
"""Each algorithm on each topology, for the servers and switch ports of a BCube."""


def program(name: str, bcube: BCube, *, tensors: Tensors = None) -> Program:
    """Return the program of an algorithm of `COLLECTIVES`, message by message.

    Parameters and errors are those of `collective`.
    """
    return COLLECTIVES[known_method(name, COLLECTIVES)].program(bcube, tensors)


def collective(name: str, bcube: BCube, *, tensors: Tensors = None) -> Collective:
    """Return the cost of an algorithm of `COLLECTIVES`; NotApplicableError if it does not apply.

    Parameters
    ----------
    name : str
        Name of the algorithm.
    bcube : BCube
        The servers and switches; a Fat-Tree has as many servers, and switches with as many ports.
    tensors : sequence of int, optional
        Bytes of each tensor, in order of creation, for the algorithms that place whole tensors.

    Raises
    ------
    InvalidInputError
        If the name is unknown (path ``method``), or the tensors have no bytes.
    """
    return COLLECTIVES[known_method(name, COLLECTIVES)].cost(bcube, tensors)


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


def choose(collectives: Iterable[Collective], network: Network, gradient_bytes: int) -> Collective:
    """Return the fastest algorithm; ties go to the one with the least hardware.

    Further ties go to fewer switches, then fewer NICs, fewer steps, and the name.

    Raises
    ------
    InvalidInputError
        If there are no algorithms, or a time does not fit in 63 bits.
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
