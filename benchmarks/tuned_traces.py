"""Does what `planner tune` predicts from traces come true? Trace, plan, run the plan's buckets.

    python benchmarks/tuned_traces.py [--quick] [--fsdp2 | --zero STAGE …] [--models NAME …]
        [--rates MBIT …]

Two hosts, each on a processor core of its own, over links of some speeds, train models under DDP
with buckets of a share of the gradients each, and record traces of five steps. From these, and from
the network as measured beside the model's passes, buckets are planned. Then DDP with the recorded
buckets, with the planned ones, and with others takes turns. The gain that was predicted, with its
interval, stands beside the measured one; so do all predicted steps. The gain of the two extreme
rules (a bucket for each gradient, one for all) shows what there is to lose. With `--fsdp2` models
are sharded, and units are planned (`tuned_units`); with `--zero` DeepSpeed trains (`tuned_zero`).
"""

import argparse
import json
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from itertools import accumulate, pairwise, product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from emulated_hosts import Layout
from emulated_network import reason_unavailable
from real_models import MODELS
from runtime_jobs import Variant, on_hosts, take_turns, updates_of
from runtime_real import joined
from runtime_real_gradients import interfering
from runtime_report import Measured, measured, ranking, ratio, table
from tables import rows_below
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, schedule

from planner.cli.tune import proposed
from planner.families.caramel.evaluation import lasting_ns
from planner.families.caramel.for_target import plan_of_buckets, target_view
from planner.formats.importers.kineto_recorded import recorded_in
from planner.formats.importers.kineto_trace import read_trace
from planner.model.fitting import fit_network, sweep_sizes
from planner.profiling.samples import loss_of
from planner.runtime import World
from planner.runtime.measuring.sweep import measure_network
from planner.solving.bucketing import ddp_buckets
from planner.solving.targets import TARGETS
from planner.traces.proposals import Proposal, waited_for

RECORDED, PLANNED, EACH, ALL, FINER = "recorded", "planned", "each apart", "all in one", "a quarter"
STEPS = 5
"""Recorded steps."""

Wrap = Callable[[nn.Module], nn.Module]
"""Makes a model one that communicates by itself."""


class Circle(NamedTuple):
    """One setting: what was predicted, and what was measured."""

    title: str
    buckets: tuple[int, int]  # numbers of them, recorded and planned
    error: float  # of the prediction of the recorded step
    gain: tuple[float, float, float]  # predicted, least, most
    keep: bool
    variants: tuple[Measured, ...]

    @property
    def measured_gain(self) -> tuple[float, float, float]:
        """The median over the rounds, the least, the most."""
        known = {variant.name: variant for variant in self.variants}
        return ratio(known[RECORDED], known[PLANNED])

    @property
    def holds(self) -> bool:
        """Whether the measured gain is in the interval."""
        return self.gain[1] <= self.measured_gain[0] <= self.gain[2]


def traced(world: World, name: str, wrap: Wrap, folder: str) -> None:
    """Train a model that communicates, and write a trace of this rank."""
    model, inputs = MODELS[name]()
    wrapped = wrap(model)
    optimizer = updates_of(wrapped.parameters())

    def step() -> None:
        optimizer.zero_grad()
        loss_of(wrapped(*inputs)).backward()
        optimizer.step()

    recording(world, step, folder)


def recording(world: World, step: Callable[[], None], folder: str) -> None:
    """Run steps, and write a trace of this rank."""
    plan = schedule(wait=3, warmup=1, active=STEPS)
    with profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True) as profiler:
        for _ in range(4 + STEPS):
            step()
            profiler.step()
    profiler.export_chrome_trace(str(Path(folder, f"rank{world.rank}.json")))
    world.gather("traced", "")


def planned(world: World, folder: str, plan: Callable[[Sequence[bytes]], Any]) -> Any:
    """Return the plan that rank 0 makes of the traces of all ranks."""
    text = ""
    if world.rank == 0:
        ranks = [Path(folder, f"rank{rank}.json").read_bytes() for rank in range(world.size)]
        text = json.dumps(plan(ranks))
    return json.loads(world.gather("the plan", text)[0])


def circle_of(title: str, plan: Any, variants: Sequence[Measured]) -> Circle:
    """Return a setting whose variants were measured."""
    counts, gain = tuple(plan["buckets"]), tuple(plan["gain"])
    return Circle(title, counts, plan["error"], gain, plan["keep"], tuple(variants))


def circle(name: str, rate: int, share: float, folder: str, options: Any) -> Circle:
    """Trace, plan and run one setting, on one host; rank 0 returns what came of it."""
    with joined("gradients") as (world, _):
        model, _ = MODELS[name]()
        sizes = [4 * parameter.numel() for parameter in model.parameters()]
        limit_mb = sum(sizes) * share / 2**20
        swept = measure_network(
            world, "all_reduce", sweep_sizes(sum(sizes)), options.samples, warmup=1
        )
        contention = interfering(world, "all_reduce", MODELS[name](), options.samples)
        limits: Any = [limit_mb for _ in sizes]  # torch's type knows integers only
        options_of = {"process_group": world.group, "bucket_cap_mb_list": limits}
        traced(world, name, partial(DistributedDataParallel, **options_of), folder)
        cost = fit_network(swept).cost("table") if world.rank == 0 else None
        plan = planned(
            world,
            folder,
            lambda traces: _planned(traces, cost, contention, limit_mb),
        )
        variants = [
            Variant(each["name"], None, each["ns"], {"bucket_cap_mb_list": each["limits"]})
            for each in plan["variants"]
        ]
        times, _ = take_turns(
            world, MODELS[name], variants, rounds=options.rounds, steps=options.steps
        )
    rows = [measured(one.name, one.predicted_ns, times) for one in variants]
    return circle_of(f"{name}, {rate} Mbit/s, {share:g} of the gradients a bucket", plan, rows)


def _planned(traces: Sequence[bytes], cost: Any, contention: Any, limit_mb: float) -> Any:
    """Return what is planned from the traces, and the predicted steps of all variants."""
    read = [read_trace(data) for data in traces]
    ranks = [recorded_in(trace, place) for place, trace in enumerate(read)]
    place = ranks.index(waited_for(ranks))
    _, found = proposed(ranks, read[place], network=cost, interference=contention)
    problem = found.likeliest.problem
    sizes = target_view(problem, TARGETS["ddp"]).sizes
    limit = round(limit_mb * 2**20)
    ends = {size: number for number, size in enumerate(accumulate(sizes, initial=0))}
    planned = [
        b - a for a, b in pairwise(ends[end] for end in accumulate(found.proposed, initial=0))
    ]
    counts = {
        RECORDED: ddp_buckets(sizes, limit, limit),
        PLANNED: planned,
        EACH: [1] * len(sizes),
        ALL: [len(sizes)],
        FINER: ddp_buckets(sizes, limit // 4, limit // 4),
    }
    return {
        "buckets": (len(found.buckets), len(found.proposed)),
        "error": found.error,
        "gain": (found.gain, found.least_gain, found.most_gain),
        "keep": found.keep,
        "variants": [_priced(found, name, cut, sizes) for name, cut in counts.items()],
    }


def _priced(found: Proposal, name: str, counts: Sequence[int], sizes: Sequence[int]) -> Any:
    """Return a variant's limits (MiB) and its predicted step (ns)."""
    problem, ddp = found.likeliest.problem, TARGETS["ddp"]
    plan = plan_of_buckets(problem, ddp, target_view(problem, ddp), counts)
    cuts = pairwise(accumulate(counts, initial=0))
    return {
        "name": name,
        "ns": found.parts["other"] + lasting_ns(problem, plan),
        "limits": [sum(sizes[start:stop]) / 2**20 for start, stop in cuts],
    }


def report(circles: Sequence[Circle]) -> None:
    """Print the table and the sentences of all settings."""
    columns = [
        "setting",
        "buckets",
        "planned",
        "step off by",
        "gain",
        "interval",
        "measured",
        "rounds",
        "holds",
        "says",
    ]
    rows = []
    for each in circles:
        middle, low, high = each.measured_gain
        gain, least, most = each.gain
        rows.append(
            [
                each.title,
                *each.buckets,
                f"{each.error:+.1%}",
                f"{gain:.2f}",
                f"{least:.2f} – {most:.2f}",
                f"{middle:.2f}",
                f"{low:.2f} – {high:.2f}",
                "yes" if each.holds else "no",
                "keep" if each.keep else "set",
            ]
        )
    print("### predicted from traces against measured\n")
    rows_below(columns, rows)
    errors = sorted(abs(each.error) for each in circles)
    ranks = [ranking(each.variants) for each in circles]
    clear = sum(one.right + one.wrong + one.tied for one in ranks)
    right = sum(one.right for one in ranks)
    print(
        f"Recorded steps are predicted {median(errors):.1%} off in the median, {errors[-1]:.1%} at "
        f"worst. The interval holds in {sum(each.holds for each in circles)} of {len(circles)} "
        f"settings. Of {clear} pairs of buckets that differ in every round, {right} are ranked "
        "rightly."
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description="does what planner tune predicts from traces come true?",
        epilog="example: %(prog)s --models mixer --rates 400",
    )
    parser.add_argument("--quick", action="store_true", help="one setting, few steps")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=list(MODELS),
        default=["mixer", "transformer", "branching", "separable"],
    )
    parser.add_argument("--rates", nargs="+", type=int, default=[400, 200], metavar="MBIT")
    parser.add_argument(
        "--share",
        nargs="+",
        type=float,
        default=[0.4],
        help="of the gradients in a bucket; default: 0.4",
    )
    parser.add_argument("--fsdp2", action="store_true", help="units of FSDP2, no buckets")
    parser.add_argument(
        "--zero", nargs="+", type=int, choices=[1, 2], help="stages of DeepSpeed's ZeRO"
    )
    parser.add_argument("--rounds", type=int, default=5, help="default: 5")
    parser.add_argument("--steps", type=int, default=3, help="of each variant a round; default: 3")
    options = parser.parse_args(argv)
    options.samples = 3
    if options.quick:
        options.models, options.rates, options.share = (
            ["wide_resnet"],
            options.rates[:1],
            options.share[:1],
        )
        options.rounds = options.samples = options.steps = 1
    reason = reason_unavailable(cores=2)
    if options.zero and find_spec("deepspeed") is None:
        reason = "DeepSpeed is not installed (pip install deepspeed)"
    if reason is not None:
        print(f"skipped: {reason}")
        return 0
    kinds: list[Callable[..., Circle]] = [circle]
    if options.fsdp2 or options.zero:
        options.share = options.share[:1]
        # These import this.
        from tuned_units import circle as of_units
        from tuned_zero import STAGES

        kinds = [STAGES[stage] for stage in options.zero] if options.zero else [of_units]
    circles = []
    for run, name, rate, share in product(kinds, options.models, options.rates, options.share):
        with TemporaryDirectory() as folder:
            arguments = name, rate, share, folder, options
            done = on_hosts(Layout.flat(2), rate * 10**6, run, *arguments, timeout_s=900)
        circles.append(done)
        text = table(done.variants, RECORDED, "buckets")
        print(f"### {done.title}\n\n{text}\n", flush=True)
    report(circles)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
