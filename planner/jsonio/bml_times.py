"""Validate BML answers that are read back, and extract the times to draw."""

from collections.abc import Mapping

from msgspec import UNSET

from planner.families.collectives import collective
from planner.families.collectives.recipes import Recipe
from planner.jsonio.bml_answer import BmlAnswer, ComparisonRow
from planner.jsonio.bml_transfers import check_transfers, lists_all
from planner.jsonio.heads import check_head
from planner.jsonio.programs import LISTED, check_summed_up
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from planner.model.validation import check_same, shown
from planner.solving.views import Compared

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
    _check_comparison(bcube, answer.comparison)
    check_transfers(answer)
    _check_program(answer)
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


def _check_program(answer: BmlAnswer) -> None:
    """Check that the program is Algorithm 1, or that all transfers are listed if it says so."""
    stated = UNSET if answer.synchronisation is UNSET else answer.synchronisation.program
    listed = stated is not UNSET and stated.generator == LISTED
    if listed and not lists_all(answer):
        raise InvalidInputError("transfers", "missing: synchronisation.program says they are all")
    generator = "bml" if answer.failed is UNSET and not listed else LISTED
    check_summed_up(answer.synchronisation, answer.method, Recipe(generator, (answer.n, answer.k)))


def _check_comparison(bcube: BCube, rows: Mapping[str, ComparisonRow]) -> None:
    """Check the parts of the comparison that do not depend on the gradient."""
    for name, row in rows.items():
        try:
            algorithm = collective(name, bcube)
        except InvalidInputError:  # an algorithm that needs tensor sizes
            continue
        for field, right in (
            ("times_full_transfer", float(algorithm.volume)),
            ("steps", algorithm.steps),
            ("nics", algorithm.nics),
            ("switches", algorithm.switches),
            ("built_switches", algorithm.built_switches),
        ):
            check_same(getattr(row, field), right, f"comparison.{name}.{field}")
