"""Our tokenizers as TransformerLens calls one: with texts, padding and truncation, as Hugging Face's are called.

Tokens are exactly ours, for every kind of tokenizer: BOS is put before each text and cannot be written in one. The end
of a text and padding are the tokens that an imported tokenizer was declared to have, else BOS, as in GPT-2; without any
BOS, the end of a text pads. Nothing is added to the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from model.errors import InputError
from model.imported_tokenizer import ImportedTokenizer
from model.token_bytes import BOS_TEXT
from model.tokenizer import Tokenizer


class BridgeTokenizer:
    """What a bridge needs of a tokenizer for `to_tokens`, `to_string`, `to_str_tokens`, text input and `generate`."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.padding_side = "right"
        self.bos_token_id = tokenizer.bos
        self.eos_token_id = _declared(tokenizer, "eos_token", tokenizer.bos)
        spare = self.eos_token_id if tokenizer.bos is None else tokenizer.bos
        self.pad_token_id = _declared(tokenizer, "pad_token", spare)
        self.bos_token, self.eos_token, self.pad_token = (
            None if token is None else tokenizer.str_tokens([token])[0]
            for token in (self.bos_token_id, self.eos_token_id, self.pad_token_id)
        )
        self.vocab_size = tokenizer.d_vocab

    def __call__(
        self,
        texts: str | Sequence[str],
        *,
        return_tensors: str = "pt",
        padding: bool = True,
        padding_side: str | None = None,
        truncation: bool = False,
        max_length: int | None = None,
    ) -> dict[str, Tensor]:
        """The tokens [text, pos], each text behind BOS if there is one, the shorter ones padded with it."""
        del return_tensors, padding
        rows = [self.encode(text) for text in ([texts] if isinstance(texts, str) else texts)]
        rows = [row[:max_length] for row in rows] if truncation else rows
        return {"input_ids": torch.tensor(self._padded(rows, padding_side or self.padding_side), dtype=torch.int64)}

    def encode(self, text: str) -> list[int]:
        """The ids of one text, behind BOS if there is one."""
        return ([] if self.bos_token_id is None else [self.bos_token_id]) + self.tokenizer.encode(text)

    def decode(self, tokens: Tensor | Sequence[int], **options: bool) -> str:
        """The text of one sequence of tokens; BOS is shown, as everywhere in TransformerLens."""
        del options
        ids = torch.as_tensor(tokens).flatten().tolist()
        return "".join(self._shown(ids))

    def batch_decode(self, rows: Tensor | Sequence[Sequence[int]], **options: bool) -> list[str]:
        """The text of each row of tokens."""
        return [self.decode(row, **options) for row in rows]

    def _shown(self, ids: list[int]) -> list[str]:
        """The text between BOS tokens, and `<bos>` for each of them."""
        cuts = [place for place, token in enumerate(ids) if token == self.bos_token_id]
        starts, ends = [0, *(place + 1 for place in cuts)], [*cuts, len(ids)]
        pieces = [self.tokenizer.decode(ids[start:end]) for start, end in zip(starts, ends, strict=True)]
        return [piece if place == 0 else BOS_TEXT + piece for place, piece in enumerate(pieces)]

    def _padded(self, rows: list[list[int]], side: str) -> list[list[int]]:
        longest = max((len(row) for row in rows), default=0)
        missing = [longest - len(row) for row in rows]
        if any(missing) and self.pad_token_id is None:
            raise InputError(
                "texts of different lengths need padding, and this tokenizer has neither BOS nor a token that pads; "
                "give texts of equal length, or one at a time."
            )
        blanks = [[self.pad_token_id or 0] * n for n in missing]
        return [blank + row if side == "left" else row + blank for blank, row in zip(blanks, rows, strict=True)]


def _declared(tokenizer: Tokenizer, role: str, otherwise: int | None) -> int | None:
    """The token that the files of an imported tokenizer declare for a role."""
    declared = tokenizer.declared_id(role) if isinstance(tokenizer, ImportedTokenizer) else None
    return otherwise if declared is None else declared
