"""Claims files: read strictly, and every refusal is a sentence that names file and claim."""

from __future__ import annotations

import doctest
from pathlib import Path
from typing import Any

import pytest

from analyses.claims import statement
from analyses.claims.files import load_claims
from analyses.claims.statement import parse_steps
from model.errors import ConfigError, InputError, UnknownNameError
from model.files import sha256_of
from tests.analyses.claim_texts import PATH, claim, write


def test_a_file_gives_its_claims_in_order_with_its_hash(tmp_path: Path):
    file = write(tmp_path / "some.toml", claim(name="a"), claim(name="b", step=[8, 0], positions=[3, 4]))
    first, second = load_claims([file])
    assert (first.name, second.name) == ("a", "b")
    assert first.file_sha256 == second.file_sha256 == sha256_of(file.read_bytes())
    assert (first.stated.step, parse_steps(second.stated.step), second.stated.positions) == ("last", (0, 8), (3, 4))


def test_a_folder_gives_those_of_all_its_files(tmp_path: Path):
    write(tmp_path / "b.toml", claim(name="second"))
    write(tmp_path / "a.toml", claim(name="first"))
    (tmp_path / "notes.md").write_text("no claims")
    assert [each.name for each in load_claims([tmp_path])] == ["first", "second"]


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"metrik": "copy_loss"}, 'no setting "metrik". Did you mean "metric"'),
        ({"says": None}, "lacks says"),
        ({"control": None}, "lacks control"),
        ({"alpha": "small"}, "alpha='small' is not a number"),
        ({"alpha": 0}, "alpha=0.0 is not allowed"),
        ({"alpha": 1.0}, "alpha=1.0 is not allowed"),
        ({"sequences": 1}, "sequences=1 is not allowed"),
        ({"sequences": True}, "sequences=True is not a whole number"),
        ({"seed": -1}, "seed=-1 is not allowed"),
        ({"gate": 1.5}, "gate=1.5 is not allowed"),
        ({"positions": [-1]}, "positions=-1 is not allowed"),
        ({"name": "two words"}, 'name="two words" cannot name a file'),
        ({"step": "first"}, 'step="first" is no choice of checkpoints'),
        ({"step": [-1]}, 'step="-1" is no choice'),
        ({"expected": "undecided"}, "expects nothing"),
        ({"expected": "true"}, 'expected="true" is not one of supported'),
        ({"metric": "copy_los"}, 'no metric "copy_los". Did you mean "copy_loss"'),
        ({"effect": "harm > 1"}, "is no bound"),
        ({"effect": "share >= 2"}, "no share of a whole"),
        ({"effect": "harm <= -0.1"}, "negative number"),
        ({"ablate": "induction >="}, "no part of a rule"),
        ({"ablate": "L1X3"}, "not a place"),
        ({"intervention": "men"}, 'no intervention "men".* Did you mean "mean"'),
        ({"freeze": "pattern"}, 'freeze="pattern" is not one of nothing, patterns. Did you mean "patterns"'),
        ({"control": "texts"}, 'control="texts" is not one of .* Did you mean "text"'),
        ({"control": "inputs"}, 'control="inputs" says nothing with an ablation'),
        ({"control": "text", "effect": "harm <= 0.1"}, 'control="text" says nothing .* use matched or none'),
        ({"control": "matched", "effect": "|harm| <= 0.1"}, "has no side; use none"),
        ({"ablate": None}, "this one has neither"),
        ({"sender": "L0H1"}, "this one has both"),
        ({"ffns": "recomputed"}, "ffns belongs to a path"),
        ({**PATH, "input": None}, "input is missing"),
        ({**PATH, "receivers": None, "input": None}, "receivers and input is missing"),
        ({**PATH, "input": "o"}, 'input="o" is not one of q, k, v'),
        ({**PATH, "sender": "L0H1,L0H2"}, "names several heads"),
        ({**PATH, "sender": "previous_token >= 0.4"}, "may find several heads; end it with `and top 1`"),
        ({**PATH, "intervention": "zero"}, 'intervention="zero" is not one of counterfactual, mean@pos'),
        ({**PATH, "metric": "text_loss"}, "not measured along paths"),
        ({**PATH, "gate": 0.5}, "gate belongs to an ablation"),
        ({**PATH, "control": "text"}, 'control="text" says nothing with a path'),
    ],
)
def test_a_claim_that_cannot_be_tested_is_refused_by_name(tmp_path: Path, keys: dict[str, Any], said: str):
    file = write(tmp_path / "some.toml", claim(name="fine"), claim(**{"name": "wrong"} | keys))
    with pytest.raises(InputError, match=said) as refusal:
        load_claims([file])
    named = "number 2" if "name" in keys and keys["name"] is None else keys.get("name", "wrong")
    assert str(refusal.value).startswith(f'{file}, claim "{named}": ')


def test_all_faults_of_all_files_are_said_at_once_a_line_each(tmp_path: Path):
    """Mending one fault only to be told the next is a run for each; one try must name them all, and no sound claim."""
    one = write(
        tmp_path / "one.toml",
        claim(name="both", metrik="copy_loss", alpha="small"),
        claim(name="sound"),
        claim(name="three", gate=1.5, metric="copy_los", effect="harm > 1"),
    )
    (tmp_path / "none.toml").write_text("claim = 3")
    two = write(tmp_path / "two.toml", claim(name="other", control="texts", input="o"))
    with pytest.raises(InputError) as refusal:
        load_claims([one, tmp_path / "none.toml", tmp_path / "missing.toml", two])
    starts = [
        f'{one}, claim "both": There is no setting "metrik"',
        f"{one}, claim \"both\": alpha='small' is not a number",
        f'{one}, claim "three": gate=1.5 is not allowed',
        f'{one}, claim "three": "harm > 1" is no bound',
        f'{one}, claim "three": no metric "copy_los"',
        f"{tmp_path / 'none.toml'} holds no claim",
        f"There is no claims file {tmp_path / 'missing.toml'}",
        f'{two}, claim "other": control="texts" is not one of',
        f'{two}, claim "other": input="o" is not one of q, k, v',
    ]
    said = str(refusal.value).splitlines()
    assert len(said) >= len(starts)
    assert not any('"sound"' in line for line in said)
    for start in starts:
        assert sum(line.startswith(start) for line in said) == 1, (start, said)


def test_a_claim_without_a_name_is_named_by_its_number(tmp_path: Path):
    with pytest.raises(InputError, match='claim "number 1": Statement lacks name'):
        load_claims([write(tmp_path / "some.toml", claim(name=None))])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[claim]\nname = 1", "is no TOML file"),
        ("", "holds no claim"),
        ("claim = 3", "holds no claim"),
        ("[claim]\nname = 'x'", "holds no claim"),
        ("[[claims]]\nname = 'x'", 'has "claims".* Did you mean "claim"'),
        ("alpha = 0.05\n[[claim]]\nname = 'x'", 'has "alpha", and claims files hold'),
    ],
)
def test_a_file_that_is_none_of_claims_is_refused(tmp_path: Path, text: str, said: str):
    file = tmp_path / "some.toml"
    file.write_text(text)
    with pytest.raises(InputError, match=said):
        load_claims([file])


def test_what_is_not_there_is_refused(tmp_path: Path):
    with pytest.raises(UnknownNameError, match="There is no claims file"):
        load_claims([tmp_path / "none.toml"])
    with pytest.raises(UnknownNameError, match="holds no claims"):
        load_claims([tmp_path])


def test_two_claims_of_one_name_are_refused(tmp_path: Path):
    files = [write(tmp_path / f"{name}.toml", claim(name="same")) for name in ("a", "b")]
    with pytest.raises(InputError, match=r'two claims are called "same", in .*a\.toml and .*b\.toml'):
        load_claims(files)


def test_steps_are_numbers_or_one_of_two_words():
    assert (parse_steps("last"), parse_steps("all"), parse_steps("512, 0,512")) == ("last", "all", (0, 512))
    with pytest.raises(ConfigError, match="0,64,512"):
        parse_steps("")


def test_the_examples_in_the_docstrings_are_true():
    assert doctest.testmod(statement).failed == 0
