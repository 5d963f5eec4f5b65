"""The GPT and everything that makes one. Importing it does nothing but define names."""

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
