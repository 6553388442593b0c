"""Figures 2 to 4 and 8 to 14 of Caramel (Hashemi et al., 2020): printed beside the model's.

    python benchmarks/reproduction/caramel.py [2 | 3 | 4 | 8 | 9 | 10 | 11 | 12 | 13 | 14]

`caramel_model.py` says where the numbers come from: two are fitted, to the first two bars of
Fig. 11. Times in seconds are no result (the paper prints none); ratios and shares are.
"""

import argparse
from collections.abc import Callable
from functools import cache
from itertools import pairwise, product

from caramel_model import (
    FITTED,
    NETWORKS,
    STARTUP_US,
    Setting,
    by_caramel,
    by_horovod,
    by_servers,
    evaluated,
    fit,
    ladder,
    problem_of,
)
from caramel_motivation import figure_2, figure_3, figure_4
from caramel_network import figure_13, figure_14
from grids import grid, percent
from table import Claim, Row, claims, numbers

from planner.families.caramel import Evaluation, solve

WORKERS = (8, 16)
SAMPLES = 32
"""The second reading: every network has so many samples a worker (see `caramel_model.py`)."""
STARTUPS_US = (200, 400, 500, 1000)
"""Other start-ups for Fig. 11."""
SYSTEMS = ("PS, as many as workers", "PS, half as many", "Horovod", "Caramel")
STEPS = ("Horovod (MPI)", "adaptive all-reduce", "+ batching", "+ transfer boundaries")
NOTHING = 0.001
"""Of utilisation: what a step may take away without counting."""
PRINTED_STEPS = (68, 82, 86, 92)
"""Utilisation in per cent after each step, in §6.2; two are fitted to, two are scored."""


@cache
def systems(name: str, workers: int, samples: int | None = None) -> dict[str, Evaluation]:
    """Return the four systems of Figs. 8 to 10."""
    setting = Setting(workers, samples)
    problem = problem_of(name, setting)
    half = problem_of(name, setting, servers=workers // 2)
    made = (by_servers(problem), by_servers(half), by_horovod(problem), by_caramel(problem))
    return dict(zip(SYSTEMS, made, strict=True))


def described(samples: int | None) -> str:
    """Return what is computed in an iteration, and the factor that follows."""
    each = f"{samples} samples in every network" if samples else "samples as in each profile"
    factor = f"op times × {float(fit(samples)):.4f}, start-up {STARTUP_US} µs (both fitted)"
    return f"{each[0].upper()}{each[1:]}; {factor}"


def figure_8() -> str:
    """Return iteration times, as multiples of Caramel's."""
    parts = []
    for samples in (None, SAMPLES):
        rows, worse, largest = [], [], {}
        for name, workers in product(NETWORKS, WORKERS):
            made = systems(name, workers, samples)
            ours = made["Caramel"].iteration_ns
            ratios = [made[system].iteration_ns / ours for system in SYSTEMS[:3]]
            largest[name, workers] = ratios[2]
            worse += [
                f"{system}, {NETWORKS[name]}, {workers} workers ({ratio:.2f}×)"
                for system, ratio in zip(SYSTEMS, ratios, strict=False)
                if ratio <= 1
            ]
            rows.append(
                (f"{NETWORKS[name]}, {workers} workers", *(f"{ratio:.2f}×" for ratio in ratios))
            )
        top = max(largest, key=lambda key: largest[key])
        sentences = (
            Claim(
                "Caramel is faster than PS and Horovod in all configurations",
                f"not faster than {'; '.join(worse)}" if worse else "in all",
                not worse,
            ),
            Claim(
                "the largest improvement over Horovod is VGG-16's with 16 workers",
                f"{NETWORKS[top[0]]}, {top[1]} workers: {largest[top]:.2f}×",
                top == ("vgg16", 16),
            ),
        )
        printed = Row(
            "VGG-16, 16 workers: Horovod's time over Caramel's",
            3.62,
            largest["vgg16", 16],
            "×",
            decimals=2,
        )
        parts += [
            described(samples),
            grid(("time over Caramel's", *SYSTEMS[:3]), rows),
            numbers([printed]),
            claims(sentences),
        ]
    return "\n\n".join(parts)


def figure_9() -> str:
    """Return utilisations."""
    parts = []
    for samples in (None, SAMPLES):
        rows, limits = [], []
        for name, workers in product(NETWORKS, WORKERS):
            made = systems(name, workers, samples)
            problem = problem_of(name, Setting(workers, samples))
            most = problem.windows.compute_ns / (solve(problem).lower_bound_ns or 1)
            shown = [percent(made[system].utilisation) for system in SYSTEMS]
            rows.append((f"{NETWORKS[name]}, {workers} workers", *shown, percent(most)))
            least = 100 * made["Caramel"].utilisation
            limits.append(
                Row(f"{NETWORKS[name]}, {workers} workers, Caramel", 70, least, "%", limit="≥")
            )
        made = systems("vgg16", 16, samples)
        ratio = made["Caramel"].utilisation / made["Horovod"].utilisation
        name = "VGG-16, 16 workers: Caramel's utilisation over Horovod's"
        limits.append(Row(name, 3.5, ratio, "×", decimals=2))
        parts += [
            described(samples),
            grid(("utilisation", *SYSTEMS, "no plan more than"), rows),
            numbers(limits),
        ]
    return "\n\n".join(parts)


def figure_10() -> str:
    """Return communication and overlap."""
    rows = []
    cheaper, above_horovod, below_servers = [], [], []
    for name, workers in product(NETWORKS, WORKERS):
        made = systems(name, workers)
        costs = [made[system].communication_ns / made[system].computation_ns for system in SYSTEMS]
        overlaps = [made[system].overlap for system in SYSTEMS]
        cells = [f"{cost:.2f}, {one:.2f}" for cost, one in zip(costs, overlaps, strict=True)]
        rows.append((f"{NETWORKS[name]}, {workers} workers", *cells))
        cheaper.append(costs[3] < min(costs[:3]))
        above_horovod.append(overlaps[3] > overlaps[2])
        below_servers.append(overlaps[3] < min(overlaps[:2]))
    sentences = [
        Claim(says, f"in {sum(true)} of {len(true)}", all(true))
        for says, true in (
            ("Caramel's communication cost is below the baselines'", cheaper),
            ("Caramel's overlap is above Horovod's", above_horovod),
            ("Caramel's overlap is below PS's", below_servers),
        )
    ]
    header = ("ρ, overlap α", *SYSTEMS)
    return f"{described(None)}\n\n{grid(header, rows)}\n\n{claims(sentences)}"


def figure_11() -> str:
    """Return the ablation on Inception-v3 with 8 workers."""
    name, workers, _ = FITTED
    problem = problem_of(name, Setting(workers))
    made = [by_horovod(problem), *ladder(problem)]
    rows = [
        Row(step, paper, 100 * one.utilisation, "%", fitted=place < 2)
        for place, (step, paper, one) in enumerate(zip(STEPS, PRINTED_STEPS, made, strict=True))
    ]
    total = Row(
        "all stages over Horovod",
        PRINTED_STEPS[3] / PRINTED_STEPS[0],
        made[3].utilisation / made[0].utilisation,
        "×",
        decimals=2,
    )
    cells = [
        (step, f"{one.communication_ns / one.computation_ns:.2f}", f"{one.overlap:.2f}")
        for step, one in zip(STEPS, made, strict=True)
    ]
    _, depth, batched, scheduled = made
    sentences = (
        Claim(
            "batching reduces the overlap slightly, and the communication cost significantly",
            f"overlap {batched.overlap - depth.overlap:+.2f}, cost "
            f"{100 * (batched.communication_ns / depth.communication_ns - 1):+.1f} %",
            batched.overlap < depth.overlap and batched.communication_ns < depth.communication_ns,
        ),
        Claim(
            "transfer boundaries increase the communication cost, and the overlap significantly",
            f"overlap {scheduled.overlap - batched.overlap:+.2f}, cost "
            f"{100 * (scheduled.communication_ns / batched.communication_ns - 1):+.1f} %",
            scheduled.overlap > batched.overlap
            and scheduled.communication_ns > batched.communication_ns,
        ),
    )
    others = []
    for startup in STARTUPS_US:
        other = problem_of(name, Setting(workers, startup_us=startup))
        shares = [one.utilisation for one in (by_horovod(other), *ladder(other))]
        others.append((f"{startup} µs", *(percent(share) for share in shares)))
    parts = (
        described(None),
        numbers([*rows, total]),
        grid(("Inception-v3, 8 workers", "ρ", "overlap α"), cells),
        claims(sentences),
        "The same with other start-ups, the factor fitted anew to 68 %:",
        grid(("start-up", *STEPS), others),
    )
    return "\n\n".join(parts)


def figure_12() -> str:
    """Return the ablation on all networks with 8 workers."""
    rows, rising = [], []
    for name in NETWORKS:
        problem = problem_of(name, Setting(8))
        shares = [one.utilisation for one in (by_horovod(problem), *ladder(problem))]
        best = solve(problem)
        found = evaluated(problem, best.plan).utilisation
        bound = problem.windows.compute_ns / (best.lower_bound_ns or 1)
        rows.append((NETWORKS[name], *(percent(share) for share in (*shares, found, bound))))
        steps = [after - before for before, after in pairwise(shares)]
        if name != FITTED[0] and min(steps) > -NOTHING:
            rising.append(NETWORKS[name])
    sentence = Claim(
        "the other networks have similar trends: every step adds",
        f"no step takes away more than {percent(NOTHING)} in {', '.join(rising) or 'none'}",
        len(rising) == len(NETWORKS) - 1,
    )
    header = ("utilisation, 8 workers", *STEPS, "best found", "no plan more than")
    return f"{described(None)}\n\n{grid(header, rows)}\n\n{claims([sentence])}"


FIGURES: dict[str, Callable[[], str]] = {
    "2": lambda: figure_2(systems("inception_v3", 8)),
    "3": figure_3,
    "4": figure_4,
    "8": figure_8,
    "9": figure_9,
    "10": figure_10,
    "11": figure_11,
    "12": figure_12,
    "13": figure_13,
    "14": figure_14,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="remakes figures of Caramel")
    parser.add_argument("figure", nargs="?", choices=tuple(FIGURES), help="all if none is named")
    options = parser.parse_args()
    for number in (options.figure,) if options.figure else FIGURES:
        print(f"## Fig. {number}\n\n{FIGURES[number]()}\n")


if __name__ == "__main__":
    main()
