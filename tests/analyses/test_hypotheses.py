"""Claims tested on a planted circuit, whose every effect is known: verdicts, controls, Holm, refusals, records."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from analyses import hypotheses
from analyses.claims.bounds import Bound, Standing, parse_bound
from analyses.claims.files import Claim
from analyses.claims.records import Record, load_record, save_record
from analyses.claims.statement import ControlKind
from analyses.claims.verdicts import Beside, Checkpoint, Measured, Verdict, corrected, decide
from analyses.claims.wording import since_phrase
from analyses.hypotheses import check, holds_from, load_claims, sentence, steps_of, verdicts_of_run, verdicts_on
from model import GPT
from model.checkpoint import save_checkpoint
from model.errors import CheckpointError, InputError, UnknownNameError
from model.lab import Lab, open_run
from tests import planted
from tests.analyses.claim_texts import INDUCTION, PATH, claim, write
from tests.analyses.test_claim_bounds import of, spread
from tests.planted_run import planted_lab


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """The planted induction circuit at step 8, and random weights at step 0."""
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", planted.induction_model(n_ctx=24))


def claims_of(tmp_path: Path, *keys: dict[str, Any]) -> tuple[Claim, ...]:
    named = [claim(**{"name": f"claim-{number}", "sequences": 16} | each) for number, each in enumerate(keys)]
    return load_claims([write(tmp_path / "some.toml", *named)])


def verdict_on(tmp_path: Path, lab: Lab, **keys: Any) -> Verdict:
    (only,) = claims_of(tmp_path, keys)
    return hypotheses.test_claim(only, lab)


# --- planted effects --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "standing"),
    [
        ({"effect": "harm >= 2.0"}, "supported"),
        ({"effect": "harm >= 30"}, "refuted"),
        ({"effect": "harm <= 0.05"}, "refuted"),
        ({"effect": "share >= 0.5"}, "supported"),
        ({"effect": "share >= 0.5", "gate": 1.0}, "refuted"),
        ({"effect": "harm >= 2.0", "control": "text"}, "supported"),
        ({"effect": "harm >= 2.0", "control": "step0"}, "supported"),
        ({"effect": "harm >= 0.5", "metric": "copy_accuracy"}, "supported"),
        ({"effect": "harm >= 2.0", "positions": [0]}, "refuted"),
        ({"effect": "|harm| <= 0.05", "ablate": "L1H0,L1H1"}, "supported"),
        ({"effect": "harm <= 0.05", "ablate": "L0H0:zero"}, "supported"),
        ({"effect": "gain >= 0.1", "ablate": "L1H0"}, "refuted"),
        ({"effect": "harm >= 2.0", "freeze": "patterns", "ablate": "L0H1"}, "refuted"),
        ({"effect": "harm >= 2.0", "ablate": "L0H1"}, "supported"),
        ({"effect": "harm >= 2.0", "sequential": True, "sequences": 64}, "supported"),
        (PATH, "supported"),
        ({**PATH, "control": "inputs"}, "supported"),
        ({**PATH, "control": "step0", "effect": "harm >= 1"}, "supported"),
        ({**PATH, "input": "v"}, "refuted"),
        ({**PATH, "input": "q", "effect": "harm <= 0.05"}, "supported"),
        ({**PATH, "sender": "L0H1", "receivers": "L1H2", "intervention": "mean@pos"}, "supported"),
    ],
    ids=str,
)
def test_what_was_planted_comes_out(tmp_path: Path, lab: Lab, keys: dict[str, Any], standing: str):
    found = verdict_on(tmp_path, lab, **keys)
    assert found.standing == standing, sentence(found)


def test_the_rules_find_the_planted_heads(tmp_path: Path, lab: Lab):
    ablated, fed = verdicts_on(claims_of(tmp_path, {}, PATH), lab)
    assert ablated.measured is not None and fed.measured is not None
    assert ablated.measured.subject == "L1H2:mean ablated"
    assert fed.measured.subject == "L0H1 patched where K of L1H2 reads it"
    assert fed.measured.judged.interval.mean == pytest.approx(1.0, abs=1e-3), "there is no other way"


def test_a_verdict_is_what_ablate_says(tmp_path: Path, lab: Lab):
    """Parity with the command of one ablation: the same draws, the same numbers."""
    from interp.effects import ablate

    found = verdict_on(tmp_path, lab, seed=3).measured
    effect = ablate(lab, "L1H2:mean", n_sequences=16, seed=3, n_controls=0)
    assert found is not None
    assert found.harm == effect.harm
    assert found.clean == effect.effect.clean


def test_a_clear_effect_ends_at_the_first_look_and_an_unclear_one_takes_all(tmp_path: Path, lab: Lab):
    """16 of 64 sequences may spend a quarter of alpha; a mean on its own bound is never told from it."""
    looks = {"sequential": True, "sequences": 64, "effect": "|harm| <= 0.5"}
    whole = verdict_on(tmp_path, lab, **{**looks, "sequential": False}).measured
    assert whole is not None
    clear, unclear = verdicts_on(claims_of(tmp_path, looks, {**looks, "effect": f"harm >= {whole.harm.mean}"}), lab)
    assert clear.measured is not None and unclear.measured is not None
    assert (clear.standing.value, clear.measured.n, clear.measured.looks) == ("refuted", 16, 1)
    assert clear.measured.judged.interval.level == pytest.approx(1 - 0.05 / 4)
    assert clear.measured.judged.p == pytest.approx(4 * 0.0001)
    assert (unclear.standing.value, unclear.measured.n, unclear.measured.looks) == ("undecided", 64, 3)
    assert unclear.measured.harm.mean == pytest.approx(whole.harm.mean)


def test_where_no_head_passes_the_rule_nothing_is_decided(tmp_path: Path, lab: Lab):
    found = verdict_on(tmp_path, open_run(f"{lab.path}@0"))
    assert (found.standing, found.measured, found.p) == ("undecided", None, None)
    assert "no head passes `induction >= 0.4 and induction >= 2 * reordered` on the discovery sequences" in found.reason
    assert "the highest induction score is 0." in found.reason


def test_a_path_without_later_receivers_is_undecided(tmp_path: Path, lab: Lab):
    found = verdict_on(tmp_path, lab, **PATH | {"sender": "induction >= 0.4 and top 1"})
    assert found.standing == "undecided"
    assert "no receiver (induction >= 0.4 and induction >= 2 * reordered) is in a later layer" in found.reason


def test_nothing_can_be_lost_where_nothing_was_learned(tmp_path: Path, lab: Lab):
    """At step 0 a claim of absence would hold of anything."""
    found = verdict_on(tmp_path, open_run(f"{lab.path}@0"), ablate="L1H2", effect="harm <= 0.5")
    assert found.standing == "undecided"
    assert "advantage over token frequencies" in found.reason


def test_a_share_of_next_to_nothing_is_undecided(tmp_path: Path, lab: Lab):
    """L0H0 writes nothing, so its total effect is zero."""
    found = verdict_on(tmp_path, lab, **PATH | {"sender": "L0H0", "receivers": "L1H2"})
    assert found.standing == "undecided"
    assert "the sender's total effect is 0.00" in found.reason


# --- controls ---------------------------------------------------------------------------------------------------------


def test_a_control_that_is_not_beaten_makes_support_impossible_and_refutes_nothing(tmp_path: Path, lab: Lab):
    """At step 0 there is no earlier one; the same claim without that control is judged by its bound."""
    first = open_run(f"{lab.path}@0")
    keys = {"ablate": "L1.attn:zero", "effect": "harm >= 0.0"}
    beside, alone = verdicts_on(claims_of(tmp_path, {**keys, "control": "step0"}, keys), first)
    assert beside.measured is not None
    assert beside.measured.beside.beaten is False
    assert beside.standing == "undecided" or alone.standing != "supported"


@pytest.mark.parametrize(("beaten", "standing"), [(True, "supported"), (False, "undecided"), (None, "supported")])
def test_the_control_decides_whether_a_met_bound_is_support(beaten: bool | None, standing: str):
    said, reason = decide(measured(2.0, beaten=beaten), bound("harm >= 1"), 0.001)
    assert said == standing
    assert reason == ("the control is not beaten: others cost as much" if standing == "undecided" else "")


@pytest.mark.parametrize("beaten", [True, False, None])
def test_a_refuted_claim_is_refuted_whatever_the_control(beaten: bool | None):
    assert decide(measured(0.5, beaten=beaten), bound("harm >= 1"), 0.001) == ("refuted", "")


def test_matched_sets_rank_the_planted_head_among_bystanders(tmp_path: Path):
    """With 20 heads in a layer, 19 other sets allow p = 1/20."""
    wide = planted_lab(tmp_path / "wide", planted.induction_model(n_heads=20, n_ctx=24))
    keys = {"control": "matched", "sequences": 8}
    found, null, path = verdicts_on(
        claims_of(tmp_path, keys, {**keys, "ablate": "L1H0", "effect": "harm >= 0.0"}, {**PATH, **keys}),
        wide,
    )
    assert found.measured is not None and null.measured is not None and path.measured is not None
    assert found.measured.beside.p == path.measured.beside.p == pytest.approx(1 / 20)
    assert (found.standing, path.standing) == ("supported", "supported")
    assert null.measured.beside.beaten is False
    assert null.standing == "undecided"


# --- together ---------------------------------------------------------------------------------------------------------


def test_claims_tested_together_share_their_error(tmp_path: Path, lab: Lab):
    one, several = (
        claims_of(tmp_path, {}),
        claims_of(tmp_path, *[{"effect": f"harm >= {each}"} for each in (1, 2, 1.5)]),
    )
    alone, first = verdicts_on(one, lab)[0], verdicts_on(several, lab)[0]
    assert alone.p is not None
    assert first.p == pytest.approx(3 * alone.p)
    assert (alone.n_together, first.n_together) == (1, 3)


def test_what_could_not_be_measured_counts_in_the_correction():
    p = [measured(2.0, p=0.02), None, measured(2.0, p=0.04)]
    assert corrected(p) == pytest.approx([0.06, 1.0, 0.08])


def test_a_correction_can_leave_a_clear_interval_undecided():
    said, reason = decide(measured(2.0), bound("harm >= 1"), 0.08)
    assert (said, reason) == ("undecided", "after Holm's correction p = 0.08 is above 0.05")


# --- refused before anything runs ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"ablate": "L1H9"}, "no L1H9: layer 1 has 4 heads"),
        ({"ablate": "L2H0"}, "no L2H0: this model has 2 layers"),
        ({"ablate": "L0.ffn"}, "attention-only"),
        ({"ablate": "L1H1,L1H1"}, "already covered"),
        ({"ablate": "induction >= 0.4 and layer = 2"}, "asks for a layer that this model does not have"),
        ({"effect": "share >= 0.5", "metric": "copy_accuracy"}, "copy_accuracy does not have"),
        ({"effect": "harm >= 1.2", "metric": "copy_accuracy"}, "impossible: copy_accuracy lies between 0 and 1"),
        ({"effect": "harm <= 2", "metric": "text_accuracy"}, "impossible: text_accuracy"),
        ({"control": "text", "metric": "text_loss"}, "which does not exist"),
        ({"control": "text", "metric": "copy_logit_difference"}, "which does not exist"),
        ({"control": "text", "intervention": "counterfactual"}, "no counterfactual on held-out text"),
        ({"positions": [48]}, "48"),
        ({"period": 40}, "period"),
        (
            {"ablate": "L1H1", "control": "matched"},
            'control="matched" cannot reach alpha=0.05.* 3 allow no p',
        ),
        ({"ablate": "L1.attn", "control": "matched"}, "cannot reach alpha.* whole sublayer"),
        ({"sequences": 4}, "4 sequences .* allow no sign-flip p below 0.125"),
        ({"sequences": 64, "alpha": 1e-5}, "allow no sign-flip p below 0.0001"),
        ({"sequences": 64, "alpha": 3e-4, "sequential": True}, "sequential=true looks first after 16 of 64"),
        ({**PATH, "sender": "L0H4"}, "no L0H4"),
        ({**PATH, "sender": "L1H0"}, "no receiver is in a later layer"),
        ({**PATH, "receivers": "L0H1"}, "no receiver is in a later layer"),
        ({**PATH, "control": "matched"}, 'control="matched" cannot reach alpha.* 3 other heads'),
    ],
    ids=str,
)
def test_what_cannot_be_tested_is_refused_and_nothing_runs(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], said: str
):
    def run(*_: object, **__: object) -> None:
        raise AssertionError("the model ran")

    monkeypatch.setattr(GPT, "forward", run)
    monkeypatch.setattr(GPT, "run_with_cache", run)
    with pytest.raises(InputError, match=said) as refusal:
        check(claims_of(tmp_path, {"sequences": 32}, keys), lab)
    assert str(refusal.value).startswith(f'{tmp_path / "some.toml"}, claim "claim-1": ')


def test_too_many_claims_for_so_few_sequences_are_refused(tmp_path: Path, lab: Lab):
    """8 sequences allow p = 2/2^8: enough for 6 claims at 0.05, and not for 7."""
    check(claims_of(tmp_path, *[{"sequences": 8}] * 6), lab)
    with pytest.raises(InputError, match="0.0547 among 7 claims tested together"):
        check(claims_of(tmp_path, *[{"sequences": 8}] * 7), lab)


def test_a_missing_step_0_is_no_control(tmp_path: Path):
    folder = planted_lab(tmp_path / "run").path
    shutil.rmtree(folder / "checkpoints" / "step-00000000")
    with pytest.raises(InputError, match='control="step0" needs a checkpoint of step 0'):
        check(claims_of(tmp_path, {"control": "step0"}), open_run(folder))


def test_paths_of_a_model_without_edges_are_refused(tmp_path: Path):
    gpt = GPT(replace(planted.induction_model().config, norm="post"), seed=0).eval()
    with pytest.raises(InputError, match="path patching"):
        check(claims_of(tmp_path, PATH), planted_lab(tmp_path / "post", gpt))


def test_matched_sets_of_found_heads_are_counted_before_any_ablation(
    tmp_path: Path, lab: Lab, monkeypatch: pytest.MonkeyPatch
):
    def harms(*_: object, **__: object) -> None:
        raise AssertionError("something was ablated")

    monkeypatch.setattr("interp.trials.Bench.harms", harms)
    (only,) = claims_of(tmp_path, {"control": "matched"})
    with pytest.raises(InputError, match='claim "claim-0": control="matched" cannot reach alpha=0.05'):
        hypotheses.test_claim(only, lab)
    (excused,) = verdicts_on([only], lab, excuse=True)
    assert excused.standing == "undecided"
    assert "cannot reach alpha" in excused.reason


# --- runs, steps, records ------------------------------------------------------------------------------------------


def test_at_every_step_a_claim_has_a_verdict_and_holds_from_one_on(tmp_path: Path, lab: Lab):
    folder = shutil.copytree(lab.path, tmp_path / "run")
    save_checkpoint(folder, planted.induction_model(n_ctx=24), step=4, tokens_seen=512)
    records = list(verdicts_of_run(claims_of(tmp_path, {}, {"step": 0}), folder, step="all"))
    mine = [each.verdict for each in records if each.verdict.claim == "claim-0"]
    assert [each.checkpoint.step for each in mine] == [0, 4, 8]
    assert [each.standing.value for each in mine] == ["undecided", "supported", "supported"]
    assert holds_from(mine) == 4
    assert len(list(folder.glob("claims/some/*/*.json"))) == 6


def test_a_claim_holds_from_where_it_never_fails_again():
    def at(step: int, standing: str) -> Verdict:
        return replace(TOY, standing=Standing(standing), checkpoint=replace(TOY.checkpoint, step=step))

    assert holds_from([at(0, "supported"), at(2, "undecided"), at(4, "supported"), at(8, "supported")]) == 4
    assert holds_from([at(8, "supported"), at(0, "refuted")]) == 8
    assert holds_from([at(0, "supported"), at(8, "undecided")]) is None
    assert holds_from([]) is None
    refuted = [at(0, "undecided"), at(2, "refuted"), at(4, "refuted")]
    assert since_phrase(refuted) == "toy is refuted from step 2 on, at every later one of the 3 checkpoints tested."
    assert since_phrase([*refuted, at(8, "undecided")]) == "toy is undecided at the last of 4 checkpoints."


def test_steps_are_those_of_the_command_or_else_of_the_file(tmp_path: Path, lab: Lab):
    claims = claims_of(tmp_path, {}, {"step": [0, 8]}, {"step": "all"})
    names = {step: [each.name for each in here] for step, here in steps_of(claims, lab.path).items()}
    assert names == {0: ["claim-1", "claim-2"], 8: ["claim-0", "claim-1", "claim-2"]}
    assert list(steps_of(claims, lab.path, "0")) == list(steps_of(claims, f"{lab.path}@0")) == [0]
    with pytest.raises(UnknownNameError, match="no checkpoint at step 5; there are 0, 8"):
        steps_of(claims, lab.path, "5")
    with pytest.raises(InputError, match="give one of them"):
        steps_of(claims, f"{lab.path}@0", "8")


def test_everything_is_checked_before_the_first_checkpoint_is_tested(tmp_path: Path, lab: Lab):
    with pytest.raises(InputError, match="no L1H9"):
        verdicts_of_run(claims_of(tmp_path, {}, {"ablate": "L1H9"}), lab.path, step="all")
    assert not (lab.path / "claims" / "some").exists()


def test_a_record_comes_back_as_it_was_saved(tmp_path: Path, lab: Lab):
    folder = shutil.copytree(lab.path, tmp_path / "run")
    saved = list(
        verdicts_of_run(
            claims_of(tmp_path, {"control": "text"}, PATH, {"ablate": "induction >= 0.9999 and top 1 and layer = 0"}),
            folder,
        )
    )
    for record in saved:
        path = folder / "claims" / "some" / record.verdict.claim / "00000008.json"
        assert load_record(path) == record
        assert json.loads(path.read_text())["sentence"] == sentence(record.verdict)
    first = saved[0]
    assert first.verdict.checkpoint.weights_sha256 == lab.weights_sha256
    assert first.verdict.file_sha256 == load_claims([tmp_path / "some.toml"])[0].file_sha256
    assert first.together == ("claim-0", "claim-1", "claim-2")
    assert set(first.versions) == {"python", "torch", "numpy", "cutaway"}
    assert first.statement["ablate"] == INDUCTION
    assert not list(folder.glob("claims/**/.partial*"))


def test_an_interval_without_ends_comes_back_too(tmp_path: Path):
    found = measured(2.0)
    endless = replace(found.judged.interval, low=-math.inf, high=math.inf)
    verdict = replace(TOY, measured=replace(found, judged=replace(found.judged, interval=endless)), p=1.0)
    record = Record(
        verdict=verdict, statement={}, together=("toy",), device="cpu", seconds=0.0, created="", versions={}
    )
    assert load_record(save_record(tmp_path, record)) == record


def test_a_damaged_record_is_refused(tmp_path: Path):
    path = tmp_path / "some.json"
    path.write_text('{"format": 0}')
    with pytest.raises(CheckpointError, match="no verdict of format 1"):
        load_record(path)


def test_the_same_claim_gives_the_same_verdict_again(tmp_path: Path, lab: Lab):
    assert verdict_on(tmp_path, lab) == verdict_on(tmp_path, lab)


# --- sentences --------------------------------------------------------------------------------------------------------


def test_a_sentence_says_all_that_a_verdict_rests_on(tmp_path: Path, lab: Lab):
    text = sentence(verdict_on(tmp_path, lab, control="text", effect="harm >= 1", seed=5))
    for part in (
        "claim-0 is supported at planted@8", "L1H2:mean ablated", "nats", "claimed was `harm >= 1`",
        "p = 0.0001 against", "n = 16 sequences on which no head was chosen", "seed 5", "level 0.95",
        "control beaten: the same costs",
    ):  # fmt: skip
        assert part in text, (part, text)
    assert "Holm" not in text, "it was tested alone"


def test_an_undecided_sentence_says_why(tmp_path: Path, lab: Lab):
    text = sentence(verdict_on(tmp_path, open_run(f"{lab.path}@0")))
    assert text.startswith("claim-0 is undecided at planted@0: no head passes")
    assert text.endswith("(seed 0).")


def bound(text: str) -> Bound:
    return parse_bound(text)


def measured(mean: float, *, beaten: bool | None = None, p: float = 0.0001) -> Measured:
    """As of one claim `harm >= 1` whose deltas have this mean."""
    found = of("harm >= 1", spread(mean))
    kind = ControlKind.NONE if beaten is None else ControlKind.TEXT
    return Measured(
        subject="toy", meaning="loss", unit="nats", whole="", clean=1.0, harm=found.interval,
        judged=replace(found, p=p), alpha=0.05, n=32, looks=1, obstacle="",
        beside=Beside(kind=kind, beaten=beaten, said="others cost as much"),
    )  # fmt: skip


TOY = Verdict(
    claim="toy", says="", bound="harm >= 1", file="toy.toml", file_sha256="",
    checkpoint=Checkpoint(run="toy", step=1, tokens_seen=1, weights_sha256=""),
    standing=Standing.SUPPORTED, expected=Standing.SUPPORTED, reason="", measured=None, p=None, n_together=1,
    metric="copy_loss", seed=0, period=5,
)  # fmt: skip
