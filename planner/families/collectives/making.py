"""Builds the `Collective` of an algorithm on a BCube or a Fat-Tree."""

from fractions import Fraction

from planner.families.collectives.cost import Collective, Fabric
from planner.model.errors import NotApplicableError
from planner.model.network import scattered
from planner.model.topologies import BCube


def on_bcube(
    algorithm: str, bcube: BCube, steps: int, volume: Fraction, reduced: Fraction | None = None
) -> Collective:
    """Return the algorithm on a BCube; by default a server adds (N-1)/N of the gradient."""
    return Collective(
        algorithm=algorithm,
        topology="bcube",
        servers=bcube.servers,
        nics=bcube.k,
        switches=bcube.switches,
        steps=steps,
        volume=volume,
        reduced=scattered(bcube.servers) if reduced is None else reduced,
    )


def on_fabric(
    algorithm: str,
    fabric: Fabric,
    steps: int,
    volume: Fraction,
    reduced: Fraction | None = None,
    *,
    many: bool = False,
) -> Collective:
    """Return the algorithm on a Fat-Tree; by default a server adds (N-1)/N of the gradient.

    Without `many` the algorithm is for one NIC per server: more NICs are a `NotApplicableError`.
    """
    if fabric.nics > 1 and not many:
        raise NotApplicableError(
            "nics", f"{algorithm} uses one NIC a server: k_nics is the one for {fabric.nics}"
        )
    return Collective(
        algorithm=algorithm,
        topology="fattree",
        servers=fabric.servers,
        nics=fabric.nics,
        switches=fabric.switches,
        tree=fabric.tree,
        steps=steps,
        volume=volume,
        reduced=scattered(fabric.servers) if reduced is None else reduced,
    )
