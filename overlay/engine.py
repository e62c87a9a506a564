"""How to start SGLang on the CPU engine: the whole environment of its process, and the flags that it needs.

The environment is made from nothing but a short list of what a process needs from its caller, so that a variable of the
caller's shell (PYTHONPATH, SGLANG_*, CUDA_*) can't change what an engine does.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

#: Import root of the CPU engine's shims: first on the path, so that its `sitecustomize` is the one that runs.
SHIMS = Path(__file__).resolve().parent / "cpu"

#: What comes through from the caller.
INHERITED = ("HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "XDG_CACHE_HOME")

_FIXED = {
    # SGLang runs without a GPU, and its Triton kernels in Triton's interpreter.
    "SGLANG_USE_CPU_ENGINE": "1",
    "TRITON_INTERPRET": "1",
    # Recurrent layers' inputs are kept in bfloat16 whatever the model's type, and CPU tests compare float32.
    "SGLANG_MAMBA_CONV_DTYPE": "float32",
    # Never a download: models are local folders.
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    # At the size of the test models, more threads cost more than they bring.
    "OMP_NUM_THREADS": "1",
    # What SGLang compiles with torch.compile runs as it is written: hosts need no C++ compiler. Under tensor parallelism the
    # embedding is such a function.
    "TORCH_COMPILE_DISABLE": "1",
    "PYTHONNOUSERSITE": "1",
    "PYTHONUNBUFFERED": "1",
}

#: What a hybrid target (gated delta net and attention layers) needs beside that.
_HYBRID_ARGS: dict[str, object] = {
    # Its configuration is a vision-language model's; the test pairs have no vision part.
    "enable_multimodal": False,
    # SGLang 0.5.11 refuses a prefix cache of recurrent states together with speculation.
    "disable_radix_cache": True,
}

#: `sglang.Engine` arguments that every engine on a CPU needs, sized for the test pairs.
SERVER_ARGS: dict[str, object] = {
    "device": "cpu",
    "dtype": "float32",
    "attention_backend": "triton",
    "grammar_backend": "none",
    "disable_cuda_graph": True,
    "skip_server_warmup": True,
    "mem_fraction_static": 0.5,
    "max_total_tokens": 8192,
    "max_running_requests": 8,
    "context_length": 512,
}


def environment(*roots: Path, attention: str = "ref") -> dict[str, str]:
    """The environment of a process that imports the shims first and then from `roots` in order.

    `roots` are import roots: a patched tree and a site of `overlay.site.build`. `attention` is "ref" (plain torch for
    attention and other slow kernels) or "triton" (all of SGLang's own, a hundred times slower). Raises ValueError for any other.
    """
    if attention not in ("ref", "triton"):
        raise ValueError(f"attention is {attention!r}: expected 'ref' or 'triton'")
    return {
        **{name: os.environ[name] for name in INHERITED if name in os.environ},
        **_FIXED,
        "SGLANG_CPU_ATTN": attention,
        "PYTHONPATH": os.pathsep.join(str(root.resolve()) for root in (SHIMS, *roots)),
    }


def server_args(target: Path, drafter: Path | None = None, **more: object) -> dict[str, object]:
    """Arguments of `sglang.Engine` on the CPU: the common ones, the model's, and `more`, which wins.

    `target` and `drafter` are model folders. With `drafter` the algorithm is DFLASH unless `more` names another.
    """
    models: dict[str, object] = {"model_path": str(target)}
    if drafter is not None:
        models |= {"speculative_algorithm": "DFLASH", "speculative_draft_model_path": str(drafter)}
    return SERVER_ARGS | models | (_HYBRID_ARGS if _is_hybrid(target) else {}) | more


def server_flags(target: Path, drafter: Path | None = None, **more: object) -> list[str]:
    """The same as the command line of `python -m sglang.launch_server`.

    A value of True is a bare flag; False and None leave it out.
    """
    flags = []
    for name, value in server_args(target, drafter, **more).items():
        if value is None or value is False:
            continue
        flags.append("--" + name.replace("_", "-"))
        if value is not True:
            flags.append(str(value))
    return flags


def _is_hybrid(target: Path) -> bool:
    config = json.loads((target / "config.json").read_text())
    return "linear_attention" in config.get("text_config", config).get("layer_types", ())
