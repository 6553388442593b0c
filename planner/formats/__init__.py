"""Readers and writers of other tools' files."""

from planner.formats.kineto import read_kineto
from planner.formats.msccl import write_msccl
from planner.formats.pipedream import read_pipedream
from planner.formats.readers import READERS, Reader

__all__ = ["READERS", "Reader", "read_kineto", "read_pipedream", "write_msccl"]
