"""Many problems at once: on all cores of this machine, or on an engine that the user has.

`solve_many` solves typed problems or answers requests; `planner.batches.cases` makes requests of
what a sweep varies, and `planner.batches.engines` says where they are answered.
"""

from planner.batches.many import solve_many

__all__ = ["solve_many"]
