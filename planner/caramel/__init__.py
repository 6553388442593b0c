"""Caramel: order, batches, windows and depth of gradient transfers."""
