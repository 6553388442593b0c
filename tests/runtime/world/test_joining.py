"""Joining a job: as a guest of somebody else's `torch.distributed`, again, and after restarts."""

import os
import socket
import sys
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.distributed_c10d import Backend

from planner.model.errors import CommunicationError, PlannerError
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.runtime.faulty import LIMIT_S, TIMEOUT_S
from tests.runtime.jobs import in_each_process, in_each_rank
from tests.runtime.reference import STEPS, away_from_ddp, backward
from tests.runtime.sharing import attached


class Deaf(distributed.ProcessGroup):
    """A backend that moves nothing on processors, as those of accelerators."""

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "deaf"


def initialise(how: str, file: Path) -> None:
    """Initialise torch as trainers do: by variables, by a file, or with another backend."""
    options: dict[str, Any] = {"backend": "gloo"}
    if how == "deaf":

        def create(_store: Any, rank: int, size: int, _timeout: timedelta) -> Deaf:
            return Deaf(rank, size)  # type: ignore[call-arg]

        Backend.register_backend("deaf", create, devices=["cpu"])
        options["backend"] = "deaf"
    if how == "file":
        rank, size = int(os.environ.pop("RANK")), int(os.environ.pop("WORLD_SIZE"))
        del os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"]
        options |= {"init_method": f"file://{file}", "rank": rank, "world_size": size}
    distributed.init_process_group(**options)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["variables", "file", "deaf"])
@in_each_process()
def test_a_guest_trains_as_ddp_does_and_leaves_its_host_alone(how: str, tmp_path: Path) -> None:
    """It trains twice, with the host's own transfers in between; the second time it leaves last."""
    initialise(how, tmp_path / "store")
    before = distributed.group.WORLD
    rank, size = distributed.get_rank(), distributed.get_world_size()
    trained = []
    for turn in range(2):
        with join(20) as world:
            assert (world.rank, world.size) == (rank, size)
            with attached(world) as executor:
                for step in range(STEPS):
                    backward(executor.model, "perceptron", rank, step)
                    if how != "deaf":
                        total = torch.tensor(rank)
                        distributed.all_reduce(total)
                        assert total == size * (size - 1) // 2
                    executor.step()
            trained.append(executor.model)
            if turn:
                distributed.destroy_process_group()
        assert turn or distributed.group.WORLD is before
        assert len(distributed.distributed_c10d._world.pg_map) == 1 - turn
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/other", rank=rank, world_size=size
    )
    assert max(map(away_from_ddp, trained)) == 0
    distributed.destroy_process_group()


@pytest.mark.slow
@in_each_process(timeout_s=30)
def test_a_rank_of_the_host_does_not_join() -> None:
    """Only rank 0 joins, while the other one still uses the host's group."""
    distributed.init_process_group("gloo")
    if distributed.get_rank() == 0:
        with pytest.raises(CommunicationError, match=r"^rank 1 did not arrive within 2 s$"):
            join(2)
    distributed.barrier()
    distributed.destroy_process_group()


@in_each_process(1, timeout_s=30)
def test_a_host_without_a_store_is_refused() -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    words = "initialised with fake, and has no store in which ranks can meet"
    with pytest.raises(PlannerError, match=words):
        join(2)
    assert distributed.is_initialized()


@in_each_rank(3)
def fails_on_one(world: World) -> None:
    assert world.rank != 1, "as it has to"


def test_what_fails_on_one_rank_fails_a_test_in_each() -> None:
    with pytest.raises(AssertionError, match=r"rank 1 ended with 1\n(.*\n)*AssertionError: as it"):
        fails_on_one()


@pytest.mark.parametrize(
    ("host", "shared"), [("127.0.0.1", None), ("127.0.0.2", "False"), ("localhost", None)]
)
@in_each_process(timeout_s=30)
def test_the_store_listens_at_one_address_and_launchers_may_have_counted_other_failures(
    host: str, shared: str | None
) -> None:
    """One that came later has seen fewer. Rank 0 holds the store, which is new in each start."""
    linux = sys.platform == "linux"  # other systems have one loopback address
    os.environ["MASTER_ADDR"] = host if linux else "localhost"
    if shared is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = shared
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "3" if os.environ["RANK"] == "0" else "1"
    expected, port = host.replace("localhost", "127.0.0.1"), int(os.environ["MASTER_PORT"])
    with join(20) as world:
        if world.rank == 0 and linux:
            socket.create_connection((expected, port), 2).close()
            (other,) = {"127.0.0.1", "127.0.0.2"} - {expected}
            with pytest.raises(OSError):  # noqa: PT011 - whatever the system says
                socket.create_connection((other, port), 2)
        world.agree("what", host)


@in_each_process()
def test_nobody_has_joined_before_all_are_connected() -> None:
    """One that left sooner closed connections that another was still making."""
    connect, connected = distributed.init_process_group, [0.0]

    def late(*given: Any, **options: Any) -> None:
        connect(*given, **options)
        if os.environ["RANK"] == "0":
            time.sleep(0.5)
        connected[0] = time.time()

    distributed.init_process_group = late
    with join(20) as world:
        joined = time.time()
        assert joined >= max(map(float, world.gather("when", str(connected[0]))))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "absent", "text"),
    [
        (5, 3, "ranks 3, 4 did not arrive within 3 s"),
        (3, 0, "found nobody at"),
    ],
)
@in_each_process(3, timeout_s=LIMIT_S)
def test_a_rank_never_arrives(ranks: int, absent: int, text: str) -> None:
    os.environ["WORLD_SIZE"] = str(ranks)
    if os.environ["RANK"] == str(absent):
        return
    if os.environ["RANK"] == "1":
        time.sleep(TIMEOUT_S / 3)
    with pytest.raises(CommunicationError, match=text) as error:
        join(TIMEOUT_S)
    assert error.value.peers == ((0,) if absent == 0 else tuple(range(3, ranks)))
