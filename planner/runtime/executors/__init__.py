"""Executors that follow a plan during training, one per kind of program, and their shared parts."""
