"""A program whose data is cut into parts that follow each other, as a program of its own.

Problem. Depth is how an executor runs a program: everything in parts, each a step behind the part
before it, so that no link idles where steps differ. Formats with no word for it have to be given
the parts as chunks and steps.

Method. The chunks once for each part, part by part; a part's messages are the program's, later by
as many steps as there are parts before it.

Guarantee. Sums are the program's: parts share no chunk. It has no halves, as no step ends the
summing up.

Complexity. Linear in the messages times the parts.

Source. Own; chunks in flight: Hashemi et al., "Caramel", section 4.4.
"""

from planner.collectives.layout import Layout
from planner.collectives.program import ListedProgram, Message, Program
from planner.errors import InvalidInputError

__all__ = ["in_parts", "layouts_of", "sizes_of"]


def sizes_of(elements: int, parts: int) -> list[int]:
    """Return how many elements each part has: as equal as they can be, and none of them empty."""
    quotient, rest = divmod(elements, parts)
    return [quotient + (part < rest) for part in range(min(parts, elements))]


def layouts_of(program: Program, elements: int, element_bytes: int, parts: int) -> list[Layout]:
    """Return where the chunks of each part are, from its own beginning."""
    return [program.layout(size, element_bytes) for size in sizes_of(elements, parts)]


def in_parts(program: Program, parts: int) -> Program:
    """Return a program that does the same in so many parts; one part is the program itself.

    Raises
    ------
    InvalidInputError
        If it is no all-reduce, or its chunks are not all of one size.
    """
    if parts == 1:
        return program
    if program.kind != "all_reduce" or not program.even:
        raise InvalidInputError(
            "program", "expected an all_reduce in chunks of one size to cut into parts"
        )
    messages = (
        # Not `_replace`, which takes three times as long.
        Message(
            message.step + part,
            message.lane,
            message.sender,
            message.receiver,
            message.link,
            message.first + part * program.chunks,
            message.stop + part * program.chunks,
            message.adds,
            message.source,
            message.target,
        )
        for part in range(parts)
        for message in program.messages()
    )
    return ListedProgram(
        f"{program.name} in {parts} parts",
        program.ranks,
        program.lanes,
        program.links,
        parts * program.chunks,
        tuple(messages),
        [program.owner(chunk) for chunk in range(program.chunks)] * parts,
        0,
    )
