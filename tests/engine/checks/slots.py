"""Random life of a scheduler's requests with draft trees, against a model of who owns which KV slot.

Everything that handles slots is SGLang's own: allocator, request table, radix cache, batches (prefill, merge, filter,
retraction), `prepare_for_verify` and `verify`. In place of a KV cache there is a record of which token at which position
was last written to each slot. After every step of a batch the model must agree:

* each slot is free, in the radix cache or held by one request: exactly once;
* a request's row of the table leads, position by position, to its own tokens, as does each path of the radix cache;
* committed tokens, the kept hidden states and the mask are those of the obvious walk over the tree.

Reads {"steps", "seed", "size"}, prints counts of what happened, and "wrong": what the model found (the first, or null).
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from oracle import Tree, walk
from ranks import join
from sglang.srt.managers.schedule_batch import FINISH_ABORT, Req, ScheduleBatch
from sglang.srt.mem_cache.allocator import TokenToKVPoolAllocator
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import maybe_cache_unfinished_req, release_kv_cache
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool
from sglang.srt.mem_cache.radix_cache import RadixCache
from sglang.srt.model_executor.forward_batch_info import ForwardMode
from sglang.srt.sampling.sampling_params import SamplingParams
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler
from sglang.srt.speculative.ddtree_utils import DDTree, build_ddtree
from sglang.srt.speculative.dflash_info import DFlashDraftInput, DFlashVerifyInput
from sglang.srt.speculative.spec_info import SpeculativeAlgorithm

VOCABULARY, BUDGET, MAX_REQUESTS, CONTEXT = 12, 7, 5, 64
END = 11  # end-of-sequence token
WIDTH = BUDGET + 1
SUPPLY = 256  # trees


class Wrong(Exception):
    """The model disagrees."""


class Scheduler:
    """As little of SGLang's scheduler as its batches need."""

    def __init__(self, size: int, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.arguments = ServerArgs(model_path="dummy")
        self.arguments.attention_backend, self.arguments.page_size = "torch_native", 1
        self.arguments.speculative_algorithm = "DDTREE"
        self.arguments.speculative_num_draft_tokens = WIDTH
        set_global_server_args_for_scheduler(self.arguments)
        self.table = ReqToTokenPool(MAX_REQUESTS, CONTEXT + WIDTH + 4, "cpu", False)
        self.allocator = TokenToKVPoolAllocator(size, torch.float32, "cpu", None, False)
        self.cache = RadixCache(CacheInitParams(False, self.table, self.allocator, 1))
        self.model = SimpleNamespace(
            vocab_size=VOCABULARY, is_encoder_decoder=False, is_matryoshka=False, hidden_size=1, think_end_id=None
        )
        self.size = size
        self.token, self.position = np.full(size + 1, -1), np.full(size + 1, -1)
        self.running: ScheduleBatch | None = None
        self.supply: DDTree | None = None
        self.used = 0
        self.waiting: list[Req] = []
        self.counts = dict.fromkeys(("steps", "admitted", "finished", "aborted", "retracted", "hits", "off_spine"), 0)

    # What happens

    def admit(self) -> None:
        """Prefill a waiting request, or a new one whose prompt begins as others do."""
        if self.waiting:
            request = self.waiting.pop(0)
        else:
            number = self.counts["admitted"]
            self.counts["admitted"] += 1
            prompt = [int(x) for x in self.random.integers(3, size=self.random.integers(1, 12))]
            parameters = SamplingParams(max_new_tokens=int(self.random.integers(1, 30)), temperature=0)
            parameters.normalize(None)
            request = Req(str(number), "", prompt, parameters, eos_token_ids={END}, vocab_size=VOCABULARY)
        request.init_next_round_input(self.cache)
        need = len(request.fill_ids) - len(request.prefix_indices)
        room = self.allocator.available_size() + self.cache.evictable_size()
        if room < need + len(request.prefix_indices) + WIDTH:
            self.waiting.append(request)
            return
        request.extend_input_len = need
        self.counts["hits"] += bool(len(request.prefix_indices))
        self.cache.inc_lock_ref(request.last_node)
        batch = self._batch([request])
        batch.prepare_for_extend()
        self._write(batch.out_cache_loc, request.fill_ids[-need:], range(len(request.fill_ids) - need, len(request.fill_ids)))
        request.output_ids.append(int(self.random.integers(VOCABULARY - 1)))
        request.check_finished()
        if request.finished():
            self._release(request)
            return
        maybe_cache_unfinished_req(request, self.cache)
        batch.spec_info = DFlashDraftInput(
            verified_id=torch.tensor([request.output_ids[-1]]),
            target_hidden=torch.empty(0, 1),
            ctx_lens=torch.zeros(1, dtype=torch.int32),
            draft_seq_lens=torch.zeros(1, dtype=torch.int32),
        )
        if self.running is None or self.running.is_empty():
            self.running = batch
        else:
            self.running.merge_batch(batch)

    def step(self) -> None:
        """Verify a tree for every running request."""
        batch = self.running
        if batch is None or batch.is_empty():
            return
        if not batch.check_decode_mem():
            retracted, _, aborted = batch.retract_decode(self.arguments)
            self.counts["retracted"] += len(retracted)
            self.waiting += [request for request in retracted if request not in aborted]
            if batch.is_empty():
                return
        batch.prepare_for_decode()
        draft: DFlashDraftInput = batch.spec_info
        if draft.verified_id.tolist() != [request.output_ids[-1] for request in batch.reqs]:
            raise Wrong("the drafts' first tokens are not the requests' last")
        n = len(batch.reqs)
        trees = self._trees(draft.verified_id)
        nodes = [Tree(*(x[row].tolist() for x in (trees.tokens, trees.depths, trees.parents))) for row in range(n)]
        positions = batch.seq_lens.unsqueeze(1) + trees.depths
        verify = DFlashVerifyInput(trees.tokens.view(-1), positions.view(-1), WIDTH, topk=BUDGET, tree=trees)
        verify.prepare_for_verify(batch, 1)
        self._mask(verify.custom_mask, batch.seq_lens.tolist(), nodes)
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        self._write(batch.out_cache_loc, trees.tokens.view(-1).tolist(), positions.view(-1).tolist())
        predicted = [self._predicted(tree) for tree in nodes]
        before = [(list(request.output_ids), int(length)) for request, length in zip(batch.reqs, batch.seq_lens, strict=True)]
        logits = torch.nn.functional.one_hot(torch.tensor(predicted).view(-1), VOCABULARY).float()
        output = SimpleNamespace(next_token_logits=logits, hidden_states=torch.arange(n * WIDTH).float().unsqueeze(1))
        if self.random.random() < 0.02:
            victim = batch.reqs[int(self.random.integers(n))]
            victim.to_finish = FINISH_ABORT("aborted")
            self.counts["aborted"] += 1
        last, lengths, hidden, _ = verify.verify(batch=batch, logits_output=output, page_size=1)

        rows = []
        for row, request in enumerate(batch.reqs):
            path = walk(nodes[row], predicted[row])
            said = [nodes[row].tokens[node] for node in path[1:]] + [predicted[row][path[-1]]]
            new = request.output_ids[len(before[row][0]) :]
            if request.output_ids[: len(before[row][0])] != before[row][0] or new != said[: len(new)] or not new:
                raise Wrong(f"tokens {new} instead of {said}")
            if len(new) < len(said) and not request.finished():
                raise Wrong("a path was cut short")
            if END in new[:-1] or len(request.output_ids) > request.sampling_params.max_new_tokens:
                raise Wrong("tokens after the end")
            if int(lengths[row]) != len(new) or int(batch.seq_lens[row]) != before[row][1] + len(new):
                raise Wrong("lengths")
            if request.kv_committed_len != before[row][1] + len(new) or request.kv_allocated_len != request.kv_committed_len:
                raise Wrong("a request's account of its slots")
            self.counts["off_spine"] += any(
                node != nodes[row].children(nodes[row].parents[node])[0] for node in path[1 : len(new)]
            )
            rows += [row * WIDTH + node for node in path[: len(new)]]
        if hidden.view(-1).tolist() != rows:
            raise Wrong("hidden states are not those of the accepted paths")
        if batch.seq_lens_cpu.tolist() != batch.seq_lens.tolist() or batch.seq_lens_sum != sum(batch.seq_lens.tolist()):
            raise Wrong("the batch's lengths differ")

        self.allocator.free_group_begin()
        for request in batch.reqs:
            if request.finished():
                self.counts["finished"] += 1
                self._release(request)
        self.allocator.free_group_end()
        batch.forward_mode = ForwardMode.DECODE
        draft.verified_id = last
        batch.spec_info = draft
        batch.filter_batch()

    # What must hold

    def check(self) -> None:
        free = self.allocator.free_pages.tolist() + self.allocator.release_pages.tolist()
        cached = self._cached()
        owned = list(cached)
        for request in self.running.reqs if self.running else ():
            tokens = request.origin_input_ids + request.output_ids
            length = request.kv_committed_len
            row = self.table.req_to_token[request.req_pool_idx, :length].tolist()
            if length != len(tokens) - 1:
                raise Wrong(f"{length} slots for {len(tokens) - 1} tokens")
            if self.token[row].tolist() != tokens[:-1] or self.position[row].tolist() != list(range(length)):
                raise Wrong(f"request {request.rid}'s row leads to other tokens")
            owned += row[request.cache_protected_len :]
        if sorted(free + owned) != list(range(1, self.size + 1)):
            both = sorted({slot for slot in free + owned if (free + owned).count(slot) > 1})
            lost = sorted(set(range(1, self.size + 1)) - set(free + owned))
            raise Wrong(f"slots {both[:9]} are there twice, {lost[:9]} are lost")
        if self.cache.evictable_size() + self.cache.protected_size() != len(cached):
            raise Wrong("the radix cache's account of its slots")

    def _cached(self) -> list[int]:
        found: list[int] = []
        stack = [(child, 0) for child in self.cache.root_node.children.values()]
        while stack:
            node, start = stack.pop()
            slots = node.value.tolist()
            if self.token[slots].tolist() != list(node.key.token_ids):
                raise Wrong("a path of the radix cache leads to other tokens")
            if self.position[slots].tolist() != list(range(start, start + len(slots))):
                raise Wrong("a path of the radix cache leads to other positions")
            found += slots
            stack += [(child, start + len(slots)) for child in node.children.values()]
        return found

    def _mask(self, mask: torch.Tensor | None, prefixes: list[int], trees: list[Tree]) -> None:
        if mask is None:
            raise Wrong("a tree without its mask")
        want = [
            column < prefix or column - prefix in seen
            for prefix, tree in zip(prefixes, trees, strict=True)
            for seen in (tree.ancestors_or_self(node) for node in range(WIDTH))
            for column in range(prefix + WIDTH)
        ]
        if mask.tolist() != want:
            raise Wrong("mask")

    # Parts

    def _batch(self, requests: list[Req]) -> ScheduleBatch:
        algorithm = SpeculativeAlgorithm.DDTREE
        return ScheduleBatch.init_new(requests, self.table, self.allocator, self.cache, self.model, False, algorithm)

    def _write(self, slots: torch.Tensor, tokens, positions) -> None:
        self.token[slots.numpy()] = list(tokens)
        self.position[slots.numpy()] = list(positions)

    def _release(self, request: Req) -> None:
        release_kv_cache(request, self.cache)

    def _trees(self, roots: torch.Tensor) -> DDTree:
        """Random trees with these roots, of a supply that is built together: one by one they take a third of the time."""
        n = len(roots)
        if self.supply is None or self.used + n > SUPPLY:
            sharpness = self.random.uniform(0, 4, size=(SUPPLY, 1, 1))
            logits = torch.from_numpy(self.random.normal(size=(SUPPLY, 5, VOCABULARY)) * sharpness).float()
            logprobs, ids = torch.sort(torch.log_softmax(logits, dim=2), dim=2, descending=True)
            tokens = torch.zeros(SUPPLY, dtype=torch.int64)
            self.supply = build_ddtree(root_tokens=tokens, topk_logprobs=logprobs, topk_ids=ids, budget=BUDGET)
            self.used = 0
        rows = slice(self.used, self.used + n)
        self.used += n
        parts = {part.name: getattr(self.supply, part.name) for part in fields(DDTree)}
        trees = DDTree(**{name: part[rows].clone() if torch.is_tensor(part) else part for name, part in parts.items()})
        trees.tokens[:, 0] = roots
        return trees

    def _predicted(self, tree: Tree) -> list[int]:
        """A target that mostly takes some child of each node; token 0 counts as any other."""
        predicted = self.random.integers(VOCABULARY, size=WIDTH).tolist()
        for node in range(WIDTH):
            children = tree.children(node)
            if children and self.random.random() < 0.8:
                predicted[node] = tree.tokens[self.random.choice(children)]
        return predicted


def main() -> None:
    wanted = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder:
        join(0, 1, Path(folder) / "meeting")
    scheduler, wrong = Scheduler(wanted["size"], wanted["seed"]), None
    try:
        for number in range(wanted["steps"]):
            requests = len(scheduler.running.reqs) if scheduler.running else 0
            if requests < MAX_REQUESTS and scheduler.random.random() < 0.3:
                scheduler.admit()
            else:
                scheduler.step()
            scheduler.counts["steps"] = number + 1
            scheduler.check()
    except Wrong as error:
        wrong = str(error)
    print(json.dumps(scheduler.counts | {"wrong": wrong}))


if __name__ == "__main__":
    main()
