"""Our GPT as TransformerLens 4 runs it.

Every place of the GPT (docs/sites.md) has one TransformerLens HookPoint under the same name. A pass hands the tensor of
a place to its HookPoint wherever somebody hooked that, by our own `gpt.hooks`: our model decides what a hook means, and
attention stays fused until scores or pattern are hooked. A place that TransformerLens puts behind a flag
(`set_use_attn_result(True)` and its kin) stays behind it.

TransformerLens sets its components in place of a model's modules. They replace stand-ins here, so that the GPT is left
as it is, can have any number of bridges, and can be used without one meanwhile.
"""
# pyright: reportMissingImports=false

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge.exceptions import StopAtLayerException

from model.config import FFNKind, GPTConfig
from model.errors import InputError
from model.gpt import GPT
from model.hooks import Hook, HookFunction, Hooks
from model.kv_cache import KeyValueCache
from model.sites import Tap, sites

GATES = {
    Tap.ATTN_IN: "use_attn_in",
    Tap.Q_INPUT: "use_split_qkv_input",
    Tap.K_INPUT: "use_split_qkv_input",
    Tap.V_INPUT: "use_split_qkv_input",
    Tap.RESULT: "use_attn_result",
    Tap.MLP_IN: "use_hook_mlp_in",
}
"""The places that TransformerLens opens only while a flag of its config is set."""


@dataclass(frozen=True, slots=True)
class Output:
    """What TransformerLens expects of a forward pass."""

    logits: Tensor
    past_key_values: KeyValueCache | None


class BridgedGPT(nn.Module):
    """The GPT itself, with stand-ins for its parts beside it."""

    def __init__(self, gpt: GPT) -> None:
        super().__init__()
        self.gpt = gpt
        self.places: Any = _stand_ins(gpt)
        self._points: list[tuple[str, HookPoint, str | None]] = []
        self._flags: Any = None
        self.train(gpt.training)

    def connect(self, points: Mapping[str, HookPoint], flags: Any) -> None:
        """Let every pass visit these HookPoints, by hook name; `flags` has the attributes that `GATES` names."""
        known = sites(self.gpt.config)
        self._points = [(name, point, GATES.get(known[name].tap)) for name, point in points.items()]
        self._flags = flags

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        *,
        inputs_embeds: Tensor | None = None,
        past_key_values: KeyValueCache | None = None,
        use_cache: bool = False,
        labels: Tensor | None = None,
    ) -> Output:
        """A pass as TransformerLens asks for it; from labels it computes the loss itself."""
        del labels
        start, stop = self._span()
        x = input_ids if inputs_embeds is None else inputs_embeds
        if x is None or (inputs_embeds is not None and start is None):
            raise InputError("a bridged GPT reads token ids; to go in with a residual, say start_at_layer.")
        with self.gpt.hooks(*self._hooks()):
            if start is None and stop is None:
                cache = past_key_values or (self._new_cache(x) if use_cache else None)
                return Output(self.gpt(x, attention_mask, kv_cache=cache), cache)
            out = self.gpt.run_with_hooks(x, start_at_layer=start, stop_at_layer=stop, attention_mask=attention_mask)
        if stop is not None:
            raise StopAtLayerException(out)
        return Output(out, None)

    def _new_cache(self, tokens: Tensor) -> KeyValueCache:
        return KeyValueCache(self.gpt.config, len(tokens), device=self.gpt.device, dtype=self.gpt.dtype)

    def _span(self) -> tuple[int | None, int | None]:
        """The layers to start and to stop at, as the bridge notes them on its blocks before a pass."""
        block = self.places.blocks[0]
        start, stop = (getattr(block, f"_{end}_at_layer_idx", None) for end in ("start", "stop"))
        return start, None if stop is None or stop >= self.gpt.config.n_layers else stop

    def _hooks(self) -> tuple[Hooks, Hooks]:
        """Our hooks that lead to the HookPoints which somebody hooked."""
        forward: list[tuple[str, HookFunction]] = []
        backward: list[tuple[str, HookFunction]] = []
        for name, point, gate in self._points:
            if not point.has_hooks() or (gate is not None and not getattr(self._flags, gate)):
                continue
            forward.append((name, _leading_to(point)))
            if point.has_hooks("bwd") and torch.is_grad_enabled():
                backward.append((name, _unchanged))  # so that a place beside the pass takes part in it
        return forward, backward


def _leading_to(point: HookPoint) -> HookFunction:
    def visit(x: Tensor, hook: Hook) -> Tensor:
        del hook
        if point.has_hooks("bwd") and torch.is_grad_enabled() and not x.requires_grad:
            x.requires_grad_()  # x is this hook's own copy: where no weights stand before it, gradients start here
        return point(x)

    return visit


def _unchanged(gradient: Tensor, hook: Hook) -> None:
    del gradient, hook


class StandIn(nn.Module):
    """Where TransformerLens may put a component. It answers as the part does that it stands for, and owns nothing."""

    def __init__(self, part: nn.Module, **inside: nn.Module) -> None:
        super().__init__()
        self.__dict__["part"] = part  # not registered: its weights are in the GPT already
        for name, module in inside.items():
            setattr(self, name, module)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["part"], name)


def block_parts(config: GPTConfig) -> list[str]:
    """The parts of a block that have places of their own, by attribute name."""
    return ["attn", *config.norm_names, *([] if config.ffn is FFNKind.NONE else ["mlp"])]


def _stand_ins(gpt: GPT) -> StandIn:
    parts = block_parts(gpt.config)
    blocks = [StandIn(block, **{name: StandIn(getattr(block, name)) for name in parts}) for block in gpt.layers]
    inside = {"embed": StandIn(gpt.embed), "blocks": nn.ModuleList(blocks), "unembed": StandIn(gpt.unembed)}
    inside["pos_embed"] = StandIn(gpt.pos_embed or nn.Module())
    if gpt.ln_final is not None:
        inside["ln_final"] = StandIn(gpt.ln_final)
    return StandIn(gpt, **inside)
