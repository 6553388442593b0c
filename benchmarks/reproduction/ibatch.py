"""Figures 3 to 7 of iBatch (Wang, Pi, Zhou, AAAI 2019): the paper's numbers beside the model's.

    python benchmarks/reproduction/ibatch.py [3 | 4 | 5 | 6 | 7] [--picture FILE]

`ibatch_model.py` says what the model is and which numbers its constants come from: the default
curve of Fig. 5. Everything about the other curves is predicted. `--picture` draws Fig. 5.
"""

import argparse
from collections.abc import Callable
from itertools import product
from pathlib import Path

from grids import grid, percent
from ibatch_case import figure_3, figure_4
from ibatch_model import DEFAULT, NETWORKS, Constants, Iteration, fit, iteration, profile
from ibatch_printed import METHODS, PRINTED
from table import Claim, Row, claims, numbers

SPARSE = 0.02
"""Bytes pushed per byte with sparsified gradients: 1 % of the values (Aji and Heafield drop 99 %),
each of 4 bytes with an index of 4 bytes."""

ONCE = (
    "Speed-up, the same constant paid once an iteration for pull and for push, whatever the "
    "batches (the other end of what the default curve leaves open):"
)
LIMITS = (
    "Whether the printed speed-ups can be true together, if N nodes compute N times as fast as one "
    "and pushing takes as long as pulling. The limits follow from the printed default alone (plus "
    "half a unit, for rounding): the pull hides behind the forward pass, whose share is the "
    "profile's; all of the pull is hidden; all communication and all computation overlap."
)


def figure_5(constants: Constants) -> str:
    """Return the speed-ups with the three approaches, and what the printed ones allow."""
    points = {
        (point, method): iteration(constants, *point, method)
        for point, method in product(DEFAULT, METHODS)
    }
    once = {
        (point, method): iteration(constants, *point, method, startup_share=0)
        for point, method in product(DEFAULT, METHODS)
    }
    parts = (
        described(constants),
        "Speed-up, every communication pays the start-up:",
        numbers(rows_of(points)),
        ONCE,
        numbers(row for row in rows_of(once) if not row.fitted),
        LIMITS,
        limits(),
        claims(claims_of_figure_5(constants, points)),
        "Where the published rule is slower than the default, of 2 to 72 nodes:",
        slower(constants),
    )
    return "\n\n".join(parts)


def described(constants: Constants) -> str:
    """Return the constants, and how far the rounding of what they are fitted to moves them."""
    moved = [
        fit({**DEFAULT, ("vgg19_22k", 30): 22 + few, ("vgg19_22k", 72): 26 + many}).startup_s
        for few, many in product((-0.5, 0.5), repeat=2)
    ]
    one_node = ", ".join(
        f"{name} {constants.compute_s[key]:.0f} s" for key, name in NETWORKS.items()
    )
    return (
        f"Fitted to the default curve: start-up {constants.startup_s:.2f} s ({min(moved):.2f} to "
        f"{max(moved):.2f} s within the rounding of the printed speed-ups); one iteration on one "
        f"node: {one_node}."
    )


def rows_of(points: dict[tuple[tuple[str, int], str], Iteration]) -> list[Row]:
    """Return a row for each network, number of nodes and approach."""
    rows = []
    for (point, method), made in points.items():
        name = f"{NETWORKS[point[0]]}, {point[1]} nodes, {METHODS[method]}"
        fitted = method == "one_batch"
        paper = DEFAULT[point] if fitted else PRINTED[point].get(method)
        rows.append(Row(name, paper, made.speedup, "×", fitted=fitted))
    return rows


def limits() -> str:
    """Return what the printed default speed-ups allow iBatch to reach."""
    header = (
        "",
        "default",
        "iBatch",
        "most behind the forward pass",
        "most if the push is left alone",
        "most if all overlaps",
        "",
    )
    rows = []
    for (network, nodes), printed in PRINTED.items():
        default, reached = DEFAULT[network, nodes], printed["greedy"]
        measured = profile(network)
        share = measured.forward_ns / (measured.forward_ns + measured.backward_ns)
        limits = most(nodes, default + 0.5, share)
        verdicts = ("possible", "not behind the forward pass", "not with the push left alone")
        broken = sum(reached - 0.5 > limit for limit in limits)
        verdict = (*verdicts, "not at all")[broken]
        speedups = (f"{default:.0f}×", f"{reached:.0f}×", *(f"{limit:.1f}×" for limit in limits))
        rows.append((f"{NETWORKS[network]}, {nodes} nodes", *speedups, verdict))
    return grid(header, rows)


def slower(constants: Constants) -> str:
    """Return on how many nodes iBatch's batches are slower than one batch."""
    rows = []
    for network, name in NETWORKS.items():
        gains = {
            nodes: iteration(constants, network, nodes, "greedy").speedup
            / iteration(constants, network, nodes, "one_batch").speedup
            - 1
            for nodes in range(2, 73)
        }
        worst = min(gains, key=lambda nodes: gains[nodes])
        below = sum(gain < -1e-6 for gain in gains.values())
        rows.append((name, str(below), f"{100 * gains[worst]:+.1f} % on {worst} nodes"))
    return grid(("", "numbers of nodes", "worst"), rows)


def most(nodes: int, default: float, forward: float) -> tuple[float, float, float]:
    """Return the largest speed-ups a default speed-up leaves room for.

    The default iteration is 1 + x times its computation, x = nodes/default - 1 being all
    communication, half of it the pull. A pull hides behind the forward pass only, which is a share
    of the computation; without any of the pull 1 + x/2 is left; if everything overlaps, the longer
    of both.
    """
    communication = nodes / default - 1
    hidden = min(communication / 2, forward)
    return (
        nodes / (1 + communication - hidden),
        nodes / (1 + communication / 2),
        nodes / max(1.0, communication),
    )


def claims_of_figure_5(
    constants: Constants, points: dict[tuple[tuple[str, int], str], Iteration]
) -> list[Claim]:
    """Return what the text says of Fig. 5 without numbers."""
    small = [iteration(constants, network, 6, "one_batch").speedup for network in NETWORKS]
    layers = [
        points[point, "layer_by_layer"].speedup / points[point, "one_batch"].speedup - 1
        for point in DEFAULT
        if point[1] == 30
    ]
    gains = {
        network: iteration(constants, network, 72, "greedy").speedup
        / iteration(constants, network, 72, "one_batch").speedup
        - 1
        for network in NETWORKS
    }
    best = sum(
        points[point, "greedy"].speedup
        > max(points[point, "one_batch"].speedup, points[point, "layer_by_layer"].speedup)
        for point in DEFAULT
    )
    return [
        Claim(
            "almost linear up to 6 nodes",
            f"default on 6 nodes: {min(small):.2f}× to {max(small):.2f}×",
            min(small) > 0.95 * 6,
        ),
        Claim(
            "on 30 nodes layer by layer is better than the default (the printed numbers are lower)",
            f"{100 * min(layers):+.1f} % to {100 * max(layers):+.1f} %",
            min(layers) > 0,
        ),
        Claim(
            "iBatch is the best of the three",
            f"at {best} of {len(DEFAULT)} points",
            best == len(DEFAULT),
        ),
        Claim(
            "iBatch gains most in VGG19-22K",
            "on 72 nodes over the default: "
            + ", ".join(
                f"{NETWORKS[network]} {100 * gain:+.1f} %" for network, gain in gains.items()
            ),
            max(gains, key=lambda network: gains[network]) == "vgg19_22k",
        ),
    ]


def figure_6(constants: Constants) -> str:
    """Return the speed-ups on 72 nodes with sparsified gradients."""
    networks = ("inception_v3", "vgg19")
    rows, reached = [], {}
    for network, method in product(networks, METHODS):
        made = iteration(constants, network, 72, method, pushed=SPARSE)
        reached[network, method] = made.speedup
        rows.append(Row(f"{NETWORKS[network]}, {METHODS[method]}", None, made.speedup, "×"))
    ends = [
        iteration(constants, network, 72, "greedy", pushed=SPARSE, startup_share=0).speedup
        for network in networks
    ]
    linear = Claim(
        "iBatch is almost linear on 72 nodes",
        ", ".join(f"{NETWORKS[one]} {reached[one, 'greedy']:.1f}×" for one in networks)
        + "; with the start-up paid once: "
        + ", ".join(f"{NETWORKS[one]} {end:.1f}×" for one, end in zip(networks, ends, strict=True)),
        min(reached[one, "greedy"] for one in networks) > 0.9 * 72,
    )
    ahead = [
        NETWORKS[one]
        for one in networks
        if reached[one, "greedy"] > max(reached[one, "one_batch"], reached[one, "layer_by_layer"])
    ]
    best = Claim(
        "iBatch is ahead of the other two",
        f"in {', '.join(ahead) or 'neither'}",
        len(ahead) == len(networks),
    )
    pushed = f"Pushed: {percent(SPARSE)} of the bytes."
    return f"{pushed}\n\n{numbers(rows)}\n\n{claims((linear, best))}"


def figure_7(constants: Constants) -> str:
    """Return where the time of an iteration on 72 nodes goes."""
    header = (
        "share of the default's time",
        "both",
        "only communication",
        "only computation",
        "all",
    )
    rows = []
    more_overlap, less_communication, some, none = [], [], [], []
    for network in ("inception_v3", "vgg19"):
        parts = {method: iteration(constants, network, 72, method) for method in METHODS}
        whole = parts["one_batch"].total_s
        for method, made in parts.items():
            seconds = (
                made.overlap_s,
                made.exposed_communication_s,
                made.exposed_computation_s,
                made.total_s,
            )
            name = f"{NETWORKS[network]}, {METHODS[method]}"
            rows.append((name, *(percent(part / whole) for part in seconds)))
        layers, batches = parts["layer_by_layer"], parts["greedy"]
        none.append(parts["one_batch"].overlap_s)
        some.append(layers.overlap_s / whole)
        more_overlap.append((batches.overlap_s - layers.overlap_s) / whole)
        less_communication.append(
            (batches.exposed_communication_s - layers.exposed_communication_s) / whole
        )
    sentences = (
        Claim("the default overlaps nothing", percent(max(none)), max(none) == 0),
        Claim("layer by layer overlaps some", ", ".join(percent(x) for x in some), min(some) > 0),
        Claim(
            "iBatch overlaps longer than layer by layer",
            ", ".join(f"{100 * x:+.1f} points" for x in more_overlap),
            min(more_overlap) > 0,
        ),
        Claim(
            "layer by layer leaves more communication uncovered than iBatch",
            ", ".join(f"{-100 * x:+.1f} points" for x in less_communication),
            max(less_communication) < 0,
        ),
    )
    return f"{grid(header, rows)}\n\n{claims(sentences)}"


FIGURES: dict[str, Callable[[Constants], str]] = {
    "3": figure_3,
    "4": figure_4,
    "5": figure_5,
    "6": figure_6,
    "7": figure_7,
}


def main() -> None:
    parser = argparse.ArgumentParser(description="remakes figures of iBatch")
    parser.add_argument("figure", nargs="?", choices=tuple(FIGURES), help="all if none is named")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="where to draw Fig. 5")
    options = parser.parse_args()
    constants = fit(DEFAULT)
    if options.picture is not None:
        from ibatch_picture import draw

        draw(constants, options.picture)
    for number in (options.figure,) if options.figure else FIGURES:
        print(f"## Fig. {number}\n\n{FIGURES[number](constants)}\n")


if __name__ == "__main__":
    main()
