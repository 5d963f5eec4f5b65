"""The named places of a GPT: every hook point, its axes, and where it exists.

A `Tap` is a kind of place, a `Site` is one of them in a layer; `Tap.PATTERN.at(3)` is the typed spelling of
`"blocks.3.attn.hook_pattern"`. The names are TransformerLens's. docs/sites.md is generated from this module.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache

from model.config import SUM_NORMS, FFNKind, GPTConfig, Positions
from model.errors import UnknownSiteError, closest

_STREAM = "batch pos d_model"
_HEADS = "batch pos head d_head"
_KV_HEADS = "batch pos kv_head d_head"
_SQUARE = "batch head query key"
_MEMORIES = "batch pos memory"
_SCALE = "batch pos one"


class Tap(Enum):
    """A kind of place; the value is its hook name, its axes, and what the numbers there are."""

    EMBED = ("hook_embed", _STREAM, "token embeddings")
    POS_EMBED = ("hook_pos_embed", _STREAM, "position embeddings (learned, sinusoidal)")
    RESID_PRE = ("blocks.{}.hook_resid_pre", _STREAM, "the stream that attention reads")
    ATTN_IN = (
        "blocks.{}.hook_attn_in",
        "batch pos head d_model",
        "each head's own copy of the stream, before the norm",
    )
    Q_INPUT = ("blocks.{}.hook_q_input", "batch pos head d_model", "what each query reads, before the norm")
    K_INPUT = ("blocks.{}.hook_k_input", "batch pos kv_head d_model", "what each key reads, before the norm")
    V_INPUT = ("blocks.{}.hook_v_input", "batch pos kv_head d_model", "what each value reads, before the norm")
    LN1_SCALE = ("blocks.{}.ln1.hook_scale", _SCALE, "the divisor of ln1")
    LN1_NORMALIZED = ("blocks.{}.ln1.hook_normalized", _STREAM, "x / scale, before gain and bias")
    LN1_OUT = ("blocks.{}.ln1.hook_out", _STREAM, "what ln1 hands on")
    Q = ("blocks.{}.attn.hook_q", _HEADS, "queries (after qk_norm, before rotation)")
    K = ("blocks.{}.attn.hook_k", _KV_HEADS, "keys (after qk_norm and smearing, before rotation)")
    V = ("blocks.{}.attn.hook_v", _KV_HEADS, "values")
    ROT_Q = ("blocks.{}.attn.hook_rot_q", _HEADS, "rotated queries (rope)")
    ROT_K = ("blocks.{}.attn.hook_rot_k", _KV_HEADS, "rotated keys (rope)")
    ATTN_SCORES = ("blocks.{}.attn.hook_attn_scores", _SQUARE, "scores after scale, position bias and mask (-inf)")
    PATTERN = ("blocks.{}.attn.hook_pattern", _SQUARE, "softmax of the scores; rows sum to 1")
    Z = ("blocks.{}.attn.hook_z", _HEADS, "pattern-weighted values")
    RESULT = ("blocks.{}.attn.hook_result", "batch pos head d_model", "each head's z through its W_O, without bias")
    LN1_POST_SCALE = ("blocks.{}.ln1_post.hook_scale", _SCALE, "the divisor of ln1_post")
    LN1_POST_NORMALIZED = ("blocks.{}.ln1_post.hook_normalized", _STREAM, "x / scale, before gain and bias")
    LN1_POST_OUT = ("blocks.{}.ln1_post.hook_out", _STREAM, "what ln1_post hands on")
    ATTN_OUT = ("blocks.{}.hook_attn_out", _STREAM, "what attention adds, after an output norm if there is one")
    RESID_MID = ("blocks.{}.hook_resid_mid", _STREAM, "the stream that the FFN reads")
    MLP_IN = ("blocks.{}.hook_mlp_in", _STREAM, "the FFN's own copy of the stream, before the norm")
    LN2_SCALE = ("blocks.{}.ln2.hook_scale", _SCALE, "the divisor of ln2")
    LN2_NORMALIZED = ("blocks.{}.ln2.hook_normalized", _STREAM, "x / scale, before gain and bias")
    LN2_OUT = ("blocks.{}.ln2.hook_out", _STREAM, "what ln2 hands on")
    MLP_PRE = ("blocks.{}.mlp.hook_pre", _MEMORIES, "x W_in, or x W_gate for swiglu: before the activation function")
    MLP_PRE_LINEAR = ("blocks.{}.mlp.hook_pre_linear", _MEMORIES, "x W_in of swiglu")
    MLP_POST = ("blocks.{}.mlp.hook_post", _MEMORIES, "the coefficient of each memory")
    LN2_POST_SCALE = ("blocks.{}.ln2_post.hook_scale", _SCALE, "the divisor of ln2_post")
    LN2_POST_NORMALIZED = ("blocks.{}.ln2_post.hook_normalized", _STREAM, "x / scale, before gain and bias")
    LN2_POST_OUT = ("blocks.{}.ln2_post.hook_out", _STREAM, "what ln2_post hands on")
    MLP_OUT = ("blocks.{}.hook_mlp_out", _STREAM, "what the FFN adds, after an output norm if there is one")
    RESID_POST = ("blocks.{}.hook_resid_post", _STREAM, "the stream that the next layer reads")
    LN_FINAL_SCALE = ("ln_final.hook_scale", _SCALE, "the divisor of ln_final")
    LN_FINAL_NORMALIZED = ("ln_final.hook_normalized", _STREAM, "x / scale, before gain and bias")
    LN_FINAL_OUT = ("ln_final.hook_out", _STREAM, "what the unembedding reads")
    LOGITS = ("hook_logits", "batch pos d_vocab", "the logits")

    @property
    def template(self) -> str:
        """The hook name, with `{}` for the layer where there is one."""
        return self.value[0]

    @property
    def axes(self) -> tuple[str, ...]:
        """The axis names, in order."""
        return tuple(self.value[1].split())

    @property
    def meaning(self) -> str:
        """What the numbers there are."""
        return self.value[2]

    @property
    def per_layer(self) -> bool:
        """Whether every layer has its own."""
        return "{}" in self.template

    @property
    def position_axis(self) -> int:
        """The axis along which a position slice cuts: pos, or query for scores and patterns."""
        return self.axes.index("query" if "query" in self.axes else "pos")

    @property
    def position_axes(self) -> tuple[int, ...]:
        """Every axis that goes by position: pos, or query and key."""
        return tuple(axis for axis, name in enumerate(self.axes) if name in ("pos", "query", "key"))

    @property
    def component_axis(self) -> int | None:
        """The axis of heads or memories, where there is one."""
        found = [axis for axis, name in enumerate(self.axes) if name in ("head", "kv_head", "memory")]
        return found[0] if found else None

    def at(self, layer: int | None = None) -> Site:
        """This place in `layer` (no layer for the places before and after the blocks)."""
        return Site(self, layer)


ON_DEMAND = frozenset({Tap.ATTN_IN, Tap.Q_INPUT, Tap.K_INPUT, Tap.V_INPUT, Tap.RESULT, Tap.MLP_IN})
"""Large places, computed only when asked for by name or by a filter function, never by leaving the filter out."""


@dataclass(frozen=True, slots=True)
class Site:
    """One named place: a tap, and its layer where it has one. `str(site)` is the hook name."""

    tap: Tap
    layer: int | None = None

    def __post_init__(self) -> None:
        if self.tap.per_layer == (self.layer is None):
            wants = "a layer: write .at(layer)" if self.tap.per_layer else "no layer: write .at()"
            raise UnknownSiteError(f"{self.tap.name} takes {wants}.")

    def __str__(self) -> str:
        return self.tap.template.format(self.layer)


def site_named(name: str | Site) -> Site:
    """The place with this hook name, in whatever model has it.

    >>> site_named("blocks.3.attn.hook_pattern") == Tap.PATTERN.at(3)
    True
    """
    head, _, rest = str(name).partition(".")
    layer, _, tail = rest.partition(".")
    if head == "blocks" and layer.isdecimal():
        template, at = f"blocks.{{}}.{tail}", int(layer)
    else:
        template, at = str(name), None
    found = [tap for tap in Tap if tap.template == template and tap.per_layer is (at is not None)]
    if not found:
        known = [tap.template.format(0 if at is None else at) for tap in Tap]
        raise UnknownSiteError(f'no model has a hook "{name}".{closest(str(name), known)}')
    return found[0].at(at)


def sites(config: GPTConfig) -> dict[str, Site]:
    """Every place of a model with this config by hook name, in forward order (on-demand places included)."""
    return dict(_named_sites(config))


@cache
def _named_sites(config: GPTConfig) -> tuple[tuple[str, Site], ...]:
    """The same, found once for every config: it is asked for at each intervention."""
    present = [tap for tap in Tap if _exists(tap, config)]
    before = [tap.at() for tap in present if not tap.per_layer and tap in (Tap.EMBED, Tap.POS_EMBED)]
    inside = [tap.at(layer) for layer in range(config.n_layers) for tap in _block_order(present, config)]
    after = [tap.at() for tap in present if not tap.per_layer and tap not in (Tap.EMBED, Tap.POS_EMBED)]
    return tuple((str(site), site) for site in (*before, *inside, *after))


def resolve(
    wanted: str | Site | Sequence[str | Site] | Callable[[str], bool] | None, known: dict[str, Site], n_layers: int
) -> list[str]:
    """The hook names that `wanted` selects out of `known`, in forward order; selecting nothing is an error."""
    if wanted is None:
        return [name for name, site in known.items() if site.tap not in ON_DEMAND]
    if isinstance(wanted, Tap):
        raise UnknownSiteError(
            f"Tap.{wanted.name} is a kind of place; say where, as Tap.{wanted.name}.at({_layer_of(wanted)})."
        )
    if isinstance(wanted, str | Site):
        return [_checked(str(wanted), known, n_layers)]
    if callable(wanted):
        names = [name for name in known if wanted(name)]
        if not names:
            raise UnknownSiteError(
                f"the filter matches none of this model's {len(known)} hook names; see docs/sites.md."
            )
        return names
    chosen = {_checked(str(name), known, n_layers) for name in wanted}
    if not chosen:
        raise UnknownSiteError(
            "an empty list of hook names selects nothing; name at least one, or leave the filter out."
        )
    return [name for name in known if name in chosen]


def _checked(name: str, known: dict[str, Site], n_layers: int) -> str:
    if name not in known:
        layers = "layer 0" if n_layers == 1 else f"layers 0 to {n_layers - 1}"
        raise UnknownSiteError(f'this model has no hook "{name}" (it has {layers}).{_near(name, known)}')
    return name


def _near(name: str, known: dict[str, Site]) -> str:
    """Hook names that may have been meant: those with this short form, else those spelt alike."""
    short = [full for full in known if full.endswith(f".hook_{name}") or full == f"hook_{name}"]
    return f' Did you mean "{short[0]}"?' if short else closest(name, known)


def _layer_of(tap: Tap) -> str:
    return "layer" if tap.per_layer else ""


def _exists(tap: Tap, config: GPTConfig) -> bool:
    """Each place exists exactly where its part exists."""
    name = tap.template
    if tap is Tap.POS_EMBED:
        return config.positions in (Positions.LEARNED, Positions.SINUSOIDAL)
    if tap in (Tap.ROT_Q, Tap.ROT_K):
        return config.positions is Positions.ROPE
    if name.startswith("ln_final"):
        return config.has_final_norm
    if ".ln" in name:
        return name.split(".")[2] in config.norm_names
    if tap is Tap.MLP_PRE_LINEAR:
        return config.ffn is FFNKind.SWIGLU
    if tap in (Tap.RESID_MID, Tap.MLP_IN, Tap.MLP_OUT) or ".mlp." in name:
        return config.ffn is not FFNKind.NONE
    return True


def _block_order(present: Sequence[Tap], config: GPTConfig) -> list[Tap]:
    """The block's taps in the order the forward pass meets them: norms on the sum come after the sublayer."""
    taps = [tap for tap in present if tap.per_layer]
    if config.norm not in SUM_NORMS:
        return taps
    first = [tap for tap in taps if ".ln1." in tap.template]
    second = [tap for tap in taps if ".ln2." in tap.template]
    order = [tap for tap in taps if tap not in first and tap not in second]
    order[order.index(Tap.ATTN_OUT) + 1 : order.index(Tap.ATTN_OUT) + 1] = first
    if second:
        order[order.index(Tap.MLP_OUT) + 1 : order.index(Tap.MLP_OUT) + 1] = second
    return order
