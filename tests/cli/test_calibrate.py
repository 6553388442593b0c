"""``planner calibrate compute``, as a person meets it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import planner
from planner.cli import main
from planner.families.yan.calibration import compute


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["compute", "-o", "nowhere/x.json"], "--output: no such folder"),
        (["compute", "--cores", "0"], "--cores: expected an integer >= 1"),
        (["compute", "--cores", "1000000"], "--cores: expected at most the"),
        (["compute", "--repetitions", "-1"], "--repetitions: expected an integer >= 1"),
    ],
)
def test_bad_options(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["calibrate", *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_compute_writes_constants_and_where_they_come_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "constants.json"
    command = ["calibrate", "compute", "--cores", "1", "--repetitions", "2"]
    assert main([*command, "-o", str(output)]) == 0
    assert capsys.readouterr() == ("", "")
    written = json.loads(output.read_text())
    assert set(written["constants"]) == {"muladd_ns", "activation_ns", "error_ns", "interference"}
    assert written["constants"]["interference"] == [1]
    assert written["provenance"]["kind"] == "measured"
    assert written["provenance"]["source"] == "planner " + " ".join(command)
    assert any("not measured" in note for note in written["provenance"]["notes"])
    constants = {"latency_ns": [300000], "nic_bits_per_s": 4e9, **written["constants"]}
    layer = {"name": "a", "kind": "full", "neurons": 30, "connections": 900, "weights": 900}
    request = {"problem": "yan", "machines": 2, "cores": 1, "samples": 100, "read_every": 100}
    assert "error" not in planner.solve({**request, "layers": [layer], "constants": constants})


def children(process: int) -> list[int]:
    listed = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(one) for one in listed.split()]


@pytest.mark.slow
@pytest.mark.skipif(
    not Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists(),
    reason="needs the children of a process",
)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupt_leaves_no_process_behind(ending: signal.Signals) -> None:
    command = [sys.executable, "-m", "planner", "calibrate", "compute", "--repetitions", "10000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        wanted = len(compute.available_processors())
        while len(started := children(running.pid)) < wanted:
            assert running.poll() is None
            time.sleep(0.01)
        running.send_signal(ending)
        out, err = running.communicate(timeout=60)
    assert out == b""
    assert b"Traceback" not in err
    if ending == signal.SIGINT:
        assert running.returncode == 130
    until = time.monotonic() + 60
    while any(Path(f"/proc/{one}/cwd").exists() for one in started):
        assert time.monotonic() < until
        time.sleep(0.01)


def test_help_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("latency_ns and nic_bits_per_s", "not measured here", "example:")
    with pytest.raises(SystemExit) as caught:
        main(["calibrate", "compute", "--help"])
    assert caught.value.code == 0
    out = capsys.readouterr().out
    assert all(word in out for word in words)
    assert max(map(len, out.splitlines())) <= 90
