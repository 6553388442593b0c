"""Requests that mean nothing, though each field by itself could: where, and what was expected.

`refused.json`, and of files `refused_files.json`, hold the path of each error and a part of its
message. What a schema says of single
fields is held by `test_every_problem`.
"""

import json
import time
from typing import Any

import pytest

from planner.jsonio import decode_profile
from planner.jsonio.clusters import ClusterDocument, cluster_of
from planner.jsonio.decoding import typed
from planner.model.errors import InvalidInputError
from tests import schemas
from tests.jsonio.requests import BASES, HERE, Request, error, patched, table


@pytest.mark.parametrize(("request_", "expected"), list(table(HERE / "refused.json")), ids=str)
def test_what_fields_say_together(request_: Request, expected: list[str]) -> None:
    path, message = error(request_)
    assert path == expected[0]
    assert expected[1] in message


@pytest.mark.parametrize(
    "change",
    [
        {"n": 2, "k": 24, "gradient_bytes": 3, "schedule": "all"},
        {"n": 2**20, "k": 2, "schedule": {"server": [0, 0]}},
        {"n": 2, "k": 40, "schedule": "all", "gradient_bytes": ..., "layer_bytes": [0] * 9 + [3]},
    ],
)
def test_more_transfers_than_are_looked_at_are_refused_before_there_is_a_plan(
    change: dict[str, Any],
) -> None:
    begin = time.process_time()
    path, message = error(patched(BASES["bml"], change))
    assert time.process_time() - begin < 1
    assert path == "schedule"
    assert "at most 1000000 transfers" in message


SHAPES = ("n", "k", "ports", "accelerators", "link_bytes_per_s")
CLUSTERS = [BASES[name] for name in ("switch", "bcube", "fattree", "rails")]
OTHER_SHAPES = [
    (patched(one, {place: ... if name in one["topology"] else 4}), [place, ""])
    for one in CLUSTERS
    for name in SHAPES
    for place in [f"topology.{name}"]
]


@pytest.mark.parametrize(
    ("document", "expected"), [*table(HERE / "refused_files.json"), *OTHER_SHAPES], ids=str
)
def test_what_fields_of_a_file_say_together(document: Request, expected: list[str]) -> None:
    """No schema can check it."""
    path, message = expected
    if "machines" not in document:
        with pytest.raises(InvalidInputError) as caught:
            decode_profile(json.dumps(document))
        assert caught.value.path == path
        assert message in caught.value.message
        return
    assert schemas.fits(document, "cluster")
    for within in ("", "cluster"):
        with pytest.raises(InvalidInputError) as caught:
            cluster_of(typed(document, ClusterDocument), within)
        assert caught.value.path == ".".join(filter(None, (within, path)))
