"""Errors a caller can act on.

Every error the library raises on purpose is a `PlannerError`. Infeasibility is not among them: it
is an answer (see `planner.results.Infeasibility`).
"""

from typing import Any


class PlannerError(Exception):
    """Base of all errors raised on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Let other processes raise the same, whatever it is made of."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[PlannerError], arguments: tuple[Any, ...], known: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(known)
    return error


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
        super().__init__(
            f"{package} is needed here: pip install '.[{extra}]' in a clone of planner's repository"
        )
        self.extra = extra


class PluginError(PlannerError):
    """Another package's method, peer, cluster source or format that does not do what it should."""


class MeasurementError(PlannerError):
    """A model or a network could not be measured, and why."""


class DisagreementError(PlannerError):
    """Ranks that must agree do not, such as on the plan; found before the first transfer.

    Attributes
    ----------
    ranks : tuple of int
        Ranks that differ from rank 0.
    """

    def __init__(self, message: str, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks


class CommunicationError(PlannerError):
    """Ranks stopped working together: one died, went away, failed, or cannot be reached.

    Attributes
    ----------
    step : int or None
        Training step, from 0, in which it was noticed.
    batch : int or None
        Batch of the plan whose transfer it was noticed in.
    peers : tuple of int
        Ranks the trouble comes from, as far as is known.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int | None = None,
        batch: int | None = None,
        peers: tuple[int, ...] = (),
    ) -> None:
        super().__init__(message)
        self.step = step
        self.batch = batch
        self.peers = peers


class EngineError(PlannerError):
    """The engine a job runs on, such as Spark, is missing, out of reach, or too small for it."""
