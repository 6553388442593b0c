"""FSDP2 as people call it, and what it sends and holds in memory; needs torch."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_collectives, _fsdp_param_group
from torch.distributed.tensor import DTensor

from planner.families.fsdp import Mesh
from planner.runtime.fsdp2 import _Queue

Event = tuple[str, int]
Amount = tuple[str, int, int, int]


RULES_OF_FSDP2 = ("fsdp2", "fsdp2_ahead_2", "no_reshard", "one_unit")


def devices(mesh: Mesh) -> Any:
    names = ("replicate", "shard")[mesh.replicas == 1 :]
    sizes = (mesh.replicas, mesh.shards)[mesh.replicas == 1 :]
    return init_device_mesh("cpu", sizes, mesh_dim_names=names)


def as_people_do(make: Callable[[], nn.Sequential], rule: str, over: Mesh) -> nn.Module:
    """Return a model that FSDP2 shards by a rule, called as people do."""
    model, mesh = make(), devices(over)
    options: dict[str, Any] = {"reshard_after_forward": False} if rule == "no_reshard" else {}
    own = [] if rule == "one_unit" else [layer for layer in model if list(layer.parameters())]
    layers = [fully_shard(layer, mesh=mesh, **options) for layer in own]
    fully_shard(model, mesh=mesh, **options)
    for place, layer in enumerate(layers):
        if rule == "fsdp2_ahead_2":
            layer.set_modules_to_forward_prefetch(layers[place + 1 : place + 3])
            layer.set_modules_to_backward_prefetch(layers[max(place - 2, 0) : place][::-1])
    return model


@contextmanager
def recording() -> Iterator[list[Event]]:
    """Note the collectives that begin, in order, on whatever thread."""
    events: list[Event] = []

    def noting(kind: str, place: int, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            names = ("output_tensor", "input_tensor") if kind == "gather" else ("output", "input")
            tensor = args[place] if len(args) > place else options[names[place]]
            events.append((kind, tensor.numel()))
            if kind == "scatter":
                time.sleep(0.003)  # longer than the computation between two of them
            return function(*args, **options)

        return call

    with (
        mock.patch.multiple(
            distributed,
            all_gather_single=noting("gather", 0, distributed.all_gather_single),
            reduce_scatter_single=noting("scatter", 1, distributed.reduce_scatter_single),
            all_reduce=noting("sum", 0, distributed.all_reduce),
        ),
    ):
        yield events


@contextmanager
def weighing(model: nn.Module, heads: Sequence[nn.Module], most: int) -> Iterator[list[Amount]]:
    """Note the bytes of parameters, gradients and buffers, by their storages."""
    amounts: list[Amount] = []
    states = {
        module._get_fsdp_state(): None
        for module in model.modules()
        if isinstance(module, FSDPModule)
    }
    groups: list[Any] = [group for state in states for group in state._fsdp_param_groups]

    def note(stage: str, gradients: Sequence[Tensor] = (), scattered: int = 0) -> None:
        parameters = buffers = made = 0
        shares: dict[int, int] = {}
        for group in groups:
            if group._all_gather_result is not None:
                buffers += group._all_gather_result.all_gather_output.untyped_storage().size()
            for parameter in group.fsdp_params:
                for output in parameter.all_gather_outputs:
                    parameters += output.untyped_storage().size()
                full = getattr(parameter, "_unsharded_param", None)
                if full is not None and full.grad is not None:
                    made += full.grad.untyped_storage().size()
                if isinstance(share := parameter.sharded_param.grad, DTensor):
                    storage = share.to_local().untyped_storage()
                    shares[storage.data_ptr()] = storage.size()
        for kept in groups[0].comm_ctx.reduce_scatter_states:
            buffers += kept.reduce_scatter_input.untyped_storage().size()
        made += sum(gradient.untyped_storage().size() for gradient in gradients)
        row = (stage, parameters, made + sum(shares.values()), buffers + scattered)
        amounts.append(row)

    def copy_out(*args: Any) -> None:
        note("wait")
        original_copy_out(*args)
        note("copy")

    def post_forward(group: Any, *args: Any) -> Any:
        result = original_post_forward(group, *args)
        note("end")
        return result

    def post_backward(group: Any, *args: Any) -> None:
        if group._training_state.name != "POST_BACKWARD":
            note("compute")
        original_post_backward(group, *args)

    def copy_in(gradients: list[Tensor], buffer: Tensor, size: int) -> None:
        # FSDP2 forgets inputs that are still being sent: those are counted here.
        assert sum(not work._future.done() for work in queued) < most
        original_copy_in(gradients, buffer, size)
        note("scatter", gradients, buffer.untyped_storage().size())

    kind = _fsdp_param_group.FSDPParamGroup

    def put(queue: _Queue, collective: Any) -> Any:
        work = original_put(queue, collective)
        if collective.func is distributed.reduce_scatter_single:
            queued.append(work)
        return work

    queued: list[Any] = []
    original_put = _Queue.__call__
    original_copy_out = _fsdp_collectives.foreach_all_gather_copy_out
    original_copy_in = _fsdp_collectives.foreach_reduce_scatter_copy_in
    original_post_forward, original_post_backward = kind.post_forward, kind.post_backward
    hooks = [head.register_forward_pre_hook(lambda *_: note("compute")) for head in heads]
    with (
        mock.patch.object(_fsdp_param_group, "foreach_all_gather_copy_out", copy_out),
        mock.patch.object(_fsdp_collectives, "foreach_reduce_scatter_copy_in", copy_in),
        mock.patch.object(_Queue, "__call__", put),
        mock.patch.object(kind, "post_forward", post_forward),
        mock.patch.object(kind, "post_backward", post_backward),
    ):
        yield amounts
    for hook in hooks:
        hook.remove()
