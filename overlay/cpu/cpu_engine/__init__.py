"""What lets the pinned SGLang, patched or not, run whole on a machine without a GPU.

Guarantee: nothing of SGLang's logic is replaced but what needs a GPU's runtime or kernels, every replaced piece of
source is listed with its reason in `rewrites`, and a piece that is no longer there as listed stops the import.

SGLang's own Triton kernels run in Triton's interpreter. Unless `SGLANG_CPU_ATTN=triton`, those that are slow there are
plain torch: attention (`attention`), gated delta net layers under a tree (`gated_delta_net`), slot tables (`kernels`).
`overlay.engine.environment` sets the variables that all this needs.
"""

from __future__ import annotations

import os
import sys

from .rewrites import rewrites
from .rewriting import Importer

#: Environment variable that chooses between plain torch (`ref`) and all of SGLang's own kernels (`triton`).
ATTENTION_VARIABLE = "SGLANG_CPU_ATTN"


def install() -> None:
    """Put the rewriting importer in front of this process's importers.

    Raises ValueError if `SGLANG_CPU_ATTN` is neither `ref` nor `triton`.
    """
    attention = os.environ.get(ATTENTION_VARIABLE, "ref")
    if attention not in ("ref", "triton"):
        raise ValueError(f"{ATTENTION_VARIABLE} is {attention!r}: expected 'ref' or 'triton'")
    sys.meta_path.insert(0, Importer(rewrites(reference=attention == "ref")))
