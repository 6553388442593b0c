"""Answers about gradient synchronisation read again: what is drawn, and whether it can be."""

from collections.abc import Mapping

from msgspec import UNSET

from planner.collectives import collective
from planner.collectives.recipes import Recipe
from planner.errors import InvalidInputError
from planner.jsonio.bml_answer import BmlAnswer, ComparisonRow
from planner.jsonio.bml_transfers import check_transfers, lists_all
from planner.jsonio.heads import check_head
from planner.jsonio.programs import LISTED, check_summed_up
from planner.topologies import BCube
from planner.validation import check_same, shown
from planner.views import Compared

__all__ = ["times"]

MAX_SWITCHES = 2**70
"""No network that can be asked about has so many (the schema can hold no such limit)."""


def times(answer: BmlAnswer) -> tuple[Compared, ...]:
    """Return the time of the plan beside what other algorithms would take.

    Raises
    ------
    InvalidInputError
        If the answer holds no plan, or its parts contradict each other.
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
    # Failures slow down every algorithm: then only what the plan would take without them stands by.
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
    """Refuse another program than Algorithm 1's, or all transfers where these are one."""
    stated = UNSET if answer.synchronisation is UNSET else answer.synchronisation.program
    listed = stated is not UNSET and stated.generator == LISTED
    if listed and not lists_all(answer):
        raise InvalidInputError("transfers", "missing: synchronisation.program says they are all")
    generator = "bml" if answer.failed is UNSET and not listed else LISTED
    check_summed_up(answer.synchronisation, answer.method, Recipe(generator, (answer.n, answer.k)))


def _check_comparison(bcube: BCube, rows: Mapping[str, ComparisonRow]) -> None:
    """Compare what does not depend on the gradient with what each algorithm does."""
    for name, row in rows.items():
        try:
            algorithm = collective(name, bcube)
        except InvalidInputError:  # needs the sizes of tensors
            continue
        for field, right in (
            ("times_full_transfer", float(algorithm.volume)),
            ("steps", algorithm.steps),
            ("nics", algorithm.nics),
            ("switches", algorithm.switches),
            ("built_switches", algorithm.built_switches),
        ):
            check_same(getattr(row, field), right, f"comparison.{name}.{field}")
