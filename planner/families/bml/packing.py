"""All-reduce on a damaged BCube at minimum load: a fractional packing of spanning trees.

Problem: give trees i weights w_i >= 0 of sum 1 so that the largest load of a NIC, T = max over NICs
e of Σ_i w_i·deg_i(e), is least (in gradients). In the bandwidth model the all-reduce takes T·T_F.
Method: linear program by column generation; the dual prices NICs, a minimum spanning tree is the
best new column, with Wentges smoothing. Model, bound and steps: docs/bml.md, "Why trees reach the
bound".

Guarantee: load and bound are exact fractions. Without a deadline the load is at most 1 + 1e-9 times
the bound, or the LP solver's tolerance; equal to it where the weights are near simple fractions.
Complexity: O(k·N log(k·N)) a tree; fewer than ten LPs of k·N rows mostly; memory O(k·N) a tree.
Source: docs/bml.md, same section (Edmonds 1973; Tutte, Nash-Williams 1961; Wentges 1997; BML).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from math import inf, lcm
from typing import TYPE_CHECKING

from planner.families.bml.reroute import Damage
from planner.families.bml.trees import Edge, Port, SurvivingNetwork, Tree, busiest_share
from planner.model.topologies import BCube
from planner.solving.deadline import Deadline, TimeUpError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# ---
# Result of packing spanning trees in a BCube, and its load, in fractions.


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
    import numpy as np

    hops = [(*hop, number) for number, tree in enumerate(trees) for hop in tree]
    return busiest_share(np.array(hops, dtype=np.int64).reshape(-1, 4), weights)


GAP = 1e-9
"""Relative gap between load and bound at which the search ends."""

SMOOTHING = 0.5
"""Weight of the prices of the best bound in the prices for new trees."""

RAISE = 0.3
"""Relative price increase of the NIC that a tree uses most, for the next tree of its round."""

STEPS = 4
"""Prices for new trees, except the master's own, are rounded to multiples of mean/STEPS.

Many prices are then equal, and hops of equal price are chosen so that the tree is low.
"""

DENOMINATOR = 10**5
"""Largest denominator of the fraction that replaces a nearby number of the LP."""

TINY = 1e-9
"""Weights up to this count as 0."""

SCALE = 2**40
"""Prices and weights that are near no such fraction become multiples of about 1/SCALE."""


def pack(damage: Damage, deadline: Deadline, *, start: Sequence[Tree] = ()) -> Packing:
    """Return the packing of minimum load, or the best one found by the deadline, with its bound.

    `start` are trees to start from instead of BML's; their unusable hops are replaced. TimeUpError
    if the deadline of the network passes without a packing. The living servers reach each other.
    """
    network = SurvivingNetwork(damage)
    if len(network.servers) == 1:
        return Packing(((),), (Fraction(1),), Fraction(0), Fraction(0), timed_out=False)
    search = _Search(network)
    search.begin(start or _bml_trees(damage.bcube, network.servers), deadline)
    return search.run(deadline)


def few_trees(damage: Damage, count: int, deadline: Deadline) -> Packing:
    """Return up to `count` equally weighted trees, built greedily: NIC prices are loads so far.

    For networks that are too large for the linear program: `count` minimum spanning trees, or as
    many as the time allows. Errors are those of `pack`.
    """
    search = _Search(SurvivingNetwork(damage))
    search.begin((), deadline)  # the simple bounds
    used = [0] * len(search.network.nics)
    taken: Counter[Tree] = Counter()
    with suppress(TimeUpError):
        while taken.total() < count and not (taken and deadline.passed):
            tree, _ = search.network.tree(used, search.next_root())
            degrees = search.network.degrees(tree)
            taken[tree] += 1
            used = [a + b for a, b in zip(used, degrees, strict=True)]
            search.network.deadline = deadline  # the first tree may take until the network's
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
    """State of column generation: trees with their degrees, the best weights, the best bound."""

    def __init__(self, network: SurvivingNetwork) -> None:
        self.network = network
        self.columns: dict[Tree, list[int]] = {}
        self.weights: list[float] = []
        self.load = inf
        self.bound = Fraction(0)
        self.proof: list[int] = []
        self._root = 0

    def begin(self, start: Iterable[Iterable[Edge]], deadline: Deadline) -> None:
        """Start from given trees, repaired on lightly loaded NICs, and two simple bounds."""
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
        """Alternate between master program and trees until load and bound meet, or time is up."""
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
        trees, weights = self.answer()
        load = load_of(trees, weights)
        return Packing(
            trees=tuple(trees),
            weights=tuple(weights),
            load=load,
            bound=self.bound,
            timed_out=deadline.passed and not met and load > self.bound,
            prices=self.prices(),
        )

    def prices(self) -> tuple[tuple[Port, int], ...]:
        """Return the non-zero prices that prove the bound."""
        priced = zip(self.network.nics, self.proof, strict=True)
        return tuple((nic, price) for nic, price in priced if price)

    def master(self, deadline: Deadline) -> "NDArray[np.float64] | None":
        """Set optimal weights of the trees so far and their load; return the dual prices of NICs.

        None, with weights unchanged, if the time is up.
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
        """Return a minimum spanning tree at these prices, and keep its bound if it is better."""
        tree, cost = self.network.tree(prices, self.next_root())
        bound = Fraction(cost, sum(prices))
        if bound > self.bound:
            self.bound, self.proof = bound, prices
        return tree

    def add(self, tree: Tree) -> list[int]:
        """Add a tree as a column; return its degrees."""
        return self.columns.setdefault(tree, self.network.degrees(tree))

    def spread(self, prices: "NDArray[np.float64]", deadline: Deadline) -> None:
        """Add a few different trees that are cheap near the master's prices."""
        import numpy as np

        proof = np.array(self.proof, dtype=float)
        prices = SMOOTHING * proof / proof.sum() + (1 - SMOOTHING) * prices
        for _ in range(max(4, len(self.network.servers) // 4)):
            if deadline.passed:
                break
            coarse = (prices * (STEPS / prices.mean())).round().astype(int).tolist()
            degrees = np.array(self.add(self.price(coarse)), dtype=float)
            # The last term raises prices of 0.
            prices = prices * (1 + RAISE * degrees / degrees.max()) + 1e-6 * degrees / degrees.size
            prices /= prices.sum()

    def answer(self) -> tuple[list[Tree], list[Fraction]]:
        """Return the trees of positive weight and their weights; equal before any master."""
        trees = list(self.columns)
        carried = [number for number, weight in enumerate(self.weights) if weight > TINY]
        if not carried:
            return trees, [Fraction(1, len(trees))] * len(trees)
        trees = [trees[number] for number in carried]
        weights = [self.weights[number] for number in carried]
        near = _near(weights)
        if sum(near) == 1 and load_of(trees, near) == self.bound:
            return trees, near
        parts = [round(weight * SCALE) for weight in weights]
        return trees, [Fraction(part, sum(parts)) for part in parts]

    def next_root(self) -> int:
        self._root = (self._root + 1) % len(self.network.servers)
        return self._root


def _near(numbers: Sequence[float]) -> list[Fraction]:
    """Return the nearby fractions with small denominators."""
    return [Fraction(number).limit_denominator(DENOMINATOR) for number in numbers]


def _small_integers(numbers: "NDArray[np.float64]") -> list[int]:
    """Return integers in the ratio of nearby fractions, or of multiples of 1/SCALE."""
    scaled = (numbers / numbers.max()).tolist()
    near = _near(scaled)
    unit = lcm(*(number.denominator for number in near))
    if unit > SCALE:
        return [round(number * SCALE) for number in scaled]
    return [int(number * unit) for number in near]
