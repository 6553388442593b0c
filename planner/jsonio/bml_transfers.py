"""Transfers in answers about gradient synchronisation, read again: whether they add everything up.

Problem. An answer lists what all servers send, or one of them. Before it is drawn or followed it
has to be known that nothing is missing.

Method. What all servers send is followed through all steps (`planner.bml.rows`), in bytes. What the
answer says of pieces, and of the busiest link of each step, has to be the same. Of one server's
transfers only these, and their links, can be checked.

Complexity. That of `planner.bml.rows.check_rows`.
"""

from collections import defaultdict
from collections.abc import Iterator

from msgspec import UNSET

from planner.bml.rows import Row, check_rows
from planner.errors import InvalidInputError, InvalidPlanError
from planner.jsonio.bml_answer import BmlAnswer, TransferRow
from planner.topologies import BCube

__all__ = ["check_transfers", "lists_all", "rows_of"]


def lists_all(answer: BmlAnswer) -> bool:
    """Whether an answer lists what all servers send, not only one of them."""
    if answer.transfers is UNSET:
        return False
    if answer.schedule is UNSET:
        return len({transfer.server for transfer in answer.transfers}) > 1
    return answer.schedule == "all"


def rows_of(answer: BmlAnswer) -> list[Row]:
    """Return an answer's transfers in bytes, without those of no bytes.

    Raises
    ------
    InvalidInputError
        If there are none, or one that names no server, link, piece or step of the plan.
    """
    bcube = BCube(answer.n, answer.k)
    transfers = () if answer.transfers is UNSET else answer.transfers
    layers = [0 if transfer.layer is UNSET else transfer.layer for transfer in transfers]
    steps = 1 + max(
        (transfer.step for transfer in transfers if transfer.stage == "aggregate"), default=0
    )
    if answer.steps is not UNSET:
        steps = len(answer.steps) // 2
    edges: dict[tuple[int, int, int, int], int] = {}
    rows = []
    for number, (sent, layer) in enumerate(zip(transfers, layers, strict=True)):
        path = f"transfers[{number}]"
        server = bcube.server(sent.server, f"{path}.server")
        peer = bcube.server(sent.peer, f"{path}.peer")
        if sent.level >= bcube.k or peer not in bcube.neighbours(server, sent.level):
            raise InvalidPlanError(path, "no such link")
        if sent.step >= steps:
            raise InvalidPlanError(
                f"{path}.step", f"expected an integer < {steps}, got {sent.step}"
            )
        adds = sent.stage == "aggregate"
        part = 0 if sent.part is UNSET else sent.part
        if part >= (1 if answer.rounds is UNSET else answer.rounds):
            raise InvalidPlanError(f"{path}.part", f"there are no parts beside {part}")
        step = part + sent.step + (0 if adds else steps)
        stop = sent.offset_bytes + sent.length_bytes
        if answer.pieces is not UNSET and sent.offset + sent.length > answer.pieces:
            raise InvalidPlanError(f"{path}.length", f"there are {answer.pieces} pieces")
        for piece, byte in ((sent.offset, sent.offset_bytes), (sent.offset + sent.length, stop)):
            if edges.setdefault((layer, part, sent.thread, piece), byte) != byte:
                raise InvalidPlanError(
                    f"{path}.offset_bytes", f"piece {piece} is somewhere else in other transfers"
                )
        if sent.length_bytes:
            turn = max(layers) - layer, step  # back-propagation finishes the last layer first
            place = sent.offset_bytes, stop
            rows.append(Row(turn, part, sent.thread, server, sent.level, peer, *place, adds))
    return rows


def check_transfers(answer: BmlAnswer) -> None:
    """Refuse transfers that leave out a contribution, count one twice, or are not as said.

    Raises
    ------
    InvalidInputError
        At the first thing that is wrong.
    """
    if answer.transfers is UNSET:
        return
    if answer.steps is UNSET:
        raise InvalidInputError("steps", "missing: they come with transfers")
    rows, whole = rows_of(answer), lists_all(answer)
    for number, transfer in enumerate(() if whole else answer.transfers):
        if transfer.server != (
            answer.transfers[0].server if answer.schedule is UNSET else answer.schedule
        ):
            raise InvalidInputError(f"transfers[{number}].server", "expected the one in schedule")
    _check_steps(answer, whole=whole)
    gone = 0 if answer.failed is UNSET else answer.failed.servers
    living = answer.servers - gone
    servers = sorted({end for row in rows for end in (row.server, row.peer)})
    if whole and living > 1 and any(step.bytes for step in answer.steps):
        if len(servers) != living:
            raise InvalidPlanError(
                "transfers", f"expected those of {living} servers, got {len(servers)}"
            )
        check_rows(rows, servers, max(row.stop for row in rows))


def _check_steps(answer: BmlAnswer, *, whole: bool) -> None:
    """Compare what the busiest link of each step carries with what is said of it.

    With several rounds a piece is rounded to whole elements in each, so that the sum differs.
    """
    assert answer.steps is not UNSET
    assert answer.transfers is not UNSET
    each = len(answer.steps) // 2
    for place, row in enumerate(answer.steps):
        stage = "aggregate" if place < each else "broadcast"
        if (row.stage, row.step) != (stage, place % max(each, 1)) or len(answer.steps) % 2:
            raise InvalidPlanError(
                f"steps[{place}]", "expected as many of one stage as of the other"
            )
    if answer.rounds is not UNSET and answer.rounds > 1:
        return
    carried: dict[tuple[str, int], dict[tuple[object, ...], int]] = defaultdict(
        lambda: defaultdict(int)
    )
    for transfer in answer.transfers:
        for nic in _nics(transfer):
            carried[transfer.stage, transfer.step][nic] += transfer.length_bytes
    for place, row in enumerate(answer.steps):
        most = max(carried[row.stage, row.step].values(), default=0)
        if row.bytes < most or (whole and row.bytes != most):
            raise InvalidPlanError(f"steps[{place}].bytes", f"expected {most}, got {row.bytes}")


def _nics(transfer: TransferRow) -> Iterator[tuple[object, ...]]:
    yield (tuple(transfer.server), transfer.level, "sends")
    yield (tuple(transfer.peer), transfer.level, "receives")
