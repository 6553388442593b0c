"""The tutorial's commands run, one after the other, and print the tables it shows.

They run as they stand, but for how often they measure: nobody looks at the numbers here.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch")

from planner.cli import main
from tests.cli.documents import ROOT
from tests.runtime.launching import launch

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(
    r"^<!-- tutorial: (\S+) -->\n```(\w+)\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE
)
SHOWN = re.findall(r"^```text\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
SLOW = "sh slow.sh "
FEWER = {
    "calibrate network ": "calibrate network --repetitions 2 --seconds 0.001 ",
    "--problem caramel --workers 2 ": "--problem caramel --workers 2 --time-limit 0.5 ",
    "--steps 10 --against-ddp ": "--steps 2 --warmup 1 --against-ddp 1 ",
}


def headings(text: str) -> set[tuple[str, ...]]:
    """Return the column heads of all tables in what a command prints, but for run times.

    No two runs of a method take the same time, so pages do not show that column.
    """
    lines = text.splitlines()
    return {
        tuple(head for head in re.split(r"\s{2,}", above.strip()) if head != "run time")
        for above, below in pairwise(lines)
        if re.fullmatch(r"-+(  -+)+", below.strip())
    }


def fewer(command: str) -> str:
    for often, seldom in FEWER.items():
        command = command.replace(often, seldom)
    return command


def as_typed(command: str, folder: Path) -> str:
    """Run a command in a shell, and return what it prints."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def run(folder: str, arguments: list[str]) -> int:
    """Run a command of planner in a folder, as a rank of a job."""
    os.chdir(folder)
    os.environ["COLUMNS"] = "110"
    return main(arguments)


def started(command: str, folder: Path) -> str:
    """Run a line of the page, as planner if it says no more, and return what the first rank prints.

    A process that imports torch takes seconds to start: `launch` forks one that has.
    """
    words = shlex.split(command)
    words = words[2:] if words[0] == "sh" else words  # forks stay in this network
    assert words.pop(0) in ("planner", "torchrun")
    ranks = 1
    if words[0] == "--nproc-per-node":
        ranks, words = int(words[1]), words[words.index("planner") + 1 :]
    outcomes = launch(run, ranks, str(folder), words, timeout_s=300)
    for outcome in outcomes:
        assert outcome.value == 0, f"{command}: {outcome.output}"
    return outcomes[0].output


@pytest.mark.slow
@pytest.mark.pages
def test_the_commands_run_and_print_what_is_shown(tmp_path: Path) -> None:
    assert all(PAGE.count(often) == 1 for often in FEWER)
    printed = ""
    slow = shutil.which("unshare") and os.geteuid() == 0
    for name, _, text in BLOCKS:
        if "." in name:
            (tmp_path / name).write_text(text, encoding="utf-8")
        elif name == "calibrate":  # by torchrun itself
            printed += as_typed(fewer(text if slow else text.removeprefix(SLOW)), tmp_path)
        elif name != "install":
            for line in fewer(text).replace("\\\n", "").splitlines():
                printed += started(line, tmp_path)
    assert re.search(r"the plan was [\d.]+x as fast", printed)
    assert (tmp_path / "step.svg").stat().st_size
    shown = headings("\n".join(SHOWN))
    assert shown
    assert shown <= headings(printed)
