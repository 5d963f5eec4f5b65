"""What the studies say of heads, as rows: every head by its standing, the evidence on one, what it costs, who feeds it.

Plain tables of saved results: a page shows them, a notebook makes the same ones. A row says what its number rests on.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from analyses.attention.evidence import Bearing, Evidence, Source
from analyses.attention.harms import COPY, TEXT
from analyses.attention.kinds import Kind
from analyses.attention.verdicts import Standing, Verdict, verdicts
from analyses.attention.words import WORDS
from interp.places import Head, head
from interp.repaired import PARTS
from interp.stats import Interval

SIGNS = {Bearing.FOR: "+ for", Bearing.AGAINST: "− against", Bearing.OPEN: "· open", Bearing.ABSENT: "? absent"}

WAYS = {"q": "queries", "k": "keys", "v": "values"}
"""What a head reads with, by the letter of the composition."""


def verdict_rows(result: Any) -> pd.DataFrame:
    """One row for each head by a result of attention-patterns, the best supported first, then by its score."""
    return listed(verdicts(result))


def listed(every: Sequence[Verdict]) -> pd.DataFrame:
    """The same of verdicts that are at hand."""
    return pd.DataFrame([_row(verdict) for verdict in sorted(every, key=_place)])


def _place(verdict: Verdict) -> tuple[int, float]:
    score = verdict.item(Source.ATTENTION)
    return list(Standing).index(verdict.standing), -(score.value or 0.0) if score else 0.0


def _row(verdict: Verdict) -> dict[str, object]:
    score, copying = verdict.item(Source.ATTENTION), verdict.item(Source.COPYING)
    lost, lost_on_text = verdict.item(Source.ABLATION, COPY), verdict.item(Source.ABLATION, TEXT)
    return {
        "head": verdict.label,
        "standing": verdict.standing.value,
        "attends like": kind_name(verdict),
        "score": None if score is None else score.value,
        "copies, z": None if copying is None else copying.z,
        "copy harm": None if lost is None else lost.value,
        "text harm": None if lost_on_text is None else lost_on_text.value,
    }


def kind_name(verdict: Verdict) -> str:
    """What its attention is like, in a word or two."""
    if verdict.possible:
        return f"{_kind(verdict.possible[0])}?"
    return _kind(verdict.kinds[0]) if verdict.kinds else "–"


def _kind(kind: Kind) -> str:
    return "position 0" if kind is Kind.FIRST else WORDS[kind].name.removesuffix(" head")


def verdict_on(result: Any, place: Head) -> Verdict:
    """The verdict on one head."""
    return next(each for each in verdicts(result) if (each.layer, each.head) == place)


def evidence_rows(verdict: Verdict) -> pd.DataFrame:
    """One row for each item that was measured: which way it bears on a name, value, interval, null, rank and step 0."""
    rows = pd.DataFrame([_item(each) for each in verdict.evidence if each.bearing is not Bearing.ABSENT])
    return rows if verdict.kinds else rows.drop(columns="bears", errors="ignore")


def _item(item: Evidence) -> dict[str, object]:
    return {
        "bears": SIGNS[item.bearing] + ("" if item.bears else " *"),
        "source": item.source.value,
        "what": item.what.replace("_", " "),
        "value": _rounded(item.value),
        "interval": "" if item.low is None else f"[{item.low:.3f}, {item.high:.3f}]",
        "chance": _rounded(item.null),
        "z": _rounded(item.z),
        "p": item.p,
        "rank": "" if item.rank is None else f"{item.rank} of {item.n_heads}",
        "step 0": _rounded(item.step_0),
    }


def _rounded(value: float | None) -> float | None:
    """To the three decimals that are shown, so that none is a negative zero."""
    return None if value is None else round(value, 3) + 0.0


# --- what it costs ---------------------------------------------------------------------------------------------------

COSTS = ["measure", "on", "instead of it", "value", "low", "high", "unit", "p", "step 0", "n", "study"]


GRADIENT = "nothing (gradient)"
"""What stands in a head's place in its importance, which is a derivative: nothing is replaced."""


def cost_rows(results: Mapping[str, Any], place: Head) -> pd.DataFrame:
    """What one head is worth, by every study at hand: harms alone, importance by gradients, what others make good.

    Args:
        results: `Result` of head-ablation, head-importance, self-repair, and attention-patterns, by the study's name;
            the last is asked only where head-ablation is not there.
        place: (layer, head).
    """
    sources = {
        "head-ablation": _harms,
        "attention-patterns": _tried,
        "head-importance": _importance,
        "self-repair": _repairs,
    }
    if "head-ablation" in results:
        del sources["attention-patterns"]
    rows = [row for study, told in sources.items() if study in results for row in told(results[study], place)]
    return pd.DataFrame(rows, columns=COSTS)


def shown_costs(rows: pd.DataFrame) -> pd.DataFrame:
    """The same for half a page: the interval in one column, n and study before what is the same in most rows."""
    ends = zip(rows["low"], rows["high"], strict=True)
    interval = ["" if pd.isna(low) or pd.isna(high) else f"[{low:.3f}, {high:.3f}]" for low, high in ends]
    shown = rows.assign(interval=interval, on=rows["on"].str.removeprefix("loss on "))
    shown["instead"] = rows["instead of it"].replace(GRADIENT, "nothing")
    return pd.DataFrame(
        shown, columns=["measure", "on", "instead", "value", "interval", "n", "study", "p", "step 0", "unit"]
    )


def _cost(measure: str, on: str, instead: str, value: Interval, **more: Any) -> dict[str, Any]:
    low, high = ((end if math.isfinite(end) else None) for end in (value.low, value.high))
    ends = {"value": value.mean, "low": low, "high": high, "n": value.n}
    return {"measure": measure, "on": on, "instead of it": instead, "unit": "nats"} | ends | more


def _harms(result: Any, place: Head) -> Iterator[dict[str, Any]]:
    from analyses.ablation.result import INTERVENTIONS

    for single in result.singles:
        start = None if result.at_step_zero is None else result.at_step_zero.single(single.outcome)
        for at, intervention in enumerate(INTERVENTIONS):
            before = None if start is None else float(start.harm.mean[(at, *place)])
            more = {"p": float(single.p[(at, *place)]), "step 0": before, "study": "head-ablation"}
            yield _cost("harm", single.meaning, intervention.value, single.harm[(at, *place)], **more)


def _tried(result: Any, place: Head) -> Iterator[dict[str, Any]]:
    harms, start = result.harms, result.harms_at_step_zero
    at = harms.place_of(place)
    for on in harms.on if at is not None else ():
        before = None if start is None else start.harm(on.outcome, place)
        more = {"p": float(on.p[at]), "step 0": None if before is None else before.mean, "study": "attention-patterns"}
        yield _cost("harm", on.meaning, "mean", on.harm[at], **more)


def _importance(result: Any, place: Head) -> Iterator[dict[str, Any]]:
    from analyses.importance.result import INTERVENTIONS

    for judged in result.judged:
        start = judged.at_step_zero
        first = None if start is None else float(start.importance[place])
        study = {"study": "head-importance"}
        yield _cost(
            "importance", judged.meaning, GRADIENT, judged.importance[place], **{"step 0": first} | study
        )  # fmt: skip
        for at, intervention in enumerate(INTERVENTIONS):
            before = float(start.zero[place]) if start is not None and intervention.value == "zero" else None
            harm = judged.harm[(at, *place)]
            yield _cost("harm", judged.meaning, intervention.value, harm, **{"step 0": before} | study)


def _repairs(result: Any, place: Head) -> Iterator[dict[str, Any]]:
    instead, label = result.config.intervention.value, head(*place).label
    for repairs in result.repairs:
        row, numbers = repairs.row(label), repairs.numbers
        more = {"study": "self-repair", "unit": "logits"}
        yield _cost("direct effect", repairs.meaning, instead, numbers.direct[row], **more)
        yield _cost("change of the logit", repairs.meaning, instead, numbers.total[row], **more)
        made_good = _cost("total minus direct", repairs.meaning, instead, numbers.repaired[row], **more)
        yield made_good | {"p": float(repairs.p[row])}
        for at, part in enumerate(PARTS):
            yield _cost(f"of it, by {part.value}", repairs.meaning, instead, numbers.by_part[row, at], **more)


# --- whom it reads, and who reads it ---------------------------------------------------------------------------------

PARTNERS = ["direction", "input", "other", "score", "chance", "z", "p", "step 0"]


def partner_rows(weights: Any, at_step_zero: Any, place: Head, n: int = 3) -> pd.DataFrame:
    """By composition of weights, the heads that one head reads most surely and those that read it, for each input.

    Args:
        weights: `Result.weights` of attention-patterns, and
        at_step_zero: the same at step 0, or None.
        place: (layer, head).
        n: heads listed for each input and direction.
    """
    label, rows = head(*place).label, []
    for direction, role in (("reads", "reader"), ("is read by", "writer")):
        for name, known in weights.composition.items():
            alone = 0 if role == "reader" else known.scores.shape[1] - 1
            if place[0] == alone:  # the first layer reads no head, the last is read by none
                continue
            first = None if at_step_zero is None else at_step_zero.composition.get(name)
            for pair in known.strongest(name, n=n, **{role: label}):
                same = () if first is None else first.strongest(name, n=1, reader=pair.reader, writer=pair.writer)
                rows.append(
                    {
                        "direction": direction,
                        "input": WAYS[name],
                        "other": pair.writer if role == "reader" else pair.reader,
                        "score": pair.score,
                        "chance": pair.null_mean,
                        "z": pair.z if pair.null_sd > 0 else None,
                        "p": pair.p_of_all,
                        "step 0": same[0].score if same else None,
                    }
                )
    return pd.DataFrame(rows, columns=PARTNERS)


def path_rows(result: Any, place: Head) -> pd.DataFrame:
    """By head-circuits, what replacing one head's output changes of copying by each way to the induction heads.

    One row for each way and metric, with its interval, share of the whole, p and the same at step 0; no row for a head
    that was not tried as a sender.
    """
    from analyses.circuits.result import METRICS, PATHS

    label, rows = head(*place).label, []
    at = result.senders.index(label) if label in result.senders else None
    for paths in result.paths if at is not None else ():
        start = None if result.at_step_zero is None else result.at_step_zero.by(paths.metric)
        total = paths.total[at]
        before = None if start is None else float(start.total.mean[at])
        every = {"metric": METRICS[paths.metric], "n": total.n}
        rows.append(
            {"way": "everything", "effect": total.mean, "low": total.low, "high": total.high, "share": 1.0}
            | {"p": None, "step 0": before} | every
        )  # fmt: skip
        for way, name in enumerate(PATHS):
            effect = paths.effect[at, way]
            rows.append(
                {
                    "way": WAYS.get(name.lower(), name),
                    "effect": effect.mean,
                    "low": effect.low,
                    "high": effect.high,
                    "share": float(paths.share.mean[at, way]),
                    "p": float(paths.p[at, way]),
                    "step 0": None if start is None else float(start.effect.mean[at, way]),
                }
                | every
            )
    return pd.DataFrame(rows, columns=["way", "effect", "low", "high", "share", "p", "step 0", "n", "metric"])


def probe_rows(result: Any, place: Head) -> pd.DataFrame:
    """By probes, what can be read off the head itself, where it was asked, and off all heads of its layer together."""
    from analyses.probing.tables import site_rows

    layer, label = place[0], head(*place).label
    rows = pd.DataFrame(site_rows(result))
    sites = [label, f"z {layer}", f"L{layer}.attn", f"attn_out {layer}"]
    columns = ["task", "site", "accuracy", "low", "high", "token table", "untrained", "n test"]
    near = rows.loc[rows["site"].isin(sites)]
    return pd.DataFrame(near, columns=columns).reset_index(drop=True)


# --- over training ---------------------------------------------------------------------------------------------------


def rows_over_steps(results: Mapping[int, Any], name: str, on: str, place: Head) -> pd.DataFrame:
    """One score of one head at every step that has a result of attention-patterns: mean, interval, chance."""
    from analyses.heads.score_sources import scores
    from analyses.heads.scores import HeadScores

    rows = []
    for step, result in sorted(results.items()):
        measured = scores({"attention-patterns": result}, name, on)
        if isinstance(measured, HeadScores) and bool(measured.mean[place].isfinite()):
            low, high = (None if end is None else float(end[place]) for end in (measured.low, measured.high))
            row = {"step": step, "tokens": result.tokens_seen, "mean": float(measured.mean[place])}
            rows.append(row | {"low": low, "high": high, "chance": measured.chance})
    return pd.DataFrame(rows, columns=["step", "tokens", "mean", "low", "high", "chance"])
