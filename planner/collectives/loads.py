"""What a program costs: what every NIC carries in every step, and the time that takes.

Problem. Price any program, on ranks whose NICs differ, with one round or in parts that follow each
other.

Method. A step lasts as long as its busiest NIC takes to carry what it has to, and the busiest rank
to add what arrives (`planner.network`). With depth d the data is cut into d parts, and each takes
every step one step later than the part before it: NICs then carry several parts at once, each in
another step of the program, so that NICs that would wait for each other work side by side.

Guarantee. Exact, and rounded up once. The costs of `planner.collectives` are what this says of
their programs.

Complexity. Linear in the messages: of a symmetric program one rank's stand for all. Source. Own.
"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from planner.collectives.collective import Cost
from planner.collectives.program import Message, Program
from planner.collectives.symmetric import SymmetricProgram
from planner.network import Network
from planner.validation import integer

__all__ = ["Load", "cost_of", "loads", "time_of"]


class Load(NamedTuple):
    """What ranks do in one step.

    Attributes
    ----------
    sent, received : Counter of (int, int)
        Bytes by rank and NIC.
    added : Counter of int
        Bytes by rank.
    messages : int
        The most that one NIC sends.
    """

    sent: Counter[tuple[int, int]]
    received: Counter[tuple[int, int]]
    added: Counter[int]
    messages: int


def loads(program: Program, elements: int, element_bytes: int = 1) -> list[Load]:
    """Return what ranks carry in every step, of so many elements of so many bytes.

    Of a symmetric program whose chunks all have one size only what rank 0 carries.
    """
    layout = program.layout(elements, element_bytes)
    steps = [Load(Counter(), Counter(), Counter(), 0) for _ in range(program.steps)]
    sent: list[Counter[tuple[int, int]]] = [Counter() for _ in steps]
    alike = isinstance(program, SymmetricProgram) and elements % program.chunks == 0
    ranks = range(1 if alike else program.ranks)

    def size(message: Message) -> int:
        return layout.span(message.first, message.stop - message.first)

    for rank in ranks:
        for message in program.sends(rank):
            if length := size(message):
                steps[message.step].sent[rank, message.link] += length
                sent[message.step][rank, message.link] += 1
        for message in program.receives(rank):
            if length := size(message):
                steps[message.step].received[rank, message.link] += length
                if message.adds:
                    steps[message.step].added[rank] += length
    return [
        step._replace(messages=max(times.values(), default=0))
        for step, times in zip(steps, sent, strict=True)
    ]


def cost_of(program: Program) -> Cost:
    """Return what a program costs whose chunks all have one size, as closed forms say it."""
    steps = [step for step in loads(program, program.chunks) if step.sent or step.received]
    volume = sum(max((*step.sent.values(), *step.received.values())) for step in steps)
    added = sum(max(step.added.values(), default=0) for step in steps)
    return Cost(
        steps=len(steps),
        volume=Fraction(volume, program.chunks),
        reduced=Fraction(added, program.chunks),
    )


def time_of(
    program: Program,
    networks: Sequence[Network],
    elements: int,
    element_bytes: int = 1,
    depth: int = 1,
) -> int:
    """Return the time of a program in nanoseconds, rounded up once.

    Parameters
    ----------
    program : Program
        What is done.
    networks : sequence of Network
        For each NIC of a rank, its speed and start-up cost; one for NICs that are alike. What a
        byte costs that is added says the first one.
    elements, element_bytes : int
        How many elements there are, and the size of one.
    depth : int
        In how many parts.
    """
    integer(depth, "depth", minimum=1)
    parts = min(depth, elements)
    if not parts:
        return 0
    each = list(networks) * program.links if len(networks) == 1 else list(networks)
    quotient, rest = divmod(elements, parts)
    kinds = {
        size: loads(program, size, element_bytes) for size in {quotient, quotient + bool(rest)}
    }
    sizes = [quotient + (part < rest) for part in range(parts)]
    time = Fraction(0)
    for moment in range(program.steps + parts - 1):
        under_way = [
            kinds[sizes[part]][moment - part]
            for part in range(max(0, moment - program.steps + 1), min(parts, moment + 1))
        ]
        time += _moment(under_way, each)
    return ceil(time)


def _moment(under_way: Sequence[Load], networks: Sequence[Network]) -> Fraction:
    """Return the time of steps that are taken at once."""
    sent: Counter[tuple[int, int]] = Counter()
    received: Counter[tuple[int, int]] = Counter()
    added: Counter[int] = Counter()
    for step in under_way:
        sent.update(step.sent)
        received.update(step.received)
        added.update(step.added)
    carried = max(
        (
            networks[link].step(size)
            for loaded in (sent, received)
            for (_, link), size in loaded.items()
        ),
        default=Fraction(0),
    )
    return carried + max(added.values(), default=0) * networks[0].reduce_ns_per_byte
