"""Builds the documentation: ``sphinx-build -W docs docs/_build``."""

from importlib import metadata

project = "planner"
author = "The planner developers"
copyright = "2026, The planner developers"
release = metadata.version("planner")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "planner"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
default_role = "code"
suppress_warnings = ["ref.python"]  # each problem has its own `Problem`: which one, the page says
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
