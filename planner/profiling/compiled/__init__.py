"""Graphs that torch.compile makes of a model: what depends on what, and takes how long."""
