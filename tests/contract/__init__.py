"""What every method of every family owes, asserted by `planner.testing`."""
