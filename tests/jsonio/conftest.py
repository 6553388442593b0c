"""Tests of requests run commands as those of the command line do."""

from tests.cli.conftest import line

__all__ = ["line"]
