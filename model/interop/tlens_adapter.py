"""What TransformerLens 4 asks of an architecture: an adapter, and components with HookPoints and weights.

TransformerLens loads `CutawayAdapter` as an entry point, and `model.interop.tlens` registers it as well. Components are
made from `model.sites`: each has a HookPoint for every place of its part under our name, and no others, so that no
HookPoint exists that never fires.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge.architecture_adapter import ArchitectureAdapter
from transformer_lens.model_bridge.generalized_components import PositionEmbeddingsAttentionBridge
from transformer_lens.model_bridge.generalized_components.base import GeneralizedComponent

from model.config import AttentionKind, GPTConfig
from model.errors import InputError
from model.interop.tlens_model import BridgedGPT, block_parts
from model.sites import Tap, sites


class CutawayAdapter(ArchitectureAdapter):
    """Our architecture, whatever its config, under the name "CutawayGPT"."""

    supports_hf_output_attentions = False

    def prepare_model(self, hf_model: Any) -> None:
        """Lay out the components that this model has."""
        if not isinstance(hf_model, BridgedGPT):
            raise InputError(
                f"the architecture CutawayGPT takes a BridgedGPT, not a {type(hf_model).__name__}; "
                "call model.interop.tlens.to_bridge(gpt)."
            )
        config = hf_model.gpt.config
        self.supports_generation = self.supports_causal_loss = config.attention is AttentionKind.CAUSAL
        self.component_mapping = dict(_components(config))

    def setup_hook_compatibility(self, bridge: Any) -> None:
        """Give every HookPoint our name for its place, and the model the HookPoints."""
        bridge.hook_logits = bridge.unembed.hook_out
        known, model = bridge.hook_dict, bridge.original_model
        points = {name: known[name] for name in model.gpt.named_sites()}
        for name, point in points.items():
            point.name = name
        model.connect(points, bridge.cfg)

    def preprocess_weights(self, state_dict: dict[str, Tensor]) -> dict[str, Tensor]:
        """Refuse to fold or centre: the bridge has no weights but the GPT's own, which others are using."""
        raise InputError(
            "a bridged GPT is never folded or centred, since its weights are the GPT's own; call "
            "enable_compatibility_mode(no_processing=True), and gpt.folded_unembed() for a folded W_U."
        )


def _components(config: GPTConfig) -> Mapping[str, GeneralizedComponent]:
    """One component per part."""
    templates = list(dict.fromkeys(site.tap.template for site in sites(config).values()))

    def points(part: str) -> list[str]:
        return [name for where, _, name in (each.rpartition(".") for each in templates) if where == part]

    kinds = {"attn": _Attention, "mlp": _FFN}
    inside = {part: kinds.get(part, Part)(part, points(f"blocks.{{}}.{part}")) for part in block_parts(config)}
    components: dict[str, GeneralizedComponent] = {"embed": _Embedding("places.embed", ["hook_out"])}
    if Tap.POS_EMBED.template in templates:
        components["pos_embed"] = _PositionEmbedding("places.pos_embed", ["hook_out"])
    components["blocks"] = _Block("places.blocks", points("blocks.{}"), inside)
    if config.has_final_norm:
        components["ln_final"] = Part("places.ln_final", points("ln_final"))
    return components | {"unembed": _Unembedding("places.unembed", ["hook_out"])}


class Part(GeneralizedComponent):
    """A part of the GPT with the HookPoints of its places. What TransformerLens asks beyond that, the part answers."""

    def __init__(
        self, name: str, points: Sequence[str], submodules: dict[str, GeneralizedComponent] | None = None
    ) -> None:
        GeneralizedComponent.__init__(self, name, submodules=submodules)
        for point in ("hook_in", "hook_out"):  # every component is given these two; here they would never fire
            delattr(self, point)
            del self._hook_registry[point]
        for point in points:
            setattr(self, point, HookPoint())

    def set_original_component(self, original_component: nn.Module) -> None:
        """Stand for this part."""
        GeneralizedComponent.set_original_component(self, original_component)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """What the part computes by itself, outside a pass, where there is nothing to hook."""
        return self.part(*inputs, **options)


class _Block(Part):
    is_list_item = True
    hook_out_is_single_residual_stream = True
    hook_aliases = {"hook_in": "hook_resid_pre", "hook_out": "hook_resid_post"}  # noqa: RUF012 (their attribute)


class _Embedding(Part):
    @property
    def W_E(self) -> Tensor:
        return self.part.weight


class _PositionEmbedding(Part):
    @property
    def W_pos(self) -> Tensor:
        return self.part.weight  # sinusoidal positions have none, and TransformerLens says so


class _Unembedding(Part):
    @property
    def W_U(self) -> Tensor:
        return self.part.weight.T

    @property
    def b_U(self) -> Tensor:
        return _bias(self.part)


class _FFN(Part):
    @property
    def b_in(self) -> Tensor:
        return _bias(self.part.in_proj)

    @property
    def b_gate(self) -> Tensor | None:
        return None if self.part.gate_proj is None else _bias(self.part.gate_proj)

    @property
    def b_out(self) -> Tensor:
        return _bias(self.part.out_proj)


class _Attention(Part, PositionEmbeddingsAttentionBridge):  # pyright: ignore[reportIncompatibleMethodOverride]
    """Of the class that TransformerLens knows to serve split inputs, as this one does; nothing else is inherited."""

    hook_aliases = {}  # noqa: RUF012 (their attribute)
    property_aliases = {}  # noqa: RUF012

    def setup_hook_compatibility(self) -> None:
        """Nothing to reshape: places have TransformerLens's shapes."""

    @property
    def W_Q(self) -> Tensor:
        return self.part.W_Q

    @property
    def W_K(self) -> Tensor:
        return self.part.W_K

    @property
    def W_V(self) -> Tensor:
        return self.part.W_V

    @property
    def W_O(self) -> Tensor:
        return self.part.W_O

    @property
    def b_Q(self) -> Tensor:
        return _bias(self.part.q_proj).unflatten(0, (self.part.n_heads, -1))

    @property
    def b_K(self) -> Tensor:
        return _bias(self.part.k_proj).unflatten(0, (self.part.n_kv_heads, -1))

    @property
    def b_V(self) -> Tensor:
        return _bias(self.part.v_proj).unflatten(0, (self.part.n_kv_heads, -1))

    @property
    def b_O(self) -> Tensor:
        return _bias(self.part.o_proj)


def _bias(linear: nn.Linear) -> Tensor:
    """The bias, or zeros where there is none, as `gpt.b_Q` and its kin give."""
    return linear.weight.new_zeros(linear.out_features) if linear.bias is None else linear.bias.detach()
