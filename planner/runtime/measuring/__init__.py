"""Measurements: sweeps of the network, trial runs, traces, and comparisons with predictions."""
