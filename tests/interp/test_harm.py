"""Harms measured from shared prefixes are those of whole runs, and stop where they would mean nothing."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from interp.ablation import ablated, mean_activations
from interp.harm import measure_harms
from interp.outcomes import NEW_TOKEN, TEXT, Outcome, copy_outcome
from interp.places import parse_places
from interp.sweep import stacked
from model.config import AttentionKind, GPTConfig, Norm, Positions
from model.errors import InputError
from model.gpt import GPT
from model.hooks import Hook
from model.sites import Tap

OUTCOMES = (TEXT, NEW_TOKEN, copy_outcome(6))
ABLATIONS = (
    *("L0H1:zero", "L1H2:mean", "L2H0,L2H3:mean@pos", "L1.ffn:zero", "L2M7:mean", "L0H0,L2H1:zero", "L1.attn:mean"),
    *("L1H0:zero", "L1H1:zero", "L2H1:mean", "L0H1,L0H2,L1M3:zero"),
)


class Held(TorchDispatchMode):
    """How many bytes of tensors made inside it are held at once, at most."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else (out,):
            if isinstance(tensor, Tensor):
                self._count(tensor.untyped_storage())
        return out

    def _count(self, storage: torch.UntypedStorage) -> None:
        if storage._cdata in self._known:
            return
        self._known.add(storage._cdata)
        self.now += storage.nbytes()
        self.most = max(self.most, self.now)
        weakref.finalize(storage, self._let_go, storage._cdata, storage.nbytes())

    def _let_go(self, key: int, n_bytes: int) -> None:
        self._known.discard(key)
        self.now -= n_bytes


def model(**changes: Any) -> GPT:
    config = GPTConfig(n_layers=3, n_heads=4, d_model=32, n_ctx=16, d_vocab=20, embed_std=1.0)
    return GPT(config.varied(**changes), seed=3).eval()


@pytest.fixture
def tokens() -> Tensor:
    segment = torch.randint(1, 20, (7, 6), generator=torch.Generator().manual_seed(0))
    return torch.cat([torch.zeros(7, 1, dtype=torch.long), segment, segment], dim=1)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": Norm.POST},
        {"norm": Norm.SANDWICH},
        {"positions": Positions.LEARNED},
        {"positions": Positions.ALIBI},
    ],
)
def test_reusing_the_layers_below_changes_no_number(changes: dict[str, Any], tokens: Tensor):
    gpt = model(**changes)
    means = mean_activations(gpt, tokens.flip(1), source="reversed sequences")
    ablations = [parse_places(text) for text in ABLATIONS]
    harms = measure_harms(gpt, tokens, ablations, OUTCOMES, means=means, batch_size=3)
    for column, text in enumerate(ABLATIONS):
        with ablated(gpt, text, means), torch.no_grad():
            logits = gpt(tokens)
        naive = torch.stack([outcome.of_logits(logits, tokens) for outcome in OUTCOMES], dim=1).double()
        torch.testing.assert_close(harms.ablated[:, column], naive, atol=1e-5, rtol=0)


def test_how_much_runs_at_a_time_changes_no_number(tokens: Tensor):
    gpt = model()
    means = mean_activations(gpt, tokens.flip(1), source="reversed sequences")
    ablations = [parse_places(text) for text in ABLATIONS]
    one_by_one, some, all_at_once = (
        measure_harms(gpt, tokens, ablations, OUTCOMES, means=means, memory=memory).ablated
        for memory in (2**16, 2**19, 2**28)
    )
    torch.testing.assert_close(one_by_one, all_at_once, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(some, all_at_once, atol=1e-6, rtol=1e-6)


def test_what_a_sweep_holds_fits_into_its_memory(tokens: Tensor):
    gpt, ablations = model(n_ctx=64), [parse_places(f"L{layer}H{i}:zero") for layer in range(3) for i in range(3)]
    long = tokens.repeat(2, 4)
    for memory in (2**20, 2**22):
        held = Held()
        with held:
            measure_harms(gpt, long, ablations, OUTCOMES[:2], memory=memory)
        assert memory / 8 < held.most <= memory


def test_each_ablation_sees_its_own_rows_at_their_positions(tokens: Tensor):
    """Three hooks on one site: the second changes in place, the third nothing."""
    gpt, seen = model(), []

    def doubled(z: Tensor, hook: Hook) -> Tensor:
        seen.append((z.shape[0], hook.positions.tolist()))
        return 2 * z

    def negated(z: Tensor, hook: Hook) -> None:
        z.neg_()

    site = str(Tap.Z.at(1))
    edits = stacked([[(site, doubled)], [(site, negated)], []], len(tokens))
    together = gpt.run_with_hooks(tokens.repeat(3, 1), fwd_hooks=edits)
    alone = [gpt.run_with_hooks(tokens, fwd_hooks=[(site, each)]) for each in (doubled, negated)] + [gpt(tokens)]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=0)
    assert seen == [(7, [list(range(13))] * 7)] * 2


@pytest.mark.parametrize("place", ["blocks.0.hook_resid_mid", "ln_final.hook_out", "hook_logits"])
def test_hooks_in_force_are_met_by_every_run(place: str, tokens: Tensor):
    gpt = model()

    def moved(x: Tensor, hook: Hook) -> Tensor:
        assert len(x) == len(tokens)
        return x.roll(1, dims=-1)

    with gpt.hooks(fwd_hooks=[(place, moved)]):
        harms = measure_harms(gpt, tokens, [parse_places(text) for text in ("L1H0:zero", "L1H1:zero")], OUTCOMES)
        for column, text in enumerate(("L1H0:zero", "L1H1:zero")):
            with ablated(gpt, text), torch.no_grad():
                expected = TEXT.of_logits(gpt(tokens), tokens).double()
            torch.testing.assert_close(harms.ablated[:, column, 0], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(harms.clean, measure_harms(gpt, tokens, [], OUTCOMES).clean)


def test_the_clean_loss_is_that_of_the_intact_model(tokens: Tensor):
    gpt = model()
    harms = measure_harms(gpt, tokens, [parse_places("L0H1:zero")], (TEXT,))
    torch.testing.assert_close(harms.clean[:, 0], gpt.loss(tokens, per_token=True).mean(dim=1).double().detach())
    assert torch.equal(measure_harms(gpt, tokens, [], (TEXT,)).clean, harms.clean)


def test_a_silenced_head_costs_exactly_nothing(tokens: Tensor):
    gpt = model()
    gpt.layers[1].attn.W_O[2].zero_()
    harm = measure_harms(gpt, tokens, [parse_places("L1H2:zero"), parse_places("L1H1:zero")], OUTCOMES).harm
    assert (harm[:, 0] == 0).all()
    assert (harm[:, 1] != 0).all()


def test_the_batch_size_changes_no_number(tokens: Tensor):
    gpt = model()
    one, all_at_once = (
        measure_harms(gpt, tokens, [parse_places("L1H2:zero")], (TEXT,), batch_size=size).harm for size in (1, 99)
    )
    torch.testing.assert_close(one, all_at_once, atol=1e-6, rtol=0)


def test_progress_is_told_once_for_each_ablation_of_each_batch(tokens: Tensor):
    told: list[tuple[int, int]] = []
    ablations = [parse_places("L0H1:zero"), parse_places("L1H1:zero")]
    measure_harms(
        model(), tokens, ablations, (TEXT,), batch_size=4, counted=lambda done, total: told.append((done, total))
    )
    assert told == [(1, 4), (2, 4), (3, 4), (4, 4)]


def test_without_an_outcome_there_is_nothing_to_measure(tokens: Tensor):
    with pytest.raises(InputError, match="outcomes is empty, so nothing would be measured"):
        measure_harms(model(), tokens, [parse_places("L0H1:zero")], ())


def test_nothing_stays_behind_when_an_outcome_raises(tokens: Tensor):
    gpt = model()
    clean = gpt(tokens)

    def broken(tokens: Tensor) -> Tensor:
        raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        measure_harms(
            gpt, tokens, [parse_places("L0H1:zero")], (Outcome(name="broken", meaning="none", weights=broken),)
        )
    assert torch.equal(gpt(tokens), clean)


def test_a_model_with_dropout_on_is_refused(tokens: Tensor):
    with pytest.raises(InputError, match=r"dropout=0\.5, so runs differ by chance; call gpt\.eval\(\)"):
        measure_harms(model(dropout=0.5).train(), tokens, [parse_places("L0H1:zero")], (TEXT,))


def test_a_bidirectional_model_is_refused(tokens: Tensor):
    with pytest.raises(InputError, match="bidirectional"):
        measure_harms(model(attention=AttentionKind.BIDIRECTIONAL), tokens, [parse_places("L0H1:zero")], (TEXT,))
