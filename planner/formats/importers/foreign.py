"""Recognises files of other tools that were given by mistake, and says what to do with them.

A command reports this instead of its own parse error. To add a kind, add a row to `FOREIGN`, or to
`TRACES` if it is written in the Trace Event Format, as PyTorch's profiler writes. Other JSON
documents are in neither: JSON readers tell them apart by their fields. Traces are recognised by
names that only one tool uses, at the start of the text: files may lack their end, and some are no
valid JSON.

Complexity: O(characters). Source: own; NCCL's src/graph/xml.cc for its files;
horovod/common/timeline.cc; plugins/profiler/example of NCCL 2.23 to 2.28; exports of TensorFlow's
and JAX's profilers.
"""

import re
from typing import NamedTuple

from planner.formats.importers import deepspeed_comms, nccl_tests

SEARCHED = 1 << 24  # bytes in which a mark is sought


class Foreign(NamedTuple):
    """A kind of file.

    `mark` is found in such files and in no others; `instead` says what to give or to do. `reads` is
    the format of ``planner import`` that reads such files: that reader reports its own errors.
    """

    name: str
    mark: re.Pattern[str]
    instead: str
    reads: str = ""

    @property
    def told(self) -> str:
        """What the file is, and what to do."""
        return f"this is {self.name}: {self.instead}"


_NO_TIMES = (
    "and times nothing. A network is timed by nccl-tests (planner import nccl-tests LOG -o "
    "network.json, to give as --network) or by planner calibrate network; a cluster is a JSON file "
    "with the number of machines and their NICs (--cluster; planner schema shows its fields)"
)
_XML = r"\A\ufeff?\s*(<\?xml[^>]*\?>\s*|<!--.*?-->\s*|<!DOCTYPE[^>]*>\s*)*"

FOREIGN = (
    Foreign(
        "NCCL's topology of one host (NCCL_TOPO_DUMP_FILE)",
        re.compile(_XML + r"<system\b[^>]*>.*?<(cpu|pci|gpu|nic|net)\b", re.DOTALL),
        "it shows how PCI, NVLink and NICs join the GPUs of a host, " + _NO_TIMES,
    ),
    Foreign(
        "NCCL's rings and trees (NCCL_GRAPH_DUMP_FILE)",
        re.compile(_XML + r"<graphs\b[^>]*>.*?<graph\b", re.DOTALL),
        "it shows which channels NCCL chose, " + _NO_TIMES,
    ),
    Foreign(
        "a summary of DeepSpeed's communication logger",
        deepspeed_comms.HEADER,
        "planner import deepspeed-comms LOG --ranks N --ranks-per-host G -o network.json makes a "
        "network (--network) of its all_reduce, all_gather and reduce_scatter, if it has any",
        "deepspeed-comms",
    ),
    Foreign(
        "a log of DeepSpeed's communication logger, operation by operation",
        re.compile(r"\bcomm op: \w+ \| time ?\(ms\): "),
        "have the job call deepspeed.comm.log_summary(), and give what it prints to planner import "
        "deepspeed-comms",
    ),
    Foreign(
        "what nccl-tests print",
        nccl_tests.HEADER,
        "planner import nccl-tests LOG -o network.json makes a network of it, to give as --network",
        "nccl-tests",
    ),
)
"""Kinds of files, unmistakable ones first."""


_GIVE = (
    "give a trace of torch.profiler, recorded with ProfilerActivity.CPU and, on GPUs, "
    "ProfilerActivity.CUDA (prof.export_chrome_trace)"
)

TRACES = (
    Foreign(
        "Horovod's timeline (HOROVOD_TIMELINE), not a trace of PyTorch's profiler",
        re.compile(
            r'"(NEGOTIATE_(ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL|REDUCESCATTER|ADASUM)'
            r"|(MEMCPY_(IN|OUT)|INIT)_FUSION_BUFFER|WAIT_FOR_(OTHER_TENSOR_)?DATA|CYCLE_START"
            r'|(NCCL|MPI|GLOO|CCL)_(ALLREDUCE|ALLGATHER|BCAST|ALLTOALL|REDUCESCATTER))"'
        ),
        "it says when tensors were negotiated and sent, and nothing of computation; " + _GIVE,
    ),
    Foreign(
        "a trace of NCCL's profiler plugin (NCCL_PROFILER_PLUGIN), not of PyTorch's profiler",
        re.compile(
            r'"cat"\s*:\s*"(GROUP|COLL|P2P|GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|PROXY|NET'
            r'|NET_IB|NET_SOCK|CE_COLL|CE_SYNC|CE_BATCH)"'
        ),
        "it says what NCCL did, and nothing of computation; " + _GIVE,
    ),
    Foreign(
        "a trace of TensorFlow's or JAX's profiler, not of PyTorch's",
        re.compile(r'"/(device|host):[A-Z]+(:\d+)?[" ]|"/job:\w+|"(XLA|TensorFlow) (Ops|Modules)"'),
        "it lacks the operators, autograd's nodes and the launches of kernels; " + _GIVE,
    ),
)
"""Kinds of traces that are not of PyTorch's profiler."""


def foreign(data: bytes, reader: str = "") -> str:
    """Name the tool that wrote a file, and the file to give instead; empty if unknown.

    `data` is the file's beginning, `reader` the format as which it was read.
    """
    text = data[:SEARCHED].decode("utf-8", errors="replace")
    if text.lstrip("\ufeff \t\r\n").startswith("{"):
        return ""
    kind = next((kind for kind in FOREIGN if kind.mark.search(text)), None)
    return "" if kind is None or (reader and kind.reads == reader) else kind.told


def foreign_trace(head: bytes) -> str:
    """Return `foreign` of a trace that PyTorch's profiler did not write; empty if unknown."""
    text = head.decode("utf-8", errors="replace")
    return next((kind.told for kind in TRACES if kind.mark.search(text)), "")
