"""Makes the measured clusters of ``data/clusters`` from public repositories.

    python data/make_networks.py FOLDER

FOLDER holds clones: ``nccl-tests-cluster`` (github.com/xxrjun), ``vidur`` (github.com/microsoft)
and ``xla`` (github.com/openxla). Only times and sizes are taken from them; which files, and under
which licence, stands in each cluster's ``source`` and ``notes``.
"""

import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from planner.formats.nccl_tests import read_nccl_tests
from planner.formats.timed_rows import TimedRow, network_of
from planner.formats.vidur import read_vidur
from planner.jsonio.measured_network import collectives_of

HERE = Path(__file__).parent / "clusters"


def nccl_tests(paths: Iterable[Path]) -> Iterator[TimedRow]:
    """Yield the rows of logs, a test a folder or a file."""
    for path in sorted(paths):
        name = next((p for p in reversed(path.parts) if "_perf" in p), path.name)
        try:
            rows, warnings = read_nccl_tests(path.read_bytes(), name=name)
        except ValueError as error:
            print(f"{path}: {error}", file=sys.stderr)
            continue
        for warning in warnings:
            print(f"{path}: {warning}", file=sys.stderr)
        yield from rows


def xla(path: Path, key: str) -> Iterator[TimedRow]:
    """Yield the rows of one device of XLA's table of collectives: bytes a second of a tensor."""
    text = path.read_text(encoding="utf-8")
    place = text.index(f'key: "{key}"')
    after = text.find("\n    key: ", place + 1)
    part = text[place : after if after > 0 else len(text)]
    for number, entry in enumerate(part.split("instruction {")[1:]):
        opcode = re.search(r'opcode: "([\w-]+)"', entry)
        groups = re.search(r"num_devices_per_group: (\d+)", entry)
        speed = re.search(r"network_throughput_bytes_per_sec: (\d+)", entry)
        shape = re.search(r"element_type: F32\s+dimensions: (\d+)", entry)
        if not (opcode and groups and speed and shape):
            continue
        name, ranks = opcode[1].replace("-", "_"), int(groups[1])
        if name not in ("all_reduce", "all_gather", "reduce_scatter"):
            continue
        size = tensor_bytes(name, 4 * int(shape[1]), ranks)
        time = round(size[1] * 10**9 / int(speed[1]))
        yield TimedRow(name, ranks, ranks, size[0], time, f"entry {number}")  # type: ignore[arg-type]


def tensor_bytes(name: str, result: int, ranks: int) -> tuple[int, int]:
    """Return the whole message's bytes, and those the table divides by, of a result's bytes."""
    whole = result * ranks if name == "reduce_scatter" else result
    return whole, whole


def write(name: str, rows: Iterable[TimedRow], **fields: Any) -> None:
    """Write one cluster."""
    network, warnings = network_of(rows)
    for warning in warnings:
        print(f"{name}: {warning}", file=sys.stderr)
    provenance = fields.pop("provenance")
    body = json.dumps({"name": name, **fields}, indent=1, ensure_ascii=False)[:-2]
    parts = []
    for collective, tables in collectives_of(network).items():
        lines = ",\n   ".join(json.dumps(table) for table in tables)
        parts.append(f'  "{collective}": [\n   {lines}\n  ]')
    tables = ",\n".join(parts)
    origin = json.dumps(provenance, ensure_ascii=False)
    text = f'{body},\n "network": {{"provenance": {origin}, "collectives": {{\n{tables}\n }}}}\n}}\n'
    (HERE / f"{name}.json").write_text(text, encoding="utf-8")
