"""Writes the pages that are made from code or from data, into `docs/_generated`.

    python docs/generated.py [--check]

They are committed, so that links to them lead somewhere without a build. With `--check` nothing is
written, and the run ends with an error if a page is stale.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(__file__).parent / "_generated"


def pages() -> dict[str, str]:
    """Return the texts of all generated pages, by their names without the suffix."""
    # Each of them loads a part of the package; whoever only writes pages needs none.
    import json_reference
    import measured
    import plan_table
    import shipped
    import target_rules

    made = {"targets": target_rules.page(), "plan_fields": plan_table.page()}
    for folder, module in (
        ("json", json_reference),
        ("results", measured),
        ("shipped", shipped),
    ):
        made |= {f"{folder}/{name}": page for name, page in module.pages().items()}
    return made


def stale(folder: Path, wanted: Mapping[str, str]) -> list[str]:
    """Return the names of pages that are missing, differ from what is wanted, or are not wanted."""
    found = {
        path.relative_to(folder).with_suffix("").as_posix(): path.read_text(encoding="utf-8")
        for path in folder.rglob("*.md")
    }
    return sorted(
        name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name)
    )


def write(folder: Path, wanted: Mapping[str, str]) -> None:
    """Write pages; one that would not change is left alone, so that it is not built again.

    Parameters
    ----------
    folder : Path
        Where they go; it is made if it is missing. Old pages in it are removed.
    wanted : mapping of str to str
        Their texts, by their names without the suffix; a name may have a folder before it.
    """
    for name in stale(folder, wanted):
        path = folder / f"{name}.md"
        if name in wanted:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(wanted[name], encoding="utf-8")
        else:
            path.unlink()


def main() -> None:
    """Write the pages, or say which are stale."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    wanted = pages()
    if options.check and (names := stale(FOLDER, wanted)):
        sys.exit(f"stale pages: {', '.join(names)}; `python docs/generated.py` writes them anew")
    if not options.check:
        write(FOLDER, wanted)


if __name__ == "__main__":
    main()
