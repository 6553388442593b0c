"""Spanning trees of the surviving part of a BCube: plans made of trees, and minimum trees.

In a plan each piece has its own tree and share of the gradient. It travels up its tree to the root
and back down; a hop runs once all hops below it are done. There is one thread.

Guarantee: the root is a centre of the tree, so no other root needs fewer steps; of two centres the
smaller number is taken, so the same tree always has the same root.
Complexity: O(N log N) for a tree of N servers: each is removed once, the leaves of a step in order.
Source: own; that removing leaves ends at the centre is Jordan's, 1869.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import chain
from math import lcm
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from planner.families.bml.problem import Transfer
from planner.families.bml.reroute import Damage
from planner.families.bml.schedule import Schedule
from planner.families.collectives.layout import RangedLayout, by_shares
from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline, until_deadline

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


Port = tuple[int, int]
"""A server and a level."""

Edge = tuple[int, int, int]
"""Two servers and the level of the switch between them."""

Tree = tuple[Edge, ...]
"""The hops of a spanning tree of the living servers; no direction, no root."""


class Branch(NamedTuple):
    """One hop of a tree, from `sender` to its parent `receiver`."""

    step: int
    sender: int
    receiver: int
    level: int


class RootedTree(NamedTuple):
    """A spanning tree with its root and its hops by step."""

    root: int
    branches: tuple[Branch, ...]


def root_at_centre(hops: Sequence[Edge], deadline: Deadline = NEVER) -> RootedTree:
    """Return a tree of undirected hops (server, server, level), rooted where its height is least.

    All leaves are removed in each step until one server is left, the centre; of two, the smaller
    one stays. TimeUpError at the deadline.
    """
    around: dict[int, dict[int, int]] = defaultdict(dict)
    for first, second, level in until_deadline(hops, deadline):
        around[first][second] = level
        around[second][first] = level
    ends = until_deadline(around.items(), deadline)
    leaves = sorted(server for server, others in ends if len(others) == 1)
    branches = []
    step, left = 0, len(around)
    while left > 1:
        if left == 2:
            leaves = leaves[-1:]
        after = []
        for server in until_deadline(leaves, deadline):
            (above, level) = next(iter(around.pop(server).items()))
            branches.append(Branch(step, server, above, level))
            del around[above][server]
            if len(around[above]) == 1:
                after.append(above)
        left -= len(leaves)
        # A server without neighbours now is the centre.
        leaves = sorted(server for server in after if len(around[server]) == 1)
        step += 1
    return RootedTree(next(iter(around)), tuple(branches))


@dataclass(frozen=True)
class TreePlan:
    """Trees with their shares of the gradient.

    Parameters
    ----------
    bcube : BCube
        The topology.
    trees : tuple of RootedTree
        One for each piece.
    shares : tuple of Fraction
        The share of the gradient of each piece; they sum to 1.
    rounds : int
        Number of parts of each piece; each part is one step behind the one before.
    """

    bcube: BCube
    trees: tuple[RootedTree, ...]
    shares: tuple[Fraction, ...]
    rounds: int = 1
    left_out: tuple[int, ...] = field(default=(), init=False)

    @property
    def threads(self) -> int:
        """Number of threads: one, because trees share links."""
        return 1

    @property
    def pieces(self) -> int:
        """Number of pieces: one for each tree."""
        return len(self.trees)

    @cached_property
    def steps(self) -> int:
        """Steps of the aggregation: the height of the highest tree."""
        return max((branch.step + 1 for tree in self.trees for branch in tree.branches), default=0)

    @cached_property
    def branch_rows(self) -> "NDArray[np.int64]":
        """Step, sender, receiver, level and piece of every hop, shape (hops, 5), by step."""
        import numpy as np

        counts = [len(tree.branches) for tree in self.trees]
        values = chain.from_iterable(chain.from_iterable(tree.branches for tree in self.trees))
        hops = np.fromiter(values, np.int64, 4 * sum(counts)).reshape(-1, 4)
        rows = np.column_stack([hops, np.repeat(np.arange(len(counts)), counts)])
        ordered: NDArray[np.int64] = rows[np.argsort(rows[:, 0], kind="stable")]
        return ordered

    def rows_of_step(self, step: int) -> "NDArray[np.int64]":
        """Return the rows of `branch_rows` of one step."""
        first, end = self.branch_rows[:, 0].searchsorted([step, step + 1])
        return self.branch_rows[first:end]

    @cached_property
    def _by_end(self) -> "tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]":
        """The order of `branch_rows` by sender, and by receiver, and where each server begins."""
        servers = range(self.bcube.servers + 1)
        orders = [self.branch_rows[:, end].argsort(kind="stable") for end in (1, 2)]
        return tuple(
            (order, self.branch_rows[order, end].searchsorted(servers))
            for end, order in enumerate(orders, start=1)
        )

    def owner(self, thread: int, piece: int) -> int:  # there is one thread
        """Return the root of a piece's tree."""
        return self.trees[piece].root

    def layout(self, elements: int, element_bytes: int) -> RangedLayout:
        """Return the layout of the pieces of a gradient with this number of elements."""
        return by_shares(self.shares, elements, element_bytes)

    def transfers(self, server: int) -> Iterator[Transfer]:
        """Yield the transfers that a server sends, in the order of stages and steps."""
        up, down = (
            self.branch_rows[order[firsts[server] : firsts[server + 1]]].tolist()
            for order, firsts in self._by_end
        )
        for step, _, peer, level, piece in sorted(up, key=lambda row: (row[0], row[4])):
            yield Transfer(server, 0, "aggregate", step, level, peer, piece, 1)
        backward = ((self.steps - 1 - row[0], row[4], row[3], row[1]) for row in down)
        for step, piece, level, peer in sorted(backward):
            yield Transfer(server, 0, "broadcast", step, level, peer, piece, 1)

    def hops(self, thread: int, piece: int) -> "NDArray[np.int64]":
        """Return step, sender, receiver and level of a piece's transfers in the aggregation."""
        return self.branch_rows[self.branch_rows[:, 4] == piece, :4]


Plan: TypeAlias = Schedule | TreePlan
"""A plan of gradient synchronisation, as checked, priced and executed."""


def trees_of(plan: Plan, deadline: Deadline = NEVER) -> list[Tree]:
    """Return the tree of every piece in use, as undirected hops; TimeUpError at the deadline."""
    left_out = set(plan.left_out)
    in_use = (number for number in range(plan.threads * plan.pieces) if number not in left_out)
    trees: list[Tree] = []
    for number in in_use:
        deadline.check()
        rows = plan.hops(*divmod(number, plan.pieces))
        trees.append(tuple(map(tuple, rows[:, 1:].tolist())))
    return trees


def busiest_share(
    hops: "NDArray[np.int64]", shares: Sequence[Fraction], deadline: Deadline = NEVER
) -> Fraction:
    """Return the load of the busiest NIC in one direction: the shares of the hops that use it.

    `hops` are two servers, a level, and the number of their tree, whose share they carry.
    """
    import numpy as np

    if not len(hops):
        return Fraction(0)
    unit = lcm(*(share.denominator for share in shares))
    servers, levels = int(hops[:, :2].max()) + 1, int(hops[:, 2].max()) + 1
    # Shares sum to 1, and at most N-1 hops of a tree use one NIC.
    kind = np.int64 if unit * servers < 2**62 else object
    parts = np.array([int(share * unit) for share in shares], dtype=kind)
    carried = np.zeros((levels, servers), dtype=kind)
    for end in (0, 1):
        deadline.check()
        np.add.at(carried, (hops[:, 2], hops[:, end]), parts[hops[:, 3]])
    return Fraction(int(carried.max()), unit)


# ---
# Minimum spanning trees of the living servers.
#
# Problem: each NIC has a price; a hop between two servers on one switch costs the prices of its two
# NICs. Method: Kruskal's algorithm. On one switch a star around its cheapest NIC is a minimum
# spanning tree, and by the cycle rule no other hop is needed: n - 1 candidates a switch, not
# n(n - 1)/2. Hops of equal cost are taken from a root outwards, which keeps trees low; equal prices
# give a breadth-first tree. Guarantee: optimal, in integers; the same prices and root give the same
# tree. Complexity: O(k·N log(k·N)) time and memory. Source: Kruskal, "On the Shortest Spanning
# Subtree of a Graph and the Traveling Salesman Problem", Proceedings of the AMS 7(1), 1956.


class SurvivingNetwork:
    """The surviving part of a BCube: living servers, and NICs that reach another server.

    `servers` is ascending. `nics` are the usable NICs, by switch; arrays of prices and loads are in
    this order. `deadline` (TimeUpError) may be changed. The living servers are connected.
    """

    def __init__(self, damage: Damage) -> None:
        bcube, dead, down = damage.bcube, damage.dead, damage.down
        self.deadline = deadline = damage.deadline
        self.servers = [server for server in range(bcube.servers) if server not in dead]
        place = {server: number for number, server in enumerate(self.servers)}
        self.nics: list[Port] = []
        self._switches: list[range] = []
        for level in range(bcube.k):
            for switch in range(bcube.switches // bcube.k):
                deadline.check()
                plugged = [
                    (server, level)
                    for server in bcube.on_switch(level, switch)
                    if server not in dead and (server, level) not in down
                ]
                if plugged:  # two at least: a NIC alone on its switch is down
                    self._switches.append(range(len(self.nics), len(self.nics) + len(plugged)))
                    self.nics += plugged
        self._index = {
            nic: number for number, nic in enumerate(until_deadline(self.nics, deadline))
        }
        self._owner = [place[server] for server, _ in until_deadline(self.nics, deadline)]
        self._hanging: list[list[int]] = [[] for _ in until_deadline(self.servers, deadline)]
        for number, switch_nics in enumerate(self._switches):
            deadline.check()
            for nic in switch_nics:
                self._hanging[self._owner[nic]].append(number)
        self._distances: dict[int, list[int]] = {}

    def tree(
        self, prices: Sequence[int], root: int = 0, kept: Iterable[Edge] = ()
    ) -> tuple[Tree, int]:
        """Return a minimum spanning tree, its hops in order, and its cost.

        Among hops of equal price those nearest to `root`, a place in `servers`, come first. The
        hops of `kept` are taken before all others, except those that are unusable or close a cycle.
        """
        owner, distance = self._owner, self._distance_from(root)
        leader = list(range(len(self.servers)))
        taken = []
        for first, second, level in kept:
            hop = self._index.get((first, level)), self._index.get((second, level))
            if hop[0] is not None and hop[1] is not None:
                taken += _joined(leader, owner, hop[0], hop[1])
        candidates = []
        for switch in self._switches:
            self.deadline.check()
            hub = min(switch, key=lambda nic: (prices[nic], distance[owner[nic]]))
            near = distance[owner[hub]]
            candidates += [(prices[hub] + prices[nic], near, hub, nic) for nic in switch]
        candidates.sort()
        self.deadline.check()
        for _, _, hub, nic in until_deadline(candidates, self.deadline):
            taken += _joined(leader, owner, hub, nic)
        hops = (
            sorted((self.nics[a], self.nics[b])) for a, b in until_deadline(taken, self.deadline)
        )
        tree = tuple(sorted((first, second, level) for (first, level), (second, _) in hops))
        return tree, sum(prices[a] + prices[b] for a, b in taken)

    def degrees(self, tree: Tree) -> list[int]:
        """Return the number of hops of a tree that use each NIC."""
        result = [0] * len(self.nics)
        for first, second, level in until_deadline(tree, self.deadline):
            result[self._index[first, level]] += 1
            result[self._index[second, level]] += 1
        return result

    def _distance_from(self, root: int) -> list[int]:
        """Return the distance, in hops, from a server to each other server; -1 if unreachable."""
        known = self._distances.get(root)
        if known is not None:
            return known
        owner = self._owner
        distance = [-1] * len(self.servers)
        distance[root] = 0
        queue = [root]
        seen = [False] * len(self._switches)
        for server in until_deadline(queue, self.deadline):  # grows
            if len(queue) == len(distance):
                break
            further = distance[server] + 1
            for switch in self._hanging[server]:
                if seen[switch]:
                    continue  # all servers on it are at most as far
                seen[switch] = True
                self.deadline.check()
                for nic in self._switches[switch]:
                    if distance[owner[nic]] < 0:
                        distance[owner[nic]] = further
                        queue.append(owner[nic])
        return self._distances.setdefault(root, distance)


def _joined(leader: list[int], owner: list[int], nic: int, peer: int) -> list[tuple[int, int]]:
    """Join the servers of two NICs; return the hop, or nothing if it would close a cycle."""
    leader_of_nic, leader_of_peer = _find(leader, owner[nic]), _find(leader, owner[peer])
    if leader_of_nic == leader_of_peer:
        return []
    leader[leader_of_nic] = leader_of_peer
    return [(nic, peer)]


def _find(leader: list[int], member: int) -> int:
    while leader[member] != member:
        leader[member] = leader[leader[member]]
        member = leader[member]
    return member
