"""Other people's models as runs, and runs as other people's models.

An imported run is a folder like those that training leaves: `run.json`, `tokenizer.json`, held-out rows and one
checkpoint, so that everything that opens a run opens it. What is not known stays unsaid: there is no metrics.jsonl, no
step 0, and run.json has no training settings but `imported`, which says where the model came from.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from model.checkpoint import save_checkpoint, stored_weights, weights_sha256
from model.config import FFNKind, Positions
from model.errors import ConfigError, InputError, TrainingError, UnknownNameError, closest
from model.files import atomic_folder, clean_leftovers, write_json
from model.gpt import GPT
from model.interop import Imported
from model.interop.given_tokenizer import SPELLINGS, given_tokenizer, text_of_characters
from model.interop.recognise import Kind, recognised
from model.interop.remarks import on_padding
from model.settings import to_plain
from model.tokenizer import Tokenizer
from model.training import eval_rows, run_files
from model.training.batches import BatchSource
from model.training.corpus import Corpus, build_corpus
from model.training.eval_rows import EvalRows
from model.training.sources import DataConfig

if TYPE_CHECKING:
    from model.lab import Lab

FORMATS = ("hf",)
"""What `export_model` can write."""
TOKENIZER = "tokenizer.json"
STEP_UNKNOWN = 1
"""The step of a checkpoint whose file says none: not 0, which means untrained here."""


def text_of(sources: Sequence[str], *, held_out: float = 0.25) -> DataConfig:
    """The settings under which an imported model is given text: nothing is trained, so that much can be held out."""
    return DataConfig(sources=tuple(sources), held_out=held_out, stdlib_bytes=1_000_000)


def import_model(
    where: str | Path,
    out: str | Path,
    *,
    data: DataConfig | None = None,
    n_ctx: int | None = None,
    tokenizer: str | None = None,
    ffn: str | None = None,
) -> Path:
    """Make the run `out` of another program's model; nothing is left behind where that fails.

    Args:
        where: a Hugging Face directory, a name on its hub, a .gguf file, or a nanoGPT ckpt.pt, told by its content.
        out: the run's folder, which must not exist or be empty.
        data: the text it is to be studied on; left out, the standard library's, or that of `tokenizer="chars:FILE"`.
        n_ctx: a shorter context than the model's; a longer one where positions are not learned.
        tokenizer: in place of the one in the source, or where it has none; see `given_tokenizer`.
        ffn: for a nanoGPT checkpoint, which does not say its GELU: `gelu`, or `gelu_tanh` for code before June 2023.
    """
    out = Path(out)
    data = _default_data(tokenizer) if data is None else _checked_data(data)
    recognised(where)  # what is a run already, or nothing at all, is said before anything about `out`
    _refuse_unless_free(out)
    with run_files.claimed(out):
        if out.parent.is_dir():
            clean_leftovers(out.parent)
        imported = with_context(opened(where, tokenizer, ffn=ffn), n_ctx)
        cut_by = _tokenizer_of(imported)
        corpus, rows = _text(data, cut_by, imported.gpt.config.n_ctx)
        with atomic_folder(out, TrainingError) as folder:
            cut_by.save(folder / TOKENIZER)
            rows.save(folder / eval_rows.FILE_NAME)
            step = imported.step or STEP_UNKNOWN
            save_checkpoint(folder, imported.gpt, step=step, tokens_seen=0, extra_json={"imported": imported.source})
            write_json(folder / run_files.FILE_NAME, _description(imported, data, corpus))
    return out


def opened(where: str | Path, tokenizer: str | None = None, *, ffn: str | None = None) -> Imported:
    """The model at `where`, by whichever reader its content asks for."""
    found = recognised(where)
    if ffn is not None and found.kind is not Kind.NANOGPT:
        raise InputError(f"{found.kind.value[0].upper()}{found.kind.value[1:]} says its own FFN; leave out ffn={ffn}.")
    if found.kind is Kind.NANOGPT:
        from model.interop.nanogpt import from_nanogpt

        return from_nanogpt(found.where, tokenizer, ffn=ffn or FFNKind.GELU)
    if found.kind is Kind.GGUF:
        from model.interop.gguf import from_gguf

        imported = from_gguf(found.where, with_tokenizer=tokenizer is None)
    else:
        from model.interop.hf import from_hf

        imported = from_hf(found.where, with_tokenizer=tokenizer is None, from_hub=found.kind is Kind.HUB)
    if tokenizer is None:
        return imported
    given = given_tokenizer(tokenizer, imported.gpt.config.d_vocab)
    return replace(imported, tokenizer=given, notes=(*imported.notes, *on_padding(given)))


def with_context(imported: Imported, n_ctx: int | None) -> Imported:
    """The model with another context, as a copy; learned positions are cropped, and cannot be made more."""
    own = imported.gpt.config
    if (own.n_ctx if n_ctx is None else n_ctx) < 2:
        raise ConfigError(
            f"A context of {n_ctx or own.n_ctx} leaves no next token to predict; give an n_ctx of 2 or more."
        )
    if n_ctx is None or n_ctx == own.n_ctx:
        return imported
    config, is_learned = own.varied(n_ctx=n_ctx), own.positions is Positions.LEARNED
    if n_ctx > own.n_ctx and is_learned:
        raise ConfigError(
            f"n_ctx={n_ctx} is longer than the model's context of {own.n_ctx}, and its positions are learned: there "
            f"are none beyond. Take at most {own.n_ctx}."
        )
    if n_ctx < own.n_ctx:
        cropped = ", and its learned positions with it" if is_learned else ""
        note = f"The context was cropped from {own.n_ctx} to {n_ctx} tokens{cropped}."
    else:
        note = (
            f"The context was lengthened from {own.n_ctx} to {n_ctx} tokens; beyond {own.n_ctx} the model is untried."
        )
    gpt = GPT(config).to(imported.gpt.dtype).eval()
    with torch.no_grad():
        for (name, place), weights in zip(
            stored_weights(gpt).items(), stored_weights(imported.gpt).values(), strict=True
        ):
            place.copy_(weights[:n_ctx] if name == "pos_embed.weight" else weights)
    return replace(imported, gpt=gpt, notes=(*imported.notes, note))


def _refuse_unless_free(out: Path) -> None:
    if (out / run_files.FILE_NAME).exists():
        raise TrainingError(f"{out} already holds a run; choose another --out.")
    run_files.refuse_unless_free(out, resume=False)


def _default_data(tokenizer: str | None) -> DataConfig:
    """A character model knows the characters of its own text only, of which nanoGPT holds out the last tenth."""
    text = text_of_characters(tokenizer)
    return text_of(["stdlib"]) if text is None else text_of([f"text:{text}"], held_out=0.1)


def _checked_data(data: DataConfig) -> DataConfig:
    if not all(source.is_text for source in data.parsed_sources):
        raise ConfigError(
            "repeats is no text to hold out: it is what training shows, and an imported model is trained already. "
            "Give stdlib or text:PATH."
        )
    return data


def _tokenizer_of(imported: Imported) -> Tokenizer:
    d_vocab = imported.gpt.config.d_vocab
    if imported.tokenizer is None:
        said = [note for note in imported.notes if "tokenizer" in note] or [f"{imported.source} gives none."]
        raise InputError(f"A run needs a tokenizer. {' '.join(said)} With --tokenizer give {SPELLINGS}.")
    if imported.tokenizer.d_vocab != d_vocab:
        raise InputError(
            f"The tokenizer has {imported.tokenizer.d_vocab} tokens, and the model of {imported.source} {d_vocab}; "
            f"give the one that it was trained with: {SPELLINGS}."
        )
    return imported.tokenizer


def _text(data: DataConfig, tokenizer: Tokenizer, n_ctx: int) -> tuple[Corpus, EvalRows]:
    """The text of `data` cut by the model's own tokenizer, and its held-out rows."""
    named = ", ".join(source.name for source in data.parsed_sources)
    try:
        corpus = build_corpus(data, tokenizer)
    except InputError as fault:
        raise InputError(f"{fault} For an import, --data names text that the model's tokenizer can cut.") from None
    special = tokenizer.bos is not None
    longest = special + min(_longest(corpus.held_out.spans), _longest(corpus.train.spans) - 1)
    if longest < n_ctx:
        raise InputError(
            f"No row of {n_ctx} tokens, the model's context, fits into the documents of {named}: give --n-ctx "
            f"{max(longest, 2)} or less, or longer text with --data."
        )
    return corpus, BatchSource(data, corpus, tokenizer, n_ctx).eval_rows()


def _longest(spans: Any) -> int:
    return int((spans[:, 1] - spans[:, 0]).max(initial=0))


def _description(imported: Imported, data: DataConfig, corpus: Corpus) -> dict[str, Any]:
    """The content of run.json."""
    config = imported.gpt.config
    text = {key: value for key, value in to_plain(data).items() if key != "tokenizer"}  # it is the model's own
    return {
        "format": run_files.FORMAT,
        "config": {"model": to_plain(config), "data": text},
        "imported": {
            "source": imported.source,
            "format": imported.format,
            "notes": list(imported.notes),
            "weights_sha256": weights_sha256(imported.gpt),
            "step": imported.step,
            "when": datetime.now(UTC).isoformat(timespec="seconds"),
        },
        "n_params": config.n_params,
        "n_params_non_embedding": config.n_params_non_embedding,
        "flops_per_token": config.flops_per_token(),
        **corpus.describe(),
        "ln_d_vocab": math.log(config.d_vocab),
        "versions": run_files.versions(),
    }


@dataclass(frozen=True, kw_only=True)
class Exported:
    """What an export wrote."""

    folder: Path
    files: dict[str, int]
    """Size in bytes of every file, by name."""


def export_model(lab: Lab, folder: str | Path, format: str = "hf") -> Exported:
    """Write an opened checkpoint, tokenizer included, as another program's model; whole or not at all.

    Args:
        lab: the opened checkpoint.
        folder: where to; must not exist or be empty.
        format: `hf`: what `AutoModelForCausalLM.from_pretrained` opens.

    Raises:
        InputError: `lab` is a path and no opened run, or `folder` is not empty, or inside a run.
        ConfigError: the format has no counterpart for the model; the sentence names the field.
    """
    if not hasattr(lab, "gpt"):
        raise InputError(f"export_model takes an opened run, not {lab!r}; give open_run({str(lab)!r}).")
    folder = Path(folder)
    if format not in FORMATS:
        raise UnknownNameError(f'There is no export format "{format}".{closest(format, FORMATS)} There is hf.')
    inside = next((above for above in folder.resolve().parents if (above / run_files.FILE_NAME).is_file()), None)
    if inside is not None:
        raise InputError(f"{folder} is inside the run {inside.name}, whose folder is its own; choose another place.")
    from model.interop.hf import to_hf

    to_hf(lab.gpt, lab.tokenizer, folder)
    return Exported(folder=folder, files={file.name: file.stat().st_size for file in sorted(folder.iterdir())})
