"""Looking costs what it must: nothing where nobody looks, one copy where somebody does, and no memory that stays."""

from __future__ import annotations

import gc
import resource
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from model import GPT
from tests.conftest import make_gpt_with

MakeGPT = Callable[..., GPT]


class Operations(TorchDispatchMode):
    """Counts what torch is asked to do."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@torch.no_grad()
def operations(run: Callable[[], object]) -> Counter[str]:
    with Operations() as mode:
        run()
    return mode.counts


def test_a_hook_point_that_nobody_watches_adds_no_operation(make_gpt: MakeGPT, tokens: Tensor) -> None:
    """Beside the bare computation stand the checks of the input, as many for four layers as for one."""
    extra = []
    for n_layers in (1, 4):
        gpt = make_gpt(n_layers=n_layers)
        extra.append(operations(lambda gpt=gpt: gpt(tokens)) - operations(lambda gpt=gpt: gpt.plain(tokens)))
    assert extra[0] == extra[1]
    assert extra[0].total() < 10


def test_reading_adds_one_copy_for_each_different_tensor(tiny: GPT, tokens: Tensor) -> None:
    streams = [name for name in tiny.named_sites() if "resid" in name]
    bare, reading = (operations(run) for run in (lambda: tiny(tokens), lambda: tiny.run_with_cache(tokens, streams)))
    added = reading - bare
    assert len(streams) == 6
    assert added["clone"] == 5 + 2  # resid_post of layer 0 is resid_pre of layer 1; and two of positions, for hooks
    assert set(added) <= {"clone", "detach"}


# --- memory -----------------------------------------------------------------------------------------------------------


def bytes_alive() -> int:
    """Bytes of all tensors that Python still holds, memory that is shared counted once."""
    gc.collect()
    tensors = [each for each in gc.get_objects() if issubclass(type(each), Tensor) and not each.is_meta]
    return sum(
        {
            t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t.layout is torch.strided
        }.values()
    )


def resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    told = Path("/proc/self/statm")
    return int(told.read_text().split()[1]) * resource.getpagesize() if told.exists() else 0


def test_a_deleted_model_is_gone_at_once() -> None:
    """No reference leads in a circle, so that nothing waits for the garbage collector."""
    gpt = make_gpt_with()
    gpt.add_hook("hook_embed", lambda x, hook: None)
    logits, cache = gpt.run_with_cache(torch.zeros(1, 4, dtype=torch.long), incl_bwd=True, return_type="loss")
    watched = [weakref.ref(gpt), *(weakref.ref(parameter) for parameter in gpt.parameters())]
    gc.disable()
    try:
        del gpt, logits, cache
        assert [reference for reference in watched if reference() is not None] == []
    finally:
        gc.enable()


def test_ten_models_one_after_another_take_the_memory_of_one() -> None:
    def once() -> None:
        gpt = make_gpt_with(d_model=128, d_vocab=2000)
        gpt.run_with_cache(torch.zeros(1, 24, dtype=torch.long), incl_bwd=True, return_type="loss")
        gpt.loss(torch.zeros(1, 24, dtype=torch.long)).backward()

    once()
    alive, resident, size = bytes_alive(), resident_bytes(), 4 * 650_000
    for _ in range(10):
        once()
    assert bytes_alive() - alive < size / 10
    assert resident_bytes() - resident < 5 * size


def test_a_hundred_runs_hold_no_more_than_one(tiny: GPT) -> None:
    tokens = torch.zeros(16, 24, dtype=torch.long)

    def once() -> int:
        with tiny.hooks([("blocks.0.hook_resid_mid", lambda x, hook: x * 2)]):
            _, cache = tiny.run_with_cache(tokens)
        return cache.n_bytes

    size = once()
    alive, resident = bytes_alive(), resident_bytes()
    for _ in range(100):
        once()
    assert bytes_alive() - alive < size / 10
    assert resident_bytes() - resident < 10 * size
