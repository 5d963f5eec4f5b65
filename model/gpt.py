"""The GPT: embedding, blocks, final norm, unembedding, and the calls that read and edit it.

    logits = unembed(final_norm(block_L(... block_1(embed(tokens)))))

`gpt(tokens)` runs it; `run_with_cache` also returns what happened at named places, `run_with_hooks` and `with
gpt.hooks(...)` change what happens there. Hooks belong to the call or the `with` in which they are given; only
`add_hook` lasts until `reset_hooks`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from model.attention import Linear, Pass
from model.block import Block
from model.config import AttentionKind, GPTConfig, Positions
from model.elsewhere import OF_A_GPT, missing
from model.errors import InputError
from model.generate import generate
from model.hooks import ActivationCache, Call, HookFunction, HookPoint, Hooks, Scope, Where, collected, scope, scopes_of
from model.initialise import init_weights
from model.kv_cache import KeyValueCache, positions_of
from model.norms import NormLayer
from model.positions import Rotation, alibi_bias, sinusoids
from model.sites import Site, Tap, resolve, sites
from model.smearing import predecessors
from model.tying import keep_tied
from model.weights import Weights

Tokens = Int[Tensor, "batch pos"]
Mask = Bool[Tensor, "batch key"]
Stream = Float[Tensor, "batch pos d_model"]
Logits = Float[Tensor, "batch pos d_vocab"]
NamesFilter = str | Site | Sequence[str | Site] | Callable[[str], bool] | None


class Embedding(nn.Embedding):
    """A table of vectors that waits for `init_weights`."""

    def reset_parameters(self) -> None:
        """Leave the memory as it is."""


class GPT(Weights):
    """A GPT with every residual stream, head and FFN open to view.

    Args:
        config: the architecture.
        seed: names the initial weights; parameters that two configs share begin equal.
    """

    def __init__(self, config: GPTConfig, seed: int = 0) -> None:
        super().__init__()
        self.config = config
        self.embed = Embedding(config.d_vocab, config.d_model)
        learned = config.positions is Positions.LEARNED
        self.pos_embed = Embedding(config.n_ctx, config.d_model) if learned else None
        self.blocks = nn.ModuleList(Block(config, layer) for layer in range(config.n_layers))
        self.ln_final = NormLayer(config, "ln_final") if config.has_final_norm else None
        self.unembed = Linear(config.d_model, config.d_vocab, bias=False)
        self.tie_weights()
        keep_tied(self)
        init_weights(self.named_parameters(), config, seed)
        self._sites = sites(config)
        self._lasting: list[tuple[str, HookFunction, bool]] = []
        self.hook_embed = HookPoint(Tap.EMBED.at())
        self.hook_pos_embed = HookPoint(Tap.POS_EMBED.at())
        self.hook_logits = HookPoint(Tap.LOGITS.at())

    def tie_weights(self) -> None:
        """Let the unembedding be the embedding's own matrix, if the config ties them."""
        if self.config.tie_embeddings:
            self.unembed.weight = self.embed.weight

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> GPT:  # noqa: FBT001, FBT002  (torch's)
        """What `.to`, `.half`, `.to_empty` and the like are made of: the tied matrix stays one."""
        super()._apply(fn, recurse)
        self.tie_weights()
        return self

    def __getattr__(self, name: str) -> Any:
        """Parts of the module; a name out of other toolkits is answered with ours."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            if name not in OF_A_GPT:
                raise
            raise missing("a GPT", name, OF_A_GPT) from None

    @property
    def layers(self) -> list[Block]:
        """The blocks, as a list."""
        return list(self.blocks)  # type: ignore[arg-type]

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        """The weights' number format."""
        return self.embed.weight.dtype

    def named_sites(self) -> list[str]:
        """All hook names of this model, in forward order (docs/sites.md)."""
        return list(self._sites)

    # --- the forward pass ---------------------------------------------------------------------------------------------

    def forward(
        self, tokens: Tensor, attention_mask: Tensor | None = None, *, kv_cache: KeyValueCache | None = None
    ) -> Logits:
        """Logits for every position: [batch, pos, d_vocab].

        Args:
            tokens: [batch, pos], ids below d_vocab, at most n_ctx positions.
            attention_mask: [batch, pos], true for tokens, false for padding (left, right or between); positions count
                the true ones. With a `kv_cache` it covers the past as well.
            kv_cache: keys and values of earlier positions; `tokens` are the new ones.
        """
        self.check_tokens(tokens)
        return self._unchecked(tokens, attention_mask, kv_cache=kv_cache)

    def _unchecked(
        self, tokens: Tokens, attention_mask: Tensor | None = None, *, kv_cache: KeyValueCache | None = None
    ) -> Logits:
        """`forward` without a look at the ids: for what the model itself just chose."""
        x, run = self._start(tokens, attention_mask, kv_cache, self._call())
        return self._finish(self._through(x, run, 0, self.config.n_layers), run)

    def plain(self, tokens: Tokens) -> Logits:
        """The bare computation, without hooks, checks or masks: what training compiles."""
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        run = self._pass(positions, None, positions, None, None)
        x = self._embedded(tokens, run)
        return self._finish(self._through(x, run, 0, self.config.n_layers), run)

    def loss(self, tokens: Tokens, attention_mask: Tensor | None = None, *, per_token: bool = False) -> Tensor:
        """Next-token cross-entropy in nats: the mean over predicted tokens, or [batch, pos - 1] with `per_token`."""
        return self._loss_of(self(tokens, attention_mask), tokens, attention_mask, per_token=per_token)

    def unembed_stream(self, x: Float[Tensor, "*batch d_model"]) -> Float[Tensor, "*batch d_vocab"]:
        """A stream read as if it were the last: ln_final where there is one, then W_U (the logit lens)."""
        return self.unembed(x if self.ln_final is None else self.ln_final(x))

    def _start(
        self, tokens: Tensor, attention_mask: Tensor | None, kv_cache: KeyValueCache | None, call: Call | None
    ) -> tuple[Stream, Pass]:
        run = self._pass(*self._placed(tokens, attention_mask, kv_cache), kv_cache, call)
        return self._embedded(tokens, run), run

    def _placed(
        self, x: Tensor, attention_mask: Tensor | None, kv_cache: KeyValueCache | None
    ) -> tuple[Tensor, Mask | None, Tensor]:
        """Absolute positions of all keys, their mask (None if nothing is padded), and positions of the new tokens."""
        n_batch, n_pos = x.shape[:2]
        past = 0 if kv_cache is None else kv_cache.length
        if kv_cache is not None and self.config.attention is AttentionKind.BIDIRECTIONAL:
            raise InputError(
                "a bidirectional model takes no key-value cache: later tokens change what earlier ones hold."
            )
        if past + n_pos > self.config.n_ctx:
            raise InputError(
                f"{past + n_pos} positions exceed this model's n_ctx={self.config.n_ctx}; give a shorter text."
            )
        keys = None if attention_mask is None else self._checked_mask(attention_mask, n_batch, past, n_pos)
        if kv_cache is not None:
            keys = kv_cache.admit(n_pos, None if keys is None else keys[:, past:])
        elif keys is not None and bool(keys.all()):
            keys = None
        counted = (
            torch.arange(past + n_pos, device=x.device).expand(n_batch, -1) if keys is None else positions_of(keys)
        )
        return counted, keys, counted[:, past:]

    def new_pass(self, x: Stream) -> Pass:
        """What all layers share in a pass over `x`, a stream without padding, under the hooks in force here."""
        return self._pass(*self._placed(x, None, None), None, self._call())

    def _pass(
        self,
        key_positions: Tensor,
        keys: Mask | None,
        positions: Tensor,
        kv_cache: KeyValueCache | None,
        call: Call | None,
    ) -> Pass:
        config, causal = self.config, self.config.attention is AttentionKind.CAUSAL
        mask = rotation = bias = None
        if keys is not None:
            n_query, n_key = positions.shape[1], keys.shape[1]
            queries = keys[:, n_key - n_query :, None]
            mask = (keys[:, None, :] & queries).expand(-1, n_query, -1)
            mask = (mask.tril(n_key - n_query) if causal else mask)[:, None]
        if kv_cache is not None:
            rotation = kv_cache.rotation(positions)
        elif config.positions is Positions.ROPE:
            rows = positions if keys is not None else positions[:1]  # without padding all rows have the same positions
            rotation = Rotation.of(rows, config.head_width, config.rope_base, self.dtype)
        if config.positions is Positions.ALIBI:
            bias = alibi_bias(positions, key_positions, config.n_heads, self.dtype)
        if call is not None:
            call.positions, call.key_positions = positions.clone(), key_positions.clone()  # hooks may write into them
        explicit = any(entry.explicit_attention for entry in scopes_of(self)) if call is not None else False
        before = predecessors(positions) if config.smeared_keys else None
        return Pass(positions, call, rotation, mask, causal, bias, kv_cache, explicit, before)

    def _embedded(self, tokens: Tokens, run: Pass) -> Stream:
        x = self.hook_embed(self.embed(tokens), run.call)
        if self.pos_embed is not None:
            x = x + self.hook_pos_embed(self.pos_embed(run.positions.clamp(min=0)).expand_as(x), run.call)
        elif self.config.positions is Positions.SINUSOIDAL:
            added = sinusoids(run.positions, self.config.d_model).to(x.dtype)
            x = x + self.hook_pos_embed(added.expand_as(x), run.call)
        return F.dropout(x, self.config.dropout, self.training) if self.config.dropout else x

    def _through(self, x: Stream, run: Pass, start: int, stop: int) -> Stream:
        for block in islice(self.blocks, start, stop):
            x = block(x, run)
        if run.kv_cache is not None:
            run.kv_cache.advance(x.shape[1])
        return x

    def _finish(self, x: Stream, run: Pass) -> Logits:
        x = x if self.ln_final is None else self.ln_final(x, run.call)
        return self.hook_logits(self.unembed(x), run.call)

    # --- reading and editing ------------------------------------------------------------------------------------------

    def run_with_cache(
        self,
        tokens: Tensor,
        names_filter: NamesFilter = None,
        *,
        pos_slice: int | slice | list[int] | None = None,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        device: torch.device | str | None = None,
        remove_batch_dim: bool = False,
        incl_bwd: bool = False,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        loss_fn: Callable[[Logits], Tensor] | None = None,
        attention_mask: Tensor | None = None,
    ) -> tuple[Any, ActivationCache]:
        """Run, and return what the named places held: (output, cache).

        Args:
            tokens: [batch, pos], or the residual [batch, pos, d_model] entering `start_at_layer`.
            names_filter: a hook name, a site, a list, a function of the name, or None for all but on-demand places.
            pos_slice: positions to keep (queries, for scores and patterns); an integer keeps its axis.
            start_at_layer: the first layer to run; `tokens` is then the residual entering it.
            stop_at_layer: exclusive; the output is then the residual entering that layer.
            device: where the cache goes; the model stays where it is.
            remove_batch_dim: drop the batch axis of the cache, for a batch of one sequence.
            incl_bwd: also store gradients of the loss (or of `loss_fn(logits)`) at these places, under NAME_grad;
                parameters' own .grad is left alone. A place that is otherwise computed beside the pass (a norm's
                scale, a head's result) takes part in it then, so that logits agree with the plain run's to rounding.
            return_type: "logits", "loss", "both" or None.
            loss_per_token: return the loss as [batch, pos - 1].
            loss_fn: a scalar function of the logits, in place of the next-token loss.
            attention_mask: [batch, pos], false for padding.
        """
        names = resolve(names_filter, self._within(start_at_layer, stop_at_layer), self.config.n_layers)
        whole = pos_slice is None and (attention_mask is None or bool(torch.as_tensor(attention_mask).all()))
        cache = ActivationCache(n_layers=self.config.n_layers, whole=whole)
        read = cache.reader(pos_slice=pos_slice, device=device)
        call = self._call() or Call()
        call = replace(call, reads={name: read for name in names}, gradients_of=frozenset(names if incl_bwd else ()))
        if incl_bwd and return_type not in ("loss", "both") and loss_fn is None:
            raise InputError('incl_bwd needs a loss: pass return_type="loss" or loss_fn=a function of the logits.')
        if incl_bwd and loss_per_token:
            raise InputError("incl_bwd differentiates one number; leave loss_per_token out, or give a loss_fn.")
        if loss_fn is not None and not incl_bwd and return_type not in ("loss", "both"):
            raise InputError('loss_fn is used for return_type="loss" or "both", or with incl_bwd; pass one of them.')
        span = (start_at_layer, stop_at_layer)
        with torch.set_grad_enabled(incl_bwd or torch.is_grad_enabled()):
            out, loss = self._run(tokens, call, span, return_type, loss_per_token, attention_mask, loss_fn)
            cache.finish(self._sites)
            if incl_bwd:
                places = call.differentiable
                gradients = torch.autograd.grad(loss, list(places.values()), materialize_grads=True, allow_unused=True)
                cache.add_gradients(dict(zip(places, gradients, strict=True)), pos_slice=pos_slice, device=device)
        return out, cache.without_batch() if remove_batch_dim else cache

    def run_with_hooks(
        self,
        tokens: Tensor,
        fwd_hooks: Hooks = (),
        bwd_hooks: Hooks = (),
        *,
        return_type: str | None = "logits",
        loss_per_token: bool = False,
        start_at_layer: int | None = None,
        stop_at_layer: int | None = None,
        attention_mask: Tensor | None = None,
    ) -> Any:
        """Run with hooks `(name, f)` for this call only; f(tensor, hook) returns a tensor, or None to keep it."""
        self._check_reached([*fwd_hooks, *bwd_hooks], start_at_layer, stop_at_layer)
        with self.hooks(fwd_hooks, bwd_hooks):
            span = (start_at_layer, stop_at_layer)
            return self._run(tokens, self._call(), span, return_type, loss_per_token, attention_mask, None)[0]

    @contextmanager
    def hooks(self, fwd_hooks: Hooks = (), bwd_hooks: Hooks = ()) -> Iterator[GPT]:
        """Hooks in force for this thread's calls until the `with` ends; blocks nest, the outer ones acting first.

        A run over a span of layers meets those that stand within it.
        """
        forward, backward = self._named(fwd_hooks), self._named(bwd_hooks)
        with scope(Scope(self, collected(forward), collected(backward))):
            yield self

    @contextmanager
    def explicit_attention(self) -> Iterator[GPT]:
        """Form scores and patterns in every layer, so that runs with and without pattern hooks share one path."""
        with scope(Scope(self, {}, {}, explicit_attention=True)):
            yield self

    def add_hook(self, name: Where, function: HookFunction, *, direction: str = "fwd") -> None:
        """A hook for every call, in every thread, until `reset_hooks`: the one lasting kind."""
        if direction not in ("fwd", "bwd"):
            raise InputError(f'direction="{direction}" is neither "fwd" nor "bwd".')
        self._lasting += [(name, function, direction == "fwd") for name, function in self._named([(name, function)])]

    @property
    def hooked(self) -> bool:
        """Whether hooks are in force here, lasting ones or those of an open `with`."""
        return bool(self._lasting or scopes_of(self))

    def reset_hooks(self) -> None:
        """Remove what `add_hook` added."""
        self._lasting.clear()

    def __getstate__(self) -> dict[str, Any]:
        """What a copy is made of: everything but the hooks, which are of this model only."""
        return self.__dict__ | {"_lasting": []}

    def _named(self, hooks: Hooks) -> list[tuple[str, HookFunction]]:
        n_layers = self.config.n_layers
        for where, function in hooks:
            if not callable(function):
                raise InputError(f"the hook on {where} is {function!r}; give a function f(tensor, hook).")
        return [(name, function) for where, function in hooks for name in resolve(where, self._sites, n_layers)]

    def _call(self) -> Call | None:
        """What is asked of the next pass, here and now; None if nothing is."""
        open_scopes = scopes_of(self)
        if not open_scopes and not self._lasting:
            return None
        forward = [(name, function) for name, function, is_forward in self._lasting if is_forward]
        backward = [(name, function) for name, function, is_forward in self._lasting if not is_forward]
        for entry in open_scopes:
            forward += [(name, function) for name, several in entry.forward.items() for function in several]
            backward += [(name, function) for name, several in entry.backward.items() for function in several]
        return Call(edits=collected(forward), backward=collected(backward))

    def _run(
        self,
        tokens: Tensor,
        call: Call | None,
        span: tuple[int | None, int | None],
        return_type: str | None,
        loss_per_token: bool,  # noqa: FBT001
        attention_mask: Tensor | None,
        loss_fn: Callable[[Logits], Tensor] | None,
    ) -> Any:
        """One pass over a span of layers: (what was asked for, the loss if there is one)."""
        if return_type not in ("logits", "loss", "both", None):
            raise InputError(f'return_type={return_type!r} is not one of "logits", "loss", "both", None.')
        start, stop = self._span(*span)
        wants_loss = return_type in ("loss", "both") or (call is not None and bool(call.gradients_of))
        if wants_loss and stop < self.config.n_layers:
            raise InputError(
                "a run that stops before the last layer has no logits, so no loss; leave stop_at_layer out."
            )
        x, run = self._entered(tokens, span[0], attention_mask, call)
        x = self._through(x, run, start, stop)
        if stop < self.config.n_layers:
            return (None if return_type is None else x), None
        if return_type is None and not wants_loss and not self._watches_the_end(call):
            return None, None
        logits = self._finish(x, run)
        loss = None
        if wants_loss and loss_fn is not None:
            loss = _scalar(loss_fn(logits))
        elif wants_loss:
            loss = self._loss_of(logits, self._targets(tokens), attention_mask, per_token=loss_per_token)
        return {"logits": logits, "loss": loss, "both": (logits, loss), None: None}[return_type], loss

    def _watches_the_end(self, call: Call | None) -> bool:
        """Whether anything is asked of the places after the last layer, so that logits have to be formed."""
        return call is not None and any(
            call.watches(name) for name, site in self._sites.items() if site.layer is None and site.tap not in _BEFORE
        )

    def _entered(
        self, tokens: Tensor, start: int | None, attention_mask: Tensor | None, call: Call | None
    ) -> tuple[Stream, Pass]:
        if start is None:
            self.check_tokens(tokens)
            return self._start(tokens, attention_mask, None, call)
        if tokens.ndim != 3 or tokens.shape[-1] != self.config.d_model:
            raise InputError(
                f"start_at_layer takes a residual [batch, pos, d_model={self.config.d_model}]; "
                f"got shape {tuple(tokens.shape)}."
            )
        return tokens, self._pass(*self._placed(tokens, attention_mask, None), None, call)

    def _span(self, start: int | None, stop: int | None) -> tuple[int, int]:
        n_layers = self.config.n_layers
        first = 0 if start is None else start + n_layers * (start < 0)
        last = n_layers if stop is None else stop + n_layers * (stop < 0)
        if not 0 <= first <= n_layers or not first <= last <= n_layers:
            raise InputError(f"start_at_layer={start}, stop_at_layer={stop} is no span of layers 0 to {n_layers}.")
        return first, last

    def _within(self, start: int | None, stop: int | None) -> dict[str, Site]:
        """The places that a run over this span of layers reaches."""
        first, last = self._span(start, stop)
        after = last == self.config.n_layers

        def reached(site: Site) -> bool:
            if site.layer is not None:
                return first <= site.layer < last
            return start is None if site.tap in _BEFORE else after

        return {name: site for name, site in self._sites.items() if reached(site)}

    def _check_reached(self, hooks: Hooks, start: int | None, stop: int | None) -> None:
        """A hook that could never fire is an error, not a silent no-op."""
        within = self._within(start, stop)
        missed = [name for name, _ in self._named(hooks) if name not in within]
        if missed:
            raise InputError(
                f"{missed[0]} was hooked, but start_at_layer={start}, stop_at_layer={stop} never reaches it."
            )

    # --- losses, checks, the rest -------------------------------------------------------------------------------------

    def _loss_of(self, logits: Logits, tokens: Tokens, attention_mask: Tensor | None, *, per_token: bool) -> Tensor:
        if self.config.attention is AttentionKind.BIDIRECTIONAL:
            raise InputError(
                "a bidirectional model sees the next token, so next-token loss is meaningless; use loss_fn."
            )
        predictions = logits[:, :-1].flatten(0, 1)
        predictions = predictions.to(torch.promote_types(predictions.dtype, torch.float32))
        losses = F.cross_entropy(predictions, tokens[:, 1:].flatten().long(), reduction="none")
        losses = losses.view(tokens.shape[0], -1)
        predicted = torch.ones_like(losses, dtype=torch.bool)
        if attention_mask is not None:
            predicted = attention_mask[:, 1:].bool() & attention_mask[:, :-1].bool()
        if not bool(predicted.any()):
            raise InputError("there is no next token to predict here; give at least two tokens that are not padding.")
        losses = losses * predicted
        return losses if per_token else losses.sum() / predicted.sum()

    def _targets(self, tokens: Tensor) -> Tokens:
        if tokens.is_floating_point():
            raise InputError(
                "a run from a residual has no tokens to predict; take its logits and compute the loss on them."
            )
        return tokens

    def check_tokens(self, tokens: Tensor) -> None:
        """Refuse, in a sentence, what is not [batch, pos] of ids in the vocabulary."""
        if not isinstance(tokens, Tensor):
            raise InputError(
                f"tokens must be a tensor of ids, not {type(tokens).__name__}; lab.tokens(text) makes one."
            )
        if tokens.ndim != 2 or tokens.is_floating_point() or tokens.numel() == 0:
            raise InputError(
                f"tokens must be whole numbers of shape [batch, pos], not empty; got {tokens.dtype} of shape "
                f"{tuple(tokens.shape)}. A residual needs start_at_layer."
            )
        low, high = (int(bound) for bound in tokens.aminmax())
        if low < 0 or high >= self.config.d_vocab:
            wrong = low if low < 0 else high
            raise InputError(
                f"token id {wrong} is outside this model's vocabulary of {self.config.d_vocab} "
                f"(0 to {self.config.d_vocab - 1})."
            )

    def _checked_mask(self, mask: Tensor, n_batch: int, past: int, n_pos: int) -> Mask:
        if mask.shape != (n_batch, past + n_pos):
            raise InputError(f"attention_mask has shape {tuple(mask.shape)}; it must cover {(n_batch, past + n_pos)}.")
        return mask.bool()

    def generate(
        self,
        tokens: Tokens,
        *,
        max_new_tokens: int = 32,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        seed: int = 0,
        use_kv_cache: bool = True,
        attention_mask: Tensor | None = None,
    ) -> Int[Tensor, "batch all_pos"]:
        """Continue `tokens`; see `model.generate.generate` for what the options do."""
        return generate(
            self,
            tokens,
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_k=top_k,
            top_p=top_p,
            seed=seed,
            use_kv_cache=use_kv_cache,
            attention_mask=attention_mask,
        )


_BEFORE = (Tap.EMBED, Tap.POS_EMBED)
"""Places before the first layer."""


def _scalar(loss: Any) -> Tensor:
    if not isinstance(loss, Tensor) or loss.numel() != 1:
        got = f"shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else type(loss).__name__
        raise InputError(f"loss_fn must return a single number as a tensor; got {got}.")
    return loss.reshape(())
