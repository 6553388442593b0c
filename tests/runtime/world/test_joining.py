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
from tests.runtime.faulty import store_of_a_launcher
from tests.runtime.jobs import in_each_process, in_each_rank
from tests.runtime.launching import launch, values
from tests.runtime.reference import (
    STEPS,
    backward,
    ddp_weights,
    largest_difference,
    make_model,
    make_optimizer,
    weights_of,
)
from tests.runtime.sharing import executor_of


class Deaf(distributed.ProcessGroup):
    """A backend that moves nothing on processors, as those of accelerators."""

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "deaf"


def initialise(how: str, folder: Path) -> None:
    """Initialise torch as trainers do: by variables, by a file, or with another backend."""
    if how == "deaf":

        def create(_store: Any, rank: int, size: int, _timeout: timedelta) -> Deaf:
            return Deaf(rank, size)  # type: ignore[call-arg]

        Backend.register_backend("deaf", create, devices=["cpu"])
    options: dict[str, Any] = {}
    if how == "file":
        names = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
        rank, size, *_ = (os.environ.pop(name) for name in names)
        options = {"init_method": f"file://{folder}/store", "rank": int(rank)}
        options["world_size"] = int(size)
    distributed.init_process_group("deaf" if how == "deaf" else "gloo", **options)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["variables", "file", "deaf"])
@in_each_process()
def test_a_guest_trains_as_ddp_does_and_leaves_its_host_alone(how: str, tmp_path: Path) -> None:
    """It trains twice, with the host's own transfers in between and afterwards."""
    initialise(how, tmp_path)
    before = distributed.group.WORLD
    rank, size = distributed.get_rank(), distributed.get_world_size()
    moves = distributed.get_backend() == "gloo"
    trained = []
    for _ in range(2):
        model = make_model("perceptron")
        with (
            join(20) as world,
            executor_of("gradients", model, make_optimizer("sgd", model), world) as executor,
        ):
            assert (world.rank, world.size) == (rank, size)
            for step in range(STEPS):
                backward(model, "perceptron", rank, step)
                if moves:
                    total = torch.tensor(rank)
                    distributed.all_reduce(total)
                    assert total == size * (size - 1) // 2
                executor.step()
        assert distributed.is_initialized()
        assert distributed.group.WORLD is before
        assert len(distributed.distributed_c10d._world.pg_map) == 1
        trained.append(weights_of(model))
    distributed.destroy_process_group()
    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/other", rank=rank, world_size=size
    )
    expected = ddp_weights("perceptron")
    distributed.destroy_process_group()
    assert max(largest_difference(weights, expected) for weights in trained) == 0


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


@in_each_process(timeout_s=30)
def test_a_host_may_leave_first() -> None:
    distributed.init_process_group("gloo")
    with join(10) as world:
        world.agree("what", "the same")
        distributed.destroy_process_group()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
@in_each_process(timeout_s=30)
def test_the_store_listens_at_one_address(host: str) -> None:
    os.environ["MASTER_ADDR"] = host
    expected, port = host.replace("localhost", "127.0.0.1"), int(os.environ["MASTER_PORT"])
    with join(10) as world:
        if world.rank == 0:
            socket.create_connection((expected, port), 2).close()
            (other,) = {"127.0.0.1", "127.0.0.2"} - {expected}
            with pytest.raises(OSError):  # noqa: PT011 - whatever the system says
                socket.create_connection((other, port), 2)
        world.agree("what", host)


@in_each_rank(3)
def fails_on_one(world: World) -> None:
    assert world.rank != 1, "as it has to"


def test_what_fails_on_one_rank_fails_a_test_in_each() -> None:
    with pytest.raises(AssertionError, match=r"rank 1 ended with 1\n(.*\n)*AssertionError: as it"):
        fails_on_one()


def joined_twice(port: int) -> list[tuple[str, ...]]:
    """Join a launcher's job twice: its store still has what was said the first time."""
    os.environ |= {"MASTER_PORT": str(port), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    answers = []
    for turn in range(2):
        with join(20) as world:
            if world.rank:
                time.sleep(0.5)  # so that the other one has time to read too early
            answers.append(world.gather("what", f"{turn}.{world.rank}"))
    return answers


@pytest.mark.slow
def test_joining_again_begins_anew() -> None:
    with store_of_a_launcher() as port:
        answers = values(launch(joined_twice, 2, port, timeout_s=30))
    assert answers == [[("0.0", "0.1"), ("1.0", "1.1")]] * 2


@pytest.mark.parametrize("shared", [None, "False"])
@in_each_process()
def test_launchers_need_not_have_counted_the_same_failures(shared: str | None) -> None:
    """One that came later has seen fewer. Rank 0 holds the store, which is new in each start."""
    if shared is not None:
        os.environ["TORCHELASTIC_USE_AGENT_STORE"] = shared
    os.environ["TORCHELASTIC_RESTART_COUNT"] = "3" if os.environ["RANK"] == "0" else "1"
    with join(20) as world:
        assert world.size == 2


def joined_slowly() -> tuple[float, float]:
    """Return when this rank was connected, on rank 0 a second late, and when it had joined."""
    connect, connected = distributed.init_process_group, [0.0]

    def late(*given: Any, **options: Any) -> None:
        connect(*given, **options)
        if os.environ["RANK"] == "0":
            time.sleep(1)
        connected[0] = time.time()

    distributed.init_process_group = late
    with join(20):
        return connected[0], time.time()


def test_nobody_has_joined_before_all_are_connected() -> None:
    """One that left sooner closed connections that another was still making."""
    (connected, _), (_, joined) = values(launch(joined_slowly, 2))
    assert joined >= connected
