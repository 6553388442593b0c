"""What a program may do with a job, a model and its optimiser, and what is refused."""

import copy
import pickle
import time
import weakref
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import LBFGS, SGD, Optimizer

from planner.model.errors import InvalidInputError, InvalidPlanError
from planner.programs import Batch, GradientProgram, Piece, ShardProgram
from planner.runtime.collectives.ring import Ring
from planner.runtime.executors.base import Executor
from planner.runtime.executors.gradients import GradientExecutor
from planner.runtime.executors.shards import ShardExecutor
from planner.runtime.model.parameters import check_cover, trainable
from planner.runtime.world.joining import join
from planner.runtime.world.world import World
from tests.profiling.models import Model
from tests.runtime.jobs import in_each_rank
from tests.runtime.launching import errors, launch
from tests.runtime.recipes import Mixed, Plain, Recipe, follow, made
from tests.runtime.reference import (
    CLASSES,
    STEPS,
    Perceptron,
    backward,
    ddp_weights,
    largest_difference,
    loss_of,
    make_inputs,
    make_model,
    make_optimizer,
    take_steps,
    weights_of,
)
from tests.runtime.sharing import KINDS, Ours, executor_of

MODEL = "perceptron"
each_kind = pytest.mark.parametrize("kind", KINDS)


def attached(
    kind: str, model: nn.Module, world: World, optimizer: Optimizer | None = None
) -> Executor:
    return executor_of(kind, model, optimizer or make_optimizer("sgd", model), world)


@pytest.mark.slow
@each_kind
@in_each_rank()
def test_executors_and_the_program_itself_share_a_job(world: World, kind: str) -> None:
    """Two models are trained, and the job's own group sums up something in between."""
    models = {name: make_model(name) for name in (MODEL, "recurrent")}
    executors = {name: attached(kind, model, world) for name, model in models.items()}
    for step in range(STEPS):
        for name, executor in executors.items():
            backward(models[name], name, world.rank, step)
            executor.step()
        metric = torch.tensor([float(world.rank)])
        distributed.all_reduce(metric)
        assert float(metric) == sum(range(world.size))
    for name, executor in executors.items():
        executor.close()
        assert largest_difference(weights_of(models[name]), ddp_weights(name)) == 0


@each_kind
@in_each_rank()
def test_weights_may_be_clipped_between_steps(world: World, kind: str) -> None:
    """In a way that leaves no trace."""

    def clamp(model: nn.Module, _: int) -> None:
        executor.finish()
        for parameter in model.parameters():
            parameter.data.clamp_(-0.1, 0.1)

    recipe = Recipe(between=clamp)
    model, optimizer = made(recipe)
    executor = executor_of(kind, model, optimizer, world)
    ours = follow(recipe, model, optimizer, Ours(executor, model))
    executor.close()
    model, optimizer = made(recipe)
    plain = follow(recipe, model, optimizer, Plain(model, optimizer))
    assert largest_difference(ours, plain) == 0


@each_kind
@in_each_rank()
def test_copies_of_a_model_are_plain_ones(world: World, kind: str) -> None:
    model = make_model(MODEL)
    with attached(kind, model, world) as executor:
        take_steps(executor, MODEL, world.rank, range(2))
        executor.finish()
        copies: list[nn.Module] = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
        before = weights_of(model)
        take_steps(executor, MODEL, world.rank, [2])
        copied, pickled = (each(make_inputs(MODEL, 0, 0)) for each in copies)
        copied.sum().backward()
        assert torch.equal(copied, pickled)
    for each in copies:
        assert largest_difference(weights_of(each), before) == 0


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


def read_by_a_script_before() -> nn.Module:
    return read_by_a_script(nn.Linear(CLASSES, CLASSES))  # whose gradient comes first


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


def unfrozen(executor: Executor) -> None:
    executor.model.requires_grad_()
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


def called_by_ddp(executor: Executor) -> None:
    backward(DistributedDataParallel(executor.model), MODEL, 0, 0)


class Misuse(NamedTuple):
    """What rank 0 does, the last time wrongly, before each step of the executor."""

    words: str
    actions: tuple[Callable[[Executor], object], ...]
    make: Callable[[], nn.Module] = Perceptron
    optimizer: type[SGD] = SGD
    kinds: Sequence[str] = ("gradients",)


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
    "read by a script before": Misuse(READ, (step, step, step), read_by_a_script_before),
    "accumulated": Misuse(READ, (step, step, accumulated), read_by_a_script),
    "called by DDP": Misuse("DistributedDataParallel, which sends gradients", (called_by_ddp,)),
    "counting": Misuse("counts in its groups (k)", (step, step, step), optimizer=Counting),
    "optimiser": Misuse(
        "the optimiser's step was called",
        (step, step, lambda one: one.optimizer.step()),
        kinds=KINDS,
    ),
    "unfrozen": Misuse("trainable parameters are no", (step, unfrozen), frozen, kinds=KINDS),
    "group": Misuse("the optimiser's parameters are no", (step, step, grouped), kinds=KINDS),
    "written": Misuse("was changed while", (step, step, written), kinds=KINDS),
    "copied": Misuse(
        "call finish() before it is copied",
        (step, step, lambda one: copy.deepcopy(one.model)),
        kinds=KINDS,
    ),
    "attached again": Misuse(
        "another executor has it",
        (step, lambda one: attached("gradients", one.model, one.world)),
        kinds=KINDS,
    ),
    "closed": Misuse("this executor was closed", (step, closed), kinds=KINDS),
}


def late(self: Ring, flat: Tensor, begin: Any = Ring.begin) -> Callable[[], object]:
    """Begin a message that is long on its way."""
    wait = begin(self, flat)

    def slowly() -> None:
        time.sleep(0.3)
        wait()

    return slowly


def train(case: str, kind: str) -> None:
    """Train wrongly on rank 0, and on the others too if it is the model's fault."""
    words, actions, make, optimizer, _ = MISUSES[case]
    if words == READ:  # so no batch has arrived when it is
        Ring.begin = late  # type: ignore[method-assign]
    with join(timeout_s=20) as world:
        model = make()
        parameters = list(trainable(model).values())
        executor = attached(kind, model, world, optimizer(parameters, lr=0.1, momentum=0.9))
        alone = make in (Perceptron, frozen) and called_by_ddp not in actions
        for action in actions if not alone or not world.rank else ():
            action(executor)
            executor.step()
        assert world.rank, case
        for _ in range(len(actions) + 3):  # until a batch waits for rank 0
            step(executor)
            executor.step()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "kind"), [(case, kind) for case, misuse in MISUSES.items() for kind in misuse.kinds]
)
def test_every_rank_learns_what_is_wrong(case: str, kind: str) -> None:
    for error in errors(launch(train, 2, case, kind)):
        words = MISUSES[case].words
        assert words in error.text
        if len(MISUSES[case].kinds) == 1 and case != "counting":
            assert error.type == "CommunicationError", error.trace
            assert error.attributes["step"] == len(MISUSES[case].actions) - 1
        if "no gradient" in words:  # each parameter has a batch of its own, the last one first
            assert error.attributes["batch"] == (0 if case == "unused" else 7)
            (peer,) = error.attributes["peers"]
            assert peer == 0 or case == "unused"


def plain(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.1, momentum=0.9)


def foreign(model: nn.Module) -> Optimizer:
    more = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(0))
    return SGD([*model.parameters(), *more], lr=0.1)


class OfATrainer(Optimizer):
    """Passes on what it is asked, as Accelerate's does."""

    def __init__(self, inner: Optimizer) -> None:
        self.inner = inner


def begun(model: nn.Module) -> Optimizer:
    """Return an optimiser with the state of a part of a parameter."""
    optimizer = plain(model)
    backward(model, MODEL, 0, 0)
    optimizer.step()
    optimizer.state[next(model.parameters())]["momentum_buffer"] = torch.zeros(1)
    return optimizer


def of_a_mesh(whole: bool) -> nn.Module:
    """Return a model whose weights are distributed tensors, or a part of which FSDP shards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_module

    model, mesh = Perceptron(), init_device_mesh("cpu", (1,))
    if whole:
        return distribute_module(model, mesh)
    fully_shard(model.second, mesh=mesh)
    return model


EACH = tuple(Batch((Piece(name),)) for name, _ in Perceptron().named_parameters())
INCOMPLETE = ShardProgram.pushes_first(EACH, EACH[1:])
PULLED_FIRST = ShardProgram(ShardProgram.pushes_first(EACH, EACH).transfers[::-1])


class Refusal(NamedTuple):
    """The path of what does not fit, what is said of it, and what is attached."""

    path: str
    message: str
    make: Callable[[], nn.Module] = Perceptron
    optimizer: Callable[[nn.Module], Optimizer] = plain
    program: ShardProgram | GradientProgram | None = GradientProgram(())
    """None: slices."""


REFUSED = [
    Refusal("model", "expected a module of Python", lambda: torch.jit.script(Perceptron())),
    Refusal("model", "least", lambda: Perceptron().requires_grad_(requires_grad=False)),
    Refusal("model.weight", "complex", lambda: nn.Linear(2, 2, dtype=torch.complex64)),
    Refusal("model.weight", "no shape yet", lambda: nn.LazyLinear(2)),
    Refusal("model.weight", "on the CPU", lambda: nn.Linear(2, 2, device="meta")),
    Refusal(
        "model.0",
        r"attach to the module inside \(\.module\)",
        lambda: nn.Sequential(DistributedDataParallel(Perceptron())),
    ),
    Refusal("model.second", "attach to the model as it was before", lambda: of_a_mesh(False)),
    Refusal("model.first.weight", "got a DTensor", lambda: of_a_mesh(True)),
    Refusal("model.second.weight", "expected torch.float32", Mixed, program=None),
    Refusal(
        "optimizer",
        "OfATrainer wraps another one",
        optimizer=lambda model: OfATrainer(plain(model)),
    ),
    Refusal(
        "optimizer",
        "does not update the model's first.weight",
        optimizer=lambda model: SGD(list(model.parameters())[1:], lr=0.1),
    ),
    Refusal("optimizer", "updates 1 parameter that the model", optimizer=foreign),
    Refusal("optimizer", "LBFGS", optimizer=lambda model: LBFGS(model.parameters())),
    Refusal(
        "optimizer", r"expected the state of whole .* shape \(1,\)", Perceptron, begun, INCOMPLETE
    ),
    Refusal("groups", "is not in the plan"),
    Refusal("push.batches", r"the model's \S+ is not in the plan", program=INCOMPLETE),
    Refusal("pull.batches[0]", r"pulls \S+ before all of it", program=PULLED_FIRST),
]


def attach(model: nn.Module, program: Any, optimizer: Optimizer, world: World) -> Executor:
    if program is None:
        return executor_of("slices", model, optimizer, world)
    kind: Any = ShardExecutor if isinstance(program, ShardProgram) else GradientExecutor
    made: Executor = kind(model, program, optimizer, world)
    return made


@in_each_rank(1)
def test_what_does_not_fit_is_refused(world: World) -> None:
    for path, message, make, optimizer_of, program in REFUSED:
        model = make()
        optimizer = optimizer_of(model)
        with pytest.raises(InvalidInputError, match=message) as error:
            attach(model, program, optimizer, world)
        assert error.value.path == path
        if not path.startswith("model"):
            assert not any(module._forward_hooks for module in model.modules())


@in_each_rank()
def test_a_closed_executor_leaves_a_plain_model(world: World) -> None:
    model = make_model(MODEL)
    optimizer = make_optimizer("adam", model)
    executor = attached("gradients", model, world, optimizer)
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

    for module in model.modules():
        assert not module._forward_pre_hooks
        assert not module._forward_hooks
        assert not module._forward_hooks_always_called
        assert not module._state_dict_pre_hooks
        assert not module._load_state_dict_pre_hooks
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
    attached("gradients", model, world).close()


def build(case: str) -> None:
    """Attach with something that does not fit, on rank 1 or on all; nobody waits for it."""
    with join() as world:
        odd = case if world.rank == 1 else ""
        model = make_model(MODEL)
        if odd == "width":
            model.second = nn.Linear(24, 9)
        if odd == "name":
            model.end = model.last
            del model.last
        optimizer = make_optimizer("adam" if odd == "optimiser" else "sgd", model)
        if odd == "rate":
            optimizer.param_groups[0]["lr"] = 0.2
        if odd == "state":
            backward(model, MODEL, 0, 0)
            optimizer.step()
        batches = EACH[::-1] if odd == "plan" else EACH
        program = GradientProgram(batches[1:] if case == "absent" else batches)
        GradientExecutor(model, program, optimizer, world)


DISAGREEMENTS = {
    "plan": "the plan",
    "width": "the model's parameters",
    "name": "the model's parameters",
    "optimiser": "the optimiser and its settings",
    "rate": "the optimiser and its settings",
    "state": "the optimiser's state",
}


@pytest.mark.parametrize("case", DISAGREEMENTS)
def test_ranks_disagree(case: str) -> None:
    for error in errors(launch(build, 3, case)):
        assert (error.type, error.attributes["ranks"]) == ("DisagreementError", (1,))
        words = f"the ranks do not agree on {DISAGREEMENTS[case]}"
        assert error.text == f"{words}: rank 1 differs from rank 0"


def test_a_plan_that_does_not_fit_is_refused_on_all_ranks() -> None:
    for error in errors(launch(build, 3, "absent")):
        assert error.type == "InvalidPlanError"
        assert "groups: the model's first.weight is not in the plan, or not wholly" in error.text


@pytest.mark.parametrize(
    ("pieces", "size", "path", "message"),
    [
        ([Piece("a")], None, "groups", "the model's b is not in the plan, or not wholly"),
        ([Piece("a"), Piece("b", 0, 8)], None, "groups", "the model's b is not in the plan, or"),
        ([Piece("a"), Piece("b", 4)], None, "groups", "some bytes of b are not sent"),
        ([Piece("a"), Piece("b"), Piece("b", 8)], None, "groups", "some bytes of b are sent twice"),
        ([Piece("a"), Piece("b", 0, 8), Piece("b", 4)], None, "groups", "of b are sent twice"),
        ([Piece("a"), Piece("c")], None, "groups[0]", "the model has no trainable parameter c"),
        ([Piece("a"), Piece("b")], 64, "groups[0]", "64 bytes are planned for 'a, b', the model"),
        ([Piece("a", 0, 6)], None, "a", "cut inside an element of 4 bytes: plan with element_by"),
        ([Piece("a", 6)], None, "a", "cut inside an element of 4 bytes: plan with element_bytes"),
        ([Piece("a", 8, 20)], None, "a", "no bytes [8, 20) in a parameter of 16"),
        ([Piece("a", 8, 8)], None, "a", "no bytes [8, 8) in a parameter of 16"),
    ],
)
def test_batches_that_do_not_carry_everything_once(
    pieces: list[Piece], size: int | None, path: str, message: str
) -> None:
    parameters = {name: nn.Parameter(torch.zeros(count)) for name, count in (("a", 4), ("b", 5))}
    with pytest.raises(InvalidPlanError) as error:
        check_cover([Batch(tuple(pieces), size)], parameters, "groups")
    assert error.value.path == path
    assert message in str(error.value)
