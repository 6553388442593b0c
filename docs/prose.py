"""The prose of the project: docstrings and comments of the package, sentences of the pages.

    python docs/prose.py [--count N] [--seed TEXT]

prints some of each, drawn at random, to be read afresh. The seed is by default the hash of the
commit, so nobody chooses it.
"""

import argparse
import ast
import re
import subprocess
import tokenize
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from random import Random

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "planner"
_WRITTEN = (path for path in (ROOT / "docs").rglob("*.md") if "_generated" not in path.parts)
PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(_WRITTEN))

_CODE = re.compile(r"```.*?```|<!--.*?-->|\$\$.*?\$\$", re.DOTALL)
_SPANS = re.compile(r"``.*?``|`[^`]*`|\$[^$\n]*\$|\]\([^)]*\)|\"[^\"\n]*\"", re.DOTALL)
_NOT_PROSE = re.compile(r"\s*(>>>|\.\.\. |\w[\w, *]* : |[|#]|- *$|!\[)")
_END = re.compile(r"(?<=[.!?:]) +(?=[A-Z`*\[])")


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each docstring of the package, those of constants too."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", cleandoc(text)


def comments() -> Iterator[tuple[str, str]]:
    """Yield the place and the text of each line of a comment in the package."""
    for path in sorted(PACKAGE.rglob("*.py")):
        with path.open(encoding="utf-8") as source:
            for token in tokenize.generate_tokens(source.readline):
                if token.type == tokenize.COMMENT:
                    yield f"{path.relative_to(ROOT)}:{token.start[0]}", token.string.lstrip("# ")


def page_sentences() -> Iterator[tuple[str, str]]:
    """Yield the page and the text of each sentence; tables, headings and code are left out."""
    for path in PAGES:
        text = _CODE.sub("", path.read_text(encoding="utf-8"))
        for paragraph in re.split(r"\n\s*\n|\n(?=- |\d\. )", text):
            lines = [line for line in paragraph.splitlines() if not _NOT_PROSE.match(line)]
            sentences = _END.split(" ".join(lines).strip())
            yield from ((str(path.relative_to(ROOT)), one) for one in sentences if " " in one)


def spoken(text: str) -> str:
    """Return a text without what is quoted, code, mathematics, links and lines of sections."""
    lines = (line for line in text.splitlines() if not _NOT_PROSE.match(line))
    return _SPANS.sub(" ", "\n".join(lines))


def main() -> None:
    """Print the sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=60, metavar="N")
    parser.add_argument("--seed", metavar="TEXT", help="default: the hash of the commit")
    options = parser.parse_args()
    head = ["git", "rev-parse", "HEAD"]
    seed = options.seed or subprocess.check_output(head, cwd=ROOT, text=True).strip()
    draw = Random(seed)
    first = [(where, text.split("\n\n")[0]) for where, text in docstrings()]
    for kind, texts in (("docstrings", first), ("sentences", [*page_sentences()])):
        print(f"# {options.count} of {len(texts)} {kind} (seed {seed})\n")
        for where, text in sorted(draw.sample(texts, options.count)):
            print(f"{where}\n    {' '.join(text.split())}\n")


if __name__ == "__main__":
    main()
