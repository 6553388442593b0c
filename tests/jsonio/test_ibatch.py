"""What batching requests and answers say of the layers' parameters and sizes."""

import json
from typing import Any

import pytest

import planner
from planner.families import ibatch
from planner.jsonio import decode_answer
from tests import schemas
from tests.jsonio.test_service import EXAMPLE, TABLE, ask, error

NAMES = [["a.weight", "a.bias"], [], ["c.weight"]]


@pytest.mark.parametrize(
    ("direction", "method"), [("pull", "auto"), *(("push", name) for name in ibatch.METHODS)]
)
def test_parameters_and_sizes_come_back_with_the_plan(direction: str, method: str) -> None:
    request = {**TABLE, "method": method, "direction": direction, "layer_parameters": NAMES}
    schemas.validate(request, "ibatch", "request")
    answer = ask(request)
    schemas.validate(answer, "ibatch", "answer")
    assert answer["layer_parameters"] == NAMES
    assert answer["layer_bytes"] == TABLE["layer_bytes"]
    read, _ = decode_answer(json.dumps(answer).encode())
    assert read.layer_parameters == tuple(map(tuple, NAMES))
    assert read.layer_bytes == tuple(TABLE["layer_bytes"])


def test_an_answer_says_nothing_the_request_did_not() -> None:
    answer = ask(EXAMPLE)
    assert not {"layer_parameters", "layer_bytes", "layer_names"} & set(answer)
    assert ask({**EXAMPLE, "layer_bytes": [1, 2, 3]})["layer_bytes"] == [1, 2, 3]


def test_an_infeasible_answer_has_them_too() -> None:
    request = {**TABLE, "max_batch_bytes": 1, "layer_parameters": NAMES}
    answer = ask(request)
    assert answer["status"] == "infeasible"
    assert answer["layer_parameters"] == NAMES
    assert answer["layer_bytes"] == TABLE["layer_bytes"]


@pytest.mark.parametrize(
    ("names", "path", "message"),
    [
        ([["a"], ["b"]], "layer_parameters", "as many elements as layers (3), got 2"),
        ([["a"], ["b"], ["c"], []], "layer_parameters", "as many elements as layers (3), got 4"),
        ([["a"], ["b"], ["c", "a"]], "layer_parameters[2][1]", "first in layer_parameters[0]"),
        ([[], ["b", "b"], []], "layer_parameters[1][1]", "'b' given twice"),
        ([["a"], "b", ["c"]], "layer_parameters[1]", "expected an array, got 'b'"),
        ([["a"], ["b"], [3]], "layer_parameters[2][0]", "expected a string, got 3"),
    ],
)
def test_lists_of_parameters_that_cannot_be(names: Any, path: str, message: str) -> None:
    where, why = error({**EXAMPLE, "layer_parameters": names})
    assert where == path
    assert message in why


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"layer_parameters": NAMES[:2]}, "layer_parameters"),
        ({"layer_parameters": [*NAMES, []]}, "layer_parameters"),
        ({"layer_parameters": [["a"], [], ["a"]]}, "layer_parameters[2][0]"),
        ({"layer_bytes": [1, 2]}, "layer_bytes"),
        ({"layer_bytes": [1, 2, -3]}, "layer_bytes[2]"),
    ],
)
def test_a_plan_read_again_has_to_fit_its_layers(change: dict[str, Any], path: str) -> None:
    answer = planner.solve({**TABLE, "layer_parameters": NAMES})
    with pytest.raises(planner.InvalidInputError) as caught:
        decode_answer(json.dumps({**answer, **change}).encode())
    assert caught.value.path == path
