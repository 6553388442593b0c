"""What benchmarks print, as data: the files of `benchmarks/results`, written and read here.

A benchmark prints Markdown: headings, sentences, tables. Its results file holds the same as data,
with the command, the date, the machine and the commit of the code:

    {"benchmark", "about", "command", "date", "machine", "commit",
     "sections": [{"title", "notes": [...], "tables": [{"about", "columns", "units", "rows"}]}]}

A column of numbers holds numbers and says their unit once. Times of different units become seconds.
"2.3% (85%)" and "1.02× (1.00 – 1.06)" become lists. A limit stays a text, as "≥ 30" or "<0.01"; no
value is null. A column that is no numbers stays as printed.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"

SECONDS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "h": 3600.0}
UNITS = (*SECONDS, "%", "×", "x", "points", "MiB")
NUMBER = re.compile(
    r"(?P<limit>[≥≤<] ?)?(?P<number>[+-]?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?:e[+-]?\d+)?)"
    rf"(?: ?(?P<unit>{'|'.join(UNITS)})(?!\w))?"
)
SEVERAL = re.compile(r"# \(#\)|# \(# – #\)|# – #|# → #|#")
"""How the numbers of one cell may stand."""


@dataclass(frozen=True, slots=True)
class Table:
    """A table.

    Attributes
    ----------
    about : str
        The sentences right above it.
    columns : list of str
        Headings, as printed.
    units : list of str
        The unit of each column's numbers; "" for bare numbers and for texts.
    rows : list of list
        Numbers, lists of numbers, texts, None.
    """

    about: str
    columns: list[str]
    units: list[str]
    rows: list[list[Any]]

    def column(self, name: str, occurrence: int = 0) -> list[Any]:
        """Return the values of the column of a name, times in seconds."""
        places = [place for place, column in enumerate(self.columns) if column == name]
        place = places[occurrence]
        scale = SECONDS.get(self.units[place])
        values = [row[place] for row in self.rows]
        if scale is None:
            return values
        return [scale * one if isinstance(one, int | float) else one for one in values]

    def cell(self, row: str, column: str) -> Any:
        """Return the value in the row whose first cell is `row`."""
        (at,) = (place for place, one in enumerate(self.rows) if one[0] == row)
        return self.column(column)[at]


@dataclass(frozen=True, slots=True)
class Section:
    """What stands under a heading.

    Attributes
    ----------
    title : str
        The headings above it, joined by " / "; "" before the first one.
    notes : list of str
        Sentences that are above no table.
    tables : list of Table
        Tables.
    """

    title: str
    notes: list[str]
    tables: list[Table]


@dataclass(frozen=True, slots=True)
class Results:
    """A results file.

    Attributes
    ----------
    benchmark : str
        The script, without its suffix.
    about : str
        What it measures or computes.
    command : str
        What prints these numbers.
    date : str
        When they were printed, YYYY-MM-DD.
    machine : str
        Where, and how.
    commit : str
        Which code printed them: a commit; "at or before" one where nobody noted it at the time.
    sections : list of Section
        What was printed.
    """

    benchmark: str
    about: str
    command: str
    date: str
    machine: str
    commit: str
    sections: list[Section]

    def section(self, title: str) -> Section:
        """Return the section of a title."""
        (found,) = (section for section in self.sections if section.title == title)
        return found

    def table(self, title: str, place: int = 0) -> Table:
        """Return a table of the section of a title."""
        return self.section(title).tables[place]

    def number(self, pattern: str) -> float:
        """Return the number that a pattern's group finds in the sentences, the first time."""
        for section in self.sections:
            for note in (*section.notes, *(table.about for table in section.tables)):
                if found := re.search(pattern, note):
                    return float(found[1].replace(",", ""))
        raise LookupError(pattern)


def names() -> list[str]:
    """Return the names of all results files, such as "reproduction/bml"."""
    found = (path.relative_to(FOLDER).with_suffix("") for path in FOLDER.rglob("*.json"))
    return sorted(path.as_posix() for path in found)


def load(name: str) -> Results:
    """Return the results file of a name."""
    path = FOLDER / f"{name}.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    parts = [
        Section(part["title"], part["notes"], [Table(**table) for table in part["tables"]])
        for part in document.pop("sections")
    ]
    return Results(**document, sections=parts)


def dumps(results: Results) -> str:
    """Return the text of a results file: a row of a table a line, so that changes can be read."""
    rows: list[str] = []

    def kept(row: list[Any]) -> str:
        rows.append(json.dumps(row, ensure_ascii=False))
        return f"\0{len(rows) - 1}\0"

    document = asdict(results)
    for section in document["sections"]:
        for table in section["tables"]:
            table["columns"], table["units"] = kept(table["columns"]), kept(table["units"])
            table["rows"] = [kept(row) for row in table["rows"]]
    text = json.dumps(document, ensure_ascii=False, indent=1)
    return re.sub(r'"\\u0000(\d+)\\u0000"', lambda found: rows[int(found[1])], text) + "\n"


def sections(text: str) -> list[Section]:
    """Return what a benchmark printed, section by section.

    Parameters
    ----------
    text : str
        Markdown.
    """
    found = [Section("", [], [])]
    headings: list[tuple[int, str]] = []
    about = ""
    for block in _blocks(text):
        first = block[0]
        if heading := re.fullmatch(r"(#+) (.*)", first):
            level = len(heading[1])
            headings = [one for one in headings if one[0] < level] + [(level, heading[2].strip())]
            found.append(Section(" / ".join(title for _, title in headings), [], []))
            about = ""
        elif first.startswith("|"):
            if about:
                found[-1].notes.pop()
            found[-1].tables.append(_table(about, block))
            about = ""
        else:
            about = "\n".join(block)
            found[-1].notes.append(about)
    return [section for section in found if section.notes or section.tables]


def unknown(printed: Sequence[Section], kept: Sequence[Section]) -> list[list[str]]:
    """Return the columns of the tables that were printed and have no like among those kept."""
    known = [table.columns for section in kept for table in section.tables]
    columns = [table.columns for section in printed for table in section.tables]
    return [one for one in columns if one not in known]


def markdown(table: Table) -> str:
    """Return a table in Markdown."""
    lines = [table.columns, ["---"] * len(table.columns)]
    columns = list(zip(table.units, table.columns, strict=True))
    lines += [
        [_text(cell, *column) for cell, column in zip(row, columns, strict=True)]
        for row in table.rows
    ]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _blocks(text: str) -> Iterator[list[str]]:
    """Yield headings, tables and paragraphs, as lines; each ends at an empty line at the latest."""
    block: list[str] = []
    for line in [*text.splitlines(), ""]:
        alone, below = line.startswith("#"), bool(block) and block[0].startswith("|")
        if block and (alone or not line.strip() or (line.startswith("|") and not below)):
            yield block
            block = []
            below = False
        if alone:
            yield [line]
        elif line.strip() and (line.startswith("|") or not below):  # solvers print into tables
            block.append(line.rstrip())


def _table(about: str, lines: Sequence[str]) -> Table:
    header, _, *rows = ([cell.strip() for cell in line[1:-1].split(" |")] for line in lines)
    values, units = [], []
    for place in range(len(header)):
        column, unit = _numbers([row[place] for row in rows])
        values.append(column)
        units.append(unit)
    return Table(about, header, units, [list(row) for row in zip(*values, strict=True)])


def _numbers(cells: Sequence[str]) -> tuple[list[Any], str]:
    """Return the values of a column and their unit; the cells themselves if they are no numbers."""
    as_printed = [None if cell in {"", "–"} else cell for cell in cells]
    found = [list(NUMBER.finditer(cell)) if cell else [] for cell in as_printed]
    numeric = all(
        cell is None or SEVERAL.fullmatch(NUMBER.sub("#", cell)) is not None for cell in as_printed
    )
    # Numbers within a cell share the unit of the first.
    units = {one[0]["unit"] or "" for one in found if one}
    units |= {part["unit"] for one in found for part in one if part["unit"]}
    timed = len(units) > 1 and units <= set(SECONDS)
    if not numeric or not units or (len(units) > 1 and not timed):
        return as_printed, ""
    unit = "s" if timed else units.pop()

    def value(part: re.Match[str]) -> Any:
        number: float = json.loads(part["number"].replace(",", "").lstrip("+"))
        if timed:
            number = float(f"{number * SECONDS[part['unit']]:.9g}")
        return f"{part['limit'].strip()} {number}" if part["limit"] else number

    values = [[value(part) for part in one] for one in found]
    return [one[0] if len(one) == 1 else (one or None) for one in values], _known(unit)


def _known(unit: str) -> str:
    return "×" if unit == "x" else unit


def _text(value: Any, unit: str, column: str) -> str:
    if value is None:
        return "–"
    space = "" if unit in {"", "×"} else " "
    if isinstance(value, list):
        return " – ".join(_text(one, unit, column) for one in value)
    if isinstance(value, int | float):
        sign = "+" if column == "difference" else ""
        return f"{value:{sign},}{space}{unit}"
    return f"{value}{space}{unit}" if value[0] in "≥≤<" and value[-1].isdigit() else value
