"""Predictions of published steps: their rows are whole, their arithmetic is that worked by hand."""

import json
from dataclasses import replace
from fractions import Fraction
from statistics import fmean

import blind
import blind_model
import pytest
from blind_model import affine_ns, linear_ns, parts, scaled_ns, step_ns
from blind_reasons import REASONS, reason_of
from blind_rows import FOLDER, SOURCES, Group, Row, Rule, read_source
from blind_sharded import Unit, part_ns
from results import load, sections

GROUPS = [group for name in SOURCES for group in read_source(name).groups]


def group_of(*rows: Row, model: str = "toy", rule: Rule = "ddp") -> Group:
    return Group("made up", model, "a system", ("v100", "v100"), rule, 4, 2, False, rows)


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A model of one layer of 3,750,000 parameters: 15 MB of gradients."""
    blind_model.profile.cache_clear()
    layer = blind_model.Part("layer", 1, 3_750_000, 1)
    monkeypatch.setattr(blind_model, "parts", lambda _: (layer,))


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
    models = json.loads((FOLDER / "models.json").read_text(encoding="utf-8"))
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


@pytest.mark.usefixtures("toy")
def test_one_layer_by_hand() -> None:
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
