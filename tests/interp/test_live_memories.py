"""The memories that write most at a token of a text: what each writes is what is missing without it."""

from __future__ import annotations

import pytest
import torch

from interp.live import LiveText, coefficients, live_tokens
from interp.live_memories import writing_memories
from model.errors import InputError
from model.lab import Lab
from model.sites import Tap
from tests.conftest import make_gpt_with
from tests.planted_run import planted_lab

POSITION = 5


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", make_gpt_with(d_vocab=20, norm="sandwich"))


def test_what_a_memory_writes_is_what_its_layer_s_output_lacks_without_it(lab: Lab) -> None:
    """Up to the output norm's scale, which is read where it is applied."""
    found = writing_memories(lab, LiveText.HELD_OUT, "", POSITION, n=6)
    tokens = live_tokens(lab, LiveText.HELD_OUT, "")[0][None]
    for layer, index, coefficient, written in zip(
        found.layer.tolist(), found.index.tolist(), found.coefficient, found.written, strict=True
    ):
        place, scale, out = (tap.at(layer) for tap in (Tap.MLP_POST, Tap.LN2_POST_SCALE, Tap.MLP_OUT))
        _, cache = lab.gpt.run_with_cache(tokens, [str(place), str(scale), str(out)], return_type=None)
        held = cache[scale]

        def cut(m: torch.Tensor, hook: object, index: int = index) -> torch.Tensor:
            m[..., index] = 0
            return m

        hooks = [(place, cut), (scale, lambda _, hook, held=held: held)]
        with lab.gpt.hooks(fwd_hooks=hooks):
            _, without = lab.gpt.run_with_cache(tokens, str(out), return_type=None)
        lacking = (cache[out] - without[out])[0, POSITION] * held[0, POSITION]
        assert float(lacking.norm()) == pytest.approx(float(written), rel=1e-4)
        assert float(cache[place][0, POSITION, index]) == float(coefficient)


def test_no_other_memory_writes_more_and_all_of_a_layer_write_all_of_it(lab: Lab) -> None:
    few = writing_memories(lab, LiveText.HELD_OUT, "", POSITION, n=3)
    every = writing_memories(lab, LiveText.HELD_OUT, "", POSITION, n=10**6)
    assert len(every.layer) == lab.config.n_layers * lab.config.ffn_width
    assert every.written.tolist() == sorted(every.written.tolist(), reverse=True)
    assert torch.equal(few.written, every.written[:3])
    for layer in range(lab.config.n_layers):
        here = every.layer == layer
        assert float(every.share[here].sum()) == pytest.approx(1, abs=1e-4)
        by_memory = every.coefficient[here][every.index[here].argsort()]
        assert torch.equal(by_memory, coefficients(lab, LiveText.HELD_OUT, "", layer)[POSITION])


@pytest.mark.parametrize("position", [-1, 10**6])
def test_a_position_that_is_not_there_is_refused(lab: Lab, position: int) -> None:
    with pytest.raises(InputError, match=f"no position {position} in this text; it has 0"):
        writing_memories(lab, LiveText.HELD_OUT, "", position)
