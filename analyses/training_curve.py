"""Did it learn, and from where? The loss of a run against what guessing would give.

A model that knows nothing has a loss of ln V nats per token, V being the number of tokens it can name. Beginning
there says that the initialisation is unbiased; where the curve lies below says how much was learned. Reads
metrics.jsonl, needs no model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pandas as pd
from safetensors import SafetensorError, safe_open

from analyses.figures import CATEGORIES, QUIET, WIDTH, themed
from analyses.registry import Finding
from model.training import eval_rows

Row = Mapping[str, Any]

LINES = {
    "loss": "training batch",
    "eval_loss": "held-out text",
    "copy_loss": "second copy of random tokens",
    "first_copy_loss": "first copy of random tokens",
}
"""Columns of metrics.jsonl that are losses, and what each is over."""

COLOURS = dict(zip(LINES.values(), CATEGORIES, strict=False))
"""The colour of each of them, the same in every figure of losses, whichever others are drawn."""

START_TOLERANCE = 0.25
"""Nats from ln V within which a start counts as unbiased."""

LEAST_GAIN = 0.5
"""Nats below ln V at which a model counts as trained."""


def table(rows: Sequence[Row]) -> pd.DataFrame:
    """The losses in long form: step, tokens, what, loss (nats per token)."""
    long = [
        {"step": row["step"], "tokens": row["tokens"], "what": what, "loss": row[column]}
        for row in rows
        for column, what in LINES.items()
        if row.get(column) is not None
    ]
    return pd.DataFrame(long, columns=["step", "tokens", "what", "loss"])


def start(rows: Sequence[Row], *, d_vocab: int) -> str:
    """Where the loss began, against ln V: says whether the initial model preferred any tokens."""
    losses = _losses(rows, "loss")
    if not losses:
        return "No loss was logged."
    uniform, (step, _, first) = math.log(d_vocab), losses[0]
    side = "above" if first >= uniform else "below"
    gap = f"{abs(first - uniform):.3f} {side} ln\u00a0V = {uniform:.3f} (V = {d_vocab})"
    even = abs(first - uniform) <= START_TOLERANCE
    says = "it began by guessing evenly" if even else "it did not begin by guessing evenly, so its initial weights lean"
    return f"At step {step} the loss of one batch was {first:.3f} nats per token, {gap}: {says}."


def untold(name: str, source: str) -> str:
    """What there is to say about the training of a run that was imported from `source`."""
    return f"{name} was imported from {source}: nothing is on record of how it was trained, or how well it learned."


def n_judged(folder: Path, settings: Mapping[str, Any]) -> int | None:
    """Rows of held-out text behind each logged loss, by run.json and the run's file of rows; None if not on record."""
    train = settings.get("config", {}).get("train", {})
    asked = train.get("eval_sequences") if isinstance(train, dict) else None
    try:
        with safe_open(folder / eval_rows.FILE_NAME, "pt") as held_out:
            return None if asked is None else min(int(asked), held_out.get_slice("tokens").get_shape()[0])
    except (OSError, SafetensorError):
        return None


def findings(
    rows: Sequence[Row], *, d_vocab: int, name: str, seed: int | None, n: int | None = None
) -> tuple[Finding, ...]:
    """Whether anything was learned: where the loss on held-out text ended, against ln V.

    Args:
        rows: of metrics.jsonl.
        d_vocab: tokens that the model can name.
        name: of the run.
        seed: of its training.
        n: rows of held-out text behind each loss, the run's own eval batch (`n_judged`); None if not on record.
    """
    losses = _losses(rows, "eval_loss")
    if not losses:
        sentence = f"{name} has logged no loss on held-out text, so whether it learned is not known."
        return (Finding(sentence=sentence, found=None),)
    uniform, (step, tokens, last) = math.log(d_vocab), losses[-1]
    learned = uniform - last >= LEAST_GAIN
    verdict = (
        f"{uniform - last:.2f} below ln\u00a0V = {uniform:.2f}"
        if learned
        else f"not {LEAST_GAIN} below ln\u00a0V = {uniform:.2f}: it has not learned yet"
    )
    rests = f"seed {'unknown' if seed is None else seed}{'' if n is None else f', n = {n} rows of its eval batch'}"
    sentence = (
        f"At step {step:,} ({tokens:,} tokens, {rests}) the loss of {name} on "
        f"held-out text is {last:.3f} nats per token, {verdict}."
    )
    return (Finding(sentence=sentence, found=learned),)


def _losses(rows: Sequence[Row], column: str) -> list[tuple[int, int, float]]:
    """Step, tokens and loss of every row that has one in `column`."""
    return [(row["step"], row["tokens"], row[column]) for row in rows if row.get(column) is not None]


def tables(runs: Mapping[str, Sequence[Row]]) -> pd.DataFrame:
    """The losses of several runs, by their names, in one long table."""
    return pd.concat([table(rows).assign(run=name) for name, rows in runs.items()], ignore_index=True)


def figure(rows: Sequence[Row], *, d_vocab: int, name: str, other: tuple[str, Sequence[Row]] | None = None) -> Any:
    """Loss over tokens seen, one line for each kind of token, and a rule at ln V.

    Args:
        rows: of metrics.jsonl.
        d_vocab: tokens that the model can name.
        name: of the run.
        other: name and rows of another run, drawn in dashes.
    """
    long = tables({name: rows} | ({} if other is None else dict([other])))
    kinds = [kind for kind in dict.fromkeys(LINES.values()) if kind in set(long["what"])]
    uniform = math.log(d_vocab)
    dashes = alt.StrokeDash(
        "run:N", sort=None, scale=alt.Scale(domain=list(dict.fromkeys(long["run"])), range=[[1, 0], [5, 4]]),
        legend=None if other is None else alt.Legend(title="run", orient="top", symbolType="stroke"),
    )  # fmt: skip
    lines = (
        alt.Chart(long)
        .mark_line(interpolate="monotone")
        .encode(
            x=alt.X("tokens:Q", title="tokens seen", axis=alt.Axis(format="~s", tickCount=6)),
            y=alt.Y("loss:Q", title="loss (nats per token)", scale=alt.Scale(zero=True)),
            color=alt.Color("what:N", title="loss on",
                            scale=alt.Scale(domain=kinds, range=[COLOURS[kind] for kind in kinds]),
                            legend=alt.Legend(orient="top", columns=2)),
            tooltip=["run", "step", alt.Tooltip("tokens:Q", format=","), "what", alt.Tooltip("loss:Q", format=".3f")],
        )
    )  # fmt: skip
    if other is not None:
        lines = lines.encode(strokeDash=dashes)
    guess = pd.DataFrame(
        {
            "uniform": [uniform],
            "tokens": [max(long["tokens"].tolist())],
            "label": [f"ln\u00a0V = {uniform:.2f}: guessing evenly"],
        }
    )
    rule = alt.Chart(guess).mark_rule(strokeDash=[5, 4], color=QUIET).encode(y="uniform:Q")
    words = (
        alt.Chart(guess)
        .mark_text(align="right", baseline="top", dy=5, color=QUIET)
        .encode(x="tokens:Q", y="uniform:Q", text="label:N")
    )
    title = f"The loss of {name}" + ("" if other is None else f" (dashes: {other[0]})")
    chart = alt.layer(lines, rule, words).properties(width=WIDTH, height=280, title=title)
    return themed(chart)
