"""The recipe of CONTRIBUTING.md, followed: a family nobody needs."""
