"""All algorithms for the servers of one BCube, and the choice among them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from planner.families.collectives.bml import bml_bcube, bml_program
from planner.families.collectives.cost import Collective, Fabric
from planner.families.collectives.exchange import (
    direct_program,
    k_nics_fattree,
    ps_bcube,
    ps_fattree,
    routed_program,
    shuffle_bcube,
    shuffle_fattree,
)
from planner.families.collectives.halving_doubling import (
    halving_doubling_bcube,
    halving_doubling_bcube_program,
    halving_doubling_fattree,
    halving_doubling_program,
)
from planner.families.collectives.hierarchical import (
    groups_of,
    hierarchical_bcube,
    hierarchical_bcube_program,
    hierarchical_fattree,
    hierarchical_program,
)
from planner.families.collectives.program import Program
from planner.families.collectives.ring import (
    ring_bcube,
    ring_bcube_program,
    ring_fattree,
    ring_program,
)
from planner.families.collectives.tensor_servers import (
    ps_tensors_fattree,
    ps_tensors_greedy_fattree,
    tensors_program,
)
from planner.model.errors import InvalidInputError, NotApplicableError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.solving.methods import known_method

Tensors = Sequence[Any] | None
Maker = Callable[[BCube, Tensors], Collective]
ProgramMaker = Callable[[BCube, Tensors], Program]


def _bcube(make: Callable[[BCube], Collective]) -> Maker:
    return lambda bcube, _: make(bcube)


def _fattree(make: Callable[[Fabric], Collective]) -> Maker:
    return lambda bcube, _: make(Fabric.beside(bcube))


def _placed(make: Callable[[Fabric, Sequence[Any]], Collective]) -> Maker:
    return lambda bcube, tensors: make(Fabric.beside(bcube), _given(tensors))


def _given(tensors: Tensors) -> Sequence[Any]:
    if tensors is None:
        raise NotApplicableError("tensors", "whole tensors cannot be placed without their sizes")
    return tensors


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
"""The cost of each algorithm on each topology, for the servers and switch ports of a BCube."""


def _flat(make: Callable[[int], Program]) -> ProgramMaker:
    return lambda bcube, _: make(bcube.servers)


def _tensors(*, balanced: bool) -> ProgramMaker:
    return lambda bcube, tensors: tensors_program(_given(tensors), bcube.servers, balanced=balanced)


PROGRAMS: Mapping[str, ProgramMaker] = MappingProxyType(
    {
        "bml_bcube": lambda bcube, _: bml_program(bcube),
        "ps_bcube": lambda bcube, _: routed_program(bcube),
        "ring_bcube": lambda bcube, _: ring_bcube_program(bcube),
        "shuffle_bcube": lambda bcube, _: routed_program(bcube),
        "halving_doubling_bcube": lambda bcube, _: halving_doubling_bcube_program(bcube),
        "hierarchical_bcube": lambda bcube, _: hierarchical_bcube_program(bcube),
        "ring_fattree": _flat(ring_program),
        "ps_fattree": _flat(direct_program),
        "hierarchical_fattree": lambda bcube, _: hierarchical_program(
            groups_of(Fabric.beside(bcube))
        ),
        "halving_doubling_fattree": _flat(halving_doubling_program),
        "shuffle_fattree": _flat(direct_program),
        "k_nics_fattree": lambda bcube, _: direct_program(bcube.servers, bcube.k),
        "ps_tensors_fattree": _tensors(balanced=False),
        "ps_tensors_greedy_fattree": _tensors(balanced=True),
    }
)
"""The program of each algorithm of `COLLECTIVES`."""


def program(name: str, bcube: BCube, *, tensors: Tensors = None) -> Program:
    """Return the program of an algorithm of `COLLECTIVES`, message by message.

    Parameters and errors are those of `collective`.
    """
    return PROGRAMS[known_method(name, PROGRAMS)](bcube, tensors)


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
    return COLLECTIVES[known_method(name, COLLECTIVES)](bcube, tensors)


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
