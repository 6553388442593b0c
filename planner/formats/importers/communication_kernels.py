"""Recognises kernels that move data between ranks, by their names.

Problem: a trace has only a kernel's name. NCCL's collectives are known; many other libraries have
kernels of their own, and new ones appear, so no list is complete. Method: `FAMILIES` lists
libraries and their names; the user can say which others send. Only the function's name counts, not
its arguments. Kernels of ATen, CUB and compilers, which are named after the operators they compute,
compute.
Complexity: O(length of the name), once per name.
Source: names of kernels in the libraries' sources, as of 2025.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

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
_FUSED = re.compile(r"gemm|matmul|(?<![a-z])mm(?![a-z])|attention|attn", re.IGNORECASE)
"""Words of kernels that fuse computation with a collective."""


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
