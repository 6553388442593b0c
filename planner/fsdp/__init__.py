"""What to gather together, when, and what to keep: fully sharded training (FSDP2, ZeRO-3).

A frozen `Problem`, a frozen `Plan`; `check` rejects what is no plan, `evaluate` prices any plan.
"""

from planner.fsdp.checker import check
from planner.fsdp.evaluation import Evaluation, evaluate
from planner.fsdp.plan import Plan, Unit
from planner.fsdp.problem import Mesh, Problem

__all__ = ["Evaluation", "Mesh", "Plan", "Problem", "Unit", "check", "evaluate"]
