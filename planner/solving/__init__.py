"""The one path from a problem to a result, and everything that can be asked of a result."""
