"""Random prefixes of a corpus, a few from each of some windows, so that one pass over a window serves several.

Every prefix is as likely as any other: a prefix is drawn uniformly, and some of its window's others join it. Prefixes
of one window share text, and so do windows of one document: neither are independent, and what is said of them should
be resampled by document (or by window where there is but one document).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from interp.prefixes import Windows
from model.errors import InputError


@dataclass(frozen=True, kw_only=True)
class DrawnPrefixes:
    """Random prefixes in rising order, and the windows that they are read from."""

    windows: Windows
    """Those with a drawn prefix."""

    ends: Int[np.ndarray, " prefix"]
    """Corpus offset of each prefix's last token."""

    window: Int[np.ndarray, " prefix"]
    """Which of `windows` each lies in."""

    def __len__(self) -> int:
        return len(self.ends)

    @property
    def lengths(self) -> Int[np.ndarray, " prefix"]:
        """Tokens of each prefix; BOS is not counted."""
        return self.ends - self.windows.starts[self.window] + 1


def elsewhere(window: Int[np.ndarray, " prefix"]) -> Int[np.ndarray, " prefix"]:
    """For each prefix, in rising order of windows, one of the next window (of the first, behind the last).

    >>> elsewhere(np.array([0, 0, 0, 1, 2, 2])).tolist()
    [3, 3, 3, 4, 0, 1]
    """
    _, first, place, sizes = np.unique(window, return_index=True, return_inverse=True, return_counts=True)
    if len(sizes) < 2:
        raise InputError("all prefixes are of one window, so none is elsewhere; draw more of them.")
    following = (place + 1) % len(sizes)
    return first[following] + (np.arange(len(window)) - first[place]) % sizes[following]


def drawn_prefixes(windows: Windows, n_prefixes: int, *, per_window: int, seed: int) -> DrawnPrefixes:
    """About `n_prefixes` of the prefixes in `windows`, up to `per_window` of a window (more where one is drawn twice).

    All of them where there are no more. Windows shorter than `per_window` give what they have.
    """
    if n_prefixes < 2 or per_window < 1:
        raise InputError(
            f"n_prefixes={n_prefixes} with {per_window} of a window is no sample; draw at least 2 prefixes, and 1 of a "
            "window."
        )
    generator = np.random.default_rng(seed)
    behind = np.cumsum(windows.lengths)
    if n_prefixes >= windows.n_prefixes:
        which, taken = np.arange(len(windows)), windows.lengths
    else:
        n_anchors = -(-n_prefixes // per_window)
        anchors = generator.choice(windows.n_prefixes, size=n_anchors, replace=False)
        which, times = np.unique(np.searchsorted(behind, anchors, side="right"), return_counts=True)
        taken = np.minimum(windows.lengths[which], times * per_window)
    kept = Windows(starts=windows.starts[which], lengths=windows.lengths[which])
    ends = [
        start + np.sort(generator.choice(length, size=n, replace=False))
        for start, length, n in zip(kept.starts, kept.lengths, taken, strict=True)
    ]
    return DrawnPrefixes(windows=kept, ends=np.concatenate(ends), window=np.repeat(np.arange(len(kept)), taken))
