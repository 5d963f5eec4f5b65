"""A head gets a name from several sources or none: planted circuits are named, a silenced or shifted head is not."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import attention_patterns as study
from analyses import html
from analyses.attention.evidence import Bearing, Source
from analyses.attention.harms import COPY, TEXT, HarmOn
from analyses.attention.panels import distance_rows, head_rows, pair_rows
from analyses.attention.readings import Kind, Reading
from analyses.attention.stimuli import Stimulus
from analyses.attention.verdicts import Standing, Verdict
from analyses.attention.weights import Missing
from analyses.heads.tables import listed
from analyses.records import decode, encode, same
from analyses.registry import Passage
from analyses.study import load_result, run_study
from interp.places import Head
from model import GPT
from model.lab import Lab, open_run
from tests import planted
from tests.analyses.attention_edits import with_score
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
    assert verdict.sentence.endswith("(n = 12 sequences and 12 rows of text, 95% bootstrap, seed 0, planted@8).")


def test_the_planted_previous_token_head_is_one_and_says_who_reads_it(result: study.Result) -> None:
    verdict = verdict_on(result, PREVIOUS_HEAD)
    assert (verdict.standing, verdict.name) == (Standing.SUPPORTED, "previous-token head")
    assert "the keys of L1H2 read it" in verdict.sentence


def test_heads_that_write_nothing_and_attend_evenly_have_no_name(result: study.Result) -> None:
    others = [each for each in study.verdicts(result) if (each.layer, each.head) not in (PREVIOUS_HEAD, INDUCTION_HEAD)]
    assert len(others) == 6
    for verdict in others:
        assert (verdict.standing, verdict.name, verdict.kinds) == (Standing.NONE, None, ())
        assert "passes no rule by which heads were looked for. " in verdict.sentence
        assert "rest" not in verdict.sentence.split(".")[0]


def test_what_a_head_does_on_the_corpus_is_told_with_its_tokens(result: study.Result) -> None:
    assert result.behaviour is not None
    verdict = verdict_on(result, INDUCTION_HEAD)
    for said in (verdict.sentence, verdict.short):
        assert (
            f"Over {result.behaviour.seen.n_queries:,} tokens of its corpus half of its attention lies within" in said
        )
        assert "writes most at" in said
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
    assert "Its weights do not copy" in verdict.sentence


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
    why = [each.sentence for each in study.findings(result) if "are not read" in each.sentence]
    assert len(why) == 1
    assert why[0].startswith("From the weights Q-composition, K-composition, V-composition and copying are not read: ")
    assert why[0].endswith("with norm=post it is not.")


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
        "L1H2: attends like an induction head, and copying is worse without it, but its weights do not copy. "
    )


@pytest.mark.parametrize(
    ("score", "standing", "said"),
    [
        (0.9, Standing.SUPPORTED, "Its weights copy"),
        (0.3, Standing.SUPPORTED, "Its weights are not seen to copy"),
        (0.05, Standing.DISPUTED, "Its weights do not copy"),
        (-0.9, Standing.DISPUTED, "Its weights write against what it attends to"),
    ],
)
def test_what_random_heads_may_score_is_open_and_not_against(
    result: study.Result, score: float, standing: Standing, said: str
) -> None:
    copying = result.weights.copying
    assert copying is not None
    scores = copying.score.clone()
    scores[INDUCTION_HEAD] = score
    edited = replace(copying, score=scores, null_sd=0.2)
    verdict = verdict_on(replace(result, weights=replace(result.weights, copying=edited)), INDUCTION_HEAD)
    assert verdict.standing is standing
    assert said in verdict.sentence


def test_a_head_that_cannot_be_told_is_open_and_not_of_no_kind(result: study.Result) -> None:
    unsure = with_score(result, result.headline, Kind.CURRENT, (1, 0), mean=0.45, low=0.1, high=0.9)
    verdict = verdict_on(unsure, (1, 0))
    assert (verdict.standing, verdict.kinds, verdict.possible) == (Standing.OPEN, (), (Kind.CURRENT,))
    assert verdict.sentence.startswith("L1H0: whether it attends like a current-token head cannot be told. 0.45 ")
    assert verdict.name is None
    score = verdict.item(Source.ATTENTION)
    assert score is not None
    assert score.bearing is Bearing.OPEN
    count = next(each.sentence for each in study.findings(unsure) if each.sentence.startswith("Of 8 heads"))
    assert "one may be of a kind, which cannot be told (L1H0)" in count
    assert "L1H0  current?" in {row["title"] for row in head_rows(unsure)}
    row = listed(study.verdicts(unsure)).set_index("head").loc["L1H0"]
    assert (row["standing"], row["attends like"]) == ("open", "current-token?")


def test_the_count_names_the_sources_that_speak_for_every_name_and_counts_the_others(result: study.Result) -> None:
    count = next(each.sentence for each in study.findings(result) if each.sentence.startswith("Of 8 heads"))
    assert count.startswith("Of 8 heads 2 are what they attend like (L0H1, L1H2), by attention")
    assert "1 of them also by weights" in count  # the name of a previous-token head says nothing of copying
    post = replace(result.weights, copying=None, diagonal=None, missing={"copying": Missing(setting="x", reason="y")})
    count = next(each for each in study.findings(replace(result, weights=post)) if each.sentence.startswith("Of 8"))
    assert "weights" not in count.sentence


def text_of(result: study.Result) -> Reading:
    assert result.text is not None
    return result.text


def test_text_speaks_of_the_kind_that_a_head_is_named_after(result: study.Result) -> None:
    """A head of two kinds that on text attends by the first only: the second cannot dispute the first's name."""
    both = with_score(result, result.headline, Kind.CURRENT, INDUCTION_HEAD, mean=0.6, low=0.5, high=0.7)
    both = with_score(both, text_of(both), Kind.CURRENT, INDUCTION_HEAD, mean=0.0, low=0.0, high=0.0)
    both = with_score(both, text_of(both), Kind.INDUCTION, INDUCTION_HEAD, mean=0.9, low=0.8, high=1.0)
    verdict = verdict_on(both, INDUCTION_HEAD)
    assert verdict.kinds == (Kind.INDUCTION, Kind.CURRENT)
    assert verdict.standing is Standing.SUPPORTED
    assert [(item.kind, item.bearing, item.bears) for item in verdict.items(Source.TEXT)] == [
        (Kind.INDUCTION, Bearing.FOR, True),
        (Kind.CURRENT, Bearing.AGAINST, False),
    ]
    measures = {name: each for name, each in text_of(both).measures.items() if name != Kind.INDUCTION}
    edited = replace(text_of(both), measures=measures)
    without = replace(both, readings=tuple(edited if each is both.text else each for each in both.readings))
    row = study.more_tables(without)["heads"].set_index("head").loc["L1H2"]
    assert math.isnan(row["text"])


def with_n(result: study.Result, outcome: str, n: int) -> study.Result:
    """The result with harms that pretend to come from `n` sequences."""
    on = tuple(
        replace(each, harm=replace(each.harm, n=n)) if each.outcome == outcome else each for each in result.harms.on
    )
    return replace(result, harms=replace(result.harms, on=on))


def test_too_few_sequences_are_blamed_and_not_the_effect(result: study.Result) -> None:
    few = with_harm(with_n(result, COPY, 6), COPY, INDUCTION_HEAD, p=0.5)
    verdict = verdict_on(few, INDUCTION_HEAD)
    assert verdict.standing is Standing.ATTENTION
    assert "cannot be shown by 6 sequences in 16 tests (p is 0.5 at least): a stripe" in verdict.sentence


def test_p_is_corrected_over_every_head_and_outcome_and_said_with_its_n_and_period(result: study.Result) -> None:
    assert result.harms.n_tests == 16
    assert result.harms.period == 19
    for on in result.harms.on:
        assert result.harms.smallest_p(on) == pytest.approx(16 * 2 / 2**12)
    assert float(result.harms.on[0].p[result.harms.place_of(INDUCTION_HEAD) or 0]) == pytest.approx(16 * 2 / 2**12)
    sentence = verdict_on(result, INDUCTION_HEAD).sentence
    saved = f"{result.harms.copying.mean:.2f}"
    assert f"on copying at period 19, where a repeat saves {saved} (Holm p = 0.0078 over 16 tests," in sentence
    drawn = with_harm(with_n(result, COPY, 64), COPY, INDUCTION_HEAD, p=0.0016)
    assert "(n = 64, Holm p <= 0.0016 over 16 tests," in verdict_on(drawn, INDUCTION_HEAD).sentence


def test_what_untrained_weights_do_as_well_is_no_reading(result: study.Result) -> None:
    first = result.weights_at_step_zero
    assert first is not None
    assert ", 0." in verdict_on(result, INDUCTION_HEAD).sentence.split("K-composition")[1].split(" at step 0")[0]
    as_good = replace(
        first,
        composition={
            name: replace(each, scores=each.scores + 0.1) for name, each in result.weights.composition.items()
        },
    )
    sentence = verdict_on(replace(result, weights_at_step_zero=as_good), INDUCTION_HEAD).sentence
    assert "composition" not in sentence


def test_only_much_more_than_even_attention_is_favour(result: study.Result) -> None:
    assert result.behaviour is not None
    seen = result.behaviour.seen
    lift = torch.full_like(seen.attended_lift.lift, 1.2)
    lift[INDUCTION_HEAD][0] = 3.5
    edited = replace(seen, attended_lift=replace(seen.attended_lift, lift=lift))
    doctored = replace(result, behaviour=replace(result.behaviour, seen=edited))
    (token,) = result.behaviour.tokens(seen.attended_lift, INDUCTION_HEAD, 1)
    assert (
        f'it favours "{token}" (3.5 times even attention), and writes' in verdict_on(doctored, INDUCTION_HEAD).sentence
    )
    assert "favours" not in verdict_on(doctored, PREVIOUS_HEAD).sentence


@pytest.mark.parametrize(
    ("mean", "said"),
    [
        (
            -0.90,
            "in use it raises other tokens more than what it attends to, though this more than an even write would",
        ),
        (0.50, "in use it raises what it attends to (copying"),
        (-0.92, "in use it is not seen to raise what it attends to"),
        (-0.99, "in use it does not raise what it attends to"),
    ],
)
def test_what_a_head_raises_in_use_is_not_said_by_chance_alone(result: study.Result, mean: float, said: str) -> None:
    once = next(each for each in result.readings if each.stimulus is Stimulus.ONCE)
    measures = once.measures | {Kind.COPYING.value: replace(once[Kind.COPYING], chance=-0.92)}
    edited = replace(once, measures=measures)
    doctored = replace(result, readings=tuple(edited if each is once else each for each in result.readings))
    doctored = with_score(doctored, edited, Kind.COPYING, INDUCTION_HEAD, mean=mean, low=mean - 0.01, high=mean + 0.01)
    assert said in verdict_on(doctored, INDUCTION_HEAD).sentence


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
        ({"mean": 0.06, "low": 0.04, "high": 0.2, "p": 0.01}, Standing.ATTENTION, None, "or more is not shown"),
        ({"mean": 0.04, "low": 0.01, "high": 0.2, "p": 0.01}, Standing.ATTENTION, None, "or more is not shown"),
        ({"mean": 0.0, "low": -0.01, "high": 0.01, "p": 1.0}, Standing.ATTENTION, False, "less than 0.05 nats"),
        ({"mean": -0.3, "low": -0.4, "high": -0.2, "p": 0.01}, Standing.ATTENTION, False, "less than 0.05 nats"),
    ],
    ids=["lost", "luck", "open", "small", "nothing", "better"],
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


def test_heads_are_weighed_once_for_each_result(result: study.Result, monkeypatch: pytest.MonkeyPatch) -> None:
    first = study.verdicts(result)
    changed = replace(result, step=result.step + 1)
    assert study.verdicts(changed)[0].sentence != first[0].sentence
    monkeypatch.setattr("analyses.attention.verdicts._verdict", None)
    assert study.verdicts(result) is first
    assert study.findings(result)
    assert len(study.more_tables(result)["heads"]) == len(first)


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
