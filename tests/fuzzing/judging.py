"""What is wrong with an answer, whatever was asked."""

import json
from typing import Any, NamedTuple

from planner.jsonio import decode_answer
from planner.model.errors import InvalidInputError
from tests import schemas


class Fault(NamedTuple):
    """What kind of thing is wrong, what exactly, and where: faults alike in this are one."""

    kind: str
    detail: str
    where: str


def told(detail: str, kind: str = "internal") -> Fault:
    """Return a fault of whose place its last line tells."""
    return Fault(kind, detail, detail.rpartition("\n")[2])


def wrong(problem: str, data: bytes, *, thorough: bool) -> Fault | None:
    """Return what is wrong with an answer or an error by itself, None if nothing is.

    `thorough` says whether to read it again too.
    """
    error = data.startswith(b'{"error"')
    value = json.loads(data)
    faults = list(schemas.validator(problem, "error" if error else "answer").iter_errors(value))
    if faults:
        first = min(faults, key=lambda fault: len(fault.instance_path))
        place = ".".join("" if isinstance(one, int) else one for one in first.instance_path)
        return Fault("schema", f"{place}: {first.message[:200]}", place)
    if error:
        return None
    contradiction = _contradiction(value)
    if contradiction:
        return Fault("contradiction", contradiction, contradiction.partition(" (")[0])
    if thorough and value["objective_ns"] is not None and len(data) < 2**18:
        try:
            decode_answer(data)
        except InvalidInputError as fault:
            return Fault("read again", str(fault)[:300], fault.path.partition("[")[0])
    return None


def _contradiction(answer: dict[str, Any]) -> str:
    status, objective, bound = answer["status"], answer["objective_ns"], answer["lower_bound_ns"]
    if objective is not None and bound is not None and bound > objective:
        return f"bound above objective ({bound}, {objective})"
    if (status == "optimal") != (objective is not None and objective == bound):
        return f"{status} ({objective=}, {bound=})"
    if status == "infeasible" and (objective is not None or not answer.get("reason", " ")):
        return "infeasible without a reason, or with a plan"
    prospect = answer.get("prospect")
    if prospect and prospect["lower_bound_ns"] > prospect["value_ns"] * (1 + 1e-12):
        return f"bound above the prospect ({prospect})"
    return ""


def without_times(data: bytes) -> Any:
    """Return an answer without what the machine's speed decides."""

    def pruned(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: pruned(one) for key, one in value.items() if key != "runtime_s"}
        return [pruned(one) for one in value] if isinstance(value, list) else value

    return pruned(json.loads(data))
