"""Figures in pages are those of today: of commands that run here, or of recorded results.

- Behind `<!-- printed -->` stands what the `planner` command of the shell block above prints, or a
  part of it; a line "…", or one within a line, stands for any text. How long a method ran is in
  none: no two runs share it.
- Behind `<!-- figures: COMMAND -->`, or several commands, stands a paragraph with figures that
  these commands print.
- A paragraph that links results of a benchmark has figures of these results, a page of
  `docs/reproduction` those of the results of its name. What no table holds is worked out in
  `DERIVED`.
- Figures may be rounded, and a ratio may be said in per cent. So the test cannot see every wrong
  one, above all of few digits.
- Lines behind `<!-- recorded: NAME -->` stand in the results of that benchmark.
- Any other output begins with `<!-- measured: … -->`, which says when and how.
"""

import re
from collections.abc import Callable, Iterator
from functools import cache
from statistics import geometric_mean
from typing import TypeAlias

import pytest
from results import load

from planner import Profile, read_profile
from planner.cli import main
from tests.cli.documents import ROOT

PAGES = sorted(
    path
    for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    if not {"_build", "_generated"} & set(path.relative_to(ROOT).parts)
)
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in PAGES}
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
MARK = re.compile(r"<!-- (printed|(?:recorded|measured): [^>]+) -->\n$")
SAID = re.compile(r"<!-- figures:\s(.*?)-->\n(.*?)(?:\n\n|\Z)", re.DOTALL)
LINKED = re.compile(r"\((?:\.\./)?_generated/results/([\w/]+)\.md\)")
UNITS = r"\s?(?:%|×|ns\b|µs\b|ms\b|s\b|[GM]i?B\b|points?\b|times\b|to\b|and\b|of\b|–)"
FIGURE = re.compile(rf"(?<!sections )(?<![\w.,/(-])(\d[\d,]*(?:\.\d+)?)(?={UNITS})")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
TUTORIAL = "docs/tutorial.md"  # a test of its own runs it


def milp_over_solve() -> list[float]:
    """Return the time of the fastest mixed-integer program over that of `solve`, 200 layers."""
    table = load("ibatch_speed").sections[0].tables[0]
    columns = (table.column(name) for name in ("program, solver", "its time", "`solve`"))
    return [taken / own for program, taken, own in zip(*columns, strict=True) if "HiGHS" in program]


def profile(name: str) -> Profile:
    return read_profile(ROOT / "data" / "profiles" / f"{name}.json")


def forward_share(name: str) -> float:
    """Return how much of the computation of a profile is its forward pass."""
    one = profile(name)
    return one.forward_ns / (one.forward_ns + one.backward_ns)


def over_ddp() -> list[float]:
    """Return DDP's time over that of the planned pulls and pushes, model by model."""
    table = load("runtime_real").table("`exact` against the others, shards")
    return [cell[0] for cell in table.column("DDP")]


def gathered_once_over_ddp() -> Iterator[float]:
    """Yield the time of FSDP2, gathered once, over DDP's, which sends as many bytes."""
    for section in load("runtime_real").sections:
        if section.title.endswith(" Mbit/s, shards"):
            table = section.tables[0]
            yield table.cell("FSDP2, gathered once", "measured") / table.cell("DDP", "measured")


DEFAULT = 72 / 26
DERIVED: dict[tuple[str, str], Callable[[], float]] = {
    ("docs/reproduction/bigdl.md", "3.7"): lambda: (
        profile("resnet50").parameter_bytes / profile("googlenet").parameter_bytes
    ),
    ("docs/reproduction/caramel.md", "161"): lambda: len(profile("resnet50").dataflow().parameters),
    ("docs/reproduction/caramel.md", "108"): lambda: 108,  # as the paper prints
    # The default takes 72/26 times its computation; half of the rest is the pull, half the push.
    ("docs/reproduction/ibatch.md", "2.77"): lambda: DEFAULT,
    ("docs/reproduction/ibatch.md", "1.77"): lambda: DEFAULT - 1,
    ("docs/reproduction/ibatch.md", "0.88"): lambda: (DEFAULT - 1) / 2,
    ("docs/reproduction/ibatch.md", "28.8"): lambda: 72 / (DEFAULT - forward_share("vgg19_22k")),
    ("docs/reproduction/ibatch.md", "38.2"): lambda: 72 / (DEFAULT - (DEFAULT - 1) / 2),
    ("docs/reproduction/ibatch.md", "40.7"): lambda: 72 / (DEFAULT - 1),
    ("docs/benchmarks.md", "860"): lambda: round(min(milp_over_solve()), -1),
    ("docs/benchmarks.md", "60,500"): lambda: round(max(milp_over_solve()), -2),
    ("docs/benchmarks.md", "1.07"): lambda: geometric_mean(over_ddp()),
    ("docs/benchmarks.md", "1.14"): lambda: max(over_ddp()),
    ("docs/benchmarks.md", "1.68"): lambda: geometric_mean(gathered_once_over_ddp()),
}
"""Figures that are worked out from results, by page and figure."""


def results_page(name: str) -> str:
    """Return the generated page of a results file, which has all its tables and sentences."""
    return (ROOT / "docs" / "_generated" / "results" / f"{name}.md").read_text(encoding="utf-8")


def printed_blocks() -> Iterator[tuple[str, str, str]]:
    """Yield pages with an output that is compared, the shell block above it, and the output."""
    for page, text in TEXTS.items():
        command = ""
        for block in BLOCK.finditer(text):
            if block[1] == "sh":
                command = block[2]
            mark = MARK.search(text[: block.start()])
            if mark and mark[1] == "printed":
                yield page, command, block[2]


def commands(text: str) -> list[list[str]]:
    """Return the arguments of the `planner` commands in a shell block or a comment."""
    lines = text.replace("\\\n", " ").splitlines()
    found = [line.partition("planner ")[2].split() for line in lines if "planner " in line]
    for arguments in found:
        for option in ("--picture", "-o"):  # what they draw and write is not looked at
            if option in arguments:
                at = arguments.index(option)
                del arguments[at : at + 2]
    return found


Run: TypeAlias = Callable[[list[str]], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that returns what a `planner` command prints."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")

    def printed(arguments: list[str]) -> str:
        main([*arguments, "--quiet"])
        return capsys.readouterr().out

    return printed


def lines_of(text: str) -> list[str]:
    """Return the lines with something in them, without rules and columns of run times."""
    found, timed = [], False
    for line in text.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        timed = (timed and bool(line.strip())) or cells[-1] == "run time"
        if timed and len(cells) > 1:
            cells.pop()
        if re.sub(r"[-\s]", "", line):
            found.append(" ".join(" ".join(cells).split()))
    return found


def missing(shown: str, printed: str) -> list[str]:
    """Return the shown lines from the first one on that are not printed in this order."""
    expected, found, at, next_one = lines_of(shown), lines_of(printed), 0, False
    for place, line in enumerate(expected):
        if line == "…":
            next_one = False
            continue
        pattern = re.compile(".*".join(map(re.escape, line.split("…"))))
        candidates = range(at, min(at + 1, len(found)) if next_one else len(found))
        hit = next((one for one in candidates if pattern.fullmatch(found[one])), None)
        if hit is None:
            return expected[place:]
        at, next_one = hit + 1, True
    return []


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize(("page", "command", "shown"), list(printed_blocks()))
def test_outputs_are_those_of_their_commands(page: str, command: str, shown: str, run: Run) -> None:
    printed = run(commands(command)[-1])
    assert not missing(shown, printed), printed


def test_every_output_says_where_it_is_from() -> None:
    for page, text in TEXTS.items():
        for block in BLOCK.finditer(text):
            if block[1] == "text":
                mark = MARK.search(text[: block.start()])
                assert mark or page == TUTORIAL or not FIGURE.search(block[2]), (
                    f"{page}: {block[2]}"
                )
                assert "run time" not in block[2], f"{page}: {block[2]}"
                if mark and mark[1].startswith("recorded: "):
                    recorded = results_page(mark[1].removeprefix("recorded: "))
                    assert all(line in recorded for line in block[2].splitlines()), page
    assert len(list(printed_blocks())) > 2


def test_a_line_that_is_not_printed_is_noticed() -> None:
    printed = "a  b\n---\n1  2\n3  4\n\nm  run time\n-  --\nx  5 ms\n\nthe  end 1\nlast"
    for shown in ("a b\n1 2", "1 2\n…\nm\n--\nx\nthe end 1", "3 4\n…\nthe … 1\nlast", "m\nx"):
        assert missing(shown, printed) == [], shown
    assert missing("1 2\nm\nx", printed) == ["m", "x"]
    assert missing("a b\n1 3", printed) == ["1 3"]
    assert missing("3 4\n…\n1 2", printed) == ["1 2"]


@pytest.mark.slow
@pytest.mark.pages
@pytest.mark.parametrize(
    ("page", "asked", "paragraph"),
    [(page, asked, said) for page, text in TEXTS.items() for asked, said in SAID.findall(text)],
)
def test_paragraphs_are_printed(page: str, asked: str, paragraph: str, run: Run) -> None:
    called = commands(asked)
    assert called
    known = numbers_in(" ".join([asked, *map(run, called)]))
    assert unknown_figures(page, paragraph, known) == []


def question(title: str) -> tuple[str, str]:
    """Return the command below a question, and its answer in one line."""
    text = TEXTS["docs/faq.md"].partition(f"## {title}\n")[2].partition("\n## ")[0]
    (command,) = re.findall(r"```sh\n(planner .*?)\n```", text, flags=re.DOTALL)
    return command, " ".join(text.split())


def test_the_answer_on_bucket_sizes_quotes_what_is_printed(run: Run) -> None:
    command, text = question("Which bucket size should I use?")
    rows = {line.split()[0]: line for line in lines_of(run(*commands(command)))}
    for method, shown in (
        ("ddp", r"DDP's (\d+) buckets take ([\d.]+ s)"),
        ("layer_by_layer", r"\((\d+) of them\) ([\d.]+ s)"),
        ("search", r"best plan, (\d+) transfers of other sizes in another order, ([\d.]+ s)"),
    ):
        quoted = re.search(shown, text)
        assert quoted, method
        assert rows[method].startswith(f"{method} {quoted[1]} {quoted[2]} ")


def test_the_answer_on_caps_that_no_plan_keeps_is_printed(run: Run) -> None:
    said = run(*commands(question("Why was my cap not honoured?")[0]))
    assert "infeasible" in said
    assert "the smallest cap that fits every layer" in said


def numbers_in(text: str) -> frozenset[float]:
    return frozenset(float(one.replace(",", "")) for one in NUMBER.findall(text))


@cache
def numbers(name: str) -> frozenset[float]:
    return numbers_in(results_page(name))


def is_of(figure: str, unit: str, known: frozenset[float]) -> bool:
    """Return whether a figure is one of some numbers, rounded; one in per cent also as a ratio."""
    value = float(figure.replace(",", ""))
    within = 0.5000001 * 10 ** -len(figure.partition(".")[2])
    if any(abs(number - value) <= within for number in known):
        return True
    shares = {100 * abs(one - 1) for one in known} | {abs(100 - one) for one in known}
    return unit == "%" and any(abs(share - value) <= within for share in shares)


def unknown_figures(page: str, paragraph: str, known: frozenset[float]) -> list[str]:
    plain = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]+`", "``", paragraph))
    found = []
    for match in FIGURE.finditer(plain):
        figure, behind = match[1], plain[match.end() :]
        unit = re.match(r"(?:\s?(?:to|–|and)\s?[\d.,]+)?\s?(\S)", behind)
        derived = DERIVED.get((page, figure))
        if derived is not None:
            digits = len(figure.partition(".")[2])
            if f"{derived():,.{digits}f}" != figure:
                found.append(figure)
        elif not is_of(figure, unit[1] if unit else "", known):
            found.append(figure)
    return found


@pytest.mark.parametrize("page", TEXTS)
def test_figures_beside_a_link_to_results_are_of_these(page: str) -> None:
    text = re.sub(r"^```.*?^```$|<!--.*?-->", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    own = re.findall(r"docs/(reproduction/(?!index)\w+)\.md", page)
    for paragraph in re.split(r"\n\n|\n(?=- )", text):
        linked = {*LINKED.findall(paragraph), *own} - {"index"}
        if linked:
            known = frozenset().union(*map(numbers, linked))
            assert unknown_figures(page, paragraph, known) == [], paragraph


def test_a_figure_of_no_result_is_noticed() -> None:
    known = frozenset({1.404, 2.26, 95.3})
    text = "1.4 times, 40 % and 2.3 s, 4.7 to 40 % less"
    assert unknown_figures("", text, known) == []
    assert unknown_figures("", "1.41 times, 40 s, 2.2 s", known) == ["1.41", "40", "2.2"]
