"""The weights under the names that the field uses, stacked over layers.

Snapshots for reading: `gpt.W_Q` is [layer, head, d_model, d_head] with grouped heads expanded, computed at each
access. To change a weight write into `gpt.blocks[i].attn.W_Q`, preferably inside `with gpt.weights_edited():`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch import Tensor, nn

from model.config import FFNKind, NormKind
from model.errors import InputError
from model.factored import FactoredMatrix

if TYPE_CHECKING:
    from model.block import Block
    from model.config import GPTConfig
    from model.norms import NormLayer


class Weights(nn.Module):
    """The reading side of a GPT's parameters (a part of `GPT`, in a file of its own)."""

    if TYPE_CHECKING:
        config: GPTConfig
        embed: nn.Embedding
        unembed: nn.Linear
        pos_embed: nn.Embedding | None
        ln_final: NormLayer | None

        @property
        def layers(self) -> list[Block]: ...  # noqa: D102

    @property
    def W_E(self) -> Float[Tensor, "d_vocab d_model"]:
        """Token embeddings."""
        return self.embed.weight.detach().clone()

    @property
    def W_pos(self) -> Float[Tensor, "n_ctx d_model"]:
        """Learned position embeddings."""
        if self.pos_embed is None:
            raise InputError(f"positions={self.config.positions.value} has no W_pos; only learned positions do.")
        return self.pos_embed.weight.detach().clone()

    @property
    def W_U(self) -> Float[Tensor, "d_model d_vocab"]:
        """The unembedding; with tied embeddings the transpose of W_E."""
        return self.unembed.weight.detach().T.clone()

    @property
    def W_Q(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Query weights."""
        return torch.stack([block.attn.W_Q for block in self.layers])

    @property
    def W_K(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Key weights, grouped heads expanded."""
        return self._expanded([block.attn.W_K for block in self.layers])

    @property
    def own_key_share(self) -> Float[Tensor, "layer head"]:
        """How much of each smeared key is the token's own: sigmoid(alpha), grouped heads expanded."""
        alphas = [block.attn.k_smear for block in self.layers]
        if not self.config.smeared_keys:
            raise InputError("smeared_keys=false: every key is the token's own; only smeared keys have shares.")
        return self._expanded([alpha.detach().sigmoid() for alpha in alphas if alpha is not None])

    @property
    def W_V(self) -> Float[Tensor, "layer head d_model d_head"]:
        """Value weights, grouped heads expanded."""
        return self._expanded([block.attn.W_V for block in self.layers])

    @property
    def W_O(self) -> Float[Tensor, "layer head d_head d_model"]:
        """Output weights."""
        return torch.stack([block.attn.W_O for block in self.layers])

    @property
    def b_Q(self) -> Float[Tensor, "layer head d_head"]:
        """Query biases, zero where the model has none."""
        return self._head_biases("q_proj", self.config.n_heads)

    @property
    def b_K(self) -> Float[Tensor, "layer head d_head"]:
        """Key biases, grouped heads expanded."""
        return self._head_biases("k_proj", self.config.kv_heads)

    @property
    def b_V(self) -> Float[Tensor, "layer head d_head"]:
        """Value biases, grouped heads expanded."""
        return self._head_biases("v_proj", self.config.kv_heads)

    @property
    def b_O(self) -> Float[Tensor, "layer d_model"]:
        """Attention output biases."""
        return torch.stack([_bias(block.attn.o_proj) for block in self.layers])

    @property
    def W_in(self) -> Float[Tensor, "layer d_model memory"]:
        """FFN keys."""
        return torch.stack([self._ffn(block).W_in for block in self.layers])

    @property
    def W_gate(self) -> Float[Tensor, "layer d_model memory"]:
        """SwiGLU's gate keys."""
        if self.config.ffn is not FFNKind.SWIGLU:
            raise InputError(f"ffn={self.config.ffn.value} has no W_gate; only swiglu does.")
        return torch.stack([block.mlp.gate_proj.weight.detach().T for block in self.layers])  # type: ignore[union-attr]

    @property
    def W_out(self) -> Float[Tensor, "layer memory d_model"]:
        """FFN values."""
        return torch.stack([self._ffn(block).W_out for block in self.layers])

    @property
    def b_in(self) -> Float[Tensor, "layer memory"]:
        """FFN input biases, zero where the model has none."""
        return torch.stack([_bias(self._ffn(block).in_proj) for block in self.layers])

    @property
    def b_gate(self) -> Float[Tensor, "layer memory"]:
        """SwiGLU's gate biases, zero where the model has none."""
        if self.config.ffn is not FFNKind.SWIGLU:
            raise InputError(f"ffn={self.config.ffn.value} has no b_gate; only swiglu does.")
        return torch.stack([_bias(block.mlp.gate_proj) for block in self.layers])  # type: ignore[union-attr]

    @property
    def b_out(self) -> Float[Tensor, "layer d_model"]:
        """FFN output biases."""
        return torch.stack([_bias(self._ffn(block).out_proj) for block in self.layers])

    @property
    def QK(self) -> FactoredMatrix:
        """W_Q W_K^T of every head, [layer, head, d_model, d_model], never formed.

        Under rope this is the matrix of offset 0, where a token meets itself, and not THE circuit: at other offsets
        queries are turned against keys. See `interp.qk_offsets.qk_circuits`, which also folds in the norm's gain.
        """
        return FactoredMatrix(self.W_Q, self.W_K.mT)

    @property
    def OV(self) -> FactoredMatrix:
        """W_V W_O of every head, [layer, head, d_model, d_model], never formed and with no norm folded in."""
        return FactoredMatrix(self.W_V, self.W_O)

    def folded_unembed(self) -> Float[Tensor, "d_model d_vocab"]:
        """W_U with the gain of the final norm folded in.

        What a direction of the stream does to the logits, up to the norm's scale. The final norm is ln_final, else the
        last ln2 (the last ln1 without FFN), else none. LayerNorm also centres what it reads: folded too; a bias is
        the same for all directions and left out.
        """
        norm = self.final_norm
        if norm is None:
            return self.W_U
        folded = norm.w.detach()[:, None] * self.W_U
        if self.config.norm_kind is NormKind.LAYERNORM:
            folded = folded - folded.mean(0, keepdim=True)
        return folded

    @property
    def final_norm(self) -> NormLayer | None:
        """The norm whose output the unembedding reads."""
        last = self.layers[-1]
        return self.ln_final or (last.ln2 if last.mlp is not None else last.ln1)

    def parameter_groups(self) -> dict[str, list[tuple[str, nn.Parameter]]]:
        """Parameters by what they are: "L0.W_Q", ..., "L0.norms", "L0.biases", "L0.k_smear", "embed", ...."""
        groups: dict[str, list[tuple[str, nn.Parameter]]] = {}
        for name, parameter in self.named_parameters():
            groups.setdefault(_group(name), []).append((name, parameter))
        return groups

    @contextmanager
    def weights_edited(self) -> Iterator[None]:
        """Change weights freely inside the `with`; they are put back when it ends, however it ends."""
        kept = {name: parameter.detach().clone() for name, parameter in self.named_parameters()}
        try:
            yield
        finally:
            with torch.no_grad():
                for name, parameter in self.named_parameters():
                    parameter.copy_(kept[name])

    def _expanded(self, per_layer: list[Tensor]) -> Tensor:
        return torch.stack(per_layer).repeat_interleave(self.config.n_heads // self.config.kv_heads, dim=1)

    def _head_biases(self, projection: str, n_heads: int) -> Tensor:
        biases = [_bias(getattr(block.attn, projection)).unflatten(0, (n_heads, -1)) for block in self.layers]
        return torch.stack(biases).repeat_interleave(self.config.n_heads // n_heads, dim=1)

    def _ffn(self, block: Block):  # noqa: ANN202  (FFN; importing it here would be circular)
        if block.mlp is None:
            raise InputError("this model is attention-only (ffn=none) and has no FFN weights.")
        return block.mlp


_MATRICES = {"q_proj": "W_Q", "k_proj": "W_K", "v_proj": "W_V", "o_proj": "W_O"}
_MATRICES |= {"in_proj": "W_in", "gate_proj": "W_gate", "out_proj": "W_out"}


def _group(name: str) -> str:
    parts = name.split(".")
    if parts[0] != "blocks":
        return parts[0]
    if parts[-1] == "bias":
        return f"L{parts[1]}.biases"
    if parts[-1] == "k_smear":
        return f"L{parts[1]}.k_smear"
    return f"L{parts[1]}.{_MATRICES.get(parts[-2], 'norms')}"


def _bias(linear: nn.Linear) -> Tensor:
    return torch.zeros_like(linear.weight[:, 0]) if linear.bias is None else linear.bias.detach()
