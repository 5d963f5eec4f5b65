"""A head gets a name from several sources or none: planted circuits are named, a silenced or shifted head is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import attention_patterns as study
from analyses import html
from analyses.attention_evidence import Bearing, Source
from analyses.attention_harms import COPY, TEXT, HarmOn
from analyses.attention_panels import distance_rows, head_rows, pair_rows
from analyses.attention_readings import Kind
from analyses.attention_verdicts import Standing, Verdict
from analyses.records import decode, encode, same
from analyses.registry import Passage
from analyses.study import load_result, run_study
from interp.places import Head
from model import GPT
from model.lab import Lab, open_run
from tests import planted
from tests.planted import D_VOCAB, INDUCTION_HEAD, N_CTX, PREVIOUS_HEAD
from tests.planted_run import LETTERS, planted_lab

QUICK = study.Config(n_sequences=12, n_text=12, n_resamples=200, n_tokens=600)


def with_corpus(lab: Lab) -> Lab:
    """The same checkpoint of a run whose corpus is letters."""
    text = lab.path / "letters.txt"
    drawn = torch.randint(len(LETTERS), (4000,), generator=torch.Generator().manual_seed(1)).tolist()
    text.write_text("".join(LETTERS[each] for each in drawn))
    record = json.loads((lab.path / "run.json").read_text())
    record["config"]["data"]["sources"] = [f"text:{text}", "repeats"]
    (lab.path / "run.json").write_text(json.dumps(record))
    return open_run(f"{lab.path}@{lab.step}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("verdicts")


@pytest.fixture(scope="module")
def result(root: Path) -> study.Result:
    return study.run(with_corpus(planted_lab(root / "planted")), QUICK)


def verdict_on(result: study.Result, place: Head) -> Verdict:
    return next(each for each in study.verdicts(result) if (each.layer, each.head) == place)


def test_the_planted_induction_head_is_one_by_every_source(result: study.Result) -> None:
    verdict = verdict_on(result, INDUCTION_HEAD)
    assert (verdict.standing, verdict.name, verdict.kinds) == (
        Standing.SUPPORTED, "induction head", (Kind.INDUCTION,)
    )  # fmt: skip
    by_weights = verdict.item(Source.COPYING)
    assert by_weights is not None
    assert by_weights.value == pytest.approx(1)
    assert by_weights.bearing is Bearing.FOR
    reads = verdict.item(Source.COMPOSITION, "k reads")
    assert reads is not None
    assert reads.what == "k reads L0H1"
    assert reads.z is not None
    assert reads.z > 3
    cost = verdict.item(Source.ABLATION, COPY)
    assert cost is not None
    assert cost.value is not None
    assert cost.value > 3
    assert cost.n_heads == 8
    assert verdict.sentence.startswith("L1H2: induction head. 1.00 [1.00, 1.00] of its attention on the token after")
    for part in ("rank 1 of 8", "re-ordered", "at step 0", "its keys read L0H1", "on held-out text", "Holm p ="):
        assert part in verdict.sentence
    assert verdict.sentence.endswith("(n = 12 sequences, 95% bootstrap, seed 0, planted@8).")


def test_the_planted_previous_token_head_is_one_and_says_who_reads_it(result: study.Result) -> None:
    verdict = verdict_on(result, PREVIOUS_HEAD)
    assert (verdict.standing, verdict.name) == (Standing.SUPPORTED, "previous-token head")
    assert "the keys of L1H2 read it" in verdict.sentence


def test_heads_that_write_nothing_and_attend_evenly_have_no_name(result: study.Result) -> None:
    others = [each for each in study.verdicts(result) if (each.layer, each.head) not in (PREVIOUS_HEAD, INDUCTION_HEAD)]
    assert len(others) == 6
    for verdict in others:
        assert (verdict.standing, verdict.name, verdict.kinds) == (Standing.NONE, None, ())
        assert "attends to nothing that was looked for. " in verdict.sentence
        assert "rest" not in verdict.sentence.split(".")[0]


def test_what_a_head_does_on_the_corpus_is_told_with_its_tokens(result: study.Result) -> None:
    assert result.behaviour is not None
    verdict = verdict_on(result, INDUCTION_HEAD)
    for said in (verdict.sentence, verdict.short):
        assert (
            f"Over {result.behaviour.seen.n_queries:,} tokens of its corpus half of its attention lies within" in said
        )
        assert "it favours" in said
    assert result.behaviour.seen.n_queries >= QUICK.n_tokens
    assert set(result.behaviour.spelled.values()) <= {*LETTERS, "<bos>"}


@pytest.mark.parametrize(
    "overrides",
    [{"embed_std": 0.02, "init": "gpt2"}, {"norm": "sandwich", "qk_norm": True}],
    ids=["gpt2", "qk-norm"],
)
def test_a_random_model_gets_no_name_at_all(
    tmp_path: Path, make_gpt: Callable[..., GPT], overrides: dict[str, Any]
) -> None:
    result = study.run(planted_lab(tmp_path / "random", make_gpt(n_ctx=N_CTX, d_vocab=D_VOCAB, **overrides)), QUICK)
    assert {each.standing for each in study.verdicts(result)} <= {Standing.NONE, Standing.RESTS}
    assert not any(each.found for each in study.findings(result))
    counted = next(each for each in study.findings(result) if "is shown to be" in each.sentence)
    assert counted.found is False
    assert counted.sentence.startswith("No head of 8 is shown to be what it attends like")


def test_a_stripe_without_an_output_is_not_a_cause(root: Path) -> None:
    gpt = planted.induction_model()
    planted.silence(gpt, layer=INDUCTION_HEAD[0], head=INDUCTION_HEAD[1])
    verdict = verdict_on(study.run(planted_lab(root / "silenced", gpt), QUICK), INDUCTION_HEAD)
    assert (verdict.standing, verdict.name, verdict.kinds) == (Standing.ATTENTION, None, (Kind.INDUCTION,))
    opening, end = verdict.sentence.split(": ")[1:3]
    assert opening == "attends like an induction head; ablating it costs less than 0.05 nats of copying"
    assert end.startswith("a stripe is not yet a cause. ")
    assert "are not seen to copy" in verdict.sentence


@pytest.mark.parametrize("distance", [3, 18], ids=["three", "period-less-one"])
def test_a_head_that_looks_back_by_a_fixed_distance_is_positional_and_not_induction(root: Path, distance: int) -> None:
    gpt, place = planted.induction_model(), (0, 3)
    back = torch.diag(torch.ones(N_CTX - distance), -distance)
    position = slice(D_VOCAB, D_VOCAB + N_CTX)
    planted._attend(gpt.layers[0].attn, place[1], position, position, back, max(D_VOCAB, N_CTX))
    result = study.run(planted_lab(root / f"back-{distance}", gpt), QUICK)
    verdict = verdict_on(result, place)
    assert verdict.kinds == (Kind.POSITIONAL,)
    assert verdict.standing is Standing.ATTENTION
    assert f"of its attention {distance} tokens back" in verdict.sentence
    assert "attends at one distance" in verdict.sentence
    assert "induction" not in verdict.sentence


def test_a_post_norm_model_says_why_its_weights_are_not_read(tmp_path: Path, make_gpt: Callable[..., GPT]) -> None:
    result = study.run(planted_lab(tmp_path / "post", make_gpt(n_ctx=N_CTX, d_vocab=D_VOCAB, norm="post")), QUICK)
    assert result.weights.copying is None
    assert set(result.weights.missing) == {"copying", "q", "k", "v"}
    assert not any(each.name for each in study.verdicts(result))
    for verdict in study.verdicts(result):
        assert verdict.item(Source.COPYING).bearing is Bearing.ABSENT  # pyright: ignore[reportOptionalMemberAccess]
        assert "Whether its weights copy is not defined (norm=post)" in verdict.sentence
        assert "whose output its queries, keys and values read is not defined (norm=post)" in verdict.sentence
    why = [each.sentence for each in study.findings(result) if "Of the weights not all is read" in each.sentence]
    assert len(why) == 1
    assert "with norm=post it is not" in why[0]


def test_a_run_without_readable_text_says_so(root: Path) -> None:
    result = study.run(planted_lab(root / "no-corpus"), QUICK)
    assert result.behaviour is None
    assert "what it does on its corpus could not be seen" in verdict_on(result, INDUCTION_HEAD).sentence.lower()
    repeats = study.run(planted_lab(root / "no-text", is_text=False), QUICK)
    assert repeats.harms.outcome(TEXT) is None
    assert "held-out text" not in verdict_on(repeats, INDUCTION_HEAD).sentence


def test_weights_that_do_not_copy_dispute_the_name(result: study.Result) -> None:
    copying = result.weights.copying
    assert copying is not None
    score = copying.score.clone()
    score[INDUCTION_HEAD] = -1.0
    doctored = replace(result, weights=replace(result.weights, copying=replace(copying, score=score)))
    verdict = verdict_on(doctored, INDUCTION_HEAD)
    assert (verdict.standing, verdict.name) == (Standing.DISPUTED, None)
    assert verdict.sentence.startswith(
        "L1H2: attends like an induction head, and copying rests on it, but its weights do not copy. "
    )


def with_harm(result: study.Result, outcome: str, place: Head, **changes: float) -> study.Result:
    """The result with another harm of one head."""
    at = result.harms.place_of(place)

    def edited(on: HarmOn) -> HarmOn:
        if on.outcome != outcome:
            return on
        parts = {name: getattr(on.harm, name).clone() for name in ("mean", "low", "high")}
        p = on.p.clone()
        for name, value in changes.items():
            (p if name == "p" else parts[name])[at] = value
        return replace(on, harm=replace(on.harm, **parts), p=p)

    return replace(result, harms=replace(result.harms, on=tuple(map(edited, result.harms.on))))


@pytest.mark.parametrize(
    ("changes", "standing", "found", "said"),
    [
        ({"mean": 0.3, "low": 0.2, "high": 0.4, "p": 0.01}, Standing.SUPPORTED, True, "L1H2: induction head."),
        ({"mean": 0.3, "low": 0.2, "high": 0.4, "p": 0.2}, Standing.ATTENTION, None, "or more is not shown"),
        ({"mean": 0.04, "low": 0.01, "high": 0.2, "p": 0.01}, Standing.ATTENTION, None, "or more is not shown"),
        ({"mean": 0.0, "low": -0.01, "high": 0.01, "p": 1.0}, Standing.ATTENTION, False, "less than 0.05 nats"),
        ({"mean": -0.3, "low": -0.4, "high": -0.2, "p": 0.01}, Standing.ATTENTION, False, "less than 0.05 nats"),
    ],
    ids=["lost", "luck", "small", "nothing", "better"],
)  # fmt: skip
def test_a_verdict_says_no_more_than_the_ablation(
    result: study.Result, changes: dict[str, float], standing: Standing, found: bool | None, said: str
) -> None:
    doctored = with_harm(result, COPY, INDUCTION_HEAD, **changes)
    verdict = verdict_on(doctored, INDUCTION_HEAD)
    assert verdict.standing is standing
    assert said in verdict.sentence
    finding = next(each for each in study.findings(doctored) if each.sentence.startswith("L1H2"))
    assert finding.found is found
    assert finding.sentence == verdict.short == " ".join(finding.lines)


def test_of_many_heads_only_those_with_a_claim_are_ablated_and_the_others_say_so(root: Path) -> None:
    result = study.run(planted_lab(root / "capped"), replace(QUICK, max_ablated=1))
    assert result.harms.heads == (INDUCTION_HEAD,)
    assert verdict_on(result, INDUCTION_HEAD).standing is Standing.SUPPORTED
    previous = verdict_on(result, PREVIOUS_HEAD)
    assert previous.standing is Standing.ATTENTION
    assert "it was not ablated: a stripe is not yet a cause" in previous.sentence


def test_a_result_with_all_its_parts_comes_back_equal_and_says_the_same(result: study.Result) -> None:
    back = decode(study.Result, *encode(result))
    assert same(back, result)
    assert [each.sentence for each in study.verdicts(back)] == [each.sentence for each in study.verdicts(result)]


def test_every_head_has_a_row_that_is_saved_beside_the_table(root: Path, result: study.Result) -> None:
    rows = study.more_tables(result)["heads"]
    assert list(rows["head"]) == [f"L{layer}H{index}" for layer in range(2) for index in range(4)]
    top = rows.set_index("head").loc["L1H2"]
    assert (top["name"], top["k_reads"], top["rank"]) == ("induction head", "L0H1", 1)
    assert top["copy_harm_low"] <= top["copy_harm"] <= top["copy_harm_high"]
    settings = ["n_sequences=12", "n_text=12", "n_resamples=200", "n_tokens=600"]
    saved = load_result(run_study("attention-patterns", f"{root / 'planted'}@8", settings).path)
    written = (saved.path / "heads.csv").read_text().splitlines()
    assert len(written) == 9
    assert json.loads(saved.to_json())["tables"]["heads"][6]["name"] == "induction head"


def test_the_figure_has_a_line_for_each_head_with_its_name_and_where_it_looks_back(result: study.Result) -> None:
    rows = head_rows(result)
    titles = {row["name"]: row["title"] for row in rows}
    assert titles == {
        "L1H2": "L1H2  induction", "L0H1": "L0H1  previous", "L0H0": "L0H0", "L0H2": "L0H2", "L0H3": "L0H3",
        "L1H0": "L1H0", "L1H1": "L1H1", "L1H3": "L1H3",
    }  # fmt: skip
    assert {row["panel"] for row in rows} == {"attention", "copying", COPY, TEXT}
    shares: dict[str, float] = {}
    for row in distance_rows(result):
        shares[row["title"]] = shares.get(row["title"], 0.0) + row["share"]
    assert shares == pytest.approx(dict.fromkeys(titles.values(), 1.0), abs=1e-4)
    before = next(row for row in distance_rows(result) if row["title"] == "L0H1  previous" and row["band"] == "1")
    assert before["share"] > 0.9
    assert pair_rows(result)["pair"].iloc[0] == "L1H2 K reads L0H1"
    assert study.figure(result).to_dict()


def test_examples_shade_what_the_planted_head_attends_to(result: study.Result) -> None:
    passages = study.passages(result)
    assert {each.group for each in passages} == {"L1H2: induction head", "L0H1: previous-token head"}
    assert {each.what for each in passages} == {"writes most", "middling", "anywhere"}
    for passage in passages:
        assert len(passage.tokens) == len(passage.shades)
        assert sum(passage.shades) == pytest.approx(1, abs=1e-4)
    previous = next(each for each in passages if each.group.startswith("L0H1"))
    assert previous.shades[-2] == pytest.approx(1, abs=1e-3)
    page = html.passages(passages)
    assert page.count("<li>") == len(passages)
    assert "<h3>L1H2: induction head</h3>" in page


def test_tokens_of_a_passage_are_made_safe() -> None:
    page = html.passages([Passage(group="<g>", what="&", tokens=("<b>", "x"), shades=(0.5, 0.0), after="</li>")])
    assert "<b>" not in page.replace("<b>x</b>", "")
    assert "&lt;/li&gt;" in page
