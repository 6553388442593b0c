"""Timing: sweeps of the network, trial runs, traces of steps, and what plans predicted of them."""
