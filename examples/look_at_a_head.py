"""Open a checkpoint, find the head that looks most like an induction head, look at it, and take it out.

    python examples/look_at_a_head.py runs/demo

An induction head attends, from a token seen before, to what followed it then (Elhage et al. 2021; Olsson et al. 2022).
"""

from __future__ import annotations

import sys

import torch
from torch import Tensor

from interp.effects import ablate
from interp.patterns import pattern_scores
from interp.periods import deciding_period
from interp.scores import chance, induction_stripe
from interp.stimuli import ordinary_ids, repeated_tokens
from interp.wording import effect_sentences
from model import open_run

TEXT = "def first(self): return self.first"


def main(spec: str) -> None:
    """Print what the head attends to in a line of text, and what the model loses without it."""
    lab = open_run(spec)

    # Find: on random tokens repeated once, how much of each head's attention lands where induction would put it?
    period = deciding_period(lab)
    tokens = repeated_tokens(32, period, ordinary_ids(lab.tokenizer), bos=lab.tokenizer.bos)
    start = tokens.shape[1] - period

    def stripe(pattern: Tensor, _tokens: Tensor) -> Tensor:
        return induction_stripe(pattern, period, start=start)

    scores = pattern_scores(lab.gpt, tokens, {"induction": stripe})["induction"].mean(0)
    layer, head = divmod(int(scores.argmax()), scores.shape[1])
    even = chance(start, tokens.shape[1])
    print(f"L{layer}H{head} has the highest induction score: {scores[layer, head]:.2f}, where chance is {even:.2f}.\n")

    # Look: where does it attend in text?
    words = lab.str_tokens(TEXT)
    _, cache = lab.gpt.run_with_cache(lab.tokens(TEXT), f"blocks.{layer}.attn.hook_pattern")
    pattern = cache["pattern", layer][0, head]
    for query in torch.arange(1, len(words))[-12:]:
        share, key = pattern[query].max(0)
        print(f"  {words[query]!r:>8} attends most to {words[key]!r:>8} at {int(key):2d} ({share:.0%})")

    # Remove: replace its output by its mean, and compare with the other heads of its layer.
    print("", *effect_sentences(ablate(lab, f"L{layer}H{head}:mean")), sep="\n")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "runs/demo")
