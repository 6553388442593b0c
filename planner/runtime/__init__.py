"""Executing plans over gloo: the adapter, the executors, and what they measured.

This package needs torch, but for `planner.runtime.programs`. It reads plans and decides nothing.
"""
