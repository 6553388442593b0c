"""The job: how its ranks join, agree, and detect failures."""
