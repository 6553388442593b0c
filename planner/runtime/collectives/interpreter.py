"""Interpreter of collective programs over gloo.

Problem: Gloo's all-reduce is a ring over one NIC. A program
(`planner.families.collectives.program`) sends any chunk to any rank over any link. Method: The
ranks of each link form a process group on the link's interface. One thread per lane (`lane`) runs
its script at its own pace. Large tensors are cut into parts that follow each other. Guarantee: All
ranks hold the same, checked program before the first byte. Sums have a fixed order, so they are the
same in every run, and on all ranks if each chunk is summed on one rank. After a failure the object
stays unusable; waiting threads end within their transfer's time-out. Complexity: That of the
program; memory for the transfers in flight. Source: MSCCL's interpreter (Cowan et al., "MSCCLang",
ASPLOS 2023) runs such programs on GPUs.
"""

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from planner.families.bml.trees import Plan
from planner.families.collectives.checker import check
from planner.families.collectives.program import Kind, ListedProgram, Message, Program
from planner.families.collectives.ring import ring_program
from planner.families.collectives.script import Script, scripts, talking
from planner.jsonio.bml import BmlAnswer
from planner.model.errors import InvalidInputError, InvalidPlanError, PlannerError
from planner.model.topologies import BCube
from planner.programs import digest
from planner.programs.collectives import bcube_program
from planner.runtime.collectives.lane import Lane
from planner.runtime.collectives.ring import AllReduce, Ring
from planner.runtime.world.world import World

_LOOK_S = 0.1
_KEPT_SCRIPTS = 1024
PARTS = 8
"""Largest number of parts of a large tensor: lanes differ in pace, and links should stay busy."""
_PARTS_OF_ONE = 2
"""Largest number of parts with one thread: one part is in flight while another is added."""
_MESSAGE_BYTES = 2**16
"""Cutting never makes messages smaller than this."""
_LARGE = 2**40
"""Tensor size (bytes) at which all differences between programs show."""


def collective_of(world: World, program: Program) -> AllReduce:
    """Return the all-reduce of a program: gloo's ring if the program is one, else an `Interpreter`.

    Every rank has to call it, at the same place in its program. Parameters and errors are those of
    `Interpreter`.
    """
    if program == ring_program(world.size) and len(world.interfaces) <= 1:
        world.agree("the program of the all-reduce", program.name)
        return Ring(world.group)
    return Interpreter(world, program)


class Interpreter:
    """All-reduce of tensors over all ranks of a job by a collective program.

    Every rank has to create it, at the same place in its program::

        world = join()
        summing = Interpreter(world, bruck_program(world.size))
        summing.all_reduce(tensor)
        executor = attach(model, plan, optimizer, world, all_reduce=summing)

    Parameters
    ----------
    world : World
        With a network interface for each link, or with at most one, which all links share.
    program : Program
        An all-reduce.
    depth : int
        Least number of parts of every tensor.
    size_bytes : int, optional
        The only tensor size the program is made for; the program then defines its own parts.

    Raises
    ------
    InvalidPlanError
        If the program does not sum every contribution exactly once.
    InvalidInputError
        If the program and the job do not fit together.
    DisagreementError
        If ranks have different programs; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """

    _link = "link"

    def __init__(
        self, world: World, program: Program, *, depth: int = 1, size_bytes: int | None = None
    ) -> None:
        self._world = world
        self.program = program
        self._depth = depth
        self._size_bytes = size_bytes
        with world.refusing():
            messages = _checked(program)
        seen = _seen(program, messages, size_bytes or _LARGE)
        listed = f" {seen}" if isinstance(program, ListedProgram) else ""  # without a generator
        self.name = f"{program.name}{listed}{f' in {depth} parts' if depth > 1 else ''}"
        """The name that ranks compare before the first transfer."""
        world.agree("the program of the all-reduce", f"{self.name} {seen}")
        if world.size != program.ranks:
            raise InvalidInputError(
                "world", f"expected {program.ranks} ranks for {program.name}, got {world.size}"
            )
        interfaces: Sequence[str | None] = world.interfaces
        if len(interfaces) <= 1:
            interfaces = (None,) * program.links
        if len(interfaces) != program.links:
            raise InvalidInputError(
                "interfaces",
                f"expected one for each of {program.links} {self._link}s, got {len(interfaces)}",
            )
        self._groups: dict[int, tuple[Any, Mapping[int, int]]] = {}
        for link, ranks in talking(messages):
            group = world.new_group(ranks, interfaces[link])
            if group is not None:
                self._groups[link] = group, {rank: place for place, rank in enumerate(ranks)}
        world.gather("having its groups", "")  # a rank that closed sooner would break others'
        self._halves: dict[Kind, Program] = {program.kind: program}
        self._scripts = lru_cache(_KEPT_SCRIPTS)(self._made)
        self._error: BaseException | None = None
        self._busy = threading.Lock()
        self._lanes = [
            Lane(number, self._groups, self._link)
            for number in range(max(min(program.lanes, program.links), 1))
        ]
        self._threads = ThreadPoolExecutor(len(self._lanes), "planner-lane")

    def __call__(self, flat: Tensor, depth: int = 1) -> None:
        """Replace a one-dimensional, contiguous tensor on the CPU by the sum of all ranks' tensors.

        Every rank calls it for the same sizes in the same order, from one thread at a time. `depth`
        is the least number of parts, each sent one step behind the previous one. Large tensors are
        cut anyway: into 2 parts, or 8 for programs of several lanes. A program for one tensor size
        defines its own parts. A failed transfer raises a `PeerError` with the link and the rank.
        """
        self._follow(flat, depth, self.program.kind)

    def reduce_scatter(self, flat: Tensor, depth: int = 1) -> None:
        """Sum this rank's chunks in place; all other chunks become undefined.

        Parameters and errors are those of a call, and `InvalidPlanError` if the program has no
        halves.
        """
        self._follow(flat, depth, "reduce_scatter")

    def all_gather(self, flat: Tensor, depth: int = 1) -> None:
        """Replace all chunks by those of their owners.

        Parameters and errors are those of a call, and `InvalidPlanError` if the program has no
        halves.
        """
        self._follow(flat, depth, "all_gather")

    def owned(self, flat: Tensor, depth: int = 1, *, rank: int | None = None) -> list[Tensor]:
        """Return the chunks of a tensor that a rank owns, by default this rank, in order."""
        elements, width = flat.numel(), flat.element_size()
        parts = self.parts(elements, width, depth)
        owner = self._world.rank if rank is None else rank
        chunks = [
            chunk for chunk in range(self.program.chunks) if self.program.owner(chunk) == owner
        ]
        pieces = []
        for part in flat.tensor_split(parts):
            layout = self.program.layout(part.numel(), width)
            for chunk in chunks:
                start = layout.start(chunk) // width
                pieces.append(part[start : start + layout.span(chunk, 1) // width])
        return [piece for piece in pieces if piece.numel()]

    def all_reduce(self, tensor: Tensor) -> Tensor:
        """Replace a tensor of any shape by the sum of all ranks' tensors.

        Parameters
        ----------
        tensor : Tensor
            Of real numbers, on the CPU, of the same shape and type on all ranks. It is returned.

        Raises
        ------
        CommunicationError
            If a transfer fails, or another rank has stopped.
        InvalidInputError
            If the tensor is complex, sparse, not on the CPU, or of a size the program is not for.
        """
        dense = tensor.device.type == "cpu" and tensor.layout == torch.strided
        if not dense or tensor.is_complex():
            raise InvalidInputError(
                "tensor",
                "expected a dense one of real numbers on the CPU, got "
                f"{tensor.layout}, {tensor.dtype}, {tensor.device}",
            )
        plain = tensor.detach()
        flat = plain.reshape(-1)  # a copy where the tensor is not contiguous
        self._checked(flat, 1, self.program.kind)  # an error here stops no other rank
        with self._world.transferring():
            self(flat)
        if not plain.is_contiguous():
            plain.copy_(flat.view(plain.shape))
        return tensor

    def close(self) -> None:
        """End the threads and the groups. Every rank has to call it, or none."""
        self._threads.shutdown()  # a process that ends while a thread is inside gloo may abort
        if self._error is None:
            self._error = PlannerError("this all-reduce was closed")
        self._lanes, self._groups = [], {}

    def _follow(self, flat: Tensor, depth: int, kind: Kind) -> None:
        if not self._busy.acquire(blocking=False):
            raise InvalidInputError("", "called from two threads at once")
        try:
            going = {
                self._threads.submit(lane.follow, flat, script)
                for lane, script in zip(self._lanes, self._checked(flat, depth, kind), strict=True)
            }
            while going:
                ended, going = wait(going, _LOOK_S, FIRST_EXCEPTION)
                errors = [error for each in ended if (error := each.exception()) is not None]
                if going:  # the error of another rank ends the waiting
                    errors += filter(None, [self._world.watch.error])
                if errors:
                    self._error = errors[0]
                    raise self._error
        finally:
            self._busy.release()

    def _checked(self, flat: Tensor, depth: int, kind: Kind) -> tuple[Script, ...]:
        """Return the scripts for a tensor; raise the first known error."""
        self._world.watch.check()  # the job's error says more than this object's
        if self._error is not None:
            raise self._error
        if kind not in self._halves:
            half = self.program.half(kind)
            check(half)
            self._halves[kind] = half
        elements, width = flat.numel(), flat.element_size()
        return self._scripts(kind, elements, width, self.parts(elements, width, depth))

    def _made(self, kind: Kind, elements: int, width: int, parts: int) -> tuple[Script, ...]:
        return scripts(self._halves[kind], self._world.rank, elements, width, parts)

    def parts(self, elements: int, width: int, depth: int = 1) -> int:
        """Return the number of parts for the given number of elements of `width` bytes."""
        if self._size_bytes is not None:
            return 1
        most = _PARTS_OF_ONE if len(self._lanes) == 1 else PARTS
        least = elements * width // self.program.chunks  # bytes of a message without cutting
        return max(depth, self._depth, min(most, least // _MESSAGE_BYTES))


def _checked(program: Program) -> list[Message]:
    """Return the messages of a program after checking it."""
    check(program)
    messages = list(program.messages())
    for message in messages:  # `check` may use the program's symmetry, which ignores links
        if not 0 <= message.link < program.links:
            raise InvalidPlanError(
                f"step {message.step}, rank {message.sender} to rank {message.receiver}",
                f"no link {message.link}: ranks have {program.links}",
            )
    return messages


def _seen(program: Program, messages: Sequence[Message], size: int) -> str:
    """Return a hash of the layout and messages for a tensor of the given bytes."""
    layout, chunks = program.layout(size), range(program.chunks)
    ends = program.ranks, program.links, program.scatter_steps
    owned = [(program.owner(chunk), layout.start(chunk)) for chunk in chunks]
    return digest(ends, owned, [tuple(message) for message in messages])


# ---
# BML's all-reduce, which uses every NIC of a BCube.


class BcubeAllReduce(Interpreter):
    """All-reduce of tensors over the ranks of a BCube(n, k).

    Every rank has to create it, at the same place in its program::

        world = join(interfaces=["eth0", "eth1"])
        bcube = BcubeAllReduce(world, 3, 2)
        bcube.all_reduce(tensor)
        executor = attach(model, plan, optimizer, world, all_reduce=bcube)

    Parameters
    ----------
    world : World
        With a network interface for each level, or with at most one, which all levels share.
    n, k : int
        Ports of a switch, and levels.
    plan : bytes, mapping, answer or plan, optional
        The plan to follow in place of Algorithm 1. A plan of `planner.bml` fits tensors of all
        sizes; so does an answer of ``planner solve``, as JSON or plain values. Around failures
        the answer has to hold its plan (``"with_plan": true``). Failed servers have no rank.
        Unused NICs need not work.

    Raises
    ------
    InvalidInputError
        If the plan, the job and BCube(n, k) do not fit together.
    DisagreementError
        If ranks differ in n, k or plan; on every rank.
    CommunicationError
        If a rank does not take part in time.
    """

    _link = "level"

    def __init__(
        self,
        world: World,
        n: int,
        k: int,
        plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None = None,
    ) -> None:
        with world.refusing():
            program, depth, size = bcube_program(BCube(n, k), plan)
        super().__init__(world, program, depth=depth, size_bytes=size)
