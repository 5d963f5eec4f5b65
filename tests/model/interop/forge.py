"""Tokenizers of other programs, forged small: byte-level as in GPT-2, SmolLM2 and Llama 3, metaspace as in Llama 2."""

from __future__ import annotations

import json
from typing import Any

from model.tokenizer import BPETokenizer

TEXT = "the cat sat on the mat, the cat sat. def café(x): return 2024\n" * 20
HOSTILE = (
    *(
        "",
        " ",
        "  two  spaces ",
        "\n",
        "\t\r\n x",
        "caf\u00e9 cafe\u0301",
        "\u0301lone",
        "\U0001f600\U0001f468\u200d\U0001f469",
    ),
    *(
        "<bos>",
        "<s>the cat</s>",
        "a<|endoftext|>b",
        "<|im_start|>",
        "\x00\x1f",
        "\u00ad\ufeff\u2028",
        "the cat sat 12345",
    ),
    *("<0x41>", "don't", "\u4e2d\u6587", "'" * 40),
)
"""Texts that a careless tokenizer changes."""


def gpt2_definition() -> str:
    """GPT-2's kind: one special token behind the vocabulary, which is in the vocabulary as well."""
    plain = json.loads(BPETokenizer.train(TEXT, 280).definition)
    plain["model"]["vocab"]["<|endoftext|>"] = 279
    plain["added_tokens"] = [special("<|endoftext|>", 279)]
    bytes_again = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    plain |= {"post_processor": bytes_again, "decoder": bytes_again}
    return json.dumps(plain)


def smollm_definition() -> str:
    """SmolLM2's kind: special tokens first, digits apart."""
    plain = json.loads(gpt2_definition())
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    words = {token: index + 3 for token, index in plain["model"]["vocab"].items() if token not in names}
    plain["model"]["vocab"] = {name: index for index, name in enumerate(names)} | words
    plain["added_tokens"] = [special(name, index) for index, name in enumerate(names)]
    plain["pre_tokenizer"] = {
        "type": "Sequence",
        "pretokenizers": [{"type": "Digits", "individual_digits": True}, plain["pre_tokenizer"]],
    }
    return json.dumps(plain)


def llama3_definition() -> str:
    """Llama 3's kind: a regex before the bytes, no merges for whole words, special tokens outside the vocabulary."""
    plain = json.loads(BPETokenizer.train(TEXT, 280).definition)
    plain["model"]["ignore_merges"] = True
    regex = {"type": "Split", "pattern": {"Regex": r"\p{L}+|\p{N}{1,3}|\s+|[^\s\p{L}\p{N}]+"}, "behavior": "Isolated"}
    to_bytes = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    plain["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [regex | {"invert": False}, to_bytes]}
    plain["added_tokens"] = [special("<|begin_of_text|>", 279), special("<|end_of_text|>", 280)]
    plain["post_processor"] = in_front("<|begin_of_text|>", 279)
    return json.dumps(plain)


def llama2_definition(*, cut: bool = False) -> str:
    """Llama 2's kind: metaspace and byte fallback, as a normalizer (older files) or, with `cut`, as a pre-tokenizer."""
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{value:02X}>" for value in range(256)), "\u2581", *"abcdehmnorst,.A\u00e9"]
    merges = [("\u2581", "t"), ("\u2581t", "h"), ("\u2581th", "e"), ("a", "t"), ("\u2581", "\u2581")]
    pieces += ["".join(pair) for pair in merges]
    prepend, replace = {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "content": "\u2581"}
    normalizer = {"type": "Sequence", "normalizers": [prepend, replace | {"pattern": {"String": " "}}]}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    model = {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None}
    model |= {"end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False}
    plain: dict[str, Any] = {
        "version": "1.0",
        **{"truncation": None, "padding": None, "post_processor": in_front("<s>", 1)},
        "added_tokens": [special(name, index) for index, name in enumerate(pieces[:3])],
        "normalizer": None if cut else normalizer,
        "pre_tokenizer": metaspace if cut else None,
        "decoder": {"type": "Sequence", "decoders": [replace | {"pattern": {"String": "\u2581"}, "content": " "}]},
        "model": model | {"vocab": {piece: index for index, piece in enumerate(pieces)}, "merges": merges},
    }
    plain["decoder"]["decoders"] += [{"type": "ByteFallback"}, {"type": "Fuse"}]
    plain["decoder"]["decoders"] += [{"type": "Strip", "content": " ", "start": 1, "stop": 0}]
    return json.dumps(plain)


def special(content: str, index: int) -> dict[str, Any]:
    """An entry of added_tokens that is special."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": index, "content": content, **flags}


def in_front(content: str, index: int) -> dict[str, Any]:
    """The post-processor that puts a special token before a text."""
    first, text = {"SpecialToken": {"id": content, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    ids = {content: {"id": content, "ids": [index], "tokens": [content]}}
    return {"type": "TemplateProcessing", "single": [first, text], "pair": [first, text], "special_tokens": ids}
