"""Writes the figures that matter into the page that shows them, from `benchmarks/results`.

    python benchmarks/pages.py [--check]

They stand between `<!-- figures -->` and `<!-- end -->`. All else that is measured has a page of
its own, made when the documentation is built (`docs/measured.py`).

With `--check` nothing is written, and the run ends with an error if a page would change. Then it
lists the results whose benchmarks, or what they measure, have changed since: these numbers may be
old, which is no error. `record.py` makes them anew.
"""

import argparse
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from results import Results, load, names
from tables import as_text
from versions import changed_since, sources

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
PLACE = re.compile(r"(<!-- figures -->\n).*?(<!-- end -->)", re.DOTALL)
JOINT = ("computation × 1: all 170 cases", "computation × 0.02: all 170 cases")


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure that matters.

    Attributes
    ----------
    says : str
        What it is the figure of.
    name : str
        Of the results file.
    value : callable
        What it is, as text, by those results.
    """

    says: str
    name: str
    value: Callable[[Results], str]


def iteration_gap(results: Results) -> str:
    worst = max(results.table(title).cell("joint", "worst") for title in JOINT)
    return f"{worst} % at worst"


def iteration_gain(results: Results) -> str:
    (mean, most) = (results.table(JOINT[1]).cell("joint", at) for at in ("speed-up over ddp", "to"))
    return f"{mean:.2f}× in the mean, {most:.2f}× at most"


def not_shipped(results: Results) -> str:
    near, cases = (results.number(text) for text in (r"(\d+) of \d+ within", r"of (\d+) within"))
    return f"{near:.0f} of {cases:.0f}"


def slowest_request(results: Results) -> str:
    return f"{max(results.table('').column('slowest')):.2f} s at most"


def million_layers(results: Results) -> str:
    table = results.table("Growth: random tables, start-up 100")
    return f"{table.column('solve')[-1]:.2f} s for {table.column('layers')[-1]:,}"


def greedy_loss(results: Results) -> str:
    mean, worst = results.table("pull / by profile").cell("all", "greedy")
    return f"{mean} % in the mean, {worst} % at worst"


def caramel_gap(results: Results) -> str:
    table = results.table("above the lower bound: geometric mean (worst)")
    (mean, worst), (its_mean, its_worst) = table.cell("all", "search"), table.cell("all", "caramel")
    return f"{mean:.2f} % ({worst} % at worst); the paper's method {its_mean} % ({its_worst} %)"


def best_configuration(results: Results) -> str:
    table = results.table("Against brute force and the plain dynamic program")
    space, seconds = table.column("configurations")[-1], table.column("bounds")[-1]
    return f"{seconds} s for {space:.1e}"


def largest_schedule(results: Results) -> str:
    table = results.table("One server's schedule against Algorithm 1 literally")
    (servers, ratio) = (table.column(name)[-1] for name in ("servers", "ratio"))
    return f"{1e3 * table.column('closed form')[-1]:.1f} ms for {servers:,}; {ratio:,}×"


def against_ddp(results: Results) -> str:
    ratios = [one[0] for one in results.table("`search` against the others").column("DDP")]
    about = results.table("predicted against measured").about
    error = re.search(r"off by ([\d.]+)% \(median\)", about)
    assert error is not None
    return f"{min(ratios)} to {max(ratios)}×; {error[1]} % off (median)"


FIGURES = (
    Figure("whole iterations, 340 cases: above the bound", "iteration_peers", iteration_gap),
    Figure("the same, workers 50 times as fast: over DDP", "iteration_peers", iteration_gain),
    Figure("other profiles: plans within 1 % of the bound", "iteration_gaps", not_shipped),
    Figure(
        "planning and explaining an iteration, 120 requests", "iteration_speed", slowest_request
    ),
    Figure("iBatch: the optimum, proven, by layers", "ibatch_speed", million_layers),
    Figure("iBatch: what the greedy rule loses, 1,470 cases", "ibatch_quality", greedy_loss),
    Figure("Caramel: above the bound, 624 cases", "caramel_quality", caramel_gap),
    Figure("scaling out: the best of all configurations", "yan_speed", best_configuration),
    Figure("BML: a server's schedule, by servers; over Algorithm 1", "bml_speed", largest_schedule),
    Figure(
        "executed, four emulated hosts: DDP's step over the plan's; predictions",
        "runtime_caramel",
        against_ddp,
    ),
)


def figures() -> str:
    """Return the table of the figures that matter."""
    rows = []
    for figure in FIGURES:
        results = load(figure.name)
        script = results.command.split()[1]
        rows.append((figure.says, figure.value(results), results.date, f"`python {script}`"))
    return as_text(("figure", "value", "measured", "command"), rows)


def filled(text: str) -> str:
    """Return the page with the figures at their place."""
    return PLACE.sub(lambda place: f"{place[1]}{figures()}\n{place[2]}", text)


def outdated() -> list[str]:
    """Return a line for each results file that may be older than the code that it measures."""
    lines = []
    for name in names():
        results = load(name)
        changed = changed_since(results.commit, results.benchmark)
        made = f"{name}: {results.date}, code {results.commit}"
        if changed is None:
            lines.append(f"{made}: git here does not have this commit")
        elif changed:
            files = len(sources(results.benchmark))
            lines.append(f"{made}: since then {len(changed)} of {files} files changed")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    new = filled(text)
    if options.check and new != text:
        sys.exit(f"not as the results say: {PAGE}")
    if options.check:
        print("\n".join(("results that may be older than the code they measure:", *outdated())))
    if new != text:
        PAGE.write_text(new, encoding="utf-8")


if __name__ == "__main__":
    main()
