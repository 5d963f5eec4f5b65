"""Commands that take models in and give them out: import and export."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.options import Out, Run
from apps.console import remark, say

if TYPE_CHECKING:
    from model.interop.exchange import Exported


def import_(
    where: Annotated[
        str,
        typer.Argument(metavar="WHERE", help="A Hugging Face directory or hf:NAME, a .gguf file, a nanoGPT ckpt.pt."),
    ],
    *,
    out: Out = None,
    data: Annotated[
        list[str],
        typer.Option("--data", metavar="stdlib|text:PATH", help="Text to study it on; left out, stdlib; repeatable."),
    ] = [],  # noqa: B006  (typer reads it and never changes it)
    n_ctx: Annotated[
        int | None, typer.Option("--n-ctx", min=2, help="A context other than the model's, in tokens: usually shorter.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option("--tokenizer", metavar="bytes|chars:FILE|FOLDER", help="Where the source has none, or another."),
    ] = None,
    ffn: Annotated[
        str | None,
        typer.Option("--ffn", metavar="gelu|gelu_tanh", help="nanoGPT only: gelu_tanh for code before June 2023."),
    ] = None,
) -> None:
    """Make a run of a model that another program trained."""
    from model.interop.exchange import import_model, text_of

    folder = out or Path("runs") / _name_of(where)
    chosen = text_of(data) if data else None
    remark(f"Opening {where} ...")
    import_model(where, folder, data=chosen, n_ctx=n_ctx, tokenizer=tokenizer, ffn=ffn)
    _tell_import(folder)


def export(
    subject: Run,
    *,
    out: Annotated[Path, typer.Option("--out", metavar="FOLDER", help="Where to write; must be empty.")],
    format: Annotated[str, typer.Option("--format", metavar="hf", help="hf: a Hugging Face directory.")] = "hf",
) -> None:
    """Write a checkpoint as another program's model, tokenizer included."""
    from model.interop.exchange import export_model
    from model.lab import open_run

    lab = open_run(subject)
    _tell_export(f"{lab.path}@{lab.step}", export_model(lab, out, format))


def _name_of(where: str) -> str:
    """What to call the run: the source's own name, and for out/ckpt.pt that of its folder."""
    path = Path(where.removeprefix("hf:"))
    named = path.resolve() if path.exists() else path
    if named.stem in ("ckpt", "model", "config", "pytorch_model") and named.suffix:
        return named.parent.name
    return named.stem if named.suffix in (".gguf", ".pt", ".pth") else named.name


def _tell_import(folder: Path) -> None:
    """What was made of it, and every note."""
    from model.checkpoint import checkpoint_steps
    from model.lab import read_run

    record, (step,) = read_run(folder), checkpoint_steps(folder)
    for note in record["imported"]["notes"]:
        remark(note)
    model = record["config"]["model"]
    say(
        f"Imported {record['imported']['source']} as {folder}@{step}: {record['n_params']:,} parameters, "
        f"{model['n_layers']} layers of {model['n_heads']} heads, context {model['n_ctx']}."
    )
    say(f"Next: cutaway generate {folder} --prompt TEXT, or cutaway run attention-patterns {folder}")


def _tell_export(spec: str, written: Exported) -> None:
    """The files, and how the other side opens them."""
    files = ", ".join(f"{name} ({size:,} bytes)" for name, size in written.files.items())
    say(f"Wrote {spec} to {written.folder}: {files}.")
    say("On the other side:")
    say("    from transformers import AutoModelForCausalLM, AutoTokenizer")
    say(f"    model = AutoModelForCausalLM.from_pretrained({str(written.folder)!r})")
    say(f"    tokenizer = AutoTokenizer.from_pretrained({str(written.folder)!r})")
