"""Errors a caller can act on.

Every error the library raises on purpose is a `PlannerError`. Infeasibility is not among them: it
is an answer (see `planner.results.Infeasibility`).
"""


class PlannerError(Exception):
    """Base of all errors raised on purpose."""


class InvalidInputError(PlannerError, ValueError):
    """An input that cannot mean anything, with the place that is wrong.

    Attributes
    ----------
    path : str
        Leads to the first offending field, such as ``transfer_ns[3]``; empty for the input itself.
    message : str
        What was expected there, and what was found.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message


class NotApplicableError(InvalidInputError):
    """A method that cannot be used on this problem, though others can."""


class InvalidPlanError(InvalidInputError):
    """A plan that breaks a rule of its problem; `path` leads into the plan."""


class BrokenConstraintError(InvalidPlanError):
    """A plan that is well formed but breaks a constraint of its problem.

    Attributes
    ----------
    binding : str
        The constraint.
    """

    def __init__(self, path: str, message: str, binding: str) -> None:
        super().__init__(path, message)
        self.binding = binding


class MissingExtraError(PlannerError, ImportError):
    """An optional package is needed and not installed.

    Attributes
    ----------
    extra : str
        The extra of this package that brings it.
    """

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is needed here: pip install 'planner[{extra}]'")
        self.extra = extra


class MeasurementError(PlannerError):
    """A model or a network could not be measured, and why."""
