"""Joining a job whose `torch.distributed` somebody else has initialised, and leaving it to them."""

import os
import socket
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed
from torch.distributed.distributed_c10d import Backend

from planner.model.errors import CommunicationError, PlannerError
from planner.programs import Batch, GradientProgram, Piece
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.joining import join
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


class Deaf(distributed.ProcessGroup):
    """A backend that moves nothing on processors, as those of accelerators."""

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        return "deaf"


def of_variables(_folder: str) -> None:
    distributed.init_process_group("gloo")


def of_a_file(folder: str) -> None:
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        del os.environ[name]
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size
    )


def of_another_backend(_folder: str) -> None:
    def create(_store: Any, rank: int, size: int, _timeout: timedelta) -> Deaf:
        return Deaf(rank, size)  # type: ignore[call-arg]

    Backend.register_backend("deaf", create, devices=["cpu"])
    distributed.init_process_group("deaf")


def train(initialise: Callable[[str], None], folder: str) -> float:
    """Train twice as a guest, with the host's own transfers in between and afterwards."""
    initialise(folder)
    before = distributed.group.WORLD
    rank, size = distributed.get_rank(), distributed.get_world_size()
    moves = distributed.get_backend() == "gloo"
    off = []
    for _ in range(2):
        model = make_model("perceptron")
        program = GradientProgram(tuple(Batch((Piece(name),)) for name in trainable(model)))
        with (
            join(20) as world,
            GradientExecutor(model, program, make_optimizer("sgd", model), world) as executor,
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
        off.append(weights_of(model))
    distributed.destroy_process_group()
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/other", rank=rank, world_size=size
    )
    expected = ddp_weights("perceptron")
    distributed.destroy_process_group()
    return max(largest_difference(weights, expected) for weights in off)


@pytest.mark.slow
@pytest.mark.parametrize("initialise", [of_variables, of_a_file, of_another_backend])
def test_a_guest_trains_as_ddp_does_and_leaves_its_host_alone(
    initialise: Callable[[str], None], tmp_path: Path
) -> None:
    for value in values(launch(train, 2, initialise, str(tmp_path), timeout_s=60)):
        assert value == 0


def join_alone() -> str:
    """Join on rank 0 alone, while the other one still uses the host's group."""
    distributed.init_process_group("gloo")
    text = ""
    if distributed.get_rank() == 0:
        with pytest.raises(CommunicationError) as error:
            join(2)
        text = str(error.value)
    distributed.barrier()
    distributed.destroy_process_group()
    return text


@pytest.mark.slow
def test_a_rank_of_the_host_does_not_join() -> None:
    one, other = launch(join_alone, 2, timeout_s=30)
    assert one.value == "rank 1 did not arrive within 2 s"
    assert other.value == ""


def join_no_ranks() -> str:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=4)
    with pytest.raises(PlannerError) as error:
        join(2)
    assert distributed.is_initialized()
    return str(error.value)


def test_a_host_without_a_store_is_refused() -> None:
    (value,) = values(launch(join_no_ranks, 1, timeout_s=30))
    assert "initialised with fake, and has no store in which ranks can meet" in value


def host_goes_first() -> None:
    distributed.init_process_group("gloo")
    with join(10) as world:
        world.agree("what", "the same")
        distributed.destroy_process_group()


def test_a_host_may_leave_first() -> None:
    values(launch(host_goes_first, 2, timeout_s=30))


def listening() -> dict[str, bool]:
    """Return which addresses rank 0's store is reached at."""
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    reached = {}
    with join(10) as world:
        if world.rank == 0:
            for address in ("127.0.0.1", "127.0.0.2"):
                try:
                    socket.create_connection((address, port), 2).close()
                except OSError:
                    reached[address] = False
                else:
                    reached[address] = True
        world.agree("what", host)
    return reached


def listen_at(host: str) -> dict[str, bool]:
    os.environ["MASTER_ADDR"] = host
    return listening()


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have one loopback address")
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost"])
def test_the_store_listens_at_one_address(host: str) -> None:
    expected = "127.0.0.1" if host == "localhost" else host
    one, other = launch(listen_at, 2, host, timeout_s=30)
    assert one.error is None, one.error.trace
    assert other.error is None, other.error.trace
    assert one.value == {address: address == expected for address in ("127.0.0.1", "127.0.0.2")}
