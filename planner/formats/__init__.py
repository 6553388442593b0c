"""Readers and writers of other tools' files."""

from planner.formats.pipedream import read_pipedream

__all__ = ["read_pipedream"]
