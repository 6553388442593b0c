"""Results of benchmarks: what files hold, how they are made and compared, what pages show.

Those of `blind`, predictions of published steps, have rows that fit, and arithmetic as by hand.
"""

import ast
import datetime
import json
import re
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from statistics import fmean

import blind
import blind_model
import pages
import pictures
import pytest
import record
import versions
from blind_model import affine_ns, linear_ns, parts, scaled_ns, step_ns
from blind_reasons import REASONS, reason_of
from blind_rows import FOLDER as ROWS
from blind_rows import SOURCES, Group, Row, Rule, read_source
from blind_sharded import Unit, part_ns
from results import FOLDER, Section, Table, dumps, load, markdown, sections
from same_answers import documented, main

ROOT = Path(__file__).parents[1]
NAMES = sorted(str(path.relative_to(FOLDER).with_suffix("")) for path in FOLDER.rglob("*.json"))
PAGES = sorted((ROOT / "docs").rglob("*.md"))


def only_table(text: str) -> Table:
    (section,) = sections(text)
    (table,) = section.tables
    return table


@pytest.mark.parametrize("name", NAMES)
def test_a_results_file_says_where_it_comes_from_and_holds_rows_of_its_columns(name: str) -> None:
    results = load(name)
    script = ROOT / "benchmarks" / f"{results.benchmark}.py"
    about = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    assert about is not None
    # Of one benchmark, run apart.
    apart = ("", "_gradients", "_four_ranks", "_six", "_units", "_zero")
    assert name in [results.benchmark + part for part in apart]
    assert results.about == about.splitlines()[0]
    assert results.command.split()[:2] == ["python", f"benchmarks/{results.benchmark}.py"]
    assert datetime.date.fromisoformat(results.date) >= datetime.date(2026, 11, 1)
    assert results.machine
    assert re.fullmatch(r"(at or before )?[0-9a-f]{7,40}( with changes)?", results.commit)
    assert results.sections
    for section in results.sections:
        assert section.notes or section.tables, section.title
        for table in section.tables:
            assert table.rows
            assert {len(row) for row in (table.units, *table.rows)} == {len(table.columns)}
            for unit, *values in zip(table.units, *table.rows, strict=True):
                texts = [value for value in values if isinstance(value, str)]
                bounds = all(re.fullmatch(r"[≥≤<] [\d.e+-]+", text) for text in texts)
                assert not unit or bounds, (section, unit, values)
    assert dumps(results) == (FOLDER / f"{name}.json").read_text(encoding="utf-8")


def test_numbers_have_one_unit_a_column_or_stay_as_printed() -> None:
    table = only_table(
        "| way | time | mixed | loss | range | limit | note |\n"
        "|---|---|---|---|---|---|---|\n"
        "| a | 1,024.5 ms | 15 µs | 2.3% (85%) | 1.02× (1.00 – 1.06) | ≥ 30 s | 1 of 2 |\n"
        "| b | 2 ms | 3 s | +0.0 % (0 %) | – | <0.5 s | 7 |"
    )
    assert table.units == ["", "ms", "s", "%", "×", "s", ""]
    assert table.rows == [
        ["a", 1024.5, 15e-6, [2.3, 85], [1.02, 1.0, 1.06], "≥ 30", "1 of 2"],
        ["b", 2, 3.0, [0.0, 0], None, "< 0.5", "7"],
    ]
    assert table.column("time") == pytest.approx([1.0245, 0.002])
    assert table.cell("b", "mixed") == 3.0
    different = only_table("| a |\n| --- |\n| 68 % |\n| 1.35× |")
    assert (different.units, different.rows) == ([""], [["68 %"], ["1.35×"]])


def test_headings_sentences_and_tables_in_markdown_say_the_same() -> None:
    table = "| a | difference |\n| --- | --- |\n| 1,024 s | +2.5 % |\n| 3 s | -1 % |\n| – | – |"
    assert markdown(only_table(table)) == table
    text = (
        "All in one run.\n\n# One\n\nA sentence.\n\n## Two\nwhat\nit is\n\n| a |\n| --- |\n"
        "solver: stopped\n| 1 |\n\n| b |\n| --- |\n| 2 |\n\n# Three\n\nThe end."
    )
    two = [Table("what\nit is", ["a"], [""], [[1]]), Table("", ["b"], [""], [[2]])]
    assert sections(text) == [
        Section("", ["All in one run."], []),
        Section("One", ["A sentence."], []),
        Section("One / Two", [], two),
        Section("Three", ["The end."], []),
    ]


def run_record(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", ["record.py", *arguments])
    record.main()


@pytest.mark.slow
def test_a_short_run_is_checked_against_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    short = ("--check", "reproduction/bigdl", "3")
    monkeypatch.chdir(ROOT)
    run_record(monkeypatch, *short)
    kept = load("reproduction/bigdl")
    others = [section for section in kept.sections if section.title != "Fig. 3"]
    monkeypatch.setattr(record, "load", lambda _: replace(kept, sections=others))
    with pytest.raises(SystemExit, match=r"bigdl\.json has no table of columns"):
        run_record(monkeypatch, *short)


def test_all_files_are_recorded_by_their_own_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that this code has made is left as it is; one that cannot be made is named."""
    kept = load("reproduction/bigdl")
    old = replace(kept, command="python benchmarks/reproduction/bigdl.py 3", commit="old")
    (tmp_path / "old.json").write_text(dumps(old))
    (tmp_path / "new.json").write_text(dumps(replace(kept, commit=versions.commit(), date="1.1.")))
    (tmp_path / "wrong.json").write_text(dumps(replace(old, command="python x.py --nothing")))
    monkeypatch.setattr("results.FOLDER", tmp_path)
    monkeypatch.setattr(record, "FOLDER", tmp_path)
    with pytest.raises(SystemExit, match=r"not recorded: wrong\.json"):
        run_record(monkeypatch, "--all")
    made = load("old")
    assert (made.benchmark, made.about, made.command) == (old.benchmark, old.about, old.command)
    assert (made.commit, made.sections) == (versions.commit(), [kept.section("Fig. 3")])
    assert load("new").date == "1.1."


@pytest.mark.parametrize(("prints", "status"), [("| a |", 3), ("skipped: no network", 0)])
def test_a_run_that_fails_or_is_skipped_is_not_kept(
    prints: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made.json"
    script = f'"""A benchmark."""\nprint({prints!r})\nraise SystemExit({status})\n'
    (tmp_path / "script.py").write_text(script)
    monkeypatch.setattr(record, "HERE", tmp_path)
    with pytest.raises(SystemExit) as caught:
        run_record(monkeypatch, "script", "-o", str(made))
    assert caught.value.code == status
    assert not made.exists()


def test_the_page_of_benchmarks_shows_the_figures_of_the_results_and_types_no_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = pages.PAGE.read_text(encoding="utf-8")
    assert pages.filled(text) == text
    assert len(pages.figures().splitlines()) == 2 + 10
    assert not [line for line in pages.PLACE.sub("", text).splitlines() if line.startswith("|")]
    results = load("yan_speed")
    table = results.table("Against brute force and the plain dynamic program")
    table.rows[-1][table.columns.index("bounds")] *= 2
    monkeypatch.setattr(pages, "load", lambda name: results if name == "yan_speed" else load(name))
    assert pages.filled(text) != text


@pytest.mark.slow
def test_the_sources_of_a_benchmark_are_all_files_that_it_imports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def of(name: str) -> set[str]:
        return {path.relative_to(ROOT).as_posix() for path in versions.sources(name)}

    speed = of("ibatch_speed")
    assert {f"benchmarks/{name}.py" for name in ("ibatch_speed", "tables", "ibatch_milp")} < speed
    families = {f"planner/families/ibatch/{name}.py" for name in ("__init__", "makespan")}
    assert {*families, "planner/solving/methods.py"} < speed
    assert not [path for path in speed if path.startswith(("planner/families/bml", "planner/cli"))]
    # A name that `planner` exports, in the file where it has its home; a script beside.
    both = {"planner/model/costs.py", "benchmarks/reproduction/bml_jobs.py"}
    assert both < of("reproduction/bml")
    monkeypatch.setattr(pages, "names", lambda: ["reproduction/bml"])
    kept, files = load("reproduction/bml"), len(of("reproduction/bml"))
    other, own = "planner/cli/main.py\n", "planner/model/costs.py\n"
    for changed, said in (
        (None, ["git here does not have this commit"]),
        (other, []),
        (other + own, [f"since then 1 of {files} files changed"]),
    ):
        monkeypatch.setattr(versions, "_git", lambda *_, printed=changed: printed)
        made = f"reproduction/bml: {kept.date}, code {kept.commit}: "
        assert pages.outdated() == [f"{made}{text}" for text in said]


@pytest.mark.slow
@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_shown(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(sys, "argv", ["pictures.py", name, "--folder", str(tmp_path)])
    pictures.main()
    assert (tmp_path / f"{name}.svg").stat().st_size > 10_000
    assert (pictures.IMAGES / f"{name}.svg").is_file()
    assert any(f"images/{name}.svg" in path.read_text(encoding="utf-8") for path in PAGES)


def test_errors_of_predictions_have_one_sign_in_all_results() -> None:
    """Predicted / measured - 1: above 0 the prediction was too long."""
    wanted = "predicted( us)?", ".*measured( us)?", "off by|error"
    checked = 0
    for name in NAMES:
        for table in (table for section in load(name).sections for table in section.tables):
            places = [
                next((at for at, one in enumerate(table.columns) if re.fullmatch(which, one)), -1)
                for which in wanted
            ]
            for row in table.rows if min(places) >= 0 else ():
                predicted, measured = (_ms(row[at], table.units[at]) for at in places[:2])
                error = row[places[2]]
                if predicted and measured and isinstance(error, int | float) and abs(error) > 0.5:
                    checked += 1
                    assert (predicted > measured) == (error > 0), (name, row)
    assert checked > 500


def _ms(time: object, unit: str) -> float | None:
    factors = {"s": 1e3, "ms": 1, "µs": 1e-3, "": 1}
    if isinstance(time, int | float):
        return time * factors[unit]
    words = str(time).split()
    return float(words[0]) * factors[words[1]] if len(words) == 2 else None


def test_documented_requests_are_asked_and_differences_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    families = {"ibatch", "caramel", "yan", "bml", "bigdl", "drizzle", "fsdp", "overlap"}
    assert {one["problem"] for _, one in documented(ROOT, ())} == families | {"iteration"}
    text = 'echo \'{"problem": "x", "n": [1]}\' | cat {"problem": "y", "status": "optimal"}'
    for folder, number in (("old", 1), ("new", 2)):
        (tmp_path / folder / "planner").mkdir(parents=True)
        answer = f"{{**request, 'a': {number}, '{folder}': 0, 'runtime_s': {number}}}"
        code = f"def solve(request): return {answer}"
        (tmp_path / folder / "planner" / "__init__.py").write_text(code)
        (tmp_path / folder / "README.md").write_text(f'{text} {{"problem": …}}')
    assert main([str(tmp_path / "old"), str(tmp_path / "old")]) == 0
    assert main([str(tmp_path / "old"), str(tmp_path / "new")]) == 1
    told = "README.md 0: a: 1 → 2, old: 0 → None\n1 requests, 1 answered otherwise\n"
    assert capsys.readouterr().out == f"1 requests, 0 answered otherwise\n{told}"


GROUPS = [group for name in SOURCES for group in read_source(name).groups]


def group_of(*rows: Row, rule: Rule = "ddp") -> Group:
    return Group("made up", "toy", "a system", ("v100", "v100"), rule, 4, 2, False, rows)


@pytest.mark.parametrize("name", SOURCES)
def test_rows_fit_their_clusters(name: str) -> None:
    for group in read_source(name).groups:
        assert parts(group.model)
        for row in group.rows:
            assert row.batch >= row.accelerators
            assert row.per_s > 0
            if row.accelerators > 1:
                assert blind_model.place(group, row).workers == row.accelerators, (group, row)


def test_models_have_as_many_parameters_as_published() -> None:
    models = json.loads((ROWS / "models.json").read_text(encoding="utf-8"))
    for name, model in models.items():
        assert model["source"]
        assert sum(part.count * part.parameters for part in parts(name)) == model["parameters"]
    # llm-foundry prints NumParams, BERT's and BART's are counted by their libraries.
    assert models["mpt_70b"]["parameters"] == 64_862_437_376
    assert models["bert_large"]["parameters"] == 336_226_108
    assert models["bart_large"]["parameters"] == 406_291_456
    assert sum(part.count * part.parameters for part in parts("resnet50")) == 25_557_032


def test_sharded_parts_by_hand() -> None:
    two = [Unit(10, 20, 4, 3), Unit(10, 20, 4, 3)]
    # Gathered at 4 and 8, computed to 14 and 24; backward of the second to 44, of the first to 64;
    # scattered to 47 and 67.
    assert part_ns(two, reshard=False) == 67
    # The second is gathered again once the first has been computed: it is there before 24.
    assert part_ns(two, reshard=True) == 67
    # A third unit waits for the first to be computed.
    late = [Unit(10, 0, 1, 0), Unit(10, 0, 1, 0), Unit(10, 0, 30, 0)]
    # Gathered at 1, 2, and, not begun before the first is computed at 11, at 41; computed to 51.
    assert part_ns(late, reshard=False) == 51
    slow = [Unit(20, 0, 15, 0)] * 3
    # There at 15, 30 and, begun at 35, at 50; computed to 35, 55, 75. The third again from 55 on,
    # the second, not before all is computed, from 75 to 90.
    assert part_ns(slow, reshard=True) == 90
    bound = [Unit(1, 0, 10, 0)] * 3
    assert part_ns(bound, reshard=False) == 31
    # The channel is free from 30 on: two of them again, but not the outermost.
    assert part_ns(bound, reshard=True) == 50


BASE, ROW = Row(8, 1, 64, Fraction(640)), Row(16, 2, 64, Fraction(1000))


def test_one_layer_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of one layer of 3,750,000 parameters: 15 MB of gradients."""
    blind_model.profile.cache_clear()
    layer = blind_model.Part("layer", 1, 3_750_000, 1)
    monkeypatch.setattr(blind_model, "parts", lambda _: (layer,))
    alone, row = Row(1, 1, 8, Fraction(80)), Row(8, 1, 64, Fraction(600))
    assert step_ns(group_of(alone), alone, 12_345) == 12_345
    # Summed up behind the backward pass: exchanging with all in one host takes 2 steps of 3.4 µs,
    # and 2 * 7/8 * 15 MB at 150 GB/s.
    for one in (row, replace(row, accumulated=4)):
        whole = step_ns(group_of(alone, one), one, 3_000_000)
        assert whole == 3_000_000 + 6_800 + 175_000
    # Sharded, in two parts: each gathers 7/8 * 7.5 MB, once, since it is outermost, and scatters
    # 7/8 * 15 MB.
    sharded = replace(row, accumulated=2, reshard=True)
    part = 1_500_000 + (3_400 + 43_750) + (3_400 + 87_500)
    assert step_ns(group_of(sharded, rule="fsdp"), sharded, 3_000_000) == 2 * part
    # An affine cost: 2 * 7/8 * 15 MB over a link of 150 GB/s, 2 * 15/16 * 15 MB over the 12.5 GB/s
    # of a host.
    within, across = 14_000 + 175_000, 14_000 + 2_250_000
    assert affine_ns(group_of(BASE, ROW), ROW) == (100_000_000 - within) // 2 + across


def test_computation_shrinks_with_the_samples_but_for_a_share() -> None:
    group = group_of(BASE, ROW)
    assert BASE.step_ns == 100_000_000
    assert scaled_ns(group, ROW, 1000, Fraction(1, 20)) == 525
    assert scaled_ns(group, ROW, 1000, Fraction(0)) == 500
    # A batch in two parts, each of a quarter of the samples: each of them takes the share.
    assert scaled_ns(group, replace(ROW, accumulated=2), 1000, Fraction(1, 20)) == 575
    assert linear_ns(group, ROW) == 50_000_000


def test_reasons() -> None:
    rows = (
        Row(1, 1, 10, Fraction(100)),
        Row(8, 1, 80, Fraction(700)),
        Row(16, 2, 160, Fraction(800)),
        Row(32, 4, 320, Fraction(2800)),
    )
    group = group_of(*rows)
    small, large = replace(rows[3], batch=32), replace(rows[3], batch=640)
    for row, errors, alone, reason in (
        (rows[1], {8: -0.09}, 0.0, ""),
        (rows[1], {8: -0.11}, 0.0, "host"),
        (rows[2], {8: -0.05, 16: -0.3}, 0.0, "measurement"),
        (rows[3], {8: -0.08, 32: -0.15}, 0.0, "host"),
        (rows[3], {8: -0.05, 32: -0.15}, 0.0, "network"),
        (rows[3], {8: -0.05, 32: -0.15}, -0.11, "beyond transfers"),
        (rows[3], {8: -0.05, 32: 0.15}, 0.0, "cheap network"),
        (small, {8: 0.0, 32: 0.2}, 0.0, "not so slow"),
        (large, {8: 0.0, 32: 0.2}, 0.0, "larger parts"),
    ):
        assert reason_of(group, row, errors, alone) == reason
    fewer = replace(group, rows=(*rows[:3], small))
    assert reason_of(fewer, small, {8: 0.0, 32: -0.2}, 0.0) == "fewer samples"


def test_the_results_are_what_the_script_prints(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["blind.py", "--quick"])
    blind.main()
    printed = {section.title: section.tables[0] for section in sections(capsys.readouterr().out)}
    kept = load("blind")
    for title in ("By source", "Every row"):
        rows = [row for row in printed[title].rows if row[0] in blind.QUICK]
        assert rows
        assert rows == [row for row in kept.table(title).rows if row[0] in blind.QUICK]


def test_the_results_hold_every_larger_row_and_their_means() -> None:
    kept = load("blind")
    table = kept.table("Every row")
    keys = ("source", "model", "system", "accelerators")
    assert list(zip(*map(table.column, keys), strict=True)) == [
        (group.source, group.model, group.system, row.accelerators)
        for group in GROUPS
        for row in group.rows[1:]
    ]
    assert set(table.column("reason")) - {None} <= set(REASONS)
    errors: dict[str, list[float]] = {name: [] for name in SOURCES}
    columns = map(table.column, ("source", "error", "reason"))
    for source, error, reason in zip(*columns, strict=True):
        assert (abs(error) > 9.95) >= bool(reason)
        errors[source].append(abs(error))
    for name, of_source in errors.items():
        mean = kept.table("By source").cell(name, "mean error")
        assert mean == pytest.approx(fmean(of_source), abs=0.11)
    assert kept.table("In all").cell("all", "rows") == len(table.rows)
