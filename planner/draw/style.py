"""Colours and sizes that the parts of a chart share."""

__all__ = ["BACKWARD", "COLOURS", "DARK", "FORWARD", "MAX_OUTLINED", "OUTLINE", "OVERRUN"]

# Okabe and Ito's palette: told apart by colour-blind readers too.
COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#F0E442", "#CC79A7", "#0072B2", "#D55E00")
DARK = ("#0072B2", "#D55E00")
OUTLINE = "#333333"
BACKWARD = "#9A9A9A"
FORWARD = "#DADADA"
OVERRUN = "#222222"
MAX_OUTLINED = 400
"""With more bars in a lane, dark outlines and hatches would hide them."""
