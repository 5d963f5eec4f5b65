"""Tables of one ablation in plain lines, as wide as the terminal: the dose-response curve, and where it hurts."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence

from interp.dose import DoseResponse
from interp.stats import Interval
from interp.token_harms import Group, HurtToken, TokenHarms
from interp.wording import fine, number

WIDEST, NARROWEST = 120, 76
"""Columns that lines have at most, and at least: beyond, an eye loses the line; below, nothing fits."""

_BAR = 20


def width_of_terminal() -> int:
    """Columns to fill; 100 where nobody looks at a terminal."""
    return max(NARROWEST, min(WIDEST, shutil.get_terminal_size((100, 24)).columns))


def dose_lines(curve: DoseResponse, width: int | None = None) -> list[str]:
    """One line for each gate: what stays, the harm with its interval, and how far it lies from a straight line."""
    rows = [
        [
            f"{gate:.0%}",
            _mean(curve.harm[place]),
            _ends(curve.harm[place]),
            _signed(curve.bend[place]) if gate not in (0, 1) else "",
            _ends(curve.bend[place]) if gate not in (0, 1) else "",
        ]
        for place, gate in enumerate(curve.gates)
    ]
    what = "is taken out" if max(curve.gates) <= 1 else "there is"
    title = f"How much of it {what} (harm in {curve.unit}, n = {curve.harm.n} sequences, paired)"
    lines = _aligned(["stays", "harm", "95% interval", "off a line", "95% interval"], rows)
    return [title, *_barred(lines, curve.harm.mean.tolist(), width), *_OFF_A_LINE]


_OFF_A_LINE = (
    "off a line: harm beyond the straight line between the two ends; where it is",
    "negative, what is left makes up for part of what is gone.",
)


def token_lines(tokens: TokenHarms, width: int | None = None) -> list[str]:
    """Where it hurts: by position, by kind, by what came before, and the tokens that lose most, in context."""
    top = "" if tokens.top_share is None else f"; a tenth of the targets carry {tokens.top_share:.0%} of all rises"
    lines = [
        f"Where it hurts: {tokens.n_targets:,} targets of {tokens.n_sequences} sequences, harm in {tokens.unit}{top}",
        "",
    ]
    for title, groups in (
        (tokens.positions, tokens.by_position),
        ("predicted token", tokens.by_kind),
        ("history", tokens.by_history),
    ):
        lines += [*_groups(title, groups, width), ""] if groups else []
    if not tokens.worst:
        return [*lines, "No target loses anything."]
    return [*lines, "The targets that lose most (large by selection)", *_worst(tokens.worst, width)]


def _groups(title: str, groups: Sequence[Group], width: int | None) -> list[str]:
    rows = [
        [
            group.label,
            f"{group.n_targets:,}",
            _mean(group.harm),
            _ends(group.harm),
            "" if group.share is None else f"{group.share:.0%}",
        ]
        for group in groups
    ]
    lines = _aligned([title, "targets", "harm", "95% interval", "of the whole"], rows)
    return _barred(lines, [group.harm.mean for group in groups], width)


def _worst(worst: Sequence[HurtToken], width: int | None) -> list[str]:
    """One line for each: harm, what the intact model has there, where it is, and the token behind what came before."""
    rows = [[number(each.harm), number(each.clean), f"{each.sequence}:{each.position}"] for each in worst]
    heads = _aligned(["harm", "intact", "row:pos"], rows)
    room = (width or width_of_terminal()) - len(heads[0]) - 2
    contexts = ["before, and the [target]", *(_context(each, room) for each in worst)]
    return [f"{head}  {context}" for head, context in zip(heads, contexts, strict=True)]


def _context(hurt: HurtToken, room: int) -> str:
    """As many tokens before it as there is room for, whole ones only, and the token itself in brackets."""
    shown = f"[{hurt.token}]"
    for token in reversed(hurt.before):
        if len(token) + len(shown) + 1 > room:
            return f"…{shown}"
        shown = token + shown
    return shown


def _aligned(header: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Columns under their headers: the first to the left, numbers to the right."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(size) for cell, size in zip(row[1:], widths[1:], strict=True))]
        )
        for row in [header, *rows]
    ]


def _barred(lines: Sequence[str], values: Sequence[float], width: int | None) -> list[str]:
    """Lines of a table with a bar behind each row that rises, as long as there is room; a fall has none."""
    longest = min(_BAR, (width or width_of_terminal()) - len(lines[0]) - 2)
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    bars = [
        round(longest * max(0.0, value) / largest) if largest > 0 and math.isfinite(value) else 0 for value in values
    ]
    head, *rows = lines
    return [head.rstrip(), *(f"{row}  {'█' * bar}".rstrip() for row, bar in zip(rows, bars, strict=True))]


def _mean(interval: Interval) -> str:
    return _told(interval)[0]


def _ends(interval: Interval) -> str:
    _, *ends = _told(interval)
    return f"[{', '.join(ends)}]" if ends else "too few"


def _told(interval: Interval) -> tuple[str, ...]:
    """The mean and its ends; no ends where too few sequences bound it."""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return fine(interval.mean)
    return fine(interval.mean, interval.low, interval.high)


def _signed(interval: Interval) -> str:
    text = _mean(interval)
    return text if text.startswith("-") or float(text) == 0 else f"+{text}"
