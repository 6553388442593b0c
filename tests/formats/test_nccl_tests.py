"""What nccl-tests print. The files here are made up in its format."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import InvalidInputError
from planner.formats.importers.nccl_tests import read_nccl_tests
from planner.formats.importers.timed_rows import MOST_SIZES, TimedRow, bus_factor, network_of

COLUMNS = (
    "#       size         count      type   redop    root     time   algbw   busbw #wrong"
    "     time   algbw   busbw #wrong\n"
    "#        (B)    (elements)                               (us)  (GB/s)  (GB/s)       "
    "     (us)  (GB/s)  (GB/s)       "
)


def side(size: int, time: float, factor: float, wrong: str = "0") -> str:
    bandwidth = size / time / 1000
    return f"{time:.2f} {bandwidth:.4f} {bandwidth * factor:.4f} {wrong}"


def run(
    rows: Sequence[tuple[int, float]],
    *,
    test: str = "all_reduce",
    hosts: int = 2,
    each: int = 4,
    wrong: str = "0",
    header: str = COLUMNS,
) -> str:
    factor = float(bus_factor(test, hosts * each))  # type: ignore[arg-type]
    lines = [
        f"# Collective test starting: {test}_perf",
        "# nThread 1 nGpus 1 minBytes 8 maxBytes 1024 step: 2(factor) warmup iters: 5 iters: 20",
        "#",
        "# Using devices",
    ]
    lines += [
        f"#  Rank {host * each + place:2} Group  0 Pid  {100 + place} on  node{host} device "
        f"{place:2} [0000:0{place}:00] NVIDIA H100 80GB HBM3"
        for host in range(hosts)
        for place in range(each)
    ]
    lines.append(header)
    lines += [
        f" {size} {size // 4} float sum -1 {side(size, time, factor, wrong)} "
        f"{side(size, 2 * time, factor, 'N/A')}"
        for size, time in rows
    ]
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 12.3 "]
    return "\n".join([*lines, f"# Collective test concluded: {test}_perf", ""])


ROWS = ((1024, 20.0), (1 << 20, 55.5), (1 << 24, 400.25))


def times(rows: Sequence[TimedRow]) -> list[tuple[int, int]]:
    return [(row.size_bytes, row.time_ns) for row in rows]


def test_text() -> None:
    rows, warnings = read_nccl_tests(run(ROWS).encode())
    assert times(rows) == [(1024, 20_000), (1 << 20, 55_500), (1 << 24, 400_250)]
    assert {(row.collective, row.ranks, row.per_host) for row in rows} == {("all_reduce", 8, 4)}
    assert not warnings
    assert rows[0].where.startswith("line ")


@pytest.mark.parametrize("prefix", ["[1,0]<stdout>:", "[0] ", "0: "])
def test_prefixes_of_launchers(prefix: str) -> None:
    text = "\n".join(prefix + line for line in run(ROWS).splitlines())
    noise = f"{prefix}NCCL version 2.27.3+cuda12.9\n"
    assert times(read_nccl_tests((noise + text).encode())[0]) == times(
        read_nccl_tests(run(ROWS).encode())[0]
    )


def test_several_runs_in_one_file() -> None:
    text = run(ROWS) + run(ROWS, test="all_gather", hosts=1) + run(ROWS, test="reduce_scatter")
    network, _ = network_of(read_nccl_tests(text.encode())[0])
    assert [(table.collective, table.ranks, table.per_host) for table in network.tables] == [
        ("all_reduce", 8, 4),
        ("all_gather", 4, 4),
        ("reduce_scatter", 8, 4),
    ]


def test_elder_columns_show_an_error_not_a_count() -> None:
    old = COLUMNS.replace("#wrong", " error").replace("   root ", "        ")
    text = run(ROWS, header=old, wrong="2e-07").replace(" sum -1 ", " sum ")
    assert len(read_nccl_tests(text.encode())[0]) == 3


def document(rows: Sequence[tuple[int, float]], test: str = "all_reduce", ranks: int = 8) -> Any:
    factor = float(bus_factor(test, ranks))  # type: ignore[arg-type]

    def timed(size: int, time: float) -> dict[str, float | None]:
        bandwidth = size / time / 1000
        return {"time": time, "alg_bw": bandwidth, "bus_bw": bandwidth * factor, "nwrong": 0.0}

    return {
        "version": 1,
        "args": [f"./build/{test}_perf", "-J", "out.json"],
        "config": {
            "nthreads": 1,
            "ngpus": 1,
            "devices": [{"rank": rank, "hostname": f"node{rank // 4}"} for rank in range(ranks)],
        },
        "results": [
            {
                "size": size,
                "count": size // 4,
                "type": "float",
                "out_of_place": timed(size, time),
                "in_place": None,
            }
            for size, time in rows
        ],
    }


def test_a_log_that_does_not_name_its_test_may_be_told() -> None:
    text = "\n".join(line for line in run(ROWS).splitlines() if "_perf" not in line)
    with pytest.raises(InvalidInputError, match="unknown test \\(--collective says which\\)"):
        read_nccl_tests(text.encode())
    rows, _ = read_nccl_tests(text.encode(), collective="all_reduce")
    assert times(rows) == times(read_nccl_tests(run(ROWS).encode())[0])


def test_what_is_left_out_of_json_is_named_by_its_place() -> None:
    known = document([(1 << power, 10.0) for power in range(10, 16)])
    known["results"][1]["out_of_place"]["nwrong"] = 7
    known["results"][4]["out_of_place"]["nwrong"] = 7
    _, warnings = read_nccl_tests(json.dumps(known).encode())
    assert warnings == ("left out, 2 rows with wrong elements: results[1], results[4]",)


def test_json_says_the_same_as_text() -> None:
    rows, _ = read_nccl_tests(json.dumps(document(ROWS)).encode())
    assert times(rows) == times(read_nccl_tests(run(ROWS).encode())[0])
    assert (rows[0].ranks, rows[0].per_host) == (8, 4)


def test_one_process_lists_its_first_device_only() -> None:
    known = document(ROWS, ranks=8)
    known["config"] |= {"devices": [{"rank": 0, "hostname": "a"}], "ngpus": 8}
    rows, _ = read_nccl_tests(json.dumps(known).encode())
    assert (rows[0].ranks, rows[0].per_host) == (8, 8)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda text: text.replace(" 20.00 ", " 0.00 "), "with a time of 0"),
        (lambda text: text.replace(" 20.00 ", " 2.00 "), "not what size and time say"),
        (lambda text: text.replace("0.0896", "9.0896"), "not what its bandwidth and ranks say"),
    ],
)
def test_rows_that_cannot_be_true_are_left_out(damage: Any, said: str) -> None:
    text = run(ROWS)
    assert damage(text) != text
    rows, warnings = read_nccl_tests(damage(text).encode())
    assert [row.size_bytes for row in rows] == [1 << 20, 1 << 24]
    assert any(said in warning and "line " in warning for warning in warnings)


def test_wrong_elements() -> None:
    with pytest.raises(InvalidInputError, match="with wrong elements"):
        read_nccl_tests(run(ROWS, wrong="3").encode())


def test_unknown_ranks_are_asked_for() -> None:
    text = "\n".join(line for line in run(ROWS).splitlines() if "Rank" not in line)
    with pytest.raises(InvalidInputError, match="give --ranks"):
        read_nccl_tests(text.encode())
    rows, _ = read_nccl_tests(text.encode(), ranks=8, per_host=4)
    assert (rows[0].ranks, rows[0].per_host) == (8, 4)
    with pytest.raises(InvalidInputError, match="8 ranks are listed"):
        read_nccl_tests(run(ROWS).encode(), ranks=16)


@pytest.mark.parametrize("data", [b"", b"{", b"{}", b'{"results": [1]}', b"\xff\xfe", b"1 2 3"])
def test_what_is_no_output_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidInputError):
        read_nccl_tests(data)


def row(size: int, time: int, ranks: int = 8) -> TimedRow:
    return TimedRow("all_reduce", ranks, 8, size, time, "here")


def test_repeated_sizes_count_by_their_median() -> None:
    network, warnings = network_of([row(8, 5), row(8, 90), row(8, 7), row(16, 9)])
    assert network.tables[0].points == ((8, 7), (16, 9))
    assert any("measured more than once" in warning for warning in warnings)


def test_falling_times_are_pooled() -> None:
    network, _ = network_of([row(8, 100), row(16, 10), row(32, 120)])
    assert network.tables[0].cost.is_monotone


def test_one_size_is_no_table() -> None:
    with pytest.raises(InvalidInputError, match="two sizes"):
        network_of([row(8, 5)])
    network, warnings = network_of([row(8, 5), row(8, 5, 16), row(16, 6, 16)])
    assert [table.ranks for table in network.tables] == [16]
    assert any("left out, one size" in warning for warning in warnings)


@pytest.mark.slow
def test_a_hundred_thousand_rows_are_thinned() -> None:
    network, warnings = network_of([row(8 * place, 10 + place) for place in range(1, 100_001)])
    points = network.tables[0].points
    assert len(points) <= MOST_SIZES + 1
    assert points[0][0] == 8
    assert points[-1][0] == 800_000
    assert any("100,000 sizes made" in warning for warning in warnings)
    cost = network.tables[0].cost
    for size in (100, 12_345, 700_000):
        assert abs(cost.cost_ns(size) - (10 + size / 8)) <= 2


def test_of_many_sizes_a_disturbed_one_does_not_stand_for_its_neighbours() -> None:
    disturbed = [row(8 * place, 10_000 if place % 7 == 0 else 10) for place in range(1, 5001)]
    network, _ = network_of(disturbed)
    late = [time for size, time in network.tables[0].points if 8 * 500 < size < 8 * 5000]
    assert late
    assert set(late) == {10}


@given(
    st.lists(st.tuples(st.integers(8, 1 << 34), st.floats(1, 1e6)), min_size=1, max_size=8),
    st.sampled_from(["all_reduce", "all_gather", "reduce_scatter"]),
    st.integers(1, 4),
    st.integers(1, 8).filter(lambda each: each > 1),
)
def test_what_is_printed_is_read(
    rows: list[tuple[int, float]], test: str, hosts: int, each: int
) -> None:
    text = run(rows, test=test, hosts=hosts, each=each)
    read, warnings = read_nccl_tests(text.encode())
    assert not warnings
    assert [row.size_bytes for row in read] == [size for size, _ in rows]
    for row, (_, time) in zip(read, rows, strict=True):
        assert abs(row.time_ns - time * 1000) <= 6
        assert (row.collective, row.ranks, row.per_host) == (test, hosts * each, each)
