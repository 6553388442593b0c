"""The stand-ins of ``data/yan``: as their script writes them, and as the paper ranks them."""

import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

import planner

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "data" / "yan"


def load(name: str) -> dict[str, Any]:
    request: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return request


def test_the_files_are_what_the_script_writes() -> None:
    requests = run_path(str(ROOT / "data" / "make_yan.py"))["requests"]()
    assert {path.stem for path in FOLDER.glob("*.json")} == set(requests)
    for name, request in requests.items():
        assert load(name) == request


@pytest.mark.parametrize(
    ("name", "layers", "least", "most"),
    [("mnist", 5, 2.45e6, 2.55e6), ("imagenet22k", 8, 2e9, 2.2e9)],
)
def test_the_stand_ins_meet_the_totals_the_paper_prints(
    name: str, layers: int, least: float, most: float
) -> None:
    request = load(name)
    assert len(request["layers"]) == layers
    assert least <= sum(layer["connections"] for layer in request["layers"]) <= most
    assert request["note"].startswith("Synthetic")
    assert (request["machines"], request["cores"]) == (20, 16)


@pytest.mark.parametrize(
    ("name", "ranks"),
    [
        ("mnist-table1", "2/9/2 2/8/4 2/6/8 4/4/4 1/19/1 1/18/2 1/16/4 1/12/8"),
        ("imagenet22k-table1", "4/4/4 4/4/2 2/9/2 4/3/6 4/3/4 2/8/4 2/6/6 2/6/4"),
    ],
)
def test_table_1_comes_out_rank_by_rank(name: str, ranks: str) -> None:
    request = load(name)
    request["fixed"].reverse()  # the order in which they are given must not matter
    answer = planner.solve(request)
    assert answer["status"] == "optimal"
    assert [
        f"{row['workers_per_replica']}/{row['replicas']}/{row['parameter_servers']}"
        for row in answer["top"]
    ] == ranks.split()
    assert "interference" in request["constants"]


@pytest.mark.parametrize("name", ["mnist", "imagenet22k"])
def test_the_best_of_all_is_proven_and_better_than_table_1(name: str) -> None:
    best = planner.solve(load(name))
    given = planner.solve(load(f"{name}-table1"))
    assert best["status"] == "optimal"
    assert best["epoch_ns"] <= given["epoch_ns"]
