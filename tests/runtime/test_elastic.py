"""A job goes on with other ranks than before: planned for what is there, from its checkpoint."""

import os
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest

pytest.importorskip("torch")

import elastic
import torch

from planner import iteration
from planner.clusters import Cluster, Nic
from planner.jsonio import encode_profile
from planner.profiles import Profile
from planner.profiling import measure
from planner.runtime import attach, follow, join, plan_for
from planner.topologies import BCube, Switch
from tests.runtime.launching import free_port, launch
from tests.runtime.reference import backward, make_model, make_optimizer, measured

ROOT = Path(__file__).parents[2]
SCRIPT = Path(elastic.__file__)


def torchrun(folder: Path, ranks: int, steps: int) -> str:
    """Run the example on so many ranks, until so many steps are done; return what it printed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
    command += ["--master-port", str(free_port()), str(SCRIPT), "profile.json"]
    done = subprocess.run(
        [*command, "--steps", str(steps)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_torchrun_starts_again_with_fewer_and_with_more_ranks(tmp_path: Path) -> None:
    """Weights are those of a plain loop that adds up the same ranks' gradients."""
    profile = measure(*elastic.make(), name="elastic", source="", warmup=0, repetitions=1)
    (tmp_path / "profile.json").write_text(encode_profile(profile), encoding="utf-8")
    model, _ = elastic.make()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    done = 0
    for ranks, steps in ((3, 10), (1, 20), (2, 30)):
        printed = torchrun(tmp_path, ranks, steps)
        assert f"from step {done} on {ranks} ranks" in printed
        assert f"{steps} steps are done" in printed
        for step in range(done, steps):
            optimizer.zero_grad()
            for rank in range(ranks):
                (elastic.loss_of(model, step, rank, ranks) / ranks).backward()
            optimizer.step()
        done = steps
        checkpoint = torch.load(tmp_path / "checkpoint.pt")
        assert checkpoint["steps"] == steps
        for name, weight in model.state_dict().items():
            assert torch.allclose(weight, checkpoint["model"][name], atol=1e-4), name


def on_a_cluster(cluster: Cluster, profile: Profile | None) -> tuple[int, bool, int]:
    """Plan for the ranks there are; tell for how many, the mode, and what a step lasts."""
    problem = iteration.Problem.from_profile(profile or measured("perceptron"), cluster)
    model = make_model("perceptron")
    with join(20) as world:
        plan = plan_for(world, problem)
        with attach(model, plan, make_optimizer("sgd", model), world) as executor:
            follow(executor, plan)
            backward(model, "perceptron", world.rank, 0)
            executor.step()
        assert isinstance(plan.problem, iteration.Problem)
        assert isinstance(plan.plan, iteration.Plan)
        return plan.problem.cluster.workers, plan.plan.mode == "replicated", plan.step_ns


NIC = Nic(Fraction(10**8), 20_000)
SWITCH = Cluster("c", "a test", 8, Switch(8), NIC)


def test_a_problem_is_planned_for_the_ranks_that_are_there() -> None:
    outcomes = launch(on_a_cluster, 2, SWITCH, measured("perceptron"), timeout_s=60)
    for outcome in outcomes:
        assert outcome.error is None, outcome.error.trace
        assert outcome.value == outcomes[0].value
    assert outcomes[0].value[:2] == (2, True)


@pytest.mark.parametrize(
    ("cluster", "error", "text"),
    [
        (
            Cluster("c", "a test", 4, BCube(2, 2), replace(NIC, per_machine=2)),
            "InvalidInputError",
            "no place for 2 workers",
        ),
        (SWITCH, "DisagreementError", "do not agree on the problem"),
    ],
)
def test_what_cannot_be_planned_is_told_on_all_ranks(
    cluster: Cluster, error: str, text: str
) -> None:
    """A topology that has no place for the ranks; a profile that each of them measures itself."""
    errors = [outcome.error for outcome in launch(on_a_cluster, 2, cluster, None, timeout_s=60)]
    assert error in {each.type for each in errors if each}
    assert all(each and text in each.text for each in errors)


def started_again(shared: str | None) -> int:
    """Join a job whose launchers have counted other numbers of failures."""
    rank = os.environ["RANK"]
    if shared is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = shared
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "3" if rank == "0" else "1"
    with join(20) as world:
        return world.size


def test_launchers_need_not_have_counted_the_same_failures() -> None:
    """One that came later has seen fewer. Rank 0 holds the store, which is new in each start."""
    for shared in (None, "False"):
        outcomes = launch(started_again, 2, shared, timeout_s=60)
        assert [outcome.value for outcome in outcomes] == [2, 2], outcomes
