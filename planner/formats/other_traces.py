"""Recognises traces of tools other than PyTorch's profiler, and says what to give instead.

Other tools write the same Trace Event Format. They are recognised by names that only they use, at
the start of the text: files may lack their end, and some are no valid JSON.

Complexity: O(1), as the start of the text is bounded.
Source: horovod/common/timeline.cc; plugins/profiler/example of NCCL 2.23 to 2.28; exports of
TensorFlow's and JAX's profilers.
"""

import re
from typing import NamedTuple

__all__ = ["other_trace"]

_GIVE = (
    "give a trace of torch.profiler, recorded with ProfilerActivity.CPU and, on GPUs, "
    "ProfilerActivity.CUDA (prof.export_chrome_trace)"
)


class _Tool(NamedTuple):
    signs: re.Pattern[bytes]
    says: str


_TOOLS = (
    _Tool(
        re.compile(
            rb'"(NEGOTIATE_(ALLREDUCE|ALLGATHER|BROADCAST|ALLTOALL|REDUCESCATTER|ADASUM)'
            rb"|(MEMCPY_(IN|OUT)|INIT)_FUSION_BUFFER|WAIT_FOR_(OTHER_TENSOR_)?DATA|CYCLE_START"
            rb'|(NCCL|MPI|GLOO|CCL)_(ALLREDUCE|ALLGATHER|BCAST|ALLTOALL|REDUCESCATTER))"'
        ),
        "this is Horovod's timeline (HOROVOD_TIMELINE), not a trace of PyTorch's profiler: it "
        "says when tensors were negotiated and sent, and nothing of computation",
    ),
    _Tool(
        re.compile(
            rb'"cat"\s*:\s*"(GROUP|COLL|P2P|GROUP_API|COLL_API|P2P_API|KERNEL_LAUNCH|PROXY|NET'
            rb'|NET_IB|NET_SOCK|CE_COLL|CE_SYNC|CE_BATCH)"'
        ),
        "this is a trace of NCCL's profiler plugin (NCCL_PROFILER_PLUGIN), not of PyTorch's "
        "profiler: it says what NCCL did, and nothing of computation",
    ),
    _Tool(
        re.compile(
            rb'"/(device|host):[A-Z]+(:\d+)?[" ]|"/job:\w+|"(XLA|TensorFlow) (Ops|Modules)"'
        ),
        "this is a trace of TensorFlow's or JAX's profiler, not of PyTorch's: it lacks the "
        "operators, autograd's nodes and the launches of kernels",
    ),
)


def other_trace(head: bytes) -> str:
    """Return what a file is and what to give instead; empty if no other tool is recognised."""
    for tool in _TOOLS:
        if tool.signs.search(head):
            return f"{tool.says}; {_GIVE}"
    return ""
