"""The GPT and everything that makes one. Importing it does nothing but define names.

Each name is looked up in its module when it is first asked for: what reads files only, such as a search of saved
results, does not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from model.cache_size import cache_bytes
    from model.config import AttentionKind, FFNKind, GPTConfig, Init, Norm, NormKind, Positions
    from model.errors import CutawayError
    from model.gpt import GPT
    from model.hooks import ActivationCache, Hook
    from model.kv_cache import KeyValueCache
    from model.lab import Lab, open_run
    from model.sites import Site, Tap

__all__ = [
    "GPT",
    "ActivationCache",
    "AttentionKind",
    "CutawayError",
    "FFNKind",
    "GPTConfig",
    "Hook",
    "Init",
    "KeyValueCache",
    "Lab",
    "Norm",
    "NormKind",
    "Positions",
    "Site",
    "Tap",
    "cache_bytes",
    "open_run",
]

_HOMES = {
    "cache_size": ("cache_bytes",),
    "config": ("AttentionKind", "FFNKind", "GPTConfig", "Init", "Norm", "NormKind", "Positions"),
    "errors": ("CutawayError",),
    "gpt": ("GPT",),
    "hooks": ("ActivationCache", "Hook"),
    "kv_cache": ("KeyValueCache",),
    "lab": ("Lab", "open_run"),
    "sites": ("Site", "Tap"),
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    home = next((module for module, names in _HOMES.items() if name in names), None)
    if home is None:
        raise AttributeError(f"module 'model' has no attribute {name!r}")
    return getattr(import_module(f"model.{home}"), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
