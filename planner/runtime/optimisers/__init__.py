"""The user's optimiser: what ranks compare of it, and how it updates a part of its parameters."""
