"""The command that asks one causal question: cutaway ablate."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from apps.commands.options import Device, Json, Metric, Run, Seed
from apps.console import say
from apps.progress import bar

if TYPE_CHECKING:
    from interp.ablation import Ablation
    from interp.dose import DoseResponse
    from interp.effects import AblationEffect
    from interp.token_harms import TokenHarms
    from interp.trials import Bench
    from model.lab import Lab

USUAL, MOST = 64, 512
"""Sequences of each kind: as many as that, and at most where it stops once decided."""


def ablate(
    subject: Run,
    places: Annotated[
        str,
        typer.Argument(
            metavar="PLACES",
            help="Such as L1H1,L1H3:mean or L0.ffn:zero; after the colon zero, mean, mean@pos, mean@seq, resample, "
            "counterfactual or optimal; or times=2, set=2.5 (memories), swap (two or more of a layer).",
        ),
    ],
    *,
    metric: Metric = "copy_loss",
    gate: Annotated[float, typer.Option("--gate", help="The share of what was there that stays, 0 to 1.")] = 0.0,
    dose: Annotated[bool, typer.Option("--dose", help="Also a quarter, a half, three quarters of it.")] = False,
    positions: Annotated[
        str | None, typer.Option("--positions", metavar="10-20,30", help="Replace there only; BOS is position 0.")
    ] = None,
    freeze_patterns: Annotated[
        bool, typer.Option("--freeze-patterns", help="Keep every later pattern as in the intact run.")
    ] = False,
    by_token: Annotated[bool, typer.Option("--by-token", help="Also say at which tokens it hurts.")] = False,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Stop once the interval tells the harm from --bound.")
    ] = False,
    bound: Annotated[
        float, typer.Option("--bound", min=0.0, help="The harm that matters, in the metric's unit.")
    ] = 0.05,
    n: Annotated[
        int | None,
        typer.Option(
            "-n", min=2, help="Sequences of each kind.", show_default=f"{USUAL}; {MOST} at most with --until-decided",
        ),
    ] = None,
    period: Annotated[
        int | None, typer.Option("--period", help="Of the repeated tokens; the run's own if left out.")
    ] = None,
    controls: Annotated[int, typer.Option("--controls", min=0, help="Matched sets, at most.")] = 100,
    match: Annotated[
        str, typer.Option("--match", help="activity: memories against others that write about as much; layer: any.")
    ] = "activity",
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:  # fmt: skip
    """Remove heads, memories or whole sublayers together, and say what it costs, with an interval and a control."""
    from interp.ablation import Frozen, ablation_of, parse_positions
    from interp.effects import benches_for, effect_of
    from interp.matched_places import Matching
    from interp.outcomes import get_outcome
    from interp.places import parse_places
    from interp.token_harms import require_parts
    from model.errors import InputError
    from model.lab import open_run
    from model.settings import as_enum

    if dose and (gate or until_decided):
        other = "--gate" if gate else "--until-decided"
        raise InputError(f"--dose tries every gate on the same sequences; leave out {other}.")
    parse_places(places)  # and the other arguments that need no model: before a checkpoint is opened
    where = None if positions is None else parse_positions(positions)
    get_outcome(metric, period=2)
    matching = as_enum(Matching, match, "match")
    with bar("ablate") as shown:
        lab = open_run(subject, device)
        frozen = Frozen.PATTERNS if freeze_patterns else Frozen.NOTHING
        ablation = ablation_of(places, lab.config, gate=gate, positions=where, frozen=frozen)
        most = n or (MOST if until_decided else USUAL)
        bench, before = benches_for(lab, ablation, metric=metric, n_sequences=most, seed=seed, period=period)
        if by_token:
            require_parts(bench, metric)
        until = bound if until_decided else None
        effect = effect_of(
            bench,
            ablation,
            metric=metric,
            seed=seed,
            n_controls=controls,
            matching=matching,
            before=before,
            until=until,
            counted=shown.on_progress,
        )
        curve = _curve(bench, ablation, metric, seed) if dose else None
        shown_on = bench.first(USUAL) if until_decided else bench  # a number that no harm chose
        tokens = _tokens(lab, shown_on, ablation, metric, seed) if by_token else None
    say(_record(effect, lab, period, curve, tokens) if as_json else _sentences(effect, bound, curve, tokens))


def _curve(bench: Bench, ablation: Ablation, metric: str, seed: int) -> DoseResponse:
    from interp.dose import dose_response

    return dose_response(bench, ablation, metric=metric, seed=seed)


def _tokens(lab: Lab, bench: Bench, ablation: Ablation, metric: str, seed: int) -> TokenHarms:
    from interp.token_harms import token_harms

    return token_harms(bench, ablation, metric=metric, tokenizer=lab.tokenizer, seed=seed)


def _sentences(effect: AblationEffect, bound: float, curve: DoseResponse | None, tokens: TokenHarms | None) -> str:
    from apps.ablation_lines import dose_lines, token_lines
    from interp.wording import effect_sentences

    lines = list(effect_sentences(effect, floor=bound))
    lines += [] if curve is None else ["", *dose_lines(curve)]
    lines += [] if tokens is None else ["", *token_lines(tokens)]
    return "\n".join(lines)


def _record(
    effect: AblationEffect, lab: Lab, period: int | None, curve: DoseResponse | None, tokens: TokenHarms | None
) -> str:
    from apps.ablation_record import record
    from interp.periods import deciding_period

    whole = record(effect, period=period or deciding_period(lab), curve=curve, tokens=tokens)
    return json.dumps(whole, indent=1, ensure_ascii=False, allow_nan=False)
