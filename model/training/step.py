"""One optimizer step: a batch in, gradients of the mean loss, an update.

The loss is the sum of nats over all predicted tokens of the step, divided once by their number, however many
micro-batches and processes the batch is spread over: a mean of means would weigh tokens by the micro-batch they fell
into (transformers#35203). Nothing here waits for the device unless a number is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional as F

from model.gpt import GPT
from model.training.config import Optimizer, RunConfig
from model.training.distributed import World
from model.training.optim import Optimizers
from model.training.probe import as_numbers
from model.training.schedule import lr_scale

BatchAt = Callable[[int], Int[Tensor, "sequence pos"]]
"""The rows of n_ctx + 1 tokens that this process learns from at a step."""


class Stepper:
    """A model in training, at a step boundary.

    On CUDA the forward pass runs in bfloat16 around fp32 weights and is compiled. What is compiled is a function of
    the model, never the model: hooked runs and checkpoints see the plain module.
    """

    def __init__(self, gpt: GPT, config: RunConfig, batch_at: BatchAt, world: World) -> None:
        self.gpt = gpt
        self.optimizers = Optimizers(gpt, config.optim)
        self._config = config
        self._batch_at = batch_at
        self._world = world
        self._micro_batch = world.share_of(config.train.batch_size // config.train.accumulate)
        self._parameters = list(gpt.parameters())
        self._groups = gpt.parameter_groups()
        on_cuda = gpt.device.type == "cuda"
        self._nats = torch.compile(summed_nats, dynamic=False) if on_cuda else summed_nats

    def gradients(self, step: int) -> Float[Tensor, ""]:
        """Fill the gradients with those of the mean loss of batch `step`, and return it, in nats per token."""
        self.optimizers.zero_grad()
        rows = self._batch_at(step).to(self.gpt.device, non_blocking=True)
        nats = torch.zeros((), device=self.gpt.device, dtype=torch.promote_types(self.gpt.dtype, torch.float32))
        with self._dropout_of(step):
            for micro_batch in rows.split(self._micro_batch):
                with self._precision():
                    micro_nats = self._nats(self.gpt, micro_batch)
                (micro_nats / self._config.tokens_per_step).backward()
                nats += micro_nats.detach()
        self._world.sum_gradients(self._parameters)
        return self._world.sum(nats) / self._config.tokens_per_step

    def clip(self) -> Float[Tensor, ""]:
        """Scale the gradient down to the allowed norm; returns its norm before."""
        limit = self._config.optim.clip
        if limit is None:
            return torch.nn.utils.get_total_norm([p.grad for p in self._parameters if p.grad is not None])
        return torch.nn.utils.clip_grad_norm_(self._parameters, limit)

    def update(self, step: int) -> None:
        """Take the weights from `step` to `step + 1`."""
        self.optimizers.step(self._scale(step))

    def rates(self, step: int) -> dict[str, float]:
        """The learning rates of the update that leaves `step`: "lr", and "muon_lr" where Muon is used."""
        optim, scale = self._config.optim, self._scale(step)
        rates = {"lr": optim.lr * scale}
        return rates | ({"muon_lr": optim.muon_lr * scale} if optim.optimizer is Optimizer.MUON else {})

    def _scale(self, step: int) -> float:
        return lr_scale(step, self._config.train.steps, self._config.optim)

    def gradient_norms(self) -> dict[str, float]:
        """Norm of the gradient of each parameter group ("L0.W_Q")."""
        return as_numbers(
            {
                group: _norm(parameter.grad for _, parameter in members if parameter.grad is not None)
                for group, members in self._groups.items()
            }
        )

    def measured_update(self, step: int) -> dict[str, float]:
        """`update`, and the norm of each group's change as a share of the norm of its weights before it."""
        before = [parameter.detach().clone() for parameter in self._parameters]
        self.update(step)
        old = dict(zip(self._parameters, before, strict=True))
        return as_numbers(
            {
                group: _norm(p.detach() - old[p] for _, p in members)
                / _norm(old[p] for _, p in members).clamp(min=1e-12)
                for group, members in self._groups.items()
            }
        )

    def _precision(self) -> AbstractContextManager[object]:
        on_cuda = self.gpt.device.type == "cuda"
        return torch.autocast("cuda", dtype=torch.bfloat16) if on_cuda else nullcontext()

    @contextmanager
    def _dropout_of(self, step: int) -> Iterator[None]:
        """Draw dropout from (seed, step, rank), so that a resumed run drops the same; leave the rest alone."""
        if self.gpt.config.dropout == 0:
            yield
            return
        draw = np.random.SeedSequence([self._config.train.seed, step, self._world.rank]).generate_state(1, np.uint64)
        devices = [self.gpt.device] if self.gpt.device.type == "cuda" else []
        with torch.random.fork_rng(devices):
            torch.manual_seed(int(draw[0] >> np.uint64(1)))
            yield


def summed_nats(gpt: GPT, rows: Int[Tensor, "sequence pos"]) -> Float[Tensor, ""]:
    """Next-token cross-entropy summed over every predicted token, in nats."""
    logits = gpt.plain(rows[:, :-1])
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")


def _norm(tensors: Iterable[Tensor]) -> Float[Tensor, ""]:
    """The norm of all the numbers together, in double precision: the squares of large numbers overflow in fp32."""
    return torch.stack([torch.linalg.vector_norm(tensor, dtype=torch.float64) for tensor in tensors]).norm()
