"""The model card: one block with its hook names, parameters by part, and what the run is made of."""

from __future__ import annotations

from typing import Any

from analyses.architecture import architecture, parameter_rows
from apps.dashboard import components, data, panels, snippets, telling
from apps.dashboard.data import Run
from apps.dashboard.panels import Panel


def draw(run: Run, step: int | None) -> None:
    """The picture, and beside it, where there is room, the facts."""
    model = run.model
    if model is None:
        return
    about = panels.about_live(run, step, n=model.n_params, unit="parameters")
    picture = Panel(
        key="architecture",
        title=f"The architecture of {run.name}",
        rows=lambda: parameter_rows(model),
        about=about,
        python=_python(run, step),
    )
    norm, layers = model.norm.value, model.n_layers
    said = f"One of {layers} layers, {norm} norm: what reads and writes the stream, with the hook names"
    panels.chart(picture, architecture(model), alt=said)
    components.caption(said, "every place: docs/sites.md")


def facts(run: Run, step: int | None) -> None:
    """Sizes, seeds, hashes."""
    if run.model is not None and step is not None:
        telling.facts(_facts(run, step))


def parameters(run: Run, step: int | None) -> None:
    """Trained numbers by part."""
    model = run.model
    if model is None or step is None:
        return
    panel = Panel(
        key="parameters",
        title=f"Parameters of {run.name} by part",
        rows=lambda: parameter_rows(model),
        about=panels.about_live(run, step, n=model.n_params, unit="parameters"),
        python=_python(run, step),
    )
    rows = panel.rows()
    shown = rows.assign(share=[f"{share:.1%}" for share in rows["share"]])
    panels.table(panel, alt=panel.title, height="content", shown=shown)


def _python(run: Run, step: int | None) -> str:
    return snippets.opened(
        run, step, "rows = parameter_rows(lab.config)", imports=["from analyses.architecture import parameter_rows"]
    )


def _facts(run: Run, step: int) -> list[tuple[str, str]]:
    model, manifest, config = run.model, data.manifest(run, step), run.settings.get("config", {})
    assert model is not None
    kv = "" if model.kv_heads == model.n_heads else f", {model.kv_heads} key-value heads"
    told: list[tuple[str, str | None]] = [
        ("shape", f"{model.n_layers} layers of {model.n_heads} heads{kv}; d_model {model.d_model}, d_head "
                  f"{model.head_width}, d_ff {model.ffn_width}"),
        ("context, vocabulary", f"{model.n_ctx} tokens of {model.d_vocab:,}"),
        ("norm, positions", f"{model.norm.value} {model.norm_kind.value}, {model.positions.value}"),
        ("parameters", f"{model.n_params:,}, {model.n_params_non_embedding:,} without embeddings"),
        ("tokens seen", f"{manifest.tokens_seen:,} at step {step:,}" if run.imported_from is None else "not on record"),
        ("seeds", _seeds(config)),
        ("trained on", _sources(run)),
        ("optimizer", _optimizer(config)),
        ("imported from", run.imported_from),
        ("weights", manifest.weights_sha256[:16]),
        ("corpus", str(run.settings.get("corpus_sha256") or "")[:16] or None),
    ]  # fmt: skip
    return [(name, value) for name, value in told if value]


def _seeds(config: dict[str, Any]) -> str | None:
    """The seeds of run.json, by what they draw."""
    parts = {"training": config.get("train"), "data": config.get("data")}
    seeds = {name: part.get("seed") for name, part in parts.items() if isinstance(part, dict)}
    said = [f"{name} {seed}" for name, seed in seeds.items() if isinstance(seed, int)]
    return ", ".join(said) or None


def _sources(run: Run) -> str | None:
    corpus, config = run.settings.get("corpus"), run.settings.get("config", {})
    sources = config.get("data", {}).get("sources") if isinstance(config.get("data"), dict) else None
    if not isinstance(sources, list):
        return None
    n = corpus.get("n_tokens") if isinstance(corpus, dict) else None
    return ", ".join(map(str, sources)) + (f"; {n:,} tokens" if isinstance(n, int) else "")


def _optimizer(config: dict[str, Any]) -> str | None:
    optim, train = config.get("optim"), config.get("train")
    if not isinstance(optim, dict) or not isinstance(train, dict) or "optimizer" not in optim:
        return None
    batches = f"{train.get('steps')} steps of {train.get('batch_size')}"
    return f"{optim['optimizer']}, learning rate {optim.get('lr')}, {batches}"
