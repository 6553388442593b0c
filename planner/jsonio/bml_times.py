"""Validate BML answers that are read back, and extract the times to draw."""

from msgspec import UNSET

from planner.jsonio.bml_answer import BmlAnswer
from planner.jsonio.bml_transfers import check_transfers
from planner.jsonio.heads import check_head
from planner.jsonio.programs import check_program
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.model.validation import check_same, shown
from planner.solving.views import Compared

__all__ = ["times"]

MAX_SWITCHES = 2**70
"""Above the number of switches of any valid request. JSON Schema cannot state so large a limit."""


def times(answer: BmlAnswer) -> tuple[Compared, ...]:
    """Check an answer; return the time of the plan and of the algorithms it is compared with.

    Raises InvalidInputError if there is no plan, or the parts contradict each other.
    """
    check_head(answer, "steps", "comparison")
    if answer.cut_off is not UNSET:
        raise InvalidInputError("cut_off", "says why there is no plan, but there is one")
    assert answer.objective_ns is not None
    assert answer.comparison is not UNSET
    bcube = BCube(answer.n, answer.k)
    for path, number in (("servers", bcube.servers), ("switches", bcube.switches)):
        check_same(getattr(answer, path), number, path)
    if "bml_bcube" not in answer.comparison:
        raise InvalidInputError("comparison.bml_bcube", "missing")
    if answer.synchronisation is not UNSET:
        check_program(answer.synchronisation.program, answer.servers)
    check_transfers(answer)
    # With failures, other algorithms would be slower, too: compare only with BML without failures.
    names = answer.comparison if answer.failed is UNSET else ("bml_bcube",)
    after = "" if answer.failed is UNSET else ", nothing failed"
    rows = [Compared("this plan", "bcube", answer.objective_ns, bcube.switches)]
    for name in names:
        row = answer.comparison[name]
        if row.switches > MAX_SWITCHES:
            raise InvalidInputError(
                f"comparison.{name}.switches",
                f"expected an integer <= {MAX_SWITCHES}, got {shown(row.switches)}",
            )
        if row.time_ns is not None:
            topology = name.rpartition("_")[2]
            rows.append(Compared(f"{name}{after}", topology, row.time_ns, row.switches))
    return tuple(rows)
