"""Programs in MSCCL's XML and as plans of MSCCL++, carried out by interpreters of both."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from graphlib import CycleError, TopologicalSorter
from itertools import product
from operator import attrgetter
from xml.etree import ElementTree as ET

import pytest

from planner.families.collectives import RAIL_PROGRAMS
from planner.families.collectives.exchange import (
    bml_program,
    direct_program,
    hierarchical_program,
    routed_program,
)
from planner.families.collectives.program import OWN, ListedProgram, Message, Program, in_parts
from planner.families.collectives.recipes import Recipe, made
from planner.families.collectives.ring import ring_program
from planner.formats import write_msccl
from planner.formats.exporters.msccl import MAX_CHUNKS, MAX_GPUS, MAX_PEERS, name_of
from planner.formats.exporters.mscclpp import MAX_BYTES, write_mscclpp
from planner.model.topologies import BCube, Rails
from tests.collectives.programs import PROGRAMS, around_failures, tensors_program
from tests.formats.interpreters import Plan, operations, parse, without
from tests.formats.refused import refused
from tests.thorough import THOROUGH

Channel = tuple[int, int, int]
"""Sender, receiver and number."""

CUBES = [BCube(2, 1), BCube(4, 1), BCube(2, 2), BCube(3, 2), BCube(2, 3)]
RAILS = Rails(2, 3, Fraction(10**9))
GATHERS = "expected an all_reduce, got all_gather"
IN_PLACE = {"bruck(5)", "bruck(9)"}
"""Programs with messages of chunks of which only some were received before."""
SMALL = [Recipe("ring", (3,)), Recipe("bruck", (3,)), Recipe("direct", (3,)), Recipe("bml", (2, 2))]


@cache
def programs() -> list[Program]:
    """Return programs of all algorithms among few ranks, others around failures, and in parts.

    Of those with the same messages there is one.
    """
    found = [one for one in PROGRAMS if 1 < one.ranks <= 9 and one.even]
    found = [it for it in found if all(one.source == one.target == OWN for one in it.messages())]
    assert {program.name.split("(")[0] for program in found} >= {"ring", "bml", "bruck"}
    found += [bml_program(BCube(4, 2)), bml_program(BCube(2, 4)), direct_program(4, 3)]
    found += [*map(hierarchical_program, ((3, 2), (2, 4), (3, 3))), *around_failures()]
    small = [*map(made, SMALL), ring_program(4), RAIL_PROGRAMS["hierarchical"](RAILS)]
    found += [in_parts(program, parts) for program in small for parts in (2, 3)]
    different = {
        (one.ranks, one.chunks, one.lanes, one.links, *sorted(one.messages())): one for one in found
    }
    return list(different.values())


def check_msccl(program: Program) -> None:
    """Check that no order ends in a deadlock, even without buffers, or in another sum."""
    text = write_msccl(program)
    blocks = parse(text)
    assert blocks.chunks == program.chunks
    said, meant = defaultdict[Channel, list[int]](list), defaultdict[Channel, list[int]](list)
    for key, step in blocks.steps.items():
        if step.kind == "s":
            first = step.source[1]
            said[key.rank, step.send, step.channel] += range(first, first + step.length)
    for one in sorted(program.messages(), key=attrgetter("step", "first")):
        meant[one.sender, one.receiver, one.link] += range(one.first, one.stop)
    assert said == meant
    apart = 'outofplace="1"' in text
    assert apart == (program.name not in IN_PLACE)
    for in_place in (True, False):
        events = blocks.events(in_place=in_place)
        assert not events.races()
        if in_place or apart:
            assert events.sums(result="i" if in_place else "o")
        else:
            with pytest.raises(KeyError):  # data that nobody wrote
                events.sums(result="o")
    TopologicalSorter(blocks.events(rendezvous=True).after).prepare()


def check_mscclpp(program: Program) -> None:
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


@pytest.mark.parametrize("check", [check_msccl, check_mscclpp])
@pytest.mark.parametrize(
    "ranks", [2, 3, 4, 5, 6, *(pytest.param(one, marks=pytest.mark.slow) for one in (8, 9, 16))]
)
def test_every_order_gives_the_sum(ranks: int, check: Callable[[Program], None]) -> None:
    among = [program for program in programs() if program.ranks == ranks]
    assert among
    for program in among:
        check(program)


@pytest.mark.slow
@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize(
    "bcube", [BCube(2, 1), BCube(4, 1), BCube(2, 2)] + [BCube(2, 3)] * THOROUGH, ids=str
)
def test_no_wait_can_be_left_out(bcube: BCube, *, in_place: bool) -> None:
    program = parse(write_msccl(bml_program(bcube)))
    last = bcube.servers - 1  # ranks are alike
    waiting = [key for key, step in program.steps.items() if step.wait and key.rank == last]
    assert waiting
    for key in waiting:
        steps = program.steps | {key: replace(program.steps[key], wait=None)}
        assert replace(program, steps=steps).events(in_place=in_place).races()


@pytest.mark.parametrize("bcube", [*CUBES, BCube(4, 2)], ids=str)
def test_keeps_the_rules_of_the_format(bcube: BCube) -> None:
    text = write_msccl(bml_program(bcube))
    assert text.startswith("<algo ")
    algo = ET.fromstring(text)
    chunks = bcube.k * bcube.servers
    said = f"name=bml-{bcube.n}-{bcube.k} proto=Simple nchannels={bcube.k} nchunksperloop={chunks}"
    said += f" ngpus={bcube.servers} coll=allreduce inplace=1 outofplace=1 minBytes=0 maxBytes=0"
    assert algo.attrib == dict(word.split("=") for word in said.split())
    for rank, gpu in enumerate(algo):
        sizes = {"i_chunks": str(chunks), "o_chunks": str(chunks), "s_chunks": "0"}
        assert (gpu.tag, gpu.attrib) == ("gpu", {"id": str(rank)} | sizes)
        for number, tb in enumerate(gpu):
            assert (tb.tag, tb.attrib["id"]) == ("tb", str(number))
            assert [step.attrib["s"] for step in tb] == [str(index) for index in range(len(tb))]
    program = parse(text)
    ends: Counter[tuple[int, str, int, int]] = Counter()
    for (rank, _), (step, *_) in program.blocks.items():
        ends[rank, "send", step.send, step.channel] += step.send >= 0
        ends[rank, "receive", step.receive, step.channel] += step.receive >= 0
        for peer in {step.send, step.receive} - {-1}:
            assert bcube.switch(rank, step.channel) == bcube.switch(peer, step.channel)
            assert peer != rank
    assert max(ends.values()) == 1
    awaited = set()
    for key, step in program.steps.items():
        assert step.kind in (("s", "nop") if step.send >= 0 else ("r", "rrc"))
        if step.kind == "nop":
            # The runtime waits for it together with the next step.
            assert step.wait is not None
            assert program.steps[key._replace(number=key.number + 1)].wait is not None
        else:
            assert 0 <= step.source[1] == step.target[1] <= chunks - step.length
            assert 1 <= step.length <= MAX_CHUNKS
        if step.wait is not None:
            assert step.wait.block != key.block
            assert program.steps[step.wait].kind != "nop"
            awaited.add(step.wait)
    assert awaited == {key for key, step in program.steps.items() if step.awaited}


def counts(bcube: BCube) -> tuple[int, int, int]:
    """Return thread blocks of a rank, steps of its longest, and steps of all."""
    n, k = bcube.n, bcube.k
    waiting = (n - 1) * k * (k - 1) // 2 - (k - 1)
    return 2 * k * (n - 1), 2 * k + waiting, k * (n - 1) * (4 * k + waiting)


@pytest.mark.parametrize("bcube", [*CUBES, BCube(33, 1), BCube(2, 5)], ids=str)
def test_has_as_many_steps_as_said(bcube: BCube) -> None:
    lengths: list[list[int]] = [[] for _ in range(bcube.servers)]
    for (rank, _), steps in parse(write_msccl(bml_program(bcube))).blocks.items():
        lengths[rank].append(len(steps))
    assert {(len(each), max(each), sum(each)) for each in lengths} == {counts(bcube)}


def test_what_is_written_is_within_every_other_limit_of_the_runtime() -> None:
    shapes = product(range(2, MAX_PEERS + 2), range(1, 11))
    known = [(n, k) for n, k in shapes if n**k <= MAX_GPUS and n ** (k - 1) <= MAX_CHUNKS]
    assert {(8, 3), (32, 2)} <= {*known}
    for n, k in known:
        assert k <= 32, "channels"
        assert counts(BCube(n, k))[0] // 2 <= 128, "blocks that are waited for: a signed byte"


def test_the_name_has_only_what_the_parser_reads() -> None:
    program = replace(ring_program(3), name="<a & é>\n" + "b" * 300)
    assert name_of(program) == "a-" + "b" * 253


@pytest.mark.slow
@pytest.mark.parametrize("recipe", SMALL, ids=str)
def test_no_operation_can_be_left_out(recipe: Recipe) -> None:
    """Without it there is a race, a wait without signal, a cycle, or a wrong sum.

    Nor can the threads of a block of a ring go on alone before or behind an addition.
    """
    text = write_mscclpp(made(recipe))
    places = list(operations(text))
    names = ["", *(name for *_, name in places), ""]
    for (rank, block, number, name), before, after in zip(places, names, names[2:], strict=False):
        if name == "nop" and (recipe.generator != "ring" or "re" not in (before, after)):
            continue  # some order more than need be
        try:
            plan = Plan(without(text, rank, block, number))
            wrong = bool(plan.races()) or not plan.sums()
        except (AssertionError, CycleError, KeyError):
            wrong = name != "nop"
        assert wrong, (rank, block, number, name)


@pytest.mark.slow
@pytest.mark.parametrize(("generator", "ranks"), [("ring", 12), ("direct", 17), ("direct", 20)])
def test_long_chains_are_cut_into_blocks(generator: str, ranks: int) -> None:
    """So are those of more peers than a block has channels, which wait in their order."""
    plan = Plan(write_mscclpp(made(Recipe(generator, (ranks,)))))
    assert len(plan.gpus[0]["threadblocks"]) > 1
    assert plan.gpus[0]["semaphores"]
    assert not plan.races()
    assert plan.sums()


def test_the_document_is_what_the_executor_reads() -> None:
    document = json.loads(write_mscclpp(made(Recipe("ring", (2,)))))
    [first, _] = document.pop("gpus")
    assert document == json.loads(
        '{"name": "ring-2", "collective": "allreduce", "protocol": "Simple", "inplace": true,'
        ' "reuse_resources": false, "num_threads_per_block": 1024, "buffer_alignment": 16,'
        ' "use_double_scratch_buffer": false, "min_message_size": 0,'
        f' "max_message_size": {MAX_BYTES}}}'
    )
    [block] = first.pop("threadblocks")
    assert first == json.loads(
        '{"id": 0, "input_chunks": 2, "output_chunks": 2, "scratch_chunks": 1, "semaphores": [],'
        ' "channels": [{"channel_type": "port", "connected_to": [1]}], "remote_buffers":'
        ' [{"rank": 1, "type": "s", "access_channel_types": ["port"]},'
        ' {"rank": 1, "type": "i", "access_channel_types": ["port"]}]}'
    )
    names = [operation["name"] for operation in block["ops"]]
    assert names[:3] == ["signal", "wait", "pws"]
    assert {*names} == {"signal", "wait", "nop", "pws", "pwsf", "re"}


def listed(*messages: Message, ranks: int = 2, chunks: int = 1) -> ListedProgram:
    return ListedProgram("listed", ranks, 1, 1, chunks, messages, [0] * chunks, 9)


ADDED = Message(0, 0, 0, 1, 0, 0, 1, adds=True)


@pytest.mark.parametrize(
    ("write", "program", "why"),
    [
        (write_msccl, bml_program(BCube(34, 1)), "at most 32 ranks to talk to over a link, got 33"),
        (write_msccl, bml_program(BCube(33, 2)), "at most 1024 ranks, got 1089"),
        (write_msccl, bml_program(BCube(2, 50)), "at most 1024 ranks"),
        (write_msccl, bml_program(BCube(2, 10)).half("all_gather"), GATHERS),
        (write_msccl, ring_program(40), "at most 64 steps of a thread block"),
        (write_msccl, direct_program(33, 32), "at most 4095 elements for a rank"),
        (write_msccl, direct_program(1000, 33), "at most 32767 chunks, got 33000"),
        (write_msccl, routed_program(BCube(2, 2)), "no passing on through other ranks"),
        (write_msccl, tensors_program([3, 1], 2), "all of one size"),
        (write_mscclpp, made(Recipe("ring", (1,))), "at least 2 ranks"),
        (write_mscclpp, made(Recipe("ring", (4,))).half("all_gather"), GATHERS),
        (write_mscclpp, tensors_program((3, 5), 2), "all of one size"),
        (write_mscclpp, listed(ADDED, ADDED._replace(sender=1, receiver=0)), "that it has sent"),
        (write_mscclpp, listed(ADDED._replace(target=5)), "no passing on through other ranks"),
        (write_mscclpp, made(Recipe("hierarchical_rails", (1, 200))), "blocks of a rank, got 73"),
    ],
)
def test_refusals(write: Callable[[Program], str], program: Program, why: str) -> None:
    with refused("program.kind" if why == GATHERS else "program", why):
        write(program)


def test_messages_of_many_chunks_are_several() -> None:
    """Each of two ranks sums up half of the chunks."""
    up = [ADDED._replace(first=128, stop=256), ADDED._replace(sender=1, receiver=0, stop=128)]
    down = [one._replace(step=1, first=128 - one.first, stop=384 - one.stop) for one in up]
    down = [one._replace(adds=False) for one in down]
    first = parse(write_msccl(listed(*up, *down, chunks=256))).blocks[0, 0]
    assert [step.length for step in first] == [71, 57, 71, 57]


def test_messages_over_one_channel_keep_their_order() -> None:
    """Rank 0 sends to rank 2 twice, the second time by another thread."""
    up = [
        ADDED,
        Message(0, 0, 0, 2, 0, 1, 2, adds=True),
        Message(0, 0, 0, 2, 0, 2, 3, adds=True),
        Message(1, 0, 1, 2, 0, 0, 3, adds=True),
    ]
    down = [Message(2, 0, 2, receiver, 0, 0, 3, adds=False) for receiver in (0, 1)]
    program = replace(listed(*up, *down, ranks=3, chunks=3), owners=[2] * 3, scatter_steps=2)
    text = write_mscclpp(program)
    assert not Plan(text).races()
    assert Plan(text).sums()
