"""One block of a GPT as a picture that carries the hook names, drawn from the config, so that it is true for the model.

The residual stream is the line on the left, read from below. A sublayer leaves it, goes through its boxes, and comes
back at a sum; under post-norm placements the norm stands in the stream itself, after the sum. Every name is that of a
place of this very model (`model.sites`): one that the model does not have is not drawn. Names inside the block begin
with `blocks.{i}.`; docs/sites.md has them all, with axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from analyses.figures import CATEGORIES, FAINT, INK, PAPER, QUIET, SEQUENTIAL
from model.config import OUTPUT_NORMS, PRE_NORM_READS, SUM_NORMS, FFNKind, GPTConfig, Norm, Positions
from model.sites import Tap, sites

WIDTH = 560
STREAM, BRANCH, NAMES = 128, 290, 392
"""Where the stream, the boxes and the names of their places stand, in pixels from the left."""

BOX, TALL, GAP = 150, 30, 40
"""A box's width and height, and the distance from one row to the next."""


@dataclass(frozen=True, kw_only=True)
class Box:
    """A part of the model, or a sum."""

    x: int
    y: float
    text: str
    kind: str
    """norm, attention, ffn, ends or sum."""
    names: tuple[str, ...] = ()
    """Hook names of its places, as they are printed beside it."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A straight piece of the flow."""

    x: float
    y: float
    x2: float
    y2: float
    kind: str = "branch"
    """stream or branch."""


@dataclass
class Drawing:
    """What is drawn, filled from below."""

    boxes: list[Box]
    lines: list[Line]
    names: list[tuple[float, str]]
    """Names of the stream: height, and name."""
    cuts: list[tuple[float, float]]
    """Where the stream does not go on by itself, for skip connections are off."""
    block: tuple[float, float] = (0.0, 0.0)
    """Where the block begins and ends."""
    y: float = 0.0


def architecture(config: GPTConfig) -> dict[str, Any]:
    """The picture as Vega-Lite; point at a name to read what the place is and its axes."""
    drawing = _drawn(config)
    height = drawing.y - GAP / 2
    boxes = [each for each in drawing.boxes if each.kind != "sum"]
    sums = [each for each in drawing.boxes if each.kind == "sum"]
    shared = {"x": _x(), "y": _y(height)}
    low, high = drawing.block
    frame = [{"x": 4, "x2": WIDTH - 4, "y": low, "y2": high}]
    layers = [
        _layer(frame, _mark("rect", fill=None, stroke=FAINT, cornerRadius=8, strokeWidth=1.5), shared),
        _words(
            [{"x": WIDTH - 14, "y": high - 14, "text": f"layer i of {config.n_layers}: blocks.{{i}}."}],
            QUIET,
            10.5,
            "right",
            shared,
        ),
        _layer([_row_of_line(each) for each in drawing.lines if each.kind == "stream"], _rule(INK, 3), shared),
        _layer([_row_of_line(each) for each in drawing.lines if each.kind == "branch"], _rule(QUIET, 1.5), shared),
        *(_rects([each for each in boxes if each.kind == kind], fill, shared) for kind, fill in _FILLS.items()),
        _layer([_row_of(each) for each in sums], _mark("point", size=330, fill=PAPER, stroke=INK, opacity=1), shared),
        _words([_row_of(each) for each in boxes if each.kind in ("norm", "ends")], INK, 11.5, "center", shared),
        _words([_row_of(each) for each in boxes if each.kind in ("attention", "ffn")], PAPER, 12, "center", shared),
        _words([_row_of(each) for each in sums], INK, 15, "center", shared),
        _words(_stream_names(drawing), CATEGORIES[0], 11, "right", shared),
        _words(_box_names(boxes), QUIET, 10.5, "left", shared),
    ]
    return {
        "width": WIDTH, "height": height, "layer": [layer for layer in layers if layer["data"]["values"]],
        "view": {"stroke": None},
    }  # fmt: skip


def place_rows(config: GPTConfig) -> pd.DataFrame:
    """Every kind of place of a model: hook name, axes, what the numbers are, and in how many layers it is."""
    rows: dict[str, dict[str, Any]] = {}
    for site in sites(config).values():
        name, axes, meaning = site.tap.value
        row = rows.setdefault(
            name.replace("{}", "{i}"), {"hook": name.replace("{}", "{i}"), "axes": axes, "what": meaning, "layers": 0}
        )
        row["layers"] += site.tap.per_layer
    return pd.DataFrame(list(rows.values()))


def parameter_rows(config: GPTConfig) -> pd.DataFrame:
    """Trained numbers by part; they add up to the model's."""
    query, key_value = config.n_heads * config.head_width, config.kv_heads * config.head_width
    attention = config.d_model * (2 * query + 2 * key_value)
    attention += (query + 2 * key_value + config.d_model) if config.biases else 0
    attention += (2 * config.head_width if config.qk_norm else 0) + (config.kv_heads if config.smeared_keys else 0)
    matrices = 3 if config.ffn is FFNKind.SWIGLU else 2
    ffn = matrices * config.d_model * config.ffn_width
    if config.biases and config.ffn is not FFNKind.NONE:
        ffn += config.ffn_width * (matrices - 1) + config.d_model
    embedding = config.d_vocab * config.d_model
    parts = {
        "embedding" + (" (tied to the unembedding)" if config.tie_embeddings else ""): embedding,
        "unembedding": 0 if config.tie_embeddings else embedding,
        "positions": config.n_ctx * config.d_model if config.positions is Positions.LEARNED else 0,
        "attention": config.n_layers * attention,
        "FFN": config.n_layers * ffn if config.ffn is not FFNKind.NONE else 0,
    }
    parts["norms"] = config.n_params - sum(parts.values())
    rows = [{"part": part, "parameters": n, "share": n / config.n_params} for part, n in parts.items() if n]
    return pd.DataFrame(rows)


# --- from below ------------------------------------------------------------------------------------------------------


def _drawn(config: GPTConfig) -> Drawing:
    has = {site.tap for site in sites(config).values()}
    drawing = Drawing(boxes=[], lines=[], names=[], cuts=[], y=GAP / 2)
    position = [Tap.POS_EMBED] if Tap.POS_EMBED in has else []
    _on_stream(drawing, "embedding" if not position else "embedding + positions", "ends", [Tap.EMBED, *position])
    bottom = drawing.y - GAP * 0.45
    _name(drawing, Tap.RESID_PRE)
    _attention(drawing, config, has)
    if config.ffn is not FFNKind.NONE:
        _name(drawing, Tap.RESID_MID)
        _ffn(drawing, config, has)
    _name(drawing, Tap.RESID_POST)
    drawing.block = (bottom, drawing.y - GAP * 0.4)
    drawing.y += GAP * 0.25
    if config.has_final_norm:
        _on_stream(drawing, f"ln_final · {config.norm_kind.value}", "norm", [Tap.LN_FINAL_OUT])
    _on_stream(drawing, "unembedding", "ends", [Tap.LOGITS])
    ends = [GAP / 2, *(end for cut in drawing.cuts for end in cut), drawing.y - GAP]
    pieces = zip(ends[::2], ends[1::2], strict=True)
    drawing.lines += [Line(x=STREAM, y=low, x2=STREAM, y2=high, kind="stream") for low, high in pieces]
    return drawing


def _attention(drawing: Drawing, config: GPTConfig, has: set[Tap]) -> None:
    rotated = [tap for tap in (Tap.ROT_Q, Tap.ROT_K) if tap in has]
    grouped = "" if config.kv_heads == config.n_heads else f", {config.kv_heads} kv"
    text = f"attention · {config.n_heads} heads{grouped}"
    taps = [Tap.Q, Tap.K, Tap.V, *rotated, Tap.ATTN_SCORES, Tap.PATTERN, Tap.Z]
    _sublayer(drawing, config, 1, (text, "attention", taps), Tap.ATTN_OUT)


def _ffn(drawing: Drawing, config: GPTConfig, has: set[Tap]) -> None:
    gated = [Tap.MLP_PRE_LINEAR] if Tap.MLP_PRE_LINEAR in has else []
    text = f"FFN · {config.ffn_width} {config.ffn.value}"
    _sublayer(drawing, config, 2, (text, "ffn", [Tap.MLP_PRE, *gated, Tap.MLP_POST]), Tap.MLP_OUT)


def _sublayer(drawing: Drawing, config: GPTConfig, half: int, sublayer: tuple[str, str, list[Tap]], out: Tap) -> None:
    """One sublayer with its norms, from where it leaves the stream to the sum."""
    kind = config.norm_kind.value + (" / √layer" if config.norm is Norm.SCALED else "")
    start = drawing.y
    boxes: list[tuple[str, str, list[Tap]]] = []
    if config.norm in PRE_NORM_READS:
        boxes.append((f"ln{half} · {kind}", "norm", [_norm_out(f"ln{half}")]))
    boxes.append(sublayer)
    if config.norm in OUTPUT_NORMS:
        boxes.append((f"ln{half}_post · {kind}", "norm", [_norm_out(f"ln{half}_post")]))
    drawing.lines.append(Line(x=STREAM, y=start, x2=BRANCH, y2=start))
    for text, what, taps in boxes:
        drawing.y += GAP * (1.25 if len(taps) > 4 else 1)
        drawing.boxes.append(Box(x=BRANCH, y=drawing.y, text=text, kind=what, names=_lines_of(taps)))
    drawing.y += GAP
    drawing.lines.append(Line(x=BRANCH, y=start, x2=BRANCH, y2=drawing.y))
    drawing.lines.append(Line(x=BRANCH, y=drawing.y, x2=STREAM, y2=drawing.y))
    said = "+" if config.skip_connections else "="
    drawing.cuts += [] if config.skip_connections else [(start, drawing.y)]
    drawing.boxes.append(Box(x=STREAM, y=drawing.y, text=said, kind="sum"))
    drawing.boxes.append(Box(x=BRANCH, y=drawing.y, text="", kind="name", names=(_scaled(config, out),)))
    drawing.y += GAP
    if config.norm in SUM_NORMS:
        drawing.y -= GAP * 0.1
        _on_stream(drawing, f"ln{half} · {kind}", "norm", [_norm_out(f"ln{half}")])


def _scaled(config: GPTConfig, out: Tap) -> str:
    """The name of what is added, and how the sum weighs it where it does."""
    return _short(out) + (", to alpha times the stream" if config.norm is Norm.DEEPNORM else "")


def _norm_out(name: str) -> Tap:
    return next(tap for tap in Tap if tap.template.endswith(f".{name}.hook_out"))


def _on_stream(drawing: Drawing, text: str, kind: str, taps: list[Tap]) -> None:
    """A box in the stream itself."""
    drawing.boxes.append(Box(x=STREAM, y=drawing.y, text=text, kind=kind, names=_lines_of(taps)))
    drawing.y += GAP


def _name(drawing: Drawing, tap: Tap) -> None:
    """The stream's name at this height."""
    drawing.names.append((drawing.y - GAP * 0.2, _short(tap)))
    drawing.y += GAP * 0.45


def _short(tap: Tap) -> str:
    return tap.template.removeprefix("blocks.{}.")


def _lines_of(taps: list[Tap], wide: int = 4) -> tuple[str, ...]:
    """Names in lines of `wide`; of one part the path is said once."""
    names = [_short(tap) for tap in taps]
    parts = {name.rpartition(".")[0] for name in names}
    if len(names) > 1 and len(parts) == 1 and "" not in parts:
        names = [names[0], *(name.rpartition(".hook_")[2] for name in names[1:])]
    return tuple(", ".join(names[start : start + wide]) for start in range(0, len(names), wide))


# --- Vega-Lite -------------------------------------------------------------------------------------------------------

_FILLS = {"norm": SEQUENTIAL[1], "ends": FAINT, "attention": CATEGORIES[0], "ffn": SEQUENTIAL[5]}


def _x() -> dict[str, Any]:
    return {"field": "x", "type": "quantitative", "axis": None, "scale": {"domain": [0, WIDTH], "nice": False}}


def _y(height: float) -> dict[str, Any]:
    return {"field": "y", "type": "quantitative", "axis": None, "scale": {"domain": [0, height], "nice": False}}


def _mark(kind: str, **look: Any) -> dict[str, Any]:
    return {"type": kind, **look}


def _rule(colour: str, width: float) -> dict[str, Any]:
    return _mark("rule", color=colour, strokeWidth=width, strokeCap="round")


def _layer(rows: list[dict[str, Any]], mark: dict[str, Any], shared: dict[str, Any]) -> dict[str, Any]:
    ends = {"x2": {"field": "x2"}, "y2": {"field": "y2"}} if mark["type"] in ("rule", "rect") else {}
    return {"data": {"values": rows}, "mark": mark, "encoding": shared | ends}


def _rects(boxes: list[Box], fill: str, shared: dict[str, Any]) -> dict[str, Any]:
    rows = [
        {"x": each.x - BOX / 2, "x2": each.x + BOX / 2, "y": each.y - TALL / 2, "y2": each.y + TALL / 2}
        for each in boxes
    ]
    return _layer(rows, _mark("rect", fill=fill, stroke=None, cornerRadius=5, opacity=1), shared)


def _words(rows: list[dict[str, Any]], colour: str, size: float, align: str, shared: dict[str, Any]) -> dict[str, Any]:
    mark = _mark("text", color=colour, fontSize=size, align=align, baseline="middle")
    encoding = shared | {"text": {"field": "text", "type": "nominal"}}
    return {"data": {"values": rows}, "mark": mark, "encoding": encoding}


def _row_of(box: Box) -> dict[str, Any]:
    return {"x": box.x, "y": box.y, "text": box.text}


def _row_of_line(line: Line) -> dict[str, Any]:
    return {"x": line.x, "y": line.y, "x2": line.x2, "y2": line.y2}


def _stream_names(drawing: Drawing) -> list[dict[str, Any]]:
    return [{"x": STREAM - 12, "y": y, "text": name} for y, name in drawing.names]


def _box_names(boxes: list[Box]) -> list[dict[str, Any]]:
    """Names to the right of their boxes, the first line highest."""
    rows = []
    for box in boxes:
        left = box.x + BOX / 2 + 10 if box.kind != "name" else box.x + 10
        for at, name in enumerate(box.names):
            rows.append({"x": left, "y": box.y + 6.5 * (len(box.names) - 1) - 13 * at, "text": name})
    return rows
