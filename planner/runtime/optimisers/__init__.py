"""The user's optimiser: comparison between ranks, and updates of some of its parameters."""
