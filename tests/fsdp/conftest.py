"""Tests of the command line run commands as its own tests do."""

from tests.cli.conftest import line

__all__ = ["line"]
