"""Runs on the CPU engine's Python: imports once what SGLang stands on, then runs every job in a fork of itself.

A job is a JSON file named on a line of standard input: `kind` (a function of `JOBS`), its arguments, `log` and `out`.
For each job one line says the process id of its fork and one, when it has ended, its exit status. A fork leads its own
process group, writes what it prints to `log` and its result as JSON to `out`, which is there only if it is whole.

SGLang's processes are forked from the job's too, instead of spawned: importing everything anew in each of them takes
three times as long as all the rest of an engine's start.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import importlib
import io
import json
import multiprocessing
import os
import runpy
import signal
import sys
from pathlib import Path

#: What `sglang` imports of others, from which no thread starts.
PRELOADED = (
    *("IPython", "PIL.Image", "aiohttp", "compressed_tensors", "dill", "einops", "fastapi", "fsspec", "gguf", "msgspec"),
    *("openai", "orjson", "pybase64", "requests", "sentencepiece", "soundfile", "torch", "torch._dynamo"),
    *("torch._inductor.compile_fx", "torchvision", "transformers", "transformers.models.auto.modeling_auto"),
    *("triton", "uvicorn", "uvloop", "zmq.asyncio"),
)
_PR_SET_PDEATHSIG = 1


def generate(
    tree: str,
    server_args: dict,
    prompts: list,
    sampling: dict | list[dict],
    request: dict,
    calls: int,
    every: int,
    abort_after: int,
) -> list[dict]:
    """Start an engine from the import root `tree`, and return its answers to `prompts` (texts or lists of tokens).

    The scheduler checks its pools after every step of a speculative run (a leak ends it, and so this process), and once
    more when it is idle, before this returns.
    """
    sys.path.insert(0, tree)
    os.environ["PYTHONPATH"] = os.pathsep.join([tree, os.environ["PYTHONPATH"]])
    if server_args.get("speculative_algorithm"):
        os.environ["SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_BUSY"] = "1"
    multiprocessing.set_start_method("fork", force=True)
    multiprocessing.set_start_method = lambda *_args, **_kwargs: None
    import sglang.srt.managers.scheduler  # noqa: F401  in the processes forked from here it is there already
    from sglang.srt.entrypoints.engine import Engine

    engine = Engine(**server_args)
    kind = "prompt" if isinstance(prompts[0], str) else "input_ids"
    answers = []
    for _ in range(calls):
        if every or abort_after:
            each = sampling if isinstance(sampling, list) else [sampling] * len(prompts)
            requests = [{kind: prompt, "sampling_params": one} | request for prompt, one in zip(prompts, each, strict=True)]
            answers += engine.loop.run_until_complete(_arriving(engine, requests, every, abort_after))
        else:
            answers += engine.generate(**{kind: prompts}, sampling_params=sampling, **request)
    for _ in range(3):
        # Answered at the start of a turn of the scheduler's loop, at whose end it checks: so the turns before are whole.
        engine.loop.run_until_complete(engine.tokenizer_manager.get_internal_state())
    engine.shutdown()
    wanted = {"text": "text", "output_ids": "output_ids", "meta": "meta_info", "pieces": "pieces"}
    return [{name: answer.get(key) for name, key in wanted.items()} for answer in answers]


async def _arriving(engine, requests: list[dict], every: int, abort_after: int) -> list[dict]:
    """Answers to streamed requests that start one by one, each after `every` more pieces of output of those before.

    With `abort_after` every third request is aborted after so many pieces, and its answer is what it had by then.
    An answer's `pieces` are the text as it was after each of them.
    """
    pieces, ended, changed = 0, 0, asyncio.Condition()

    async def one(number: int, arguments: dict) -> dict:
        nonlocal pieces, ended
        async with changed:
            await changed.wait_for(lambda: pieces >= number * every or ended == number)
        answer, own, texts = {}, 0, []
        async for piece in await engine.async_generate(**arguments, stream=True, rid=f"request-{number}"):
            answer, own = piece, own + 1
            texts.append(piece["text"])
            async with changed:
                pieces += 1
                changed.notify_all()
            if abort_after and number % 3 == 0 and own == abort_after:
                engine.tokenizer_manager.abort_request(f"request-{number}")
        async with changed:
            ended += 1
            changed.notify_all()
        return answer | {"pieces": texts}

    return await asyncio.gather(*(one(number, arguments) for number, arguments in enumerate(requests)))


def reference(model: str, prompts: list, max_new_tokens: int) -> list[list[int]]:
    """Greedy continuations by Hugging Face's own model and tokenizer, of which SGLang has nothing."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{model}/tokenizer.json")
    conditional = "ConditionalGeneration" in AutoConfig.from_pretrained(model).architectures[0]
    loader = AutoModelForImageTextToText if conditional else AutoModelForCausalLM
    network = loader.from_pretrained(model, dtype=torch.float32).eval()
    outputs = []
    for prompt in prompts:
        tokens = torch.tensor([tokenizer.encode(prompt) if isinstance(prompt, str) else prompt])
        settings = {"max_new_tokens": max_new_tokens, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
        outputs.append(network.generate(tokens, **settings)[0, tokens.shape[1] :].tolist())
    return outputs


def script(tree: str, path: str, wanted: dict) -> dict:
    """Run a script over the import root `tree`, and return what it prints on its last line."""
    sys.path.insert(0, tree)
    sys.path.insert(0, str(Path(path).parent))
    sys.stdin, printed = io.StringIO(json.dumps(wanted)), io.StringIO()
    with contextlib.redirect_stdout(printed):
        runpy.run_path(path, run_name="__main__")
    return json.loads(printed.getvalue().splitlines()[-1])


JOBS = {"generate": generate, "reference": reference, "script": script}


def main() -> None:
    _die_with_parent()
    for module in PRELOADED:
        importlib.import_module(module)
    for line in sys.stdin:
        job = json.loads(Path(line.strip()).read_text())
        child = os.fork()
        if child == 0:
            _work(job)
        print(child, flush=True)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _work(job: dict) -> None:
    """Do a job in this process, which ends with it."""
    os.setsid()
    _die_with_parent()
    log = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    result = JOBS[job["kind"]](**job["arguments"])
    unfinished = Path(job["out"] + ".part")
    unfinished.write_text(json.dumps(result))
    unfinished.rename(job["out"])
    sys.stdout.flush()
    # No exit handlers: what is left of an engine is killed with the process group.
    os._exit(0)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
