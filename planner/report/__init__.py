"""A plan as a page for people: what was chosen, why, and how far it can be trusted.

`page` turns a `Report` into one HTML file that needs nothing else: no script, no network.
"""

from planner.report.page import Report, page

__all__ = ["Report", "page"]
