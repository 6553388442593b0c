"""The service and its workers: whatever happens to one request is not felt by the next."""

import faulthandler
import io
import json
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

import planner
from planner.families import ibatch
from planner.jsonio import reply, streams
from planner.jsonio.streams import CancellableLines, limited_replies, read_lines, solve_many
from planner.jsonio.workers import Limits, OverLimitError, Worker, WorkerFaultError
from planner.model.errors import InvalidInputError
from tests import large, schemas
from tests.cli.line import Line, started
from tests.jsonio.requests import BASES, ask, told
from tests.jsonio.test_plan_files import METHODS

EXAMPLE = BASES["ibatch"]
GOOD = json.dumps(EXAMPLE).encode()
LONG = large.fsdp(400)


@pytest.mark.parametrize("known", ["job 7", "", 0, -(2**63), 2**63 - 1])
def test_an_id_comes_back(known: str | int) -> None:
    request = {**EXAMPLE, "id": known}
    for part, asked in (("answer", request), ("error", {**request, "startup_ns": -1})):
        for answer in (ask(asked), planner.solve(asked)):
            assert answer["id"] == known
            schemas.validate(answer, "ibatch", part)


@pytest.mark.parametrize("known", [None, True, 1.5, [1], {"a": 1}, 2**63, "\ud800"])
def test_what_is_no_id_is_refused(known: Any) -> None:
    asked = {**EXAMPLE, "id": known}
    for answer in (ask(asked), planner.solve(asked)):
        assert (answer["error"]["path"], "id" in answer) == ("id", False)


def test_the_id_of_a_request_over_a_limit_comes_back() -> None:
    request = json.dumps({**EXAMPLE, "id": "long", "progress": True}).encode()
    told: list[bytes] = []
    (answer,) = limited_replies([request], Limits(), told.append)
    (refused,) = limited_replies([request], Limits(request_bytes=10), told.append)
    assert json.loads(answer.data)["id"] == json.loads(refused.data)["id"] == "long"
    assert json.loads(refused.data)["error"]["code"] == "limit_exceeded"
    assert {json.loads(line)["progress"]["id"] for line in told} == {"long"}


def test_the_id_of_a_request_whose_process_dies_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "reply", lambda *_: os._exit(3))
    (answer,) = limited_replies([json.dumps({**EXAMPLE, "id": 7}).encode()], Limits())
    found = json.loads(answer.data)
    assert (found["id"], found["error"]["code"], answer.exit_status) == (7, "internal_error", 1)
    assert "exit status 3" in found["error"]["message"]


@pytest.mark.slow
def test_thousands_of_requests_in_one_process_leak_nothing() -> None:
    """Every tenth line is bad; memory at the end is that of the first thousand."""
    expected, most = [*[0] * 9, 2] * 100, []
    for _ in range(4):
        requests = ({**EXAMPLE, "startup_ns": [1, -1][status // 2]} for status in expected)
        statuses = [reply(json.dumps(request).encode()).exit_status for request in requests]
        assert statuses == expected
        most.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    assert most[-1] - most[0] < 2 * 1024  # KiB; a leak of a kilobyte a request would be 3 MB


def solved(line: Line, *lines: bytes, options: str = "", status: int = 0) -> list[dict[str, Any]]:
    """Return the output of ``planner solve --jsonl`` for some lines."""
    out, err = line("solve --jsonl --quiet", options, given=b"\n".join(lines), status=status)
    assert err == ""
    return [json.loads(row) for row in out.splitlines()]


@pytest.mark.slow
def test_what_exceeds_a_limit_is_an_error_in_its_place(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    def greedy(problem: ibatch.Problem, _: object) -> None:
        """Stand for a method that takes too much time, or memory if there are start-ups."""
        blocks = []
        while True:
            if problem.startup_ns:
                blocks.append(bytearray(2**20))

    methods = {**ibatch.METHODS, "greedy": greedy}
    monkeypatch.setitem(vars(ibatch.IBATCH), "methods", methods)
    limits = {"request-bytes": "200", "seconds": "0.5", "memory-bytes": str(2**28)}
    busy, large = (
        json.dumps({**EXAMPLE, "method": "greedy", "startup_ns": startup}).encode()
        for startup in (0, 1)
    )
    lines = [GOOD, GOOD + b" " * 10_000_000, GOOD, busy, GOOD, large, GOOD]
    options = " ".join(f"--max-{name} {limit}" for name, limit in limits.items())
    answers = solved(line, *lines, options=options, status=2)
    assert [answer["status"] for answer in answers[::2]] == ["optimal"] * 4
    for answer, limit in zip(answers[1::2], limits.values(), strict=True):
        error = answer["error"]
        assert (error["code"], error["path"]) == ("limit_exceeded", "")
        assert limit in error["message"]
        schemas.validate(answer, "ibatch", "error")


def test_one_request_has_limits_too(line: Line) -> None:
    refused = line("solve request.json --max-request-bytes 10", status=2).json
    assert refused["error"]["code"] == "limit_exceeded"
    line("solve request.json --max-request-bytes 0 --max-seconds 0")


@pytest.mark.parametrize("length", [0, 9, 10, 11, 12, 22, 100])
@pytest.mark.parametrize("end", [b"\n", b""])
def test_long_lines_are_cut_and_the_next_begins_where_it_does(length: int, end: bytes) -> None:
    text = b"a\n" + b"x" * length + b"\n\nb" + end
    lines = list(read_lines(io.BytesIO(text), Limits(request_bytes=10)))
    assert lines == [b"a", b"x" * min(length, 11), b"", b"b"]
    whole = list(read_lines(io.BytesIO(text), Limits(request_bytes=None)))
    assert whole == [b"a", b"x" * length, b"", b"b"]


def test_progress_comes_before_its_answer_where_it_is_asked_for(line: Line) -> None:
    lines = solved(line, GOOD, json.dumps({**EXAMPLE, "progress": True}).encode())
    assert ["progress" in row for row in lines] == [False, *[True] * (len(lines) - 2), False]
    last = lines[-2]["progress"]
    assert (last["request"], last["objective_ns"]) == (2, lines[-1]["objective_ns"])
    assert len(lines) > 2


def test_a_line_cancels_another_request_and_is_none() -> None:
    """It is read ahead, while the request before is answered."""
    text = b'{"cancel": 2}\nfirst\n {"cancel":3} \nsecond\n'
    lines = CancellableLines(io.BytesIO(text), Limits())
    assert list(lines) == [b"first", b"second"]
    assert [lines.cancelled(number) for number in (1, 2, 3)] == [False, True, True]


@pytest.mark.slow
def test_a_cancelled_request_has_an_answer_at_once(line: Line) -> None:
    begin = time.monotonic()
    answer, other = solved(line, b'{"cancel": 1}', json.dumps(LONG).encode(), GOOD)
    assert (answer["status"], other["status"]) == ("time_limit", "optimal")
    assert answer["objective_ns"] >= answer["lower_bound_ns"]
    assert time.monotonic() - begin < 300  # it would take minutes


@pytest.mark.slow
def test_ctrl_c_ends_a_search_with_an_answer() -> None:
    with started("solve --jsonl") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({**LONG, "progress": True}).encode() + b"\n")
        process.stdin.flush()
        assert b"progress" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert json.loads(out.splitlines()[-1])["status"] == "time_limit"
    assert process.returncode == 130
    assert b"Ctrl-C" in err


def test_answers_of_other_processes_come_in_order() -> None:
    requests = [METHODS[name][0] for name in ("fsdp", "drizzle", "ibatch")]
    requests.append({"problem": "ibatch"})
    alone = [told(planner.solve(request)) for request in requests]
    with ProcessPoolExecutor(2, get_context("spawn")) as pool:
        answers = list(planner.solve_many(requests, pool, ahead=3))
    assert [told(answer) for answer in answers] == alone
    assert answers[-1]["error"]["path"] == "compute_ns"


def test_requests_are_read_a_bounded_number_ahead() -> None:
    read = 0

    def requests() -> Iterator[dict[str, Any]]:
        nonlocal read
        for _ in range(10):
            read += 1
            yield {"problem": "ibatch"}

    with ThreadPoolExecutor(1) as pool:
        answers = solve_many(requests(), pool, ahead=2)
        next(answers)
        assert read == 2
        next(answers)
        assert read == 3
        assert len(list(answers)) == 8
        assert list(solve_many([], pool)) == []
        with pytest.raises(InvalidInputError, match="ahead"):
            list(solve_many([], pool, ahead=0))


# ---
# Workers

LIMITS = Limits(request_bytes=1000, memory_bytes=2**27, seconds=0.5)


def _wait_for_a_child() -> tuple[int, bytes]:
    """As a solver that is a program of its own does."""
    pid = os.fork()
    while not pid:
        pass
    os.waitpid(pid, 0)
    return 1, b"the solver said nothing"


ACTIONS: dict[bytes, Callable[[], Any]] = {
    b"pid": lambda: (0, str(os.getpid()).encode()),
    b"some": lambda: (0, bytes(2**26)[:1]),
    b"memory": lambda: (0, bytes(2**31)[:1]),
    b"child": _wait_for_a_child,
    b"signal 6": lambda: os.kill(os.getpid(), 6),
    b"signal 9": lambda: os.kill(os.getpid(), 9),
    b"signal 11": lambda: os.kill(os.getpid(), 11),
    b"exit": lambda: os._exit(3),
    b"fault": lambda: (1, b"a fault"),
}
"""What a worker does, by the message; others are answered backwards."""


def serve(message: bytes, *_: object) -> Any:
    faulthandler.disable()  # pytest's, which would tell of deaths that are meant
    return ACTIONS.get(message, lambda: (0, message[::-1]))()


@pytest.fixture
def worker() -> Iterator[Worker]:
    with Worker(serve, LIMITS) as one:
        yield one


def test_one_process_answers_in_order_and_is_not_left_behind(worker: Worker) -> None:
    (pid,) = {int(worker.ask(b"pid")[1]) for _ in range(3)}
    assert pid != os.getpid()
    for word in (b"", b"abc", b"x" * 1000):
        assert worker.ask(word) == (0, word[::-1])
    assert worker.ask(b"fault") == (1, b"a fault")
    worker.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_what_exceeds_a_limit_is_named_and_another_death_is_a_fault(worker: Worker) -> None:
    for message, limit in (
        (b"x" * 1001, "request_bytes"),
        (b"memory", "memory_bytes"),
        (b"child", "seconds"),
        (b"signal 9", "memory_bytes"),  # so does a machine that is out of memory
    ):
        with pytest.raises(OverLimitError) as caught:
            worker.ask(message)
        assert caught.value.limit == limit
        assert worker.ask(b"abc") == (0, b"cba")
    for message, said in ((b"signal 11", "SIGSEGV"), (b"signal 6", "SIGABRT"), (b"exit", "3")):
        with pytest.raises(WorkerFaultError, match=said):
            worker.ask(message)
        assert worker.ask(b"abc") == (0, b"cba")


def test_a_large_parent_leaves_as_much_memory_as_a_small_one() -> None:
    held = bytearray(os.urandom(2**20) * 192)  # more than the limit, and written to
    with Worker(serve, LIMITS) as worker:
        assert worker.ask(b"abc") == (0, b"cba")
        assert worker.ask(b"some")[0] == 0
        with pytest.raises(OverLimitError):
            worker.ask(b"memory")
        with pytest.raises(WorkerFaultError):
            worker.ask(b"exit")
    assert len(held) == 192 * 2**20


def test_without_limits_there_are_none() -> None:
    with Worker(serve, Limits(None, None, None)) as worker:
        assert len(worker.ask(b"x" * 10**6)[1]) == 10**6
        assert worker.ask(b"memory")[0] == 0
