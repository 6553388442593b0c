"""Answer requests: the common path of library calls, files and streams."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from planner.jsonio.answer_base import AnswerBase
from planner.jsonio.control import control_of
from planner.jsonio.decoding import decode, plain, typed
from planner.jsonio.interfaces import PROBLEMS, Interface
from planner.jsonio.results import PlanDocument, plain_plan
from planner.jsonio.types import Id
from planner.jsonio.what_if import answer_request
from planner.model.errors import InvalidInputError, PluginError
from planner.model.validation import one_of, shown
from planner.solving.deadline import Cancel, Incumbent

OnProgress: TypeAlias = Callable[[Incumbent[Any]], None]


ErrorCode = Literal["invalid_request", "limit_exceeded", "internal_error"]


class ErrorDetail(msgspec.Struct, frozen=True):
    """What is wrong, and where."""

    code: ErrorCode
    path: str
    message: str


class ErrorAnswer(msgspec.Struct, frozen=True):
    """The answer to a request that cannot be answered."""

    error: ErrorDetail
    id: Id | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer as JSON."""

    data: bytes  # one line without its end
    exit_status: int  # 0 answered, 1 internal error, 2 invalid request or limit exceeded
    fault: Exception | None = None  # the internal error, or a MemoryError


def solve(
    request: Mapping[str, Any],
    *,
    cancel: Cancel | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Answer one request given as plain values, as ``planner solve`` does for JSON.

    Plain values take about four times the memory of the JSON text: a ``bml`` answer that lists a
    million transfers takes about 0.9 GB.

    Parameters
    ----------
    request : mapping
        A request of the JSON interface, such as ``{"problem": "ibatch", …}``.
    cancel : Cancel, optional
        Ends the search with the best plan so far once it is set.
    on_progress : callable, optional
        Called with each `planner.Incumbent` if the request has ``"progress": true``.

    Returns
    -------
    dict
        The answer; for an invalid request the error object
        ``{"error": {"code": "invalid_request", "path": …, "message": …}}``.
    """
    try:
        return solve_or_raise(request, cancel=cancel, on_progress=on_progress)
    except InvalidInputError as error:
        known = _identified(request.get("id")) if isinstance(request, Mapping) else UNSET
        return _plain_answer(_error("invalid_request", error.path, error.message, known))


def solve_or_raise(
    request: Mapping[str, Any],
    *,
    cancel: Cancel | None = None,
    on_progress: OnProgress | None = None,
) -> dict[str, Any]:
    """Answer one request given as plain values; raise an error if it is invalid.

    Parameters
    ----------
    request, cancel, on_progress
        The same as for `solve`.

    Returns
    -------
    dict
        The answer; if there is no plan, it gives the reason.

    Raises
    ------
    InvalidInputError
        If the request is invalid, with the path of the first wrong field; a `NotApplicableError` if
        the requested method cannot be used on this problem, though others can.
    """
    return _plain_answer(_answer(plain(request), cancel, on_progress))


def _plain_answer(answer: msgspec.Struct) -> dict[str, Any]:
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))  # as lists
    return result


def reply(
    data: bytes, cancel: Cancel | None = None, on_progress: OnProgress | None = None
) -> Reply:
    """Answer one request given as JSON text; never raises an error for any content of `data`."""
    try:
        return Reply(msgspec.json.encode(_answer(decode(data), cancel, on_progress)), 0)
    except InvalidInputError as error:
        return refusal(data, "invalid_request", error.message, 2, path=error.path)
    except PluginError as error:
        return refusal(data, "internal_error", str(error), 1)
    except MemoryError as fault:
        text = "the request needs more memory than there is"
        return refusal(data, "limit_exceeded", text, 2, fault=fault)
    except Exception as fault:  # one failing request must not stop the others
        text = f"a fault of planner itself: {fault!r}"
        return refusal(data, "internal_error", text, 1, fault=fault)


def refusal(
    data: bytes,
    code: ErrorCode,
    message: str,
    exit_status: int,
    *,
    path: str = "",
    fault: Exception | None = None,
) -> Reply:
    """Return the error that answers a request given as JSON text."""
    error = _error(code, path, message, id_of(data))
    return Reply(msgspec.json.encode(error), exit_status, fault)


class _Title(msgspec.Struct):
    id: Any = None


def id_of(data: bytes) -> str | int | UnsetType:
    """Return the `id` of a request as JSON text, valid or not; UNSET without."""
    try:
        return _identified(msgspec.json.decode(data, type=_Title).id)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return UNSET


def _identified(value: Any) -> str | int | UnsetType:
    try:
        known: str | int = msgspec.convert(value, Id)
        msgspec.json.encode(known)  # else half of a surrogate pair
    except (msgspec.ValidationError, UnicodeEncodeError):
        return UNSET
    return known


def decode_request(data: bytes | str) -> Any:
    """Read a request from JSON text without answering it; errors carry a path."""
    value = decode(data)
    return typed(value, _interface(value).request)


def decode_answer(data: bytes | str) -> tuple[Any, Any]:
    """Read an answer of ``planner solve`` from JSON text; return it and its picture's data.

    The data is a `planner.solving.timeline.Timeline`, or one of `planner.solving.views` (see
    `PROBLEMS`). Raises InvalidInputError if the text is not an answer, or the answer has no plan.
    """
    value = decode(data)
    if isinstance(value, dict) and "error" in value:
        raise InvalidInputError("error", "the file holds an error, not a plan")
    if isinstance(value, dict) and "status" not in value:
        raise InvalidInputError("status", "missing: expected an answer of planner solve")
    interface = _interface(value)
    answer = typed(value, interface.answer)
    return answer, interface.view(answer)


def _answer(
    request: Any, cancel: Cancel | None = None, on_progress: OnProgress | None = None
) -> AnswerBase:
    interface = _interface(request)
    asked = typed(request, interface.request)
    told = on_progress if asked.progress else None
    kept: list[Any] = []

    def keep(incumbent: Incumbent[Any]) -> None:
        kept[:] = [incumbent.plan]
        if told is not None:
            told(incumbent)

    control = control_of(asked, cancel, keep if asked.with_plan else told)
    answer: AnswerBase = answer_request(interface, asked, **control)
    if asked.id is not UNSET:
        answer = msgspec.structs.replace(answer, id=asked.id)
    if kept:
        plan = PlanDocument(**plain_plan(kept[0], answer.problem))
        return msgspec.structs.replace(answer, plan=plan)
    return answer


def _interface(request: Any) -> Interface:
    if not isinstance(request, dict):
        raise InvalidInputError("", f"expected an object, got {shown(request)}")
    if "problem" not in request:
        raise InvalidInputError("problem", f"missing; expected one of {', '.join(PROBLEMS)}")
    return PROBLEMS[one_of(request["problem"], PROBLEMS, "problem")]


def _error(
    code: ErrorCode, path: str, message: str, known: str | int | UnsetType = UNSET
) -> ErrorAnswer:
    clean = message.encode("utf-8", "backslashreplace").decode()
    return ErrorAnswer(ErrorDetail(code, path, clean), known)
