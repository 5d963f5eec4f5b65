"""Claims about memories: every intervention in the one grammar, held against memories that write about as much."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from analyses import hypotheses
from analyses.claims.verdicts import Verdict
from analyses.hypotheses import load_claims, sentence
from model.errors import CutawayError
from model.lab import Lab
from tests.analyses.claim_texts import claim, write
from tests.conftest import make_gpt_with
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """Random weights whose first layer's memory 3 writes three times as much as any other."""
    gpt = make_gpt_with(n_ctx=24, d_vocab=20, d_ff=100)
    gpt.layers[0].mlp.W_out.mul_(0.1)
    gpt.layers[0].mlp.W_out[3] *= 60
    return planted_lab(tmp_path_factory.mktemp("runs") / "memories", gpt)


def verdict_on(tmp_path: Path, lab: Lab, **keys: Any) -> Verdict:
    made = claim(**{"name": "one", "metric": "text_kl", "sequences": 8, "control": "matched"} | keys)
    (only,) = load_claims([write(tmp_path / "some.toml", made)])
    return hypotheses.test_claim(only, lab)


@pytest.mark.parametrize("places", ["L0M3:zero", "L0M3:times=-1", "L0M3:set=20", "L0M3,L0H1:zero"])
def test_a_memory_that_writes_much_is_held_against_others_and_beats_them(places: str, tmp_path: Path, lab: Lab) -> None:
    found = verdict_on(tmp_path, lab, ablate=places, effect="harm >= 0.01")
    said = sentence(found)
    assert "about as much (|m| |v|)" in said
    assert places.partition(":")[2] in said


def test_an_intervention_with_a_number_is_a_claims_too_and_is_printed_as_it_is_read(tmp_path: Path, lab: Lab) -> None:
    for number in ("times=2", "set=2.5"):
        stated = verdict_on(tmp_path, lab, ablate="L0M3", intervention=number, effect="harm >= 0.01", control="none")
        assert f"L0M3:{number} in force" in sentence(stated)
    swapped = verdict_on(tmp_path, lab, ablate="L0M3,L0M9:swap", effect="harm >= 0.0001", control="none")
    assert "L0M3,L0M9:swap in force" in sentence(swapped)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"ablate": "L0M3:swap"}, "L0M3:swap has nothing to swap with"),
        ({"ablate": "L0H1", "intervention": "set=2"}, "L0H1:set=2 cannot be: only a memory holds one number"),
        ({"ablate": "L0M3", "intervention": "times"}, "times needs a number; write times=2"),
    ],
)
def test_what_cannot_be_meant_is_a_sentence(keys: dict[str, Any], said: str, tmp_path: Path, lab: Lab) -> None:
    try:
        found = sentence(verdict_on(tmp_path, lab, effect="harm >= 0.01", **keys))
    except CutawayError as error:
        found = str(error)
    assert said in found
