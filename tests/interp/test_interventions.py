"""Interventions put what they say where they say, at every place of a model, the same with and without the cache."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.interventions import (
    Replacement,
    hooks_of,
    intervened,
    mean,
    mean_held,
    mean_per_position,
    patch,
    record,
    zero,
)
from interp.recordings import Means, Recording
from model import GPT, Hook, KeyValueCache
from model.errors import InputError, UnknownSiteError
from model.sites import Tap, site_named
from tests.conftest import make_gpt_with
from tests.model.variants import name_of
from tests.planted import INDUCTION_HEAD, PREVIOUS_HEAD, induction_model, memory_model

MODELS: list[dict[str, Any]] = [
    {"positions": "rope", "n_kv_heads": 2, "biases": True},
    {"positions": "learned", "norm": "post", "norm_kind": "layernorm"},
    {"positions": "alibi", "norm": "sandwich", "ffn": "swiglu"},
    {"positions": "sinusoidal", "norm": "pre", "n_kv_heads": 1, "ffn": "swiglu"},
    {"smeared_keys": True, "n_kv_heads": 2, "qk_norm": True},
]
KINDS = ["zero", "mean", "mean@pos", "patch"]
TOLERANCE: dict[str, Any] = {"atol": 1e-5, "rtol": 1e-5}
N_CTX, N_POS = 24, 8
LENGTHS = [8, 6, 3]
"""Of three prompts, padded on the left to the longest."""


def drawn(n_sequences: int, n_pos: int, seed: int) -> Tensor:
    return torch.randint(0, 50, (n_sequences, n_pos), generator=torch.Generator().manual_seed(seed))


TOKENS = drawn(3, N_POS, 7)
MASK = torch.tensor([N_POS - length for length in LENGTHS])[:, None] <= torch.arange(N_POS)


@cache
def model_of(index: int) -> GPT:
    return make_gpt_with(**MODELS[index])


@cache
def means_of(index: int) -> Means:
    gpt = model_of(index)
    return mean_held(gpt, drawn(8, N_CTX, 1), gpt.named_sites(), source="8 random sequences")


@cache
def recording_of(index: int) -> Recording:
    """Of as many other sequences as TOKENS has, padded differently."""
    gpt, mask = model_of(index), torch.ones(3, N_CTX, dtype=torch.bool)
    return record(gpt, drawn(3, N_CTX, 2), gpt.named_sites(), source="3 others", attention_mask=mask)


def replacement_of(kind: str, site: str, index: int, **where: Any) -> Replacement:
    made = {
        "zero": lambda: zero(site, **where),
        "mean": lambda: mean(site, means_of(index), **where),
        "mean@pos": lambda: mean_per_position(site, means_of(index), **where),
        "patch": lambda: patch(site, recording_of(index), **where),
    }
    return made[kind]()


def is_meaningful(kind: str, site: str) -> bool:
    axes = site_named(site).tap.axes
    return not (kind == "zero" and "one" in axes) and not (kind == "mean" and "key" in axes)


def cases() -> Iterator[Any]:
    """Every place with every kind of intervention; of the last layer, with one kind each, in turn.

    Every suite tries each place with each kind in the first model that has it, and with one kind in each other, in
    turn; the rest are slow.
    """
    tried: set[tuple[str, str]] = set()
    for index, variant in enumerate(MODELS):
        for turn, site in enumerate(make_gpt_with(**variant).named_sites()):
            kinds = [kind for kind in KINDS if is_meaningful(kind, site)]
            in_turn = kinds[(turn + index) % len(kinds)]
            for kind in kinds if site_named(site).layer != 1 else [kinds[turn % len(kinds)]]:
                is_quick = (site, kind) not in tried or kind == in_turn or site_named(site).layer == 1
                tried.add((site, kind))
                marks = () if is_quick else (pytest.mark.slow,)
                yield pytest.param(index, site, kind, id=f"{name_of(variant)}-{site}-{kind}", marks=marks)


CASES = list(cases())


@pytest.fixture
def bare() -> Iterator[None]:
    """Without checking shapes at every call: thousands of passes are run here, the others are checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def decoded(gpt: GPT, tokens: Tensor, mask: Tensor | None = None, *, first: int = 4) -> Tensor:
    """Logits of the `first` positions at once, of two more, and then of one at a time, through the cache."""
    kv_cache = KeyValueCache(gpt.config, len(tokens), device=gpt.device, dtype=gpt.dtype)
    parts, start = [], 0
    for end in (first, first + 2, *range(first + 3, tokens.shape[1] + 1)):
        parts.append(gpt(tokens[:, start:end], None if mask is None else mask[:, :end], kv_cache=kv_cache))
        start = end
    return torch.cat(parts, dim=1)


def some_of(site: str) -> dict[str, Any]:
    """Some positions (5 falls into a chunk, 7 into a step) and, where there are any, some components."""
    tap = site_named(site).tap
    where: dict[str, Any] = {"positions": [1, 2, 5, 7]}
    return where | ({} if tap.component_axis is None else {"components": 0})


# --- with and without the key-value cache -----------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("index", "site", "kind"), CASES)
def test_the_cache_and_padding_change_no_logit_of_an_intervened_model(index: int, site: str, kind: str) -> None:
    gpt = model_of(index)
    with intervened(gpt, [replacement_of(kind, site, index)]):
        whole = gpt(TOKENS, MASK)
        torch.testing.assert_close(decoded(gpt, TOKENS, MASK)[MASK], whole[MASK], **TOLERANCE)
    for row, length in enumerate(LENGTHS):
        with intervened(gpt, [_of_row(kind, site, index, row)]):
            alone = gpt(TOKENS[row : row + 1, -length:])
        torch.testing.assert_close(whole[row : row + 1, -length:], alone, **TOLERANCE)
    with intervened(gpt, [replacement_of(kind, site, index, **some_of(site))]):
        torch.testing.assert_close(decoded(gpt, TOKENS), gpt(TOKENS), **TOLERANCE)


def _of_row(kind: str, site: str, index: int, row: int) -> Replacement:
    if kind != "patch":
        return replacement_of(kind, site, index)
    return patch(site, recording_of(index).sequences([row]))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("index", range(len(MODELS)))
def test_an_intervened_model_generates_the_same_text_with_and_without_the_cache(index: int) -> None:
    """At every place, with one kind each, in turn."""
    gpt = model_of(index)
    options = {"max_new_tokens": 4, "attention_mask": MASK, "temperature": 0.7, "seed": 5}
    for turn, site in enumerate(gpt.named_sites()):
        kinds = [kind for kind in KINDS if is_meaningful(kind, site)]
        with intervened(gpt, [replacement_of(kinds[(turn + index) % len(kinds)], site, index)]):
            cached, recomputed = (gpt.generate(TOKENS, **options, use_kv_cache=on) for on in (True, False))
        assert torch.equal(cached, recomputed), site


@torch.no_grad()
@pytest.mark.parametrize("index", range(len(MODELS)))
def test_several_interventions_at_once_keep_all_of_this(index: int) -> None:
    gpt = model_of(index)
    several = [
        mean_per_position(Tap.PATTERN.at(0), means_of(index), components=[1, 3], positions=range(2, 8)),
        zero(Tap.PATTERN.at(0), components=0, key_positions=0),
        patch(Tap.K.at(1), recording_of(index), positions=[0, 2, 7]),
        mean(Tap.MLP_POST.at(0), means_of(index), components=range(0, 60, 7)),
        zero(Tap.Z.at(1), components=2),
    ]
    with intervened(gpt, several):
        whole = gpt(TOKENS, MASK)
        torch.testing.assert_close(decoded(gpt, TOKENS, MASK)[MASK], whole[MASK], **TOLERANCE)
    assert (gpt(TOKENS, MASK) - whole)[MASK].abs().max() > 1e-2


# --- what raw hooks are told ------------------------------------------------------------------------------------------


def test_raw_hooks_see_new_positions_only_and_know_which(tiny: GPT) -> None:
    seen: list[tuple[tuple[int, ...], Tensor, Tensor]] = []

    def look(tensor: Tensor, hook: Hook) -> None:
        seen.append((tuple(tensor.shape), hook.positions.clone(), hook.key_positions.clone()))

    for site in (Tap.RESID_PRE.at(0), Tap.PATTERN.at(1)):
        seen.clear()
        with tiny.hooks([(site, look)]):
            tiny.generate(TOKENS, max_new_tokens=4, attention_mask=MASK)
        assert len(seen) == 4
        absolute = torch.where(MASK, MASK.long().cumsum(-1) - 1, -1)
        for step, (shape, positions, key_positions) in enumerate(seen):
            new = torch.tensor(LENGTHS)[:, None] + step - 1
            expected = absolute if step == 0 else new
            assert torch.equal(positions, expected), f"step {step}"
            keys = absolute if step == 0 else torch.cat((key_positions_before, new), dim=1)  # noqa: F821
            assert torch.equal(key_positions, keys), f"step {step}"
            key_positions_before = key_positions  # noqa: F841
            axes = dict(zip(site.tap.axes, shape, strict=True))
            assert axes.get("pos", axes.get("query")) == positions.shape[1]
            assert axes.get("key", N_POS + step) == key_positions.shape[1]


def test_without_padding_hooks_count_prompt_and_steps_from_the_start(tiny: GPT) -> None:
    positions: list[list[int]] = []
    keys: list[int] = []
    with tiny.hooks([("hook_embed", lambda x, hook: positions.extend(hook.positions[:1].tolist()))]):
        tiny.generate(TOKENS, max_new_tokens=4)
    assert positions == [list(range(8)), [8], [9], [10]]
    with tiny.hooks([("blocks.0.attn.hook_k", lambda x, hook: keys.append(hook.key_positions.shape[1]))]):
        tiny.generate(TOKENS, max_new_tokens=4)
    assert keys == [8, 9, 10, 11]


# --- causality --------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("index", "site", "kind"), CASES)
def test_no_intervention_lets_the_future_reach_the_past(index: int, site: str, kind: str) -> None:
    gpt, changed = model_of(index), TOKENS.clone()
    changed[:, 5:] = (changed[:, 5:] + 17) % 50
    with intervened(gpt, [replacement_of(kind, site, index)]):
        before, after = gpt(TOKENS), gpt(changed)
    assert torch.equal(before[:, :5], after[:, :5])


@pytest.mark.parametrize("kind", ["zero", "mean@pos", "patch"])
@pytest.mark.parametrize("index", range(len(MODELS)))
def test_masked_scores_stay_minus_infinity_and_patterns_causal(index: int, kind: str) -> None:
    gpt = model_of(index)
    real = MASK[:, :, None] & MASK[:, None, :]
    visible = (real & torch.ones(N_POS, N_POS, dtype=torch.bool).tril())[:, None].expand(-1, 4, -1, -1)
    with intervened(gpt, [replacement_of(kind, str(Tap.ATTN_SCORES.at(0)), index)]):
        _, cached = gpt.run_with_cache(TOKENS, [Tap.ATTN_SCORES.at(0), Tap.PATTERN.at(0)], attention_mask=MASK)
    assert torch.equal(cached["attn_scores", 0].isneginf(), ~visible)
    assert cached["pattern", 0].isfinite().all()
    with intervened(gpt, [replacement_of(kind, str(Tap.PATTERN.at(0)), index)]):
        _, cached = gpt.run_with_cache(TOKENS, [Tap.PATTERN.at(0)], attention_mask=MASK)
    assert not cached["pattern", 0][~visible].any()


# --- what is put where ------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.parametrize("index", range(len(MODELS)))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_put_stands_where_it_was_said_and_nowhere_else(index: int, kind: str) -> None:
    gpt = model_of(index)
    for site in (str(Tap.K.at(0)), str(Tap.MLP_POST.at(1)), str(Tap.RESID_MID.at(1))):
        where = some_of(site)
        _, clean = gpt.run_with_cache(TOKENS, site)
        with intervened(gpt, [replacement_of(kind, site, index, **where)]):
            _, found = gpt.run_with_cache(TOKENS, site)
        means, recording = means_of(index), recording_of(index)
        wanted = {
            "zero": torch.zeros_like(clean[site]),
            "mean": means.overall(site).expand_as(clean[site]),
            "mean@pos": means.at(site)[:N_POS].expand_as(clean[site]),
            "patch": recording.at(site)[:, :N_POS],
        }[kind]
        there = torch.zeros_like(clean[site], dtype=torch.bool)
        there[:, where["positions"]] = True
        if "components" in where:
            there[:, :, 1:] = False
        assert torch.equal(found[site], torch.where(there, wanted, clean[site]))


@torch.no_grad()
def test_a_pair_of_query_and_key_is_replaced_alone(tiny: GPT) -> None:
    site = Tap.PATTERN.at(1)
    _, clean = tiny.run_with_cache(TOKENS, site)
    with intervened(tiny, [zero(site, positions=5, key_positions=[2, 7], components=3)]):
        _, found = tiny.run_with_cache(TOKENS, site)
    expected = clean[site].clone()
    expected[:, 3, 5, 2] = 0
    assert torch.equal(found[site], expected)


@torch.no_grad()
def test_padding_is_never_written_into() -> None:
    gpt = model_of(0)
    for site in (Tap.RESID_PRE.at(1), Tap.Z.at(0), Tap.PATTERN.at(0)):
        with gpt.explicit_attention():
            _, clean = gpt.run_with_cache(TOKENS, site, attention_mask=MASK)
            with intervened(gpt, [replacement_of("patch", str(site), 0)]):
                _, found = gpt.run_with_cache(TOKENS, site, attention_mask=MASK)
        padded = ~MASK if site.tap is not Tap.PATTERN else ~(MASK[:, :, None] & MASK[:, None, :])
        moved = (lambda x: x.movedim(1, -1)) if site.tap is Tap.PATTERN else (lambda x: x)
        assert torch.equal(moved(found[site])[padded], moved(clean[site])[padded])
        assert not torch.equal(found[site], clean[site])


@torch.no_grad()
def test_of_two_replacements_of_the_same_numbers_the_later_counts(tiny: GPT) -> None:
    clean = record(tiny, TOKENS, Tap.Z.at(0), source="clean")
    with intervened(tiny, [zero(Tap.Z.at(0)), patch(Tap.Z.at(0), clean)]):
        assert torch.equal(tiny(TOKENS), tiny(TOKENS))
        twice = tiny(TOKENS)
    assert torch.equal(twice, tiny(TOKENS))


# --- patching ---------------------------------------------------------------------------------------------------------


@torch.no_grad()
@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("index", range(len(MODELS)))
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "padded"])
def test_patching_a_run_with_itself_is_bit_identical_on_the_same_path(index: int, mask: Tensor | None) -> None:
    gpt = model_of(index)
    with gpt.explicit_attention():
        clean = gpt(TOKENS, mask)
        for site in gpt.named_sites():
            itself = record(gpt, TOKENS, site, source="itself", attention_mask=mask)
            with intervened(gpt, [patch(site, itself)]):
                assert torch.equal(gpt(TOKENS, mask), clean), site


@torch.no_grad()
@pytest.mark.parametrize("index", range(len(MODELS)))
def test_the_whole_stream_of_a_clean_run_gives_its_logits(index: int) -> None:
    gpt, corrupted = model_of(index), drawn(3, N_POS, 9)
    clean = record(gpt, TOKENS, Tap.RESID_PRE.at(1), source="clean", attention_mask=MASK)
    with intervened(gpt, [patch(Tap.RESID_PRE.at(1), clean)]):
        torch.testing.assert_close(gpt(corrupted, MASK)[MASK], gpt(TOKENS, MASK)[MASK], **TOLERANCE)
        patched = decoded(gpt, corrupted, MASK)
    torch.testing.assert_close(patched[MASK], gpt(TOKENS, MASK)[MASK], **TOLERANCE)


@torch.no_grad()
def test_a_recording_finds_its_positions_again_under_other_padding() -> None:
    gpt = model_of(0)
    sites = [Tap.RESID_PRE.at(1), Tap.PATTERN.at(0), Tap.ATTN_SCORES.at(1)]
    padded = record(gpt, TOKENS, sites, source="padded", attention_mask=MASK)
    assert padded.n_positions.tolist() == LENGTHS
    for row, length in enumerate(LENGTHS):
        alone = record(gpt, TOKENS[row : row + 1, -length:], sites, source="alone")
        for site in sites:
            held = padded.at(site)[row : row + 1]
            for axis in site.tap.position_axes:
                held = held.narrow(axis, 0, length)
            torch.testing.assert_close(held, alone.at(site), **TOLERANCE)


@torch.no_grad()
def test_a_recording_of_one_sequence_serves_a_batch() -> None:
    gpt = model_of(0)
    one = record(gpt, TOKENS[:1], [Tap.RESID_PRE.at(1), Tap.PATTERN.at(0)], source="one")
    with intervened(gpt, [patch(Tap.RESID_PRE.at(1), one)]):
        torch.testing.assert_close(gpt(TOKENS), gpt(TOKENS[:1]).expand(3, -1, -1), **TOLERANCE)
    with intervened(gpt, [patch(Tap.PATTERN.at(0), one)]):
        _, found = gpt.run_with_cache(TOKENS, Tap.PATTERN.at(0))
    assert torch.equal(found["pattern", 0], one.at(Tap.PATTERN.at(0)).expand(3, -1, -1, -1))


# --- planted truth ----------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_patching_finds_the_head_and_the_position_that_carry_the_induction() -> None:
    """A B ... A -> B: L1H2 alone moves the answer, at the last position alone; L0H1 alone at the position of B."""
    gpt = induction_model()
    clean, corrupted = (torch.tensor([[1, first, 5, 7, 8, 3]]) for first in (3, 4))
    assert int(gpt(clean)[0, -1].argmax()) == 5 and int(gpt(corrupted)[0, -1].argmax()) != 5
    recording = record(gpt, clean, [Tap.Z.at(0), Tap.Z.at(1)], source="clean")

    def restored(layer: int, head: int, position: int) -> bool:
        with intervened(gpt, [patch(Tap.Z.at(layer), recording, components=head, positions=position)]):
            return int(gpt(corrupted)[0, -1].argmax()) == 5

    found = {
        (layer, head, position)
        for layer in range(2)
        for head in range(4)
        for position in range(6)
        if restored(layer, head, position)
    }
    assert found == {(*PREVIOUS_HEAD, 2), (*INDUCTION_HEAD, 5)}


@torch.no_grad()
def test_cutting_the_one_edge_that_carries_the_induction_undoes_it_also_while_generating() -> None:
    gpt, prompt = induction_model(), torch.tensor([[1, 3, 5, 7, 8, 3]])
    edge = zero(Tap.PATTERN.at(1), positions=5, key_positions=2, components=INDUCTION_HEAD[1])
    beside = zero(Tap.PATTERN.at(1), positions=5, key_positions=[0, 1, 3, 4], components=INDUCTION_HEAD[1])
    assert gpt.generate(prompt, max_new_tokens=3, temperature=0.0)[0, 6:].tolist() == [5, 7, 8]
    with intervened(gpt, [beside]):
        assert gpt.generate(prompt, max_new_tokens=3, temperature=0.0)[0, 6:].tolist() == [5, 7, 8]
    with intervened(gpt, [edge]):
        assert gpt.generate(prompt, max_new_tokens=1, temperature=0.0)[0, 6] != 5
    later = zero(Tap.PATTERN.at(1), positions=6, components=INDUCTION_HEAD[1])
    with intervened(gpt, [later]):
        for on in (True, False):
            text = gpt.generate(prompt, max_new_tokens=2, temperature=0.0, use_kv_cache=on)[0, 6:].tolist()
            assert text[0] == 5 and text[1] != 7


@torch.no_grad()
def test_zeroing_a_planted_memory_takes_its_promotion_away_at_that_position_only() -> None:
    gpt = memory_model()
    prompt = torch.tensor([[3, 5, 0, 3, 5]])
    with intervened(gpt, [zero(Tap.MLP_POST.at(0), components=2, positions=4)]):
        logits = gpt(prompt)[0, :, 7]
    assert logits[1] == gpt(prompt)[0, 1, 7] == 5
    assert logits[4] == 0


# --- means ------------------------------------------------------------------------------------------------------------


@torch.no_grad()
def test_means_count_every_token_once_and_padding_never() -> None:
    gpt, sites = model_of(0), [Tap.RESID_PRE.at(1), Tap.Z.at(0), Tap.PATTERN.at(0)]
    means = mean_held(gpt, TOKENS, sites, source="ragged", attention_mask=MASK, batch_size=2)
    alone = [record(gpt, TOKENS[row : row + 1, -length:], sites, source="one") for row, length in enumerate(LENGTHS)]
    assert means.n_sequences == 3
    assert means.n_at.tolist() == [3, 3, 3, 2, 2, 2, 1, 1]
    for site in sites[:2]:
        tokens = torch.cat([each.at(site)[0] for each in alone])
        torch.testing.assert_close(means.overall(site), tokens.mean(0), **TOLERANCE)
        fourth = torch.stack([each.at(site)[0, 4] for each in alone[:2]])
        torch.testing.assert_close(means.at(site)[4], fourth.mean(0), **TOLERANCE)
    row = torch.stack([each.at(sites[2])[0, :, 5, :6] for each in alone[:2]]).mean(0)
    torch.testing.assert_close(means.at(sites[2])[:, 5, :6], row, **TOLERANCE)


# --- what does not outlive it, what is refused ------------------------------------------------------------------------


def test_nothing_outlives_the_with_even_when_something_raises(tiny: GPT) -> None:
    clean = tiny(TOKENS)
    # Inputs of single heads and the norm that all share are not edited in one run.
    beside = {Tap.ATTN_IN, Tap.Q_INPUT, Tap.K_INPUT, Tap.V_INPUT}
    sites = [site for site in tiny.named_sites() if is_meaningful("zero", site) and site_named(site).tap not in beside]
    with pytest.raises(InputError, match="token id"), intervened(tiny, [zero(site) for site in sites]):
        tiny(TOKENS + 1000)
    with intervened(tiny, [zero(site) for site in sites]):
        assert not tiny(TOKENS).any()
    short = record(tiny, TOKENS[:, :3], Tap.Z.at(0), source="short")
    with pytest.raises(InputError, match="position 7"), intervened(tiny, [patch(Tap.Z.at(0), short)]):
        tiny(TOKENS)
    assert torch.equal(tiny(TOKENS), clean)


def refusals() -> Iterator[Any]:
    z, pattern, scale = Tap.Z.at(0), Tap.PATTERN.at(0), Tap.LN1_SCALE.at(0)
    yield pytest.param(lambda: zero(scale), r"ln1\.hook_scale is a divisor and cannot be zero", id="divisor")
    yield pytest.param(lambda: mean(pattern, means_of(0)), "a query would look at keys after it", id="future")
    yield pytest.param(lambda: zero("blocks.0.attn.hook_zz"), r'Did you mean "blocks\.0\.attn\.hook_z"', id="typo")
    yield pytest.param(
        lambda: zero(z, positions=-1), "cannot take position -1; give whole numbers from 0", id="padding"
    )
    yield pytest.param(lambda: zero(z, positions=[]), "cannot take no position at all", id="empty")
    yield pytest.param(lambda: zero(z, components=True), "cannot take component True", id="yes")
    yield pytest.param(lambda: zero(Tap.RESID_PRE.at(0), components=1), "has no heads or memories", id="no components")
    yield pytest.param(lambda: zero(z, key_positions=1), "only scores and patterns take key_positions", id="no keys")
    yield pytest.param(
        lambda: patch(z, recording_of(0), positions=24),
        "position 24, but its recording covers positions 0 to 23",
        id="beyond",
    )
    yield pytest.param(lambda: mean(z, means_of(0), components=4), "has no component 4; choose from 0 to 3", id="fifth")
    yield pytest.param(lambda: patch(Tap.Z.at(7), recording_of(0)), r"no recording of blocks\.7", id="not recorded")


@pytest.mark.parametrize(("made", "sentence"), list(refusals()))
def test_what_cannot_be_put_is_refused_before_anything_runs(made: Any, sentence: str) -> None:
    with pytest.raises((InputError, UnknownSiteError, TypeError), match=sentence):
        made()


def test_what_does_not_fit_the_model_is_refused_before_anything_runs(tiny: GPT) -> None:
    for wrong, sentence in (
        (zero(Tap.Z.at(5)), r'no hook "blocks\.5\.attn\.hook_z" \(it has layers 0 to 1\)'),
        (zero(Tap.MLP_PRE_LINEAR.at(0)), "no hook"),
        (zero(Tap.Z.at(0), components=4), "has no component 4; choose from 0 to 3"),
        (zero(Tap.Z.at(0), positions=24), "names position 24; this model has 0 to 23"),
        (patch(Tap.K.at(0), recording_of(0)), r"shape \(2, 8\) where this model has \(4, 8\)"),
    ):
        with pytest.raises((InputError, UnknownSiteError), match=sentence):
            hooks_of(tiny, [wrong])


def test_a_recording_of_another_number_of_sequences_or_too_short_is_named(tiny: GPT) -> None:
    two = record(tiny, TOKENS[:2], Tap.PATTERN.at(0), source="two")
    with (
        pytest.raises(InputError, match="holds 2 sequences and the batch has 3"),
        intervened(tiny, [patch(Tap.PATTERN.at(0), two)]),
    ):
        tiny(TOKENS)
    ragged = record(tiny, TOKENS, Tap.Z.at(0), source="ragged", attention_mask=MASK)
    with intervened(tiny, [patch(Tap.Z.at(0), ragged)]):
        tiny(TOKENS, MASK)
        with pytest.raises(InputError, match="position 7, but its recording covers positions 0 to 5"):
            tiny(TOKENS)
    with pytest.raises(InputError, match="dropout"):
        record(make_gpt_with(dropout=0.1).train(), TOKENS, Tap.Z.at(0), source="chance")
