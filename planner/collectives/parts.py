"""A program that pipelines its data in parts, written out as a program of chunks and steps.

Problem: at depth d an executor cuts the data into d parts, each one step behind the part before,
so that no link idles. File formats without depth need the parts as chunks and steps.
Guarantee: the sums are those of the program, as parts share no chunk. The result has no halves,
because no step ends the reduce-scatter of all parts.
Complexity: O(messages · parts).
Source: own; chunks in flight: Hashemi et al., "Caramel", section 4.4.
"""

from planner.collectives.layout import Layout
from planner.collectives.program import ListedProgram, Message, Program
from planner.errors import InvalidInputError

__all__ = ["in_parts", "layouts_of", "sizes_of"]


def sizes_of(elements: int, parts: int) -> list[int]:
    """Return the elements of each part: as equal as possible, no part empty."""
    quotient, rest = divmod(elements, parts)
    return [quotient + (part < rest) for part in range(min(parts, elements))]


def layouts_of(program: Program, elements: int, element_bytes: int, parts: int) -> list[Layout]:
    """Return the chunk layout of each part, relative to the start of that part."""
    return [program.layout(size, element_bytes) for size in sizes_of(elements, parts)]


def in_parts(program: Program, parts: int) -> Program:
    """Return the program in `parts` pipelined parts; one part is the program itself.

    Only an all-reduce with chunks of one size can be cut into parts.
    """
    if parts == 1:
        return program
    if program.kind != "all_reduce" or not program.even:
        raise InvalidInputError(
            "program", "expected an all_reduce in chunks of one size to cut into parts"
        )
    messages = (
        # Not `_replace`: it takes three times as long.
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
