"""A step's gradient is that of the mean loss over all its tokens, however it is computed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT
from model.errors import ConfigError
from model.training import RunConfig
from model.training.distributed import World
from model.training.step import Stepper

Small = Callable[..., RunConfig]


def rows_at(step: int, n_rows: int = 4) -> Tensor:
    return torch.randint(0, 257, (n_rows, 17), generator=torch.Generator().manual_seed(step))


def stepper(config: RunConfig, **options: Any) -> Stepper:
    dtype = options.pop("dtype", torch.float32)
    gpt = GPT(config.model, seed=0).to(dtype).train()
    return Stepper(gpt, config, options.pop("batch_at", rows_at), World())


def gradients_of(trainee: Stepper) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in trainee.gpt.parameters() if parameter.grad is not None]


def test_the_gradient_is_that_of_the_mean_next_token_loss(small: Small) -> None:
    trainee = stepper(small(), dtype=torch.float64)
    loss = trainee.gradients(3)
    found = gradients_of(trainee)
    trainee.gpt.zero_grad()
    rows = rows_at(3)
    logits = trainee.gpt(rows[:, :-1])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    expected.backward()
    torch.testing.assert_close(loss, expected.detach(), rtol=1e-12, atol=0)
    for ours, theirs in zip(found, gradients_of(trainee), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("accumulate", [2, 4])
def test_micro_batches_change_memory_and_not_the_gradient(small: Small, accumulate: int) -> None:
    whole, parts = stepper(small(), dtype=torch.float64), stepper(small(accumulate=accumulate), dtype=torch.float64)
    torch.testing.assert_close(whole.gradients(0), parts.gradients(0), rtol=1e-12, atol=0)
    for ours, theirs in zip(gradients_of(whole), gradients_of(parts), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-12, atol=1e-15)


def test_one_batch_is_learned_by_heart_in_300_steps(small: Small) -> None:
    config = small(model={"d_model": 32}, batch_size=2, steps=300, optim={"weight_decay": 0.0})
    trainee = stepper(config, batch_at=lambda _: rows_at(0, n_rows=2))
    for step in range(300):
        loss = trainee.gradients(step)
        trainee.clip()
        trainee.update(step)
    assert loss < 0.05


def test_group_norms_are_taken_before_clipping_and_make_up_the_whole(small: Small) -> None:
    trainee = stepper(small(optim={"clip": 1e-3}))
    trainee.gradients(0)
    groups = torch.tensor(list(trainee.gradient_norms().values()))
    norm = trainee.clip()
    torch.testing.assert_close(groups.square().sum().sqrt(), norm, rtol=1e-5, atol=0)
    clipped = torch.tensor(list(trainee.gradient_norms().values())).square().sum().sqrt()
    assert clipped == pytest.approx(1e-3, rel=1e-3)


def test_without_a_limit_nothing_is_clipped(small: Small) -> None:
    trainee = stepper(small(optim={"clip": None}))
    trainee.gradients(0)
    before = gradients_of(trainee)
    assert trainee.clip() > 0
    assert all(torch.equal(a, b) for a, b in zip(before, gradients_of(trainee), strict=True))


def test_the_update_ratio_is_the_change_over_the_weights(small: Small) -> None:
    trainee = stepper(small())
    trainee.gradients(0)
    old = trainee.gpt.embed.weight.detach().clone()
    ratio = trainee.measured_update(0)
    moved = (trainee.gpt.embed.weight.detach() - old).norm() / old.norm()
    assert ratio["embed"] == pytest.approx(moved.item(), rel=1e-5)
    assert ratio["L0.norms"] > 0


def test_dropout_is_drawn_from_the_step_and_leaves_other_randomness_alone(small: Small) -> None:
    trainee = stepper(small(model={"dropout": 0.3}))
    torch.manual_seed(1)
    before = torch.random.get_rng_state()
    first, second, again = trainee.gradients(0), trainee.gradients(1), trainee.gradients(0)
    other_step = Stepper(trainee.gpt, small(model={"dropout": 0.3}), lambda _: rows_at(0), World()).gradients(1)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert first == again != second
    assert other_step != first, "the same tokens at another step drop other numbers"


def test_a_batch_that_does_not_divide_among_the_processes_is_refused(small: Small) -> None:
    config = small(batch_size=4, accumulate=2)
    with pytest.raises(ConfigError, match=r"A micro-batch of 2 sequences .* does not divide among 3 processes"):
        Stepper(GPT(config.model), config, rows_at, World(rank=0, size=3))


ONE_GRAPH = """
import torch
from model import GPT, GPTConfig
from model.training.step import summed_nats

rows = torch.randint(0, 257, (4, 17), generator=torch.Generator().manual_seed(0))
others = {"norm": "post", "positions": "learned"}, {"positions": "alibi", "ffn": "swiglu", "qk_norm": True}
for variant in ({}, *others, {"smeared_keys": True}):
    gpt = GPT(GPTConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=16, d_vocab=257, **variant))
    names = list(gpt.state_dict())
    compiled = torch.compile(summed_nats, backend="eager", fullgraph=True, dynamic=False)
    torch.testing.assert_close(compiled(gpt, rows), summed_nats(gpt, rows))
    assert list(gpt.state_dict()) == names, "compiling renames nothing"
"""


@pytest.mark.slow
def test_what_training_compiles_is_one_graph_and_the_same_function() -> None:
    # In a process of its own: the run-time checks of shapes that tests switch on cannot be compiled.
    done = subprocess.run([sys.executable, "-c", ONE_GRAPH], capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
