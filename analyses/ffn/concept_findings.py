"""Whether what FFN values promote has something in common, in a sentence (for `analyses.ffn.findings`)."""

from __future__ import annotations

from analyses.ffn.reading import ALPHA
from analyses.ffn.result import Result
from analyses.ffn.summary import LayerSummary
from analyses.ffn.wording import opening, source_of_layers
from analyses.registry import Finding
from analyses.verdicts import Verdict, extremes, told
from analyses.wording import points, share_of
from interp.share_intervals import difference_interval, level_of_each, share_interval
from interp.stats import Interval, holm

CONCEPT_FLOOR = 0.05
"""Smallest excess over random directions of the share of values with a concept that is claimed."""


def concepts(result: Result) -> Finding:
    """Whether values promote tokens that have something in common, more often than random directions."""
    summaries = result.reading.summary.layers
    adjusted = holm([layer.concepts.p for layer in summaries]).tolist()
    cases = [_has_concepts(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    more = f"more often, by {points(CONCEPT_FLOOR)} or more, than random directions do"
    what = f"values promote tokens that have something in common {more}"
    begins = opening(cases, what, f"do {what}")
    said = [_concepts_of(result, layer, p) for layer, p in zip(summaries, adjusted, strict=True)]
    shares = [0.0 if layer.concepts.share is None else layer.concepts.share.mean for layer in summaries]
    sentence = (
        f"{begins} (a rule covers at least 4 of the 30 most promoted, and more than of 30 random tokens): "
        f"{extremes(said, shares)} (p after Holm at {ALPHA:g}; "
        f"{source_of_layers(result)})."
    )
    return Finding(sentence=sentence, found=told(cases))


def _has_concepts(result: Result, layer: LayerSummary, p: float) -> Verdict:
    now, random, start = _shares(result, layer)
    if now is None or random is None:
        return Verdict.OPEN
    above = difference_interval(now, random)
    if p < ALPHA and above.low >= CONCEPT_FLOOR and (start is None or now.low > start.high):
        return Verdict.EFFECT
    return Verdict.BELOW if above.high < CONCEPT_FLOOR else Verdict.OPEN


def _shares(result: Result, layer: LayerSummary) -> tuple[Interval | None, Interval | None, Interval | None]:
    """Of values, of random directions and of values at step 0, with intervals that hold in all layers together."""

    def share(found: Interval | None, n: int) -> Interval | None:
        return None if found is None else share_interval(round(found.mean * n), n, level_of_each(result.n_layers))

    now = layer.concepts
    start = None if result.initial is None else result.initial.layers[layer.layer].concepts
    return (
        share(now.share, now.n),
        share(now.random, now.n_random),
        None if start is None else share(start.share, start.n),
    )


def _concepts_of(result: Result, layer: LayerSummary, p: float) -> str:
    now, random, start = _shares(result, layer)
    at_start = "" if result.initial is None else f", at step 0 {share_of(start)}"
    return (
        f"layer {layer.layer} {share_of(now)} of {layer.concepts.n} values against {share_of(random)} of "
        f"{layer.concepts.n_random} directions, p={p:.2g}{at_start}"
    )
