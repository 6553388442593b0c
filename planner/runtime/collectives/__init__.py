"""Ways to sum up over all ranks: gloo's ring, and BML's schedules on a BCube."""
