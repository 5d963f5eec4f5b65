"""What every study found at one checkpoint, in short, and where to look closer."""

from __future__ import annotations

import re
from collections.abc import Iterable

import streamlit as st

from analyses.attention_patterns import Result as AttentionPatterns
from analyses.registry import Finding
from analyses.results import SavedResult
from analyses.shelf import Shelf
from apps.dashboard import components, data, panels
from apps.dashboard.data import Run

PAGE_OF = {
    "attention-patterns": "heads",
    "head-ablation": "ablate",
    "head-circuits": "heads",
    "head-importance": "heads",
    "self-repair": "heads",
    "ffn-memories": "memories",
    "ffn-composition": "memories",
    "memory-promotion": "memories",
    "gradient-flow": "gradients",
    "training-dynamics": "training",
}
"""The page that shows a study in full; the others are drawn here."""

TAB_OF = {"ffn-composition": {"all": "How predictions come about"}, "memory-promotion": {"all": "Turning values on"}}
"""The tab of that page, where it is not the one that is open."""


MIN_WIDTH = 280
"""Pixels of a card, at least."""


def draw(run: Run, step: int | None) -> None:
    """A card for each study that has a result; the commands of the others together."""
    shelves = data.shelves(run)
    saved = {study: shelf.at(step) for study, shelf in shelves.items()}
    found = {study: each for study, each in saved.items() if each is not None}
    if step is not None and found:
        components.caption(f"{run.name}@{step}", f"weights {data.manifest(run, step).weights_sha256[:8]}",
                           "click a finding to read it with its numbers")  # fmt: skip
    with st.grid(3, min_column_width=MIN_WIDTH, gap="small") as cards:
        for study in sorted(found, key=lambda each: each not in PAGE_OF):
            with cards.cell(column_span=1 if study in PAGE_OF else 2):  # a figure that is drawn here needs room
                _card(study, found[study], run, step)
    for study in shelves:
        components.faults(study, run, step, commands=False)
    _absent({study: shelves[study] for study in shelves if study not in found}, run, step)


def _card(study: str, saved: SavedResult, run: Run, step: int | None) -> None:
    known = saved.provenance
    with st.container(border=True, gap="xsmall", key=f"card-{study}"):
        st.subheader(components.literal(data.question(study)))
        components.findings_in_short(_of_run(saved))
        with st.container(horizontal=True, vertical_alignment="center", gap="xsmall"):
            if study in PAGE_OF:
                st.page_link(
                    f"app_pages/{PAGE_OF[study]}.py", label="Look closer", icon=":material/arrow_forward:",
                    query_params={"run": run.name, "step": str(step)} | TAB_OF.get(study, {}), width="content",
                )  # fmt: skip
            components.caption(*counts(_of_run(saved)), f"seed {known.seed}", f"config {known.config_hash}")
        if study not in PAGE_OF:
            panels.whole_study(saved, n=_n(saved), unit="sequences, positions or tokens, as its table says")


def _of_run(saved: SavedResult) -> list[Finding]:
    """What is about the run; of single heads their page tells."""
    of_heads: set[str] = set()
    if isinstance(saved.result, AttentionPatterns):
        of_heads = {verdict.short for verdict in data.verdicts(saved)}
    return [each for each in data.findings(saved) if each.of_run and each.sentence not in of_heads]


def counts(found: Iterable[Finding]) -> list[str]:
    """What the findings of a card rest on, as their own sentences say it: the first `FEW`, each once.

    >>> counts([Finding(sentence="It copies (demo@512, n = 4,000 prefixes of text, seed 0; n = 4,000).", found=True)])
    ['n = 4,000 prefixes of text']
    """
    said = [each.strip() for finding in found for each in COUNT.findall(finding.sentence)]
    longest = [each for each in dict.fromkeys(said) if not any(other.startswith(f"{each} ") for other in said)]
    return longest[:FEW]


COUNT, FEW = re.compile(r"\bn = \d+(?:,\d{3})*(?: [a-z][^,;:().]*)?"), 2


def _n(saved: SavedResult) -> int:
    known = saved.provenance.config
    return int(next((known[name] for name in ("n_test", "n_sequences", "n_tokens") if name in known), 1))


def _absent(shelves: dict[str, Shelf], run: Run, step: int | None) -> None:
    """The studies without a result at this step: their commands, and the steps that have some."""
    if not shelves:
        return
    commands = [f"cutaway run {study} {data.spelled(run, step)}" for study in shelves]
    components.missing(f"Not studied at step {step}: {', '.join(shelves)}.", "\n".join(commands))
    steps = sorted({other for shelf in shelves.values() for other in shelf.steps})
    if steps:
        with st.container(horizontal=True, gap="small"):
            components.caption("There are results of these at other steps:")
            for other in steps:
                st.button(f"Go to step {other:,}", key=f"go-{other}", on_click=_go_to, args=(other,))


def _go_to(step: int) -> None:
    st.session_state["step"] = step
