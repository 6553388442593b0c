"""Rows for NCCL's tuner plugin, read by the plugin itself: it runs without a GPU.

NCCL_TUNER_EXAMPLE is the folder plugins/tuner/example of a checkout of NVIDIA/nccl.
"""

import os
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from planner.formats.exporters.nccl_tuner import ALGORITHMS, PROTOCOLS, encode_rules, rules_of
from planner.model.measured import COLLECTIVES, Collective, Measured, MeasuredNetwork

EXAMPLE = os.environ.get("NCCL_TUNER_EXAMPLE", "")
COMPILER = shutil.which("cc")
NUMBERS: dict[Collective, int] = {"all_gather": 2, "reduce_scatter": 3, "all_reduce": 4}
QUERIES = 10_000

pytestmark = pytest.mark.skipif(
    not EXAMPLE or COMPILER is None, reason="needs a C compiler, and NCCL_TUNER_EXAMPLE"
)


def networks() -> dict[tuple[str, str], MeasuredNetwork]:
    """Three choices, each with a start-up and a rate of its own, so that each is best somewhere."""
    costs = {
        ("tree", "ll"): (10_000, 8),
        ("ring", "ll128"): (25_000, 2),
        ("nvls", "simple"): (60_000, 1),
    }
    return {
        choice: MeasuredNetwork(
            tuple(
                Measured(
                    collective,
                    ranks,
                    8,
                    tuple(
                        (2**power, start * (1 + place) + rate * 2**power * ranks // 8)
                        for power in range(8, 28)
                    ),
                )
                for place, collective in enumerate(COLLECTIVES)
                for ranks in (8, 16, 64)
            )
        )
        for choice, (start, rate) in costs.items()
    }


def test_the_plugin_takes_what_costs_least(tmp_path: Path) -> None:
    measured = networks()
    rules = tmp_path / "rules.csv"
    rules.write_text(encode_rules(rules_of(measured), "a test"))
    source = (Path(EXAMPLE) / "plugin.c").read_text()
    symbol = max(re.findall(r"\bncclTunerPlugin_v\d\b", source))
    asked = tmp_path / "asked"
    subprocess.run(
        [str(COMPILER), f"-DPLUGIN={symbol}", f"-I{EXAMPLE}/nccl", "-w", "-o", str(asked),
         f"{EXAMPLE}/plugin.c", str(Path(__file__).with_name("tuner_harness.c"))],
        check=True,
    )  # fmt: skip
    draw = random.Random(1)
    queries = sorted(
        (draw.choice((8, 16, 64)), draw.choice(COLLECTIVES), round(2 ** draw.uniform(8, 27)))
        for _ in range(QUERIES)
    )
    lines = "".join(
        f"{ranks} {ranks // 8} {NUMBERS[name]} {size}\n" for ranks, name, size in queries
    )
    answers = subprocess.run(
        [str(asked)],
        input=lines,
        text=True,
        check=True,
        capture_output=True,
        env={**os.environ, "NCCL_TUNER_CONFIG_FILE": str(rules)},
    ).stdout.splitlines()
    assert len(answers) == QUERIES
    taken = set()
    for (ranks, name, size), answer in zip(queries, answers, strict=True):
        algorithm, protocol = map(int, answer.split())
        costs = {
            choice: next(table for table in network.of(name) if table.ranks == ranks).cost.cost_ns(
                size
            )
            for choice, network in measured.items()
        }
        choice = ALGORITHMS[algorithm], PROTOCOLS[protocol]
        assert algorithm >= 0
        assert costs[choice] <= min(costs.values()) + 2, (ranks, name, size)  # rounding
        taken.add(choice)
    assert taken == set(measured)
