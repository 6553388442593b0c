"""What a program may do with a job, a model and its optimiser, and what stops every rank."""

import copy
import os
import pickle
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from itertools import count
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from planner.runtime.collectives.ring import Ring
from planner.runtime.executors.base import Executor
from planner.runtime.model.parameters import trainable
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.profiling.models import Model
from tests.runtime.jobs import in_each_rank
from tests.runtime.launching import launch, values
from tests.runtime.reference import (
    CLASSES,
    STEPS,
    Perceptron,
    away_from_ddp,
    backward,
    largest_difference,
    loss_of,
    make_inputs,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import KINDS, attached, executor_of

MODEL = "perceptron"
NAMES = (MODEL, "recurrent")


@pytest.mark.slow
@in_each_rank()
def test_executors_the_program_itself_and_copies_share_a_job(world: World) -> None:
    """Models are trained, the job's own group sums up something, and copies are plain ones."""
    own = [(name, attached(world, kind, name=name)) for kind in KINDS for name in NAMES]
    copies: list[nn.Module] = []
    for step in range(STEPS):
        for name, executor in own:
            take_steps(executor, [step], name)
        metric = torch.tensor([float(world.rank)])
        distributed.all_reduce(metric)
        assert float(metric) == sum(range(world.size))
        if step == 1:
            for name, executor in own:
                if name == MODEL:
                    executor.finish()
                    model = executor.model
                    copies += [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
            before = weights_of(model)
    for each in copies:
        each(make_inputs(MODEL, 0, 0)).sum().backward()
        assert largest_difference(weights_of(each), before) == 0
    for name, executor in own:
        executor.close()
        assert away_from_ddp(executor.model, name) == 0


class Counting(SGD):
    """Keeps a count in its groups, as schedule-free optimisers do."""

    def step(self, closure: Any = None) -> Any:
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
        return super().step(closure)


def product(inputs: Tensor, weight: Tensor) -> Tensor:
    return inputs @ weight


def read_by_a_script(last: nn.Module | None = None) -> nn.Module:
    """Return a model that reads a parameter where nothing shows it, before a layer if given."""
    script, own = torch.jit.script(product), nn.ParameterDict({"weight": torch.ones(12, CLASSES)})
    if last is None:
        return Model(lambda m, x: script(x, m.own["weight"]), own=own)
    return Model(lambda m, x: m.last(torch.tanh(script(x, m.own["weight"]))), own=own, last=last)


def with_sparse_gradient() -> nn.Module:
    table = nn.Embedding(5, 12, sparse=True)
    return Model(lambda m, x: m.rest(x + m.table(torch.tensor(2))), table=table, rest=Perceptron())


def unused_later() -> nn.Module:
    """Return a model with a layer that is not called from the second step on."""
    runs, last = count(), nn.Linear(CLASSES, CLASSES, bias=False)
    return Model(
        lambda m, x: m.rest(x) if next(runs) else m.last(m.rest(x)), rest=Perceptron(), last=last
    )


def frozen() -> nn.Module:
    model = Perceptron()
    model.first.weight.requires_grad = False
    return model


def step(executor: Executor) -> Executor:
    backward(executor.model, MODEL, 0, 0)
    return executor


def again(executor: Executor) -> None:
    loss = loss_of(executor.model(make_inputs(MODEL, 0, 0)), 0, 0)
    loss.backward(retain_graph=True)
    loss.backward()


def accumulated(executor: Executor) -> None:
    with executor.no_sync():
        step(executor)


def grouped(executor: Executor) -> None:
    executor.finish()
    executor.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(3))]})
    step(executor)


def written(executor: Executor) -> None:
    with torch.no_grad():
        next(executor.model.parameters()).mul_(0.5)
    step(executor)


def closed(executor: Executor) -> None:
    executor.close()
    step(executor)


def attach_again(executor: Executor) -> None:
    model = executor.model
    executor_of("gradients", model, make_optimizer("sgd", model), executor.world)


def called_by_ddp(executor: Executor) -> None:
    backward(DistributedDataParallel(executor.model), MODEL, 0, 0)


class Misuse(NamedTuple):
    """What rank 0 does, the last time wrongly, before each step of the executor."""

    words: str
    actions: tuple[Callable[[Executor], object], ...]
    make: Callable[[], nn.Module] = Perceptron
    optimizer: type[SGD] = SGD
    kinds: Sequence[str] = ("gradients",)


BOTH = ("gradients", "shards")
READ = "weight was read before it was updated"
CHANGED = "was changed after it was sent"

MISUSES = {
    "no backward pass": Misuse("first.weight got no gradient", (step, step, lambda _: None)),
    "unused": Misuse("last.weight got no gradient", (step, step), unused_later),
    "sparse": Misuse("the gradient of table.weight is sparse", (step,), with_sparse_gradient),
    "twice": Misuse("a second gradient for", (step, lambda one: step(step(one)))),
    "again": Misuse("a second gradient for", (step, again)),
    "changed": Misuse(
        CHANGED,
        (step, lambda one: nn.utils.clip_grad_norm_(step(one).model.parameters(), 1e-3)),
        kinds=KINDS,
    ),
    "dropped": Misuse(CHANGED, (step, lambda one: step(one).optimizer.zero_grad())),
    "read by a script": Misuse(READ, (step, step, step), read_by_a_script),
    "read by a script before": Misuse(
        READ,  # a layer whose gradient comes first
        (step, step, step),
        lambda: read_by_a_script(nn.Linear(CLASSES, CLASSES)),
    ),
    "accumulated": Misuse(READ, (step, step, accumulated), read_by_a_script),
    "called by DDP": Misuse("DistributedDataParallel, which sends gradients", (called_by_ddp,)),
    "counting": Misuse("counts in its groups (k)", (step, step, step), optimizer=Counting),
    "optimiser": Misuse(
        "the optimiser's step was called",
        (step, step, lambda one: one.optimizer.step()),
        kinds=BOTH,
    ),
    "unfrozen": Misuse(
        "trainable parameters are no",
        (step, lambda one: (one.model.requires_grad_(), step(one))),
        frozen,
        kinds=BOTH,
    ),
    "group": Misuse("the optimiser's parameters are no", (step, step, grouped), kinds=BOTH),
    "written": Misuse("was changed while", (step, step, written), kinds=KINDS),
    "copied": Misuse(
        "call finish() before it is copied",
        (step, step, lambda one: copy.deepcopy(one.model)),
        kinds=BOTH,
    ),
    "attached again": Misuse("another executor has it", (step, attach_again), kinds=BOTH),
    "closed": Misuse("this executor was closed", (step, closed), kinds=BOTH),
}


def late(
    self: Ring, flat: Tensor, filling: Iterable[int] = (), begin: Any = Ring.begin
) -> Callable[[], object]:
    """Begin a message that is long on its way."""
    wait = begin(self, flat, filling)

    def slowly() -> None:
        time.sleep(0.3)
        wait()

    return slowly


def train(case: str, kind: str) -> None:
    """Train wrongly on rank 0, and on the others too if it is the model's fault."""
    words, actions, make, optimizer, _ = MISUSES[case]
    with pytest.MonkeyPatch.context() as patch, join(timeout_s=20) as world:
        if words == READ:  # so no batch has arrived when it is
            patch.setattr(Ring, "begin", late)
        model = make()
        parameters = list(trainable(model).values())
        updates = optimizer(parameters, lr=0.1, momentum=0.9)
        executor = executor_of(kind, model, updates, world)
        alone = make in (Perceptron, frozen) and called_by_ddp not in actions
        for action in actions if not alone or not world.rank else ():
            action(executor)
            executor.step()
        assert world.rank, case
        for _ in range(len(actions) + 3):  # until a batch waits for rank 0
            step(executor)
            executor.step()


CASES = [(case, kind) for case, misuse in MISUSES.items() for kind in misuse.kinds]


def hear(store: int) -> list[tuple[Any, ...]]:
    """Join again for each misuse; return what is said of it."""
    os.environ |= {"MASTER_PORT": str(store), "TORCHELASTIC_USE_AGENT_STORE": "True"}
    heard = []
    for case, kind in CASES:
        try:
            train(case, kind)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            about = (getattr(error, name, None) for name in ("step", "batch", "peers"))
            heard.append((type(error).__name__, str(error), *about))
    return heard


@pytest.mark.slow
def test_every_rank_learns_what_is_wrong(store: int) -> None:
    for heard in values(launch(hear, 2, store, timeout_s=300)):
        for (case, kind), (error, text, number, batch, peers) in zip(CASES, heard, strict=True):
            misuse = MISUSES[case]
            assert misuse.words in text, (case, kind, text)
            if len(misuse.kinds) == 1 and case != "counting":
                assert error == "CommunicationError", (case, text)
                assert number == len(misuse.actions) - 1, (case, text)
            if "no gradient" in text:  # each parameter has a batch of its own, the last one first
                assert batch == (0 if case == "unused" else 7)
                assert peers == (0,) or (case == "unused" and len(peers) == 1)


@in_each_rank()
def test_a_closed_executor_leaves_a_plain_model(world: World) -> None:
    executor = attached(world, updates="adam")
    model, optimizer = executor.model, executor.optimizer
    assert model(make_inputs(MODEL, 0, 0)).grad_fn is not None
    for number in range(3):
        backward(model, MODEL, world.rank, number)
        sent = [weakref.ref(parameter.grad) for parameter in model.parameters()]
        executor.step()
        assert all(parameter.grad is None for parameter in model.parameters())
    assert any(state["step"] == 2 for state in optimizer.state.values())
    assert {int(state["step"]) for state in optimizer.state_dict()["state"].values()} == {3}
    assert not executor.gate.pending
    end = time.monotonic() + 10
    while any(gradient() is not None for gradient in sent):
        assert time.monotonic() < end  # the channel lets go of them in its own time
        time.sleep(0.01)
    executor.close()
    executor.close()

    hooks = ("forward_pre", "forward", "state_dict_pre", "load_state_dict_pre")
    for module in model.modules():
        assert not any(getattr(module, f"_{name}_hooks") for name in hooks)
        assert not module._forward_hooks_always_called
    for parameter in model.parameters():
        assert not getattr(parameter, "_post_accumulate_grad_hooks", None)
    twin: nn.Module = pickle.loads(pickle.dumps(copy.deepcopy(model)))
    assert largest_difference(weights_of(twin), weights_of(model)) == 0
    state = optimizer.state_dict()
    for trained in (model, twin):
        updates = make_optimizer("adam", trained)
        updates.load_state_dict(copy.deepcopy(state))
        backward(trained, MODEL, 0, 3)
        updates.step()
    assert largest_difference(weights_of(twin), weights_of(model)) == 0
    executor_of("gradients", model, make_optimizer("sgd", model), world).close()
