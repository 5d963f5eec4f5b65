"""The command `cutaway`: train a GPT, study it, look at it.

Commands live in `apps.commands`, one file per group. What is slow to import (torch, a study) is imported by the
command that needs it, so that `cutaway --help` answers at once.
"""

from __future__ import annotations

from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from apps.commands import ablating, auditing, exchange, looking, remembering, reporting, studying, testing, training
from apps.console import say, sentences


class Speaking(TyperGroup):
    """A command group whose foreseeable errors are sentences, never tracebacks."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        with sentences():
            return super().invoke(ctx)


app = typer.Typer(
    name="cutaway",
    cls=Speaking,
    help="Train a GPT of your own, then see inside it.",
    epilog="A checkpoint is written RUN@STEP, for example runs/demo@512; RUN alone means its last one.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="rich",
)

for command in (
    training.demo, training.train,
    studying.run, studying.studies, remembering.memories, ablating.ablate, reporting.report,
    looking.runs, looking.generate, auditing.audit, looking.dashboard,
):  # fmt: skip
    app.command()(command)
app.command("test")(testing.verdicts)
app.command("import")(exchange.import_)
app.command("export")(exchange.export)


@app.callback(invoke_without_command=True)
def cutaway(
    *, version: Annotated[bool, typer.Option("--version", is_eager=True, help="Print the version and exit.")] = False
) -> None:
    """Train a GPT of your own, then see inside it."""
    if version:
        say(f"cutaway {metadata.version('cutaway')}")
        raise typer.Exit


def main() -> None:
    """The console script."""
    app()


if __name__ == "__main__":
    main()
