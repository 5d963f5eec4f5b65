"""What does it cost to ablate every head? `python -m bench.ablation_sweep`.

Every head of one GPT is zeroed, one after another, and the loss of each sequence taken: by `interp.harm`, by a loop
over hooks as a practised user writes it, by the same loop from the stream that enters the ablated layer, and by that in
TransformerLens 4 over the same weights, where it is installed (its native model, which is what it trains; and its
bridge of transformers' GPT-2, as it opens and in compatibility mode). Processor time of one thread, in interleaved
rounds; the native model once more over the parts that a model has here by default (rotary, RMSNorm), which
transformers' GPT-2 cannot hold. The losses have to agree to 1e-5, and the counted floating-point operations with the
formula below to 10%; where a ratio is below the one aimed at, that is said.

    loop      (1 + L H) runs of L layers
    sweep     1 run, and for each head of layer l: W_O and FFN of l, then L - 1 - l layers; logits at targets only
    a layer   2 (4 d^2 + 8 d^2) a token, and 4 T d for scores and values; logits 2 V d
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import time
import warnings
from collections.abc import Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from bench.native_lens import theirs_with_our_weights
from bench.timing import milliseconds, print_table, write_results
from interp.harm import measure_harms
from interp.outcomes import TEXT
from interp.places import every_head, head
from model import GPT, FFNKind, GPTConfig, NormKind, Positions, Tap

VOCABULARY, AGREED, COUNTED = 257, 1e-5, 0.1
SWEEP, LOOP, FROM_LAYER = "measure_harms", "loop over hooks", "loop from the ablated layer"
NATIVE = "TransformerLens 4, its native model"
BRIDGE, COMPATIBLE = "TransformerLens 4, GPT-2 bridged", "the same, compatibility mode"
BARS = {LOOP: 1.7, NATIVE: 3.5}
"""How many times the sweep's time the others are to take at least; the native model over the default parts."""

Losses = Callable[[], Tensor]
"""Gives the loss of each sequence under each ablation, [head, sequence]."""


GPT2_PARTS = {
    "norm_kind": NormKind.LAYERNORM,
    "positions": Positions.LEARNED,
    "ffn": FFNKind.GELU,
    "biases": True,
}
"""The parts that GPT-2 has, so that other libraries open the model."""


def gpt_with(n_layers: int, n_heads: int, d_model: int, n_ctx: int, parts: Mapping[str, Any] = GPT2_PARTS) -> GPT:
    """A GPT of random weights, in GPT-2's parts or others; without any, in those of `GPTConfig`."""
    sizes = {"n_layers": n_layers, "n_heads": n_heads, "d_model": d_model, "n_ctx": n_ctx, "d_vocab": VOCABULARY}
    return GPT(GPTConfig(**sizes, **parts)).eval()


def zeroing(index: int) -> Callable[[Tensor, Any], None]:
    """A hook on z that takes one head away, in place."""

    def zero(z: Tensor, hook: Any) -> None:
        del hook
        z[:, :, index] = 0

    return zero


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    """The mean loss of each sequence."""
    losses = functional.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten(), reduction="none")
    return losses.view(len(tokens), -1).mean(1)


def swept(gpt: GPT, tokens: Tensor) -> Tensor:
    """All heads by `measure_harms`, which also runs the intact model."""
    ablations = [[head(layer, index, "zero")] for layer, index in heads_of(gpt)]
    return measure_harms(gpt, tokens, ablations, [TEXT]).ablated[:, :, 0].T


@torch.no_grad()
def looped(gpt: GPT, tokens: Tensor) -> Tensor:
    """A whole run for each head, and one of the intact model."""
    loss_of(gpt(tokens), tokens)
    found = []
    for layer, index in heads_of(gpt):
        logits = gpt.run_with_hooks(tokens, fwd_hooks=[(Tap.Z.at(layer), zeroing(index))])
        found.append(loss_of(logits, tokens))
    return torch.stack(found)


@torch.no_grad()
def looped_from_the_layer(gpt: GPT, tokens: Tensor) -> Tensor:
    """The same, each run from the stream that enters the ablated layer, kept of the intact run."""
    logits, cache = gpt.run_with_cache(tokens, [Tap.RESID_PRE.at(layer) for layer in range(gpt.config.n_layers)])
    loss_of(logits, tokens)
    found = []
    for layer, index in heads_of(gpt):
        hook = (Tap.Z.at(layer), zeroing(index))
        logits = gpt.run_with_hooks(cache["resid_pre", layer], fwd_hooks=[hook], start_at_layer=layer)
        found.append(loss_of(logits, tokens))
    return torch.stack(found)


@torch.no_grad()
def bridged(bridge: Any, gpt: GPT, tokens: Tensor) -> Tensor:
    """The loop over hooks in TransformerLens."""
    loss_of(bridge(tokens), tokens)
    found = []
    for layer, index in heads_of(gpt):
        logits = bridge.run_with_hooks(tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", zeroing(index))])
        found.append(loss_of(logits, tokens))
    return torch.stack(found)


def bridge_of(gpt: GPT, *, compatible: bool) -> Any:
    """TransformerLens's bridge of transformers' GPT-2 with these weights."""
    from model.interop.hf import to_hf

    transformers = importlib.import_module("transformers")
    sources = importlib.import_module("transformer_lens.model_bridge.sources")
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        to_hf(gpt, None, Path(folder) / "gpt2")
        theirs = transformers.AutoModelForCausalLM.from_pretrained(Path(folder) / "gpt2").eval()
        bridge = sources.build_bridge_from_module(theirs, "GPT2LMHeadModel", hf_config=theirs.config)
        if compatible:
            bridge.enable_compatibility_mode()
    return bridge


def heads_of(gpt: GPT) -> list[tuple[int, int]]:
    """Every head of the model."""
    return every_head(gpt.config.n_layers, gpt.config.n_heads)


# --- operations -------------------------------------------------------------------------------------------------------


def formula(config: GPTConfig, n_batch: int, n_pos: int) -> dict[str, float]:
    """Floating-point operations of loop and sweep."""
    d, n_layers, n_heads = config.d_model, config.n_layers, config.n_heads
    n_tokens, n_targets = n_batch * n_pos, n_batch * (n_pos - 1)
    layer = n_tokens * (2 * 12 * d * d + 4 * n_pos * d)
    after_z = n_tokens * 2 * 9 * d * d
    logits = 2 * config.d_vocab * d
    later = sum(after_z + (n_layers - 1 - layer_of) * layer for layer_of in range(n_layers))
    return {
        LOOP: (1 + n_layers * n_heads) * (n_layers * layer + n_tokens * logits),
        SWEEP: n_layers * layer + n_heads * later + (1 + n_layers * n_heads) * n_targets * logits,
    }


def counted(case: Losses) -> float:
    """Floating-point operations of a case, as torch counts them."""
    fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    with FlopCounterMode(display=False, custom_mapping={fused: _attention}) as counter:
        case()
    return float(counter.get_total_flops())


def _attention(query: Any, key: Any, value: Any, *rest: Any, out_shape: Any = None, **more: Any) -> int:
    """Of scores and values, the whole square, as torch counts it for other kernels."""
    n_batch, n_heads, n_query, width = query
    return 2 * n_batch * n_heads * n_query * key[-2] * (width + value[-1])


# --- the table --------------------------------------------------------------------------------------------------------


def measured(cases: Mapping[str, Losses], *, rounds: int) -> tuple[dict[str, dict[str, float]], dict[str, float]]:
    """Processor time of each case in ms, and the largest difference of its losses from the hook loop's, in nats."""
    losses: dict[str, Tensor] = {}

    def kept(name: str) -> Callable[[], None]:
        return lambda: losses.update({name: cases[name]()})

    timed = milliseconds({name: kept(name) for name in cases}, rounds=rounds, warm_up=0, clock=time.process_time)
    return timed, {name: float((each - losses[LOOP]).abs().max()) for name, each in losses.items()}


def operations(gpt: GPT, tokens: Tensor) -> dict[str, dict[str, float]]:
    """Counted and stated operations of sweep and loop."""
    stated = formula(gpt.config, *tokens.shape)
    cases = {SWEEP: swept, LOOP: looped}
    return {
        name: {"counted": counted(partial(case, gpt, tokens)), "formula": stated[name]} for name, case in cases.items()
    }


def failures(agreed: Mapping[str, float], found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """What is wrong whatever the machine, in words."""
    wrong = [f"{name} differs by {gap:.1e} nats" for name, gap in agreed.items() if gap > AGREED]
    for name, row in found.items():
        off = row["counted"] / row["formula"] - 1
        wrong += [f"{name} takes {off:+.0%} of the stated operations"] if abs(off) > COUNTED else []
    return wrong


def cases_of(gpt: GPT, tokens: Tensor, *, bridges: bool) -> dict[str, Losses]:
    """What is timed side by side over one model; `bridges` where transformers' GPT-2 can hold it."""
    ours = {SWEEP: swept, LOOP: looped, FROM_LAYER: looped_from_the_layer}
    cases: dict[str, Losses] = {name: partial(case, gpt, tokens) for name, case in ours.items()}
    if importlib.util.find_spec("transformer_lens") is not None:
        cases[NATIVE] = partial(bridged, theirs_with_our_weights(gpt), gpt, tokens)
        if bridges:
            cases[BRIDGE] = partial(bridged, bridge_of(gpt, compatible=False), gpt, tokens)
            cases[COMPATIBLE] = partial(bridged, bridge_of(gpt, compatible=True), gpt, tokens)
    return cases


def missed(timed: Mapping[str, Mapping[str, float]], names: Collection[str] = tuple(BARS)) -> list[str]:
    """Ratios below those aimed at, of the cases called `names`, in words."""
    ratios = {name: row["median"] / timed[SWEEP]["median"] for name, row in timed.items()}
    return [
        f"{name} takes {ratios[name]:.2f} times as long, not {bar}"
        for name, bar in BARS.items()
        if name in names and name in ratios and ratios[name] < bar
    ]


def main() -> None:
    """Print the table and write it to bench/results; exit 1 where numbers or operations are not as stated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--positions", type=int, default=256)
    given = parser.parse_args()
    torch.set_num_threads(1)
    sizes = (given.layers, given.heads, given.width, given.positions)
    tokens = torch.randint(VOCABULARY, (given.batch, given.positions), generator=torch.Generator().manual_seed(0))
    title = f"{given.layers * given.heads} heads, {given.batch} x {given.positions} tokens, d_model {given.width}"
    tables: dict[str, dict[str, Any]] = {}
    below, wrong = [], []
    for parts, chosen, judged in (("default parts", {}, BARS), ("GPT-2's parts", GPT2_PARTS, (LOOP,))):
        gpt = gpt_with(*sizes, chosen)
        cases = cases_of(gpt, tokens, bridges=bool(chosen))
        found = operations(gpt, tokens[:1]) if chosen else {}  # the formula counts a layer of GPT-2's parts
        timed, agreed = measured(cases, rounds=given.rounds)
        print_table(f"{title}, {parts}: processor time of one thread", timed)
        print("\nlargest difference of a loss, nats: " + ", ".join(f"{name} {gap:.1e}" for name, gap in agreed.items()))
        for name, row in found.items():
            off = row["counted"] / row["formula"] - 1
            print(f"{name}: {row['counted'] / 1e9:.1f} GFLOP counted for a sequence, {off:+.1%} from the formula")
        tables[parts] = {"milliseconds": timed, "disagreement": agreed, "operations": found}
        below += [f"{each} ({parts})" for each in missed(timed, judged)]
        wrong += failures(agreed, found)
    print(f"\nWritten to {write_results('ablation_sweep', tables)}")
    if below:
        print(f"Below what is aimed at: {'; '.join(below)}")
    if wrong:
        raise SystemExit(f"not as stated: {'; '.join(wrong)}")


if __name__ == "__main__":
    main()
