"""What does the key-value cache save? `make bench`.

150 tokens are generated after a short and after a long prompt (which fills the context of 256), with the cache and by
recomputing every position at every step; the same under an intervention in every layer; and, where transformers is
installed, beside its Llama of the same sizes. Minima of interleaved rounds: what a machine that does nothing else would
take.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bench.timing import milliseconds, print_table, write_results
from interp.interventions import intervened, zero
from model import GPT, FFNKind, GPTConfig
from model.sites import Tap

N_NEW, N_CTX, D_MODEL, N_HEADS, VOCABULARY = 150, 256, 256, 8, 257


def gpt_with(n_layers: int, ffn: FFNKind = FFNKind.GELU) -> GPT:
    """A GPT of width 256 with random weights."""
    config = GPTConfig(
        n_layers=n_layers, n_heads=N_HEADS, d_model=D_MODEL, n_ctx=N_CTX, d_vocab=VOCABULARY, norm_eps=1e-6, ffn=ffn
    )
    return GPT(config).eval()


def prompts(n_sequences: int, n_pos: int) -> Tensor:
    """Random tokens, the same each time."""
    return torch.randint(0, VOCABULARY, (n_sequences, n_pos), generator=torch.Generator().manual_seed(0))


def generated(gpt: GPT, tokens: Tensor, *, cached: bool) -> Callable[[], Tensor]:
    """What to time: the likeliest continuation."""
    return lambda: gpt.generate(tokens, max_new_tokens=N_NEW, temperature=0.0, use_kv_cache=cached)


def cached_and_recomputed(n_layers: int, tokens: Tensor, rounds: int) -> dict[str, Any]:
    """The same text both ways."""
    gpt = gpt_with(n_layers)
    cases = {"with the cache": generated(gpt, tokens, cached=True), "recomputed": generated(gpt, tokens, cached=False)}
    return milliseconds(cases, rounds=rounds, warm_up=1)


def under_interventions(n_layers: int, tokens: Tensor, rounds: int) -> dict[str, Any]:
    """The same with one head of every layer ablated: hooks cost each step a little."""
    gpt = gpt_with(n_layers)
    with intervened(gpt, [zero(Tap.Z.at(layer), components=3) for layer in range(n_layers)]):
        cases = {
            "with the cache": generated(gpt, tokens, cached=True),
            "recomputed": generated(gpt, tokens, cached=False),
        }
        return milliseconds(cases, rounds=rounds, warm_up=1)


def beside_transformers(n_layers: int, tokens: Tensor, rounds: int) -> dict[str, Any]:
    """Ours and transformers' Llama of the same sizes, both with their caches."""
    transformers = importlib.import_module("transformers")
    gpt = gpt_with(n_layers, FFNKind.SWIGLU)
    config = transformers.LlamaConfig(
        hidden_size=D_MODEL,
        intermediate_size=4 * D_MODEL,
        num_hidden_layers=n_layers,
        num_attention_heads=N_HEADS,
        vocab_size=VOCABULARY,
        max_position_embeddings=N_CTX,
        tie_word_embeddings=True,
    )
    llama = transformers.LlamaForCausalLM(config).eval()
    options = {"min_new_tokens": N_NEW, "max_new_tokens": N_NEW, "do_sample": False, "pad_token_id": 0}
    mask = torch.ones_like(tokens)
    cases = {
        "ours": generated(gpt, tokens, cached=True),
        "transformers": lambda: llama.generate(tokens, attention_mask=mask, **options),
    }
    return milliseconds(cases, rounds=rounds, warm_up=1)


def cases(given: argparse.Namespace) -> Iterator[tuple[str, int, Callable[[], dict[str, Any]]]]:
    """Title, threads and measurement of every table, in the order in which they are printed."""
    for n_threads, n_layers in itertools.product(given.threads, given.layers):
        where = f"{n_layers} layers, {n_threads} thread{'s' if n_threads > 1 else ''}"
        for n_pos in (16, N_CTX - N_NEW):
            title = f"{N_NEW} tokens after {n_pos}, {where}"
            yield title, n_threads, partial(cached_and_recomputed, n_layers, prompts(1, n_pos), given.rounds)
    if given.quick:
        return
    n_layers, n_threads = given.layers[0], given.threads[-1]
    where = f"{n_layers} layers, {n_threads} threads"
    title = f"{N_NEW} tokens after 16, batch of 8, {where}"
    yield title, n_threads, partial(cached_and_recomputed, n_layers, prompts(8, 16), given.rounds)
    title = f"{N_NEW} tokens after 16, a head ablated in each layer, {where}"
    yield title, n_threads, partial(under_interventions, n_layers, prompts(1, 16), given.rounds)
    if importlib.util.find_spec("transformers") is not None:
        title = f"{N_NEW} tokens after 16, ours and transformers' Llama, {where}"
        yield title, n_threads, partial(beside_transformers, n_layers, prompts(1, 16), given.rounds)


def main() -> None:
    """Print each table as soon as it is measured, and write all of them to bench/results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, help="5 unless given; 2 with --quick")
    parser.add_argument("--layers", type=int, nargs="+", help="4 and 6 unless given; 4 with --quick")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--quick", action="store_true", help="with the cache and recomputed only, 4 layers, 2 rounds")
    given = parser.parse_args()
    given.rounds = given.rounds or (2 if given.quick else 5)
    given.layers = given.layers or ([4] if given.quick else [4, 6])
    tables: dict[str, Any] = {}
    for title, n_threads, measured in cases(given):
        torch.set_num_threads(n_threads)
        tables[title] = measured()
        print_table(title, tables[title], by="least")
        sys.stdout.flush()
    print(f"\nWritten to {write_results('decoding', tables)}")


if __name__ == "__main__":
    main()
