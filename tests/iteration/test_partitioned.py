"""Yan's search beside the choice of machines: what was chosen, or why nothing."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from planner import solve, yan
from planner.cli import main
from planner.jsonio import decode_profile
from planner.jsonio.clusters import decode_cluster
from planner.yan.profiled import profiled

DATA = Path(__file__).parents[2] / "data"
PROFILE = DATA / "profiles/lenet5.json"
CLUSTER = DATA / "clusters/office-4.json"


def asked(**changes: Any) -> dict[str, Any]:
    request = {
        "problem": "iteration",
        "profile": json.loads(PROFILE.read_bytes()),
        "cluster": json.loads(CLUSTER.read_bytes()),
        "epoch_samples": 60_000,
        **changes,
    }
    return solve(request)


def test_it_is_the_search_of_yan() -> None:
    found = asked(computation_scale=0.5)["sizing"]["partitioned"]
    cluster = decode_cluster(CLUSTER.read_bytes())
    problem = profiled(
        decode_profile(PROFILE.read_bytes()), cluster, 60_000, computation=Fraction(1, 2)
    ).problem
    result = yan.solve(problem)
    assert result.plan is not None
    assert found["status"] == result.status == "optimal"
    assert found["epoch_ns"] == found["lower_bound_ns"] == result.objective_ns
    chosen = result.plan.configuration
    assert found["parameter_servers"] == chosen.parameter_servers
    assert [layer["partitions"] for layer in found["layers"]] == [
        layer.partitions for layer in chosen.layers
    ]
    assert found["assumptions"]


def test_not_where_only_replicas_are_allowed() -> None:
    assert "partitioned" not in asked(modes=["replicated"])["sizing"]


def test_what_the_profile_lacks_is_the_reason() -> None:
    profile = json.loads(PROFILE.read_bytes())
    del profile["layers"][2]["kind"]
    answer = asked(profile=profile)
    assert answer["status"] == "optimal"
    reason = answer["sizing"]["partitioned"]["reason"]
    assert reason.startswith("layers[2].kind: missing of layer 'features.pool1'")


def test_the_command_line_says_what_it_chose(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", str(PROFILE), "--cluster", str(CLUSTER), "--epoch-samples", "60000"]
    assert main(words) == 0
    assert "\nwith parameter servers (Yan's search, optimal): " in capsys.readouterr().out
