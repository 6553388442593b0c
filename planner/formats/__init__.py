"""Readers and writers of other tools' files."""

from planner.formats.exporters.msccl import write_msccl
from planner.formats.importers.kineto import read_kineto
from planner.formats.importers.pipedream import read_pipedream
from planner.formats.importers.readers import READERS, Reader

__all__ = ["READERS", "Reader", "read_kineto", "read_pipedream", "write_msccl"]
