"""Harms measured from shared runs are those of whole runs, and stop where they would mean nothing."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from interp.ablation import ablated, mean_activations
from interp.ablation_plan import Ablation, Frozen, ablation_of
from interp.harm import Harms, measure_harms
from interp.outcomes import NEW_TOKEN, TEXT, Outcome, copy_outcome, get_outcome, user_outcome
from interp.places import parse_places
from interp.supplies import Supplies
from interp.sweep import stacked
from model.attention import Attention
from model.config import AttentionKind, FFNKind, GPTConfig, Init, Norm, Positions
from model.errors import InputError
from model.gpt import GPT
from model.hooks import Hook
from model.sites import Tap

OUTCOMES = (TEXT, NEW_TOKEN, copy_outcome(6))
ABLATIONS = ("L0H1:zero", "L1H0:zero", "L1H2,L2M7:mean", "L2H0,L2H3:mean@pos", "L1.ffn:zero", "L0H2,L0M3,L2.attn:zero")
EVERY_WAY = (
    *({"norm": norm} for norm in Norm),
    {"n_kv_heads": 2, "positions": Positions.LEARNED},
    {"positions": Positions.ALIBI, "ffn": FFNKind.SWIGLU, "biases": True},
    {"skip_connections": False, "qk_norm": True},
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
    """Small, and so made that every head matters and no prediction is sure."""
    config = GPTConfig(
        n_layers=3,
        n_heads=4,
        d_model=32,
        n_ctx=16,
        d_vocab=20,
        embed_std=1.0,
        init=Init.XAVIER,
        tie_embeddings=False,
    )
    return GPT(config.varied(**changes), seed=3).eval()


@pytest.fixture
def tokens() -> Tensor:
    return repeats(7)


def repeats(n: int, *, first: int = 0) -> Tensor:
    """Behind a 0, six distinct tokens twice."""
    orders = [torch.randperm(19, generator=torch.Generator().manual_seed(first + row)) for row in range(n)]
    segment = torch.stack([order[:6] + 1 for order in orders])
    return torch.cat([torch.zeros(n, 1, dtype=torch.long), segment, segment], dim=1)


def squared(logits: Tensor, tokens: Tensor) -> Tensor:
    """A function of whole logits: one number for each sequence."""
    return logits[:, tokens.shape[1] // 2].pow(2).mean(-1)


def entropy(logits: Tensor, tokens: Tensor) -> Tensor:
    """A function of whole logits: one number for each target."""
    del tokens
    return -(logits.softmax(-1) * logits.log_softmax(-1)).sum(-1)[:, :-1]


EVERYTHING = (
    *(get_outcome(name, period=6) for name in ("text_loss", "copy_loss", "copy_accuracy", "copy_kl", "icl_score")),
    get_outcome("copy_logit_difference", period=6),
    user_outcome("squared", "mean squared logit", squared, unit="logits squared", lower_is_better=False),
    user_outcome("entropy", "entropy", entropy, unit="nats", lower_is_better=True, weights=copy_outcome(6).weights),
)


def naive(gpt: GPT, tokens: Tensor, ablation: Any, outcomes: Sequence[Outcome], /, **given: Any) -> Tensor:
    """A whole run under one ablation, the plain way: [sequence, outcome]."""
    with torch.no_grad():
        intact = gpt(tokens)
        with ablated(gpt, ablation, **given):
            logits = gpt(tokens)
        found = [outcome.of_logits(logits, tokens, intact=intact).double() for outcome in outcomes]
    return torch.stack(found, dim=1)


# --- the same numbers as whole runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", EVERY_WAY, ids=str)
def test_reusing_what_comes_before_changes_no_number(changes: dict[str, Any], tokens: Tensor):
    gpt = model(**changes)
    means = mean_activations(gpt, tokens.flip(1), source="reversed sequences")
    harms = measure_harms(gpt, tokens, ABLATIONS, OUTCOMES, means=means)
    for column, text in enumerate(ABLATIONS):
        expected = naive(gpt, tokens, text, OUTCOMES, means=means)
        torch.testing.assert_close(harms.ablated[:, column], expected, atol=1e-5, rtol=0)
    assert harms.harm.abs().mean(0).min() > 1e-4  # or nothing could be seen to go wrong


def test_every_kind_of_outcome_is_what_whole_logits_give(tokens: Tensor):
    gpt, ablations = model(), ("L0H1:zero", "L1.ffn:zero", "L2H3:zero", "L0H0:zero")
    harms = measure_harms(gpt, tokens, ablations, EVERYTHING)
    for column, text in enumerate(ablations):
        expected = naive(gpt, tokens, text, EVERYTHING)
        torch.testing.assert_close(harms.ablated[:, column], expected, atol=1e-5, rtol=1e-5)
    signs = torch.tensor([1, 1, -1, 1, 1, -1, -1, 1.0]).double()
    assert torch.equal(harms.harm, signs * (harms.ablated - harms.clean[:, None]))


@pytest.mark.parametrize("memory", [2**14, 2**28])
def test_gates_positions_draws_twins_and_held_patterns_are_those_of_whole_runs(memory: int, tokens: Tensor):
    gpt = model()
    donors = repeats(12, first=100)
    means = mean_activations(gpt, donors, source="reversed sequences")
    supplies = Supplies(source="reversed sequences", means=means, donors=donors, corrupted=tokens.roll(1, 0), seed=5)
    plan = [
        ablation_of("L1H2", gpt.config, "mean", gate=0.3),
        ablation_of("L0H1,L1.ffn", gpt.config, "zero", positions=(2, 7, 8)),
        ablation_of("L0H1", gpt.config, "zero", frozen=Frozen.PATTERNS),
        ablation_of("L0H2,L1H0", gpt.config, "resample"),
        ablation_of("L1.ffn", gpt.config, "resample", frozen=Frozen.PATTERNS),
        ablation_of("L0H1", gpt.config, "counterfactual"),
        ablation_of("L1H3", gpt.config, "mean@seq"),
        ablation_of("L1M3,L1M7:times=3,L2H1:times=-1", gpt.config),
        ablation_of("L1M3:set=2,L1M9:set=-1", gpt.config, gate=0.3, positions=(2, 7, 8)),
        ablation_of("L1M3,L1M9,L1M4:swap,L0H1,L1H2:mean", gpt.config),
        ablation_of("L1H3", gpt.config, "zero", gate=1.0),
    ]
    harms = measure_harms(gpt, tokens, plan, [TEXT, get_outcome("text_kl", period=6)], supplies=supplies, memory=memory)
    for column, each in enumerate(plan):
        runs = [
            naive(gpt, tokens, each, harms.outcomes, supplies=supplies, tokens=tokens, draw=draw)
            for draw in range(each.draws(supplies))
        ]
        expected = torch.stack(runs).mean(0)
        torch.testing.assert_close(harms.ablated[:, column], expected, atol=1e-5, rtol=0)
    assert harms.harm[:, -1].abs().max() < 1e-6
    assert harms.harm[:, :-1].abs().mean(0).min() > 1e-3  # or nothing could be seen to go wrong


def test_how_much_runs_at_a_time_changes_no_number(tokens: Tensor):
    gpt = model()
    means = mean_activations(gpt, tokens.flip(1), source="reversed sequences")
    one_by_one, all_at_once = (
        measure_harms(gpt, tokens, ABLATIONS, EVERYTHING, means=means, memory=memory).ablated
        for memory in (2**16, 2**28)
    )
    torch.testing.assert_close(one_by_one, all_at_once, atol=2e-6, rtol=1e-5)


# --- what is shared, and how much is done at a time -------------------------------------------------------------------


def test_neither_layers_below_nor_attention_of_the_ablated_layer_run_again(tokens: Tensor):
    gpt, seen = model(), []
    for layer, block in enumerate(gpt.layers):
        block.attn.q_proj.register_forward_hook(lambda *_, layer=layer: seen.append(f"attention {layer}"))
        assert block.mlp is not None
        block.mlp.in_proj.register_forward_hook(lambda *_, layer=layer: seen.append(f"FFN {layer}"))
    measure_harms(gpt, tokens, ["L1H0:zero"], [TEXT])
    assert seen[6:] == ["FFN 1", "attention 2", "FFN 2"]
    seen.clear()
    measure_harms(gpt, tokens, ["L1.ffn:zero"], [TEXT])
    assert seen[6:] == ["FFN 1", "attention 2", "FFN 2"]
    seen.clear()
    measure_harms(gpt, tokens, [f"L2H{index}:zero" for index in range(4)], [TEXT])
    assert seen[6:] == ["FFN 2"], "four heads side by side"


def test_patterns_are_formed_where_they_are_held_and_nowhere_else(tokens: Tensor, monkeypatch: pytest.MonkeyPatch):
    gpt, seen, right = model(), [], Attention._attend_explicitly

    def spied(self: Attention, *arguments: Any) -> Tensor:
        seen.append(self.layer)
        return right(self, *arguments)

    monkeypatch.setattr(Attention, "_attend_explicitly", spied)
    measure_harms(gpt, tokens, ["L0H1:zero", "L1.attn:zero"], [TEXT])
    assert seen == []
    measure_harms(gpt, tokens, [ablation_of("L1H1:zero", gpt.config, frozen=Frozen.PATTERNS)], [TEXT])
    assert set(seen) == {2}


def test_logits_are_formed_at_targets_that_count_and_the_intact_ones_once_for_all_side_by_side(tokens: Tensor):
    gpt, rows = model(), []
    gpt.unembed.register_forward_hook(lambda _, given, out: rows.append(out[..., 0].numel()))
    ablations, n_targets = [f"L1H{index}:zero" for index in range(4)], 7 * 5
    measure_harms(gpt, tokens, ablations, [copy_outcome(6)])
    assert sum(rows) == (1 + 4) * n_targets
    rows.clear()
    measure_harms(gpt, tokens, ablations, [get_outcome("copy_kl", period=6)])
    assert sum(rows) == (1 + 1 + 4) * n_targets


def plain(gpt: GPT) -> list[Any]:
    return [f"L{layer}H{i}:zero" for layer in range(3) for i in range(2)]


def demanding(gpt: GPT) -> list[Any]:
    kinds: tuple[dict[str, Any], ...] = (
        {"frozen": Frozen.PATTERNS},
        {"intervention": "resample"},
        {"intervention": "counterfactual"},
    )
    return [ablation_of("L0H1", gpt.config, **{"intervention": "mean@seq"} | kind) for kind in kinds]


@pytest.mark.parametrize("ablations", [plain, demanding])
@pytest.mark.parametrize("memory", [2**20, 2**22])
def test_what_a_sweep_holds_fits_into_its_memory(ablations: Callable[[GPT], list[Any]], memory: int, tokens: Tensor):
    gpt, long = model(n_ctx=64), tokens.repeat(1, 4)
    supplies = Supplies(source="", donors=repeats(9, first=100).repeat(1, 4), corrupted=long.roll(1, 0))
    whole = user_outcome("squared", "mean squared logit", squared, unit="", lower_is_better=True)
    measured = (TEXT, get_outcome("text_kl", period=6), whole)
    held = Held()
    with held:
        measure_harms(gpt, long, ablations(gpt), measured, memory=memory, supplies=supplies)
    assert memory / 8 < held.most <= memory


def test_whole_runs_under_hooks_fit_into_the_memory_too(tokens: Tensor):
    gpt, long, held = model(n_ctx=64, d_vocab=600), tokens.repeat(2, 4), Held()
    with gpt.explicit_attention(), held:
        measure_harms(gpt, long, ["L1H0:zero"], [get_outcome("text_kl", period=6)], memory=2**22)
    assert 2**22 / 8 < held.most <= 2**22


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


# --- hooks in force ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "place",
    [
        *("blocks.0.hook_resid_mid", "blocks.1.hook_resid_pre", "blocks.1.attn.hook_z", "blocks.1.hook_resid_mid"),
        *("blocks.2.hook_resid_post", "ln_final.hook_out", "hook_logits"),
    ],
)
def test_hooks_in_force_are_met_by_every_run(place: str, tokens: Tensor):
    gpt, ablations = model(), ("L1H0:zero", "L1H1:zero", "L1.ffn:zero")

    def moved(x: Tensor, hook: Hook) -> Tensor:
        assert len(x) == len(tokens)
        return 0.5 * x.roll(1, dims=-1)

    measured = (TEXT, get_outcome("copy_kl", period=6))
    with gpt.hooks(fwd_hooks=[(place, moved)]):
        harms = measure_harms(gpt, tokens, ablations, measured, by_token=True)
        for column, text in enumerate(ablations):
            expected = naive(gpt, tokens, text, measured)
            torch.testing.assert_close(harms.ablated[:, column], expected, atol=1e-5, rtol=0)
    assert not torch.allclose(harms.clean, measure_harms(gpt, tokens, [], measured).clean)
    torch.testing.assert_close(harms.token_harm.mean(-1), harms.harm[:, :, 0])


# --- by token ---------------------------------------------------------------------------------------------------------


def test_harms_by_token_sum_to_those_by_sequence(tokens: Tensor):
    gpt, ablations = model(), ("L1H0:zero", "L2.ffn:zero")
    for outcome in (copy_outcome(6), get_outcome("copy_logit_difference", period=6), EVERYTHING[-1]):
        harms = measure_harms(gpt, tokens, ablations, [outcome, TEXT], by_token=True, batch_size=3)
        chosen = outcome.targets(tokens)[:, None].expand(-1, 2, -1)
        assert torch.equal(~harms.token_harm.isnan(), chosen)
        torch.testing.assert_close(harms.token_harm.nanmean(-1), harms.harm[:, :, 0])
    scored = measure_harms(gpt, tokens, ablations, [get_outcome("icl_score", period=6)], by_token=True)
    weights = get_outcome("icl_score", period=6).weights(tokens)[:, None]
    torch.testing.assert_close((scored.token_harm.nan_to_num() * weights).sum(-1), scored.harm[:, :, 0])


def test_harms_by_token_have_to_be_asked_for_and_to_exist(tokens: Tensor):
    gpt = model()
    with pytest.raises(InputError, match="were not measured; pass by_token=True"):
        _ = measure_harms(gpt, tokens, ["L1H0:zero"], [TEXT]).token_harm
    with pytest.raises(InputError, match="squared is one number for each sequence, so it has none for each token"):
        measure_harms(gpt, tokens, ["L1H0:zero"], [EVERYTHING[-2]], by_token=True)


# --- what a harm is ---------------------------------------------------------------------------------------------------


def test_worse_is_positive_for_a_loss_that_rises_and_an_accuracy_that_falls():
    outcomes = (TEXT, get_outcome("text_accuracy", period=6))
    clean, without = torch.tensor([[1.0, 0.75]]).double(), torch.tensor([[[3.0, 0.25]]]).double()
    assert Harms(outcomes=outcomes, clean=clean, ablated=without).harm.tolist() == [[[2.0, 0.5]]]


def test_the_clean_loss_is_that_of_the_intact_model_and_its_divergence_from_itself_is_0(tokens: Tensor):
    gpt, measured = model(), (TEXT, get_outcome("text_kl", period=6))
    harms = measure_harms(gpt, tokens, ["L0H1:zero"], measured)
    expected = gpt.loss(tokens, per_token=True).mean(dim=1).double().detach()
    torch.testing.assert_close(harms.clean[:, 0], expected, atol=0, rtol=1e-6)
    assert (harms.clean[:, 1] == 0).all()
    assert torch.equal(measure_harms(gpt, tokens, [], measured).clean, harms.clean)


def test_a_silenced_head_costs_exactly_nothing(tokens: Tensor):
    gpt = model()
    gpt.layers[1].attn.W_O[2].zero_()
    harm = measure_harms(gpt, tokens, ["L1H2:zero", "L1H1:zero"], (*OUTCOMES, get_outcome("copy_kl", period=6))).harm
    assert (harm[:, 0] == 0).all()
    assert (harm[:, 1] != 0).all()


def test_progress_is_told_once_for_each_draw_of_each_ablation_of_each_batch(tokens: Tensor):
    told: list[tuple[int, int]] = []
    supplies = Supplies(source="the others", donors=repeats(9, first=100))
    measure_harms(
        model(),
        tokens,
        ["L0H1:zero", "L1H1:resample"],
        (TEXT,),
        supplies=supplies,
        batch_size=4,
        counted=lambda done, total: told.append((done, total)),
    )
    assert told == [(number, 18) for number in range(1, 19)]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_without_an_outcome_there_is_nothing_to_measure(tokens: Tensor):
    with pytest.raises(InputError, match="outcomes is empty, so nothing would be measured"):
        measure_harms(model(), tokens, ["L0H1:zero"], ())


def test_what_the_supplies_do_not_have_is_refused_before_anything_runs(tokens: Tensor):
    gpt, runs = model(), []
    gpt.unembed.register_forward_hook(lambda *_: runs.append(1))
    means = mean_activations(gpt, tokens.flip(1), source="reversed sequences")
    runs.clear()
    with pytest.raises(InputError, match="L1H1:resample needs other sequences"):
        measure_harms(gpt, tokens, ["L0H1:zero", "L1H1:resample"], (TEXT,), means=means)
    with pytest.raises(InputError, match="L0H1:mean needs means"):
        measure_harms(gpt, tokens, ["L0H1"], (TEXT,))
    with pytest.raises(InputError, match="supplies hold the means already"):
        measure_harms(gpt, tokens, ["L0H1"], (TEXT,), means=means, supplies=Supplies(source="", means=means))
    assert not runs


def test_nothing_stays_behind_when_an_outcome_raises(tokens: Tensor):
    gpt = model()
    clean = gpt(tokens)

    def broken(logits: Tensor, tokens: Tensor) -> Tensor:
        raise RuntimeError("boom")

    outcome = user_outcome("broken", "none", broken, unit="", lower_is_better=True)
    with pytest.raises(RuntimeError, match="boom"):
        measure_harms(gpt, tokens, ["L0H1:zero"], [outcome])
    assert torch.equal(gpt(tokens), clean)


def test_a_model_with_dropout_on_is_refused(tokens: Tensor):
    with pytest.raises(InputError, match=r"dropout=0\.5, so runs differ by chance; call gpt\.eval\(\)"):
        measure_harms(model(dropout=0.5).train(), tokens, [parse_places("L0H1:zero")], (TEXT,))


def test_a_bidirectional_model_is_refused(tokens: Tensor):
    with pytest.raises(InputError, match="bidirectional"):
        measure_harms(model(attention=AttentionKind.BIDIRECTIONAL), tokens, [parse_places("L0H1:zero")], (TEXT,))


def test_places_and_ablations_are_taken_alike(tokens: Tensor):
    gpt = model()
    made = Ablation(places=parse_places("L1H1:zero"))
    harm = measure_harms(gpt, tokens, [made, "L1H1:zero", parse_places("L1H1:zero")], (TEXT,)).harm
    torch.testing.assert_close(harm[:, :1].expand_as(harm), harm, atol=1e-6, rtol=0)
