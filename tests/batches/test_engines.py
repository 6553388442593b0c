"""Engines of others, each on a cluster of this machine, answer as this process does."""

import sys
import threading
from typing import Any

import pytest

from planner.batches.engines import ENGINES
from planner.errors import MissingExtraError
from planner.jsonio import reply

GOOD = b'{"problem": "ibatch", "startup_ns": %d, "transfer_ns": [3, 1], "compute_ns": [2, 6]}'
REQUESTS = [*(GOOD % startup for startup in range(6)), b"{"]
LIBRARIES = {"ray": "ray", "dask": "distributed"}

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of libraries of others
]


def comparable(answer: bytes) -> Any:
    head, _, rest = answer.partition(b'"runtime_s":')
    return head, rest.partition(b",")[2]


@pytest.fixture(params=LIBRARIES)
def engine(request: pytest.FixtureRequest) -> str:
    pytest.importorskip(LIBRARIES[request.param], reason="the extra sweep is not installed")
    return str(request.param)


@pytest.mark.slow
def test_a_local_cluster_answers_as_this_process(engine: str) -> None:
    made = dict(ENGINES[engine](REQUESTS, 2, None, None))
    assert sorted(made) == list(range(len(REQUESTS)))
    for place, request in enumerate(REQUESTS):
        assert comparable(made[place]) == comparable(reply(request).data)


@pytest.mark.slow
def test_it_ends_when_it_is_cancelled(engine: str) -> None:
    cancel = threading.Event()
    cancel.set()
    assert len(list(ENGINES[engine](REQUESTS * 20, 1, None, cancel))) <= 1


@pytest.mark.parametrize("name", LIBRARIES)
def test_what_is_missing_is_said(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, LIBRARIES[name], None)
    with pytest.raises(MissingExtraError, match="sweep"):
        list(ENGINES[name](REQUESTS, 1, None, None))
