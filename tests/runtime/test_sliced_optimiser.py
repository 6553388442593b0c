"""Slices are updated beside a training loop that already sets up its next step."""

from threading import Thread
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR

from planner.runtime.executors.sliced import SlicedOptimizer, flat_values
from planner.runtime.model.parameters import Elements
from tests.runtime.reference import OPTIMIZERS

SIZE = 6
SLICES = ((0, 2), (3, SIZE))


def begun(name: str) -> tuple[nn.Parameter, Optimizer, LambdaLR]:
    parameter = nn.Parameter(torch.arange(float(SIZE)))
    optimizer = OPTIMIZERS[name](iter([parameter]))
    return parameter, optimizer, LambdaLR(optimizer, lambda step: 0.5**step)


def gradient(step: int) -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_what_the_loop_does_meanwhile_changes_no_update(name: str) -> None:
    expected, plain, schedule = begun(name)
    for step in range(3):
        expected.grad = gradient(step)
        plain.step()
        schedule.step()

    parameter, optimizer, schedule = begun(name)
    sliced = SlicedOptimizer(optimizer, [Elements(parameter, *span) for span in SLICES])
    called: list[Any] = []

    def meanwhile(stepping: Optimizer, *_: Any) -> None:
        called.append([group["lr"] for group in stepping.param_groups])
        optimizer.param_groups[0]["lr"] = 100.0
        optimizer.zero_grad()

    optimizer.register_step_pre_hook(meanwhile)
    for step in range(3):
        sliced.remember({parameter: flat_values(parameter)})
        schedule.step()  # which warns of an optimiser that was not called
        for number in (1, 0):
            gradients = {number: gradient(step)[slice(*SLICES[number])]}
            thread = Thread(target=sliced.step, args=(gradients,))
            thread.start()
            thread.join()
        optimizer.param_groups[0]["lr"] = schedule.get_last_lr()[0]
        optimizer.load_state_dict(optimizer.state_dict())  # as after a checkpoint
    rate = plain.param_groups[0]["initial_lr"]
    assert called == [[rate * 0.5**step] for step in range(3) for _ in SLICES]
    for start, stop in SLICES:
        assert torch.equal(parameter[start:stop], expected[start:stop])
    assert parameter[2] == 2
    sliced.restore()
    assert optimizer.param_groups[0]["params"] == [parameter]
    assert not optimizer.state
