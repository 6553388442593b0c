"""The command line, as a person meets it."""

import io
import json
import re
import sys
from pathlib import Path

import pytest

from planner.cli import main
from planner.jsonio import decode_profile
from tests.cli.commands import commands

REQUEST = {"problem": "ibatch", "startup_ns": 4, "transfer_ns": [3, 1, 5], "compute_ns": [2, 6, 1]}
LAYERS = [
    {"name": f"l{i}", "forward_ns": 1000 * i, "backward_ns": 2000, "parameter_bytes": 4000 * i}
    for i in range(1, 6)
]
PROFILE = {
    "name": "tiny",
    "provenance": {"kind": "synthetic", "source": "a test"},
    "batch_size": 2,
    "layers": LAYERS,
}
FAST = "exact,greedy,greedy_forward,greedy_backward,one_batch,layer_by_layer,mg_wfbp,ddp"
NETWORK = ["--startup", "1us", "--bandwidth", "10Gb/s"]


def piped(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_solve_reads_standard_input(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    piped(monkeypatch, json.dumps(REQUEST).encode())
    assert main(["solve"]) == 0
    out, err = capfdbinary.readouterr()
    assert json.loads(out)["status"] == "optimal"
    assert out.count(b"\n") == 1
    assert err == b""


def test_invalid_requests_exit_with_2(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    piped(monkeypatch, json.dumps({**REQUEST, "startup_ns": -1}).encode())
    assert main(["solve", "-"]) == 2
    out, err = capfdbinary.readouterr()
    assert json.loads(out)["error"]["path"] == "startup_ns"
    assert b"Traceback" not in err


def test_streams_keep_order_and_survive_bad_lines(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = tmp_path / "requests.jsonl"
    good = json.dumps(REQUEST)
    path.write_text(f"{good}\n{{\n{good}\n\n{good}\n")
    assert main(["solve", "--jsonl", str(path)]) == 2
    answers = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    assert ["status" in answer for answer in answers] == [True, False, True, False, True]
    path.write_text(good + "\n" + good)
    assert main(["solve", "--jsonl", str(path)]) == 0
    assert len(capfdbinary.readouterr().out.splitlines()) == 2


def test_answers_go_into_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    request, answer = tmp_path / "request.json", tmp_path / "answer.json"
    request.write_text(json.dumps(REQUEST))
    assert main(["solve", str(request), "-o", str(answer)]) == 0
    assert json.loads(answer.read_bytes())["status"] == "optimal"
    piped(monkeypatch, b"{")
    assert main(["solve", "--output", str(answer)]) == 2
    assert json.loads(answer.read_bytes())["error"]["code"] == "invalid_request"
    request.write_text(f"{json.dumps(REQUEST)}\n{{\n")
    assert main(["solve", "--jsonl", str(request), "-o", str(answer)]) == 2
    first, second = map(json.loads, answer.read_bytes().splitlines())
    assert "status" in first
    assert "error" in second
    assert capfdbinary.readouterr() == (b"", b"")
    piped(monkeypatch, json.dumps(REQUEST).encode())
    assert main(["solve", "-o", "-"]) == 0
    assert json.loads(capfdbinary.readouterr().out)["status"] == "optimal"


@pytest.mark.parametrize("options", [[], ["--jsonl"]])
def test_answers_never_replace_what_is_needed(
    options: list[str], tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    request = tmp_path / "request.json"
    request.write_text(json.dumps(REQUEST))
    for output, message in (
        (request, b"which is read"),
        (tmp_path / "nowhere" / "a.json", b"no such folder"),
        (tmp_path, b"is a folder"),
    ):
        assert main(["solve", *options, str(request), "-o", str(output)]) == 2
        out, err = capfdbinary.readouterr()
        assert out == b""
        assert message in err
    assert json.loads(request.read_text()) == REQUEST
    kept = tmp_path / "kept.json"
    kept.write_text("kept")
    assert main(["solve", *options, str(tmp_path / "none.json"), "-o", str(kept)]) == 2
    assert kept.read_text() == "kept"


def test_a_fault_exits_with_1(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("planner.families.ibatch.family.check", broken)
    monkeypatch.delenv("PLANNER_DEBUG", raising=False)
    piped(monkeypatch, json.dumps(REQUEST).encode() + b"\n{\n")
    assert main(["solve", "--jsonl"]) == 1  # though a request is invalid too
    out, err = capfdbinary.readouterr()
    assert len(out.splitlines()) == 2
    assert b"Traceback" not in err
    monkeypatch.setenv("PLANNER_DEBUG", "1")
    piped(monkeypatch, json.dumps(REQUEST).encode())
    assert main(["solve"]) == 1
    assert b"ZeroDivisionError" in capfdbinary.readouterr().err


def test_missing_files_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["solve", "nowhere.json"], ["draw", "nowhere.json"]):
        assert main(command) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert "nowhere.json" in err


def test_compare_puts_the_best_first(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    for direction in ("pull", "push"):
        assert (
            main(["compare", profile, *NETWORK, "--methods", FAST, "--direction", direction]) == 0
        )
        out = capsys.readouterr().out
        rows = out.splitlines()
        start = next(i for i, row in enumerate(rows) if row.startswith("method")) + 2
        assert rows[start].startswith("exact")
        assert "0.00%" in rows[start]
        assert "optimal" in rows[start]
        assert (re.search("left out: (mg_wfbp, )?ddp", out) is not None) == (direction == "pull")
        assert "communication" in out


def test_compare_as_json_is_sorted(profile: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", profile, *NETWORK, "--methods", FAST, "--json"]) == 0
    answers = json.loads(capsys.readouterr().out)
    costs = [answer["objective_ns"] for answer in answers]
    assert costs == sorted(costs)
    assert len({answer["lower_bound_ns"] for answer in answers}) == 1
    assert answers[0]["layer_names"] == [f"l{i}" for i in range(1, 6)]


def test_compare_says_why_methods_have_no_plan(
    profile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["compare", profile, *NETWORK, "--methods", "exact,one_batch", "--max-batch", "30kB"]
    assert main(command) == 0
    assert "one_batch: the batches of method one_batch break" in capsys.readouterr().out
    assert main([*command[:-1], "1kB"]) == 0
    out, err = capsys.readouterr()
    assert "layer 0 has 4000 bytes" in out
    assert "no method found a plan" in err


def test_import_warns_on_standard_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = tmp_path / "graph.txt"
    graph.write_text(
        "node1 -- Input -- forward_compute_time=9.0, backward_compute_time=0.0, "
        "activation_size=8.0, parameter_size=0.0\n"
        "node2 -- Linear(in_features=1, out_features=1) -- forward_compute_time=1.0, "
        "backward_compute_time=1.0, activation_size=8.0, parameter_size=8.0\n"
    )
    assert main(["import", "pipedream", str(graph), "--batch-size", "4"]) == 0
    out, err = capsys.readouterr()
    assert decode_profile(out.encode()).name == "graph"
    assert "data loading" in err
    graph.write_bytes(b"\xff")
    assert main(["import", "pipedream", str(graph)]) == 2
    assert "not UTF-8" in capsys.readouterr().err
    assert main(["import", "pipedream", str(graph), "--batch-size", "0"]) == 2


def test_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema", "ibatch"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {"request", "answer", "error"}
    assert main(["schema"]) == 0
    assert "profile" in json.loads(capsys.readouterr().out)
    assert main(["schema", "ibtach"]) == 2


@pytest.mark.parametrize("path", [one.path for one in commands() if "--quiet" in one.options])
def test_every_help_text_has_an_example(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*path, "--help"])
    assert caught.value.code == 0
    name = " ".join(path)
    assert re.search(rf"\bexample\b[^\0]*\bplanner {name}\b", capsys.readouterr().out)


def test_usage_errors_exit_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ([], ["paint"]):
        with pytest.raises(SystemExit) as caught:
            main(command)
        assert caught.value.code == 2
    assert main(["compare"]) == 2
    assert "usage:" in capsys.readouterr().err


def test_profile_keeps_standard_output_for_the_profile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    (tmp_path / "noisy_model.py").write_text(
        "import torch\nprint('hello')\n"
        "def make():\n    return torch.nn.Linear(2, 2), (torch.ones(1, 2),)\n"
        "def leave():\n    raise SystemExit(0)\n"
    )
    monkeypatch.chdir(tmp_path)
    options = ["--repetitions", "2", "--warmup", "0"]
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert main(["profile", "noisy_model:make", *options]) == 0
    out, err = capfdbinary.readouterr()
    assert decode_profile(out).parameter_bytes == 24
    assert b"hello" in err
    assert b"1 layer, 2 parameters with gradients, 24 B" in err
    assert b"written to standard output" in err
    assert b"by 1 thread\n" in err
    assert decode_profile(out).provenance.threads == 1
    assert main(["profile", "noisy_model:make", *options, "--threads", "2"]) == 0
    out, err = capfdbinary.readouterr()
    assert b"by 2 threads\n" in err
    assert decode_profile(out).provenance.source.endswith("--threads 2")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # as torchrun sets it, before torch is loaded
    assert main(["profile", "noisy_model:make", *options]) == 0
    own = torch.get_num_threads()
    torch.set_num_threads(threads)
    assert f"by {own} thread{'s' * (own > 1)}\n".encode() in capfdbinary.readouterr().err
    assert main(["profile", "noisy_model:make", *options, "-o", "made.json"]) == 0
    out, err = capfdbinary.readouterr()
    assert b"written to made.json" in out
    assert decode_profile((tmp_path / "made.json").read_bytes()).parameter_bytes == 24
    assert main(["profile", "noisy_model:leave", *options]) == 2
    assert b"ended the program" in capfdbinary.readouterr().err
    assert main(["profile", "noisy_model:make", "-o", "nowhere/profile.json"]) == 2
