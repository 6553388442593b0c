"""Strategies of inputs: costs, networks, graphs, profiles, clusters.

Numbers are small, with many ties and zeros, where algorithms go wrong. Drawn values shrink
towards few parts, no start-up and a byte a nanosecond.
"""

from fractions import Fraction

from hypothesis import strategies as st

from planner.model.clusters import Cluster, Nic
from planner.model.contention import Interference
from planner.model.costs import AffineCost, DepthCost, TableCost, TransferCost
from planner.model.graphs import Graph, Op, Parameter
from planner.model.layers import Layer
from planner.model.network import Network
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, FatTree, Rails, Switch, Topology

times = st.one_of(st.integers(0, 30), st.sampled_from([0, 0, 1, 7, 1000]))
"""Times (ns) and start-ups."""

sizes = st.one_of(st.integers(1, 30), st.sampled_from([1, 1, 4, 7, 100]))
"""Sizes (bytes) above 0."""

rates = st.builds(Fraction, st.integers(1, 9), st.integers(1, 4)).map(lambda rate: rate * 10**9)
"""Bandwidths (bytes/s): about a byte a nanosecond, whole and not."""


@st.composite
def affine_costs(draw: st.DrawFn) -> AffineCost:
    """Return a cost of a start-up and a time for each byte."""
    return AffineCost(draw(times), Fraction(draw(st.integers(0, 20)), draw(st.integers(1, 7))))


@st.composite
def table_costs(draw: st.DrawFn, *, rows: int = 5) -> TableCost:
    """Return a measured cost of up to `rows` sizes, in which more bytes may cost less."""
    known = sorted(draw(st.sets(st.integers(0, 120), min_size=2, max_size=rows)))
    heights = draw(st.lists(times, min_size=len(known), max_size=len(known)))
    heights[-1] = max(heights[-2:])
    return TableCost(tuple(zip(known, heights, strict=True)))


def costs() -> st.SearchStrategy[TransferCost]:
    """Return a strategy of costs of transfers, affine or measured."""
    return affine_costs() | table_costs()


@st.composite
def depth_costs(draw: st.DrawFn) -> DepthCost:
    """Return a cost of transfers that may be cut into chunks."""
    depths = [1, *sorted(draw(st.sets(st.integers(2, 8), max_size=2)))]
    return DepthCost(tuple((depth, draw(affine_costs() | table_costs())) for depth in depths))


@st.composite
def interferences(draw: st.DrawFn) -> Interference:
    """Return a contention of transfers and computation."""
    per_byte = Fraction(draw(st.integers(0, 12)), draw(st.integers(1, 5)))
    slowdown = Fraction(draw(st.integers(4, 12)), 4)
    return Interference(draw(times), per_byte, slowdown, draw(times))


def networks() -> st.SearchStrategy[Network]:
    """Return a strategy of links of one kind: bandwidth, start-up, and time to add up a byte."""
    adding = st.just(Fraction(0)) | st.fractions(min_value=0, max_value=9, max_denominator=9)
    return st.builds(Network, rates, times, adding)


@st.composite
def graphs(draw: st.DrawFn, *, ops: int = 4, parameters: int = 3) -> Graph:
    """Return a training step of up to `ops` ops a pass, whose order is not determined."""
    forward = [
        Op(f"f{index}", draw(times), "forward", after=(f"f{index - 1}",) if index else ())
        for index in range(draw(st.integers(1, ops)))
    ]
    backward: list[Op] = []
    for index in range(draw(st.integers(1, ops))):
        needed = [f"b{other}" for other in range(index) if draw(st.integers(0, 3)) == 0]
        backward.append(Op(f"b{index}", draw(times), "backward", after=("f0", *needed)))

    def some(known: list[Op]) -> tuple[str, ...]:
        chosen = st.lists(st.sampled_from(known), min_size=1, max_size=2, unique=True)
        return tuple(op.name for op in draw(chosen))

    made = [
        Parameter(f"p{index}", draw(sizes), updated_by=some(backward), read_by=some(forward))
        for index in range(draw(st.integers(1, parameters)))
    ]
    return Graph((*forward, *backward), tuple(made))


@st.composite
def profiles(draw: st.DrawFn, *, layers: int = 6) -> Profile:
    """Return a profile of up to `layers` layers, of which one has parameters at least."""
    row = st.builds(
        Layer,
        name=st.text(max_size=8),
        forward_ns=times,
        backward_ns=times,
        parameter_bytes=times,
        gradient_bytes=st.none() | times,
        activation_bytes=times,
    )
    some = st.lists(row, min_size=1, max_size=layers)
    made = draw(some.filter(lambda rows: any(layer.parameter_bytes for layer in rows)))
    return Profile(draw(st.text(max_size=8)), tuple(made), Provenance("synthetic", "drawn"))


@st.composite
def clusters(draw: st.DrawFn, *, machines: int = 9) -> Cluster:
    """Return a cluster of up to `machines` machines, of any topology."""
    count, topology = draw(_topologies(machines))
    per_machine = draw(st.integers(1, 3))
    if isinstance(topology, BCube):
        per_machine = topology.k
    elif isinstance(topology, Rails):
        per_machine = topology.accelerators
    nic = Nic(draw(rates), draw(times), per_machine, draw(st.sampled_from([0, 0, 2, 5])))
    return Cluster("drawn", "drawn", count, topology, nic)


@st.composite
def _topologies(draw: st.DrawFn, most: int) -> tuple[int, Topology]:
    kinds = ["switch", "fattree", "rails", *(["bcube"] if most > 1 else ())]
    kind = draw(st.sampled_from(kinds))
    if kind == "fattree":
        tree = FatTree(draw(st.sampled_from([2, 4])))
        return draw(st.integers(1, min(most, tree.servers))), tree
    if kind == "bcube":
        known = [(2, 1), (5, 1), (2, 2), (3, 2), (2, 3), (4, 2)]
        n, k = draw(st.sampled_from([(n, k) for n, k in known if n**k <= most]))
        return n**k, BCube(n, k)
    count = draw(st.integers(1, most))
    if kind == "switch":
        return count, Switch(count)
    return count, Rails(count, draw(st.integers(1, 4)), draw(rates) * 3, draw(times))
