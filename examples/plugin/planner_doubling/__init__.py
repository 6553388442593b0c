"""A method, a peer, a cluster source and a format for planner; `pyproject.toml` names them."""
