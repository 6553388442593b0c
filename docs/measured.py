"""Makes a page for each file of `benchmarks/results`: all that a benchmark printed, as tables.

The pages written by hand say what matters of them in words.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))

from results import Results, load, markdown, names


def pages() -> dict[str, str]:
    """Return the pages by their names, and "index"."""
    known = {name: load(name) for name in names()}
    return {"index": _index(known), **{name: page(name, known[name]) for name in known}}


def page(name: str, results: Results) -> str:
    """Return the page of a results file."""
    return "\n\n".join(_blocks(name, results)) + "\n"


def _blocks(name: str, results: Results) -> Iterator[str]:
    yield f"# Measured: {name}"
    yield _sentence(results.about)
    yield f"```sh\n{results.command}\n```"
    yield f"{results.date}; {_sentence(results.machine)}; code {_sentence(results.commit)}"
    for section in results.sections:
        if section.title:
            yield f"## {_plain(section.title)}"
        yield from map(_plain, section.notes)
        for table in section.tables:
            yield from (_plain(text) for text in (table.about,) if text)
            yield markdown(table)


def _index(known: dict[str, Results]) -> str:
    rows = "\n".join(
        f"| [{name}]({name}.md) | {_sentence(results.about)} | {results.date} |"
        for name, results in known.items()
    )
    tree = "\n".join(known)
    return f"""# Everything measured

What the benchmarks printed, file by file. [What matters of it](../../benchmarks.md).

| results | what | date |
| --- | --- | --- |
{rows}

```{{toctree}}
:hidden:
:maxdepth: 1

{tree}
```
"""


def _sentence(text: str) -> str:
    return _plain(text).replace("|", "\\|")


def _plain(text: str) -> str:
    """Return printed text in which Markdown sees no HTML."""
    return text.replace("<", "&lt;")
