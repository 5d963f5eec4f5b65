"""The study of promotion finds a planted promotion, denies one that is not there, and says what stays open."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import jaxtyping
import pytest
import torch

from analyses.figures import themed
from analyses.memory_promotion import Config, Result, figure, findings, more_tables, passages, run, table
from analyses.promotion.controls import control_of
from analyses.promotion.memories import own_largest, writing_as_much
from analyses.promotion.result import ControlKind
from analyses.promotion.verdicts import missed, priced, promoted, promoted_at_once, rises_with_strength
from analyses.promotion.writing import lengths
from analyses.records import decode, encode
from interp.activity import activity_strata, memory_activity
from interp.matched_places import in_order, matched_places
from interp.places import memory
from interp.promotion import Written
from interp.stats import Interval
from model.config import GPTConfig
from model.errors import ConfigError, InputError
from model.lab import Lab
from tests.conftest import make_gpt_with
from tests.planted import PlantedMemory, memories_model
from tests.planted_run import planted_lab

QUICK: dict[str, Any] = {"n_memories": 1, "n_prompts": 12, "n_new_tokens": 6, "strengths": (2.0,)}

EACH = ("share_change", "mass_change", "first_change", "loss_change", "slope")
"""What a control has of each set."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """L0M2 promotes 7, which is h, after (3, 5); nothing else is written."""
    gpt = memories_model({(0, 2): PlantedMemory(3, 5, 7)}, d_ff=32)
    return planted_lab(tmp_path_factory.mktemp("runs") / "planted", gpt, n_rows=96)


@pytest.fixture(scope="module")
def result(lab: Lab) -> Result:
    jaxtyping.config.update("jaxtyping_disable", True)  # runs of fewer sets are checked below
    try:
        return run(lab, Config(concept="text:h", **QUICK))
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def changed(result: Result, **changes: Any) -> Result:
    return replace(result, doses=replace(result.doses, **changes))


def test_the_planted_memory_is_turned_on_and_its_token_is_written(result: Result) -> None:
    (promoter,) = result.memories
    assert (promoter.label, promoter.largest, promoter.top[0]) == ("L0M2", 1.0, "h")
    row = result.doses.at(1.0)
    certain = torch.tensor(5.0).exp() / (torch.tensor(5.0).exp() + 19)
    assert result.doses.mass_by_step[row].mean().item() == pytest.approx(float(certain), abs=1e-5)
    assert result.doses.share[row].mean == pytest.approx(float(certain), abs=0.1)
    assert result.doses.strengths == (0.0, 1.0, 2.0)
    assert result.doses.share.mean.tolist() == sorted(result.doses.share.mean.tolist())
    assert result.slope.low > 0.3


def test_the_controls_of_a_planted_memory_write_nothing_of_it_and_it_ranks_first(result: Result) -> None:
    for kind in (ControlKind.RANDOM, ControlKind.MATCHED, ControlKind.DIRECTION):
        control = result.control(kind)
        assert len(control.share_change) == 20
        assert float(control.share_change.max()) < 0.3
        assert control.p == control.p_first == control.smallest_p == 1 / 21
    for kind in (ControlKind.RANDOM, ControlKind.MATCHED):
        assert result.control(kind).mass_change.abs().max() < 1e-6  # nothing else in this model writes
    assert result.control(ControlKind.DIRECTION).mass_change.abs().max() > 1e-4
    slopes = {kind: result.control(kind) for kind in ControlKind}
    assert slopes[ControlKind.MATCHED].p_slope == 1 / 21
    assert slopes[ControlKind.MATCHED].slope.abs().max() < 1e-6, "what writes nothing writes no more at twice that"
    assert all((each.p_slope is None) is (kind is not ControlKind.MATCHED) for kind, each in slopes.items())


def test_what_is_found_is_said_with_its_controls_its_price_and_step_0(result: Result) -> None:
    first, at_once, dose, price, off = findings(result)
    assert [each.found for each in (first, at_once, dose)] == [True] * 3
    assert price.found is True  # the loss is the same, as this model finds all tokens as likely; but it says h, h, h
    assert result.doses.loss_change[result.doses.at(1.0)].high < 0.05
    assert off.found is not True  # 1 in 361 bigrams: hardly missed
    assert "and more than at step 0" in first.sentence
    for said in ('stands out most for "text:h" (L0M2) held at 1 x', "more than with any control", "planted@8, n = 12",
                 "other memories of the same layers change it by", "p <= 0.048, the smallest that 20 sets allow",
                 "random directions as long as the values", "At step 0 the memories that stand out there"):  # fmt: skip
        assert said in first.sentence
    assert all(" ".join(each.lines) == each.sentence for each in findings(result))
    assert len(first.lines) == 3, "what is found, the controls, step 0"
    assert "With memories that write exactly as much it changes by 0.0 points (median)" in dose.sentence
    assert "More strength gives more of the concept: its share is" in dose.sentence
    assert "nats per token more than what it writes itself" in price.sentence


@pytest.mark.whole
def test_a_concept_that_no_memory_is_about_is_denied(lab: Lab) -> None:
    other = run(lab, Config(concept="text:a", **QUICK | {"n_sets": 0}))
    said = findings(other)[0]
    assert said.found is False
    assert "the concept is not promoted by 2 points or more" in said.sentence
    assert other.doses.share_change[other.doses.at(1.0)].mean < 0


def test_what_controls_do_as_well_is_not_called_promotion(result: Result) -> None:
    control = result.control(ControlKind.MATCHED)
    as_much = replace(control, p=3 / 21)
    others = tuple(as_much if each.kind is ControlKind.MATCHED else each for each in result.controls)
    found = replace(result, controls=others)
    assert promoted(found).found is None
    said = findings(found)[0].sentence
    assert (
        "not shown to be promoted (some sets of memories that write exactly as much do as much): the concept's share"
        in said
    )


def with_control(result: Result, kind: ControlKind, **changes: Any) -> Result:
    controls = (replace(each, **changes) if each.kind is kind else each for each in result.controls)
    return replace(result, controls=tuple(controls))


@pytest.mark.parametrize("kind", [ControlKind.RANDOM, ControlKind.MATCHED, ControlKind.DIRECTION])
def test_the_first_token_has_to_beat_every_control_as_well(kind: ControlKind, result: Result) -> None:
    assert promoted_at_once(result).found is True
    assert promoted_at_once(with_control(result, kind, p_first=2 / 21)).found is None


def test_a_dose_curve_has_to_reach_the_floor_and_beat_that_of_memories_that_write_as_much(result: Result) -> None:
    assert rises_with_strength(result).found is True
    low = replace(result, slope=replace(result.slope, low=0.019))
    assert rises_with_strength(low) == replace(
        rises_with_strength(low),
        found=None,
        why=("it may be less than 2 points, the least that counts",),
        lacks_sets=False,
    )
    none = replace(result, slope=replace(result.slope, low=-0.01, high=0.019))
    assert rises_with_strength(none).found is False
    beaten = with_control(result, ControlKind.MATCHED, p_slope=2 / 21)
    assert rises_with_strength(beaten).found is None
    assert (
        "is not shown (some sets of memories that write exactly as much do as much): its share"
        in findings(beaten)[2].sentence
    )


@pytest.mark.parametrize(
    ("lead", "judge"),
    [("share_lead", promoted), ("first_lead", promoted_at_once), ("slope_lead", rises_with_strength)],
)
def test_what_step_0_does_as_well_is_not_found(lead: str, judge: Any, result: Result) -> None:
    assert result.start is not None
    as_much = replace(getattr(result.start, lead), low=-0.01)
    found = judge(replace(result, start=replace(result.start, **{lead: as_much})))
    assert (found.found, found.why, found.lacks_sets) == (None, ("it is not surely more than at step 0",), False)
    assert judge(replace(result, start=None)).found is True, "a run without step 0 rests on its controls"


def test_nothing_is_affirmed_at_step_0_however_large_the_numbers(result: Result) -> None:
    huge = replace(off_by_much(result), step=0, start=None)
    for judge in (promoted, promoted_at_once, rises_with_strength, missed, priced):
        assert judge(huge).found is None
    assert [each.found for each in findings(huge)] == [None] * 5
    assert all("this is step 0, where nothing is learned" in each.sentence for each in findings(huge))


@pytest.mark.whole
def test_an_untrained_model_affirms_nothing(tmp_path: Path) -> None:
    """Values stand out for something by chance, and turned on they do promote it: that is no finding about learning."""
    start = planted_lab(tmp_path / "untrained", make_gpt_with(d_vocab=20, n_ctx=48, d_ff=128), step=0, n_rows=96)
    settings = QUICK | {"n_memories": 20, "strength": 60.0, "strengths": (20.0,), "n_sets": 2, "alpha": 0.4}
    found = run(start, Config(concept="text:hi", **settings))
    assert found.control(ControlKind.MATCHED).slope.abs().min() > 1e-4, "a matched set has a curve of its own"
    assert found.doses.share_change[found.doses.at(60.0)].low > 0.02, "the memories are strong enough to be seen"
    assert True not in [each.found for each in findings(found)]


def test_too_few_sets_are_said_to_be_too_few_and_not_that_the_controls_do_as_much(result: Result) -> None:
    few = dict.fromkeys(EACH, torch.zeros(2, dtype=torch.float64))
    found = with_control(result, ControlKind.MATCHED, p=1 / 3, p_first=1 / 3, p_slope=1 / 3, **few)
    said = "(2 sets of memories that write exactly as much allow no p below 0.33, too few to tell at 0.05)"
    for judge, finding in ((promoted, 0), (promoted_at_once, 1), (rises_with_strength, 2)):
        assert judge(found).found is None
        assert judge(found).lacks_sets
        assert said in findings(found)[finding].sentence
    assert themed(figure(found)).to_dict()["title"]["text"].endswith("of what is written, too few control sets to tell")
    beaten = with_control(found, ControlKind.RANDOM, p=2 / 21)
    assert not promoted(beaten).lacks_sets
    assert themed(figure(beaten)).to_dict()["title"]["text"].endswith("not shown to be promotion")
    empty = torch.zeros(0, dtype=torch.float64)
    none = with_control(result, ControlKind.DIRECTION, p=None, p_first=None, **dict.fromkeys(EACH, empty))
    assert promoted(none).why == (
        "without sets of random directions as long as the values nothing can be told at 0.05",
    )


@pytest.mark.parametrize(
    ("loss", "distinct", "found"),
    [
        ((0.06, 0.5), (-0.01, 0.01), True),
        ((-2.0, -1.0), (-0.5, -0.4), True),
        ((-0.1, 0.04), (-0.01, 0.01), False),
        ((-0.1, 0.06), (-0.01, 0.01), None),
        ((-0.1, 0.04), (-0.03, 0.01), None),
    ],
)
def test_the_price_is_a_loss_or_the_same_over_and_over(
    loss: tuple[float, float], distinct: tuple[float, float], found: bool | None, result: Result
) -> None:
    def between(low: float, high: float) -> Any:
        interval = result.doses.loss_change
        mean = torch.full_like(interval.mean, (low + high) / 2)
        return replace(interval, mean=mean, low=torch.full_like(mean, low), high=torch.full_like(mean, high))

    priced = changed(result, loss_change=between(*loss), distinct_change=between(*distinct))
    assert findings(priced)[3].found is found


@pytest.mark.parametrize(
    ("low", "high", "found"), [(0.03, 0.5, True), (0.01, 0.5, None), (-0.1, 0.019, False), (-0.5, -0.1, False)]
)
def test_the_verdict_is_the_intervals(low: float, high: float, found: bool | None, result: Result) -> None:
    interval = result.doses.share_change
    row = result.doses.at(1.0)
    lows, highs, means = interval.low.clone(), interval.high.clone(), interval.mean.clone()
    lows[row], highs[row], means[row] = low, high, (low + high) / 2
    moved = changed(result, share_change=replace(interval, low=lows, high=highs, mean=means))
    assert promoted(moved).found is found


def test_turned_off_is_found_missed_only_beyond_its_control(result: Result) -> None:
    gone = off_by_much(result)
    assert findings(gone)[4].found is True
    assert findings(with_control(gone, ControlKind.OFF, p=0.4))[4].found is None
    assert "turned off do as much" not in findings(gone)[4].sentence
    hardly = replace(gone, plain_share=_share(0.03), doses=replace(gone.doses, share_change=at_off(gone, -0.03, -0.01)))
    assert (
        "is not shown (it may be less than half of that share, the least that counts): its share"
        in findings(hardly)[4].sentence
    )
    assert gone.start is not None
    as_at_zero = replace(gone.start, off_lead=replace(gone.start.off_lead, low=-0.2, high=0.01))
    assert findings(replace(gone, start=as_at_zero))[4].found is None
    assert findings(result)[4].sentence.startswith(
        ("Turned off, these memories are not missed", "That these memories are missed when they are off is not shown")
    )


def off_by_much(result: Result) -> Result:
    """The result with shares that are 20 points lower, also when off, and are so at step 0 by nothing."""
    fall, off = result.doses.share_change, result.doses.at(0.0)
    lower = [end.clone() for end in (fall.low, fall.high, fall.mean)]
    for end in lower:
        end[off] -= 0.2
    low, high, mean = lower
    gone = changed(result, share_change=replace(fall, low=low, high=high, mean=mean))
    gone = with_control(replace(gone, plain_share=_share(0.3)), ControlKind.OFF, p=0.01)
    assert gone.start is not None
    return replace(gone, start=replace(gone.start, off_lead=_share(-0.2)))


def at_off(result: Result, low: float, high: float) -> Any:
    """Changes of the share with another interval where the memories are off."""
    found, off = result.doses.share_change, result.doses.at(0.0)
    ends = [end.clone() for end in (found.low, found.high)]
    for end, value in zip(ends, (low, high), strict=True):
        end[off] = value
    return replace(found, low=ends[0], high=ends[1])


def _share(mean: float) -> Interval:
    return Interval(mean=mean, low=mean, high=mean, n=12, level=0.95, method="")


def test_control_sets_write_as_much_as_what_they_stand_for() -> None:
    gpt = make_gpt_with(d_ff=120)
    tokens = torch.randint(0, 50, (8, 24), generator=torch.Generator().manual_seed(0))
    activity, chosen = memory_activity(gpt, tokens), [(0, 3), (1, 7), (0, 90)]
    strata, bare = activity_strata(activity), [memory(*each) for each in chosen]
    own = own_largest([(p.layer, p.number) for p in in_order(bare, gpt.config, strata)], activity, 1.5)
    norms = gpt.W_out.norm(dim=-1)
    for places in matched_places(bare, gpt.config, limit=5, seed=0, strata=strata).sets:
        numbers = [(place.layer, place.number) for place in places]
        for place, mine in zip(writing_as_much(numbers, own, activity), own, strict=True):
            assert (place.layer, place.stated[:4]) == (mine.layer, "set=")
            written = [abs(float(each.stated[4:])) * float(norms[each.layer, each.number]) for each in (place, mine)]
            assert written[0] == pytest.approx(written[1], rel=1e-5)
    with pytest.raises(InputError, match="L0M3 is set to no number, so that nothing can write as much"):
        writing_as_much([(0, 1)], [memory(0, 3)], activity)
    assert [place.amount for place in own_largest(chosen, activity, 2.0)] == [
        pytest.approx(2 * float(activity.largest[each])) for each in chosen
    ]


def test_it_reads_back_as_it_was_and_can_be_shown(result: Result) -> None:
    again = decode(Result, *encode(result))
    assert [each.sentence for each in findings(again)] == [each.sentence for each in findings(result)]
    rows = table(again)
    assert rows["strength"].tolist() == [0.0, 1.0, 2.0]
    assert rows["share_change"].tolist() == pytest.approx(result.doses.share_change.mean.tolist())
    assert {name: len(rows) for name, rows in more_tables(again).items()} == {"memories": 1, "controls": 80}
    assert themed(figure(again)).to_dict()["title"]["text"].startswith("Text:h, 1 memory turned on")
    shown = passages(again)
    assert len(shown) == 6
    assert len(shown[0].tokens) == len(shown[0].shades) == result.n_prompt_tokens + 1 + result.n_new_tokens
    assert "h" in shown[1].tokens


@pytest.mark.whole
def test_the_same_seed_gives_the_same_and_another_does_not(lab: Lab, result: Result) -> None:
    config = replace(result.config, n_sets=0)
    one, again, other = (run(lab, each) for each in (config, config, replace(config, seed=1)))
    assert torch.equal(one.doses.share.mean, again.doses.share.mean)
    assert torch.equal(one.doses.share.mean, result.doses.share.mean)
    assert not torch.equal(one.doses.share.mean, other.doses.share.mean)
    assert [len(each.share_change) for each in one.controls] == [0] * 4
    assert "no control: none was asked for" in findings(one)[0].sentence


@pytest.mark.whole
def test_step_0_has_nothing_beside_it(lab: Lab) -> None:
    start = planted_lab(lab.path.parent / "start", lab.gpt, step=0, n_rows=24)
    found = run(start, Config(concept="text:h", **QUICK | {"n_sets": 0, "n_prompts": 4}))
    assert found.start is None
    assert "nothing earlier, this being step 0" in findings(found)[0].sentence


@pytest.mark.whole
def test_progress_counts_every_run(lab: Lab) -> None:
    told: list[tuple[int, int]] = []
    config = Config(concept="text:h", **QUICK | {"n_sets": 1, "alpha": 0.5, "n_prompts": 2})
    run(lab, config, progress=lambda done, total, what: told.append((done, total)))
    assert told == [(done, 13) for done in range(1, 14)]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"n_memories": 0}, "n_memories=0 is not allowed; give a number of at least 1"),
        ({"strength": 0.0}, "strength=0.0 is not allowed; give a number above 0"),
        ({"strengths": (2.0, 2.0)}, "strengths=2.0,2.0 is not allowed; name each once"),
        ({"temperature": -1.0}, "temperature=-1.0 is not allowed"),
        ({"n_sets": 18}, "n_sets=18 allows no p below 0.053, so nothing could be .* alpha=0.05; give 19 or more, or 0"),
        ({"n_sets": 2, "alpha": 0.1}, "n_sets=2 allows no p below 0.33, .* alpha=0.1; give 9 or more, or 0"),
    ],
)
def test_what_no_config_may_hold_is_said(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        Config(**given)


def test_prompts_and_texts_fit_the_context_or_are_refused(lab: Lab) -> None:
    small = GPTConfig(n_layers=1, n_heads=1, d_model=8, n_ctx=10, d_vocab=9)
    assert lengths(small, Config()) == (5, 6)
    assert lengths(replace(small, n_ctx=512), Config()) == (32, 24)
    with pytest.raises(InputError, match=r"5 tokens of a prompt and 7 more exceed n_ctx=10; ask for smaller"):
        lengths(small, Config(n_new_tokens=7))
    with pytest.raises(InputError, match="exceed n_ctx=10"):
        lengths(small, Config(n_prompt_tokens=11))
    with pytest.raises(ConfigError, match='concept="hh" is none of this vocabulary'):
        run(lab, Config(concept="hh"))


def test_models_without_memories_that_fire_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="attention-only"):
        run(planted_lab(tmp_path / "attention"), Config(concept="text:h"))
    silent = make_gpt_with(n_ctx=48, d_vocab=20, ffn="relu", biases=True)
    for block in silent.layers:
        block.mlp.in_proj.weight.data.zero_()
        block.mlp.in_proj.bias.data.fill_(-1.0)
    with pytest.raises(InputError, match="no memory of this model has a coefficient above zero"):
        run(planted_lab(tmp_path / "silent", silent), Config(concept="text:h"))


def test_as_many_sets_as_a_level_takes_are_enough() -> None:
    assert [Config(n_sets=n, alpha=alpha).n_sets for n, alpha in ((19, 0.05), (9, 0.1), (0, 0.05))] == [19, 9, 0]


@pytest.mark.parametrize(("kind", "p", "p_first"), [("random", 2 / 4, 3 / 4), ("off", 3 / 4, 2 / 4)])
def test_a_rank_counts_rises_and_falls_where_memories_are_off(kind: str, p: float, p_first: float) -> None:
    """Shares change by 0.2 beside 0.3, 0.1 and 0.0; probabilities by 0 beside 0.1, 0.1 and -0.1."""

    def wrote(share: float, mass: float) -> Written:
        each = torch.full((2,), share, dtype=torch.float64)
        steps = torch.tensor([[mass, 9 - 20 * mass, 0.0]] * 2, dtype=torch.float64)  # later steps rank otherwise
        return Written(text=torch.zeros(2, 1, 3, dtype=torch.int64), share=each, mass=steps, loss=each, distinct=each)

    plain, own = wrote(0.4, 0.5), wrote(0.6, 0.5)
    found = [wrote(0.7, 0.6), wrote(0.5, 0.6), wrote(0.4, 0.4)]
    control = control_of(kind, "", found, plain, own)
    assert control.share_change.tolist() == pytest.approx([0.3, 0.1, 0.0])
    assert control.first_change.tolist() == pytest.approx([0.1, 0.1, -0.1])
    assert (control.p, control.p_first, control.smallest_p) == (p, p_first, 1 / 4)


def test_strengths_are_drawn_in_order_the_stronger_the_darker_and_the_model_as_it_is_in_grey(result: Result) -> None:
    _, steps, _ = themed(figure(result)).to_dict()["hconcat"]
    scale = steps["encoding"]["color"]["scale"]
    assert scale["domain"] == ["as it is", "0 x", "1 x", "2 x"]
    plain, *shades = ([int(colour[at : at + 2], 16) for at in (1, 3, 5)] for colour in scale["range"])
    assert max(plain) - min(plain) < 20, "grey"
    assert [sum(each) for each in shades] == sorted((sum(each) for each in shades), reverse=True)
