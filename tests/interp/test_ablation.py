"""Ablations put exactly what they say exactly where they say, on every kind of model, and leave nothing behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.ablation import Ablation, Frozen, ablated, ablation_of, hooks_for, mean_activations, sites_of
from interp.places import Intervention, PlaceKind
from interp.supplies import Supplies
from model.config import FFNKind, GPTConfig, Init, Norm, NormKind, Positions
from model.errors import InputError
from model.gpt import GPT
from model.kv_cache import KeyValueCache

SMALL = GPTConfig(
    n_layers=2,
    n_heads=4,
    d_model=32,
    n_ctx=24,
    d_vocab=50,
    biases=True,
    norm_kind=NormKind.LAYERNORM,
    embed_std=1.0,
    init=Init.XAVIER,
)


def model(**changes: Any) -> GPT:
    """A small model with biases that are not zero."""
    gpt = GPT(SMALL.varied(**changes), seed=1).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in gpt.named_parameters():
            if name.endswith("bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return gpt


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(2))


@pytest.fixture
def others() -> Tensor:
    """The stated other sequences that means are taken from."""
    return torch.randint(50, (16, 24), generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("norm", list(Norm))
def test_ablating_every_head_leaves_the_output_bias(norm: Norm, tokens: Tensor):
    gpt = model(norm=norm)
    with ablated(gpt, "L0.attn:zero,L1.attn:zero"):
        _, cache = gpt.run_with_cache(tokens)
    for layer, block in enumerate(gpt.layers):
        written = block.attn.o_proj.bias.expand(3, 12, -1)
        after = getattr(block, "ln1_post", None)
        expected = written if after is None else after(written)
        torch.testing.assert_close(cache["attn_out", layer], expected.detach())


def test_ablating_everything_leaves_the_embedding_and_the_biases(tokens: Tensor):
    gpt = model()
    with ablated(gpt, "L0.attn,L1.attn,L0.ffn,L1.ffn", intervention=Intervention.ZERO):
        logits = gpt(tokens)
    stream = gpt.embed(tokens)
    for block in gpt.layers:
        stream = stream + block.attn.o_proj.bias + block.mlp.out_proj.bias
    torch.testing.assert_close(logits, gpt.unembed_stream(stream))


def test_ablating_the_heads_one_by_one_is_ablating_the_sublayer(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    with ablated(gpt, "L1H0,L1H1,L1H2,L1H3:mean", means):
        one_by_one = gpt(tokens)
    with ablated(gpt, "L1.attn:mean", means):
        assert torch.equal(gpt(tokens), one_by_one)


def test_a_silenced_head_costs_nothing_to_ablate(tokens: Tensor):
    gpt = model()
    gpt.layers[1].attn.W_O[2].zero_()
    clean = gpt(tokens)
    with ablated(gpt, "L1H2:zero"):
        assert torch.equal(gpt(tokens), clean)
    with ablated(gpt, "L1H1:zero"):
        assert not torch.allclose(gpt(tokens), clean)


@pytest.mark.parametrize("norm", list(Norm))
def test_zeroing_a_head_is_taking_away_what_it_writes(norm: Norm, tokens: Tensor):
    """Against the weights: the model whose W_O slice is zero is the model with the head ablated."""
    gpt = model(norm=norm)
    with ablated(gpt, "L0H3:zero"):
        by_hook = gpt(tokens)
    gpt.layers[0].attn.W_O[3].zero_()
    torch.testing.assert_close(by_hook, gpt(tokens))


def test_ablating_a_memory_is_taking_away_its_value(tokens: Tensor):
    gpt = model()
    with ablated(gpt, "L1M5:zero"):
        by_hook = gpt(tokens)
    gpt.layers[1].mlp.W_out[5].zero_()
    torch.testing.assert_close(by_hook, gpt(tokens))


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_heads_that_share_keys_are_ablated_one_at_a_time(kv_heads: int, tokens: Tensor):
    gpt = model(n_kv_heads=kv_heads)
    with ablated(gpt, "L0H1:zero"):
        _, cache = gpt.run_with_cache(tokens, ["blocks.0.attn.hook_z"])
    silent = cache["z", 0].abs().sum(dim=(0, 1, 3)) == 0
    assert silent.tolist() == [False, True, False, False]


def test_the_mean_is_over_sequences_and_positions_and_at_pos_over_sequences(others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others", batch_size=5)
    _, cache = gpt.run_with_cache(others, ["blocks.1.attn.hook_z"])
    z = cache["z", 1]
    torch.testing.assert_close(means.overall("blocks.1.attn.hook_z"), z.mean(dim=(0, 1)))
    torch.testing.assert_close(means.at("blocks.1.attn.hook_z"), z.mean(dim=0))
    assert means.n_sequences == 16


def test_a_mean_is_put_in_its_place_and_nowhere_else(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    _, clean = gpt.run_with_cache(tokens)
    with ablated(gpt, "L1H1:mean,L1H3:mean@pos", means):
        _, cache = gpt.run_with_cache(tokens)
    site = "blocks.1.attn.hook_z"
    z = cache[site]
    assert torch.equal(z[:, :, 1], means.overall(site)[1].expand(3, 12, -1))
    assert torch.equal(z[:, :, 3], means.at(site)[:12, 3].expand(3, -1, -1))
    assert torch.equal(z[:, :, [0, 2]], clean[site][:, :, [0, 2]])


@pytest.mark.parametrize("norm", list(Norm))
@pytest.mark.parametrize("intervention", [Intervention.ZERO, Intervention.MEAN, Intervention.MEAN_PER_POSITION])
def test_an_ablation_never_lets_the_future_reach_the_past(
    norm: Norm, intervention: Intervention, tokens: Tensor, others: Tensor
):
    gpt = model(norm=norm)
    means = mean_activations(gpt, others, source="others")
    changed = tokens.clone()
    changed[:, 8:] = (changed[:, 8:] + 17) % 50
    with ablated(gpt, "L0H1,L1H2,L0M3,L1.ffn", means, intervention):
        assert torch.equal(gpt(tokens)[:, :8], gpt(changed)[:, :8])
        assert not torch.equal(gpt(tokens)[:, 8:], gpt(changed)[:, 8:])


@pytest.mark.parametrize("positions", list(Positions))
@pytest.mark.parametrize("intervention", [Intervention.ZERO, Intervention.MEAN, Intervention.MEAN_PER_POSITION])
def test_the_key_value_cache_changes_no_logit_of_an_ablated_model(
    positions: Positions, intervention: Intervention, tokens: Tensor, others: Tensor
):
    gpt = model(positions=positions)
    means = mean_activations(gpt, others, source="others")
    with ablated(gpt, "L0H1,L1H2,L0M3,L1M7", means, intervention), torch.no_grad():
        whole = gpt(tokens)
        cache = KeyValueCache(gpt.config, len(tokens), device=gpt.device, dtype=gpt.dtype)
        pieces = [gpt(tokens[:, :5], kv_cache=cache)]
        pieces += [gpt(tokens[:, t : t + 1], kv_cache=cache) for t in range(5, 12)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=1e-5, rtol=1e-5)


def test_an_ablated_model_generates_the_same_text_with_and_without_the_cache(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    with ablated(gpt, "L0H1,L1H0:mean@pos", means):
        cached, recomputed = (
            gpt.generate(tokens, max_new_tokens=10, temperature=0.0, use_kv_cache=on) for on in (True, False)
        )
    assert torch.equal(cached, recomputed)


def test_padding_shifts_an_ablation_by_position_with_the_tokens(tokens: Tensor, others: Tensor):
    gpt = model()
    means = mean_activations(gpt, others, source="others")
    padded = torch.cat([torch.zeros(3, 2, dtype=torch.long), tokens], dim=1)
    mask = torch.ones_like(padded, dtype=torch.bool)
    mask[:, :2] = False
    with ablated(gpt, "L0H1,L1H0:mean@pos", means):
        torch.testing.assert_close(gpt(padded, mask)[:, 2:], gpt(tokens), atol=1e-5, rtol=1e-5)


def test_no_ablation_outlives_its_block_even_when_something_raises(tokens: Tensor):
    gpt = model()
    clean = gpt(tokens)
    with pytest.raises(RuntimeError, match="boom"), ablated(gpt, "L0H1:zero"):
        raise RuntimeError("boom")
    with pytest.raises(InputError, match="token id"), ablated(gpt, "L0.attn:zero"):
        gpt(tokens + 1000)
    assert torch.equal(gpt(tokens), clean)


def test_taking_means_changes_nothing(tokens: Tensor, others: Tensor):
    gpt = model()
    clean = gpt(tokens)
    mean_activations(gpt, others, source="others")
    assert torch.equal(gpt(tokens), clean)


def test_means_missing_or_too_short_or_of_other_places_are_named(tokens: Tensor, others: Tensor):
    gpt = model()
    with pytest.raises(InputError, match=r"L0H1:mean needs means\. Pass means=mean_activations"):
        hooks_for(gpt, "L0H1")
    short = mean_activations(gpt, others[:, :6], source="others")
    uncovered = r"L0H1:mean@pos was asked at position 11, but its means cover positions 0 to 5"
    with pytest.raises(InputError, match=uncovered), ablated(gpt, "L0H1:mean@pos", short):
        gpt(tokens)
    with pytest.raises(InputError, match=r"no mean of blocks\.1\.mlp\.hook_post was taken"):
        hooks_for(gpt, "L1M3:mean", mean_activations(gpt, others, source="others", places=[*_heads("L0H1")]))
    with pytest.raises(InputError, match="at least one sequence"):
        mean_activations(gpt, others[:0], source="nothing")


def test_an_attention_only_model_has_means_of_its_heads_only(others: Tensor):
    gpt = model(ffn=FFNKind.NONE)
    assert sites_of(gpt) == ["blocks.0.attn.hook_z", "blocks.1.attn.hook_z"]
    assert set(mean_activations(gpt, others, source="others").by_site) == set(sites_of(gpt))


def _heads(text: str) -> Any:
    from interp.places import parse_places

    return parse_places(text)


def test_means_of_a_model_with_live_dropout_are_refused(others: Tensor):
    with pytest.raises(InputError, match=r"dropout=0\.1, so runs differ by chance; call gpt\.eval\(\)"):
        mean_activations(model(dropout=0.1).train(), others, source="others")


# --- every intervention, on every path --------------------------------------------------------------------------------

TWINS = torch.randint(50, (3, 12), generator=torch.Generator().manual_seed(5))
REMOVALS = tuple(kind for kind in Intervention if kind.removes)
CHANGES = ("times=2", "set=0.7", "swap")
"""What changes a place and takes nothing out."""
SOME_MEMORIES = "L0M3,L0M9,L0M40,L0M77,L0M120"


def everywhere(intervention: str) -> str:
    """Places of every sort that it can stand in."""
    return {"set=0.7": f"{SOME_MEMORIES},L1M5", "swap": SOME_MEMORIES}.get(intervention, "L0H1,L1H2,L0M3,L1.ffn")


def one_place(intervention: str) -> tuple[str, str, int]:
    """Places, the site of one of them in layer 0, and its number there."""
    found = {"set=0.7": "L0M3,L1M5", "swap": "L0M3,L0M9"}.get(intervention)
    return (found, "blocks.0.mlp.hook_post", 3) if found else ("L0H1,L1M3", "blocks.0.attn.hook_z", 1)


HELD = [(Intervention.ZERO, Frozen.PATTERNS), (Intervention.MEAN_OF_PAST, Frozen.PATTERNS)]
HELD += [("set=0.7", Frozen.PATTERNS)]
KINDS: list[tuple[str, Frozen]] = [*((kind, Frozen.NOTHING) for kind in (*REMOVALS, *CHANGES)), *HELD]
"""Every intervention, and some with the patterns held."""
FAST = (Intervention.ZERO, Intervention.MEAN, Intervention.MEAN_PER_POSITION, Intervention.OPTIMAL)
"""What takes nothing from a run of the sequences under study, or of others at their positions."""


class Fitted:
    """Constants as they come from fitting, without fitting."""

    source = "by hand"

    def constants(self, places: Any) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(1)
        sizes = {PlaceKind.HEAD: (8,), PlaceKind.MEMORY: (), PlaceKind.ATTENTION: (4, 8), PlaceKind.FFN: (128,)}
        return {place.label: torch.randn(sizes[place.kind], generator=generator) for place in places}


@pytest.fixture
def bare() -> Iterator[None]:
    """Without checking shapes at every call: hundreds of passes are run here, the others are checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def supplies_of(gpt: GPT, others: Tensor, **changes: Any) -> Supplies:
    means = mean_activations(gpt, others, source="others")
    given: dict[str, Any] = {"means": means, "donors": others, "corrupted": TWINS, "optimal": Fitted()}
    return Supplies(source="others", **(given | changes))


def logits_of(gpt: GPT, ablation: Ablation, tokens: Tensor, supplies: Supplies) -> Tensor:
    with ablated(gpt, ablation, supplies=supplies, tokens=tokens):
        return gpt(tokens)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("explicit", [False, True])
@pytest.mark.parametrize(("intervention", "frozen"), KINDS)
@pytest.mark.parametrize("changes", [{}, {"norm": Norm.POST, "n_kv_heads": 2}])
def test_no_intervention_lets_the_future_reach_the_past(
    intervention: str, frozen: Frozen, explicit: bool, changes: Any, tokens: Tensor, others: Tensor
):
    """Later tokens change, of the sequence, of its twin and of every donor: no earlier logit changes a bit."""
    gpt = model(**changes)
    later, twins, donors = tokens.clone(), TWINS.clone(), others.clone()
    for each in (later, twins, donors):
        each[:, 8:] = (each[:, 8:] + 17) % 50
    ablation = ablation_of(everywhere(intervention), gpt.config, intervention, frozen=frozen, gate=0.25)
    supplies = supplies_of(gpt, others)
    with gpt.explicit_attention() if explicit else nullcontext():
        before = logits_of(gpt, ablation, tokens, supplies)
        after = logits_of(gpt, ablation, later, replace(supplies, corrupted=twins, donors=donors))
        intact = gpt(tokens)
    assert torch.equal(before[:, :8], after[:, :8])
    assert not torch.equal(before[:, 8:], after[:, 8:])
    assert not torch.allclose(before, intact, atol=1e-3)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("intervention", "frozen"), KINDS)
def test_a_gate_is_linear_between_what_was_there_and_what_replaces_it(
    intervention: str, frozen: Frozen, tokens: Tensor, others: Tensor
):
    gpt = model()
    supplies = supplies_of(gpt, others)
    places, site, number = one_place(intervention)
    intact, held = gpt(tokens), []
    for gate in (1, 0, 0.25, 0.5):
        ablation = ablation_of(places, gpt.config, intervention, gate=gate, frozen=frozen)
        with ablated(gpt, ablation, supplies=supplies, tokens=tokens):
            logits, cache = gpt.run_with_cache(tokens, [site])
        held.append(cache[site][:, :, number])
        assert torch.equal(logits, intact) == (gate == 1)
    own, replaced, quarter, half = held
    torch.testing.assert_close(quarter, 0.25 * own + 0.75 * replaced)
    torch.testing.assert_close(half, (own + replaced) / 2)
    whole = ablation_of(places, gpt.config, intervention, frozen=frozen)
    with ablated(gpt, whole, supplies=supplies, tokens=tokens):
        _, cache = gpt.run_with_cache(tokens)
    torch.testing.assert_close(cache[site][:, :, number], replaced)  # read on the other attention path


def test_a_number_set_is_that_number_and_twice_is_twice_to_the_bit(tokens: Tensor):
    gpt = model()
    _, clean = gpt.run_with_cache(tokens)
    with ablated(gpt, "L0M3:set=0.1,L0M4:set=-2,L0M9:times=2,L0H1,L0H2:times=-1"):
        _, cache = gpt.run_with_cache(tokens)
    post, own = cache["post", 0], clean["post", 0]
    assert bool((post[:, :, 3] == 0.1).all())
    assert bool((post[:, :, 4] == -2).all())
    assert torch.equal(cache["z", 0][:, :, [1, 2]], -clean["z", 0][:, :, [1, 2]])
    assert not torch.equal(own[:, :, 9], post[:, :, 9])  # heads before it have changed what its key reads
    with ablated(gpt, "L0M9:times=2"):
        assert torch.equal(gpt.run_with_cache(tokens)[1]["post", 0][:, :, 9], 2 * own[:, :, 9])
    gpt.double()
    with ablated(gpt, "L0M3:set=0.1"):
        assert bool((gpt.run_with_cache(tokens)[1]["post", 0][:, :, 3] == 0.1).all())  # in the model's own precision


def test_twice_a_memory_doubles_its_logit_effect_where_no_norm_comes_after(tokens: Tensor):
    gpt = model(norm=Norm.NONE)
    without, plain, twice, thrice = (
        logits_of(gpt, ablation_of(f"L1M3,L1M8:{kind}", gpt.config), tokens, NOTHING) if kind else gpt(tokens)
        for kind in ("zero", "", "times=2", "times=3")
    )
    assert (plain - without).abs().max() > 0.01
    torch.testing.assert_close(twice - without, 2 * (plain - without), atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(thrice - without, 3 * (plain - without), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("order", [(3, 9), (9, 3), (3, 40, 9), (40, 3, 9)])
def test_swapping_coefficients_is_swapping_values(order: tuple[int, ...], tokens: Tensor):
    """Against the weights: each memory holds what the next one named held, so its value goes with the other's key."""
    gpt = model()
    with ablated(gpt, ",".join(f"L1M{index}" for index in order) + ":swap"):
        by_hook = gpt(tokens)
    following = [*order[1:], order[0]]
    with gpt.weights_edited():
        values = gpt.layers[1].mlp.W_out
        values[following] = values[list(order)].clone()
        by_weights = gpt(tokens)
    torch.testing.assert_close(by_hook, by_weights)
    assert not torch.allclose(by_hook, gpt(tokens), atol=1e-3)


def test_heads_that_swap_hold_what_the_other_held(tokens: Tensor):
    gpt = model()
    _, clean = gpt.run_with_cache(tokens)
    with ablated(gpt, "L0H3,L0H1:swap"):
        _, cache = gpt.run_with_cache(tokens)
    assert torch.equal(cache["z", 0], clean["z", 0][:, :, [0, 3, 2, 1]])


def test_the_effect_of_a_gate_is_linear_where_nothing_comes_after(tokens: Tensor):
    """Dose and response: the last layer's write, with no norm after it."""
    gpt = model(norm=Norm.NONE)
    with torch.no_grad():
        doses = [logits_of(gpt, ablation_of("L1.ffn:zero", gpt.config, gate=gate), tokens, NOTHING) for gate in GATES]
    for gate, logits in zip(GATES, doses, strict=True):
        torch.testing.assert_close(logits, gate * doses[-1] + (1 - gate) * doses[0], atol=1e-4, rtol=1e-4)


GATES = (0.0, 0.1, 0.5, 0.9, 1.0)
NOTHING = Supplies(source="nothing")


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("intervention", [*REMOVALS, *CHANGES])
def test_positions_are_replaced_where_they_are_named_and_nowhere_else(
    intervention: str, tokens: Tensor, others: Tensor
):
    gpt = model()
    supplies = supplies_of(gpt, others)
    intact, clean = gpt.run_with_cache(tokens)
    of_memories = intervention in ("set=0.7", "swap")
    places, site = (SOME_MEMORIES, ("post", 0)) if of_memories else ("L0.attn", ("z", 0))
    all_along = ablation_of(places, gpt.config, intervention)
    with ablated(gpt, all_along, supplies=supplies, tokens=tokens):
        _, whole = gpt.run_with_cache(tokens)
    with ablated(gpt, replace(all_along, positions=(5, 9)), supplies=supplies, tokens=tokens):
        logits, cache = gpt.run_with_cache(tokens)
    other = [position for position in range(12) if position not in (5, 9)]
    assert torch.equal(cache[site][:, [5, 9]], whole[site][:, [5, 9]])
    assert torch.equal(cache[site][:, other], clean[site][:, other])
    assert torch.equal(logits[:, :5], intact[:, :5])
    assert not torch.allclose(logits[:, 5:], intact[:, 5:], atol=1e-3)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(("intervention", "frozen"), KINDS)
def test_neither_padding_nor_the_key_value_cache_changes_what_an_ablation_does(
    intervention: str, frozen: Frozen, tokens: Tensor, others: Tensor
):
    gpt = model(positions=Positions.ROPE, n_kv_heads=2)
    ablation = ablation_of(everywhere(intervention), gpt.config, intervention, frozen=frozen)
    supplies = supplies_of(gpt, others)
    padded, twins = (torch.cat([torch.zeros(3, 2, dtype=torch.long), each], dim=1) for each in (tokens, TWINS))
    mask = torch.ones_like(padded, dtype=torch.bool)
    mask[:, :2] = False
    with torch.no_grad():
        with ablated(gpt, ablation, supplies=supplies, tokens=tokens):
            whole = gpt(tokens)
            cache = KeyValueCache(gpt.config, len(tokens), device=gpt.device, dtype=gpt.dtype)
            pieces = [gpt(tokens[:, :5], kv_cache=cache)]
            pieces += [gpt(tokens[:, t : t + 1], kv_cache=cache) for t in range(5, 12)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), whole, atol=1e-5, rtol=1e-5)
        beside = replace(supplies, corrupted=twins)
        with ablated(gpt, ablation, supplies=beside, tokens=padded, attention_mask=mask):
            torch.testing.assert_close(gpt(padded, mask)[:, 2:], whole, atol=1e-5, rtol=1e-5)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("intervention", [*FAST, Intervention.RESAMPLE, *CHANGES])
def test_a_model_generates_under_every_intervention_that_has_numbers_for_what_comes(
    intervention: str, tokens: Tensor, others: Tensor
):
    """As far as donors reach: they are 24 tokens long."""
    gpt = model()
    intact = gpt(tokens)
    places = "L0H1,L1H0,L1M3" if intervention not in CHANGES else everywhere(intervention)
    with ablated(gpt, places, None, intervention, supplies=supplies_of(gpt, others), tokens=tokens):
        assert not torch.allclose(gpt(tokens), intact, atol=0.1 if intervention not in CHANGES else 1e-3)
        cached, recomputed = (
            gpt.generate(tokens, max_new_tokens=12, temperature=0.0, use_kv_cache=on) for on in (True, False)
        )
    assert torch.equal(cached, recomputed)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("on", [True, False])
@pytest.mark.parametrize(
    ("intervention", "frozen", "sentence"),
    [
        ("mean@seq", "nothing", "intact run covers positions 0 to 11.*tokens that are generated have none"),
        ("zero", "patterns", "intact run covers positions 0 to 11.*tokens that are generated have none"),
        ("counterfactual", "nothing", "twins cover positions 0 to 11.*Tokens that are generated have none"),
        ("resample", "nothing", "donors cover positions 0 to 13. Give longer donors"),
    ],
)
def test_what_has_no_numbers_for_generated_tokens_says_so_and_serves_at_named_positions(
    intervention: str, frozen: str, sentence: str, on: bool, tokens: Tensor, others: Tensor
):
    gpt = model()
    supplies = supplies_of(gpt, others, donors=others[:, :14])
    ablation = ablation_of("L0H1", gpt.config, intervention, frozen=frozen)
    with (
        ablated(gpt, ablation, supplies=supplies, tokens=tokens),
        pytest.raises(InputError, match=sentence),
    ):
        gpt.generate(tokens, max_new_tokens=6, temperature=0.0, use_kv_cache=on)
    if frozen == "nothing":
        with ablated(gpt, replace(ablation, positions=(2, 7)), supplies=supplies, tokens=tokens):
            assert gpt.generate(tokens, max_new_tokens=6, temperature=0.0, use_kv_cache=on).shape == (3, 18)


@pytest.mark.parametrize("intervention", ["mean@seq", "resample", "counterfactual"])
def test_other_tokens_than_an_ablation_was_prepared_for_are_refused(intervention: str, tokens: Tensor, others: Tensor):
    gpt = model()
    changed = tokens.clone()
    changed[1, 7] = (changed[1, 7] + 1) % 50
    with ablated(gpt, "L0H1", None, intervention, supplies=supplies_of(gpt, others), tokens=tokens):
        gpt(tokens)
        gpt(tokens[:, :9])
        with pytest.raises(InputError, match="prepared for other tokens: those of sequence 1 differ at position 7"):
            gpt(changed)
        with pytest.raises(InputError, match="prepared for 3 sequences, and 1 run"):
            gpt(tokens[:1])
    with pytest.raises(InputError, match=f"L0H1:{intervention} takes what runs of given tokens hold. Pass tokens="):
        hooks_for(gpt, "L0H1", None, intervention, supplies=supplies_of(gpt, others))
    with pytest.raises(InputError, match="not both"):
        hooks_for(gpt, "L0H1", mean_activations(gpt, others, source="others"), supplies=supplies_of(gpt, others))


@pytest.mark.parametrize("norm", [Norm.PRE, Norm.POST, Norm.DEEPNORM, Norm.SANDWICH, Norm.NONE])
def test_without_heads_and_ffns_a_model_is_its_embedding_and_the_output_biases(norm: Norm, tokens: Tensor):
    """T5, as the equations of each placement have it; with half of everything replaced it is neither."""
    gpt = model(norm=norm, positions=Positions.LEARNED, n_kv_heads=2)
    stream, alpha = gpt.embed(tokens) + gpt.pos_embed.weight[:12], 4**0.25 if norm is Norm.DEEPNORM else 1.0
    for block in gpt.layers:
        for bias, name in ((block.attn.o_proj.bias, "ln1"), (block.mlp.out_proj.bias, "ln2")):
            match norm:
                case Norm.POST | Norm.DEEPNORM:
                    stream = getattr(block, name)(alpha * stream + bias)
                case Norm.SANDWICH:
                    stream = stream + getattr(block, f"{name}_post")(bias)
                case _:
                    stream = stream + bias
    expected = gpt.unembed_stream(stream)
    torch.testing.assert_close(logits_of(gpt, ablation_of("L0,L1:zero", gpt.config), tokens, NOTHING), expected)
    half = logits_of(gpt, ablation_of("L0,L1:zero", gpt.config, gate=0.5), tokens, NOTHING)
    assert (half - expected).abs().max() > 0.1
    assert (half - gpt(tokens)).abs().max() > 0.1
