"""Reading and editing named places during one call.

A `HookPoint` stands wherever the model has a named place and hands its tensor on. When nobody watches, it costs one
comparison. When somebody does, a `Call` travels through the forward pass with what is to be read, edited or
differentiated; it belongs to that call alone, so hooks cannot outlive it, meet hooks of another thread, or stay
behind after an exception.

* Readers get a snapshot (a copy, never a view); reading changes nothing.
* Editors get a copy of their own to change in place or to replace, so an edit never reaches what was read before it.
* Some places are computed *beside* the forward pass (`HookPoint.beside`): the pass uses them only if an editor
  changed them, or asks for a gradient through them.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from model.elsewhere import OF_A_CACHE, missing
from model.errors import InputError, UnknownSiteError, closest
from model.sites import ON_DEMAND, Site, Tap, site_named


@dataclass(frozen=True, slots=True)
class Hook:
    """What a hook function is told about where it is."""

    name: str
    """The hook name, as in `blocks.3.attn.hook_pattern`."""
    site: Site
    positions: Int[Tensor, "batch pos"]
    """The absolute position of every token in this pass (-1 for padding): with a key-value cache, the new ones only."""
    key_positions: Int[Tensor, "batch key"]
    """The absolute position of every key (-1 for padding): with a key-value cache, the cached ones and the new ones."""

    @property
    def layer(self) -> int | None:
        """The layer, or None for places outside the blocks."""
        return self.site.layer


HookFunction = Callable[[Tensor, Hook], Tensor | None]
Where = str | Site | Callable[[str], bool]
Hooks = Sequence[tuple[Where, HookFunction]]


@dataclass(slots=True)
class Call:
    """Everything asked of one forward pass."""

    reads: Mapping[str, Callable[[Tensor, Site], None]] = field(default_factory=dict)
    edits: Mapping[str, Sequence[HookFunction]] = field(default_factory=dict)
    backward: Mapping[str, Sequence[HookFunction]] = field(default_factory=dict)
    gradients_of: frozenset[str] = frozenset()
    positions: Tensor | None = None
    key_positions: Tensor | None = None
    differentiable: dict[str, Tensor] = field(default_factory=dict)
    """Filled during the pass: the tensors whose gradients `gradients_of` asks for."""

    def watches(self, name: str) -> bool:
        """Whether anything is asked of the place called `name`."""
        return name in self.reads or self.changes(name)

    def changes(self, name: str) -> bool:
        """Whether `name` may influence the pass: it is edited, or a gradient flows through it."""
        return name in self.edits or name in self.backward or name in self.gradients_of


class HookPoint:
    """One named place. `point(x, call)` is x, as read and edited by the call."""

    __slots__ = ("name", "site")

    def __init__(self, site: Site) -> None:
        self.site = site
        self.name = str(site)

    def __call__(self, x: Tensor, call: Call | None) -> Tensor:
        """The tensor `x`, as read and edited by the call."""
        if call is None or not call.watches(self.name):
            return x
        return self._visit(x, call)

    def wanted(self, call: Call | None) -> bool:
        """Whether a place that is computed only on demand has to be."""
        return call is not None and call.watches(self.name)

    def beside(self, x: Tensor, call: Call | None) -> Tensor | None:
        """Visit a tensor computed beside the pass: the edited tensor if the pass must use it, else None."""
        if call is None or not call.watches(self.name):
            return None
        visited = self._visit(x, call)
        differentiated = self.name in call.backward or self.name in call.gradients_of
        changed = self.name in call.edits and (not _same(visited, x) or _asks_for_gradients(visited, x))
        return visited if differentiated or changed else None

    def _visit(self, x: Tensor, call: Call) -> Tensor:
        if call.positions is None or call.key_positions is None:
            raise RuntimeError("the model sets the call's positions before the first place")
        hook = Hook(self.name, self.site, call.positions, call.key_positions)
        for edit in call.edits.get(self.name, ()):
            x = _edited(x, edit, hook)
        if self.name in call.backward or self.name in call.gradients_of:
            x = _differentiable(x, call, hook)
        if self.name in call.reads:
            call.reads[self.name](x, self.site)
        return x


def _edited(x: Tensor, edit: HookFunction, hook: Hook) -> Tensor:
    own = x.clone()
    answer = edit(own, hook)
    if answer is None:
        return own
    if not isinstance(answer, Tensor):
        raise InputError(
            f"the hook on {hook.name} returned {type(answer).__name__}; return a tensor, or None to keep it."
        )
    if answer.shape != x.shape:
        raise InputError(
            f"the hook on {hook.name} returned shape {tuple(answer.shape)}; the place has shape {tuple(x.shape)}, "
            "keep it."
        )
    if not answer.is_floating_point() or answer.device != x.device:
        raise InputError(
            f"the hook on {hook.name} returned {answer.dtype} on {answer.device}; the place holds {x.dtype} on "
            f"{x.device}, return .to(x)."
        )
    return answer.to(x.dtype)  # a mean taken in fp64, say, enters a bf16 model in bf16


def _same(visited: Tensor, x: Tensor) -> bool:
    """Whether an edit left every value, or every bit, as it was: what is not a number equals nothing, its bits do."""
    return torch.equal(visited, x) or torch.equal(_bits(visited), _bits(x))


def _bits(x: Tensor) -> Tensor:
    return x.detach().view({2: torch.int16, 4: torch.int32, 8: torch.int64}[x.element_size()])


def _asks_for_gradients(visited: Tensor, x: Tensor) -> bool:
    """Whether an edit that kept the values of x wants to be differentiated.

    It made them depend on something that requires a gradient (a vector of zeros to be learned, a mask of ones), or
    asked for the gradient at them.
    """
    if not (torch.is_grad_enabled() and visited.requires_grad):
        return False
    if visited.grad_fn is None or visited.retains_grad or visited._backward_hooks:
        return True
    known: set[object] = {None, x.grad_fn}
    unseen: list[Any] = [visited.grad_fn]
    while unseen:
        node = unseen.pop()
        if node in known:
            continue
        if hasattr(node, "variable"):  # a leaf, reached without going through x
            return True
        known.add(node)
        unseen += [before for before, _ in node.next_functions]
    return False


def _differentiable(x: Tensor, call: Call, hook: Hook) -> Tensor:
    if not torch.is_grad_enabled():
        raise InputError(
            f"the gradient at {hook.name} was asked for under torch.no_grad(); call with gradients enabled."
        )
    x = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
    for function in call.backward.get(hook.name, ()):
        x.register_hook(lambda grad, function=function: _edited(grad, function, hook))
    if hook.name in call.gradients_of:
        call.differentiable[hook.name] = x
    return x


def _here() -> tuple[int, object]:
    """The thread and, in an event loop, the task that is running."""
    try:
        return threading.get_ident(), asyncio.current_task()
    except RuntimeError:
        return threading.get_ident(), None


@dataclass(slots=True, eq=False)
class Scope:
    """Hooks in force inside a `with`, for one model, in the thread and task that opened it."""

    model: object
    forward: Mapping[str, Sequence[HookFunction]]
    backward: Mapping[str, Sequence[HookFunction]]
    explicit_attention: bool = False
    is_open: bool = True
    owner: tuple[int, object] = field(default_factory=_here)


_SCOPES: ContextVar[tuple[Scope, ...]] = ContextVar("cutaway_scopes", default=())
# Context-local, not global. A new task or thread may begin with a copy of its maker's context, so that a scope also
# knows who opened it and whether it is still open: nobody else ever sees it, and nobody at all once it has ended.


@contextmanager
def scope(entry: Scope) -> Iterator[None]:
    """Keep `entry` in force, in this thread and task, until the `with` ends, however and wherever it ends."""
    _SCOPES.set((*_SCOPES.get(), entry))
    try:
        yield
    finally:  # by identity, not by restoring what was before: blocks may end in any order (generators do)
        entry.is_open = False
        _SCOPES.set(tuple(each for each in _SCOPES.get() if each is not entry))


def scopes_of(model: object) -> list[Scope]:
    """The scopes open for `model` here, outermost first."""
    entries = _SCOPES.get()
    if not entries:
        return []
    here = _here()
    return [entry for entry in entries if entry.model is model and entry.is_open and entry.owner == here]


def collected(hooks: Iterable[tuple[str, HookFunction]]) -> dict[str, list[HookFunction]]:
    """Hook functions by name, in the order given."""
    by_name: dict[str, list[HookFunction]] = {}
    for name, function in hooks:
        by_name.setdefault(name, []).append(function)
    return by_name


class ActivationCache(Mapping[str, Tensor]):
    """What a call saw: snapshots by hook name, in forward order; gradients under NAME_grad.

    `cache["blocks.3.attn.hook_pattern"]`, `cache["pattern", 3]`, `cache[Tap.PATTERN.at(3)]` are the same tensor;
    `cache["pattern", 3, "grad"]` is its gradient. Layers count from the end too: `cache["resid_post", -1]`.
    """

    def __init__(
        self, tensors: dict[str, Tensor] | None = None, *, n_layers: int | None = None, whole: bool = True
    ) -> None:
        self.whole = whole
        """Whether index p of each position axis is position p of every sequence: no padding, and nothing cut."""
        self._tensors = {} if tensors is None else tensors
        self._n_layers = n_layers
        self._last: tuple[Tensor, int, Tensor] | None = None

    def __getitem__(self, key: str | Site | tuple[Any, ...]) -> Tensor:
        name = hook_name(key, self._n_layers)
        if name not in self._tensors:
            on_demand = any(name.startswith("blocks.") and _template(name) == tap.template for tap in ON_DEMAND)
            tail = " It is computed only when names_filter asks for it." if on_demand else closest(name, self._tensors)
            raise UnknownSiteError(f'"{name}" was not cached; the cache holds {len(self._tensors)} entries.{tail}')
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __contains__(self, key: object) -> bool:
        try:
            return isinstance(key, str | Site | tuple) and hook_name(key, self._n_layers) in self._tensors
        except UnknownSiteError:
            return False

    def get(self, key: str | Site | tuple[Any, ...], default: Any = None) -> Any:
        """The tensor under `key`, or `default` where there is none."""
        try:
            return self[key]
        except UnknownSiteError:
            return default

    def __getattr__(self, name: str) -> Any:
        """A method out of another toolkit is answered with ours."""
        raise missing("a cache", name, OF_A_CACHE)

    def __repr__(self) -> str:
        return f"ActivationCache({len(self)} entries, {self.n_bytes / 2**20:.1f} MiB)"

    @property
    def n_bytes(self) -> int:
        """Bytes held, a snapshot shared by equal neighbours counted once."""
        return sum({t.data_ptr(): t.nbytes for t in self._tensors.values()}.values())

    def stack(self, kind: str, norm: str | None = None) -> Tensor:
        """One place over all layers that have it: [layer, *axes]; `cache.stack("scale", "ln1")` for a norm's."""
        wanted = ("blocks.{}." + f"{norm}.hook_{kind}") if norm else _LAYERED[kind].template if kind in _LAYERED else ""
        layers = [int(name.split(".")[1]) for name in self._tensors if name.startswith("blocks.")]
        names = [name for layer in dict.fromkeys(layers) if (name := wanted.format(layer)) in self._tensors]
        if not names:
            what = f'"{kind}" of {norm}' if norm else f'"{kind}"'
            raise UnknownSiteError(
                f"no layer has {what} in this cache of {len(self)} entries.{closest(kind, _LAYERED)}"
                " (a norm's scale, normalized and out need its name: stack(kind, norm))"
            )
        return torch.stack([self._tensors[name] for name in names])

    def without_batch(self) -> ActivationCache:
        """The cache of a single sequence, without its batch axis."""
        sizes = {tensor.shape[0] for tensor in self._tensors.values()}
        if sizes - {1}:
            raise InputError(f"remove_batch_dim needs a batch of one sequence; this one has {max(sizes)}.")
        return ActivationCache(
            {name: tensor[0] for name, tensor in self._tensors.items()}, n_layers=self._n_layers, whole=self.whole
        )

    def reader(self, *, pos_slice: Any = None, device: Any = None) -> Callable[[Tensor, Site], None]:
        """A reader that stores snapshots here."""

        def read(x: Tensor, site: Site) -> None:
            if pos_slice is not None or device is not None or x.is_inference():
                self._tensors[str(site)] = _snapshot(x, site, pos_slice, device)
                return
            same = self._last is not None and self._last[0] is x and self._last[1] == x._version
            copy = self._last[2] if same and self._last is not None else x.detach().clone()
            self._last = (x, x._version, copy)
            self._tensors[str(site)] = copy

        return read

    def finish(self, known: Iterable[str]) -> None:
        """Order the entries as the model meets them and let go of the pass's tensors."""
        self._last = None
        order = {name: place for place, name in enumerate(known)}
        entries = sorted(self._tensors.items(), key=lambda item: order[item[0]])
        self._tensors.clear()
        self._tensors.update(entries)

    def add_gradients(self, gradients: Mapping[str, Tensor], *, pos_slice: Any, device: Any) -> None:
        """Store gradients under NAME_grad."""
        for name, gradient in gradients.items():
            self._tensors[f"{name}_grad"] = _snapshot(gradient, site_named(name), pos_slice, device)


def _snapshot(x: Tensor, site: Site, pos_slice: Any, device: Any) -> Tensor:
    x = x.detach()
    if pos_slice is not None:
        try:
            x = x[(slice(None),) * site.tap.position_axis + (_as_slice(pos_slice),)]
        except IndexError:
            n_pos = x.shape[site.tap.position_axis]
            raise InputError(f"pos_slice={pos_slice} is outside the {n_pos} positions of this run.") from None
    moved = x.to(device) if device is not None else x
    return moved.clone() if moved.data_ptr() == x.data_ptr() else moved


def _as_slice(pos_slice: Any) -> Any:
    """An integer keeps its axis, as in TransformerLens."""
    if isinstance(pos_slice, bool) or not isinstance(pos_slice, int | slice | list | tuple | Tensor):
        raise InputError(f"pos_slice={pos_slice!r} is not a position; give an integer, a slice or a list of positions.")
    if isinstance(pos_slice, tuple):
        return slice(*pos_slice)
    return [pos_slice] if isinstance(pos_slice, int) else pos_slice


_LAYERED = {
    tap.template.rpartition("hook_")[2]: tap for tap in reversed(Tap) if tap.per_layer and ".ln" not in tap.template
}
_SINGLE = {
    tap.template.removeprefix("hook_"): tap for tap in Tap if not tap.per_layer and tap.template.startswith("hook_")
}
_NORMS = {tuple(tap.template.split(".")[-2:]): tap for tap in Tap if ".ln" in tap.template}


def hook_name(key: str | Site | tuple[Any, ...], n_layers: int | None = None) -> str:
    """The full hook name of a key: a name, a site, or a short form such as ("pattern", 3) or ("scale", 2, "ln1").

    In a short form, and where `n_layers` is given, -1 is the last layer of the model.

    >>> hook_name(("pattern", 3))
    'blocks.3.attn.hook_pattern'
    >>> hook_name(("normalized", 0, "ln2", "grad"))
    'blocks.0.ln2.hook_normalized_grad'
    >>> hook_name(("resid_post", -1), n_layers=4)
    'blocks.3.hook_resid_post'
    """
    if not isinstance(key, tuple):
        name = str(key)
        return f"hook_{name}" if name in _SINGLE else name
    *parts, last = key
    if last == "grad":
        return f"{hook_name(tuple(parts), n_layers)}_grad"
    kind, layer, norm = (*key, None, None)[:3]
    layer = _from_the_start(layer, n_layers)
    if norm is not None and (norm, f"hook_{kind}") in _NORMS:
        return str(_NORMS[norm, f"hook_{kind}"].at(layer))
    if kind in _LAYERED and isinstance(layer, int):
        return str(_LAYERED[kind].at(layer))
    if kind in _SINGLE and layer is None:
        return str(_SINGLE[kind].at())
    raise UnknownSiteError(f"{key!r} names no place.{closest(str(kind), [*_LAYERED, *_SINGLE])}")


def _from_the_start(layer: Any, n_layers: int | None) -> Any:
    if not isinstance(layer, int) or layer >= 0:
        return layer
    if n_layers is None:
        raise UnknownSiteError(f"layer {layer} counts from the end of a model, and none is known here; name the layer.")
    if layer < -n_layers:
        raise UnknownSiteError(f"there is no layer {layer}: this model has layers -{n_layers} to {n_layers - 1}.")
    return layer + n_layers


def _template(name: str) -> str:
    """A hook name with its layer left open."""
    parts = name.split(".")
    return ".".join(["blocks", "{}", *parts[2:]]) if parts[0] == "blocks" else name
