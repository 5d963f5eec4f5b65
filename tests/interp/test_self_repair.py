"""Self-repair: the decomposition is exact, and planted repairs come out as what they were planted to be."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from interp.ablation import Frozen, ablated, ablation_of, mean_activations
from interp.attribution import logit_attribution
from interp.line_fits import fit_lines, flat_ps
from interp.repaired import PARTS, Component, Part, SelfRepair, summarise, top_targets
from interp.self_repair import measure_self_repair
from interp.stats import holm
from interp.supplies import Supplies
from model import GPT
from model.errors import InputError, NotAdditiveError
from tests import planted
from tests.conftest import make_gpt_with

ADDITIVE = [
    {},
    {"norm": "scaled", "norm_kind": "layernorm", "biases": True},
    {"norm": "none", "embed_std": 0.3, "ffn": "relu"},
    {"norm": "sandwich", "n_layers": 3},
    {"norm": "reordered", "norm_kind": "layernorm", "biases": True},
    {"n_kv_heads": 2, "positions": "learned", "ffn": "swiglu", "n_layers": 3, "qk_norm": True},
    {"ffn": "none", "positions": "alibi", "tie_embeddings": False},
]


def others(gpt: GPT, tokens: Tensor) -> Supplies:
    """Means, donors and twins, all of other sequences."""
    donors = torch.randint(0, 50, (16, 12), generator=torch.Generator().manual_seed(8))
    means = mean_activations(gpt, donors, source="others")
    return Supplies(source="others", means=means, donors=donors, corrupted=(tokens + 17) % 50)


def by_part(found: SelfRepair, part: Part) -> Tensor:
    return found.by_part[:, :, PARTS.index(part)]


@pytest.mark.parametrize("changes", ADDITIVE)
def test_nothing_is_left_over_under_any_placement_whose_stream_is_a_sum(changes: dict, tokens: Tensor):
    """T6: the change of the logit is that of every direct effect and of the norms, to rounding."""
    gpt = make_gpt_with(**changes)
    last = gpt.config.n_layers - 1
    asked = ["L0H1:zero", "L0H1,L1H2:mean", "L0.attn:mean@pos", f"L{last}H3", f"L{last}.attn:zero"]
    asked += ["L0.ffn:zero"] if gpt.config.ffn.value != "none" else []
    found = measure_self_repair(gpt, tokens, asked, supplies=others(gpt, tokens), batch_size=2)
    assert float(found.total.abs().max()) > 0.1
    assert float(found.residual.abs().max()) < 1e-4
    normed = changes.get("norm") in ("sandwich", "reordered")
    assert bool(by_part(found, Part.OUTPUT_NORMS).any()) is normed
    assert bool(by_part(found, Part.FINAL_NORM).any()) is (changes.get("norm") != "none")


@pytest.mark.parametrize("norm", ["pre", "sandwich"])
def test_nor_under_any_intervention(norm: str, tokens: Tensor):
    gpt = make_gpt_with(norm=norm)
    asked = ["L0H1:resample", "L0H1:counterfactual", "L0H3:mean@seq"]
    asked += [ablation_of("L0H1:zero", gpt.config, gate=0.5, positions=[3], frozen=Frozen.PATTERNS)]
    found = measure_self_repair(gpt, tokens, asked, supplies=others(gpt, tokens))
    assert bool((found.total.abs().amax((0, 2)) > 0.01).all())
    assert float(found.residual.abs().max()) < 1e-4


@pytest.mark.parametrize("changes", [ADDITIVE[1], ADDITIVE[3], {"n_layers": 1}])
def test_nobody_can_make_good_what_the_last_ffn_wrote_but_the_final_norm(changes: dict, tokens: Tensor):
    """T6: with the scale frozen the last FFN's total effect is its direct effect."""
    gpt = make_gpt_with(**changes)
    place = f"L{gpt.config.n_layers - 1}.ffn"
    found = measure_self_repair(gpt, tokens, [f"{place}:zero", place], supplies=others(gpt, tokens))
    assert float(found.direct.abs().max()) > 0.1
    torch.testing.assert_close(found.repaired_frozen, torch.zeros_like(found.total), rtol=0, atol=1e-5)


def test_nor_what_a_last_head_wrote_where_there_is_no_ffn(tokens: Tensor):
    gpt = make_gpt_with(ffn="none")
    found = measure_self_repair(gpt, tokens, ["L1H0:zero", "L1H2", "L0H2"], supplies=others(gpt, tokens))
    frozen = found.repaired_frozen.abs().amax((0, 2))
    assert float(frozen[:2].max()) < 1e-5
    assert float(frozen[2]) > 0.1  # the layer after it reads what it wrote
    assert not by_part(found, Part.HEADS)[:, :2].any()


@pytest.mark.parametrize("changes", [ADDITIVE[1], ADDITIVE[3]])
def test_every_number_is_what_whole_runs_say(changes: dict, tokens: Tensor):
    """An independent way: attribution of one run and of another, and a run with the clean scale put in its place."""
    gpt = make_gpt_with(**changes)
    supplies, targets = others(gpt, tokens), tokens.roll(-1, 1)
    found = measure_self_repair(gpt, tokens, ["L0H2,L1H1"], supplies=supplies)

    def centred(logits: Tensor) -> Tensor:
        return (logits.gather(2, targets[..., None])[..., 0] - logits.mean(-1)).double()[:, :-1]

    clean = gpt(tokens)
    with ablated(gpt, "L0H2,L1H1", supplies=supplies):
        changed = gpt(tokens)
    torch.testing.assert_close(found.total[:, 0], centred(changed) - centred(clean), rtol=1e-4, atol=1e-5)
    _, cache = gpt.run_with_cache(tokens, ["ln_final.hook_scale"])
    with ablated(gpt, "L0H2,L1H1", supplies=supplies):
        held = gpt.run_with_hooks(tokens, [("ln_final.hook_scale", lambda scale, hook: cache["ln_final.hook_scale"])])
    torch.testing.assert_close(
        found.direct[:, 0] + found.repaired_frozen[:, 0], centred(held) - centred(clean), rtol=1e-4, atol=1e-5
    )
    direct = logit_attribution(gpt, tokens, targets)
    everything = torch.arange(50).repeat_interleave(3)[:, None].expand(-1, 12)
    mean = logit_attribution(gpt, tokens.repeat(50, 1), everything).values.unflatten(1, (50, 3)).mean(1)
    mine = sum(direct.of(label) - mean[direct.labels.index(label)] for label in ("L0H2", "L1H1"))
    torch.testing.assert_close(found.clean_direct[:, 0], mine[:, :-1].double(), rtol=1e-4, atol=1e-5)


def test_components_say_who_repaired(tokens: Tensor):
    gpt = make_gpt_with()
    chosen = torch.zeros(3, 11, dtype=torch.bool)
    chosen[:, 4:7] = True
    found = measure_self_repair(gpt, tokens, ["L0H1", "L1.attn"], supplies=others(gpt, tokens), chosen=chosen)
    labels = [each.label for each in found.components]
    assert labels == ["L0H0", "L0H1", "L0H2", "L0H3", "L0.ffn", "L1H0", "L1H1", "L1H2", "L1H3", "L1.ffn"]
    heads = torch.tensor([each.part is Part.HEADS for each in found.components])
    mean = found.by_part[..., 4:7].mean(-1)
    for row in range(2):
        rest = found.by_component[:, row, heads & ~found.ablated[row]].sum(1)
        torch.testing.assert_close(rest, mean[:, row, PARTS.index(Part.HEADS)])
        own = found.by_component[:, row, found.ablated[row]].sum(1)
        torch.testing.assert_close(own, found.direct[:, row, 4:7].mean(-1))
    assert not found.by_component[:, 0, :4][:, ~found.ablated[0, :4]].any()  # its neighbours read nothing from it


def backed_up(strength: float) -> GPT:
    """The planted induction model, with an FFN memory for each token in its last layer that hands back `strength` of
    what the induction head is short of. Without a norm, so that everything is exact.
    """
    source = planted.induction_model()
    config = source.config.varied(ffn="relu", d_ff=planted.D_VOCAB, biases=True)
    gpt = GPT(config).eval()
    with torch.no_grad():
        for parameter in gpt.parameters():
            parameter.zero_()
        for name, parameter in source.named_parameters():
            dict(gpt.named_parameters())[name].copy_(parameter)
        ffn = gpt.layers[1].mlp
        output = slice(gpt.config.d_model - planted.D_VOCAB, gpt.config.d_model)
        ffn.in_proj.weight[:, output] = -torch.eye(planted.D_VOCAB)
        ffn.in_proj.bias[:] = 20.0
        ffn.out_proj.weight[output] = strength * torch.eye(planted.D_VOCAB)
    return gpt


@pytest.mark.parametrize("strength", [0.0, 0.7, 1.0, 1.5])
def test_a_planted_backup_makes_good_its_own_share(strength: float):
    """Zeroing the head takes 20 from its token. The memory of that token hands back `strength` times as much."""
    from interp.outcomes import copy_targets
    from interp.stimuli import repeated_tokens

    tokens = repeated_tokens(6, 8, range(1, planted.D_VOCAB), seed=1, bos=0)
    chosen = copy_targets(tokens, period=8)
    found = measure_self_repair(backed_up(strength), tokens, ["L1H2:zero", "L1H0:zero"], chosen=chosen)
    summary = summarise(found, chosen[:, None] & torch.tensor([True, False])[:, None] | _one(chosen))
    assert float(summary.direct.mean[0]) == pytest.approx(-19.0)  # 20 on the token, less the mean over 20 tokens
    assert float(summary.share.mean[0]) == pytest.approx(strength, abs=1e-6)
    assert summary.share_by_part.mean[0].tolist() == pytest.approx([0.0, strength, 0.0, 0.0], abs=1e-6)
    assert float(summary.total.mean[0]) == pytest.approx(-19.0 * (1 - strength), abs=1e-5)
    assert float(summary.total.mean[1]) == 0  # a head that writes nothing
    assert bool(summary.share.mean[1].isnan())


def _one(chosen: Tensor) -> Tensor:
    return chosen[:, None].expand(-1, 2, -1)


def made_up(direct: Tensor, total: Tensor) -> SelfRepair:
    n, _, t = direct.shape
    return SelfRepair(
        ablations=("L0H0:mean",),
        components=(Component(label="L0H0", layer=0, part=Part.HEADS),),
        ablated=torch.tensor([[True]]),
        clean=torch.zeros(n, t),
        clean_direct=-direct,
        total=total,
        direct=direct,
        by_part=torch.stack([total - direct] + [torch.zeros_like(direct)] * 3, dim=2),
        by_component=direct.mean(2)[..., None],
        chosen=torch.ones(n, t, dtype=torch.bool),
    )


def test_the_line_is_that_of_total_on_direct_effects():
    generator = torch.Generator().manual_seed(3)
    direct = torch.randn(60, 1, 40, generator=generator, dtype=torch.float64) - 2
    noise = torch.randn(60, 1, 40, generator=generator, dtype=torch.float64)
    summary = summarise(made_up(direct, 0.3 * direct - 0.5 + 0.3 * noise))
    line = summary.line
    assert line.slope[0].low < 0.3 < line.slope[0].high
    assert line.slope[0].high - line.slope[0].low < 0.1
    assert line.intercept[0].low < -0.5 < line.intercept[0].high
    assert line.r_squared[0].low < 0.5 < line.r_squared[0].high
    perfect = summarise(made_up(direct, direct))
    assert float(perfect.line.slope.mean) == pytest.approx(1.0)
    assert float(perfect.line.r_squared.mean) == pytest.approx(1.0)
    assert float(perfect.share.mean) == 0


def test_a_line_is_the_textbooks_and_its_interval_is_over_units():
    """Every unit one point doubled: as sure as the units are, not as their points would make it."""
    generator = torch.Generator().manual_seed(1)
    x, y = torch.randn(2, 40, 1, generator=generator, dtype=torch.float64)
    once, twice = fit_lines(x, y), fit_lines(x.expand(-1, 5), y.expand(-1, 5))
    flat = torch.stack([x[:, 0], y[:, 0]])
    assert float(once.slope.mean) == pytest.approx(float(torch.cov(flat)[0, 1] / torch.cov(flat)[0, 0]))
    assert float(once.r_squared.mean) == pytest.approx(float(torch.corrcoef(flat)[0, 1] ** 2))
    torch.testing.assert_close(once.slope.low, twice.slope.low)
    shifted = fit_lines(x + 1e6, y - 1e6)
    torch.testing.assert_close(shifted.slope.mean, once.slope.mean, rtol=1e-6, atol=1e-6)
    level = fit_lines(torch.ones(4, 3), torch.rand(4, 3))
    assert bool(level.slope.mean.isnan())
    assert float(level.slope.low) == -torch.inf
    with pytest.raises(InputError, match=re.escape("give pairs of points [unit, ..., point] of two units or more")):
        fit_lines(x, y.T)
    with pytest.raises(InputError, match="Some points are not finite"):
        fit_lines(x / 0, y)


def test_that_one_of_many_slopes_is_below_one_is_seldom_found_by_chance():
    """Sixteen heads of slope 1, in 40 draws of sequences that shift as a whole: 95% intervals would find one in 15."""
    found, direct, noise = 0, torch.empty(0), torch.empty(0)
    for seed in range(40):
        draw = torch.Generator().manual_seed(seed)
        direct = -2 * torch.rand(24, 16, 20, generator=draw, dtype=torch.float64)
        shift, noise = (torch.randn(24, 16, n, generator=draw, dtype=torch.float64) for n in (1, 20))
        total = direct + 0.3 * shift + 0.5 * noise
        found += bool((holm(flat_ps(direct, total - direct, seed=seed)) < 0.05).any())
    assert found <= 5
    steep = flat_ps(direct, -0.3 * direct + 0.5 * noise)
    assert float(holm(steep).max()) < 0.02
    chosen = torch.ones_like(direct, dtype=torch.bool)
    chosen[..., 10:] = False
    cut = flat_ps(direct[..., :10], noise[..., :10])
    torch.testing.assert_close(flat_ps(direct, noise, chosen), cut)
    assert bool((flat_ps(torch.ones(12, 2, 5), torch.rand(12, 2, 5)) == 1).all())


def test_the_top_tokens_are_those_of_the_largest_direct_effect():
    direct = -torch.arange(50.0, dtype=torch.float64).view(5, 1, 10)
    found = made_up(direct, direct / 2)
    top = top_targets(found, 0.06)
    assert top.sum() == 3
    assert top[4, 0, 7:].all()
    assert summarise(found, top).n_tokens == (3,)
    assert float(summarise(found, top).direct.mean) == pytest.approx(-48.0)
    with pytest.raises(InputError, match="share=0.0 of the tokens cannot be taken"):
        top_targets(found, 0.0)


def test_a_share_is_a_ratio_of_sums():
    """A token whose direct effect is nearly nothing, and whose ratio would be immense, counts for what it is."""
    direct = torch.full((4, 1, 2), -1.0, dtype=torch.float64)
    direct[:, :, 1] = -1e-6
    found = made_up(direct, direct / 2 - torch.tensor([0.0, 0.1]))
    assert float(summarise(found).share.mean) == pytest.approx(0.5 - 0.1, abs=1e-5)


def test_what_cannot_be_taken_apart_is_refused(tokens: Tensor):
    for changes in ({"norm": "post"}, {"norm": "deepnorm"}, {"skip_connections": False}):
        with pytest.raises(NotAdditiveError, match="self-repair needs a residual stream that is a sum"):
            measure_self_repair(make_gpt_with(**changes), tokens, ["L0H0:zero"])
    gpt = make_gpt_with()
    with pytest.raises(InputError, match="L1M3 is one memory of an FFN; self-repair is of heads and whole sublayers"):
        measure_self_repair(gpt, tokens, ["L1M3:zero"])
    with pytest.raises(InputError, match="no ablation was given"):
        measure_self_repair(gpt, tokens, [])
    with pytest.raises(InputError, match="at least two positions"):
        measure_self_repair(gpt, tokens[:, :1], ["L0H0:zero"])
    with pytest.raises(InputError, match=re.escape("as a mask of shape (3, 11)")):
        measure_self_repair(gpt, tokens, ["L0H0:zero"], chosen=torch.ones(3, 12, dtype=torch.bool))
    found = measure_self_repair(gpt, tokens, ["L0H0:zero"])
    with pytest.raises(InputError, match="leave an ablation without any"):
        summarise(found, torch.zeros(3, 11, dtype=torch.bool))
    with pytest.raises(InputError, match="sees the next token"):
        measure_self_repair(make_gpt_with(attention="bidirectional"), tokens, ["L0H0:zero"])


def test_resampling_is_the_mean_over_its_donors(tokens: Tensor):
    """Each donor's numbers by a patch of its own, averaged by hand."""
    gpt = make_gpt_with()
    supplies = others(gpt, tokens)
    found = measure_self_repair(gpt, tokens, ["L0H2:resample"], supplies=supplies, batch_size=2)
    clean, total = gpt(tokens), torch.zeros(3, 11)
    for draw in range(supplies.n_donors):
        with ablated(gpt, "L0H2:resample", supplies=supplies, tokens=tokens, draw=draw):
            changed = gpt(tokens) - clean
        total += (changed.gather(2, tokens.roll(-1, 1)[..., None])[..., 0] - changed.mean(-1))[:, :-1]
    torch.testing.assert_close(found.total[:, 0].float(), total / supplies.n_donors, rtol=1e-4, atol=1e-5)
