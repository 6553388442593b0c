"""Documents given for another are told what they are; what fits is never refused."""

from typing import get_args

import pytest

from planner.jsonio.translating import Kind, instead, refuse_other
from planner.model.errors import InvalidInputError

DOCUMENTS: dict[Kind, dict[str, object]] = {
    "plan": {"problem": "ibatch", "status": "optimal"},
    "request": {"problem": "ibatch", "layers": []},
    "cluster": {"name": "x", "machines": 2, "topology": {}, "nic": {}},
    "profile": {"name": "x", "layers": []},
    "network": {"network": {}, "collective": "all_reduce", "ranks": 2},
}


def test_every_kind_is_told_from_every_other() -> None:
    assert set(DOCUMENTS) == set(get_args(Kind))
    for kind, document in DOCUMENTS.items():
        for wanted in DOCUMENTS:
            assert bool(instead(document, wanted)) == (kind != wanted), (kind, wanted)


@pytest.mark.parametrize("value", [None, 3, [], {}, {"startup_ns": 1, "ns_per_byte": 2}])
def test_what_nobody_knows_is_left_to_the_reader(value: object) -> None:
    for wanted in DOCUMENTS:
        refuse_other(value, wanted)


def test_the_error_says_both() -> None:
    with pytest.raises(InvalidInputError, match="expected a cluster, got a profile: planner plan"):
        refuse_other(DOCUMENTS["profile"], "cluster")
