"""Checks of executors of gradient transfers against their plans, without torch or a network.

Ranks are threads of one process. Their group adds up their messages and keeps a record. Gradients
are whole numbers, so that sums are exact in any order. A gradient that is not ready yet holds
`NOT_READY`, which no right message contains.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from planner.programs import Batch, GradientProgram, Piece

Gradient: TypeAlias = NDArray[np.int64]

ELEMENT_BYTES = 8
NOT_READY = -(2**40)

_WAIT_S = 30.0
"""Seconds that a rank waits for other ranks before it gives up."""


@dataclass
class RecordingGroup:
    """A process group of threads: it adds up messages, and keeps what each rank sent."""

    ranks: int
    sent: dict[int, list[Gradient]] = field(default_factory=dict)  # by rank, in order

    def __post_init__(self) -> None:
        self._meet = threading.Barrier(self.ranks, timeout=_WAIT_S)
        self._there: dict[int, Gradient] = {}

    def all_reduce(self, rank: int, message: Gradient) -> None:
        """Replace a rank's message by the sum of the messages of all ranks."""
        self.sent.setdefault(rank, []).append(message.copy())
        self._there[rank] = message
        self._meet.wait()
        sizes = {len(each) for each in self._there.values()}
        assert len(sizes) == 1, f"ranks sum up messages of {sorted(sizes)} elements"
        whole: Gradient = np.sum(list(self._there.values()), axis=0)
        self._meet.wait()
        message[:] = whole
        self._meet.wait()

    def give_up(self) -> None:
        """Free the ranks that wait for a rank that has failed."""
        self._meet.abort()


Run: TypeAlias = Callable[
    [GradientProgram, dict[str, Gradient], Iterator[str], Callable[[Gradient], None]], object
]
"""Runs one rank, given the program, its gradients, names as they become ready, an all-reduce."""


@st.composite
def gradient_programs(
    draw: st.DrawFn, *, parameters: int = 5
) -> tuple[GradientProgram, Mapping[str, int], tuple[str, ...]]:
    """Return a program, the elements of each parameter, and the order of their gradients."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=parameters))
    elements = {f"p{place}": size for place, size in enumerate(sizes)}
    pieces = []
    for name, size in elements.items():
        cut = draw(st.integers(0, size - 1))
        if cut:
            middle = cut * ELEMENT_BYTES
            pieces += [Piece(name, 0, middle), Piece(name, middle, size * ELEMENT_BYTES)]
        else:
            pieces.append(Piece(name))
    pieces = draw(st.permutations(pieces))
    ends = [*(n for n in range(1, len(pieces)) if draw(st.booleans())), len(pieces)]
    starts = [0, *ends[:-1]]
    batches = (Batch(tuple(pieces[a:b])) for a, b in zip(starts, ends, strict=True))
    return GradientProgram(tuple(batches)), elements, tuple(draw(st.permutations(list(elements))))


def check_executor(run: Run, *, ranks: int = 3, examples: int = 40) -> None:
    """Assert that an executor sends gradients as planned.

    Parameters
    ----------
    run : callable
        Carries out a program on one rank: ``run(program, gradients, ready, all_reduce)``.
        `gradients` holds an array of each parameter, which has its values once `ready`, an
        iterator, has yielded the parameter's name; `all_reduce` replaces an array by the sum over
        all ranks. It is called in a thread for each rank.
    ranks, examples : int
        Number of ranks, and of programs drawn.

    Raises
    ------
    AssertionError
        If a rank sends batches that are not planned, or in another order, or a gradient before it
        is ready, or if a gradient in the end is not the sum over all ranks.
    """

    @settings(max_examples=examples, deadline=None, report_multiple_bugs=False)
    @given(gradient_programs())
    def follows(drawn: tuple[GradientProgram, Mapping[str, int], tuple[str, ...]]) -> None:
        program, elements, order = drawn
        group = RecordingGroup(ranks)

        def carried_out(rank: int) -> dict[str, Gradient]:
            gradients = {name: np.full(size, NOT_READY) for name, size in elements.items()}

            def ready() -> Iterator[str]:
                for name in order:
                    gradients[name][:] = _values(rank, name, elements[name])
                    yield name

            try:
                run(program, gradients, ready(), lambda message: group.all_reduce(rank, message))
            except BaseException:
                group.give_up()
                raise
            return gradients

        with ThreadPoolExecutor(ranks) as pool:
            gradients_of = list(pool.map(carried_out, range(ranks)))
        for rank in range(ranks):
            _check_sent(program, elements, rank, group.sent.get(rank, []))
            for name, size in elements.items():
                whole = np.sum([_values(each, name, size) for each in range(ranks)], axis=0)
                assert (gradients_of[rank][name] == whole).all(), (
                    f"{name} is not the sum on rank {rank}"
                )

    follows()


def _check_sent(
    program: GradientProgram, elements: Mapping[str, int], rank: int, sent: Sequence[Gradient]
) -> None:
    assert len(sent) == len(program.batches), f"{len(sent)} transfers, not {len(program.batches)}"
    for place, (batch, message) in enumerate(zip(program.batches, sent, strict=True)):
        assert (message != NOT_READY).all(), f"transfer {place} holds a gradient that is not ready"
        planned = np.concatenate([_part(rank, piece, elements) for piece in batch.pieces])
        assert message.tolist() == planned.tolist(), f"transfer {place} holds something else"


def _part(rank: int, piece: Piece, elements: Mapping[str, int]) -> Gradient:
    values = _values(rank, piece.parameter, elements[piece.parameter])
    stop = None if piece.stop is None else piece.stop // ELEMENT_BYTES
    return values[piece.start // ELEMENT_BYTES : stop]


def _values(rank: int, name: str, size: int) -> Gradient:
    values: Gradient = np.arange(1, size + 1) * 10**rank + 100 * int(name[1:])
    return values
