"""What stands in an ablated place is what its intervention says, taken from where it says, and recorded once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor

from interp.ablation import Ablation, Frozen, ablated, ablation_of, mean_activations
from interp.donors import donor_rows
from interp.outcomes import token_losses
from interp.places import Intervention, Place
from interp.recordings import past_means, record
from interp.supplies import Stock, Supplies, edits_of, stock_bytes
from interp.sweep import stacked
from model import GPT
from model.errors import InputError
from tests.conftest import make_gpt_with
from tests.planted import induction_model, memory_model

FIRST, SECOND = 3, 5
"""The bigram on which the planted memory fires with coefficient 1."""

REMOVALS = [kind for kind in Intervention if kind.removes]


@pytest.fixture
def bare() -> Iterator[None]:
    """Without checking shapes at every call: hundreds of passes are run here, the others are checked."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Fitted:
    """Constants as they come from fitting, without fitting."""

    source = "by hand"

    def __init__(self, constants: Mapping[str, Tensor]) -> None:
        self.known = constants

    def constants(self, places: Sequence[Place]) -> Mapping[str, Tensor]:
        unknown = [place.label for place in places if place.label not in self.known]
        if unknown:
            raise InputError(f"{unknown[0]} was not fitted.")
        return self.known


def drawn(n_sequences: int, n_pos: int, seed: int, d_vocab: int = 50) -> Tensor:
    return torch.randint(0, d_vocab, (n_sequences, n_pos), generator=torch.Generator().manual_seed(seed))


TOKENS, TWINS, OTHERS = drawn(3, 12, 7), drawn(3, 12, 8), drawn(20, 12, 9)


def supplies_of(gpt: GPT, **changes: Any) -> Supplies:
    """Everything there is to replace with, from OTHERS and TWINS."""
    generator, config = torch.Generator().manual_seed(4), gpt.config
    fitted = {f"L{layer}H{index}": torch.randn(8, generator=generator) for layer in range(2) for index in range(4)}
    fitted |= {f"L{layer}.attn": torch.randn(4, 8, generator=generator) for layer in range(2)}
    fitted |= {f"L{layer}.ffn": torch.randn(config.ffn_width, generator=generator) for layer in range(2)}
    fitted |= {"L1M5": torch.tensor(0.25), "L1M6": torch.tensor(-0.5)}
    given: dict[str, Any] = {"means": mean_activations(gpt, OTHERS, source="others"), "donors": OTHERS}
    given |= {"corrupted": TWINS, "optimal": Fitted(fitted), "source": "20 random sequences"}
    return Supplies(**(given | changes))


def values_of(gpt: GPT, supplies: Supplies, site: str) -> dict[Intervention, Tensor]:
    """What should stand at a site, computed from runs of the intact model alone."""

    def held(tokens: Tensor) -> Tensor:
        return gpt.run_with_cache(tokens, [site])[1][site]

    own, others = held(TOKENS), held(OTHERS)
    donors = donor_rows(OTHERS, TOKENS, range(3), 8, 0)[:, 2]
    past = torch.stack([own[:, : last + 1].mean(dim=1) for last in range(12)], dim=1)
    name = {"z": "attn", "post": "ffn"}[site.rpartition("hook_")[2]]
    fitted = supplies.optimal.constants([])[f"L{site.split('.')[1]}.{name}"] if supplies.optimal else torch.zeros(())
    return {
        Intervention.ZERO: torch.zeros_like(own),
        Intervention.MEAN: others.mean(dim=(0, 1)).expand_as(own),
        Intervention.MEAN_PER_POSITION: others.mean(dim=0).expand_as(own),
        Intervention.MEAN_OF_PAST: past,
        Intervention.RESAMPLE: others[donors],
        Intervention.COUNTERFACTUAL: held(TWINS),
        Intervention.OPTIMAL: fitted.expand_as(own),
    }


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("intervention", REMOVALS)
@pytest.mark.parametrize("places", ["L0.attn,L1.ffn", "L1,L0.ffn"])
def test_each_intervention_puts_there_what_runs_of_the_intact_model_say(intervention: Intervention, places: str):
    """Also in later layers, whose own values the ablation of the earlier ones has changed."""
    gpt = make_gpt_with(biases=True)
    supplies = supplies_of(gpt)
    ablation = ablation_of(places, gpt.config, intervention)
    with ablated(gpt, ablation, supplies=supplies, tokens=TOKENS, draw=2):
        _, cache = gpt.run_with_cache(TOKENS)
    for place in ablation.places:
        site = f"blocks.{place.layer}." + ("attn.hook_z" if place.in_attention else "mlp.hook_post")
        expected = values_of(gpt, supplies, site)[intervention]
        torch.testing.assert_close(cache[site], expected, atol=1e-6, rtol=1e-5)


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("intervention", REMOVALS)
@pytest.mark.parametrize("kv_heads", [4, 1])
def test_of_single_heads_and_memories_those_alone_are_replaced(intervention: Intervention, kv_heads: int):
    gpt = make_gpt_with(n_kv_heads=kv_heads)
    supplies = supplies_of(gpt)
    _, clean = gpt.run_with_cache(TOKENS)
    for places, site, found in (("L1H3,L1H0", "attn.hook_z", [3, 0]), ("L1M5,L1M6", "mlp.hook_post", [5, 6])):
        site = f"blocks.1.{site}"
        with ablated(gpt, places, None, intervention, supplies=supplies, tokens=TOKENS, draw=2):
            _, cache = gpt.run_with_cache(TOKENS)
        expected = values_of(gpt, supplies, site)[intervention]
        if intervention is Intervention.OPTIMAL and supplies.optimal is not None:
            known = supplies.optimal.constants([])
            expected = expected.clone()
            for label, index in zip(places.split(","), found, strict=True):
                expected[:, :, index] = known[label]
        others = [index for index in range(clean[site].shape[2]) if index not in found]
        torch.testing.assert_close(cache[site][:, :, found], expected[:, :, found], atol=1e-6, rtol=1e-5)
        assert torch.equal(cache[site][:, :, others], clean[site][:, :, others])


def bigrams(*sequences: Sequence[int]) -> Tensor:
    return torch.tensor(sequences)


def test_the_coefficient_of_a_planted_memory_under_every_intervention_is_the_number_on_paper():
    gpt = memory_model(first=FIRST, second=SECOND)
    sequence, twin = bigrams([3, 5, 1, 3, 5, 2]), bigrams([3, 5, 1, 1, 1, 1])
    reference = bigrams([3, 5, 0, 0, 0, 0], [0, 3, 5, 0, 0, 0])
    donors = bigrams(*([other, 0, 3, 5, 0, 0] for other in range(6, 16)))
    supplies = Supplies(
        source="by hand",
        means=mean_activations(gpt, reference, source="two sequences"),
        donors=donors,
        corrupted=twin,
        optimal=Fitted({"L0M2": torch.tensor(0.3)}),
    )
    on_paper = {
        Intervention.ZERO: [0, 0, 0, 0, 0, 0],
        Intervention.MEAN: [2 / 12] * 6,
        Intervention.MEAN_PER_POSITION: [0, 1 / 2, 1 / 2, 0, 0, 0],
        Intervention.MEAN_OF_PAST: [0, 1 / 2, 1 / 3, 1 / 4, 2 / 5, 2 / 6],
        Intervention.RESAMPLE: [0, 0, 0, 1, 0, 0],
        Intervention.COUNTERFACTUAL: [0, 1, 0, 0, 0, 0],
        Intervention.OPTIMAL: [0.3] * 6,
    }
    own = torch.tensor([0, 1, 0, 0, 1, 0.0])
    on_paper |= {"set=2.5": [2.5] * 6, "times=2": [0, 2, 0, 0, 2, 0], "times=-0.5": [0, -0.5, 0, 0, -0.5, 0]}
    for intervention, numbers in on_paper.items():
        for gate in (0, 0.25):
            ablation = ablation_of("L0M2", gpt.config, intervention, gate=gate)
            with ablated(gpt, ablation, supplies=supplies, tokens=sequence):
                _, cache = gpt.run_with_cache(sequence, ["blocks.0.mlp.hook_post"])
            expected = gate * own + (1 - gate) * torch.tensor(numbers)
            torch.testing.assert_close(cache["post", 0][0, :, 2], expected, atol=1e-5, rtol=0)


# --- donors -----------------------------------------------------------------------------------------------------------


def test_a_sequence_never_takes_from_itself_however_often_it_is_among_the_donors():
    donors = torch.cat([TOKENS[1:2].expand(40, -1), OTHERS, TOKENS[1:2].expand(40, -1)])
    for seed in range(5):
        found = donor_rows(donors, TOKENS, range(3), 8, seed)
        assert found.shape == (3, 8)
        assert all(len(set(row.tolist())) == 8 for row in found)
        assert not (donors[found[1]] == TOKENS[1]).all(dim=1).any()
    assert (donors[donor_rows(donors, TOKENS, range(3), 8, 0)[0]] == TOKENS[1]).all(dim=1).any()  # others may


def test_a_longer_donor_that_begins_with_the_sequence_is_the_sequence():
    donors = torch.cat([torch.cat([TOKENS, TOKENS], dim=1), torch.cat([OTHERS, OTHERS], dim=1)])
    found = donor_rows(donors, TOKENS, range(3), 8, 0)
    assert all(int(row) not in found[row].tolist() for row in range(3))
    padded, mask = torch.cat([torch.zeros(3, 2, dtype=torch.long), TOKENS], dim=1), torch.ones(3, 14, dtype=torch.bool)
    mask[:, :2] = False
    assert torch.equal(donor_rows(donors, padded, range(3), 8, 0, mask), found)


def test_donors_depend_on_the_seed_and_the_number_of_the_sequence_and_on_nothing_beside_it():
    whole = donor_rows(OTHERS, TOKENS, range(3), 8, 0)
    one_by_one = [donor_rows(OTHERS, TOKENS[row : row + 1], [row], 8, 0)[0] for row in (2, 0, 1)]
    assert torch.equal(torch.stack(one_by_one), whole[[2, 0, 1]])
    assert not torch.equal(donor_rows(OTHERS, TOKENS, range(3), 8, 1), whole)
    assert torch.equal(donor_rows(OTHERS, TOKENS, range(3), 12, 0)[:, :8], whole)


@pytest.mark.usefixtures("bare")
def test_the_mean_over_many_donors_approaches_the_mean_over_all_others():
    """Of the loss, not only of what is put there: that of all others is known, and more donors come closer to it."""
    gpt, tokens = make_gpt_with(), drawn(2, 12, 3)
    ablation = ablation_of("L0H1:resample", gpt.config)

    def losses_over(n_donors: int, seed: int) -> Tensor:
        supplies = Supplies(source="others", donors=OTHERS, n_donors=n_donors, seed=seed)
        stock, losses = supplies.drawn(gpt, tokens, range(2), [ablation]), []
        for draw in range(ablation.draws(supplies)):
            edits = edits_of(gpt, ablation, stock.redrawn(gpt, draw))
            losses.append(token_losses(gpt.run_with_hooks(tokens, edits), tokens).mean(dim=1))
        return torch.stack(losses, dim=1)

    rows = torch.arange(2)[:, None]
    with torch.no_grad():
        of_donor = torch.empty(2, 20)
        of_donor[rows, donor_rows(OTHERS, tokens, range(2), 20, 0)] = losses_over(20, 0)
        eight = donor_rows(OTHERS, tokens, range(2), 8, 1)
        torch.testing.assert_close(losses_over(8, 1), of_donor[rows, eight], atol=1e-5, rtol=0)
    expected = of_donor.mean(dim=1)

    def misses(n_donors: int) -> Tensor:
        means = [of_donor[rows, donor_rows(OTHERS, tokens, range(2), n_donors, seed)].mean(1) for seed in range(40)]
        return (torch.stack(means) - expected).square().mean(dim=0).sqrt()

    assert (misses(8) > 0.01).all()
    assert (misses(16) < 0.6 * misses(8)).all()  # of n of 20, the error is that of sqrt((1 - n / 20) / n): 0.41
    assert (misses(20) < 1e-5).all()


# --- held patterns ----------------------------------------------------------------------------------------------------


def test_with_its_patterns_held_a_planted_copy_survives_without_the_head_that_finds_it():
    """The previous-token head acts through where the induction head looks and through nothing else."""
    gpt = induction_model()
    tokens = torch.tensor([[4, 9, 1, 7, 4, 9, 1, 7]])
    clean = gpt(tokens)
    with ablated(gpt, "L0H1:zero"):
        assert (gpt(tokens) - clean).abs().max() > 5
    with ablated(gpt, ablation_of("L0H1:zero", gpt.config, frozen=Frozen.PATTERNS), tokens=tokens):
        torch.testing.assert_close(gpt(tokens), clean, atol=1e-5, rtol=0)


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_held_patterns_are_those_of_the_intact_run_written_into_every_later_layer(kv_heads: int):
    """Against two passes by hand (Olsson et al. 2022)."""
    gpt = make_gpt_with(n_layers=3, n_kv_heads=kv_heads)
    with gpt.explicit_attention():
        _, clean = gpt.run_with_cache(TOKENS)
        names = [f"blocks.{layer}.attn.hook_pattern" for layer in (1, 2)]

        def silent(z: Tensor, hook: Any) -> None:
            z[:, :, 2] = 0

        by_hand = gpt.run_with_hooks(
            TOKENS,
            [("blocks.0.attn.hook_z", silent), *((name, lambda _, hook: clean[hook.name]) for name in names)],
        )
        ablation = ablation_of("L0H2:zero", gpt.config, frozen="patterns")
        with ablated(gpt, ablation, tokens=TOKENS):
            logits, cache = gpt.run_with_cache(TOKENS)
        with ablated(gpt, "L0H2:zero"):
            plain = gpt(TOKENS)
    assert torch.equal(logits, by_hand)
    assert all(torch.equal(cache[name], clean[name]) for name in names)
    assert (plain - logits).abs().max() > 1e-3


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize("intervention", REMOVALS)
def test_held_patterns_change_nothing_for_a_place_of_the_last_layer(intervention: Intervention):
    """T5: nothing attends after it."""
    gpt = make_gpt_with()
    supplies = supplies_of(gpt)
    for places in ("L1H2", "L1M5,L1H0"):
        found = []
        for frozen in Frozen:
            ablation = ablation_of(places, gpt.config, intervention, frozen=frozen)
            with ablated(gpt, ablation, supplies=supplies, tokens=TOKENS):
                found.append(gpt(TOKENS))
        assert torch.equal(*found)


# --- what it costs ----------------------------------------------------------------------------------------------------


def all_kinds(gpt: GPT) -> list[Ablation]:
    return [
        ablation_of(f"L{layer}H{index}", gpt.config, intervention, frozen=frozen)
        for intervention in REMOVALS
        for layer in range(2)
        for index in range(4)
        for frozen in Frozen
    ]


@pytest.mark.usefixtures("bare")
def test_runs_are_made_once_for_all_ablations_of_a_batch_and_once_for_each_draw(monkeypatch: pytest.MonkeyPatch):
    gpt = make_gpt_with()
    supplies, passes, run = supplies_of(gpt), [], gpt.run_with_cache
    monkeypatch.setattr(gpt, "run_with_cache", lambda *given, **more: (passes.append(given[0]), run(*given, **more))[1])
    stock = supplies.drawn(gpt, TOKENS, range(3), all_kinds(gpt))
    assert len(passes) == 4  # the intact run, once with its patterns and once without, the twins, the first donors
    assert torch.equal(passes[1], TWINS)
    stock.redrawn(gpt, 3)
    assert len(passes) == 5
    assert torch.equal(passes[4], OTHERS[donor_rows(OTHERS, TOKENS, range(3), 8, 0)[:, 3]])
    for ablation in all_kinds(gpt):
        edits_of(gpt, ablation, stock)
    supplies.drawn(gpt, TOKENS, range(3), [ablation_of("L0H1:mean,L1H0:zero,L1H1:optimal", gpt.config)])
    assert len(passes) == 5


def test_a_stock_holds_no_more_bytes_than_it_says():
    gpt = make_gpt_with()
    ablations = [*all_kinds(gpt), ablation_of("L0.ffn:resample,L1M5:counterfactual", gpt.config)]
    supplies = supplies_of(gpt, donors=torch.cat([OTHERS, OTHERS], dim=1))
    stock = supplies.drawn(gpt, TOKENS, range(3), ablations)
    kept = [*stock.held.values(), *([stock.patterns] if stock.patterns else [])]
    held = sum(tensor.nbytes for recording in kept for tensor in recording.by_site.values())
    said = 3 * stock_bytes(gpt.config, ablations, 12, 4)
    assert held <= said <= 3 * held
    assert stock_bytes(gpt.config, [ablation_of("L0H1:mean", gpt.config)], 12, 4) == 0


@pytest.mark.usefixtures("bare")
def test_side_by_side_each_ablation_sees_what_its_own_rows_hold():
    """Stacked on the batch axis, every kind at once, as alone."""
    gpt = make_gpt_with(n_kv_heads=2)
    ablations = [ablation_of(f"L0H{number % 4}", gpt.config, kind) for number, kind in enumerate(REMOVALS)]
    ablations += [ablation_of(each, gpt.config) for each in ("L0H1:times=2", "L0M3:set=2", "L0M3,L0M4:swap")]
    stock = supplies_of(gpt).drawn(gpt, TOKENS, range(3), ablations, 1)
    edits = [edits_of(gpt, ablation, stock) for ablation in ablations]
    together = gpt.run_with_hooks(TOKENS.repeat(len(ablations), 1), stacked(edits, 3)).split(3)
    for alone, beside in zip(edits, together, strict=True):
        torch.testing.assert_close(gpt.run_with_hooks(TOKENS, alone), beside, atol=1e-6, rtol=1e-6)


def test_the_rows_of_a_batch_take_their_own_twins_and_donors():
    gpt = make_gpt_with()
    supplies = supplies_of(gpt)
    ablations = [ablation_of("L0H1:resample", gpt.config), ablation_of("L0H1:counterfactual", gpt.config)]
    whole = supplies.drawn(gpt, TOKENS, range(3), ablations, 1)
    part = supplies.drawn(gpt, TOKENS[[2, 0]], torch.tensor([2, 0]), ablations, 1)
    for kind in (Intervention.RESAMPLE, Intervention.COUNTERFACTUAL):
        torch.testing.assert_close(part.held[kind].at(("z", 0)), whole.held[kind].at(("z", 0))[[2, 0]])


def test_the_past_has_no_mean_where_places_go_by_query_and_key():
    gpt = make_gpt_with()
    with pytest.raises(InputError, match="has no mean over its past"):
        past_means(record(gpt, TOKENS, ("pattern", 0), source="here"))


# --- what is refused --------------------------------------------------------------------------------------------------

OF_HEADS = mean_activations(make_gpt_with(), OTHERS, source="others", sites=[("z", 0), ("z", 1)])


@pytest.mark.parametrize(
    ("places", "changes", "sentence"),
    [
        ("L0H1:mean", {"means": None}, r"L0H1:mean needs means"),
        ("L0H1:mean@pos", {"means": None}, r"L0H1:mean@pos needs means"),
        ("L0H1:mean,L1M5:mean", {"means": OF_HEADS}, r"no mean of blocks\.1\.mlp\.hook_post was taken"),
        ("L0H1:resample", {"donors": None}, r"L0H1:resample needs other sequences to take from"),
        ("L0H1:resample", {"donors": OTHERS[:, :5]}, r"they have 5 positions and the sequences 12\. Give donors as"),
        ("L0H1:resample", {"donors": OTHERS[:6]}, r"draws 8 other sequences, and sequence 0 has 6 to draw from"),
        ("L0H1:resample", {"donors": torch.cat([OTHERS[:7], TOKENS[1:2]])}, "sequence 1 has 7|sequence 0 has 8"),
        ("L0H1:counterfactual", {"corrupted": None}, r"needs the corrupted twin of every sequence"),
        ("L0H1:counterfactual", {"corrupted": TWINS[:2]}, r"needs a twin for sequence 2, and there are 2"),
        ("L0H1:counterfactual", {"corrupted": TWINS[:, :5]}, r"twins have 5 positions and the sequences 12"),
        ("L0H1:counterfactual", {"corrupted": TOKENS}, r"into sequence 0 what it holds anyway: its twin is the"),
        ("L0H1:optimal", {"optimal": None}, r"L0H1:optimal needs a constant that was fitted"),
        ("L1M7:optimal", {}, r"L1M7 was not fitted"),
    ],
)
def test_what_cannot_be_supplied_is_refused_before_anything_runs(
    places: str, changes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
):
    gpt = make_gpt_with()
    supplies, ablation = supplies_of(gpt, **changes), ablation_of(places, gpt.config)
    monkeypatch.setattr(gpt, "run_with_cache", lambda *_, **__: pytest.fail("something ran"))
    with pytest.raises(InputError, match=sentence):
        supplies.require([ablation_of("L1H0:zero", gpt.config), ablation], TOKENS)
    with pytest.raises(InputError, match=sentence):
        supplies.drawn(gpt, TOKENS, range(3), [ablation])


def test_few_donors_and_draws_that_do_not_exist_are_refused():
    gpt = make_gpt_with()
    with pytest.raises(InputError, match="n_donors=7 says more about the donors than about the place; give at least 8"):
        Supplies(source="others", donors=OTHERS, n_donors=7)
    ablation = ablation_of("L0H1:resample", gpt.config)
    with pytest.raises(InputError, match="draw=8 is none of 8; give 0 to"):
        supplies_of(gpt).drawn(gpt, TOKENS, range(3), [ablation], 8)
    with pytest.raises(InputError, match="2 rows were named for 3 sequences"):
        supplies_of(gpt).drawn(gpt, TOKENS, range(2), [ablation])


@pytest.mark.parametrize("kind", [Intervention.MEAN_OF_PAST, Intervention.RESAMPLE, Intervention.COUNTERFACTUAL])
def test_a_stock_that_was_made_for_something_else_is_refused(kind: Intervention):
    gpt = make_gpt_with()
    ablation = ablation_of("L0H1", gpt.config, kind)
    for held in (Stock(supplies=supplies_of(gpt)), supplies_of(gpt).drawn(gpt, TOKENS, range(3), [])):
        with pytest.raises(InputError, match=r"these were not made\. Make the stock with"):
            edits_of(gpt, ablation, held)
    with pytest.raises(InputError, match=r"L0H1:zero \(later patterns held\) takes what runs of a batch held"):
        edits_of(
            gpt,
            ablation_of("L0H1:zero", gpt.config, frozen=Frozen.PATTERNS),
            supplies_of(gpt).drawn(gpt, TOKENS, range(3), [ablation]),
        )
