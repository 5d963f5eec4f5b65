"""One text through the lens: what the stream says at every place, and which part of the model adds what to a logit.

Both are about a target at every position: the token that follows, the model's own choice, or one that is named. Behind
the last token nothing follows, so its target is the model's own choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int
from torch import Tensor

from interp.attention_bases import Against
from interp.attribution import Attribution, Detail, logit_attribution
from interp.lens import LensDetail, LensReading, logit_lens
from interp.live import LiveText, live_tokens
from interp.live_targets import Target, last_stream, one_token, targets_of
from model.errors import InputError
from model.settings import as_enum

if TYPE_CHECKING:
    from model.lab import Lab

LONGEST = 128
"""Positions that are read at a time, at most: of longer texts a stretch."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveLens:
    """A stretch of one text, read at every place; on the CPU."""

    tokens: tuple[str, ...]
    """One printable string per position of the stretch."""

    ids: Int[Tensor, " pos"]
    """The tokens themselves."""

    start: int
    """Position of the first of them in the text."""

    n_text: int
    """Tokens of the whole text."""

    targets: Int[Tensor, " pos"]
    """The target at each position."""

    reading: LensReading
    """A batch of one."""

    spelled: Mapping[int, str]
    """How every token of the reading is printed."""

    source: str
    """What the text is, in words: its split, seed and length."""

    target: Target = Target.NEXT
    """Which token was asked for as the target."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "target", as_enum(Target, self.target, "target"))

    @property
    def ends(self) -> bool:
        """Whether the stretch holds the text's last token, behind which nothing follows."""
        return self.start + len(self.tokens) == self.n_text

    def target_at(self, place: int) -> Target:
        """Which token the target is at one place of the stretch: where none follows, it is the model's own choice."""
        last = self.ends and place == len(self.tokens) - 1
        return Target.OWN if last and self.target is Target.NEXT else self.target


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveAttribution:
    """What each component adds to a logit at every position of one text; on the CPU."""

    tokens: tuple[str, ...]
    targets: Int[Tensor, " pos"]
    target_names: tuple[str, ...]
    """How the targets are printed."""

    found: Attribution
    """A batch of one."""

    logit: Float[Tensor, " pos"]
    """What the model itself gives: the logit, or its difference from what it is compared with."""

    source: str

    @property
    def residual(self) -> Float[Tensor, " pos"]:
        """The sum of the components less the model's own logit: rounding, and nothing else."""
        return self.found.total[0] - self.logit


@torch.no_grad()
def lens_on(
    lab: Lab,
    text: LiveText | str,
    prompt: str,
    *,
    target: Target | str = Target.NEXT,
    word: str = "",
    detail: LensDetail | str = LensDetail.SUBLAYERS,
    start: int = 0,
    n_top: int = 5,
) -> LiveLens:
    """Read one text at every place, with the `n_top` likeliest tokens of each.

    Args:
        lab: the opened checkpoint.
        text: which text.
        prompt: the text that was typed.
        target: which token ranks and log-probabilities are of.
        word: the text of that token, where it is a named one.
        detail: after every layer, or after every sublayer.
        start: the first position that is read; `LONGEST` are, at most.
        n_top: how many tokens are kept of each reading.

    Raises:
        InputError: the text cannot be read, `word` is not one token, or the text has no position `start`.
    """
    tokens, source = live_tokens(lab, text, prompt)
    if not 0 <= start < len(tokens):
        raise InputError(f"there is no position {start} in this text; it has 0..{len(tokens) - 1}")
    stretch = slice(start, min(start + LONGEST, len(tokens)))
    targets = targets_of(lab, tokens, target, word, stretch)
    n_top = min(n_top, lab.config.d_vocab)
    reading = logit_lens(lab.gpt, tokens[None], targets[None], detail=detail, n_top=n_top, positions=stretch)
    cut_ids, cut_targets = tokens[stretch].cpu(), targets[stretch].cpu()
    known = torch.cat([reading.top.cpu().flatten(), cut_targets]).unique().tolist()
    return LiveLens(
        tokens=tuple(lab.str_tokens(tokens[stretch])),
        ids=cut_ids,
        start=start,
        n_text=len(tokens),
        targets=cut_targets,
        reading=_on_cpu(reading),
        spelled=dict(zip(known, lab.tokenizer.str_tokens(known), strict=True)),
        source=source,
        target=Target(target),
    )


@torch.no_grad()
def attribution_on(
    lab: Lab,
    text: LiveText | str,
    prompt: str,
    *,
    target: Target | str = Target.NEXT,
    word: str = "",
    against: Against | str = Against.MEAN,
    against_word: str = "",
    detail: Detail | str = Detail.HEADS,
) -> LiveAttribution:
    """Take apart the logit of the target at every position of one text.

    Args:
        lab: the opened checkpoint; its stream must be a sum.
        text: which text.
        prompt: the text that was typed.
        target: whose logit.
        word: the text of that token, where it is a named one.
        against: less the mean logit of the vocabulary, or less nothing.
        against_word: less the logit of this token instead.
        detail: by heads, or by whole sublayers.

    Raises:
        NotAdditiveError: the stream of this model is not a sum.
        InputError: the text cannot be read, or a word is not one token.
    """
    lab.config.require_additive_stream("direct logit attribution")
    tokens, source = live_tokens(lab, text, prompt)
    targets = targets_of(lab, tokens, target, word)
    other = None if against_word == "" else one_token(lab, against_word)
    compared = as_enum(Against, against, "against") if other is None else other
    found = logit_attribution(lab.gpt, tokens[None], targets[None], compared, detail=detail)
    return LiveAttribution(
        tokens=tuple(lab.str_tokens(tokens)),
        targets=targets.cpu(),
        target_names=tuple(lab.str_tokens(targets)),
        found=replace(found, values=found.values.cpu()),
        logit=_own_logit(lab, tokens, targets, compared).cpu(),
        source=source,
    )


def _own_logit(lab: Lab, tokens: Tensor, targets: Tensor, compared: Against | int) -> Float[Tensor, " pos"]:
    """The model's own logit of each target, less what it is compared with; some positions at a time."""
    stream, size = last_stream(lab, tokens, slice(None)), LONGEST
    found = []
    for start in range(0, len(tokens), size):
        logits = lab.gpt.unembed_stream(stream[start : start + size]).float()
        own = logits.gather(-1, targets[start : start + size, None])[:, 0]
        match compared:
            case Against.MEAN:
                own = own - logits.mean(-1)
            case int():
                own = own - logits[:, compared]
        found.append(own)
    return torch.cat(found)


def _on_cpu(reading: LensReading) -> LensReading:
    moved = {name: value.cpu() for name, value in vars(reading).items() if isinstance(value, Tensor)}
    return replace(reading, **moved)
