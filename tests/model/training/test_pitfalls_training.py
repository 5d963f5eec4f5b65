"""What goes wrong in training elsewhere, and what holds here (docs/known-pitfalls.md)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, open_run
from model.checkpoint import checkpoint_path, checkpoint_steps, load_checkpoint
from model.training import Interrupted, RunConfig, step, train
from model.training.probe import build_probe
from model.training.step import Stepper, summed_nats
from tests.model.training.conftest import lasting_rows
from tests.model.training.test_train import StopAt, assert_same_run

Small = Callable[..., RunConfig]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Tensor]]:
    """Every step whose gradient is taken, with the tokens it is taken on, in order."""
    seen: list[tuple[int, Tensor]] = []
    gradients = Stepper.gradients

    def recording(stepper: Stepper, at: int) -> Tensor:
        seen.append((at, stepper._batch_at(at).clone()))
        return gradients(stepper, at)

    monkeypatch.setattr(Stepper, "gradients", recording)
    return seen


# --- going on where it stopped ----------------------------------------------------------------------------------------


def test_a_resumed_run_reads_the_tokens_that_the_uninterrupted_one_reads(
    small: Small, tmp_path: Path, drawn: list[tuple[int, Tensor]]
) -> None:
    """Also with micro-batches and past the start of the corpus: nothing is read again, nothing is left out."""
    config = small(accumulate=2)
    train(config, tmp_path / "straight", device="cpu")
    straight = dict(drawn)
    assert list(straight) == list(range(13))
    assert len({tuple(rows.flatten().tolist()) for rows in straight.values()}) == 13
    drawn.clear()
    with pytest.raises(Interrupted):
        train(config, tmp_path / "stopped", device="cpu", progress=StopAt(4))
    train(config, tmp_path / "stopped", resume=True, device="cpu")
    assert [at for at, _ in drawn] == [*range(6), *range(5, 13)], "step 5 is looked at, saved, and then taken"
    assert all(torch.equal(rows, straight[at]) for at, rows in drawn)


def test_a_run_stopped_between_two_micro_batches_is_saved_at_the_step_boundary(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint inside an accumulation window would lose the gradients summed so far."""
    config, n_calls = small(accumulate=4, model={"dropout": 0.2}), 0
    train(config, tmp_path / "straight", device="cpu")

    def interrupted(gpt: GPT, rows: Tensor) -> Tensor:
        nonlocal n_calls
        n_calls += 1
        if n_calls == 6 * 4 + 2:  # the second micro-batch of step 6
            os.kill(os.getpid(), signal.SIGTERM)
        return summed_nats(gpt, rows)

    monkeypatch.setattr(step, "summed_nats", interrupted)
    with pytest.raises(Interrupted, match="Stopped at step 6 of 12"):
        train(config, tmp_path / "stopped", device="cpu")
    assert n_calls == 7 * 4, "the step is finished, so that its gradient is whole"
    assert checkpoint_steps(tmp_path / "stopped")[-1] == 6
    train(config, tmp_path / "stopped", resume=True, device="cpu")
    assert_same_run(tmp_path / "straight", tmp_path / "stopped", 12)


# --- every predicted token counts the same ----------------------------------------------------------------------------


def test_ragged_batches_accumulate_to_the_gradient_of_one_batch(make_gpt: Callable[..., GPT]) -> None:
    """Sums of nats over all valid tokens, in fp64; a mean of means would weigh a token by its batch's padding."""
    gpt = make_gpt().double()
    tokens = torch.randint(0, 50, (6, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.arange(12) >= torch.tensor([[0], [9], [3], [10], [1], [6]])
    gpt.loss(tokens, mask).backward()
    whole = [parameter.grad.clone() for parameter in gpt.parameters()]
    n_valid = int((mask[:, 1:] & mask[:, :-1]).sum())
    for n_rows in (1, 2, 3):
        gpt.zero_grad()
        mean_of_means = 0.0
        for rows, own in zip(tokens.split(n_rows), mask.split(n_rows), strict=True):
            (gpt.loss(rows, own, per_token=True).sum() / n_valid).backward()
            mean_of_means += gpt.loss(rows, own).item() * n_rows / 6
        for found, parameter in zip(whole, gpt.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, found, rtol=1e-10, atol=1e-15)
        assert abs(mean_of_means - gpt.loss(tokens, mask).item()) > 1e-2, "the other way is another number"


# --- numbers that can be had again ------------------------------------------------------------------------------------


def test_every_logged_number_is_had_again_from_its_checkpoint(small: Small, finished: Path) -> None:
    rows = {row["step"]: row for row in lasting_rows(finished)}
    for at in (0, 4, 12):
        lab = open_run(f"{finished}@{at}")
        probe = build_probe(small(), lab.tokenizer, lab.eval_rows, torch.device("cpu"))
        again = probe.losses(lab.gpt) | probe.stream_norms(lab.gpt)
        for name, number in again.items():
            assert rows[at][name] == pytest.approx(number, rel=1e-6), name


def test_training_on_a_cpu_is_in_fp32_from_the_first_product_to_the_file(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half precision is slower there by a factor of ten to hundreds, and no setting asks for it by accident."""
    formats = set()

    def watched(gpt: GPT, rows: Tensor) -> Tensor:
        formats.update({gpt.dtype, gpt.plain(rows[:, :-1]).dtype, torch.is_autocast_enabled("cpu")})
        return summed_nats(gpt, rows)

    monkeypatch.setattr(step, "summed_nats", watched)
    train(small(steps=2), tmp_path / "run", device="cpu")
    assert formats == {torch.float32, False}
    loaded = load_checkpoint(checkpoint_path(tmp_path / "run", 2))
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


# --- compiled models --------------------------------------------------------------------------------------------------

HOOKS_REACH = """
import torch
from model import GPT, GPTConfig

gpt = GPT(GPTConfig(n_layers=2, n_heads=2, d_model=16, n_ctx=16, d_vocab=50)).eval()
tokens, name = torch.arange(10)[None], "blocks.0.attn.hook_z"
compiled = torch.compile(gpt, backend="eager")
clean = compiled(tokens)
torch.testing.assert_close(clean, gpt(tokens))
with gpt.hooks([(name, lambda z, hook: z * 0)]):
    edited = compiled(tokens)
    torch.testing.assert_close(edited, gpt(tokens))
assert not torch.allclose(edited, clean), "a hook added after compiling fires"
torch.testing.assert_close(compiled(tokens), clean)
gpt.add_hook(name, lambda z, hook: z * 0)
torch.testing.assert_close(compiled(tokens), edited)
gpt.reset_hooks()
torch.testing.assert_close(compiled(tokens), clean)
assert torch.equal(compiled.run_with_cache(tokens)[1][name], gpt.run_with_cache(tokens)[1][name])
"""


@pytest.mark.slow
def test_hooks_reach_a_compiled_model() -> None:
    # In a process of its own: the run-time checks of shapes that tests switch on cannot be compiled.
    command: list[Any] = [sys.executable, "-W", "ignore", "-c", HOOKS_REACH]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
