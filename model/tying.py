"""One matrix for embedding and unembedding, whatever is done to the module.

torch casts, moves and loads parameters one by one, and several of its ways put a new parameter where the old one was
(`load_state_dict(assign=True)`, `to_empty` after a start on the meta device). Two parameters that shared a matrix then
no longer do, and nothing says so until training pulls them apart (TransformerLens#1725, Modalities#357). Here they are
tied again after each of these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from model.errors import CheckpointError

if TYPE_CHECKING:
    from model.gpt import GPT

READS, WRITES = "embed.weight", "unembed.weight"


def keep_tied(gpt: GPT) -> None:
    """Let every later loading of weights, whole or in part, copied or assigned, leave one matrix."""
    gpt.register_load_state_dict_pre_hook(_one_matrix)
    gpt.register_load_state_dict_post_hook(_tied_again)


def _tied_again(module: nn.Module, *_: Any) -> None:
    module.tie_weights()  # type: ignore[operator]


def _one_matrix(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    """Accept a tied matrix under either name or both, and refuse two that differ; `state_dict` is torch's own copy."""
    if not module.config.tie_embeddings:  # type: ignore[union-attr]
        return
    names = (prefix + READS, prefix + WRITES)
    given = [state_dict[name] for name in names if name in state_dict]
    if len(given) == 2 and given[0] is not given[1] and not _equal(*given):
        raise CheckpointError(
            f"{READS} and {WRITES} are two different matrices in these weights, and the config says that they are one "
            "(tie_embeddings); build the GPT with tie_embeddings=False, or leave one of them out."
        )
    state_dict.update({name: given[0] for name in names if given})


def _equal(one: Tensor, other: Tensor) -> bool:
    """Whether two matrices hold the same numbers, those that are no numbers included."""
    return one.shape == other.shape and torch.equal(one.nan_to_num(), other.nan_to_num())


def unwrapped(module: nn.Module) -> GPT:
    """The GPT inside what torch.compile or data parallelism put around it, so that no prefix enters a file."""
    from model.gpt import GPT

    inner: Any = module
    while any(name in inner._modules for name in _WRAPPERS):
        inner = next(inner._modules[name] for name in _WRAPPERS if name in inner._modules)
    if not isinstance(inner, GPT):
        raise CheckpointError(f"A {type(inner).__name__} is no GPT and has no checkpoint; give a model.GPT.")
    return inner


_WRAPPERS = ("_orig_mod", "module")
