"""The benchmarks of executed steps: what they execute, what they keep, what they say."""

import argparse
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import runtime_real
import runtime_real_gradients
from real_models import BLOCKS, MODELS
from runtime_ablations import ABLATIONS, bucketed, ddp_plan
from runtime_cluster import fitted, unmeasured
from runtime_jobs import Variant
from runtime_real_gradients import BLIND, BY_LAYER, DDP, PLANNED, STATIC, TUNED, Named
from runtime_real_kept import Kept, Setting, Task
from runtime_real_report import shown, summaries
from runtime_real_shards import COLLECTIVES, blocks_of, requests
from runtime_report import Measured, ranking, ratio, summary, table
from runtime_waiting import WaitingModel, load, scaled_units

import planner
from planner.families import iteration
from planner.families.iteration.plan import Mode
from planner.families.iteration.synchronisation import synchronisations
from planner.model.clusters import Cluster, Nic
from planner.model.contention import NO_CONTENTION, Interference
from planner.model.layers import Layer
from planner.model.profiles import Profile, Provenance
from planner.model.topologies import BCube, Switch, Topology
from planner.programs import program_of
from planner.runtime.measuring.measured import MeasuredTime, StepTime
from planner.solving.bucketing import ddp_buckets
from planner.solving.transfers import Part


def variant(name: str, predicted: int | None, *rounds: int) -> Measured:
    """Return a variant with rounds of one step each."""
    return Measured(name, predicted, tuple((time,) for time in rounds))


def chain(*sizes: int, ns: int = 10**6) -> Profile:
    """Return a profile of layers with one parameter each, of these bytes."""
    layers = tuple(
        Layer(f"l{place}", ns, 2 * ns, size, parameters=(f"{place}.weight",))
        for place, size in enumerate(sizes)
    )
    return Profile("a chain", layers, Provenance("synthetic", "a test"))


# ---
# Joint plans: clusters from times, plans without a decision.


LIMITS = 2_000, 5_000
SIZES = [400 * (number + 1) for number in range(10)]


def cluster_of(topology: Topology) -> Cluster:
    levels = topology.k if isinstance(topology, BCube) else 1
    nic = Nic(Fraction(12_345_678), 700_000, levels, 90_000)
    return Cluster("tried", "a test", topology.servers, topology, nic)


def times_of(cluster: Cluster, *algorithms: str) -> dict[str, list[tuple[int, int]]]:
    return {
        option.algorithm: [
            (size, option.all_reduce.cost_ns(size)) for size in (2**13, 2**17, 2**21)
        ]
        for option in synchronisations(cluster, *([algorithms] if algorithms else []))[0]
    }


@pytest.mark.parametrize("topology", [Switch(4), Switch(9), BCube(3, 2)])
def test_times_of_the_model_give_its_numbers(topology: Topology) -> None:
    cluster = cluster_of(topology)
    fit = fitted(unmeasured(topology, cluster.machines, 1), times_of(cluster))
    nic = fit.cluster.nic
    assert float(nic.bytes_per_s) == pytest.approx(12_345_678, rel=1e-4)
    assert nic.startup_ns == pytest.approx(700_000, rel=1e-4)
    assert nic.message_ns == pytest.approx(90_000, rel=1e-3)
    assert max(fit.errors.values()) < 1e-3
    # A ring sends one message a step: what no time depends on is none.
    four = cluster_of(Switch(4))
    assert fitted(four, times_of(four, "ring")).cluster.nic.message_ns == 0


def problem_of(mode: Mode) -> iteration.Problem:
    cluster = Cluster("tried", "a test", 4, Switch(4), Nic(Fraction(10**6), 300_000))
    return iteration.Problem.from_profile(chain(*SIZES), cluster, modes=[mode], element_bytes=4)


@pytest.mark.parametrize("mode", iteration.MODES)
@pytest.mark.parametrize("name", ABLATIONS)
def test_a_plan_without_a_decision_is_one_and_no_better(name: str, mode: Mode) -> None:
    problem = problem_of(mode)
    result = iteration.solve(problem)
    assert result.plan is not None
    changed = ABLATIONS[name](problem, result.plan, LIMITS)
    anywhere = replace(problem, modes=iteration.MODES)
    iteration.check(anywhere, changed)
    assert changed != result.plan
    assert changed.algorithm == result.plan.algorithm
    assert iteration.evaluate(anywhere, changed).iteration_ns >= (result.lower_bound_ns or 0)


def test_buckets_are_ddps_from_the_last_gradient_on() -> None:
    problem = problem_of("replicated")
    plan = bucketed(problem, "ring", LIMITS)
    counts = ddp_buckets(SIZES[::-1], *LIMITS)
    assert [len(transfer.parts) for transfer in plan.transfers] == counts
    assert [part.parameter for transfer in plan.transfers for part in transfer.parts] == [
        *reversed(range(10))
    ]
    assert plan.barrier
    assert ddp_plan(problem.gradients["ring"], LIMITS).barrier


def test_ddps_buckets_leave_where_the_plan_has_their_first_bytes() -> None:
    problem = problem_of("replicated")
    # In the reverse order of what is ready first.
    parts = [Part(place, 0, size) for place, size in enumerate(SIZES)]
    transfers = tuple(iteration.Transfer((part,)) for part in parts)
    order = problem.base.order
    plan = iteration.Plan("ring", transfers, (order.backward,), order.forward)
    changed = ABLATIONS["`joint`, in DDP's buckets"](problem, plan, LIMITS)
    firsts = [min(part.parameter for part in transfer.parts) for transfer in changed.transfers]
    assert firsts == sorted(firsts)
    assert len(firsts) > 1
    assert not changed.barrier


# ---
# What is said of predictions, on numbers worked out by hand.


FAST = variant("fast", 100, 110, 112, 111)
SAME = variant("same", 100, 130, 131, 132)
WRONG = variant("wrong", 90, 200, 210, 205)
NOISY = variant("noisy", 150, 109, 300, 111)
UNKNOWN = variant("unknown", None, 1, 1, 1)


def test_pairs_are_ranked_as_measured() -> None:
    ranks = ranking([FAST, SAME, WRONG, NOISY, UNKNOWN])
    # fast–same: predicted equal; fast–wrong and same–wrong: the other way round. Noisy is faster
    # than each of the others in some rounds and slower in others, or as fast.
    assert (ranks.right, ranks.wrong, ranks.tied, ranks.within_noise) == (0, 2, 1, 3)
    assert ranks.tau == pytest.approx(-2 / 3)
    assert [text.split(" (")[0] for text in ranks.mistakes] == [
        "fast against wrong",
        "same against wrong",
    ]
    ranks = ranking([FAST, variant("slow", 101, 111, 113, 112)])
    assert (ranks.right, ranks.tau) == (1, 1.0)
    assert ranking([FAST, NOISY]).tau is None


def test_ratios_are_taken_round_by_round_and_errors_relative_to_the_measurement() -> None:
    one, other = variant("one", None, 20, 90, 40), variant("other", None, 10, 30, 10)
    assert ratio(one, other) == (3, 2, 4)
    assert FAST.error == pytest.approx(-11 / 111)  # predicted too short
    assert FAST.error == MeasuredTime("", FAST.predicted_ns, (FAST.median_ns,)).error
    assert UNKNOWN.error is None
    assert "off by 9.9% (median), 9.9% at worst" in summary([("one", [FAST, UNKNOWN])])
    assert table([FAST, UNKNOWN], "fast").splitlines()[2].startswith("| fast | 100 ns | 111 ns |")


@pytest.mark.parametrize("name", ["vgg16", "resnet50", "gpt2_small", "lenet5"])
def test_scaled_units_keep_times_and_sizes(name: str) -> None:
    profile = load(name)
    units = scaled_units(profile, 0.2, 4e6)
    assert sum(unit.forward_s + unit.backward_s for unit in units) == pytest.approx(0.2)
    assert sum(unit.bytes for unit in units) == pytest.approx(4e6, rel=1e-3)
    assert 0 < len(units) <= len({layer.block for layer in profile.layers})
    counts = [parameter.numel() for parameter in WaitingModel(units).parameters()]
    assert counts == [count for unit in units for count in unit.elements]


# ---
# Real computation: what is kept, what is executed once, what is said.


TASK = Task("gradients", "transformer", 2, 200)
HOW = {"rounds": 2}


def setting(
    planned: tuple[int, int],
    ddp: tuple[int, int],
    predicted: int = 120,
    tuned: int | None = None,
    **changes: Any,
) -> Setting:
    """Return a setting in which DDP's default takes 200, and the plan is predicted to take 100."""
    variants = [
        variant(PLANNED, 100, *planned),
        variant(BLIND, 1, *planned),
        variant(BY_LAYER, 140, 150, 150),
        variant(DDP, 200, 200, 200),
        variant("DDP, 1 MB", predicted, *ddp),
        variant(STATIC, 200, 210, 210),
        *([] if tuned is None else [variant(TUNED, 100, tuned, tuned)]),
    ]
    return replace(Setting("a model", tuple(variants), 100, 100), **changes)


def test_settings_are_kept_for_the_next_run(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    kept = Kept(path, HOW)
    made = setting((100, 101), (110, 112), during=0.02)
    kept.keep(TASK, made)
    kept.keep_network(2, 200, "all_reduce", [[64, 5], [128, 6]])
    again = Kept(path, HOW)
    assert again.setting(TASK) == made
    assert again.setting(TASK._replace(rate=100)) is None
    assert again.network(2, 200, "all_reduce") == [[64, 5], [128, 6]]
    assert again.network(4, 200, "all_reduce") is None
    with pytest.raises(SystemExit, match="was measured with"):
        Kept(path, {"rounds": 3})


def test_a_setting_beside_other_load_is_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = argparse.Namespace(anyway=False, quick=True)
    kept = Kept(tmp_path / "kept.json", HOW)
    quiet, busy = setting((1, 1), (2, 2)), setting((3, 3), (4, 4), during=0.06)
    monkeypatch.setattr(runtime_real, "busy", lambda: 0.01)
    monkeypatch.setattr(runtime_real, "rows_for", lambda *_: [])
    monkeypatch.setattr(runtime_real, "on_hosts", lambda *_, **__: quiet)
    kept.keep(TASK, busy)
    assert runtime_real.measured_setting(TASK, kept, options) == replace(quiet, before=0.01)
    kept.keep(TASK, busy)
    options.anyway = True
    assert runtime_real.measured_setting(TASK, kept, options) == busy


def test_a_busy_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_real, "settled", lambda: 0.5)
    options = argparse.Namespace(anyway=False, quick=False)
    with pytest.raises(SystemExit) as stopped:
        runtime_real.measured_setting(TASK, Kept(None, HOW), options)
    assert stopped.value.code == runtime_real.STOPPED


def test_variants_that_come_to_the_same_are_executed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, profile = [[64, 10**5], [10**7, 10**8]], chain(3 * 2**20, 3 * 2**20, ns=10**7)
    documents = runtime_real_gradients.variants_for(
        replace(profile, layers=(), graph=profile.dataflow()), rows, NO_CONTENTION
    )
    keys = {one["name"]: one["key"] for one in documents}
    assert len(keys) == 6 + 7 + 1
    assert keys[PLANNED] == keys[BLIND]  # nothing interferes
    alike = {name for name, key in keys.items() if key == keys["DDP, 10 MB"]}
    assert alike == {f"DDP, {size} MB" for size in (5, 10, 25, 50, 100)}
    assert keys[DDP] == keys["DDP, 1 MB"] != keys["DDP, 10 MB"]
    assert keys[STATIC] not in {key for name, key in keys.items() if name != STATIC}
    for one in documents[:6]:
        assert program_of(one["plan"])

    executed = []

    def take_turns(_: Any, __: Any, variants: list[Variant], **___: Any) -> Any:
        executed.extend(variants)
        return {one.name: ((StepTime(7, 0, 0, 0, 7),),) for one in variants}, {}

    monkeypatch.setattr(runtime_real_gradients, "take_turns", take_turns)
    named = [
        Named(Variant(one["name"], one["plan"], one["predicted_ns"]), one["key"])
        for one in documents
    ]
    options: Any = argparse.Namespace(rounds=1, steps=1)
    nothing: Any = None
    found = runtime_real_gradients.measured_once(nothing, nothing, named, options, "")
    assert [one.name for one in found] == list(keys)
    assert [one.predicted_ns for one in found] == [one["predicted_ns"] for one in documents]
    assert len(executed) == len(set(keys.values())) < len(keys)


def test_a_setting_says_what_else_ran_and_what_was_advised() -> None:
    text = shown(TASK, setting((100, 100), (90, 90), 102, before=0.01, during=0.3))
    assert "### transformer, 200 Mbit/s\n" in text
    assert "The answer says: keep DDP. Others took 1% of the processors before and 30% mean" in text
    assert "more than these times bear" in text


def test_summaries_over_all_settings() -> None:
    found = [
        (TASK, setting((100, 100), (90, 95), 102)),
        (TASK._replace(rate=100), setting((100, 100), (125, 125), transfer_ns=300)),
        (TASK._replace(rate=400), setting((100, 100), (98, 98))),
        (TASK._replace(rate=50), setting((100, 100), (104, 104), 101, transfer_ns=300)),
    ]
    text = summaries(found)
    # 92.5, 125, 98 and 104 over 100; of the first and the third communication is like computation.
    best = "`search` over best DDP: 1.042 in the geometric mean (0.93 at least), 0.952 of the 2"
    assert f"{best} where" in text
    slower = "transformer, 200 Mbit/s (0.93), transformer, 400 Mbit/s (0.98)"
    assert f"slower in every round: {slower}." in text
    assert "`search` over DDP: 2.000 in the geometric mean (2.00 at least)" in text
    kept = "2 times to keep DDP, 1 times rightly (plans gained 4.0% at most)"
    run = "2 times to run the plan, 1 times rightly (1.107 times as fast in the geometric mean)"
    assert f"{kept}; {run}." in text
    said = "At 400 Mbit/s `search` over best DDP: 0.980 in the geometric mean (0.98 to 0.98)"
    assert f"{said}; where it is to run, 0.980 (1 model). `search` is predicted 0.0% off" in text
    # Predictions of the plan that knows nothing of interference count neither way.
    assert "20 predictions" in text


def test_one_model_left_out_and_what_tune_chose() -> None:
    """Predicted gains are 1.2, measured ones 1.2, 1.1 and 0.9: 0, 9 and 33 % too high.

    In the last sending takes twice a step, so that margins from 15 % on keep DDP there.
    """
    text = summaries(
        [
            (
                Task("gradients", model, 2, 200),
                setting((100, 100), (ddp, ddp), tuned=tuned, sending_ns=sending),
            )
            for model, ddp, tuned, sending in (
                ("a", 120, 120, None),
                ("b", 110, 100, 0),
                ("c", 90, 90, 240),
            )
        ]
    )
    assert "predicted too high by 9.1% in the median, 33.3% at most" in text
    assert "best for all models but one is 0 to 0.15 (0.15 is used)" in text
    assert "by it, 3 plans run of the model left out, and 2 of 3 decisions are right" in text
    assert "`planner.tune` over best DDP: 1.032 in the geometric mean (1.00 at least)" in text


def test_what_predictions_of_plans_miss_where_they_are_to_run() -> None:
    kept, run = setting((110, 110), (120, 120), 101), setting((100, 100), (120, 120))
    text = summaries([(TASK, kept), (TASK, run)])
    off = "`search` is predicted 4.5% off in the median, 9.1% at worst"
    assert f"{off} (where it is to run 0.0%, 0.0%)." in text


def test_what_fsdp2_shards_by_itself() -> None:
    counts = {name: len(blocks_of(MODELS[name]()[0])) for name in BLOCKS}
    assert counts == {"transformer": 6, "wide_resnet": 8, "language": 4, "branching": 6}


def test_shards_are_planned_beside_computation() -> None:
    rows = {name: [[64, 10**5], [10**6, 10**7]] for name in COLLECTIVES}
    slower, alone = (
        [planner.solve(one) for one in requests(chain(*[10**5] * 3), rows, beside, "exact")]
        for beside in (
            dict.fromkeys(COLLECTIVES, Interference(1000, Fraction(1), Fraction(2))),
            dict.fromkeys(COLLECTIVES, NO_CONTENTION),
        )
    )
    for one, other in zip(slower, alone, strict=True):
        assert one["makespan_ns"] > other["makespan_ns"]
    assert program_of(tuple(slower))
