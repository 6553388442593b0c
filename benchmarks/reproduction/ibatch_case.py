"""iBatch's Figs. 3 and 4: GoogLeNet on six nodes, layer by layer and in batches.

Fig. 3 is the paper's input, a measured communication and computation time of each layer; Fig. 4 is
what three approaches make of it. Neither prints a number but the batches. Ours is the model of
Fig. 5 (`ibatch_model`) on six nodes: relative times of layers from the shipped profile, start-up
and computation fitted to Fig. 5's default curve.
"""

from grids import grid
from ibatch_model import Constants, pull_problem
from ibatch_printed import METHODS
from table import Claim, claims

from planner.families import ibatch

NETWORK, NODES = "googlenet", 6
PRINTED_BATCHES = 3
"""[1, 5], [6, 10] and [11, 12] of the paper's twelve layers."""
MUCH = 2
"""How many times as long is "much longer"."""


def figure_3(constants: Constants) -> str:
    """Return the communication and the computation of each layer."""
    names, problem = pull_problem(constants, NETWORK, NODES)
    assert problem.transfer_ns is not None
    assert problem.startup_ns is not None
    sent = [(problem.startup_ns + transfer) / 1e9 for transfer in problem.transfer_ns]
    computed = [time / 1e9 for time in problem.compute_ns]
    rows = [
        (f"{number}", name, f"{communication:.3f} s", f"{computation:.3f} s")
        for number, (name, communication, computation) in enumerate(
            zip(names, sent, computed, strict=True), start=1
        )
    ]
    second = names.index("features.conv2.conv")
    sentences = (
        Claim(
            "communication is much longer than computation in the fully connected layer",
            f"{sent[-1] / computed[-1]:.0f}×, nearly all of it start-up",
            sent[-1] > MUCH * computed[-1],
        ),
        Claim(
            "computation is much longer than communication in convolutions",
            f"conv2: {computed[second] / sent[second]:.1f}×; "
            f"{sum(c > MUCH * s for c, s in zip(computed, sent, strict=True))} of "
            f"{len(names) - 1} layers are {MUCH}× and more",
            computed[second] > MUCH * sent[second],
        ),
    )
    header = ("", "layer", "communication", "forward computation")
    return f"{grid(header, rows)}\n\n{claims(sentences)}"


def figure_4(constants: Constants) -> str:
    """Return the batches of each approach, and what they cost."""
    _, problem = pull_problem(constants, NETWORK, NODES)
    rows, made = [], {}
    for method, name in METHODS.items():
        plan = ibatch.solve(problem, method=method).plan
        assert plan is not None
        made[method] = priced = ibatch.evaluate(problem, plan)
        batches = [
            f"{start + 1}" if stop == start + 1 else f"{start + 1}–{stop}"
            for start, stop in plan.batches
        ]
        shown = ", ".join(batches) if method != "layer_by_layer" else "each by itself"
        waits = priced.makespan_ns - sum(problem.compute_ns)
        rows.append(
            (
                name,
                f"{len(batches)}",
                shown,
                f"{priced.makespan_ns / 1e9:.2f} s",
                f"{waits / 1e9:.2f} s",
            )
        )
    greedy, layers, default = (made[key] for key in ("greedy", "layer_by_layer", "one_batch"))
    count = len(made["greedy"].schedule)
    sentences = (
        Claim(
            "the default overlaps nothing",
            f"{default.overlap_ns / 1e9:.2f} s",
            default.overlap_ns == 0,
        ),
        Claim(
            "layer by layer pays a start-up for each layer, and computation waits at the end",
            f"{layers.exposed_communication_ns / 1e9:.2f} s of communication are not hidden, of "
            f"the default {default.exposed_communication_ns / 1e9:.2f} s",
            layers.exposed_communication_ns > default.exposed_communication_ns,
        ),
        Claim(f"iBatch pulls in {PRINTED_BATCHES} batches", f"{count}", count == PRINTED_BATCHES),
        Claim(
            "iBatch is the shortest of the three",
            f"{greedy.makespan_ns / 1e9:.2f} s",
            greedy.makespan_ns < min(layers.makespan_ns, default.makespan_ns),
        ),
    )
    header = ("", "batches", "layers", "pull and forward pass", "of it waiting")
    return f"{grid(header, rows)}\n\n{claims(sentences)}"
