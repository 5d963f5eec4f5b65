"""Hooks belong to the call or the `with` in which they are given: to its model, thread and task, and no longer."""

from __future__ import annotations

import asyncio
import copy
import inspect
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from model import GPT, Hook, KeyValueCache, Tap
from model.errors import InputError
from model.hooks import scopes_of

MakeGPT = Callable[..., GPT]
EMBED, MID = "hook_embed", "blocks.1.hook_resid_mid"


def zero(x: Tensor, hook: Hook) -> Tensor:
    return x * 0


def fail(x: Tensor, hook: Hook) -> None:
    raise ZeroDivisionError


@pytest.fixture
def clean(tiny: GPT, tokens: Tensor) -> Tensor:
    return tiny(tokens)


# --- order ------------------------------------------------------------------------------------------------------------


def test_edits_compose_the_outer_first_and_then_in_the_order_given(tiny: GPT, tokens: Tensor) -> None:
    held = tiny.run_with_cache(tokens, MID)[1][MID]
    with (
        tiny.hooks([(MID, lambda x, hook: x * 2)]),
        tiny.hooks([(MID, lambda x, hook: x + 1), (MID, lambda x, hook: x * 3)]),
    ):
        assert torch.equal(tiny.run_with_cache(tokens, MID)[1][MID], (held * 2 + 1) * 3)
        edited = tiny.run_with_hooks(tokens, [(MID, lambda x, hook: x - 5)])
    expected = tiny.run_with_hooks(tokens, [(MID, lambda x, hook: (x * 2 + 1) * 3 - 5)])
    assert torch.equal(edited, expected)


def test_blocks_may_end_in_any_order(tiny: GPT, tokens: Tensor, clean: Tensor) -> None:
    """As generators that hold a `with` open do."""
    seen: list[str] = []
    first, second = (tiny.hooks([(EMBED, lambda x, hook, n=name: seen.append(n))]) for name in ("first", "second"))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    tiny(tokens)
    second.__exit__(None, None, None)
    assert seen == ["second"]
    assert torch.equal(tiny(tokens), clean)
    assert seen == ["second"]


# --- the end ----------------------------------------------------------------------------------------------------------


def failing_lasting_hook(gpt: GPT) -> GPT:
    gpt.add_hook(MID, fail)
    return gpt


FAILURES: dict[str, Callable[[GPT, Tensor], Any]] = {
    "a hook": lambda gpt, tokens: gpt.run_with_hooks(tokens, [(EMBED, zero), (MID, fail)]),
    "a hook while caching": lambda gpt, tokens: failing_lasting_hook(gpt).run_with_cache(tokens),
    "a filter": lambda gpt, tokens: gpt.run_with_cache(tokens, lambda name: 1 / 0),
    "the loss": lambda gpt, tokens: gpt.run_with_cache(tokens, incl_bwd=True, loss_fn=lambda logits: 1 / 0),
    "a backward hook": lambda gpt, tokens: gpt.run_with_hooks(
        tokens, [(EMBED, zero)], [(MID, fail)], return_type="loss"
    ).backward(),
}


@pytest.mark.parametrize("where", FAILURES)
def test_no_hook_outlives_an_exception(tiny: GPT, tokens: Tensor, clean: Tensor, where: str) -> None:
    with pytest.raises(ZeroDivisionError), tiny.hooks([(EMBED, zero)], [(EMBED, zero)]):
        FAILURES[where](tiny, tokens)
    tiny.reset_hooks()
    assert scopes_of(tiny) == []
    assert torch.equal(tiny(tokens), clean)
    tiny.zero_grad()
    tiny.loss(tokens).backward()
    assert (tiny.embed.weight.grad != 0).any()


def test_a_pass_that_failed_leaves_the_key_value_cache_as_it_was(tiny: GPT, tokens: Tensor, clean: Tensor) -> None:
    past = KeyValueCache(tiny.config, 3, device=tiny.device, dtype=tiny.dtype)
    tiny(tokens[:, :5], kv_cache=past)
    with pytest.raises(ZeroDivisionError), tiny.hooks([(EMBED, zero), (MID, fail)]):
        tiny(tokens[:, 5:], kv_cache=past)
    assert past.length == 5
    torch.testing.assert_close(tiny(tokens[:, 5:], kv_cache=past), clean[:, 5:], rtol=1e-4, atol=1e-4)


def held_open(gpt: GPT) -> Iterator[None]:
    with gpt.hooks([(EMBED, zero)]):
        yield
        yield


def test_an_abandoned_generator_takes_its_hooks_with_it(tiny: GPT, tokens: Tensor, clean: Tensor) -> None:
    abandoned = held_open(tiny)
    next(abandoned)
    assert not torch.equal(tiny(tokens), clean)
    del abandoned
    assert torch.equal(tiny(tokens), clean)


def test_a_block_that_is_ended_by_another_thread_has_ended(tiny: GPT, tokens: Tensor, clean: Tensor) -> None:
    generator = held_open(tiny)
    next(generator)
    other = threading.Thread(target=generator.close)
    other.start()
    other.join(60)
    assert torch.equal(tiny(tokens), clean)


def test_a_backward_hook_is_of_its_own_pass(tiny: GPT, tokens: Tensor) -> None:
    seen: list[str] = []
    watch = [(MID, lambda grad, hook: seen.append("outer")), (MID, lambda grad, hook: grad * 0)]
    with tiny.hooks(bwd_hooks=watch), tiny.hooks(bwd_hooks=[(MID, lambda grad, hook: seen.append(grad.abs().max()))]):
        inside = tiny.loss(tokens)
    tiny.loss(tokens).backward()
    assert seen == []
    inside.backward()
    assert seen == ["outer", 0]


# --- lasting hooks ----------------------------------------------------------------------------------------------------


def test_a_lasting_hook_outlives_everything_but_its_reset(tiny: GPT, tokens: Tensor, clean: Tensor) -> None:
    elsewhere: list[Tensor] = []
    tiny.add_hook(Tap.RESID_PRE.at(1), zero)
    lasting = tiny(tokens)
    assert not torch.equal(lasting, clean)
    tiny.run_with_hooks(tokens, [(EMBED, zero)])
    with pytest.raises(ZeroDivisionError):
        tiny.run_with_hooks(tokens, [(EMBED, fail)])
    other = threading.Thread(target=lambda: elsewhere.append(tiny(tokens)))
    other.start()
    other.join(60)
    assert torch.equal(tiny(tokens), lasting)
    assert torch.equal(elsewhere[0], lasting)
    with tiny.hooks([(EMBED, lambda x, hook: None)]):
        tiny.reset_hooks()
        assert len(scopes_of(tiny)) == 1
    assert torch.equal(tiny(tokens), clean)


# --- isolation --------------------------------------------------------------------------------------------------------


def test_hooks_of_one_model_leave_another_alone(make_gpt: MakeGPT, tokens: Tensor) -> None:
    one, other = make_gpt(), make_gpt()
    expected = other(tokens)
    one.add_hook(EMBED, zero)
    with one.hooks([(MID, zero)], [(MID, zero)]):
        assert torch.equal(other(tokens), expected)
        assert not torch.equal(one(tokens), expected)


def copied(gpt: GPT) -> GPT:
    fresh = GPT(gpt.config).eval()
    fresh.load_state_dict(gpt.state_dict())
    return fresh


@pytest.mark.parametrize("copy_of", [copy.deepcopy, copy.copy, copied])
def test_a_copy_of_a_model_carries_no_hooks(
    tiny: GPT, tokens: Tensor, clean: Tensor, copy_of: Callable[[GPT], GPT]
) -> None:
    tiny.add_hook(EMBED, zero)
    with tiny.hooks([(MID, zero)]), tiny.explicit_attention():
        twin = copy_of(tiny)
        assert torch.equal(twin(tokens), clean)
    twin.add_hook(MID, zero)
    tiny.reset_hooks()
    assert torch.equal(tiny(tokens), clean)


def test_many_threads_never_meet_each_others_hooks(tiny: GPT, tokens: Tensor) -> None:
    """Each adds its own number, all at once; each must get what it gets alone."""
    numbers, together = list(range(6)), threading.Barrier(6)
    alone = [tiny.run_with_hooks(tokens, [(MID, lambda x, hook, n=n: x + n)]) for n in numbers]
    found: dict[int, Tensor] = {}

    def run(n: int) -> None:
        with tiny.hooks([(MID, lambda x, hook: x + n)]):
            together.wait(60)
            found[n] = tiny(tokens)
            together.wait(60)

    threads = [threading.Thread(target=run, args=(n,)) for n in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert all(torch.equal(found[n], alone[n]) for n in numbers)


def test_tasks_never_meet_each_others_hooks(tiny: GPT, tokens: Tensor) -> None:
    """Tasks take turns inside their blocks."""
    numbers = list(range(4))
    alone = [tiny.run_with_hooks(tokens, [(MID, lambda x, hook, n=n: x + n)]) for n in numbers]

    async def run(n: int) -> Tensor:
        with tiny.hooks([(MID, lambda x, hook: x + n)]):
            await asyncio.sleep(0)
            logits = tiny(tokens)
            await asyncio.sleep(0)
            return logits

    async def all_at_once() -> list[Tensor]:
        return await asyncio.gather(*(run(n) for n in numbers))

    assert all(torch.equal(found, alone[n]) for n, found in enumerate(asyncio.run(all_at_once())))


def test_a_task_or_thread_made_inside_a_block_is_not_in_it(tiny: GPT, tokens: Tensor, clean: Tensor) -> None:
    """Both begin with a copy of their maker's context, and would keep its hooks for as long as they live."""

    async def look(after: asyncio.Event) -> Tensor:
        await after.wait()
        return tiny(tokens)

    async def make() -> list[Tensor]:
        now, later = asyncio.Event(), asyncio.Event()
        now.set()
        with tiny.hooks([(EMBED, zero)]):
            inside, outliving = asyncio.create_task(look(now)), asyncio.create_task(look(later))
            found = [await inside, await asyncio.to_thread(tiny, tokens)]
            assert not torch.equal(tiny(tokens), clean)
        later.set()
        return [*found, await outliving]

    assert all(torch.equal(found, clean) for found in asyncio.run(make()))


def test_what_a_hook_writes_into_its_positions_stays_its_own(make_gpt: MakeGPT, tokens: Tensor) -> None:
    def scribble(x: Tensor, hook: Hook) -> None:
        hook.positions.zero_()
        hook.key_positions.zero_()

    for positions in ("learned", "rope", "alibi"):
        gpt = make_gpt(positions=positions)
        mask = torch.arange(12).expand(3, -1) >= 2
        assert torch.equal(gpt.run_with_hooks(tokens, [(EMBED, scribble)], attention_mask=mask), gpt(tokens, mask))


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [EMBED, "blocks.0.ln1.hook_scale"])
@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (lambda x, hook: x[:, :1], r"the hook on {name} returned shape .*; the place has shape .*, keep it"),
        (lambda x, hook: x.sum(), r"the hook on {name} returned shape \(\)"),
        (lambda x, hook: x.long(), r"the hook on {name} returned torch.int64 on cpu; the place holds torch.float32"),
        (lambda x, hook: x > 0, "the hook on {name} returned torch.bool"),
        (lambda x, hook: x.to(torch.complex64), "the hook on {name} returned torch.complex64"),
        (
            lambda x, hook: x.to("meta"),
            r"the hook on {name} returned torch.float32 on meta; .* on cpu, return .to\(x\)",
        ),
        (lambda x, hook: x.tolist(), "the hook on {name} returned list; return a tensor, or None to keep it"),
        (lambda x, hook: 0.0, "the hook on {name} returned float; return a tensor"),
    ],
)
def test_what_a_hook_must_not_return_is_refused_in_a_sentence(
    tiny: GPT, tokens: Tensor, clean: Tensor, name: str, wrong: Any, sentence: str
) -> None:
    with pytest.raises(InputError, match=sentence.format(name=name)):
        tiny.run_with_hooks(tokens, [(name, wrong)])
    with pytest.raises(InputError, match=sentence.format(name=name)):
        tiny.run_with_hooks(tokens, bwd_hooks=[(name, wrong)], return_type="loss").backward()
    assert torch.equal(tiny(tokens), clean)


def test_an_edit_in_another_float_format_enters_in_the_places_own(tiny: GPT, tokens: Tensor) -> None:
    def doubled(x: Tensor, hook: Hook) -> Tensor:
        return x.double() * 2

    edited = tiny.run_with_hooks(tokens, [(MID, doubled)])
    assert edited.dtype is torch.float32
    assert torch.equal(edited, tiny.run_with_hooks(tokens, [(MID, lambda x, hook: x * 2)]))


def test_what_is_no_function_is_refused_before_anything_runs(tiny: GPT) -> None:
    names_and_functions = inspect.unwrap(GPT._named)  # without the type check that only tests have
    with pytest.raises(InputError, match=r"the hook on hook_embed is 0.5; give a function f\(tensor, hook\)"):
        names_and_functions(tiny, [(EMBED, 0.5)])


def test_a_bidirectional_model_takes_no_key_value_cache(make_gpt: MakeGPT, tokens: Tensor) -> None:
    gpt = make_gpt(attention="bidirectional")
    past = KeyValueCache(gpt.config, 3, device=gpt.device, dtype=gpt.dtype)
    with pytest.raises(InputError, match="a bidirectional model takes no key-value cache"):
        gpt(tokens, kv_cache=past)
