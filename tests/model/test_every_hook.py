"""Every place of every kind of model: it fires once, reads true, edits, and differentiates.

Runs over `tests.model.covering`: configs in which any two choices of GPTConfig meet. Models are tiny and in fp64 with a
norm_eps of 1e-18, so that what changes nothing (1e-9) and what changes something (1e-6) lie far apart. Many edits share
one pass: the same sequence stands in every row of the batch, row 0 stays clean, and row i is edited at the i-th place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor

from model import GPT, GPTConfig, Hook, KeyValueCache
from model.config import AttentionKind, FFNKind, Init, Norm, NormKind
from model.hooks import HookFunction
from model.sites import Site, Tap
from tests.conftest import make_gpt_with
from tests.model.covering import CONFIGS, Config, all_pairs, choices, id_of, pairs_of

N_POS, N_BATCH = 6, 2
SIZES = {"n_layers": 2, "n_heads": 4, "d_model": 16, "n_ctx": 8, "d_vocab": 11, "d_ff": 24, "norm_eps": 1e-18}
TOKENS = torch.randint(0, 11, (N_BATCH, N_POS), generator=torch.Generator().manual_seed(3))
PADDING = torch.tensor([2, 0])
"""How many tokens of each sequence are padding, on the left."""
MASK = torch.arange(N_POS) >= PADDING[:, None]
EDITED = [3, 4, 5]
"""The three positions at which an edit adds noise."""

every_config = pytest.mark.parametrize("config", CONFIGS, ids=id_of)
CAUSAL = [config for config in CONFIGS if config["attention"] is AttentionKind.CAUSAL]


@cache
def built(index: int) -> GPT:
    gpt = make_gpt_with(**(SIZES | CONFIGS[index])).double()
    if gpt.config.init is Init.GPT2:  # its weights are small, and an effect should not be
        with torch.no_grad():
            for parameter in gpt.blocks.parameters():
                parameter.mul_(10 if parameter.ndim == 2 else 1)
    return gpt


def model_of(config: Config) -> GPT:
    return built(CONFIGS.index(config))


def site_of(gpt: GPT, name: str) -> Site:
    return gpt._sites[name]


def shape_of(gpt: GPT, name: str, n_batch: int, n_query: int, n_key: int) -> tuple[int, ...]:
    """The shape that the place's documented axes have in this model."""
    config = gpt.config
    sizes = {
        "batch": n_batch, "pos": n_query, "query": n_query, "key": n_key, "one": 1, "d_model": config.d_model,
        "head": config.n_heads, "kv_head": config.kv_heads, "d_head": config.head_width, "memory": config.ffn_width,
        "d_vocab": config.d_vocab,
    }  # fmt: skip
    return tuple(sizes[axis] for axis in site_of(gpt, name).tap.axes)


def is_square(name: str) -> bool:
    return name.endswith(("attn_scores", "pattern"))


def groups(names: Sequence[str]) -> list[list[str]]:
    """What may be edited in one run: a layer's per-head inputs, and its ln1, exclude each other."""
    split = [name for name in names if name.endswith(("attn_in", "q_input", "k_input", "v_input"))]
    return [split, [name for name in names if name not in split]]


def some_of(config: Config, names: Sequence[str], n: int = 16) -> list[str]:
    """Every n-th name, beginning elsewhere for each config, so that all configs together meet each place several times
    and in several kinds of model.
    """
    return list(names[CONFIGS.index(config) % n :: n])


def test_the_configs_hold_every_pair_of_choices() -> None:
    assert all_pairs(choices()) <= set().union(*map(pairs_of, CONFIGS))
    assert {
        "norm",
        "norm_kind",
        "positions",
        "ffn",
        "attention",
        "init",
        "biases",
        "qk_norm",
        "smeared_keys",
    } <= choices().keys()


# --- firing -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Situation:
    """One pass: what it must reach, at which positions, and how to run it."""

    names: list[str]
    positions: Tensor
    n_key: int
    run: Callable[[], object]


def situations(gpt: GPT) -> Iterator[Situation]:
    """Plain, padded, over either half of the layers, and with a key-value cache: several positions, then one."""
    names, counted = gpt.named_sites(), torch.arange(N_POS).expand(N_BATCH, -1)
    below = [n for n in names if site_of(gpt, n).layer == 0 or n in ("hook_embed", "hook_pos_embed")]
    above = [n for n in names if n not in below]
    ragged = torch.where(MASK, counted - PADDING[:, None], -1)
    stream = gpt.run_with_hooks(TOKENS, stop_at_layer=1)
    yield Situation(names, counted, N_POS, lambda: gpt(TOKENS))
    yield Situation(names, ragged, N_POS, lambda: gpt(TOKENS, MASK))
    yield Situation(below, ragged, N_POS, lambda: gpt.run_with_hooks(TOKENS, stop_at_layer=1, attention_mask=MASK))
    yield Situation(above, counted, N_POS, lambda: gpt.run_with_hooks(stream, start_at_layer=1))
    if gpt.config.attention is AttentionKind.CAUSAL:
        past = cache_of(gpt)
        yield Situation(names, ragged[:, :4], 4, lambda: gpt(TOKENS[:, :4], MASK[:, :4], kv_cache=past))
        yield Situation(names, ragged[:, 4:5], 5, lambda: gpt(TOKENS[:, 4:5], MASK[:, :5], kv_cache=past))


def cache_of(gpt: GPT) -> KeyValueCache:
    return KeyValueCache(gpt.config, N_BATCH, device=gpt.device, dtype=gpt.dtype)


@every_config
@torch.no_grad()
def test_every_place_fires_once_with_its_documented_shape_and_positions(config: Config) -> None:
    gpt = model_of(config)
    for situation in situations(gpt):
        fired: list[tuple[str, tuple[int, ...]]] = []

        def record(x: Tensor, hook: Hook, fired=fired, expected=situation.positions) -> None:
            assert torch.equal(hook.positions, expected)
            fired.append((hook.name, tuple(x.shape)))

        with gpt.hooks([(lambda name: True, record)]):
            situation.run()
        n_query, n_key = situation.positions.shape[1], situation.n_key
        expected = [(name, shape_of(gpt, name, N_BATCH, n_query, n_key)) for name in situation.names]
        assert sorted(fired) == sorted(expected)


# --- reading ----------------------------------------------------------------------------------------------------------


@every_config
@torch.no_grad()
def test_reading_changes_no_bit_of_what_the_same_attention_path_gives(config: Config) -> None:
    gpt = model_of(config)
    names = gpt.named_sites()
    round_ones = [name for name in names if not is_square(name)]
    for mask in (None, MASK):
        fused = gpt(TOKENS, mask)
        with gpt.explicit_attention():
            explicit = gpt(TOKENS, mask)
        torch.testing.assert_close(fused, explicit, rtol=1e-9, atol=1e-9)
        for wanted, expected in ((round_ones, fused), (names, explicit)):
            out, read = gpt.run_with_cache(TOKENS, wanted, attention_mask=mask)
            assert list(read) == wanted
            assert torch.equal(out, expected)
    for name in some_of(config, round_ones):
        assert torch.equal(gpt.run_with_cache(TOKENS, name, attention_mask=MASK)[0], fused), name


@every_config
def test_an_edit_that_changes_nothing_leaves_every_bit(config: Config) -> None:
    gpt = model_of(config)
    with gpt.explicit_attention():
        clean = gpt(TOKENS, MASK)
        for names in (*groups(gpt.named_sites()), *([name] for name in some_of(config, gpt.named_sites()))):
            same = [(name, lambda x, hook: x.clone()) for name in names]
            assert torch.equal(gpt.run_with_hooks(TOKENS, same, attention_mask=MASK), clean), names


# --- editing ----------------------------------------------------------------------------------------------------------

Holds = Callable[[GPTConfig, Site], bool]


def _written_into_a_norm(config: GPTConfig, site: Site) -> bool:
    """Whether all that the next reader gets is this output norm's, and it is read through a norm."""
    has_bias = config.norm_kind is NormKind.LAYERNORM and config.biases
    if config.skip_connections or has_bias or site.tap not in (Tap.LN1_POST_SCALE, Tap.LN2_POST_SCALE):
        return False
    last = site.tap is Tap.LN2_POST_SCALE or config.ffn is FFNKind.NONE
    return config.norm is Norm.SANDWICH or (last and site.layer == config.n_layers - 1)


def _through_a_homogeneous_ffn(config: GPTConfig, site: Site) -> bool:
    """Whether all that this norm hands on goes through f(c x) = c f(x), or through x + f(x), into a norm."""
    if config.ffn is not FFNKind.RELU or config.biases:
        return False
    before = {Norm.SANDWICH: Tap.LN2_SCALE, Norm.POST: Tap.LN1_SCALE, Norm.DEEPNORM: Tap.LN1_SCALE}
    if not config.skip_connections:
        before |= {Norm.PRE: Tap.LN2_SCALE, Norm.SCALED: Tap.LN2_SCALE, Norm.REORDERED: Tap.LN1_POST_SCALE}
    return site.tap is before.get(config.norm)


WITHOUT_EFFECT: dict[str, Holds] = {
    "without skips, an output norm writes straight into a norm, which divides its factor out": _written_into_a_norm,
    "a ReLU FFN without biases hands a factor on to a norm, which divides it out": _through_a_homogeneous_ffn,
}
"""Where an edit cannot change the logits, by algebra. The tests fail if a place is missing here, or is here in vain."""


def reasons(config: GPTConfig, site: Site) -> list[str]:
    return [reason for reason, holds in WITHOUT_EFFECT.items() if holds(config, site)]


def noise_in_row(row: int, gpt: GPT, name: str, positions: Sequence[int], seed: int = 0) -> HookFunction:
    """Adds uniform noise to one row of the batch at these positions; everything else stays."""
    axis = site_of(gpt, name).tap.position_axis - 1

    def add(x: Tensor, hook: Hook) -> Tensor:
        drawn = torch.rand(x[row].shape, generator=torch.Generator().manual_seed(seed), dtype=x.dtype)
        x[row].index_add_(axis, torch.tensor(positions), drawn.index_select(axis, torch.tensor(positions)))
        return x

    return add


@every_config
@torch.no_grad()
def test_noise_at_three_positions_of_any_place_changes_the_logits(config: Config) -> None:
    gpt, changes = model_of(config), {}
    for names in groups(gpt.named_sites()):
        rows = TOKENS[:1].expand(len(names) + 1, -1)
        edits = [(name, noise_in_row(row, gpt, name, EDITED)) for row, name in enumerate(names, 1)]
        logits = gpt.run_with_hooks(rows, edits)
        torch.testing.assert_close(logits[0], gpt(TOKENS[:1])[0], rtol=1e-9, atol=1e-9)
        changes |= {name: (logits[row] - logits[0]).abs().max().item() for row, name in enumerate(names, 1)}
    for name, change in changes.items():
        without_effect = reasons(gpt.config, site_of(gpt, name))
        assert change < 1e-9 if without_effect else change > 1e-6, (name, change, without_effect)
    with gpt.explicit_attention():
        clean = gpt(TOKENS[:1])
        for name in some_of(config, list(changes)):
            alone = gpt.run_with_hooks(TOKENS[:1], [(name, noise_in_row(0, gpt, name, EDITED))])
            assert (alone - clean).abs().max().item() == pytest.approx(changes[name], rel=1e-6, abs=1e-10), name


def test_every_exception_is_met_by_some_config() -> None:
    models = [model_of(config) for config in CONFIGS]
    met = {reason for gpt in models for site in gpt._sites.values() for reason in reasons(gpt.config, site)}
    assert met == WITHOUT_EFFECT.keys()


@every_config
@torch.no_grad()
def test_what_is_put_on_padding_reaches_no_token(config: Config) -> None:
    gpt = model_of(config)
    with gpt.explicit_attention():
        clean = gpt(TOKENS, MASK)
        for names in groups(gpt.named_sites()):
            edits = [(name, noise_in_row(0, gpt, name, [0, 1])) for name in names]
            edited = gpt.run_with_hooks(TOKENS, edits, attention_mask=MASK)
            torch.testing.assert_close(edited[MASK], clean[MASK], rtol=1e-9, atol=1e-9)


# --- a key-value cache ------------------------------------------------------------------------------------------------


def noise_by_position(gpt: GPT, name: str) -> HookFunction:
    """Adds what depends on absolute positions only: of the query and the key for scores and patterns."""
    shape = shape_of(gpt, name, 1, N_POS, N_POS)[1:]
    axis = site_of(gpt, name).tap.position_axis - 1
    table = torch.rand(shape, generator=torch.Generator().manual_seed(1), dtype=gpt.dtype).movedim(axis, 0)

    def add(x: Tensor, hook: Hook) -> Tensor:
        added = table[hook.positions.clamp(min=0)]
        if not is_square(name):
            return x + added
        keys = hook.key_positions.clamp(min=0)[:, None, None, :].expand(*added.shape[:3], -1)
        past = hook.key_positions[:, None, None, :] <= hook.positions[:, :, None, None]
        real = (hook.key_positions >= 0)[:, None, None, :]
        return x + (added.gather(-1, keys) * (past & real)).movedim(1, 2)

    return add


@pytest.mark.parametrize("config", CAUSAL, ids=id_of)
@torch.no_grad()
def test_an_edit_by_position_is_the_same_with_and_without_the_key_value_cache(config: Config) -> None:
    gpt = model_of(config)
    for names in groups(gpt.named_sites()):
        past = cache_of(gpt)
        with gpt.hooks([(name, noise_by_position(gpt, name)) for name in names]):
            whole = gpt(TOKENS, MASK)
            steps = [gpt(TOKENS[:, a:b], MASK[:, :b], kv_cache=past) for a, b in ((0, 4), (4, 5), (5, 6))]
        torch.testing.assert_close(torch.cat(steps, dim=1)[MASK], whole[MASK], rtol=1e-9, atol=1e-9)


# --- gradients --------------------------------------------------------------------------------------------------------


def weighted(logits: Tensor) -> Tensor:
    """A number for each row that depends on every logit differently."""
    weights = torch.randn(logits.shape[1:], generator=torch.Generator().manual_seed(5), dtype=logits.dtype)
    return (logits * weights).sum(dim=(1, 2))


@every_config
def test_the_cached_gradient_is_autograds_and_the_slope(config: Config) -> None:
    """Two other routes: autograd through zeros added by a hook, and central differences along a random direction."""
    gpt, step = model_of(config), 1e-6
    for names in groups(gpt.named_sites()):
        _, cached = gpt.run_with_cache(TOKENS[:1], names, incl_bwd=True, loss_fn=lambda logits: weighted(logits).sum())
        zeros = {name: torch.zeros_like(cached[name]).requires_grad_() for name in names}
        taps = [(name, lambda x, hook, zeros=zeros: x + zeros[hook.name]) for name in names]
        gradients = torch.autograd.grad(weighted(gpt.run_with_hooks(TOKENS[:1], taps)).sum(), list(zeros.values()))
        up, down = (along(gpt, names, sign * step) for sign in (1, -1))
        for row, (name, gradient) in enumerate(zip(names, gradients, strict=True)):
            torch.testing.assert_close(cached[f"{name}_grad"], gradient, rtol=1e-9, atol=1e-9)
            slope = ((up - down)[row] / (2 * step)).item()
            assert (gradient * direction(gradient)).sum().item() == pytest.approx(slope, rel=1e-4, abs=1e-4), name
    assert all(parameter.grad is None for parameter in gpt.parameters())


def direction(like: Tensor) -> Tensor:
    return torch.randn(like.shape[1:], generator=torch.Generator().manual_seed(2), dtype=like.dtype)


@torch.no_grad()
def along(gpt: GPT, names: Sequence[str], step: float) -> Tensor:
    """The weighted logits when row i is moved by a step at the i-th place."""

    def move(row: int) -> HookFunction:
        def add(x: Tensor, hook: Hook) -> None:
            x[row] += step * direction(x)

        return add

    moves = [(name, move(row)) for row, name in enumerate(names)]
    return weighted(gpt.run_with_hooks(TOKENS[:1].expand(len(names), -1), moves))
