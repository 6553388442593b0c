"""A plan as an HTML page: the choice, its reasons, and its accuracy.

`page` turns a `Report` into one HTML file without scripts and external resources.
"""

from planner.report.page import Report, page

__all__ = ["Report", "page"]
