"""From plans of synchronisation to servers' scripts, for Algorithm 1, given plans and answers.

Problem. A plan of `bml` says what each server sends, in pieces, for tensors of any size; an answer
of the JSON interface says it in bytes, for one size.

Method. What a server receives is what its neighbours send to it, in their order. A given plan is
checked first (`planner.bml.rows`), and says which NICs it uses.

Guarantee. A script adds up every contribution exactly once: Algorithm 1 by its tests, what is given
by that check.

Complexity. Without a given plan O(k³·n²) once and O(k²·n) for each size of tensor.
"""

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

from msgspec import UNSET

from planner.bml.plan import Plan
from planner.bml.rows import Row, check_rows
from planner.bml.schedule import Schedule
from planner.errors import InvalidInputError
from planner.jsonio.bml_answer import BmlAnswer
from planner.jsonio.bml_transfers import lists_all, rows_of
from planner.programs import digest, read_plan
from planner.runtime.collectives.scripts import Routes
from planner.topologies import BCube

__all__ = ["routes_of"]


class _Planned(Routes):
    """A plan in pieces, for tensors of any size."""

    def __init__(self, plan: Plan, *, check: bool) -> None:
        self._plan = plan
        self._mine: dict[int, list[Row]] = {}
        self._used = None
        name = f"bml({plan.bcube.n}, {plan.bcube.k})"
        if check:
            everything = [row for server in range(plan.bcube.servers) for row in self._sent(server)]
            self._used = frozenset(
                nic
                for row in everything
                for nic in ((row.server, row.level), (row.peer, row.level))
            )
            sizes = plan.threads * plan.pieces
            layout = plan.layout(2**40, 1)  # so large that all differences of plans show
            starts = tuple(map(layout.start, range(sizes + 1)))
            name += f" {digest(plan.rounds, everything, starts)}"
        super().__init__(plan.bcube, name)
        if check:
            check_rows(everything, self.servers, sizes, plan.left_out)

    @property
    def used(self) -> frozenset[tuple[int, int]] | None:
        return self._used

    def rows(self, server: int, elements: int, element_bytes: int, rounds: int) -> Iterator[Row]:  # noqa: ARG002
        if server not in self._mine:
            self._mine[server] = list(self._of(server))
        rounds = max(rounds, self._plan.rounds)
        quotient, rest = divmod(elements, rounds)
        first = 0
        for part in range(min(rounds, elements)):
            size = quotient + (part < rest)
            layout = self._plan.layout(size, 1)
            for row in self._mine[server]:
                start = layout.start(row.start)
                stop = start + layout.span(row.start, row.stop - row.start)
                if start < stop:
                    yield row._replace(
                        turn=(0, row.turn[1] + part),
                        part=part,
                        start=first + start,
                        stop=first + stop,
                    )
            first += size

    def _of(self, server: int) -> Iterator[Row]:
        yield from self._sent(server)
        for level in range(self.bcube.k):
            for neighbour in self.bcube.neighbours(server, level):
                for row in self._sent(neighbour):
                    if row.peer == server:
                        yield row

    def _sent(self, server: int) -> Iterator[Row]:
        """Yield what a server sends, in pieces numbered over all threads."""
        for transfer in self._plan.transfers(server):
            adds = transfer.stage == "aggregate"
            step = transfer.step if adds else self._plan.steps + transfer.step
            first = transfer.thread * self._plan.pieces + transfer.offset
            ends = transfer.server, transfer.level, transfer.peer
            yield Row((0, step), 0, transfer.thread, *ends, first, first + transfer.length, adds)


class _Listed(Routes):
    """A plan in bytes, for tensors of one size."""

    def __init__(self, answer: BmlAnswer, bcube: BCube) -> None:
        if (answer.n, answer.k) != (bcube.n, bcube.k):
            raise InvalidInputError(
                "n" if answer.n != bcube.n else "k",
                f"a plan for BCube({answer.n}, {answer.k}), expected one for "
                f"BCube({bcube.n}, {bcube.k})",
            )
        if not lists_all(answer):
            why = '; ask for "schedule": "all"' if answer.reason is UNSET else f": {answer.reason}"
            raise InvalidInputError("transfers", f"missing those of all servers{why}")
        self._rows = rows_of(answer)  # `read_plan` has checked them
        if not self._rows:
            raise InvalidInputError("transfers", "expected some, got none")
        super().__init__(bcube, f"bml({bcube.n}, {bcube.k}) {digest(self._rows)}")
        self.size = max(row.stop for row in self._rows)

    @cached_property
    def used(self) -> frozenset[tuple[int, int]]:
        ends = (((row.server, row.level), (row.peer, row.level)) for row in self._rows)
        return frozenset(nic for pair in ends for nic in pair)

    def rows(self, server: int, elements: int, element_bytes: int, rounds: int) -> Iterator[Row]:  # noqa: ARG002
        if elements * element_bytes != self.size:
            raise InvalidInputError(
                "transfers",
                f"a plan for {self.size} bytes, got a tensor of {elements * element_bytes}",
            )
        for number, row in enumerate(self._rows):
            if server in (row.server, row.peer):
                if row.start % element_bytes or row.stop % element_bytes:
                    raise InvalidInputError(
                        f"transfers[{number}]",
                        f"cut inside an element of {element_bytes} bytes: plan with element_bytes",
                    )
                yield row._replace(start=row.start // element_bytes, stop=row.stop // element_bytes)


def routes_of(bcube: BCube, plan: bytes | Mapping[str, Any] | BmlAnswer | Plan | None) -> Routes:
    """Return a plan as servers follow it; Algorithm 1 if there is none.

    Raises
    ------
    InvalidInputError
        If it is no plan for this network, or leaves open what is sent.
    InvalidPlanError
        If it does not sum up every contribution exactly once.
    """
    if plan is None:
        return _Planned(Schedule(bcube), check=False)
    if isinstance(plan, bytes | Mapping | BmlAnswer):
        answer = read_plan(plan)
        if not isinstance(answer, BmlAnswer):
            raise InvalidInputError("problem", f"expected a plan of bml, got {answer.problem}")
        return _Listed(answer, bcube)
    if plan.bcube != bcube:
        raise InvalidInputError("plan", f"expected one for {bcube}, got one for {plan.bcube}")
    return _Planned(plan, check=True)
