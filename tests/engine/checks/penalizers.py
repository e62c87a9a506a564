"""Whether SGLang gives its penalizers in an order of its own, with those that scale last.

Reads {}, prints {"ordered": bool}.
"""

from __future__ import annotations

import json
from types import SimpleNamespace

from sglang.srt.sampling import sampling_batch_info
from sglang.srt.sampling.sampling_batch_info import SamplingBatchInfo
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import set_global_server_args_for_scheduler


def main() -> None:
    given = []

    class Orchestrator:
        def __init__(self, *, penalizers, **_: object) -> None:
            given.append(penalizers)

    sampling_batch_info.penaltylib.BatchedPenalizerOrchestrator = Orchestrator
    set_global_server_args_for_scheduler(
        SimpleNamespace(enable_deterministic_inference=False, enable_custom_logit_processor=False)
    )
    params = SamplingParams(max_new_tokens=1)
    req = SimpleNamespace(sampling_params=params, custom_logit_processor=None, grammar=None, lora_id=None)
    SamplingBatchInfo.from_schedule_batch(SimpleNamespace(reqs=[req], device="cpu", req_pool_indices=None), vocab_size=8)
    scales = [penalizer.is_multiplicative for penalizer in given[0]]
    print(json.dumps({"ordered": not isinstance(given[0], set) and scales == sorted(scales)}))


if __name__ == "__main__":
    main()
