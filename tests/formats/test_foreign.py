"""Files of other tools that no command reads: what they are, and what to give instead."""

import re

import pytest

from planner.formats.importers.foreign import FOREIGN, foreign
from tests.cli.documents import ROOT
from tests.cli.line import Line, write
from tests.formats import test_nccl_tests, test_timed_rows

TOPOLOGY = """<system version="1">
  <cpu numaid="0" affinity="0000ffff" arch="x86_64" vendor="AuthenticAMD" familyid="175"/>
</system>
"""
GRAPHS = (
    '<graphs version="1">\n <graph id="0" pattern="4" nchannels="2" speedintra="20"/>\n</graphs>'
)
VERBOSE = (
    "[2022-06-26 01:39:55,722] [INFO] [logging.py:69:log_dist] [Rank 0] rank=0 | comm op: "
    "reduce_scatter_base | time (ms): 9.46 | msg size: 678.86 MB | algbw (Gbps): 1204.52\n"
)
FILES = {
    "NCCL's topology": TOPOLOGY,
    "NCCL's topology of": '<?xml version="1.0"?>\n<!-- of a VM -->\n' + TOPOLOGY,
    "NCCL's rings": GRAPHS,
    "a summary of DeepSpeed": "\n".join(test_timed_rows.TABLE),
    "a log of DeepSpeed": VERBOSE,
    "what nccl-tests print": "\n".join(f"[0] {line}" for line in test_nccl_tests.OUTPUT),
}


@pytest.mark.parametrize("name", FILES)
def test_every_kind_is_told_apart(name: str) -> None:
    assert foreign(FILES[name].encode()).startswith(f"this is {name}")


def test_what_is_ours_is_not_foreign() -> None:
    for file in sorted((ROOT / "data").rglob("*.json"))[:200]:
        assert not foreign(file.read_bytes())
    for text in ("", "<system>", "<html></html>", "hello", '{"size count type": "time"}'):
        assert not foreign(text.encode())


def test_a_reader_is_told_its_own_errors() -> None:
    for kind in FOREIGN:
        name = next(name for name, text in FILES.items() if kind.mark.search(text))
        assert bool(foreign(FILES[name].encode(), kind.reads)) == (not kind.reads)


PROFILE = "data/profiles/lenet5.json"


@pytest.mark.parametrize(
    "words",
    [
        f"plan {PROFILE} --cluster file",
        f"plan {PROFILE} --cluster caramel-8 --network file",
        f"report {PROFILE} --cluster file -o page.html",
        f"compare {PROFILE} --network file",
        f"compare {PROFILE} --problem iteration --cluster file",
        "import network file",
        "import vidur file",
        "import kineto file",
        "import spark-events file",
        "export nccl-tuner ring/simple=file",
    ],
)
def test_every_command_says_what_a_file_is(words: str, line: Line) -> None:
    write("file", FILES["NCCL's topology"])
    assert re.search("file: this is NCCL's topology.*planner import", line.error(words))


def test_a_summary_becomes_a_network(line: Line) -> None:
    write("comms.log", FILES["a summary of DeepSpeed"])
    assert "planner import deepspeed-comms LOG" in line.error("import nccl-tests comms.log")
    words = "import deepspeed-comms comms.log -o measured.json"
    assert "give --ranks and --ranks-per-host" in line.error(words)
    said = line(words, "--ranks 16 --ranks-per-host 8").err
    assert "this is no measurement of a network alone" in said
    line(f"compare {PROFILE} --problem caramel --network measured.json")
