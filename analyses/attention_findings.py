"""What the scores of a checkpoint's heads say, in sentences that deny what is not there."""

from __future__ import annotations

from collections.abc import Sequence

from analyses.attention_patterns import Result, found_heads
from analyses.attention_readings import BY_CONTENT, Kind
from analyses.registry import Finding

_NAMES = {
    Kind.INDUCTION: ("induction head", "on the token after the earlier copy"),
    Kind.LATER: ("two-later head", "on the token two after the earlier copy"),
    Kind.DUPLICATE: ("duplicate-token head", "on the earlier copy of the token"),
    Kind.PREVIOUS: ("previous-token head", "on the token before"),
    Kind.CURRENT: ("current-token head", "on the token itself"),
    Kind.FIRST: ("head that rests on position 0", "on position 0"),
}
"""What a head of each kind is called, and where its attention goes."""


def sentences(result: Result) -> list[Finding]:
    """Induction first, then what it looks like on other stimuli, then the other kinds.

    Heads that copy from two tokens after the earlier copy are rare, and are spoken of only where there are some.
    """
    later = Kind.LATER in result.headline and found_heads(result, Kind.LATER)
    return [
        _kind(result, Kind.INDUCTION),
        *_elsewhere(result),
        *([_kind(result, Kind.LATER)] if later else []),
        *(_kind(result, kind) for kind in (Kind.PREVIOUS, Kind.DUPLICATE, Kind.CURRENT, Kind.FIRST)),
    ]


def _kind(result: Result, kind: Kind) -> Finding:
    heads = found_heads(result, kind)
    name, where = _NAMES[kind]
    best = heads[0] if heads else _largest(result, kind)
    share = f"{result.headline[kind].intervals[best]:.2f}"
    if heads:
        opening, needed = f"{_count(len(heads), name)} ({_listed(heads)})", ""
        fact = f"{_label(best)} puts {share} of its attention {where}"
    else:
        opening, needed = f"No {name}", f"; {_rule(result, kind)}"
        fact = f"the largest share of attention {where} is {share} ({_label(best)})"
    against = _comparisons(result, kind, best)
    sentence = f"{opening}: at {_period(result)}, {fact}, against {against}{needed} {_source(result)}."
    return Finding(sentence=sentence, found=bool(heads))


def _largest(result: Result, kind: Kind) -> tuple[int, int]:
    mean = result.headline[kind].intervals.mean
    layer, head = divmod(int(mean.argmax()), mean.shape[1])
    return layer, head


def _rule(result: Result, kind: Kind) -> str:
    """What a head would have to show, and where no head could show it."""
    config = result.config
    if kind not in BY_CONTENT:
        return f"{config.threshold:g} is needed"
    if result.headline.trained:
        return "at a period that training showed, a learned distance cannot be told from a match, so no head counts"
    return f"needed are {config.threshold:g}, {config.times_chance:g} times chance, and under half of it in the control"


def _elsewhere(result: Result) -> list[Finding]:
    """The strongest found induction head by content in the control, and on text."""
    heads = found_heads(result, Kind.INDUCTION)
    if not heads:
        return []
    head, findings = heads[0], []
    if Kind.MATCH in result.control:
        match = result.control[Kind.MATCH]
        interval = match.intervals[head]
        follows = interval.low > match.chance
        sentence = (
            f"Where the second copy is re-ordered, {_label(head)} {'still puts' if follows else 'puts only'} "
            f"{interval:.2f} of its attention on the token after the earlier copy (chance {match.chance:.2f}): it "
            f"{'follows the content' if follows else 'does not follow the content'} {_source(result)}."
        )
        findings.append(Finding(sentence=sentence, found=follows))
    return findings + _on_text(result, head)


def _on_text(result: Result, head: tuple[int, int]) -> list[Finding]:
    if result.text is None or Kind.INDUCTION not in result.text:
        return []
    measure = result.text[Kind.INDUCTION]
    interval = measure.intervals[head]
    above = interval.low > measure.chance
    sentence = (
        f"On held-out text {_label(head)} puts {interval:.2f} of its attention on tokens that followed an earlier "
        f"copy, {'more than' if above else 'no more than'} the {measure.chance:.2f} of even attention"
        f"{_rests(result, head)} (n = {measure.intervals.n} rows, {result.run}@{result.step})."
    )
    return [Finding(sentence=sentence, found=above)]


def _rests(result: Result, head: tuple[int, int]) -> str:
    """Where else its attention goes on text, if most of it goes to position 0."""
    resting = 0.0 if result.text is None else float(result.text[Kind.FIRST].intervals.mean[head])
    return f"; {resting:.2f} goes to position 0" if resting >= result.config.threshold else ""


def _comparisons(result: Result, kind: Kind, head: tuple[int, int]) -> str:
    parts = [f"{result.headline[kind].chance:.2f} by chance"]
    if kind in BY_CONTENT:
        parts.append(
            f"{float(result.control[kind].intervals.mean[head]):.2f} at that distance in the re-ordered control"
        )
    if result.at_step_zero is not None:
        first = result.at_step_zero[result.readings.index(result.headline)]
        parts.append(f"{float(first[kind].intervals.mean[head]):.2f} at step 0")
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _period(result: Result) -> str:
    reading, trained = result.headline, result.trained_periods
    if trained is None:
        return f"period {reading.period} (training showed no repeats)"
    known = "among" if reading.trained else "outside"
    return f"period {reading.period}, {known} training's {trained[0]} to {trained[1]}"


def _source(result: Result) -> str:
    n, level, seed = result.headline.n_sequences, result.config.level, result.config.seed
    return f"(n = {n} sequences, {level:.0%} bootstrap, seed {seed}, {result.run}@{result.step})"


def _count(n: int, name: str) -> str:
    if n == 1:
        return f"One {name}"
    plural = name.replace("head", "heads", 1).replace("that rests", "that rest")
    return f"{n} {plural}"


def _listed(heads: Sequence[tuple[int, int]]) -> str:
    names = [_label(head) for head in heads[:6]]
    return ", ".join(names) + (f" and {len(heads) - 6} more" if len(heads) > 6 else "")


def _label(head: tuple[int, int]) -> str:
    return f"L{head[0]}H{head[1]}"
