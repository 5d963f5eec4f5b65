"""Commands that show what there is: runs, generate, dashboard."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from apps.commands.options import Device, Run, Seed
from apps.console import say, stdout

Root = Annotated[Path, typer.Argument(metavar="ROOT", help="The folder that holds the runs.")]


def runs(root: Root = Path("runs")) -> None:
    """List the runs in a folder: what was trained, how far, how well."""
    from model.errors import UnknownNameError
    from model.lab import list_runs

    found = list_runs(root)
    if not found:
        raise UnknownNameError(f"There are no runs in {root}; `cutaway demo` or `cutaway train tiny` makes one.")
    table = Table("run", "norm", "layers x heads", "parameters", "step", "loss", "checkpoints", "studies", box=None)
    for run in found:
        table.add_row(*map(Text, _row(run)))
    stdout().print(table)


def _row(run: Path) -> tuple[str, ...]:
    """What there is to say of a run in one line; one that cannot be read costs its own line only."""
    from model.errors import CutawayError

    try:
        return run.name, *_told(run)
    except CutawayError as error:
        return run.name, f"cannot be read: {error}"
    except (LookupError, TypeError, ValueError, OSError):
        return run.name, "cannot be read: its files are not what training wrote"


def _told(run: Path) -> tuple[str, ...]:
    """Everything but the name."""
    from model.checkpoint import checkpoint_steps
    from model.lab import imported_from, read_metrics, read_run

    record, rows, steps = read_run(run), read_metrics(run), checkpoint_steps(run)
    losses = [row["loss"] for row in rows if row.get("loss") is not None]
    model, reached = record["config"]["model"], steps[-1] if steps else 0
    is_foreign = imported_from(record) is not None
    studies = sorted(path.name for path in run.glob("studies/*") if path.is_dir())
    return (
        model["norm"],
        f"{model['n_layers']} x {model['n_heads']}",
        f"{record['n_params']:,}",
        "imported" if is_foreign else _progress(reached, record["config"]["train"]["steps"]),
        f"{losses[-1]:.3f}" if losses else "",
        str(len(steps)),
        ", ".join(studies),
    )


def _progress(reached: int, asked: int) -> str:
    return f"{reached:,}" if reached == asked else f"{reached:,} of {asked:,}"


def generate(
    subject: Run,
    *,
    prompt: Annotated[str, typer.Option("--prompt", help="The text to go on from; none starts a document.")] = "",
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", min=1, help="How many tokens to add; left out, 100 or what fits.")
    ] = None,
    temperature: Annotated[
        float, typer.Option("--temperature", min=0, help="0 takes the likeliest token each time.")
    ] = 1.0,
    top_k: Annotated[int | None, typer.Option("--top-k", min=1, help="Draw from the k likeliest tokens only.")] = None,
    edit: Annotated[
        str | None,
        typer.Option("--edit", metavar="PLACES", help="Changed while it writes: L1M37:set=2.5, L0H3:zero."),
    ] = None,
    seed: Seed = 0,
    device: Device = "auto",
) -> None:
    """Let a model go on from a prompt."""
    from interp.ablation import ablated
    from interp.places import parse_places
    from model.errors import InputError
    from model.lab import open_run

    places = () if edit is None else parse_places(edit)
    for place in places:
        if place.intervention is None or not place.intervention.stands_alone:
            raise InputError(
                f"{place} takes from other sequences what it puts there, and here are none; write zero, times=2, swap, "
                f"or set=2.5 for memories, as in {place.label}:zero."
            )
    lab = open_run(subject, device=device)
    tokens = lab.tokens(prompt)
    if not tokens.numel():
        raise InputError(f"The tokenizer of {lab.name} has no BOS to begin a document with; give a text as --prompt.")
    room = max(lab.config.n_ctx - tokens.shape[1] + 1, 1)  # the last token is never read, so it needs no position
    wanted = min(100, room) if max_new_tokens is None else max_new_tokens
    with ablated(lab.gpt, places) if places else nullcontext():
        text = lab.gpt.generate(tokens, max_new_tokens=wanted, temperature=temperature, top_k=top_k, seed=seed)[0]
    say(lab.text(text))


def dashboard(
    root: Root = Path("runs"),
    *,
    port: Annotated[
        int, typer.Option("--port", min=1, max=65535, help="Where to listen, on this machine only.")
    ] = 8501,
) -> None:
    """Look at the runs in a browser. Listens on this machine only and sends nothing anywhere."""
    from apps.dashboard.launch import launch

    launch(root, port=port)
