"""Formulas as MathML, which browsers draw themselves: no script, and nothing from elsewhere.

`conf.py` makes this Sphinx's way of writing formulas in HTML. Docutils translates them; a formula
it cannot translate ends a build with `-W`.
"""

from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util import logging

_LOG = logging.getLogger(__name__)


def setup(app: Any) -> None:
    """Add the way of writing formulas, under the name `mathml`."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))


def _inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(_mathml(node, display=False))
    raise nodes.SkipNode


def _block(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="math">{_mathml(node, display=True)}</div>\n')
    raise nodes.SkipNode


def _mathml(node: nodes.math | nodes.math_block, *, display: bool) -> str:
    formula = node.astext()
    try:
        return str(tex2mathml(formula.replace("…", r"\ldots "), as_block=display))
    except Exception as error:  # noqa: BLE001 - docutils raises what it likes
        _LOG.warning("no MathML of %r: %s", formula, error, location=node)
        return ""
