"""Errors that a caller can handle.

Every error that the library raises on purpose is a `PlannerError`. Infeasibility is not an error
but an answer (see `planner.solving.result.Infeasibility`).
"""

from typing import Any


class PlannerError(Exception):
    """Base class of all errors raised on purpose."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Make the error picklable, so that other processes can raise it."""
        return _remade, (type(self), self.args, self.__dict__)


def _remade(kind: type[PlannerError], arguments: tuple[Any, ...], known: dict[str, Any]) -> Any:
    error = kind.__new__(kind, *arguments)
    error.args = arguments
    error.__dict__.update(known)
    return error


class InvalidInputError(PlannerError, ValueError):
    """An invalid input, with the path of the wrong field.

    Attributes
    ----------
    path : str
        Path of the first wrong field, such as ``transfer_ns[3]``; empty for the input itself.
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
    """A plan that violates a rule of its problem; `path` leads into the plan."""


class BrokenConstraintError(InvalidPlanError):
    """A well-formed plan that violates the constraint `binding` of its problem."""

    def __init__(self, path: str, message: str, binding: str) -> None:
        super().__init__(path, message)
        self.binding = binding


class MissingExtraError(PlannerError, ImportError):
    """A required optional package is not installed; the `extra` of this package installs it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"{package} is needed here: pip install '.[{extra}]' in a clone of planner's repository"
        )
        self.extra = extra


class PluginError(PlannerError):
    """A plug-in (method, peer, cluster source or format) that does not return what it should."""


class MeasurementError(PlannerError):
    """A model or a network could not be measured; the message gives the reason."""


class DisagreementError(PlannerError):
    """Some `ranks` differ from rank 0 in a value that must be equal, such as the plan.

    It is detected before the first transfer.
    """

    def __init__(self, message: str, ranks: tuple[int, ...]) -> None:
        super().__init__(message)
        self.ranks = ranks


class CommunicationError(PlannerError):
    """Communication between ranks broke down: a rank died, left, failed, or is unreachable.

    It was detected in training `step`, from 0, during the transfer of `batch` of the plan; None if
    unknown. `peers` are the ranks that caused it, as far as known.
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
