"""Recognises kernels that move data between ranks, by their names.

Problem: a trace has only a kernel's name. NCCL's collectives are known; many other libraries have
kernels of their own, and new ones appear, so no list is complete. Method: `FAMILIES` lists
libraries and their names. Another kernel may still send if its name has a word of communication
(`might_send`). Only the function's name counts, not its arguments; for wrappers such as
``cutlass::device_kernel<F>`` the whole name may raise a doubt. Kernels of ATen, CUB and compilers,
which are named after the operators they compute, raise none.
Complexity: O(length of the name), once per name.
Source: names of kernels in the libraries' sources, as of 2025.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from planner.formats.importers.kineto_events import Event
from planner.formats.importers.kineto_trace import Trace
from planner.traces.recorded import Kernels

_BY_NAME_ALONE = "called after a collective"

FAMILIES: Mapping[str, str] = {
    "NCCL, RCCL, MSCCL": r"(nccl|rccl|msccl)(?!pp)",
    "MSCCL++": r"mscclpp",
    "HCCL": r"hccl|hcom_|MoeDistribute(Dispatch|Combine)|aiv_all_",
    "oneCCL": r"one_?ccl|\bccl[_:]",
    "other collective libraries": r"flagcx|(?<![a-z])(bk|cn|e|ix|m|p|su|t|x)ccl|\bcncl",
    "DeepEP and its like": r"\b(deep_?ep|ep|hybrid_ep|uccl|mooncake|pplx|mori)::"
    r"|(inter|intra)_?node(_ll)?::|Ep(Dispatch|Combine)\w*Kernel"
    r"|(dispatch|combine)_(send|recv)_kernel|moe_?(a2a|all_?to_?all|comm(?!on))",
    "NVSHMEM, ROC SHMEM, Intel SHMEM": r"(nv|roc|i)shmem|allToAllV(_2d)?\b|exchangeSplitAndOffset",
    "symmetric memory": r"multimem|symm_?mem|c10d::|hybridCubeMesh|(put|wait)_signal_kernel",
    "user buffers": r"user_?buffers",
    "custom all-reduce (vLLM, SGLang, AITER)": r"cross_device_reduce|custom_?(ar\b|all_?reduce)"
    r"|quick_?reduce::",
    "FlashInfer, TensorRT-LLM": r"trtllm_(all_?reduce|all_?to_?all|mnnvl)|mnnvl|lamport",
    "copies between devices": r"^memcpy p(to|2)p|copy_?peer",
    _BY_NAME_ALONE: r"all_?reduce|all_?gather|reduce_?scatter|all_?(to|2)_?all"
    r"|send_?recv",
}
"""Libraries and the patterns of their kernels' names; case does not matter."""

_KNOWN = {library: re.compile(pattern, re.IGNORECASE) for library, pattern in FAMILIES.items()}
_COMPUTES = re.compile(
    r"(at|cub|thrust|rocprim|hipcub|cudnn|cublas\w*|flash(_attn\w*)?|ck)::"
    r"|triton_(poi|red|per|tem|for|mm)_|Cijk_|nvjet",
    re.IGNORECASE,
)
"""Prefixes of kernels that compute whatever else their names say, such as Inductor's."""
_COPY = re.compile(r"mem(cpy|set)\b", re.IGNORECASE)
_PLAINLY = re.compile(
    r"gem[mv]|matmul|conv|winograd|[dw]grad|cutlass|softmax|norm|elementwise|flash|fmha|attn"
    r"|attention|transpose|relu|gelu|silu|swiglu|rotary|embedding|adam|multi_tensor|fft|bn_|im2col"
    r"|quant|topk|sort|routing|cudnn|cunn|nchw|loss|triton__|(?<![a-z])cast|_to_fp|rope|dropout"
    r"|cumsum|arg(min|max)|activation|index",
    re.IGNORECASE,
)
"""Words in names of kernels that compute, unless a collective is in the name."""
_FUSED = re.compile(r"gemm|matmul|(?<![a-z])mm(?![a-z])|attention|attn", re.IGNORECASE)
"""Words of kernels that fuse computation with a collective."""
_WORDS = re.compile(
    r"dispatch|combine(?!d)|a2a|p2p|peer|remote|rdma|ibgda|nvlink|nvls|xgmi|broadcast|barrier|notify"
    r"|(put|wait)_?signal|collective|exchange|(inter|intra)_?(node|host)|(one|two)_?shot|shmem"
    r"|(?<![a-z])(send|recv|put|push|pull|ring|ipc)(?![a-z])|ccl(?![a-z])",
    re.IGNORECASE,
)
"""Words of communication that computation may have too."""
_STRONG = re.compile(
    r"shmem|multimem|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|a2a", re.IGNORECASE
)
"""Words of communication that raise a doubt even in a kernel's arguments."""


@lru_cache(maxsize=1 << 16)
def called(name: str) -> str:
    """Return a kernel's function without arguments, as in its source."""
    if name.startswith("_Z"):
        parts, at = [], 2
        while found := re.compile(r"[NKSt]*(\d+)").match(name, at):
            length = int(found[1])
            parts.append(name[found.end() : found.end() + length])
            at = found.end() + length
        return "::".join(part for part in parts if not part.startswith("_GLOBAL__")) or name
    if _COPY.match(name):
        return name
    kept, angles, inner = [], 0, 0
    for letter in name.replace("(anonymous namespace)::", ""):
        if angles:  # arguments of a template; a comparison in them is in parentheses
            inner += (letter == "(") - (letter == ")")
            angles += 0 if inner else (letter == "<") - (letter == ">")
        elif letter == "(":
            break
        elif letter == "<":
            angles, inner = 1, 0
        else:
            kept.append(letter)
    words = "".join(kept).split()
    return words[-1] if words else name


@lru_cache(maxsize=1 << 16)
def library_of(name: str) -> str:
    """Return the library of a kernel that moves data between ranks, else an empty string."""
    function = called(name)
    if _COMPUTES.match(function):
        return ""
    library = next((known for known, names in _KNOWN.items() if names.search(function)), "")
    fused = library == _BY_NAME_ALONE and _FUSED.search(function)
    return "" if fused else library


@lru_cache(maxsize=1 << 16)
def might_send(name: str) -> bool:
    """Return whether a kernel of no known family may move data between ranks."""
    function = called(name)
    if library_of(name) or _COMPUTES.match(function):
        return False
    if _STRONG.search(name):
        return True
    return bool(_WORDS.search(function)) and not _PLAINLY.search(function)


@lru_cache(maxsize=1 << 16)
def computes(name: str) -> bool:
    """Return whether a kernel is known by its name to compute."""
    function = called(name)
    return not might_send(name) and bool(_COMPUTES.match(function) or _PLAINLY.search(function))


# ---
# Classifies the kernels of a trace: transfer, copy or computation, and doubtful ones.
#
# Method: a kernel is a transfer if a library is known by its name, or if the profiler calls it a
# collective, in its arguments or by the operator that launched it. `in_doubt` lists others that may
# be; the user can say which are.
#
# Complexity: O(events). Source: own; Kineto as of PyTorch 2.13.

_COPIES = re.compile(r"(hip)?mem(cpy|set)|copy(host|device|buffer)|fillbuffer", re.IGNORECASE)
_SENDING = re.compile(
    r"(c10d|_c10d_functional\w*|symm_mem)::|record_param_comms"
    r"|all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|deep_?ep|nvshmem",
    re.IGNORECASE,
)
"""Names of operators that send."""


def told_apart(
    ran: Sequence[Event], inside: Mapping[int, str], transfers: re.Pattern[str] | None
) -> tuple[list[Event], list[Event], list[Event]]:
    """Return the kernels that send, those that copy, and those that compute."""
    sends, copies, kernels = list[Event](), list[Event](), list[Event]()
    for kernel in ran:
        copied = _COPIES.match(kernel.name)
        asked = transfers is not None and transfers.search(kernel.name)
        told = not copied and (
            kernel.message is not None
            or (inside.get(kernel.index) == "record_param_comms" and not computes(kernel.name))
        )
        if asked or told or library_of(kernel.name):
            sends.append(kernel)
        else:
            (copies if copied else kernels).append(kernel)
    return sends, copies, kernels


def launched_by_sending(trace: Trace) -> dict[int, str]:
    """Return the kernels that a sending operator launched itself: position to operator name."""
    operators = {}
    for call in trace.calls:
        if not any(_SENDING.search(event.name) for event in call.inside):
            continue
        for kernel in call.kernels:
            if (at := trace.launched_ns(kernel)) is None:
                continue
            around = [event for event in call.inside if event.start_ns <= at < event.end_ns]
            if around and _SENDING.search(around[-1].name):
                operators[kernel.index] = around[-1].name
    return operators


def has_several(trace: Trace, *, sent: bool) -> bool:
    """Return whether the trace shows a job of more than one rank."""
    if trace.ranks is not None:
        return trace.ranks > 1
    names = ("c10d::", "_c10d_functional", "record_param_comms", "symm_mem::")
    return sent or any(event.name.startswith(names) for event in trace.operators)


def in_doubt(kernels: Sequence[Event], inside: Mapping[int, str], *, sent: bool) -> list[Event]:
    """Return the kernels that may be transfers.

    That is, not known to compute, and: a word of communication in the name, launched by an operator
    that sends, or a stream without computation. If there are none and no transfer is known: all
    kernels that are not known to compute.
    """
    computing = {kernel.thread for kernel in kernels if computes(kernel.name)}
    unknown = [kernel for kernel in kernels if not computes(kernel.name)]
    doubtful = [
        kernel
        for kernel in unknown
        if might_send(kernel.name) or kernel.index in inside or kernel.thread not in computing
    ]
    return doubtful or ([] if sent else unknown)


def by_name(kernels: Iterable[Event]) -> tuple[Kernels, ...]:
    """Return number and total time of the kernels of each name, the longest first."""
    times: dict[str, list[Event]] = defaultdict(list)
    for kernel in kernels:
        times[called(kernel.name)].append(kernel)
    rows = [
        Kernels(
            name,
            library_of(group[0].name),
            len(group),
            sum(kernel.end_ns - kernel.start_ns for kernel in group),
        )
        for name, group in times.items()
    ]
    return tuple(sorted(rows, key=lambda row: (-row.total_ns, row.name)))
