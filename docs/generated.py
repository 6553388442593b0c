"""Writes pages that are made from code or from data; `conf.py` calls it before Sphinx reads any."""

from collections.abc import Mapping
from pathlib import Path

__all__ = ["write"]


def write(folder: Path, pages: Mapping[str, str]) -> None:
    """Write pages; one that would not change is left alone, so that it is not built again.

    Parameters
    ----------
    folder : Path
        Where they go; it is made if it is missing. Old pages in it are removed.
    pages : mapping of str to str
        Their texts, by their names without the suffix; a name may have a folder before it.
    """
    for old in folder.rglob("*.md"):
        if old.relative_to(folder).with_suffix("").as_posix() not in pages:
            old.unlink()
    for name, text in pages.items():
        path = folder / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
