"""Stands in for sgl_kernel, whose wheel is compiled CUDA: a few speculative ops in plain torch, and names for the rest.

SGLang imports many names from here that it never calls on a CPU. Each of them exists, and raises NotImplementedError
that names it when it is called. There is no `sgl_kernel.scalar_type`, since SGLang has its own where that is missing,
and no `torch.ops.sgl_kernel`, so that its probes for compiled ops find none.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import NoReturn

from .speculative import (
    top_k_renorm_prob,
    top_p_renorm_prob,
    tree_speculative_sampling_target_only,
    verify_tree_greedy,
)

__version__ = "0.4.2+cpu"
__all__ = [
    "top_k_renorm_prob",
    "top_p_renorm_prob",
    "tree_speculative_sampling_target_only",
    "verify_tree_greedy",
]


class _Names(ModuleType):
    """A module that has every name, as a function that only says that it is missing."""

    def __getattr__(self, name: str):
        return _missing(self.__name__, name)


def _missing(module: str, name: str):
    if name.startswith("__"):
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    def op(*_args, **_kwargs) -> NoReturn:
        raise NotImplementedError(f"{module}.{name} is not written for the CPU engine")

    op.__name__ = op.__qualname__ = name
    op.__module__ = module
    return op


def __getattr__(name: str):
    return _missing(__name__, name)


for _name in (
    "allreduce",
    "elementwise",
    "flash_attn",
    "flash_mla",
    "kvcacheio",
    "mamba",
    "quantization",
    "sparse_flash_attn",
    "test_utils",
):
    globals()[_name] = sys.modules[f"{__name__}.{_name}"] = _Names(f"{__name__}.{_name}")
