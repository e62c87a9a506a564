"""Every piece of source that differs on the CPU engine, by concern, each with its reason.

Pieces are as short as they can be and still be found once: patches to the lines around them do not matter.
"""

from __future__ import annotations

from .rewriting import Rewrite

_ATTENTION = "sglang.srt.layers.attention"

#: "triton" is the name that stands for the reference backend: DFlashWorker turns a drafter's backend that it doesn't
#: know into flashinfer.
_REFERENCE = (
    Rewrite(
        module=f"{_ATTENTION}.attention_registry",
        old=f"from {_ATTENTION}.triton_backend import TritonAttnBackend",
        new="from cpu_engine.attention import ReferenceAttnBackend as TritonAttnBackend",
        reason="the attention kernels are a hundred times slower in Triton's interpreter than plain torch",
    ),
    Rewrite(
        module="sglang.srt.speculative.spec_utils",
        old="):\n    assign_req_to_token_pool[(batch_size,)](",
        new="):\n    from cpu_engine.kernels import assign_req_to_token_pool\n    assign_req_to_token_pool(",
        reason="this kernel, which runs three times in a verify step, is most of its time in Triton's interpreter",
    ),
    Rewrite(
        module="sglang.srt.mem_cache.common",
        old="if support_triton(get_global_server_args().attention_backend):",
        new="if False:",
        reason="the kernel counts the tokens of all requests before, for each: SGLang's own way without Triton is faster here",
    ),
    Rewrite(
        module="sglang.srt.model_executor.forward_batch_info",
        old="if support_triton(attn_backend):",
        new="if False:",
        reason="the kernel counts the tokens of all requests before, for each: SGLang's own way without Triton is faster here",
    ),
    Rewrite(
        module=f"{_ATTENTION}.linear.gdn_backend",
        old="mixed_qkv_processed = causal_conv1d_update(",
        new="from cpu_engine import gated_delta_net\n            mixed_qkv_processed = gated_delta_net.causal_conv1d_update(",
        reason="a tree's nodes are convolved one by one, 300 operations of Triton's interpreter each",
    ),
    Rewrite(
        module=f"{_ATTENTION}.linear.kernels.gdn_triton",
        old="        retrieve_parent_token: torch.Tensor,\n        **kwargs,\n    ) -> torch.Tensor:\n        return ",
        new="        retrieve_parent_token: torch.Tensor,\n        **kwargs,\n    ) -> torch.Tensor:\n"
        "        from cpu_engine import gated_delta_net\n        return gated_delta_net.",
        reason="a tree's states follow each other node by node, two programs a request in Triton's interpreter",
    ),
)

_TORCH = (
    Rewrite(
        module="torchvision.extension",
        old='if _load_library("_C"):',
        new="import cpu_engine.torchvision_ops\nif False:",
        reason="torchvision's compiled part is for CUDA and does not load, and its Python part wants two of its ops",
    ),
    Rewrite(
        module="triton.runtime.autotuner",
        old="if len(self.configs) > 1:",
        new="if False:",
        reason="timing a kernel's configurations needs a GPU driver: take the first one",
    ),
    Rewrite(
        module="triton.runtime.interpreter",
        old="sanitize_overflow: bool = True",
        new="sanitize_overflow: bool = False",
        reason="checking every integer operation takes a quarter of a kernel's time here, and GPUs don't do it either",
    ),
    Rewrite(
        module="triton.runtime.interpreter",
        old="    for name, member in inspect.getmembers(pkg):",
        new="    from cpu_engine.interpreter import builtins_to_replace\n    for name, member in builtins_to_replace(pkg):",
        reason="listing the language's builtins at every call takes a fifth of a kernel's time here",
    ),
)

_DEVICE = (
    Rewrite(
        module="sglang.srt.model_executor.model_runner",
        old="forward_batch.input_embeds.bfloat16()",
        new="forward_batch.input_embeds.to(self.dtype)",
        reason="input embeddings become bfloat16 whatever the model's type, and CPU tests run in float32",
    ),
    Rewrite(
        module="sglang.srt.distributed.parallel_state",
        old="if _is_npu or _is_xpu:\n            self._all_gather_into_tensor(output, input)",
        new="if True:\n            self._all_gather_into_tensor(output, input)",
        reason="the custom all-gather op is registered for CUDA only; torch.distributed has it for gloo",
    ),
    Rewrite(
        module="sglang.srt.constrained.xgrammar_backend",
        old='elif logits.device.type == "npu":',
        new='elif logits.device.type in ("npu", "cpu"):',
        reason="a grammar's mask is applied by a GPU's kernel only; the torch code that stands in for it runs on a CPU too",
    ),
    Rewrite(
        module="sglang.srt.speculative.dflash_utils",
        old="if is_cuda() or is_musa():",
        new="if True:",
        reason="sampling verification is offered on GPUs only; the sgl_kernel stand-in has its ops",
    ),
)


def _without_cpu_branches(module: str, imported: str) -> Rewrite:
    line = f"from sglang.srt.utils import {imported}\n"
    return Rewrite(
        module=module,
        old=line,
        new=line + "is_cpu = lambda: False\n",
        reason="a CPU takes compiled AMX ops here; the GPU's Triton kernels run in the interpreter",
    )


_GATED_DELTA_NET = (
    _without_cpu_branches(f"{_ATTENTION}.linear.gdn_backend", "is_cpu, is_cuda, is_npu"),
    _without_cpu_branches(f"{_ATTENTION}.linear.kernels.gdn_triton", "is_cpu, is_npu"),
    _without_cpu_branches(f"{_ATTENTION}.hybrid_linear_attn_backend", "is_cpu"),
    Rewrite(
        module=f"{_ATTENTION}.fla.chunk",
        old="q.dtype != torch.float32",
        new="True",
        reason="the chunked kernel refuses float32 for a GPU's sake, and CPU tests run in float32",
    ),
    Rewrite(
        module=f"{_ATTENTION}.fla.utils",
        old="return device_torch_lib.device(index)",
        new="return contextlib.nullcontext()",
        reason="torch.cpu has no device context",
    ),
    *(
        Rewrite(
            module=f"{_ATTENTION}.fla.op",
            old=f"    {name} = tl.{function}\n",
            new=f"    @triton.jit\n    def {name}(x):\n        return tl.{name}(x)\n",
            reason="Triton's interpreter replaces functions in triton.language only, not other names for them",
        )
        for name, function in (("exp", "exp"), ("exp2", "math.exp2"), ("log", "log"), ("log2", "log2"))
    ),
    Rewrite(
        module=f"{_ATTENTION}.fla.layernorm_gated",
        old="    props = torch.cuda.get_device_properties(device)\n    return props.multi_processor_count",
        new="    return 1",
        reason="a CPU has no streaming multiprocessors to count",
    ),
    Rewrite(
        module=f"{_ATTENTION}.fla.layernorm_gated",
        old="MAX_ROWS_PER_BLOCK = 4\n",
        new="MAX_ROWS_PER_BLOCK = 256\n",
        reason="a program of Triton's interpreter takes as long for many rows as for four, and a verify has a thousand",
    ),
    Rewrite(
        module="sglang.srt.mem_cache.memory_pool",
        old='device="cuda",',
        new="device=device,",
        count=2,
        reason="the states that verification keeps for each draft token are made on a GPU whatever the device",
    ),
    Rewrite(
        module=f"{_ATTENTION}.mamba.mamba_state_scatter_triton",
        old="if not dst.is_cuda or not src.is_cuda:",
        new="if False:",
        reason="the scatter kernel refuses tensors that are not on a GPU; the interpreter takes them",
    ),
)


def rewrites(*, reference: bool) -> tuple[Rewrite, ...]:
    """All rewrites of the CPU engine: with plain torch for its slowest kernels, or with all of SGLang's own."""
    return (*_TORCH, *_DEVICE, *_GATED_DELTA_NET, *(_REFERENCE if reference else ()))
