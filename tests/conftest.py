"""Models and tokens that many tests share: tiny, seeded, random."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import hypothesis
import pytest
import torch
from torch import Tensor

from model import GPT, GPTConfig
from tests.unchecked import unchecked

torch.set_num_threads(1)
# An example may take as long as it likes: how fast a busy machine is says nothing about what a test claims.
hypothesis.settings.register_profile("suite", deadline=None)
hypothesis.settings.load_profile("suite")

MAIN = sys.modules["__main__"]
TINY: dict[str, Any] = {"n_layers": 2, "n_heads": 4, "d_model": 32, "n_ctx": 24, "d_vocab": 50}


def make_gpt_with(seed: int = 0, **overrides: Any) -> GPT:
    """A tiny GPT in eval mode whose weights are large enough for every part to matter."""
    gpt = GPT(GPTConfig(**(TINY | {"embed_std": 1.0, "init": "xavier"} | overrides)), seed=seed).eval()
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in gpt.parameters():
            if parameter.ndim == 1:  # gains and biases away from 1 and 0, so that forgetting one shows
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return gpt


@pytest.fixture(scope="module", autouse=True)
def _annotations(request: pytest.FixtureRequest) -> Iterator[None]:
    """Check no annotations in modules marked whole."""
    with unchecked() if request.node.get_closest_marker("whole") else nullcontext():
        yield


def pytest_runtest_setup() -> None:
    """Streamlit leaves the page it ran as `__main__`, which a process that a later test starts would run again."""
    sys.modules["__main__"] = MAIN


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Check no annotations in a test marked whole by itself; what its fixtures do is checked as the module's is."""
    with unchecked() if any(mark.name == "whole" for mark in item.own_markers) else nullcontext():
        return (yield)


@pytest.fixture
def make_gpt() -> Callable[..., GPT]:
    return make_gpt_with


@pytest.fixture
def tiny() -> GPT:
    return make_gpt_with()


@pytest.fixture
def tokens() -> Tensor:
    return torch.randint(0, TINY["d_vocab"], (3, 12), generator=torch.Generator().manual_seed(7))
