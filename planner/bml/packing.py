"""All-reduce on a damaged BCube at the smallest load: a fractional packing of spanning trees.

Problem: some servers are dead, some NICs of living ones are down. The gradient is cut into shares;
each is summed over the living servers along a spanning in-tree and broadcast back along an
out-tree. A hop on a level joins two servers on one switch of it, and loads the sender's NIC
outwards and the receiver's inwards. NICs are equally fast and full duplex, switches do not block.
Minimise the largest load of a NIC in a direction, in units of the whole gradient: in the
bandwidth (pipelined) model, times T_F, that is how long the all-reduce takes.

Undirected trees are enough. Run a plan backwards: broadcasts become sums and sums broadcasts, and
each NIC's loads in and out change places. Half of each share by the plan and half by its reverse
then loads each NIC, both ways, with the mean of its loads in and out, which is no more than their
maximum; a share's in-tree and out-tree of the plan now carry half of it each, there and back. So
there is an optimum in which every broadcast is the reverse of its sum. A hop then loads both its
NICs once in each direction, whatever the root: give trees i weights w_i ≥ 0 with sum 1, and
minimise T = max over NICs e of Σ_i w_i·deg_i(e).

Bound: for any prices y ≥ 0 of NICs, T·Σ_e y_e ≥ Σ_e y_e·Σ_i w_i·deg_i(e) = Σ_i w_i·cost_i, where a
hop costs the prices of its two NICs; so T ≥ (cost of a minimum spanning tree) / (sum of prices).
Linear programming duality says that the best prices reach T. Prices of 1 everywhere give
2(N'-1) / (usable NICs), of 1 at one server only, 1 / (its usable NICs).

Method: column generation. A master program, over the trees so far, answers weights and prices; a
minimum spanning tree for these prices is the tree it lacks most, and gives a bound. As the master's
prices jump about, more trees are sought at their mean with the prices of the best bound (Wentges
smoothing), each at prices raised where the one before it goes. The first trees are BML's, mended.
All prices are integers before a tree is sought, so every bound is an exact fraction. When load and
bound have met, the last master's vertex is solved again in fractions. Floating point only decides
where to look.

Guarantee: load and bound are exact for the weights and prices answered. Without a deadline the
load is at most 1 + 1e-9 times the bound, or what the LP solver's tolerance allows; it is the bound
itself whenever the vertex can be solved, as it could in every case tried.

Complexity: O(k·N log(k·N)) a tree; a master program has k·N rows, and mostly fewer than ten are
solved; memory O(k·N) a tree, with k·N to 2k·N trees.

Source: Edmonds, "Edge-Disjoint Branchings", 1973, and Tutte and Nash-Williams, 1961, for packings
of trees; Wentges, "Weighted Dantzig-Wolfe Decomposition for Linear Mixed-Integer Programming",
International Transactions in Operational Research 4(2), 1997; BML's trees are those of Wang et al.,
"BML", NeurIPS 2018, section 3.2. The model on NICs is ours.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from math import inf, lcm
from typing import TYPE_CHECKING

from planner.bml.packing_plan import Packing, load_of
from planner.bml.rationals import solve_exactly
from planner.bml.spanning import Edge, Port, SurvivingNetwork, Tree
from planner.deadline import NEVER, Deadline, TimeUpError
from planner.topologies import BCube

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

__all__ = ["Packing", "Tree", "few_trees", "load_of", "pack"]

GAP = 1e-9
"""Relative distance of load and bound at which the search ends."""

SMOOTHING = 0.5
"""Share of the prices of the best bound in the prices at which trees are sought."""

RAISE = 0.3
"""How much dearer a tree makes the NIC it uses most, for the next tree of its round."""

STEPS = 4
"""Prices at which trees are sought, but the master's own, are rounded to this part of their mean:
many are equal then, and hops at equal prices are taken so that the tree is low."""

DENOMINATOR = 10**5
"""Largest denominator at which a number of the LP is taken for the fraction it is next to."""

TINY = 1e-9
"""Weights up to this are taken for 0."""

SCALE = 2**40
"""Prices and weights that are no such fractions are multiples of about 1/SCALE."""


def pack(
    bcube: BCube,
    dead: frozenset[int],
    down: frozenset[Port],
    deadline: Deadline,
    *,
    start: Sequence[Tree] = (),
    last: Deadline = NEVER,
) -> Packing:
    """Return the packing of least load, or the best one found by the deadline, with its bound.

    Parameters
    ----------
    bcube : BCube
        The network without failures.
    dead : frozenset of int
        Servers that have failed.
    down : frozenset of (int, int)
        NICs (server, level) of living servers that have failed.
    deadline : Deadline
        When to stop.
    start : sequence of Tree, optional
        Trees to begin with, instead of BML's; what cannot be used of them is mended.
    last : Deadline
        When to give up even if there is none yet.

    Raises
    ------
    TimeUpError
        At the last deadline.
    ValueError
        If no server lives, or some living ones cannot reach each other.
    """
    network = SurvivingNetwork(bcube, dead, down, last)
    if len(network.servers) == 1:
        return Packing(((),), (Fraction(1),), Fraction(0), Fraction(0), timed_out=False)
    search = _Search(network)
    search.begin(start or _bml_trees(bcube, network.servers), deadline)
    return search.run(deadline)


def few_trees(
    bcube: BCube,
    dead: frozenset[int],
    down: frozenset[Port],
    count: int,
    deadline: Deadline,
    *,
    last: Deadline = NEVER,
) -> Packing:
    """Return so many trees, one after the other the cheapest where a NIC costs what it carries.

    For networks that are too large for the linear program; `count` times a minimum spanning tree,
    or as many as there is time for. Other parameters and errors are those of `pack`.
    """
    search = _Search(SurvivingNetwork(bcube, dead, down, last))
    search.begin((), deadline)  # the simple bounds
    used = [0] * len(search.network.nics)
    taken: Counter[Tree] = Counter()
    with suppress(TimeUpError):
        while taken.total() < count and not (taken and deadline.passed):
            tree, _ = search.network.tree(used, search.next_root())
            degrees = search.network.degrees(tree)
            taken[tree] += 1
            used = [a + b for a, b in zip(used, degrees, strict=True)]
            search.network.deadline = deadline  # one must be made, further ones need not
    if not taken:
        raise TimeUpError
    shares = tuple(Fraction(times, taken.total()) for times in taken.values())
    load = Fraction(max(used), taken.total())
    stopped = taken.total() < count and load > search.bound
    return Packing(tuple(taken), shares, load, search.bound, stopped, search.prices())


def _bml_trees(bcube: BCube, roots: Sequence[int]) -> Iterator[list[Edge]]:
    """Yield BML's in-trees: for thread t, digits are corrected at levels t, t+1, … (mod k)."""
    for root in roots:
        for thread in range(bcube.k):
            levels = [(thread + step) % bcube.k for step in range(bcube.k)]
            hops = []
            for server in range(bcube.servers):
                for level in levels:
                    parent = bcube.with_digit(server, level, bcube.digit(root, level))
                    if parent != server:
                        hops.append((server, parent, level))
                        break
            yield hops


class _Search:
    """Trees so far with their degrees, the best weights for them, and the best bound."""

    def __init__(self, network: SurvivingNetwork) -> None:
        self.network = network
        self.columns: dict[Tree, list[int]] = {}
        self.weights: list[float] = []
        self.load = inf
        self.bound = Fraction(0)
        self.proof: list[int] = []
        self._root = 0

    def begin(self, start: Iterable[Iterable[Edge]], deadline: Deadline) -> None:
        """Take the first trees, mended where NICs are least used, and the two simple bounds."""
        network = self.network
        usable: dict[int, list[int]] = {}
        for number, (server, _) in enumerate(network.nics):
            usable.setdefault(server, []).append(number)
        fewest = min(usable.values(), key=len)
        self.price([1] * len(network.nics))
        self.price([int(number in fewest) for number in range(len(network.nics))])
        used = [0] * len(network.nics)
        for hops in start:
            tree, _ = network.tree(used, self.next_root(), hops)
            used = [a + b for a, b in zip(used, self.add(tree), strict=True)]
            if deadline.passed:
                break

    def run(self, deadline: Deadline) -> Packing:
        """Alternate between weights and trees until load and bound meet, or time is up."""
        met = False
        while not (met or deadline.passed):
            prices = self.master(deadline)
            if prices is None:
                break
            known = len(self.columns)
            self.add(self.price(_small_integers(prices)))
            met = self.load <= float(self.bound) * (1 + GAP)
            if not met:
                self.spread(prices, deadline)
                # No new tree: the rest is the LP solver's tolerance.
                met = len(self.columns) == known and not deadline.passed
        trees, weights = self.answer(deadline, exactly=met)
        load = load_of(trees, weights)
        return Packing(
            trees=tuple(trees),
            weights=tuple(weights),
            load=load,
            bound=self.bound,
            timed_out=deadline.passed and load > self.bound,
            prices=self.prices(),
        )

    def prices(self) -> tuple[tuple[Port, int], ...]:
        """Return the proof of the bound."""
        priced = zip(self.network.nics, self.proof, strict=True)
        return tuple((nic, price) for nic, price in priced if price)

    def master(self, deadline: Deadline) -> "NDArray[np.float64] | None":
        """Find the best weights of the trees so far, and their load; return the NICs' prices.

        None, and the weights stand, if the time was up before.
        """
        import numpy as np
        from scipy.optimize import linprog

        degrees = np.array(list(self.columns.values()), dtype=float).T
        nics, trees = degrees.shape
        left = deadline.remaining_s
        answer = linprog(
            np.append(np.zeros(trees), 1.0),
            A_ub=np.column_stack([degrees, -np.ones(nics)]),
            b_ub=np.zeros(nics),
            A_eq=np.append(np.ones(trees), 0.0)[np.newaxis],
            b_eq=[1.0],
            method="highs",
            options={} if left is None else {"time_limit": left},
        )
        if answer.status != 0:
            return None
        self.weights, self.load = answer.x[:-1].tolist(), float(answer.fun)
        prices: NDArray[np.float64] = np.maximum(-answer.ineqlin.marginals, 0.0)
        return prices

    def price(self, prices: list[int]) -> Tree:
        """Return a tree that is cheapest at these prices, and keep the bound if it is better."""
        tree, cost = self.network.tree(prices, self.next_root())
        bound = Fraction(cost, sum(prices))
        if bound > self.bound:
            self.bound, self.proof = bound, prices
        return tree

    def add(self, tree: Tree) -> list[int]:
        """Take a tree; return its degrees."""
        return self.columns.setdefault(tree, self.network.degrees(tree))

    def spread(self, prices: "NDArray[np.float64]", deadline: Deadline) -> None:
        """Take a few trees that are cheap near the master's prices, and differ."""
        import numpy as np

        proof = np.array(self.proof, dtype=float)
        prices = SMOOTHING * proof / proof.sum() + (1 - SMOOTHING) * prices
        for _ in range(max(4, len(self.network.servers) // 4)):
            if deadline.passed:
                break
            coarse = (prices * (STEPS / prices.mean())).round().astype(int).tolist()
            degrees = np.array(self.add(self.price(coarse)), dtype=float)
            # The last term is for NICs whose price is 0.
            prices = prices * (1 + RAISE * degrees / degrees.max()) + 1e-6 * degrees / degrees.size
            prices /= prices.sum()

    def answer(self, deadline: Deadline, *, exactly: bool) -> tuple[list[Tree], list[Fraction]]:
        """Return the trees that carry something, and what; equal shares if nothing is known yet."""
        trees = list(self.columns)
        carried = [number for number, weight in enumerate(self.weights) if weight > TINY]
        if not carried:
            return trees, [Fraction(1, len(trees))] * len(trees)
        trees = [trees[number] for number in carried]
        weights = [self.weights[number] for number in carried]
        near = _near(weights)
        if sum(near) == 1 and load_of(trees, near) == self.bound:
            return trees, near
        vertex = self.vertex(trees, weights, deadline) if exactly else None
        if vertex is not None:
            return trees, vertex
        parts = [round(weight * SCALE) for weight in weights]
        return trees, [Fraction(part, sum(parts)) for part in parts]

    def vertex(
        self, trees: list[Tree], weights: list[float], deadline: Deadline
    ) -> list[Fraction] | None:
        """Return the weights with which all NICs that seem to have the largest load do have it."""
        import numpy as np

        degrees = np.array([self.columns[tree] for tree in trees]).T
        busiest = degrees[degrees @ np.array(weights) > self.load * (1 - GAP)]
        # The unknowns are the weights and the load.
        rows = [[1] * len(trees) + [0], *([*row, -1] for row in busiest.tolist())]
        try:
            solved = solve_exactly(rows, [1] + [0] * len(busiest), deadline)
        except TimeUpError:
            return None
        return None if solved is None or min(solved) <= 0 else solved[:-1]

    def next_root(self) -> int:
        self._root = (self._root + 1) % len(self.network.servers)
        return self._root


def _near(numbers: Sequence[float]) -> list[Fraction]:
    """Return the fractions with small denominators next to some numbers."""
    return [Fraction(number).limit_denominator(DENOMINATOR) for number in numbers]


def _small_integers(numbers: "NDArray[np.float64]") -> list[int]:
    """Return integers in the ratio of the fractions next to some numbers, if they are not large."""
    scaled = (numbers / numbers.max()).tolist()
    near = _near(scaled)
    unit = lcm(*(number.denominator for number in near))
    if unit > SCALE:
        return [round(number * SCALE) for number in scaled]
    return [int(number * unit) for number in near]
