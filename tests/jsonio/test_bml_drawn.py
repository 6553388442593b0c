"""Answers about gradient synchronisation read again: drawn, or found to contradict themselves."""

from typing import Any

import pytest

from planner.families.collectives import compare
from planner.model.errors import InvalidInputError
from planner.model.network import Network
from planner.model.topologies import BCube
from planner.model.units import format_ns
from planner.model.validation import MAX_TOTAL
from planner.view.panels import compared
from tests.jsonio.bml_requests import CONTRACT, NIC, changed
from tests.jsonio.test_bml import EVERYBODY, answered, ask_once, drawn_names, read_again
from tests.jsonio.test_caramel_answers import broken
from tests.jsonio.test_service import ask


def test_times_beyond_63_bits_are_null_and_not_drawn() -> None:
    found = answered(gradient_bytes=2**62, link_bytes_per_s=6e8)
    null = {name for name, row in found["comparison"].items() if row["time_ns"] is None}
    network = Network(6 * 10**8)  # type: ignore[arg-type]
    assert null == {
        one.name for one in compare(BCube(3, 2)) if network.time(one.volume * 2**62) > MAX_TOTAL
    }
    assert "halving_doubling_fattree" in null
    assert not null & set(drawn_names(found))
    alone = answered(latency_ns=2**62, failed={"servers": EVERYBODY[1:]})
    assert (alone["objective_ns"], alone["ideal_ns"]) == (0, None)
    assert alone["status"] == "optimal"
    assert drawn_names(alone) == ["this plan"]


def test_huge_networks_are_answered_and_drawn() -> None:
    found = ask_once(changed(n=2, k=56))
    assert found["servers"] == 2**56
    assert found["comparison"]["bml_bcube"]["switches"] == found["switches"] == 56 * 2**55
    assert "this plan" in drawn_names(found)


def test_what_is_drawn_of_an_answer() -> None:
    found = ask(CONTRACT)
    chart = read_again(found)
    names = drawn_names(found)
    assert set(names) == {"this plan", *found["comparison"]}
    assert chart.title.startswith("A synchronisation of 9 servers on BCube(3, 2) takes ")
    assert format_ns(found["objective_ns"]) in chart.title
    panel, _ = compared(chart)[0]
    times = dict(zip(names, panel.values, strict=True))
    scale = found["objective_ns"] / times["this plan"]
    for name, row in found["comparison"].items():
        assert times[name] == pytest.approx(row["time_ns"] / scale)
    assert panel.bound == pytest.approx(found["lower_bound_ns"] / scale)
    assert list(panel.values) == sorted(panel.values)


def test_around_failures_only_the_intact_network_stands_beside() -> None:
    found = ask(changed(failed={**NIC, "servers": [[2, 2]]}, method="detour"))
    assert set(drawn_names(found)) == {"this plan", "bml_bcube, nothing failed"}
    assert "BCube(3, 2) (failed servers: 1, NICs: 1) takes " in read_again(found).title


SMALL = ask(changed(gradient_bytes=18))
ROUGH = ask(changed(gradient_bytes=7))
DAMAGED = ask(changed(gradient_bytes=18, failed=NIC, method="detour"))


@pytest.mark.parametrize(
    ("found", "steps", "value", "path"),
    [
        (ROUGH, ("lower_bound_ns",), ROUGH["objective_ns"] + 1, "lower_bound_ns"),
        (ROUGH, ("status",), "optimal", "status"),
        (ROUGH, ("lower_bound_ns",), ROUGH["objective_ns"], "status"),
        (ROUGH, ("lower_bound_ns",), -1, "lower_bound_ns"),
        (ROUGH, ("objective_ns",), None, "objective_ns"),
        (ROUGH, ("objective_ns",), 2**63, "objective_ns"),
        (ROUGH, ("comparison",), {}, "comparison.bml_bcube"),
        (DAMAGED, ("comparison",), {}, "comparison.bml_bcube"),
        (ROUGH, ("comparison", "bml_bcube", "nics"), 0, "comparison.bml_bcube.nics"),
        (ROUGH, ("comparison", "bml_bcube", "switches"), 10**400, "comparison.bml_bcube.switches"),
        (ROUGH, ("servers",), 10, "servers"),
        (ROUGH, ("switches",), 7, "switches"),
        (ROUGH, ("k",), 80, "k"),
        (ROUGH, ("n",), 1, "n"),
        (ROUGH, ("steps", 1, "stage"), "sum", "steps[1].stage"),
        (ROUGH, ("status",), "fine", "status"),
    ],
)
def test_answers_that_contradict_themselves(
    found: dict[str, Any], steps: tuple[Any, ...], value: Any, path: str
) -> None:
    read_again(found)
    with pytest.raises(InvalidInputError) as caught:
        read_again(broken(found, steps, value))
    assert caught.value.path == path


def test_an_answer_without_its_comparison() -> None:
    less = {key: value for key, value in SMALL.items() if key != "comparison"}
    with pytest.raises(InvalidInputError, match=r"^comparison: missing"):
        read_again(less)
