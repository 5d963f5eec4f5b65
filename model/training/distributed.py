"""Several processes as one: data parallelism in its plainest form.

Under `torchrun` every process holds the whole model, takes its share of each batch, and the gradients are summed.
Each works on sums of nats over the tokens of the whole batch, so the sum is the gradient that one process would have
computed, whatever the number of processes. Nothing wraps the model: hooks, checkpoints and the optimizer see plain
parameters. Only the first process writes files. Without `torchrun` there is one process and nothing here costs
anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from model.errors import ConfigError, InputError


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """The processes that train one model together."""

    rank: int = 0
    size: int = 1

    @property
    def leads(self) -> bool:
        """Whether this process writes the files."""
        return self.rank == 0

    def share_of(self, micro_batch: int) -> int:
        """The sequences of a micro-batch that each process takes."""
        if micro_batch % self.size:
            raise ConfigError(
                f"A micro-batch of {micro_batch} sequences (train.batch_size / train.accumulate) does not divide among "
                f"{self.size} processes; make it a multiple of {self.size}."
            )
        return micro_batch // self.size

    def sum_gradients(self, parameters: Iterable[nn.Parameter]) -> None:
        """Replace every gradient by its sum over the processes, in one message."""
        if self.size == 1:
            return
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        parts = flat.split([gradient.numel() for gradient in gradients])
        for gradient, part in zip(gradients, parts, strict=True):
            gradient.copy_(part.view_as(gradient))

    def sum(self, values: Tensor) -> Tensor:
        """`values` summed over the processes (a new tensor)."""
        if self.size == 1:
            return values
        values = values.clone()
        dist.all_reduce(values)
        return values

    def any(self, here: bool, device: torch.device) -> bool:  # noqa: FBT001  (a predicate's value, not a switch)
        """Whether it holds in any of the processes."""
        return here if self.size == 1 else bool(self.sum(torch.tensor(float(here), device=device)))

    def wait(self) -> None:
        """Return when every process has come here."""
        if self.size > 1:
            dist.barrier()


@contextmanager
def connected(device: torch.device) -> Iterator[World]:
    """The world that `torchrun` describes in the environment, or a world of one."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1 or dist.is_initialized():
        yield World(rank=dist.get_rank(), size=dist.get_world_size()) if dist.is_initialized() else World()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield World(rank=dist.get_rank(), size=size)
    finally:
        dist.destroy_process_group()


def pick_device(name: str = "auto") -> torch.device:
    """`auto` (CUDA where there is one), `cpu` or `cuda`; under torchrun, the CUDA device of the process's number."""
    if name not in ("auto", "cpu", "cuda"):
        raise InputError(f'There is no device "{name}"; take auto, cpu or cuda.')
    if name == "cpu" or (name == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError("--device cuda was asked for, but torch sees no CUDA device here; take --device cpu or auto.")
    return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
