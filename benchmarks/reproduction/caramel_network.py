"""Caramel's Figs. 13 and 14: the network without a model above it.

Fig. 13 is where the model's costs by depth come from, so the two factors it prints are inputs, not
results; what is scored is the rule that chooses the depth. Fig. 14 compares ways to add up: their
steps and volumes are closed forms, each step pays half the start-up of the shuffle, which has two.
"""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import product
from math import log2

from caramel_model import DEPTHS, STARTUP_US, network
from grids import grid
from table import Claim, Row, claims, numbers

from planner.families.caramel.paper import adaptive_depth, batching_threshold
from planner.families.collectives import Collective, Fabric
from planner.families.collectives.exchange import direct_on, halving_doubling_on
from planner.families.collectives.ring import ring_on
from planner.model.network import Network

WORKERS = 8
SIZES = {
    "64 B": 64,
    "4 kB": 4_000,
    "64 kB": 64_000,
    "1 MB": 10**6,
    "2 MB": 2 * 10**6,
    "4 MB": 4 * 10**6,
    "10 MB": 10**7,
    "100 MB": 10**8,
}
SCHEMES: dict[str, Callable[[Fabric], Collective]] = {
    "shuffle": partial(direct_on, "shuffle"),
    "ring": ring_on,
    "halving-doubling": halving_doubling_on,
}
CLUSTERS = (4, 8, 16, 32, 64)
PORTS = 16
"""Of a switch; no time depends on it."""
OVERTAKING = (
    "If each message costs something beside each step (a shuffle sends 2(W-1) of them, "
    "halving-doubling 2·log₂W), halving-doubling overtakes where a message costs more than this "
    "share of a step:"
)


def figure_13() -> str:
    """Return the time of a transfer by size and depth, and what the adaptive rule loses."""
    cost = network(WORKERS)
    threshold = batching_threshold(cost)
    rows, losses, chosen = [], [], []
    for name, size in SIZES.items():
        times = {depth: cost.at_depth(depth).cost_ns(size) for depth in DEPTHS}
        depth = adaptive_depth(size, threshold, DEPTHS)
        chosen.append(depth)
        losses.append(times[depth] / min(times.values()) - 1)
        shown = [f"{times[one] / 1e6:.2f} ms" for one in (1, 2, 4, 8)]
        adaptive = f"{times[depth] / 1e6:.2f} ms (depth {depth})"
        rows.append(
            (name, *shown, adaptive, f"{cost.best_depth(size)}", f"{100 * losses[-1]:+.1f} %")
        )
    header = ("size", *(f"depth {one}" for one in (1, 2, 4, 8)), "adaptive", "best depth", "loss")
    small, large = (
        [cost.at_depth(depth).cost_ns(size) for depth in (1, 8)] for size in (64, 10**8)
    )
    given = (
        Row("64 B: depth 8 over depth 1", 3, small[1] / small[0], "×", fitted=True),
        Row(
            "100 MB: adaptive below depth 1", 60, 100 * (1 - large[1] / large[0]), "%", fitted=True
        ),
    )
    sentences = (
        Claim(
            "adaptive depth has the smallest transfer time at all sizes",
            f"loses up to {100 * max(losses):.1f} % against the best depth",
            max(losses) == 0,
        ),
        Claim(
            "it is 1 at small sizes and 8 at the largest",
            f"{chosen[0]} at 64 B, {chosen[-1]} at 100 MB",
            (chosen[0], chosen[-1]) == (1, DEPTHS[-1]),
        ),
    )
    about = f"{WORKERS} workers, start-up {STARTUP_US} µs (fitted), threshold {threshold:,} B"
    return f"{about}\n\n{numbers(given)}\n\n{grid(header, rows)}\n\n{claims(sentences)}"


def figure_14() -> str:
    """Return the time of one all-reduce by scheme, for a small and a large transfer."""
    link = Network(Fraction(10**10, 8), STARTUP_US * 1000 // 2)
    rows, fastest = [], {}
    for (name, size), workers in product({"64 kB": 64_000, "100 MB": 10**8}.items(), CLUSTERS):
        made = {
            scheme: make(Fabric(workers, PORTS)).time_ns(link, size)
            for scheme, make in SCHEMES.items()
        }
        fastest[name, workers] = min(made, key=lambda scheme: made[scheme])
        shown = [f"{time / 1e6:.2f} ms" for time in made.values()]
        rows.append((f"{name}, {workers} workers", *shown, fastest[name, workers]))
    overtaking = {
        workers: (log2(workers) - 1) / (workers - 1 - log2(workers)) for workers in CLUSTERS[1:]
    }
    few = {fastest[name, workers] for name, workers in fastest if workers <= 8}
    many = {fastest[name, workers] for name, workers in fastest if workers == CLUSTERS[-1]}
    sentences = (
        Claim("shuffle is best with few workers", ", ".join(sorted(few)), few == {"shuffle"}),
        Claim(
            "with more workers halving-doubling is better",
            f"{CLUSTERS[-1]} workers: {', '.join(sorted(many))}",
            many == {"halving-doubling"},
        ),
    )
    return "\n\n".join(
        (
            f"10 Gb/s, {STARTUP_US / 2:.0f} µs a step (half the fitted start-up of a shuffle)",
            grid(("time of an all-reduce", *SCHEMES, "fastest"), rows),
            claims(sentences),
            OVERTAKING,
            grid(
                ("workers", *map(str, overtaking)),
                [("message/step", *(f"{ratio:.2f}" for ratio in overtaking.values()))],
            ),
        )
    )
