"""Rows of a sweep in files: JSON lines, CSV, and Parquet where pyarrow is."""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from planner.errors import InvalidInputError, MissingExtraError

__all__ = ["FORMATS", "check_format", "encoded", "known_rows"]

FORMATS = (".jsonl", ".csv", ".parquet")
"""How files of tables end."""

Row = dict[str, Any]


def check_format(path: str) -> None:
    """Refuse a file that cannot be written.

    Raises
    ------
    InvalidInputError
        If its name ends otherwise.
    MissingExtraError
        If pyarrow is needed and missing.
    """
    suffix = Path(path).suffix
    if suffix not in FORMATS:
        raise InvalidInputError("--output", f"expected a name that ends in {', '.join(FORMATS)}")
    if suffix == ".parquet":
        _arrow()


def encoded(rows: Sequence[Row], suffix: str) -> bytes:
    """Return a table as the bytes of a file; columns that a row does not have are empty there.

    Parameters
    ----------
    rows : sequence of dict
        The rows.
    suffix : str
        One of `FORMATS`.
    """
    if suffix == ".jsonl":
        return b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if suffix == ".csv":
        text = io.StringIO()
        table = csv.DictWriter(text, columns, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
        return text.getvalue().encode()
    pa, parquet = _arrow()
    sink = io.BytesIO()
    full = [{name: row.get(name) for name in columns} for row in rows]
    parquet.write_table(pa.Table.from_pylist(full), sink)
    return sink.getvalue()


def known_rows(paths: Iterable[Path]) -> dict[str, Row]:
    """Return rows by case, of files of JSON lines; a line that was cut off is none.

    Parameters
    ----------
    paths : iterable of Path
        Files that may be missing.
    """
    known: dict[str, Row] = {}
    for path in paths:
        if not path.exists():
            continue
        for line in path.read_bytes().splitlines():
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and isinstance(row.get("case"), str):
                known[row["case"]] = row
    return known


def _arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError:
        raise MissingExtraError("pyarrow", "sweep") from None
    return pa, parquet
