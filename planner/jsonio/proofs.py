"""What every answer says of its own quality, read again: `optimal` is derived, never believed."""

from planner.errors import InvalidInputError
from planner.validation import shown

__all__ = ["check_proof"]


def check_proof(status: str, objective_ns: int | None, lower_bound_ns: int | None) -> None:
    """Refuse an answer with a plan whose status does not follow from its objective and its bound.

    Raises
    ------
    InvalidInputError
        With the first of the three fields that contradicts the others.
    """
    if objective_ns is None:
        raise InvalidInputError("objective_ns", "missing: it comes with a plan")
    if lower_bound_ns is not None and lower_bound_ns > objective_ns:
        raise InvalidInputError("lower_bound_ns", f"more than objective_ns ({objective_ns})")
    if status == "infeasible":
        raise InvalidInputError("status", "infeasible, but there is a plan")
    if (status == "optimal") != (lower_bound_ns == objective_ns):
        raise InvalidInputError(
            "status", f"{status}, but lower_bound_ns is {shown(lower_bound_ns)}"
        )
