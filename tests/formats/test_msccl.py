"""Schedules in MSCCL's XML, run by `tests.formats.msccl_interpreter`."""

from collections import Counter, defaultdict
from dataclasses import replace
from fractions import Fraction
from graphlib import TopologicalSorter
from xml.etree import ElementTree as ET

import pytest

from planner import InvalidInputError
from planner.families.bml import Schedule
from planner.families.collectives import RAIL_PROGRAMS
from planner.families.collectives.exchange import (
    bml_program,
    direct_program,
    halving_doubling_program,
    hierarchical_program,
    routed_program,
)
from planner.families.collectives.program import Program, in_parts
from planner.families.collectives.ring import ring_bcube_program, ring_program
from planner.formats import write_msccl
from planner.formats.exporters.msccl import MAX_CHUNKS, MAX_GPUS, MAX_PEERS, name_of
from planner.model.topologies import BCube, Rails
from tests.collectives.programs import around_failures, tensors_program
from tests.formats.msccl_interpreter import Program as Blocks
from tests.formats.msccl_interpreter import parse
from tests.thorough import THOROUGH

Channel = tuple[int, int, int]
"""Sender, receiver and number."""

CUBES = [BCube(2, 1), BCube(4, 1), BCube(2, 2), BCube(3, 2), BCube(2, 3)]
PLACES = [True, False]
"""In place, out of place."""


def written(bcube: BCube) -> Blocks:
    return parse(write_msccl(bml_program(bcube)))


@pytest.mark.slow
@pytest.mark.parametrize("in_place", PLACES)
@pytest.mark.parametrize(
    "bcube", [BCube(2, 1), BCube(4, 1), BCube(2, 2)] + [BCube(2, 3)] * THOROUGH, ids=str
)
def test_no_wait_can_be_left_out(bcube: BCube, *, in_place: bool) -> None:
    program = written(bcube)
    waits = 0
    for key, _, step in program:
        if step.wait is None or key.rank < bcube.servers - 1:  # ranks are alike
            continue
        waits += 1
        kept, step.wait = step.wait, None
        assert program.events(in_place=in_place).races()
        step.wait = kept
    assert waits


@pytest.mark.parametrize("bcube", CUBES, ids=str)
def test_says_the_transfers_of_the_schedule_in_its_order(bcube: BCube) -> None:
    program = written(bcube)
    said: dict[Channel, list[tuple[int, int]]] = defaultdict(list)
    for (rank, _, _), block, step in program:
        if step.kind == "s":
            said[rank, block.send, block.channel].append((step.source_chunk, step.length))
    meant: dict[Channel, list[tuple[int, int]]] = defaultdict(list)
    for server in range(bcube.servers):
        for transfer in Schedule(bcube).transfers(server):
            chunk = transfer.thread * bcube.servers + transfer.offset
            meant[server, transfer.peer, transfer.level].append((chunk, transfer.length))
    assert said == meant


@pytest.mark.parametrize("bcube", [*CUBES, BCube(4, 2)], ids=str)
def test_keeps_the_rules_of_the_format(bcube: BCube) -> None:
    text = write_msccl(bml_program(bcube))
    assert text.startswith("<algo ")
    algo = ET.fromstring(text)
    chunks = bcube.k * bcube.servers
    assert algo.attrib == {
        "name": f"bml-{bcube.n}-{bcube.k}",
        "proto": "Simple",
        "nchannels": str(bcube.k),
        "nchunksperloop": str(chunks),
        "ngpus": str(bcube.servers),
        "coll": "allreduce",
        "inplace": "1",
        "outofplace": "1",
        "minBytes": "0",
        "maxBytes": "0",
    }
    for rank, gpu in enumerate(algo):
        sizes = {"i_chunks": str(chunks), "o_chunks": str(chunks), "s_chunks": "0"}
        assert (gpu.tag, gpu.attrib) == ("gpu", {"id": str(rank)} | sizes)
        assert [(tb.tag, tb.attrib["id"]) for tb in gpu] == [
            ("tb", str(number)) for number in range(len(gpu))
        ]
        for tb in gpu:
            assert [step.attrib["s"] for step in tb] == [str(number) for number in range(len(tb))]
    program = parse(text)
    ends: Counter[tuple[int, str, int, int]] = Counter()
    for rank, blocks in enumerate(program.blocks):
        for block in blocks:
            ends[rank, "send", block.send, block.channel] += block.send >= 0
            ends[rank, "receive", block.receive, block.channel] += block.receive >= 0
            for peer in {block.send, block.receive} - {-1}:
                assert bcube.switch(rank, block.channel) == bcube.switch(peer, block.channel)
                assert peer != rank
    assert max(ends.values()) == 1
    awaited = set()
    for (rank, number, index), block, step in program:
        steps = block.steps
        assert step.kind in (("s", "nop") if block.send >= 0 else ("r", "rrc"))
        if step.kind == "nop":
            # The runtime waits for it together with the next step.
            assert step.wait is not None
            assert steps[index + 1].wait is not None
        else:
            assert 0 <= step.source_chunk == step.target_chunk <= chunks - step.length
            assert 1 <= step.length <= MAX_CHUNKS
        if step.wait is not None:
            assert step.wait[0] != number
            assert program.blocks[rank][step.wait[0]].steps[step.wait[1]].kind != "nop"
            awaited.add((rank, *step.wait))
    assert awaited == {key for key, _, step in program if step.awaited}


def loadable() -> list[BCube]:
    """All networks that are small enough."""
    return [
        BCube(n, k)
        for k in range(1, 11)
        for n in range(2, MAX_PEERS + 2)
        if n**k <= MAX_GPUS and n ** (k - 1) <= MAX_CHUNKS
    ]


def counts(bcube: BCube) -> tuple[int, int, int]:
    """Return thread blocks of a rank, steps of its longest, and steps of all."""
    n, k = bcube.n, bcube.k
    waiting = (n - 1) * k * (k - 1) // 2 - (k - 1)
    return 2 * k * (n - 1), 2 * k + waiting, k * (n - 1) * (4 * k + waiting)


@pytest.mark.parametrize("bcube", [*CUBES, BCube(33, 1), BCube(2, 5)], ids=str)
def test_has_as_many_steps_as_said(bcube: BCube) -> None:
    program = written(bcube)
    for blocks in program.blocks:
        lengths = [len(block.steps) for block in blocks]
        assert (len(blocks), max(lengths), sum(lengths)) == counts(bcube)


def test_what_is_written_is_within_every_other_limit_of_the_runtime() -> None:
    assert BCube(8, 3) in loadable()
    assert BCube(32, 2) in loadable()
    for bcube in loadable():
        blocks, longest, steps = counts(bcube)
        assert bcube.k <= 32, "channels"
        assert blocks // 2 <= 128, "blocks that are waited for: a signed byte"
        assert longest <= 64, "steps of a block"
        assert 1 + bcube.servers + blocks + steps < 4096, "elements a rank reads"
        assert bcube.k * bcube.servers < 2**15, "chunks: 16 bits"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        (bml_program(BCube(34, 1)), "at most 32 ranks to talk to over a link, got 33"),
        (bml_program(BCube(33, 2)), "at most 1024 ranks, got 1089"),
        (bml_program(BCube(2, 50)), "at most 1024 ranks"),
        (bml_program(BCube(2, 10)).half("all_gather"), "expected an all_reduce, got all_gather"),
        (ring_program(40), "at most 64 steps of a thread block"),
        (ring_program(1000), "at most 64 steps of a thread block"),
        (direct_program(33, 32), "at most 4095 elements for a rank"),
        (direct_program(1000, 33), "at most 32767 chunks, got 33000"),
        (routed_program(BCube(2, 2)), "no passing on through other ranks"),
        (tensors_program([3, 1], 2), "all of one size"),
    ],
)
def test_what_the_runtime_cannot_load_is_refused(program: Program, message: str) -> None:
    with pytest.raises(InvalidInputError, match=message) as caught:
        write_msccl(program)
    assert caught.value.path.startswith("program")


@pytest.mark.parametrize(
    "program",
    [
        *(bml_program(bcube) for bcube in (*CUBES, BCube(4, 2), BCube(2, 4))),
        ring_program(2),
        ring_program(5),
        direct_program(5),
        direct_program(4, 3),
        halving_doubling_program(8),
        hierarchical_program((3, 2)),
        ring_bcube_program(BCube(3, 2)),
        RAIL_PROGRAMS["hierarchical"](Rails(2, 3, Fraction(10**9))),
        RAIL_PROGRAMS["ring"](Rails(2, 3, Fraction(10**9))),
        RAIL_PROGRAMS["halving_doubling"](Rails(2, 4, Fraction(10**9))),
        *around_failures(),
        in_parts(ring_program(4), 3),
        in_parts(bml_program(BCube(2, 2)), 3),
        in_parts(RAIL_PROGRAMS["hierarchical"](Rails(2, 3, Fraction(10**9))), 2),
    ],
    ids=lambda program: program.name,
)
def test_every_order_gives_every_rank_the_sum(program: Program) -> None:
    """No order ends in a deadlock, even without buffers."""
    blocks = parse(write_msccl(program))
    assert blocks.chunks == program.chunks
    for in_place in PLACES:
        events = blocks.events(in_place=in_place)
        assert not events.races()
        assert events.sums(result="i" if in_place else "o")
    TopologicalSorter(blocks.events(rendezvous=True).after).prepare()


def test_messages_of_many_chunks_are_several() -> None:
    program = halving_doubling_program(256)  # half of all chunks in the first step and the last
    first, *_ = parse(write_msccl(program)).blocks[0]
    assert [step.length for step in first.steps] == [71, 57, 71, 57]


def test_the_name_has_only_what_the_parser_reads() -> None:
    program = replace(ring_program(3), name="<a & é>\n" + "b" * 300)
    name = name_of(program)
    assert name == "a-" + "b" * 253
