"""A claim that is written down is the claim that is read back, whatever its words hold."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from analyses.claims import writing
from analyses.claims.files import load_claims, read_claims
from analyses.claims.statement import Statement
from analyses.claims.writing import claim_of, claim_text, save_claim
from model.errors import CutawayError, InputError
from model.settings import from_plain
from tests.analyses.claim_texts import PATH, claim


def stated_of(**keys: Any) -> Statement:
    return from_plain(Statement, claim(**keys))


TEXT = st.text(st.characters(exclude_categories=["Cs"]))
NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]*", fullmatch=True)

ABLATIONS = st.fixed_dictionaries(
    {
        "name": NAMES,
        "says": TEXT,
        "effect": st.sampled_from(["harm >= 1.0", "gain >= 1e-05", "share >= 0.5", "|harm| <= 0.05"]),
        "control": st.just("none"),
        "ablate": st.sampled_from(["L1H1,L1H3:mean", "induction >= 0.4 and top 2", "L0.attn,L0M3"]),
    },
    optional={
        "intervention": st.sampled_from(["zero", "mean@pos", "times=2"]),
        "gate": st.floats(0, 1, exclude_max=True),
        "positions": st.lists(st.integers(0, 99), min_size=1).map(tuple),
        "freeze": st.just("patterns"),
        "metric": st.just("text_loss"),
        "alpha": st.floats(1e-9, 1, exclude_max=True),
        "sequences": st.integers(2, 10_000),
        "sequential": st.booleans(),
        "seed": st.integers(0, 2**31 - 1),
        "run": TEXT,
        "step": st.sampled_from(["last", "all", "512", "0,64"]),
        "expected": st.just("refuted"),
        "stated": st.sampled_from(["before", "after", "unknown"]),
    },
)


@settings(deadline=None, max_examples=40)
@given(ABLATIONS)
def test_a_claim_survives_being_written_and_read(tmp_path_factory: pytest.TempPathFactory, keys: dict) -> None:
    made = from_plain(Statement, keys)
    file = tmp_path_factory.getbasetemp() / "written.toml"
    file.write_bytes(claim_text(made).encode("utf-8"))
    assert load_claims([file]) == (claim_of(made, file),)


def test_a_path_and_hostile_words_survive(tmp_path: Path) -> None:
    says = '"""\n[[claim]]\nname = "x" # \\u0041 \x00\x1f\x7f\x85\u2028\u202e</script>'
    stated = stated_of(**PATH, says=says, control="inputs")
    save_claim(stated, tmp_path)
    assert [each.stated for each in read_claims(tmp_path / "carry.toml")] == [stated]


def test_another_claim_is_not_overwritten_unless_that_is_said(tmp_path: Path) -> None:
    one, other = stated_of(), stated_of(effect="harm >= 2.0")
    made = save_claim(one, tmp_path)
    assert save_claim(one, tmp_path) == made  # the same again is nothing new
    with pytest.raises(InputError, match=r"carry.toml holds another claim already"):
        save_claim(other, tmp_path)
    assert load_claims([tmp_path]) == (made,)
    assert load_claims([save_claim(other, tmp_path, replace=True).file]) == (claim_of(other, made.file),)
    assert [file.name for file in tmp_path.iterdir()] == ["carry.toml"]


def test_what_no_file_can_hold_is_a_sentence_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="half of a character"):
        save_claim(stated_of(says="\ud800"), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CutawayError, match="could not be written"):
        save_claim(stated_of(), tmp_path / "file")
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_when_a_bound_was_stated_is_a_key_and_said_only_where_it_is_known(tmp_path: Path) -> None:
    assert "stated" not in claim_text(stated_of())
    late = stated_of(stated="after")
    assert claim_text(late).endswith('stated = "after"\n')
    assert [each.stated for each in read_claims(save_claim(late, tmp_path).file)] == [late]
    with pytest.raises(CutawayError, match='stated="later".*before, after, unknown'):
        stated_of(stated="later")


def test_the_example_is_right() -> None:
    assert doctest.testmod(writing).failed == 0
    assert claim_text(stated_of()).count("\n") == 6
