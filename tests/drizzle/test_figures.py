"""The remade figures: what the documentation shows is what the script prints."""

import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from planner.drizzle import Measurement, Plan, Problem, calibrate, evaluate

ROOT = Path(__file__).parents[2]


def test_the_table_of_the_documentation_is_the_scripts() -> None:
    script = ROOT / "benchmarks" / "drizzle_figures.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, check=True, cwd=ROOT)
    page = (ROOT / "docs" / "drizzle.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"^```text\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE)
    assert shown == done.stdout.decode()


@pytest.mark.parametrize(
    ("tasks", "size", "saved", "gained"),
    [(256, 10, 0.0708, 0.0762), (256, 10**9, 0.0786, 0.0853)],
)
def test_fig_6_from_fig_4_by_hand(tasks: int, size: int, saved: float, gained: float) -> None:
    """10 % at 300 partitions: 256 of them cost 256/3000 of the computation."""
    compute = 3 * 10**9
    scheduler = calibrate([Measurement(300, 1, compute // 10)])
    problem = Problem(
        compute_ns=compute, tasks=tasks, task_ns=scheduler.task_ns, max_overhead=Fraction(1, 2)
    )
    speedup = evaluate(problem, Plan(size)).speedup
    assert speedup == (1 + Fraction(256, 3000)) / (1 + Fraction(256, 3000 * size))
    assert float(speedup - 1) == pytest.approx(gained, abs=1e-4)
    assert float(1 - 1 / speedup) == pytest.approx(saved, abs=1e-4)
