"""Minimum spanning trees of the surviving part of a BCube.

Problem: each NIC has a price; a hop between two servers on one switch costs the prices of its two
NICs. Find a minimum spanning tree of the living servers.
Method: Kruskal's algorithm. On one switch a star around its cheapest NIC is a minimum spanning
tree, and by the cycle rule no other hop is needed: n - 1 candidates a switch, not n(n - 1)/2. Hops
of equal cost are taken from a root outwards, which keeps trees low; equal prices give a
breadth-first tree.

Guarantee: optimal, in integers; the same prices and root give the same tree.
Complexity: O(k·N log(k·N)) time and memory. Source: Kruskal, "On the Shortest Spanning Subtree of a
Graph and the Traveling Salesman Problem", Proceedings of the AMS 7(1), 1956.
"""

from collections.abc import Iterable, Sequence

from planner.model.topologies import BCube
from planner.solving.deadline import NEVER, Deadline, watched

Port = tuple[int, int]
"""A server and a level."""

Edge = tuple[int, int, int]
"""Two servers and the level of the switch between them."""

Tree = tuple[Edge, ...]
"""The hops of a spanning tree of the living servers; no direction, no root."""


class SurvivingNetwork:
    """The surviving part of a BCube: living servers, and NICs that reach another server.

    `servers` is ascending. `nics` are the usable NICs, by switch; arrays of prices and loads are in
    this order. `deadline` (TimeUpError) may be changed. ValueError if no server lives, or if the
    servers are not connected.
    """

    __slots__ = (
        "_distances",
        "_hanging",
        "_index",
        "_owner",
        "_switches",
        "deadline",
        "nics",
        "servers",
    )

    def __init__(
        self,
        bcube: BCube,
        dead: frozenset[int],
        down: frozenset[Port],
        deadline: Deadline = NEVER,
    ) -> None:
        self.deadline = deadline
        self.servers = [server for server in range(bcube.servers) if server not in dead]
        if not self.servers:
            raise ValueError("no server is alive")
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
                if len(plugged) > 1:  # a NIC alone on its switch reaches nobody
                    first = len(self.nics)
                    self.nics += plugged
                    self._switches.append(range(first, len(self.nics)))
        self._index = {nic: number for number, nic in enumerate(watched(self.nics, deadline))}
        self._owner = [place[server] for server, _ in watched(self.nics, deadline)]
        self._hanging: list[list[int]] = [[] for _ in watched(self.servers, deadline)]
        for number, switch_nics in enumerate(self._switches):
            deadline.check()
            for nic in switch_nics:
                self._hanging[self._owner[nic]].append(number)
        self._distances: dict[int, list[int]] = {}
        if -1 in self._distance_from(0):
            raise ValueError("the failures cut the network into parts")

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
        for _, _, hub, nic in watched(candidates, self.deadline):
            taken += _joined(leader, owner, hub, nic)
        hops = (sorted((self.nics[a], self.nics[b])) for a, b in watched(taken, self.deadline))
        tree = tuple(sorted((first, second, level) for (first, level), (second, _) in hops))
        return tree, sum(prices[a] + prices[b] for a, b in taken)

    def degrees(self, tree: Tree) -> list[int]:
        """Return the number of hops of a tree that use each NIC."""
        result = [0] * len(self.nics)
        for first, second, level in watched(tree, self.deadline):
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
        for server in watched(queue, self.deadline):  # grows
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
