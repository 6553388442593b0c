"""How to apply a plan: the commands, for the frameworks that can be told it."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

from msgspec import UNSET

from planner.clusters import Cluster
from planner.errors import InvalidInputError
from planner.formats.batches import gradients_of, pulls_of
from planner.formats.ddp import ddp_settings
from planner.formats.fsdp2 import fsdp2_settings
from planner.formats.horovod import horovod_settings
from planner.jsonio.iteration_answer import IterationAnswer
from planner.report.html import Html, element, joined, paragraph

__all__ = ["applying", "steps"]

PLAN = "plan.json"


def steps(
    answer: IterationAnswer, cluster: Cluster, command: Sequence[str]
) -> Iterator[tuple[str, str]]:
    """Yield what to do, and the command or code that does it; nothing without a plan.

    Parameters
    ----------
    answer : IterationAnswer
        The plan.
    cluster : Cluster
        Where it shall run.
    command : sequence of str
        What made the report: ``planner report`` and its arguments.
    """
    if answer.synchronisation is UNSET:
        return
    advice = answer.advice
    if advice is not UNSET and advice.keep_ddp:
        cap = advice.bucket_cap_mb
        given = "" if cap is None else f", bucket_cap_mb={cap}"
        yield (
            "Keep DDP, with the buckets that suit it best",
            f"DistributedDataParallel(model{given})",
        )
    plan = ["planner", "plan", *command[2:], "-o", PLAN]
    yield "Write the plan", shlex.join(plan)
    machines = cluster.working
    each = max(cluster.workers // max(machines, 1), 1)
    launch = f"torchrun --nnodes {machines} --nproc-per-node {each} -m planner run {PLAN}"
    yield (
        "See, on these machines, whether it keeps what is predicted (and name their rendezvous)",
        f"{launch} --model MODULE:FACTORY --against-ddp",
    )
    yield (
        "In a training program, by this package",
        f'planner.runtime.attach(model, Path("{PLAN}").read_bytes(), optimizer, world)',
    )
    for title, tool in _exports(answer):
        yield title, f"planner export {tool} {PLAN} -o {tool}.json"


def applying(answer: IterationAnswer, cluster: Cluster, command: Sequence[str]) -> Html:
    """Return the steps as a part of the page."""
    shown = [
        joined(paragraph(f"{what}:"), element("pre", element("code", how)))
        for what, how in steps(answer, cluster, command)
    ]
    return joined(element("h3", "How to apply this"), *shown) if shown else Html("")


def _exports(answer: IterationAnswer) -> Iterator[tuple[str, str]]:
    """Yield the frameworks that can be told the plan: those whose exporter takes it."""
    assert answer.synchronisation is not UNSET
    exporters: dict[str, tuple[tuple[str, str, Callable[[], object]], ...]] = {
        "replicated": (
            (
                "In DDP, which then waits for all transfers before the next forward pass",
                "ddp",
                lambda: ddp_settings(gradients_of(answer)),
            ),
            (
                "In Horovod, which waits for them too",
                "horovod",
                lambda: horovod_settings(gradients_of(answer)),
            ),
        ),
        "sharded": (("In FSDP2", "fsdp2", lambda: fsdp2_settings(pulls_of(answer))),),
    }
    for title, tool, export in exporters[answer.synchronisation.mode]:
        with suppress(InvalidInputError):  # cut parameters, say, or batches that are no modules
            export()
            yield title, tool
