"""Programs as plans of MSCCL++, carried out by `tests.formats.mscclpp_interpreter`."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from graphlib import CycleError
from itertools import product

import pytest

from planner.families.collectives import Program
from planner.families.collectives.program import OWN, ListedProgram, Message, in_parts
from planner.families.collectives.recipes import GENERATORS, Recipe, made, ranks_of
from planner.formats.exporters.mscclpp import MAX_BYTES, write_mscclpp
from planner.model.errors import InvalidInputError
from tests.collectives.programs import around_failures, tensors_program
from tests.formats.mscclpp_interpreter import Plan, operations, without
from tests.thorough import THOROUGH

RANKS = (2, 3, 4, 8, 9)


def shapes(generator: str, ranks: int) -> Iterator[tuple[int, ...]]:
    """Yield the shapes in which a generator has so many ranks."""
    pairs = product(range(1, ranks + 1), repeat=2)
    for shape in ((ranks,), *pairs, (2, 2, 2)):
        with suppress(InvalidInputError):
            if ranks_of(Recipe(generator, shape)) == ranks:
                yield shape


@cache
def programs() -> list[Program]:
    """Return every generator's programs among 2, 3, 4, 8 and 9 ranks."""
    found = []
    for generator in GENERATORS:
        for ranks in RANKS:
            for shape in shapes(generator, ranks):
                with suppress(InvalidInputError):  # some have a price, and nobody can run them
                    program = made(Recipe(generator, shape))
                    assert program.ranks == ranks
                    if all(one.source == one.target == OWN for one in program.messages()):
                        found.append(program)
    assert {program.name.split("(")[0] for program in found} >= {"ring", "bml", "bruck"}
    return found


@pytest.mark.parametrize(
    "program",
    [
        pytest.param(one, marks=[pytest.mark.slow] if one.ranks > 4 else [], id=str(number))
        for number, one in enumerate([*programs(), *around_failures()])
    ],
)
def test_every_order_gives_every_rank_the_sum(program: Program) -> None:
    text = write_mscclpp(program)
    plan = Plan(text)
    assert not plan.races()
    assert all(plan.sums(seed) for seed in range(3 if THOROUGH or program.ranks <= 4 else 1))
    for gpu in plan.gpus:
        assert gpu["input_chunks"] == gpu["output_chunks"] == program.chunks
    moved = sum(
        write.stop - write.first
        for event, effect in plan.effects.items()
        for write in effect.writes
        if event[0] != "re"
    )
    assert moved == sum(message.stop - message.first for message in program.messages())


SMALL = [
    Recipe("ring", (3,)),
    Recipe("bruck", (3,)),
    Recipe("direct", (3,)),
    Recipe("bml", (2, 2)),
]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", SMALL, ids=str)
def test_no_operation_can_be_left_out(recipe: Recipe) -> None:
    """Without it there is a race, a wait without signal, a cycle, or a wrong sum."""
    text = write_mscclpp(made(recipe))
    ranks = {0, len(Plan(text).gpus) - 1}
    for rank, block, number, name in operations(text):
        # A nop too many orders more than need be; ranks between the first and the last are alike.
        if name == "nop" or rank not in ranks:
            continue
        less = without(text, rank, block, number)
        try:
            plan = Plan(less)
            wrong = bool(plan.races()) or not plan.sums()
        except (AssertionError, CycleError, KeyError):
            wrong = True
        assert wrong, (rank, block, number, name)


def test_threads_are_kept_together_before_and_behind_additions() -> None:
    text = write_mscclpp(made(Recipe("ring", (3,))))
    places = list(operations(text))
    names = [name for *_, name in places]
    for (rank, block, number, name), before, after in zip(
        places[1:], names, names[2:], strict=False
    ):
        if name == "nop" and "re" in (before, after):
            assert Plan(without(text, rank, block, number)).races()


def test_flushing_is_needed() -> None:
    text = write_mscclpp(made(Recipe("ring", (3,))))
    assert '"pwsf"' in text
    assert Plan(text.replace('"pwsf"', '"pws"')).races()


@pytest.mark.slow
@pytest.mark.parametrize(("generator", "ranks"), [("ring", 12), ("direct", 17), ("direct", 20)])
def test_long_chains_are_cut_into_blocks(generator: str, ranks: int) -> None:
    """So are those of more peers than a block has channels, which wait in their order."""
    plan = Plan(write_mscclpp(made(Recipe(generator, (ranks,)))))
    assert len(plan.gpus[0]["threadblocks"]) > 1
    assert plan.gpus[0]["semaphores"]
    assert not plan.races()
    assert plan.sums()


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("recipe", SMALL, ids=str)
def test_parts_are_summed_up_in_every_order(recipe: Recipe, parts: int) -> None:
    program = made(recipe)
    plan = Plan(write_mscclpp(in_parts(program, parts)))
    assert plan.gpus[0]["input_chunks"] == parts * program.chunks
    assert not plan.races()
    assert all(plan.sums(seed) for seed in range(2))


def test_the_document_is_what_the_executor_reads() -> None:
    text = write_mscclpp(made(Recipe("ring", (2,))))
    document = json.loads(text)
    [first, _] = document.pop("gpus")
    assert document == {
        "name": "ring-2",
        "collective": "allreduce",
        "protocol": "Simple",
        "inplace": True,
        "reuse_resources": False,
        "num_threads_per_block": 1024,
        "use_double_scratch_buffer": False,
        "buffer_alignment": 16,
        "min_message_size": 0,
        "max_message_size": MAX_BYTES,
    }
    [block] = first.pop("threadblocks")
    assert first == {
        "id": 0,
        "input_chunks": 2,
        "output_chunks": 2,
        "scratch_chunks": 1,
        "channels": [{"channel_type": "port", "connected_to": [1]}],
        "remote_buffers": [
            {"rank": 1, "type": "s", "access_channel_types": ["port"]},
            {"rank": 1, "type": "i", "access_channel_types": ["port"]},
        ],
        "semaphores": [],
    }
    names = [operation["name"] for operation in block["ops"]]
    assert names[:3] == ["signal", "wait", "pws"]
    assert {operation["name"] for operation in block["ops"]} == {
        "signal", "wait", "nop", "pws", "pwsf", "re"
    }  # fmt: skip


def listed(*messages: Message, ranks: int = 2, chunks: int = 1) -> ListedProgram:
    return ListedProgram("listed", ranks, 1, 1, chunks, messages, [0] * chunks, 9)


@pytest.mark.parametrize(
    ("program", "path", "why"),
    [
        (made(Recipe("ring", (1,))), "program", "at least 2 ranks"),
        (made(Recipe("ring", (4,))).half("all_gather"), "program.kind", "expected an all_reduce"),
        (tensors_program((3, 5), 2), "program", "all of one size"),
        (
            listed(
                Message(0, 0, 0, 1, 0, 0, 1, adds=True), Message(0, 0, 1, 0, 0, 0, 1, adds=True)
            ),
            "program",
            "that it has sent",
        ),
        (
            listed(Message(0, 0, 0, 1, 0, 0, 1, adds=True, target=5)),
            "program",
            "no passing on through other ranks",
        ),
        (made(Recipe("hierarchical_rails", (1, 200))), "program", "blocks of a rank, got 73"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_reason(
    program: Program, path: str, why: str
) -> None:
    with pytest.raises(InvalidInputError, match=why) as caught:
        write_mscclpp(program)
    assert caught.value.path == path


def test_messages_over_one_channel_keep_their_order() -> None:
    """Rank 0 sends to rank 2 twice, the second time by another thread."""
    up = [
        Message(0, 0, 0, 1, 0, 0, 1, adds=True),
        Message(0, 0, 0, 2, 0, 1, 2, adds=True),
        Message(0, 0, 0, 2, 0, 2, 3, adds=True),
        Message(1, 0, 1, 2, 0, 0, 3, adds=True),
    ]
    down = [Message(2, 0, 2, receiver, 0, 0, 3, adds=False) for receiver in (0, 1)]
    program = replace(listed(*up, *down, ranks=3, chunks=3), owners=[2] * 3, scatter_steps=2)
    text = write_mscclpp(program)
    assert not Plan(text).races()
    assert Plan(text).sums()
