"""Errors name the option, the argument or the file that was typed; nothing is written then."""

import argparse
import json
import re
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

import planner
from planner.cli.parsing import OPTIONS, parse_bcube, parse_count, parse_number, seconds
from planner.model.errors import InvalidInputError
from planner.model.topologies import BCube
from tests.cli.documents import DAMAGED, IBATCH, LAYERS, LINK, MEASURED, PROFILE, REQUESTS, TABLE
from tests.cli.line import Line, commands, write
from tests.formats.spark_logs import loop
from tests.formats.test_exports import PULL, caramel

PLAN = "plan model.json --cluster cluster.json"
REPORT = "report model.json --cluster cluster.json"
COMPARE = f"compare tiny.json {LINK}"
SCALED = "compare scaled.json --problem caramel"
EVENTS = "compare --events log.json"
TIMED = "calibrate network"
RUN = "run caramel.json --model tests.cli.factories:whole"
_NONE = "does not apply to a request"
_TIME = "expected seconds, or a time such as 500ms, got"
_APART = "--{0}: does not apply to --problem {1}, only to "


def named(*options: str, said: str = "") -> list[tuple[str, str]]:
    """Return rows of options that are refused by their names, and with the same words."""
    return [(option, f"{option.split()[0]}: {said}") for option in options]


REFUSED: dict[str, list[tuple[str, str]]] = {
    "": [("", "required: COMMAND"), ("paint", "invalid choice: 'paint'")],
    PLAN: [
        *named("--computation 0", "--optimiser-ratio -1", "--max-transfer 0B", "--max-group 1"),
        ("--algorithms ring,star", "--algorithms[1]: expected one of ring"),
        ("--algorithms ,", "--algorithms: expected a list such as A,B, got ','"),
        *named("--epoch-samples 0", "--max-overhead 2", "--time-limit 0"),
        ("--time-limit soon", f"--time-limit: {_TIME}"),
        ("--method ps --mode replicated", "--mode: the plans of ps"),
        ("--for ddp --mode sharded", "--mode: the plans of Distributed"),
        ("--for ddp --epoch-samples 9", "--epoch-samples: not with target ddp"),
        ("--picture a.bmp", "--picture: expected a name ending in"),
        ("-o model.json", "--output: would replace model.json, which is read"),
        ("--picture a.svg -o ./a.svg", "--output: would replace ./a.svg, which --picture writes"),
    ],
    "plan": [
        ("none.json --cluster cluster.json", "error: none.json: No such file"),
        ("cluster.json --cluster cluster.json", "cluster.json: source: unknown"),
        ("model.json --for ddp", "--cluster: missing: where the model trains, or --network alone"),
        ("model.json --for fsdp2 --network x", "--cluster: missing: where the model trains"),
        ("model.json --network x --mode sharded", "--mode: only together with --cluster"),
    ],
    REPORT: [
        ("--algorithms star", "--algorithms[0]: "),
        *named("--time-limit 0"),
        ("--time-limit soon", f"--time-limit: {_TIME}"),
    ],
    "report": [("cluster.json --cluster cluster.json", "cluster.json: ")],
    COMPARE: [
        ("--methods exakt", "did you mean 'exact'"),
        ("--picture a.bmp", "--picture: expected a name ending in"),
        ("--for ddp", "--for: DistributedDataParallel pulls no parameters"),
        ("--for fsdp2 --direction push", "in the units that it gathers"),
        ("--problem caramel --for fsdp2", "--for: FSDP2 shards parameters"),
        ("--picture nowhere/plan.svg", "--picture: no such folder: nowhere"),
        ("-o .", "--output: is a folder: ."),
        ("--workers 8", f"{_APART.format('workers', 'ibatch')}caramel"),
        ("--problem caramel --workers 1", "--workers: expected an integer >= 2, got 1"),
        ("--problem caramel --servers 9", "--servers: expected an integer <= 8, got 9"),
        ("--problem caramel --seed -1", "--seed"),
        ("--problem caramel --direction pull", _APART.format("direction", "caramel")),
        ("--problem caramel --startup 4000000000s", "--startup, --bandwidth: "),
        ("--problem bml", "--bcube: missing: it says how many servers there are: 3,2"),
        ("--problem bml --bcube 1,2", "--bcube: n: expected an integer >= 2, got 1"),
        ("--problem bml --bcube 3,2,1", "--bcube: expected n,k such as 3,2, got '3,2,1'"),
        ("--methods 1,,2", "--methods: expected a list such as A,B, got '1,,2'"),
        ("--time-limit soon", f"--time-limit: {_TIME}"),
        ("--problem bml --bcube 3,2 --methods detour", "--methods: expected one of bml_bcube"),
    ],
    "compare": [
        ("", "FILE: missing"),
        ("log.json --events log.json", "FILE: not together with --events"),
        ("answer.json", "answer.json: holds an answer: expected a request"),
        (
            "model.json --network cluster.json",
            "cluster.json: name: unknown field; known are bytes_per_s",
        ),
        ("model.json --network caramel-16", "--network: caramel-16 is a cluster: "),
        ("request.json --network network.json", "--network: does not apply to a request"),
        (f"empty.json {LINK} --problem caramel", "layers: expected at least one layer with"),
        ("text.json", "text.json: not JSON"),
    ],
    **{
        f"compare {name}.json": [
            ("--startup 1us", f"--startup: {_NONE}, and {name}.json holds one, not a pro"),
            *named("--bandwidth 1Gb/s", "--bcube 3,2", "--workers 2", said=_NONE),
            *named("--direction pull", "--max-batch 1MB", said=_NONE),
            ("--problem ibatch", f"--problem: {name}.json holds a request of "),
            ("--methods mlip", "--methods: expected one of "),
            ("--picture p.json", "expected a name ending in .svg (a chart)"),
            *named("--time-limit -1"),
        ]
        for name in ("damaged", "yan")
    },
    SCALED: [
        ("", "--startup: missing: it comes with a profile, or --network or --cluster"),
        ("--startup 1us", "--bandwidth: missing"),
        ("--network network.json --startup 1us", "--startup: not together with --network"),
        ("--network network.json --bandwidth 1Gb/s", "--bandwidth: not together with --network"),
        ("--network nowhere.json", "nowhere.json"),
        ("--network network.json --servers 4", "--servers: expected an integer <= 3"),
        ("--network network.json --workers 8", "--workers: expected 3, among whom --network was"),
    ],
    "compare data/profiles/lenet5.json": [
        ("--ignore-memory", f"{_APART.format('ignore-memory', 'ibatch')}yan, fsdp, iteration"),
        ("--problem yan --cluster office-4 --machines 3", "--machines: not together with"),
        ("--problem yan --cluster office-4 --startup 1us", "--startup: not together with"),
        ("--problem bml --cluster office-4", "--cluster: expected a bcube such as bml-bcube"),
        ("--problem drizzle --cluster office-4", "--cluster: office-4 does not say"),
        ("--problem drizzle", "--cluster: missing"),
        ("--problem iteration --startup 1us --bandwidth 1Gb/s", "--cluster: missing"),
        ("--problem yan --cluster office-4 --activations 1GB", "--activations: does not apply"),
        ("--problem bigdl --startup 1us --bandwidth 1Gb/s", "--machines: missing, or --cluster"),
        ("--problem yan --cluster office-4 --samples 0", "--samples: expected an integer >= 1"),
        ("--problem overlap --cluster office-4", "overlap needs a request"),
    ],
    EVENTS: [
        ("--problem bml", "only to drizzle"),
        ("--cluster drizzle-64", "--cluster: does not apply"),
        ("--max-overhead 1", "--max-overhead: expected"),
        ("--events /nowhere/log", "/nowhere/log: No such file"),
        ("--events short.json", "short.json: no jobs that repeat at least 3 times"),
    ],
    "import": [
        ("spark-events -", "not standard input"),
        ("spark-events log.json --name a", "only of models"),
        ("spark-events log.json --ranks 2", "only of timed collectives"),
        ("spark-events log.json -o log.json", "would replace"),
        ("network network.json --batch-size 3", "--batch-size: "),
        ("kineto network.json --ranks 3", "--ranks: "),
        ("pipedream network.json network.json", "FILE: "),
        ("pipedream text.json --batch-size 0", "--batch-size: "),
    ],
    "draw": [
        ("request.json", "status: missing"),
        ("answer.json -o a.bmp", "--output: expected a name ending in"),
    ],
    "export": [("nccl-tuner network.json", "PLAN: expected ALGORITHM/PROTOCOL=FILE")],
    "schema": [("nobody", "PROBLEM: expected one of")],
    "solve": [
        ("nowhere.json", "nowhere.json"),
        ("--max-seconds -1", "--max-seconds: expected seconds from 0 to 10^9"),
        ("--max-memory-bytes -1", "--max-memory-bytes: expected a whole number >= 0"),
    ],
    "calibrate": [
        ("compute --cores 0", "--cores: expected an integer >= 1, got 0"),
        ("compute --cores 1000000", "--cores: expected at most the"),
        ("fit nowhere.json", "nowhere.json"),
    ],
    TIMED: [
        ("", "RANK is not set: start the program with a launcher, such as torchrun"),
        ("--largest 4", "--largest: expected a size"),
        ("--largest 64B", "--largest: expected an integer >= 128, got 64"),
        ("--largest 1001B", "--largest: expected a multiple of 4 bytes, got 1001"),
        ("--repetitions 0", "--repetitions: expected an integer >= 1, got 0"),
        ("--seconds 0", "--seconds: expected more than 0 and at most 3600, got 0.0"),
        ("--seconds 3601", "--seconds: expected more than 0 and at most 3600, got 3601.0"),
        ("--bcube 2,2 --collective all_gather", "--bcube: BML is an all-reduce"),
        ("--bcube '3, 2'", "--bcube: expected n,k such as 3,2, got '3, 2'"),
        ("--depths 1,,2", "--depths: expected a list such as A,B, got '1,,2'"),
        ("--depths 2,4", "--depths: expected increasing depths from 1"),
        ("--depths 1,2 --collective reduce_scatter", "--depths: only an all-reduce"),
        *named("--seconds soon", "--timeout soon", said=_TIME),
        ("--interfaces lo", "--interfaces: only with --bcube"),
        ("--cluster-out -", "--cluster-out: expected a file"),
        ("--interference torch.nn", "--interference: expected module:factory, got 'torch.nn'"),
        ("--input 3", "--input: only with --interference MODULE:FACTORY"),
        ("--alone --interference a:b", "--interference: not with --alone"),
        ("--largest 4kB", "--largest: expected above 4096 B without --alone"),
        ("--interference a:b --batch-size 0", "--batch-size: expected an integer >= 1"),
        ("--cluster-out c --collective all_gather", "--cluster-out: a cluster follows"),
    ],
    "profile": [("nobody_s_module:make", "error: MODULE:FACTORY: no module nobody_s_module")],
    RUN: [
        ("", "torchrun --nproc-per-node"),
        ("--steps 0", "--steps: expected an integer >= 2"),
        ("--picture step.txt", "--picture: expected a name ending in"),
        ("--timeout nan", "--timeout: expected seconds > 0"),
        ("--timeout soon", f"--timeout: {_TIME}"),
        ("--model nothing", "--model: expected module:factory"),
        ("--model tests.cli.factories:lost", "factories.py) has no lost"),
        ("--input 3", "--input: no effect here"),
    ],
    "run --model a:b": [
        ("model.json", "model.json: status: missing: expected an answer of planner solve"),
        ("caramel.json pull.json", "expected one plan, or two of ibatch"),
        ("pull.json pull.json", "at most one plan to pull"),
    ],
}
"""For each beginning of a line: how it goes on, and what is said then."""


@pytest.fixture(autouse=True)
def _files(line: Line) -> None:
    for name, document in {
        **REQUESTS,
        "damaged": DAMAGED,
        "answer": planner.solve(IBATCH),
        "caramel": caramel(),
        "pull": PULL,
        "empty": {**PROFILE, "layers": [{**LAYERS[0], "parameter_bytes": 0}]},
        "text": "{",
        "log": "".join(json.dumps(event) + "\n" for event in loop(6)),
        "short": "".join(json.dumps(event) + "\n" for event in loop(2)),
    }.items():
        write(f"{name}.json", document)


@pytest.mark.parametrize("start", REFUSED)
def test_what_was_typed_is_named(start: str, line: Line) -> None:
    if start.startswith((TIMED, "run", "profile")):
        pytest.importorskip("torch")
    for end, said in REFUSED[start]:
        error = line.error(start, end)
        assert said in error, end
        if said.startswith("--"):
            named = rf"^planner[\w ]*: error: (argument )?{re.escape(said)}"
            assert re.search(named, error, re.MULTILINE), end


TIMES = f"{SCALED} --network bad.json"
BATCHES = "compare scaled.json --network bad.json"
DEPTHS = {"collective": "all_gather", "network": {"depths": {"1": {"table": TABLE}}}}


@pytest.mark.parametrize(
    ("words", "document", "change", "said"),
    [
        (f"compare bad.json {LINK}", PROFILE, {"batch_size": -3}, "batch_size: expected an integ"),
        ("compare bad.json", DAMAGED, {"failed": {"nics": [[[0], 0]]}}, "failed.nics[0][0]: expec"),
        ("compare bad.json", REQUESTS["drizzle"], {"task_ns": -1}, "task_ns: expected a number"),
        (TIMES, MEASURED, {"collective": "all_gather"}, "collective: expected all_reduce, which"),
        (TIMES, MEASURED, {"network": {}}, "network.startup_ns: missing; or give a table"),
        (TIMES, MEASURED, {"network": {"startup_ns": 2**62, "ns_per_byte": 1}}, "network: "),
        (
            f"{BATCHES} --problem bml --bcube 2,2",
            MEASURED,
            {"algorithm": "bml(2,2)"},
            "expected NICs or links, got",
        ),
        (BATCHES, MEASURED, DEPTHS, "network.depths: only transfers of an all-reduce are cut"),
    ],
)
def test_the_file_and_the_field_are_named(
    words: str, document: dict[str, Any], change: dict[str, Any], said: str, line: Line
) -> None:
    write("bad.json", {**document, **change})
    assert line.error(words).startswith(f"planner: error: bad.json: {said}")


def test_blanks_and_repetitions_in_lists_do_not_count(line: Line) -> None:
    rows = line(COMPARE, "--json --methods 'exact, greedy,exact'").json
    assert {row["method"] for row in rows} == {"exact", "greedy"}


def test_what_forms_mean() -> None:
    assert parse_bcube("3,2") == parse_bcube("3x2") == BCube(3, 2)
    for form, duration in (("10", 10), ("1e1", 10), ("10s", 10), ("500ms", 0.5), ("2us", 2e-6)):
        assert seconds(form) == duration
    for text in ("0.02", "1/50"):
        assert parse_number(text, "--computation", positive=True) == Fraction(1, 50)
    assert parse_number("0", "--optimiser") == Fraction(0)
    assert parse_count("08", "--depths") == 8


@pytest.mark.parametrize(
    ("parse", "texts", "said"),
    [
        (parse_bcube, ("3", "3;2", "3,2,1", "3, 2", "٣,٢"), "--bcube: expected n,k such as"),
        (
            partial(parse_number, option="--computation", positive=True),
            ("0", "0/3", "-1", "1e3", "1/0", "1" * 41, ""),
            "--computation: expected a number > 0",
        ),
        (
            partial(parse_count, option="--depths"),
            ("٣", "-1", "1.0", "1" * 10, "", "²"),
            "--depths: expected a whole number",
        ),
        (seconds, ("soon", "10 parsecs", ""), "expected seconds, or a time such as 500ms"),
    ],
)
def test_other_forms_and_numbers_not_above_0_are_refused(
    parse: Callable[[str], Any], texts: Sequence[str], said: str
) -> None:
    for text in texts:
        with pytest.raises((InvalidInputError, argparse.ArgumentTypeError), match=f"^{said}"):
            parse(text)


def test_every_name_is_that_of_an_option() -> None:
    known = {name for command in commands() for name in command.options}
    for names in OPTIONS.values():
        assert {name for name in names if name.startswith("--")} <= known
