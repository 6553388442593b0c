"""``planner import`` of timed collectives, and what takes the network it writes."""

import json
from pathlib import Path

import pytest

from planner.cli import main
from tests.cli.test_seven_problems import DATA
from tests.formats.nccl_output import ROWS, run


@pytest.fixture
def network(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> str:
    logs = []
    for test in ("all_reduce", "all_gather", "reduce_scatter"):
        for hosts in (2, 4):
            log = tmp_path / f"{test}-{hosts}.log"
            log.write_text(run(ROWS, test=test, hosts=hosts, each=1))
            logs.append(str(log))
    place = tmp_path / "network.json"
    assert main(["import", "nccl-tests", *logs, "-o", str(place)]) == 0
    capsys.readouterr()
    return str(place)


def test_several_files_become_one_document(network: str) -> None:
    document = json.loads(Path(network).read_text())
    assert {name: [table["ranks"] for table in tables]
            for name, tables in document["collectives"].items()} == {
        "all_reduce": [2, 4], "all_gather": [2, 4], "reduce_scatter": [2, 4],
    }  # fmt: skip
    assert document["provenance"]["kind"] == "imported"


def test_links_of_a_host_are_said_and_kept(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "links.json", tmp_path / "again.json"
    said = ["--link", "4=32GB/s", "--link", "2=300GB/s"]
    assert main(["import", "network", network, *said, "-o", str(first)]) == 0
    assert main(["import", "network", str(first), "-o", str(second)]) == 0
    assert json.loads(second.read_text())["links"] == [
        {"ranks": 2, "bytes_per_s": 300_000_000_000},
        {"ranks": 4, "bytes_per_s": 32_000_000_000},
    ]
    capsys.readouterr()
    for wrong in ("2", "x=3GB/s", "2=3", "1=3GB/s"):
        assert main(["import", "network", network, "--link", wrong]) == 2
        assert "--link" in capsys.readouterr().err


def test_plan_takes_it_and_says_what_was_not_measured(
    network: str, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", profile, "--cluster", "caramel-8", "--network", network]
    assert main([*arguments, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["synchronisation"]["algorithm"] == "measured"
    assert any("among 8 ranks extrapolated from 2, 4" in text for text in answer["warnings"])
    assert main(arguments) == 0
    assert "measured tables" in capsys.readouterr().out


@pytest.mark.parametrize("problem", ["caramel", "ibatch"])
def test_compare_takes_it(
    problem: str, network: str, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["compare", profile, "--problem", problem, "--network", network]
    if problem == "caramel":
        arguments += ["--workers", "3"]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    if problem == "caramel":
        assert "all_reduce among 3 ranks interpolated between 2 and 4" in said
    else:
        assert "all_gather among 4 ranks as measured" in said


def test_a_request_takes_it(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collectives = json.loads(Path(network).read_text())["collectives"]
    request = {
        "problem": "ibatch",
        "layer_bytes": [2048, 4096],
        "compute_ns": [10, 20],
        "network": {"collectives": collectives},
    }
    place = tmp_path / "request.json"
    place.write_text(json.dumps(request))
    assert main(["solve", str(place)]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["status"] == "optimal"
    assert "warnings" not in answer


@pytest.mark.parametrize(
    ("problem", "options"),
    [
        ("bml", ["--bcube", "2,2"]),
        ("bigdl", ["--machines", "4"]),
        ("yan", ["--machines", "4", "--methods", "data_parallel"]),
        ("drizzle", ["--cluster", "drizzle-32"]),
    ],
)
def test_models_of_messages_take_the_nics_of_a_ring(
    problem: str, options: list[str], network: str, capsys: pytest.CaptureFixture[str]
) -> None:
    lenet = str(DATA / "profiles/lenet5.json")
    words = ["compare", lenet, "--problem", problem, "--network", network, *options]
    assert main([*words, "--json"]) == 0
    best = json.loads(capsys.readouterr().out)[0]
    assert best["status"] in ("optimal", "feasible")
    assert any("those on which a ring's all_gather" in text for text in best["warnings"])


def test_requests_of_messages_take_it_too(
    network: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collectives = json.loads(Path(network).read_text())["collectives"]
    place = tmp_path / "request.json"
    for request in (
        {"problem": "bml", "n": 2, "k": 2, "gradient_bytes": 4096},
        {
            "problem": "bigdl",
            "elements": 4096,
            "element_bytes": 4,
            "nodes": 4,
            "partitions_per_node": 1,
        },
    ):
        place.write_text(json.dumps({**request, "network": {"collectives": collectives}}))
        assert main(["solve", str(place)]) == 0, capsys.readouterr().err
        assert "a ring's all_gather" in json.loads(capsys.readouterr().out)["warnings"][-1]


@pytest.mark.parametrize("problem", ["caramel", "ibatch", "iteration"])
def test_compare_takes_a_clusters_own_tables(
    problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = {"caramel": "caramel", "ibatch": "greedy", "iteration": "ddp"}[problem]
    lenet = str(DATA / "profiles/lenet5.json")
    words = ["compare", lenet, "--problem", problem, "--methods", methods]
    assert main([*words, "--cluster", "h100ib-10"]) == 0
    said = capsys.readouterr().out
    collective = "all_gather" if problem == "ibatch" else "all_reduce"
    assert f"{collective} by measured tables" in said
    assert f"beyond the table of {collective}" in said
    assert "assumed" not in said


def test_compare_takes_tables_in_place_of_a_clusters_nics(
    network: str, profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["compare", profile, "--problem", "iteration", "--cluster", "caramel-8"]
    assert main([*words, "--network", network]) == 0
    assert "all_reduce among 8 ranks extrapolated from 2, 4" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        "plan {}",
        *(
            f"compare {{}} --problem {name}"
            for name in ("caramel", "ibatch", "iteration", "bigdl", "yan")
        ),
    ],
)
def test_what_is_assumed_is_said_first(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    lenet = DATA / "profiles/lenet5.json"
    assert main([*words.format(lenet).split(), "--cluster", "caramel-8"]) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("warning: start-ups are assumed, not measured")


def test_tuner(network: str, capsys: pytest.CaptureFixture[str]) -> None:
    choices = [f"ring/simple={network}", f"tree/ll={network}"]
    assert main(["export", "nccl-tuner", *choices]) == 0
    out, err = capsys.readouterr()
    assert "allreduce,1024,16777216,ring,simple,-1,2,2,-1,-1" in out
    assert "row" in err
    assert main(["export", "nccl-tuner", network]) == 2


def test_options_of_the_other_kind_are_refused(
    network: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["import", "network", network, "--batch-size", "3"]) == 2
    assert main(["import", "kineto", network, "--ranks", "3"]) == 2
    assert main(["import", "pipedream", network, network]) == 2
    assert capsys.readouterr().err.count("planner:") == 3
