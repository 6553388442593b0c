"""What a profile warns of is repeated by whatever is made of it."""

from typing import Any

import pytest

import planner
from planner.cli.compare_tables import warning_lines
from tests.cli.documents import PROFILE
from tests.cli.line import Line, read, write
from tests.cli.printed import check_answer, check_printed
from tests.jsonio.test_iteration import CLUSTER

SAID = "4 threads on 2 processors"
DOUBT = f"profile m, measured on 2026-11-20 (an abacus), may be off: {SAID}; it rained"
LINK = "--startup 100us --bandwidth 1Gb/s"


@pytest.fixture
def profile(line: Line) -> dict[str, Any]:
    origin: dict[str, Any] = {"kind": "measured", "source": "here", "warnings": [SAID, "it rained"]}
    origin |= {"date": "2026-11-20", "processor": "an abacus", "threads": 2}
    made = {**PROFILE, "name": "m", "provenance": origin}
    check_printed("profile", made)
    write("m.json", made)
    return made


@pytest.mark.parametrize(
    "command",
    [
        f"compare m.json --problem caramel --workers 2 {LINK}",
        f"compare m.json --problem ibatch {LINK}",
        "plan m.json --cluster office-4",
    ],
)
def test_plans_repeat_it(command: str, profile: object, line: Line) -> None:
    out = line(command, "-o plan.json").out
    assert f"warning: {DOUBT}" in out
    assert out.count(SAID) == 1
    answer = read("plan.json")
    check_answer(answer)
    assert DOUBT in answer["warnings"]
    assert answer["profile_threads"] == 2
    if command.startswith("compare"):
        assert all(answer["warnings"] == [DOUBT] for answer in line(command, "--json").json)
    if "ibatch" in command:
        write("pull.json", {**answer, "layer_parameters": [[f"l{i}.weight"] for i in range(5)]})
        assert f"planner: warning: {DOUBT}" in line("export fsdp2 pull.json -o out").err
    assert line("draw plan.json").err.startswith(f"planner: warning: {DOUBT}\n")


@pytest.mark.parametrize("memory", ["memory_bytes", "accelerator_memory_bytes"])
def test_what_a_cluster_s_memory_is_understood_as(memory: str, profile: object, line: Line) -> None:
    topology = {"kind": "rails", "accelerators": 8, "link_bytes_per_s": 1e11}
    nic = {**CLUSTER["nic"], "per_machine": 8}
    cluster = {**CLUSTER, "machines": 2, "topology": topology, "nic": nic}
    write("c.json", {**cluster, memory: 80 * 10**9})
    for mode in ("", "--mode fsdp"):
        out = line("plan m.json --cluster c.json -o plan.json", mode).out
        said = "warning: memory_bytes is that of a machine: 74.51 GiB, 9.313 GiB for each of its 8"
        warned = any("accelerator_memory_bytes" in text for text in read("plan.json")["warnings"])
        assert (said in out) == warned == (memory == "memory_bytes")


def test_requests_repeat_it(profile: dict[str, Any]) -> None:
    request = {"problem": "iteration", "profile": profile, "cluster": CLUSTER}
    assert planner.solve(request)["warnings"] == [DOUBT]
    del profile["provenance"]["warnings"], profile["provenance"]["threads"]
    assert not {"warnings", "profile_threads"} & planner.solve(request).keys()


def test_of_a_long_warning_the_first_reason_is_printed_and_how_many_more_there_are() -> None:
    long = "; ".join(f"{what} kept processors busy meanwhile, for {'long ' * 8}" for what in "abc")
    assert warning_lines([DOUBT, long]) == [
        f"warning: {DOUBT}",
        f"warning: {long.split('; ')[0]}; 2 more reasons: see `warnings` in the file",
    ]
