"""The pages are built without a warning; in a real browser, as wide as a laptop and as a phone,
nothing runs out of them.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from planner.view.page import page
from tests.cli.documents import ROOT
from tests.report.making import model, report

pytestmark = [pytest.mark.slow, pytest.mark.pages]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")
WIDTHS = (1400, 390)
LONG = "a_module_with_a_long_name.of.layers.12.attention.query_key_value_projection"

BUILD = """
import gc
import sys
from pathlib import PurePosixPath

import furo
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.cmd.build import main
from sphinx.ext import viewcode

# What no test looks at is not made, which takes half of the time: pages of sources, the index of
# the search, and typographic quotes. Links to sources and the search page stay.
viewcode.collect_pages = lambda app: ()
StandaloneHTMLBuilder.index_page = lambda *_: None
StandaloneHTMLBuilder.dump_search_index = lambda *_: None

# The contents of all pages, beside each page, are made once for each folder, and without what a
# page defines.
contents, made = furo._compute_navigation_tree, {}


def contents_of_folder(context):
    folder = PurePosixPath(context["pagename"]).parent
    return made[folder] if folder in made else made.setdefault(folder, contents(context))


furo._compute_navigation_tree = contents_of_folder

gc.disable()  # what is made stays until the end
options = ("-q", "-W", "-D", "toc_object_entries=0", "-D", "smartquotes=0")
sys.exit(main([*options, "docs", sys.argv[1]]))
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser() -> str:
    installed = next(filter(None, map(shutil.which, BROWSERS)), None)
    if installed is None:
        pytest.skip(f"no browser: none of {', '.join(BROWSERS)} is installed")
    return installed


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, list[str]]]:
    """The address of the documentation and of two reports, and their pages."""
    for needed in ("sphinx", "furo", "myst_parser"):
        pytest.importorskip(needed)
    folder = tmp_path_factory.mktemp("site")
    subprocess.run([sys.executable, "-c", BUILD, str(folder)], cwd=ROOT, check=True)
    (folder / "a-report.html").write_text(page(report()), encoding="utf-8")
    (folder / "a-long-report.html").write_text(page(report(model(LONG, LONG))), encoding="utf-8")
    pages = [str(path.relative_to(folder)) for path in sorted(folder.glob("**/*.html"))]
    shutil.copy(Path(__file__).with_name("measuring.html"), folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/measuring.html", pages
    server.shutdown()
    server.server_close()


def test_pages_are_built_without_a_warning(site: tuple[str, list[str]]) -> None:
    assert {"index.html", "json.html", "api.html"} <= set(site[1])


def test_nothing_runs_out_of_a_page(
    browser: str, site: tuple[str, list[str]], tmp_path: Path
) -> None:
    address, pages = site
    widths = ",".join(map(str, WIDTHS))
    asked = f"{address}?widths={widths}&pages={','.join(pages)}"
    look = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    look += [f"--user-data-dir={tmp_path}", "--virtual-time-budget=300000", "--dump-dom"]
    command = [browser, *look, "--window-size=1600,1000", asked]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    (measured,) = re.findall(r'<pre id="found"[^>]*>(.*?)</pre>', done.stdout, re.DOTALL)
    outside = json.loads(unescape(measured))
    assert len(outside) == len(pages) * len(WIDTHS)
    assert {name: what for name, what in outside.items() if what} == {}
