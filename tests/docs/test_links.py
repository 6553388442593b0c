"""Pages begin with what they are about, links lead somewhere, generated pages are fresh."""

import re
import subprocess
from functools import cache
from pathlib import Path

import generated
import measured
import pytest
from results import FOLDER, load, markdown

from tests.cli.documents import ROOT

FENCED = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1$", re.DOTALL | re.MULTILINE)
CODE = re.compile(r"`[^`\n]+`")
LINK = re.compile(r"\]\(([^()\s]+)\)")


@cache
def files() -> frozenset[str]:
    """Return the paths of all files in git; of all there are where this is no clone of it.

    A page that a build makes, and that is not committed, is missing for readers of the repository.
    """
    done = subprocess.run(
        ["git", "ls-files", "--cached"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if (ROOT / ".git").exists() and done.returncode == 0:
        return frozenset(done.stdout.splitlines())
    return frozenset(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if path.is_file())


def pages() -> list[str]:
    """Return the paths of all pages: those at the top, and the documentation, generated or not."""
    return sorted(
        name for name in files() if re.fullmatch(r"[^/]+\.md|docs/(?!_build/).*\.md", name)
    )


@cache
def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def anchors(text: str) -> frozenset[str]:
    """Return the anchors of a page's headings, as GitHub and MyST make them."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), flags=re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return frozenset(re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in plain)


def dead(page: str, text: str) -> list[str]:
    """Return the links of a page with this text that lead nowhere."""
    found = []
    for link in LINK.findall(CODE.sub("`code`", FENCED.sub("", text))):
        if re.match("[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        path = Path(target.resolve()).relative_to(ROOT.resolve()).as_posix()
        missing = path not in files()
        if missing or (anchor and anchor not in anchors(text_of(path) if name else text)):
            found.append(link)
    return found


@pytest.mark.parametrize("page", pages())
def test_no_link_is_dead_and_a_paragraph_comes_first(page: str) -> None:
    text = text_of(page)
    assert dead(page, text) == [], "generated pages are written by `python docs/generated.py`"
    if page.lower().endswith("changelog.md"):
        return
    title, opening, *_ = text.split("\n\n")
    assert title.startswith("# ")
    if "_generated" not in page:  # these begin with tables
        assert not re.match(r"[-*|#>!<]|```|\d+\. ", opening)
        assert len(re.findall(r"\S*\w\S*", opening)) >= 10


def test_pages_are_found_and_dead_links_noticed() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/benchmarks.md"} <= set(pages())
    assert {"docs/_generated/results/index.md", "docs/_generated/targets.md"} <= set(pages())
    text = (
        "# A `page`\n[a](docs/index.md) [b](docs/missing.md) [c](#a-page) [d](#another)\n"
        "[e](docs/iteration.md#no-such) [f](https://example.org/x.md) `[g](h.md)`\n"
        "```sh\n[i](j.md)\n```\n"
    )
    missing = ["docs/missing.md", "#another", "docs/iteration.md#no-such"]
    assert dead("README.md", text) == missing


def test_only_what_is_stale_is_written_and_old_pages_go(tmp_path: Path) -> None:
    generated.write(tmp_path, {"same": "1", "deeper/changed": "2", "old/page": "3"})
    same = (tmp_path / "same.md").stat().st_mtime_ns
    wanted = {"same": "1", "deeper/changed": "4", "missing": "5"}
    assert generated.stale(tmp_path, wanted) == ["deeper/changed", "missing", "old/page"]
    generated.write(tmp_path, wanted)
    assert generated.stale(tmp_path, wanted) == []
    assert (tmp_path / "same.md").stat().st_mtime_ns == same
    assert (tmp_path / "deeper" / "changed.md").read_text() == "4"


@pytest.mark.slow
def test_no_committed_page_is_stale() -> None:
    names = generated.stale(generated.FOLDER, generated.pages())
    assert not names, "`python docs/generated.py` writes these anew; commit them"


def test_every_results_file_has_a_page_with_all_its_tables() -> None:
    pages = measured.pages()
    names = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.json")}
    assert set(pages) == {"index", *names}
    for name in names:
        results = load(name)
        assert f"[{name}]({name}.md)" in pages["index"]
        assert results.command in pages[name]
        assert results.date in pages[name]
        for section in results.sections:
            assert all(markdown(table) in pages[name] for table in section.tables), name
