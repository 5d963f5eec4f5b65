"""Optimal constants: known ones are found, none is worse than zero or the mean, and problems do not see each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from interp.ablation_plan import ablation_of
from interp.harm import measure_harms
from interp.importance import head_importance
from interp.optimal import Fitting, Optima, fit_optimal
from interp.optimal_problems import Problems
from interp.outcomes import TEXT, get_outcome
from interp.places import head, parse_places
from interp.supplies import Supplies
from interp.sweep import entry_of
from model import GPT, GPTConfig
from model.errors import InputError, UnknownNameError
from tests import planted
from tests.conftest import make_gpt_with
from tests.interp.test_harm import Held

D_VOCAB, N_CTX = 6, 10
QUICK = Fitting(n_steps=6, n_sequences=2, n_looks=3)


def output_head(*, reads_token: bool = True) -> GPT:
    """Head L0H0 writes its z straight onto the logits; L0H1 writes nothing. No norm: logits are z and nothing else."""
    config = GPTConfig(
        **{"n_layers": 1, "n_heads": 2, "d_model": 2 * D_VOCAB, "d_head": D_VOCAB, "n_ctx": N_CTX, "d_vocab": D_VOCAB},
        **{"norm": "none", "positions": "none", "ffn": "none", "tie_embeddings": False},
    )
    gpt = GPT(config).eval()
    token, output = slice(0, D_VOCAB), slice(D_VOCAB, 2 * D_VOCAB)
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.zero_()
        gpt.embed.weight[:, token] = torch.eye(D_VOCAB)
        gpt.unembed.weight[:, output] = torch.eye(D_VOCAB)
        gpt.layers[0].attn.W_V[0][token] = torch.eye(D_VOCAB) if reads_token else torch.ones(D_VOCAB, D_VOCAB)
        gpt.layers[0].attn.W_O[0][:, output] = torch.eye(D_VOCAB)
    return gpt


def skewed(n: int, seed: int = 0) -> Tensor:
    """Sequences in which low tokens are far more frequent than high ones."""
    chances = 2.0 ** -torch.arange(D_VOCAB)
    drawn = torch.multinomial(chances, n * N_CTX, replacement=True, generator=torch.Generator().manual_seed(seed))
    return drawn.view(n, N_CTX)


def fitted(gpt: GPT, tokens: Tensor, ablations: list[Any], fitting: Fitting = QUICK, **options: Any) -> Optima:
    return fit_optimal(gpt, tokens, ablations, source="random tokens", fitting=fitting, **options)


def test_the_best_constant_of_a_head_that_writes_the_logits_is_the_logarithm_of_frequencies():
    """Logits are then one vector for all positions, whose best loss is the entropy of the targets: in closed form."""
    tokens = skewed(12)
    frequencies = functional.one_hot(tokens[:, 1:], D_VOCAB).double().mean((0, 1))
    entropy = float(-(frequencies * frequencies.log()).sum())
    found = fitted(output_head(), tokens, ["L0H0"], Fitting(n_steps=80, n_sequences=12, rate=1.0, n_looks=3))
    assert float(found.optimal) == pytest.approx(entropy, abs=1e-3)
    constant = found.constants([head(0, 0)])["L0H0"]
    torch.testing.assert_close(constant.softmax(0).double(), frequencies, atol=0.01, rtol=0)
    assert float(found.zero) == pytest.approx(torch.tensor(D_VOCAB).log().item(), abs=1e-6)
    assert float(found.mean) > entropy + 0.1  # attention spreads evenly: its mean is far from the logarithm
    assert float(found.slope_left) < 0.05
    assert (found.curve.diff(dim=1) < 1e-4).all()


def test_what_a_head_always_holds_costs_nothing_when_it_is_put_back():
    gpt, tokens = output_head(reads_token=False), skewed(4)
    found = fitted(gpt, tokens, ["L0H0"])
    assert float(found.mean) == pytest.approx(found.clean, abs=1e-6)
    assert float(found.optimal) <= float(found.mean)


def test_a_head_that_writes_nothing_keeps_its_mean_or_zero_and_has_no_slope():
    found = fitted(output_head(), skewed(4), ["L0H1"])
    assert float(found.optimal) == float(found.zero) == float(found.mean) == pytest.approx(found.clean, abs=1e-6)
    assert float(found.slope_left) == 0


SETS = ["L0H1", "L1H0", "L1M3", "L0H2,L1H3", "L0.ffn", "L1.attn", "L0H0,L0M2", "L1.ffn"]


@pytest.mark.parametrize("changes", [{}, {"norm": "post"}, {"positions": "learned", "biases": True}])
def test_no_constant_is_worse_than_zero_or_the_mean_where_it_was_fitted(changes: dict[str, Any], tokens: Tensor):
    """Exactly in what is recorded, and to rounding where a sweep of its own measures it again."""
    gpt = make_gpt_with(**changes)
    found = fitted(gpt, tokens, SETS)
    assert (found.optimal <= torch.minimum(found.zero, found.mean)).all()
    assert (found.optimal < found.mean).any()
    supplies = Supplies(source="random tokens", optimal=found)
    again = measure_harms(gpt, tokens, found.places, [TEXT], supplies=supplies)
    torch.testing.assert_close(again.ablated[..., 0].mean(0), found.optimal, atol=2e-6, rtol=0)
    zero = measure_harms(gpt, tokens, [f"{each}:zero" for each in SETS if "," not in each], [TEXT])
    alone = [number for number, each in enumerate(SETS) if "," not in each]
    torch.testing.assert_close(zero.ablated[..., 0].mean(0), found.zero[alone], atol=2e-6, rtol=0)
    assert found.clean == pytest.approx(float(zero.clean.mean()), abs=1e-6)


def test_the_mean_it_starts_from_is_the_mean_of_a_mean_ablation(tiny: GPT, tokens: Tensor):
    from interp.ablation import mean_activations

    found = fitted(tiny, tokens, SETS)
    means = mean_activations(tiny, tokens, source="random tokens")
    again = measure_harms(tiny, tokens, SETS, [TEXT], means=means).ablated[..., 0].mean(0)
    torch.testing.assert_close(again, found.mean, atol=2e-6, rtol=0)


def test_problems_side_by_side_do_not_see_each_other(tiny: GPT, tokens: Tensor):
    together = fitted(tiny, tokens, SETS)
    for number in (0, 3, 6):
        each = SETS[number]
        alone = fitted(tiny, tokens, [each])
        torch.testing.assert_close(alone.curve[0], together.curve[number], atol=1e-5, rtol=0)
        for label, value in alone.values[0].items():
            torch.testing.assert_close(value, together.values[number][label], atol=1e-4, rtol=1e-3)


def test_how_much_runs_at_a_time_changes_no_constant(tiny: GPT, tokens: Tensor):
    little, much = (fitted(tiny, tokens, SETS[:2], memory=memory) for memory in (1, 2**28))
    torch.testing.assert_close(little.curve, much.curve, atol=1e-5, rtol=0)


def test_gradients_are_those_of_finite_differences(tokens: Tensor):
    gpt = make_gpt_with().double()
    members = [parse_places("L0H1"), parse_places("L0H2,L1M3")]
    problems = Problems(
        gpt=gpt, tokens=tokens, outcome=TEXT, members=members, entry=entry_of(ablation_of("L0H1", gpt.config)),
        memory=2**28,
    )  # fmt: skip
    generator = torch.Generator().manual_seed(0)
    values = problems.laid_out({"blocks.0.attn.hook_z": torch.randn(4, 8, generator=generator).double(),
                                "blocks.1.mlp.hook_post": torch.randn(128, generator=generator).double()})  # fmt: skip
    found = problems.gradients(values, torch.arange(len(tokens)))
    for name, member, place in [
        ("blocks.0.attn.hook_z", 0, (1, 5)), ("blocks.0.attn.hook_z", 1, (2, 0)), ("blocks.1.mlp.hook_post", 1, (3,)),
    ]:  # fmt: skip
        ends = []
        for step in (1e-5, -1e-5):
            moved = {each: value.clone() for each, value in values.items()}
            moved[name][(member, *place)] += step
            ends.append(problems.losses(moved)[member])
        assert float(found[name][(member, *place)]) == pytest.approx(float(ends[0] - ends[1]) / 2e-5, rel=1e-4)
    assert found["blocks.0.attn.hook_z"][0, 2].abs().max() == 0  # what the other member ablates
    assert found["blocks.1.mlp.hook_post"][0].abs().max() == 0


def test_the_same_seed_gives_the_same_bits_and_another_one_does_not(tiny: GPT, tokens: Tensor):
    one, two, other = (fitted(tiny, tokens, ["L0H1"], replace(QUICK, seed=seed)) for seed in (0, 0, 1))
    assert torch.equal(one.curve, two.curve)
    assert torch.equal(one.values[0]["L0H1"], two.values[0]["L0H1"])
    assert not torch.equal(one.curve, other.curve)


def test_longer_fitting_flattens_the_loss_further():
    short, long = (fitted(output_head(), skewed(4), ["L0H0"], Fitting(n_steps=n, n_sequences=4)) for n in (4, 30))
    assert float(long.optimal) < float(short.optimal)
    assert float(long.slope_left) < float(short.slope_left) < 1


def test_a_set_has_constants_of_its_own(tiny: GPT, tokens: Tensor):
    """Heads that are ablated together: what is best for each alone costs more than what was fitted for both."""
    longer = Fitting(n_steps=30, n_sequences=3)
    found = fitted(tiny, tokens, ["L0H1,L0H2", "L0H1", "L0H2"], longer)
    both = parse_places("L0H2,L0H1")
    assert set(found.constants(both)) == {"L0H1", "L0H2"}
    assert found.constants(both)["L0H1"].shape == (8,)
    singles = replace(found, places=found.places[:1], values=({**found.values[1], **found.values[2]},))
    costs = [
        measure_harms(tiny, tokens, [found.places[0]], [TEXT], supplies=Supplies(source="tokens", optimal=each))
        for each in (found, singles)
    ]
    assert costs[0].ablated.mean() < costs[1].ablated.mean()
    with pytest.raises(InputError, match=r"for L1H0 together \(only for L0H1,L0H2; L0H1; L0H2\)"):
        found.constants([head(1, 0)])


def test_the_optimal_constant_of_an_important_head_is_no_proof_that_it_does_nothing(tokens: Tensor):
    """The planted induction head: no constant can stand in for what depends on the sequence."""
    gpt = planted.induction_model()
    generator = torch.Generator().manual_seed(0)
    segment = torch.stack([1 + torch.randperm(planted.D_VOCAB - 1, generator=generator)[:12] for _ in range(6)])
    repeated = torch.cat([torch.zeros(6, 1, dtype=torch.long), segment, segment], 1)
    copying = get_outcome("copy_loss", period=12)
    found = fit_optimal(
        gpt, repeated, ["L1H2", "L1H0"], copying, source="repeats", fitting=Fitting(n_steps=40, n_sequences=6)
    )
    assert float(found.optimal[0] - found.clean) > 2
    assert float(found.optimal[1] - found.clean) == pytest.approx(0, abs=1e-6)


def test_what_fitting_holds_fits_into_its_memory(tokens: Tensor):
    gpt, memory, one_step = make_gpt_with(n_ctx=64), 2**22, Fitting(n_steps=1, n_sequences=6, n_looks=1)
    long = tokens.repeat(2, 4)
    for what in (
        lambda: fit_optimal(gpt, long, ["L0H0", "L0H1", "L0H2"], source="tokens", fitting=one_step, memory=memory),
        lambda: head_importance(gpt, long, memory=memory),
    ):
        held = Held()
        with held:
            what()
        assert memory / 8 < held.most <= memory


def test_progress_is_told_to_the_last_step(tiny: GPT, tokens: Tensor):
    told: list[tuple[int, int]] = []
    fitted(tiny, tokens, ["L0H1", "L1H1"], QUICK, counted=lambda done, total: told.append((done, total)))
    assert told == [(step, 12) for step in range(1, 13)]


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({"ablations": []}, InputError, "at least one ablation"),
        ({"ablations": ["L7H0"]}, UnknownNameError, "no L7H0"),
        ({"ablations": ["L0H1,L0.attn"]}, InputError, "already covered"),
        ({"tokens": torch.zeros(0, 4, dtype=torch.long)}, InputError, "needs tokens"),
        ({"outcome": get_outcome("text_accuracy", period=3)}, InputError, "text_accuracy is not made of"),
        ({"outcome": get_outcome("icl_score", period=3)}, InputError, "icl_score gains where some losses rise"),
        ({"memory": 0}, InputError, "memory=0 holds nothing"),
    ],
)
def test_what_cannot_be_fitted_is_refused(
    given: dict[str, Any], error: type[Exception], said: str, tiny: GPT, tokens: Tensor
):
    asked = {"tokens": tokens, "ablations": ["L0H1"], "source": "tokens"} | given
    with pytest.raises(error, match=said):
        fit_optimal(tiny, **asked)


@pytest.mark.parametrize("field", [{"n_steps": 0}, {"rate": 0.0}, {"n_sequences": 0}, {"n_looks": 0}, {"n_looks": 99}])
def test_a_fitting_that_fits_nothing_is_refused(field: dict[str, Any]):
    with pytest.raises(InputError, match=next(iter(field))):
        Fitting(**field)


def test_hooks_in_force_are_refused(tiny: GPT, tokens: Tensor):
    with tiny.explicit_attention(), pytest.raises(InputError, match="hooks are in force"):
        fitted(tiny, tokens, ["L0H1"])
