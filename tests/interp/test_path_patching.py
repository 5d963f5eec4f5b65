"""Path patching finds by which input a planted head is fed, and agrees with a plain reading of its definition."""

from __future__ import annotations

import re

import pytest
import torch
from torch import Tensor

from interp import path_patching
from interp.metrics import copy_logit, logit_difference, outcome_metric
from interp.outcomes import copy_outcome
from interp.patching import activation_patching, patch_grid, redrawn_first_copy
from interp.path_patching import path_effects
from interp.path_results import PathEffects
from interp.paths import LOGITS, FFNs, Input, Path, Receiver, Scales, feeding_paths
from interp.recordings import mean_held, record
from interp.stimuli import repeated_tokens
from model import GPT
from model.errors import ConfigError, InputError, NotAdditiveError, UnknownNameError
from model.sites import Tap
from tests import planted
from tests.conftest import make_gpt_with

PERIOD = 8
IDS = range(1, planted.D_VOCAB)
PREVIOUS, INDUCTION = planted.PREVIOUS_HEAD, planted.INDUCTION_HEAD


def task() -> tuple[Tensor, Tensor]:
    clean = repeated_tokens(8, PERIOD, IDS, seed=1, bos=0)
    return clean, redrawn_first_copy(clean, PERIOD, IDS, seed=2)


def effects_in(gpt: GPT, senders=((0, 0), PREVIOUS), **options) -> PathEffects:
    clean, corrupted = task()
    source = record(gpt, corrupted, [Tap.Z.at(0)], source="other first copies")
    metric = copy_logit(clean, PERIOD)
    return path_effects(gpt, clean, senders, feeding_paths([INDUCTION]), metric, source=source, **options)


def transposed_model() -> GPT:
    """The induction circuit turned round: the previous-token head feeds the query.

    Head L1H2 looks for the token that came before its own, so it predicts that token again. Its query reads what L0H1
    wrote; its key reads the token.
    """
    gpt = planted.induction_model()
    attention = gpt.layers[1].attn
    q, k = attention.W_Q[2].clone(), attention.W_K[2].clone()
    attention.W_Q[2], attention.W_K[2] = k, q
    return gpt


@pytest.mark.parametrize("ffns", list(FFNs))
@pytest.mark.parametrize("scales", list(Scales))
def test_the_planted_previous_token_head_feeds_the_keys_and_nothing_else(ffns: FFNs, scales: Scales):
    found = effects_in(planted.induction_model(), ffns=ffns, scales=scales)
    _, share = found.of(PREVIOUS, "K")
    assert share.mean == pytest.approx(1.0, abs=1e-5)
    assert (share.low, share.high) == pytest.approx((1.0, 1.0), abs=1e-5)
    assert float(found.unexplained[1, 1]) == pytest.approx(0.0, abs=1e-5)
    for other in ("Q", "V", "logits"):
        effect, share = found.of(PREVIOUS, other)
        assert (effect.mean, share.mean) == (0, 0)
        assert float(found.unexplained[1, found.paths.index(other)]) == 1
    assert float(found.total[:, 0].abs().max()) == 0  # the bystander
    assert found.shares().mean[0].isnan().all()


def test_transposed_planting_shows_the_query_and_not_the_key():
    """The mutation that swaps K and Q, in the model instead of in the code: each must show."""
    gpt, (clean, _) = transposed_model(), task()
    metric = logit_difference(clean[:, -2], clean[:, 1])
    source = record(gpt, clean.flip(1), [Tap.Z.at(0)], source="the prompts backwards")
    found = path_effects(gpt, clean, [PREVIOUS], feeding_paths([INDUCTION]), metric, source=source)
    assert float(found.total.max()) < -1
    torch.testing.assert_close(found.effect[:, 0, 0], found.total[:, 0])
    assert float(found.effect[:, 0, 1:].abs().max()) == 0


def test_a_planted_value_reader_shows_v_and_a_planted_writer_shows_the_logits():
    """The induction head made to hand on the previous token; then a head that writes to the output by itself."""
    gpt = planted.induction_model()
    token, previous = (
        slice(0, planted.D_VOCAB),
        slice(planted.D_VOCAB + planted.N_CTX, 2 * planted.D_VOCAB + planted.N_CTX),
    )
    attention = gpt.layers[1].attn
    attention.W_V[2][previous, : planted.D_VOCAB] = torch.eye(planted.D_VOCAB)
    attention.W_V[2][token, : planted.D_VOCAB] = 0
    attention.W_K[2][:] = 0  # attends evenly: nothing but values can carry anything
    found = effects_in(gpt)
    assert float(found.total[:, 1].abs().min()) > 0.01
    torch.testing.assert_close(found.effect[:, 1, 2], found.total[:, 1])
    assert float(found.effect[:, 1, :2].abs().max()) == 0
    writer = planted.induction_model()
    output = slice(2 * planted.D_VOCAB + planted.N_CTX, 3 * planted.D_VOCAB + planted.N_CTX)
    planted.silence(writer, layer=1, head=2)
    writer.layers[0].attn.W_O[1][: planted.D_VOCAB, output] = 3 * torch.eye(planted.D_VOCAB)
    clean, _ = task()
    other = record(writer, clean.flip(1), [Tap.Z.at(0)], source="backwards")
    metric = logit_difference(clean[:, -2], clean[:, 3])
    direct = path_effects(writer, clean, [PREVIOUS], feeding_paths([INDUCTION]), metric, source=other)
    torch.testing.assert_close(direct.effect[:, 0, 3], direct.total[:, 0])
    assert float(direct.total.abs().max()) > 1
    assert float(direct.effect[:, 0, :3].abs().max()) == 0


def test_a_mix_up_of_keys_and_queries_would_show(monkeypatch: pytest.MonkeyPatch):
    """The mutant: K effects are read at the queries and the other way round."""
    known = path_patching._TAPS
    swapped = {Input.Q: known[Input.K], Input.K: known[Input.Q], Input.V: known[Input.V]}
    monkeypatch.setattr(path_patching, "_TAPS", swapped)
    found = effects_in(planted.induction_model())
    assert (found.of(PREVIOUS, "Q")[1].mean, found.of(PREVIOUS, "K")[1].mean) == pytest.approx((1.0, 0.0))


@pytest.mark.parametrize("each", list(Input))
def test_swapping_any_two_inputs_would_change_the_answer(each: Input):
    """A guard against mixing up the inputs: in random models the three differ, so each is held to its own hook."""
    gpt = make_gpt_with(n_layers=2, biases=True, norm_kind="layernorm")
    tokens = torch.randint(0, 50, (3, 10), generator=torch.Generator().manual_seed(1))
    other = torch.randint(0, 50, (3, 10), generator=torch.Generator().manual_seed(2))
    source = record(gpt, other, [Tap.Z.at(0)], source="others")
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    found = path_effects(gpt, tokens, [(0, 3)], feeding_paths([(1, 0), (1, 2)]), metric, source=source)
    assert found.paths == ("Q", "K", "V", "logits")
    clean_z = record(gpt, tokens, [Tap.Z.at(0)], source="clean")
    change = (source.at(Tap.Z.at(0)) - clean_z.at(Tap.Z.at(0)))[:, :, 3] @ gpt.W_O[0, 3]

    def add(x: Tensor, hook) -> Tensor:
        x[:, :, [0, 2]] += change[:, :, None]
        return x

    name = f"blocks.1.hook_{each.value.lower()}_input"
    with torch.no_grad():
        changed = metric(gpt.run_with_hooks(tokens, [(name, add)]), torch.arange(3))
        clean = metric(gpt(tokens), torch.arange(3))
    torch.testing.assert_close(
        found.effect[:, 0, found.paths.index(each.name)], (changed - clean).double(), rtol=1e-3, atol=1e-5
    )


@pytest.mark.parametrize("changes", [{}, {"n_kv_heads": 2, "biases": True}, {"positions": "alibi"}])
def test_all_inputs_together_and_the_logits_make_up_the_total(changes: dict, tokens: Tensor):
    """Exact where nothing but attention is nonlinear: what later heads do with a change, and what it does by itself."""
    gpt = make_gpt_with(norm="none", ffn="none", embed_std=0.3, **changes).double()
    source = record(gpt, (tokens + 17) % 50, [Tap.Z.at(0)], source="others")
    inputs = tuple(Receiver(layer=1, head=index, input=each) for index in range(4) for each in Input)
    paths = {"inputs": Path(receivers=inputs), "logits": LOGITS}
    found = path_effects(gpt, tokens, [(0, 1)], paths, logit_difference(tokens[:, 0], tokens[:, 1]), source=source)
    torch.testing.assert_close(found.effect.sum(2), found.total)
    assert float(found.effect.abs().min()) > 1e-4


def test_the_total_is_activation_patching(tokens: Tensor):
    gpt = make_gpt_with()
    other = (tokens + 17) % 50
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    source = record(gpt, other, [Tap.Z.at(0)], source="others")
    heads = [(0, index) for index in range(4)]
    found = path_effects(gpt, tokens, heads, {"K": feeding_paths([(1, 0)])["K"]}, metric, source=source, batch_size=2)
    patched = activation_patching(gpt, tokens, other, patch_grid(gpt.config, Tap.Z, layers=[0]), metric)
    torch.testing.assert_close(found.total, patched.effect[:, 0, :, 0], rtol=1e-4, atol=1e-6)


def test_the_direct_path_to_the_logits_is_linear_when_the_scale_is_frozen(tokens: Tensor):
    """Frozen, it is what the change adds along the difference of the logits; recomputed, it is not."""
    gpt = make_gpt_with(norm_kind="layernorm", biases=True).double()
    other = (tokens + 17) % 50
    right, wrong = tokens[:, 0], tokens[:, 1]
    source = record(gpt, other, [Tap.Z.at(1)], source="others")
    metric = logit_difference(right, wrong)
    found = path_effects(gpt, tokens, [(1, 2)], {"logits": LOGITS}, metric, source=source, scales="frozen")
    held = record(gpt, tokens, [Tap.Z.at(1), Tap.LN_FINAL_SCALE.at()], source="clean")
    change = (source.at(Tap.Z.at(1)) - held.at(Tap.Z.at(1)))[:, -1, 2] @ gpt.W_O[1, 2]
    towards = (
        (gpt.W_U[:, right] - gpt.W_U[:, wrong]).T * gpt.ln_final.w.detach() / held.at(Tap.LN_FINAL_SCALE.at())[:, -1]
    )
    wanted = ((change - change.mean(-1, keepdim=True)) * towards).sum(-1)
    torch.testing.assert_close(found.effect[:, 0, 0], wanted)
    recomputed = path_effects(gpt, tokens, [(1, 2)], {"logits": LOGITS}, metric, source=source)
    assert not torch.allclose(recomputed.effect, found.effect, rtol=1e-3)


@pytest.mark.parametrize("each", list(Input))
@pytest.mark.parametrize("norm", ["pre", "scaled"])
@pytest.mark.parametrize("kind", [{"norm_kind": "rmsnorm"}, {"norm_kind": "layernorm", "biases": True}])
def test_with_a_frozen_scale_an_input_gains_the_change_through_a_linear_norm(
    each: Input, norm: str, kind: dict, tokens: Tensor
):
    """By hand: hook_k (or q, v) of the clean run plus (change C / scale) diag(w) shrink W_K, nothing else changed."""
    gpt = make_gpt_with(norm=norm, **kind).double()
    at_z, at_scale = Tap.Z.at(0), Tap.LN1_SCALE.at(1)
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    source = record(gpt, (tokens + 17) % 50, [at_z], source="others")
    held = record(gpt, tokens, [at_z, at_scale], source="clean")
    change = (source.at(at_z) - held.at(at_z))[:, :, 0] @ gpt.W_O[0, 0]
    block = gpt.layers[1]
    if norm == "scaled":
        assert block.ln1.shrink == pytest.approx(2**-0.5)
    read = change - change.mean(-1, keepdim=True) if kind["norm_kind"] == "layernorm" else change
    read = read / held.at(at_scale) * block.ln1.w * block.ln1.shrink
    weights = {Input.Q: block.attn.W_Q, Input.K: block.attn.W_K, Input.V: block.attn.W_V}[each][2]

    def add(x: Tensor, hook) -> Tensor:
        x[:, :, 2] += read @ weights
        return x

    with torch.no_grad():
        changed = metric(gpt.run_with_hooks(tokens, [(f"blocks.1.attn.hook_{each.value}", add)]), torch.arange(3))
        wanted = changed - metric(gpt(tokens), torch.arange(3))
    paths = {"path": Path(receivers=(Receiver(layer=1, head=2, input=each),))}
    frozen, recomputed = (
        path_effects(gpt, tokens, [(0, 0)], paths, metric, source=source, scales=scales).effect[:, 0, 0]
        for scales in (Scales.FROZEN, Scales.RECOMPUTED)
    )
    torch.testing.assert_close(frozen, wanted, rtol=1e-9, atol=1e-12)
    assert float(wanted.abs().min()) > 1e-6
    assert not torch.allclose(frozen, recomputed, rtol=1e-3, atol=0)  # what a scale itself does is left out


def test_recomputed_ffns_carry_more_than_the_direct_edge(tokens: Tensor):
    gpt = make_gpt_with().double()
    source = record(gpt, (tokens + 17) % 50, [Tap.Z.at(0)], source="others")
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    found = {
        each: path_effects(gpt, tokens, [(0, 1)], feeding_paths([(1, 0)]), metric, source=source, ffns=each)
        for each in FFNs
    }
    assert not torch.allclose(found[FFNs.FROZEN].effect, found[FFNs.RECOMPUTED].effect, rtol=1e-3)
    silent = make_gpt_with().double()
    for block in silent.layers:
        torch.nn.init.zeros_(block.mlp.out_proj.weight)
    source = record(silent, (tokens + 17) % 50, [Tap.Z.at(0)], source="others")
    alike = [
        path_effects(silent, tokens, [(0, 1)], feeding_paths([(1, 0)]), metric, source=source, ffns=each).effect
        for each in FFNs
    ]
    torch.testing.assert_close(alike[0], alike[1])


def test_recomputed_ffns_are_what_frozen_heads_leave(tokens: Tensor):
    """By hand in a three-layer model: the FFNs of layers 0 and 1 stand between L0 and the keys of L2."""
    gpt = make_gpt_with(n_layers=3).double()
    source = record(gpt, (tokens + 17) % 50, [Tap.Z.at(0)], source="others")
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    found = path_effects(
        gpt, tokens, [(0, 1)], {"K": feeding_paths([(2, 3)])["K"]}, metric, source=source, ffns="recomputed"
    )
    _, clean = gpt.run_with_cache(tokens)
    stream = clean["resid_mid", 0] + (source.at(Tap.Z.at(0)) - clean["z", 0])[:, :, 1] @ gpt.W_O[0, 1]
    with torch.no_grad():
        for layer in (0, 1):
            block = gpt.layers[layer]
            stream = stream + block.mlp(block.ln2(stream, None), None) + (clean["attn_out", 1] if layer == 0 else 0)

        def read(x: Tensor, hook) -> Tensor:
            x[:, :, 3] = stream
            return x

        changed = metric(gpt.run_with_hooks(tokens, [("blocks.2.hook_k_input", read)]), torch.arange(3))
        torch.testing.assert_close(found.effect[:, 0, 0], changed - metric(gpt(tokens), torch.arange(3)))


def test_grouped_heads_say_who_reads_along(tokens: Tensor):
    gpt = make_gpt_with(n_kv_heads=2)
    source = record(gpt, (tokens + 17) % 50, [Tap.Z.at(0)], source="others")
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    found = path_effects(gpt, tokens, [(0, 0)], feeding_paths([(1, 2)]), metric, source=source)
    assert found.shared == ("L1H3",)
    both = path_effects(gpt, tokens, [(0, 0)], feeding_paths([(1, 2), (1, 3)]), metric, source=source)
    assert both.shared == ()
    torch.testing.assert_close(both.effect[:, 0, 1:3], found.effect[:, 0, 1:3])
    assert not torch.equal(both.effect[:, 0, 0], found.effect[:, 0, 0])
    assert effects_in(planted.induction_model()).shared == ()


def test_means_serve_as_a_source():
    gpt = planted.induction_model()
    clean, _ = task()
    others = repeated_tokens(16, PERIOD, IDS, seed=5, bos=0)
    means = mean_held(gpt, others, [Tap.Z.at(0)], source="16 other sequences")
    metric = outcome_metric(copy_outcome(PERIOD), clean)
    found = path_effects(gpt, clean, [PREVIOUS], feeding_paths([INDUCTION]), metric, source=means)
    assert found.source == "16 other sequences"
    assert float(found.total.mean()) > 1
    torch.testing.assert_close(found.effect[:, 0, 1], found.total[:, 0])


def test_what_was_not_patched_is_said_in_a_sentence():
    found = effects_in(planted.induction_model())
    with pytest.raises(UnknownNameError, match=re.escape('no path "X" was patched. There are Q, K, V, logits.')):
        found.of(PREVIOUS, "X")
    with pytest.raises(UnknownNameError, match=re.escape('no sender "L0H3" was patched.')):
        found.of((0, 3), "K")


def test_unexplained_counts_what_a_mean_would_cancel():
    found = PathEffects(
        senders=((0, 0),), paths=("K",), shared=(), source="", ffns=FFNs.FROZEN, scales=Scales.RECOMPUTED,
        base=torch.zeros(2).double(), total=torch.tensor([[1.0], [1.0]]).double(),
        effect=torch.tensor([[[0.0]], [[2.0]]]).double(),
    )  # fmt: skip
    assert found.shares()[0, 0].mean == 1
    assert float(found.unexplained[0, 0]) == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"norm": "post"}, "path patching needs a residual stream that is a sum"),
        ({"norm": "sandwich"}, "path patching needs heads that write into the stream as they are; with norm=sandwich"),
        ({"skip_connections": False}, "with skip_connections=false it is not"),
    ],
)
def test_models_without_edges_are_refused_with_the_reason(changes: dict, sentence: str, tokens: Tensor):
    gpt = make_gpt_with(**changes)
    source = record(gpt, tokens, [Tap.Z.at(0)], source="same")
    with pytest.raises(NotAdditiveError, match=re.escape(sentence)):
        path_effects(gpt, tokens, [(0, 0)], feeding_paths([(1, 0)]), logit_difference(tokens[:, 0], tokens[:, 1]),
                     source=source)  # fmt: skip


def test_what_makes_no_path_is_refused_in_a_sentence(tokens: Tensor):
    gpt = make_gpt_with()
    metric = logit_difference(tokens[:, 0], tokens[:, 1])
    source = record(gpt, tokens, [Tap.Z.at(0), Tap.Z.at(1)], source="same")
    into = feeding_paths([(1, 0)])

    def run(senders, paths=into, source=source, gpt=gpt, **options) -> None:
        path_effects(gpt, tokens, senders, paths, metric, source=source, **options)

    with pytest.raises(InputError, match=re.escape("L1H1 cannot reach the path Q (L1H0.Q): no receiver is in a later")):
        run([(1, 1)])
    with pytest.raises(InputError, match="There is no head L2H0; layers run 0 to 1, heads 0 to 3"):
        run([(2, 0)])
    with pytest.raises(InputError, match="at least one sender and one path"):
        run([])
    with pytest.raises(InputError, match="no receivers were given"):
        feeding_paths([])
    short = record(gpt, tokens[:, :8], [Tap.Z.at(0)], source="short")
    with pytest.raises(InputError, match="the source holds 3 sequences of 8 positions and the prompts are 3 of 12"):
        run([(0, 0)], source=short)
    with pytest.raises(InputError, match=re.escape("no recording of blocks.0.attn.hook_z was taken")):
        run([(0, 0)], source=record(gpt, tokens, [Tap.Z.at(1)], source="the wrong layer"))
    normed = make_gpt_with(qk_norm=True)
    with pytest.raises(InputError, match="qk_norm norms queries and keys once more"):
        run([(0, 0)], gpt=normed, scales="frozen")
    with pytest.raises(ConfigError, match='ffns="thawed"'):
        run([(0, 0)], ffns="thawed")
    smeared = make_gpt_with(smeared_keys=True)
    with pytest.raises(InputError, match="smeared keys read two positions"):
        run([(0, 0)], gpt=smeared, scales="frozen")
    run([(0, 0)], gpt=smeared)
