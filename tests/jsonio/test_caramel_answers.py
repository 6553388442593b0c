"""Answers about gradient transfers: what they must say, and what is refused when read again."""

import json
from pathlib import Path
from typing import Any

import pytest

import planner
from planner.jsonio import decode_answer, reply
from planner.model.validation import MAX_VALUE
from tests.jsonio.test_caramel import CHAIN, CONTRACT, chain
from tests.jsonio.test_service import ask, error


def test_answers_that_do_not_fit_are_refused() -> None:
    """Servers that are few multiply the traffic: it must not leave the range in silence."""
    network = {"startup_ns": 0, "ns_per_byte": 2**50}
    answer = ask(chain(network=network, method="ps", workers=64, servers=1))
    assert answer["error"]["path"] == "network"
    assert "63 bits" in answer["error"]["message"]


@pytest.mark.parametrize("name", ["ops", "parameters"])
def test_sums_that_do_not_fit_are_refused(name: str) -> None:
    key = "ns" if name == "ops" else "bytes"
    path, _ = error(chain(**{name: [{**row, key: MAX_VALUE} for row in CHAIN[name]]}))
    assert path.startswith(name)


def broken(answer: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    changed_answer: dict[str, Any] = json.loads(json.dumps(answer))
    target: Any = changed_answer
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    return changed_answer


@pytest.mark.parametrize(
    ("steps", "value", "path"),
    [
        (("groups",), [], "groups"),
        (("schedule",), [], "schedule"),
        (("status",), "great", "status"),
        (("groups", 0, "start_ns"), -1, "groups[0].start_ns"),
        (("groups", 0, "start_ns"), 29, "groups[0].start_ns"),
        (("groups", 1, "start_ns"), 0, "groups[1].start_ns"),
        (("groups", 0, "startup_end_ns"), 1, "groups[0].startup_end_ns"),
        (("groups", 0, "end_ns"), 1, "groups[0].end_ns"),
        (("groups", 1, "end_ns"), 10**6, "groups[2].start_ns"),
        (("groups", 0, "parameters"), [], "groups[0].parameters"),
        (("groups", 0, "parameters"), ["w2", "w2"], "groups[0].parameters"),
        (("groups", 0, "part"), {"w9": [0, 1]}, "groups[0].part.w9"),
        (("groups", 0, "part"), {"w2": [1, 1]}, "groups[0].part.w2"),
        (("groups", 0, "part"), {"w2": [1]}, "groups[0].part.w2"),
        (("schedule", 0, "op"), "b1", "schedule[0].op"),
        (("schedule", 0, "end_ns"), 10**6, "schedule[1].start_ns"),
        (("schedule", 1, "start_ns"), 29, "schedule[1].start_ns"),
        (("schedule", 1, "end_ns"), 0, "schedule[1].end_ns"),
        (("schedule", 3, "start_ns"), 0, "schedule[3].start_ns"),
        (("schedule", 3, "pass"), "both", "schedule[3].pass"),
        (("op_order",), ["b2"], "schedule"),
        (("iteration_ns",), 5, "objective_ns"),
        (("objective_ns",), 5, "objective_ns"),
        (("iteration_ns",), 10**400, "iteration_ns"),
        (("rho",), "x", "rho"),
        (("barrier",), 1, "barrier"),
        (("traffic",), 0.5, "traffic"),
    ],
)
def test_answers_that_contradict_themselves_are_refused(
    steps: tuple[Any, ...], value: Any, path: str, tmp_path: Path
) -> None:
    from planner.cli import main

    answer = planner.solve(chain(method="layer_by_layer", op_order=["b2", "b1", "b0", "f1", "f2"]))
    decode_answer(json.dumps(answer).encode())
    text = json.dumps(broken(answer, steps, value))
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(text.encode())
    assert caught.value.path == path
    (tmp_path / "plan.json").write_text(text)
    assert main(["draw", str(tmp_path / "plan.json")]) == 2


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("status", "feasible", "status"),
        ("lower_bound_ns", 10**9, "lower_bound_ns"),
        ("objective_ns", 1, "objective_ns"),
        ("order", ["w2"], "order"),
        ("control_edges", [["b1", "b9"]], "control_edges[0]"),
    ],
)
def test_answers_whose_numbers_cannot_be_are_refused(field: str, value: Any, path: str) -> None:
    answer = planner.solve(CONTRACT)
    assert answer["status"] == "optimal"
    answer[field] = value
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(json.dumps(answer).encode())
    assert caught.value.path == path


@pytest.mark.parametrize(
    ("rate", "size", "expected"),
    [
        ("9007199254740993.0", 100, 900719925474099300),
        ("0.333333333333333333", 3 * 10**18, 10**18 - 1),
        ("0.3333333333333333331", 3 * 10**18, 10**18),
        ("9007199254740993", 1, 2**53 + 1),
        ("0.1", 10**18, 10**17),
        ("1e-1", 30, 3),
        ("1e-400", 10, 1),
        ("4611686018427387904.0", 1, 2**62),
    ],
)
def test_rates_are_exactly_the_decimals_written(rate: str, size: int, expected: int) -> None:
    request = json.dumps(
        {
            **CONTRACT,
            "parameters": [{**CONTRACT["parameters"][0], "bytes": size}],
            "network": {"startup_ns": 0, "ns_per_byte": "RATE"},
            "method": "layer_by_layer",
        }
    ).replace('"RATE"', rate)
    answer = json.loads(reply(request.encode()).data)
    if expected == 2**62:  # more than four times that does not fit, but the number is understood
        assert answer["error"]["path"] == "network"
        assert "four times" in answer["error"]["message"]
    else:
        assert answer["communication_ns"] == expected


def test_a_given_op_order_keeps_its_own_control_edges() -> None:
    ops = [
        {"name": "f", "ns": 1, "pass": "forward"},
        {"name": "b0", "ns": 0, "pass": "backward", "after": ["f"]},
        {"name": "b1", "ns": 0, "pass": "backward", "after": ["f"]},
    ]
    parameters = [
        {"name": f"p{i}", "bytes": 1, "updated_by": f"b{i}", "read_by": "f"} for i in range(2)
    ]
    answer = planner.solve(
        {
            **CONTRACT,
            "ops": ops,
            "parameters": parameters,
            "op_order": ["b1", "b0", "f"],
        }
    )
    assert answer["order"] == ["p1", "p0"]
    assert answer["control_edges"] == [["b1", "b0"]]


def test_answers_say_what_is_sent_and_whether_the_forward_pass_waits() -> None:
    told = {
        method: (answer["barrier"], answer["traffic"])
        for method in ("caramel", "exact", "bytescheduler", "ddp", "horovod", "mg_wfbp")
        for answer in [ask(chain(method=method))]
    }
    assert told == {
        **dict.fromkeys(("caramel", "exact", "bytescheduler"), (False, 1)),
        **dict.fromkeys(("ddp", "horovod", "mg_wfbp"), (True, 1)),
    }
    answer = ask(chain(method="ps", workers=4, servers=2))
    assert not answer["barrier"]
    assert answer["traffic"] == pytest.approx(4 * 4 / (2 * 3))


def test_older_answers_say_neither() -> None:
    answer = planner.solve(chain(method="ddp"))
    del answer["barrier"], answer["traffic"]
    read, _ = decode_answer(json.dumps(answer).encode())
    assert (read.barrier, read.traffic) == (False, 1)


def test_an_op_given_twice_is_refused() -> None:
    answer = planner.solve(CONTRACT)
    answer["op_order"] = ("b1", "b1")
    answer["schedule"] = (answer["schedule"][0], {**answer["schedule"][1], "op": "b1"})
    with pytest.raises(planner.InvalidInputError, match=r"op_order\[1\]: 'b1' given twice"):
        decode_answer(json.dumps(answer).encode())


@pytest.mark.slow
def test_names_are_drawn_whatever_they_are(tmp_path: Path) -> None:
    from planner.cli import main

    for name in ("$^$", "\x1b[31m", "", "層", "a" * 500, "a\nb", "b' - at"):
        parameter = {**CONTRACT["parameters"][0], "name": name, "updated_by": f"b{name}"}
        ops = [CONTRACT["ops"][0], {**CONTRACT["ops"][1], "name": f"b{name}", "ns": 10**5}]
        answer = planner.solve({**CONTRACT, "parameters": [parameter], "ops": ops})
        (tmp_path / "plan.json").write_text(json.dumps(answer))
        command = ["draw", str(tmp_path / "plan.json")]
        for output in ([], ["-o", str(tmp_path / "p.json")], ["-o", str(tmp_path / "p.svg")]):
            assert main([*command, *output]) == 0
