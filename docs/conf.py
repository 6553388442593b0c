"""Builds the documentation: ``sphinx-build -W docs docs/_build``."""

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import mathml

import planner

project = "planner"
author = "The planner developers"
copyright = "2026, The planner developers"
release = planner.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["wide.css"]
html_title = "planner"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"
suppress_warnings = ["ref.python"]  # each problem has its own `Problem`: which one, the page says
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
html_theme_options = {"navigation_with_keys": True}


def setup(app: Any) -> None:
    """Write formulas as MathML."""
    mathml.setup(app)
