"""What each memory adds to a logit: with the biases, all that its FFN adds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from interp.live import live_tokens
from interp.live_lens import attribution_on
from interp.memory_attribution import memories_towards
from model.errors import InputError, NotAdditiveError
from model.lab import Lab
from tests.conftest import make_gpt_with
from tests.planted_run import planted_lab

D_VOCAB = 20
"""That of the planted run's tokenizer."""

PROMPT = "abcdefgabcd"


def lab_with(folder: Path, **settings: Any) -> Lab:
    return planted_lab(folder / "run", make_gpt_with(d_vocab=D_VOCAB, norm_kind="layernorm", biases=True, **settings))


@pytest.mark.parametrize("settings", [{}, {"norm": "sandwich"}, {"norm": "none", "ffn": "swiglu"}], ids=str)
@pytest.mark.parametrize(
    "choices",
    [{"against": "nothing"}, {"target": "own"}, {"target": "token", "word": "c", "against_word": "d"}],
    ids=str,
)
def test_memories_and_biases_sum_to_what_the_ffn_adds(
    tmp_path: Path, settings: dict[str, Any], choices: dict[str, str]
) -> None:
    lab = lab_with(tmp_path, **settings)
    whole = attribution_on(lab, "prompt", PROMPT, detail="sublayers", **choices)
    for layer in (0, 1):
        found = memories_towards(lab, "prompt", PROMPT, layer, 6, **choices)
        assert found.total == pytest.approx(float(whole.found.of(f"L{layer}.ffn")[0, 6]), abs=1e-4)
        assert found.biases != 0


def test_taking_a_memory_out_of_the_last_layer_takes_out_what_it_adds(tmp_path: Path) -> None:
    """Without norms nothing is held, so in the last layer the direct effect is all there is."""
    lab = lab_with(tmp_path, norm="none")
    found = memories_towards(lab, "prompt", PROMPT, 1, 6, against="nothing")
    memory = int(found.added.abs().argmax())
    tokens = live_tokens(lab, "prompt", PROMPT)[0]

    def silence(activation: torch.Tensor, hook: object) -> torch.Tensor:
        changed = activation.clone()
        changed[..., memory] = 0
        return changed

    name = "blocks.1.mlp.hook_post"
    plain = lab.gpt(tokens[None])[0, 6, tokens[7]]
    without = lab.gpt.run_with_hooks(tokens[None], fwd_hooks=[(name, silence)])[0, 6, tokens[7]]
    assert float((plain - without).detach()) == pytest.approx(float(found.added[memory]), abs=1e-4)


def test_what_cannot_be_asked_is_refused_in_a_sentence(tmp_path: Path) -> None:
    lab = lab_with(tmp_path)
    with pytest.raises(InputError, match=r"no position 12 in this text; it has 0\.\.11"):
        memories_towards(lab, "prompt", PROMPT, 0, 12)
    with pytest.raises(InputError, match=r"no layer 2; layers run 0\.\.1"):
        memories_towards(lab, "prompt", PROMPT, 2, 0)
    post = lab_with(tmp_path / "post", norm="post")
    with pytest.raises(NotAdditiveError, match="norm=post"):
        memories_towards(post, "prompt", PROMPT, 0, 0)
