"""The recipes of CONTRIBUTING.md, followed: a method, a family and a format nobody needs."""
