"""Windows cover real text, never cross documents, and name prefixes that can be fed again."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from interp.prefixes import Windows, cut_windows, prefix_tokens, sampled_windows, tails, window_batches
from model.errors import InputError

DOCUMENTS = [(0, 10), (10, 11), (11, 18)]
TOKENS = np.arange(100, 118, dtype=np.uint16)


def test_windows_stay_inside_documents_and_leave_a_next_token() -> None:
    windows = cut_windows(DOCUMENTS, 4)
    assert windows.starts.tolist() == [0, 4, 8, 11, 15]
    assert windows.lengths.tolist() == [
        4,
        4,
        1,
        4,
        2,
    ]  # a document's last token ends no prefix; a single one gives none
    assert windows.n_prefixes == sum(stop - start - 1 for start, stop in DOCUMENTS)


def test_sampling_takes_whole_windows_in_order_and_repeats_with_its_seed() -> None:
    windows = cut_windows([(0, 1000)], 7)
    drawn = sampled_windows(windows, 100, seed=3)
    assert 100 <= drawn.n_prefixes < 107
    assert (np.diff(drawn.starts) >= 7).all()
    assert set(drawn.starts.tolist()) <= set(windows.starts.tolist())
    assert drawn.starts.tolist() == sampled_windows(windows, 100, seed=3).starts.tolist()
    assert drawn.starts.tolist() != sampled_windows(windows, 100, seed=4).starts.tolist()


def test_asking_for_more_than_there_is_takes_everything() -> None:
    windows = cut_windows(DOCUMENTS, 4)
    assert sampled_windows(windows, 10_000, seed=0).starts.tolist() == windows.starts.tolist()


def test_batches_put_bos_first_and_say_where_every_token_is() -> None:
    (first, first_ends), (second, second_ends) = window_batches(TOKENS, cut_windows(DOCUMENTS, 4), bos=7, batch_size=3)
    assert first.tolist() == [[7, 100, 101, 102, 103], [7, 104, 105, 106, 107], [7, 108, 0, 0, 0]]
    assert first_ends.tolist() == [[-1, 0, 1, 2, 3], [-1, 4, 5, 6, 7], [-1, 8, -1, -1, -1]]
    assert second.tolist() == [[7, 111, 112, 113, 114], [7, 115, 116, 0, 0]]
    assert second_ends[1].tolist() == [-1, 15, 16, -1, -1]


def test_without_bos_rows_begin_with_the_text() -> None:
    ((rows, ends),) = window_batches(TOKENS, cut_windows([(0, 5)], 9), bos=None, batch_size=8)
    assert rows.tolist() == [[100, 101, 102, 103]]
    assert ends.tolist() == [[0, 1, 2, 3]]


def test_every_prefix_has_a_number_and_finds_its_window() -> None:
    windows = cut_windows(DOCUMENTS, 4)
    ends = windows.nth_end(torch.arange(windows.n_prefixes))
    assert ends.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16]
    assert windows.start_of(ends).tolist() == [0] * 4 + [4] * 4 + [8] + [11] * 4 + [15] * 2


def test_a_prefix_is_fed_as_it_was_read() -> None:
    assert prefix_tokens(TOKENS, 4, 3, bos=7).tolist() == [[7, 104, 105, 106]]
    assert prefix_tokens(TOKENS, 4, 3, bos=None).tolist() == [[104, 105, 106]]


def test_tails_show_the_end_and_nothing_before_the_beginning() -> None:
    shown = tails(TOKENS, torch.tensor([4, -1]), torch.tensor([3, 0]), 5)
    assert shown.tolist() == [[-1, -1, 104, 105, 106], [-1] * 5]


@pytest.mark.parametrize("documents", [[], [(0, 1)], [(3, 3), (4, 5)]])
def test_a_corpus_without_two_neighbouring_tokens_is_refused(documents: list[tuple[int, int]]) -> None:
    with pytest.raises(InputError, match="no document of two tokens"):
        cut_windows(documents, 4)


def test_windows_and_samples_of_nothing_are_refused() -> None:
    with pytest.raises(InputError, match="A window of 0 tokens holds no prefix"):
        cut_windows(DOCUMENTS, 0)
    with pytest.raises(InputError, match="n_tokens=0 leaves nothing"):
        sampled_windows(Windows(starts=np.array([0]), lengths=np.array([3])), 0, seed=0)
