"""Graphs that torch.compile makes of a model: what depends on what in them, and what takes how long."""
