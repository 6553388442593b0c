"""Caramel's Figs. 2, 3 and 4: what its third section measures before anything is planned.

Fig. 2 is where systems stand in communication over computation ρ and overlap α. Fig. 3 is how long
each tensor of VGG-16 may travel. Fig. 4 is what models have in common: the forward pass's share of
the computation, many small tensors, and what a small transfer costs. Figs. 3, 4a and 4b are facts
of the shipped profiles, nothing is fitted; Fig. 2 is a part of Fig. 10; the curve of 4c is the
model's own input.
"""

from collections.abc import Mapping

from caramel_model import NETWORKS, STARTUP_US, Setting, network, problem_of, profile
from caramel_networks import as_printed
from grids import grid, percent
from table import Claim, Row, claims, numbers

from planner.families.caramel import Evaluation

SMALL = 20_000
"""Bytes: half of all tensors are smaller than 20 KB, says the paper."""
FORWARD = 30
"""Per cent of the computation that is the forward pass, says the paper: "about"."""
SIZES = (64, 4_000, 20_000, 64_000, 256_000, 10**6, 4 * 10**6, 16 * 10**6)
VGG_SAMPLES = 32
"""A worker's share of the batch of 256 in Fig. 3, if there were 8 workers."""


def figure_2(made: Mapping[str, Evaluation]) -> str:
    """Return where each system stands with Inception-v3 on 8 workers."""
    rows, apart = [], []
    for system, priced in made.items():
        ratio, overlap = priced.communication_ns / priced.computation_ns, priced.overlap
        utilisation = 1 / (1 + ratio - overlap * min(ratio, 1))
        apart.append(abs(utilisation - priced.utilisation))
        rows.append((system, f"{ratio:.2f}", f"{overlap:.2f}", percent(utilisation)))
    formula = Claim(
        "U = 1 / (1 + ρ - α min(ρ, 1))",
        f"the simulated utilisation is within {100 * max(apart):.2f} points",
        max(apart) < 1e-9,
    )
    horovod, caramel = made["Horovod"], made["Caramel"]
    poor = Claim(
        "Horovod overlaps poorly, and so computes little of the time",
        f"overlap {horovod.overlap:.2f} against Caramel's {caramel.overlap:.2f}",
        horovod.overlap < caramel.overlap,
    )
    return "\n\n".join(
        (
            grid(("Inception-v3, 8 workers", "ρ", "overlap α", "utilisation"), rows),
            claims((formula, poor)),
        )
    )


def figure_3() -> str:
    """Return the windows of VGG-16's weights under both ways of summing up."""
    problem = problem_of("vgg16", Setting(8, VGG_SAMPLES))
    windows = problem.windows
    backward = sum(op.duration_ns for op in problem.graph.ops if op.phase == "backward")
    rows, longer = [], []
    open_until = {"servers": 0, "all-reduce": 0}
    whole = sum(windows.sizes)
    for parameter, ready, tail in zip(
        problem.graph.parameters, windows.heads, windows.tails, strict=True
    ):
        ends = {"servers": windows.compute_ns - tail, "all-reduce": backward}
        for way, end in ends.items():
            open_until[way] += (end - ready) * parameter.size_bytes
        longer.append(ends["servers"] >= ends["all-reduce"])
        if parameter.name.endswith("weight"):
            shown = (ready, ends["servers"], ends["all-reduce"])
            name = parameter.name.removesuffix(".weight").rpartition(".conv")
            rows.append(
                (
                    (name[0] or name[2]).rpartition(".")[2],
                    f"{parameter.size_bytes / 2**20:.2f} MiB",
                    *(percent(time / windows.compute_ns) for time in shown),
                )
            )
    means = {way: time / whole / windows.compute_ns for way, time in open_until.items()}
    sentences = (
        Claim(
            "all-reduces end with the backward pass, and leave the forward pass unused",
            f"{percent(1 - backward / windows.compute_ns)} of the computation",
            backward < windows.compute_ns,
        ),
        Claim(
            "windows are longer with parameter servers",
            f"for {sum(longer)} of {len(longer)} tensors; a byte has "
            f"{percent(means['servers'])} of the computation instead of "
            f"{percent(means['all-reduce'])}",
            all(longer),
        ),
    )
    header = ("VGG-16", "size", "ready", "due, parameter servers", "due, all-reduce today")
    about = (
        f"{VGG_SAMPLES} samples a worker; moments since the loss, in per cent of the computation"
    )
    return "\n\n".join((about, grid(header, rows), claims(sentences)))


def figure_4() -> str:
    """Return the forward share, the small tensors, and the cost of small transfers."""
    forward, small = [], []
    for name, title in NETWORKS.items():
        measured = profile(name)
        share = measured.forward_ns / (measured.forward_ns + measured.backward_ns)
        forward.append(Row(f"{title}: forward share of the computation", FORWARD, 100 * share, "%"))
        sizes = [tensor.size_bytes for tensor in as_printed(name, measured.dataflow()).parameters]
        below = sum(size < SMALL for size in sizes) / len(sizes)
        small.append(Row(f"{title}: tensors below 20 kB", 50, 100 * below, "%", limit="≥"))
    cost = network(16)
    single = cost.at_depth(1)
    startup = single.cost_ns(0)
    lines = [
        (
            f"{size:,} B",
            f"{single.cost_ns(size) / 1e6:.2f} ms",
            percent(startup / single.cost_ns(size)),
        )
        for size in SIZES
    ]
    about = (
        f"(c) 16 workers, depth 1, start-up {STARTUP_US} µs (fitted to Fig. 11): an input of the "
        "model, not a result; the paper prints no number."
    )
    return "\n\n".join(
        (
            '(a), the printed share is "about 30 %"',
            numbers(forward),
            "(b)",
            numbers(small),
            about,
            grid(("size", "time", "of it start-up"), lines),
        )
    )
