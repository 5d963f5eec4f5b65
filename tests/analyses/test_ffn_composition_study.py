"""The study of composition: planted layers come out as planted, shares are of all prefixes, and claims need a p."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from analyses import ffn_composition
from analyses.composition.figure import draw
from analyses.composition.result import SinceStart
from analyses.composition.summing import Units, common_tokens, promotion
from analyses.composition.wording import Beyond, verdict_of
from analyses.ffn.config import Split
from analyses.ffn_composition import Config, Result
from analyses.records import decode, encode, same
from analyses.registry import Finding
from interp.ffn_composed import Case, Counted
from interp.sub_updates import Saturations
from model import GPT
from model.errors import ConfigError, InputError, NotAdditiveError
from model.lab import Lab, first_checkpoint
from tests.analyses.test_ffn_memories import PLANTED, letters_lab, planted_memories
from tests.memory_runs import python_lab

QUICK = Config(n_prefixes=120, batch_size=8)
ACTIVE = list(Counted).index(Counted.ACTIVE)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Result]:
    """One ReLU layer, in which a bigram fires one memory and that memory alone makes the prediction."""
    start = GPT(planted_memories().config, seed=3)
    lab = letters_lab(tmp_path_factory.mktemp("planted"), planted_memories(), zero=start)
    return lab, ffn_composition.run(lab, replace(QUICK, split=Split.TRAIN, n_prefixes=10_000, per_window=2))


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Result]:
    lab = python_lab(tmp_path_factory.mktemp("real"), norm_kind="layernorm", biases=True)
    return lab, ffn_composition.run(lab, QUICK)


def test_a_planted_layer_is_made_of_one_memory_where_it_fires(planted: tuple[Lab, Result]) -> None:
    lab, result = planted
    spans = lab.corpus.train.spans.tolist()
    texts = [lab.tokenizer.decode(lab.corpus.tokens[start : stop - 1]) for start, stop in spans]
    room, words = lab.config.n_ctx - 1, {word[:2] for word in PLANTED.values()}
    windows = [text[at : at + room] for text in texts for at in range(0, len(text), room)]
    fired = sum(window[at : at + 2] in words for window in windows for at in range(len(window)))
    assert result.n_prefixes == sum(map(len, windows))
    share = fired / result.n_prefixes
    now = result.now
    assert float(now.active.mean[0]) == pytest.approx(share / 8)
    assert now.zero_agreement.mean[[ACTIVE, ACTIVE + 1, ACTIVE + 2], 0].tolist() == pytest.approx([1 - share] * 3)
    assert float(now.zero_agreement.mean[0, 0]) == pytest.approx(1 - share)  # where y says nothing nobody agrees
    assert float(now.n_agreeing[ACTIVE, 0]) == pytest.approx(1.0)
    assert float(now.breakdown.mean[Case.FFN, 0]) == pytest.approx(share)
    assert float(now.breakdown.mean[Case.AGREEMENT, 0]) == pytest.approx(1 - share)  # that there is nothing to say
    assert float(now.residual_agreement.mean[0]) == pytest.approx(1 - share)
    assert now.sub_updates.ks == (1, 3)  # of eight memories
    assert now.sub_updates.top.r_squared.mean[:, 0].tolist() == pytest.approx([1.0, 1.0])
    assert now.sub_updates.n_half.tolist() == [1]
    assert now.promotion is None  # no rival is displaced: the stream says nothing
    assert float(now.composed_changes.mean) == 0
    kinds = dict(zip(now.targets.kinds, now.targets.agreeing.tolist(), strict=True))
    assert kinds["letters"] == pytest.approx(1.0)
    assert now.targets.n_agreeing == fired
    assert now.targets.n == fired
    promoted = {word[2] for word in PLANTED.values()}
    assert len(promoted) == 8
    assert result.unit == "windows"  # of three documents two are trained on
    assert result.n_units == result.n_windows == len(windows)


def test_findings_of_the_planted_layer(planted: tuple[Lab, Result]) -> None:
    said = ffn_composition.findings(planted[1])
    active, zero, targets, refined, kept, ffn, composed, carried, promoted = said
    assert active.found is True
    assert "In the one layer fewer than half of the memories are active" in active.sentence
    assert zero.found is None or zero.found is (float(planted[1].now.zero_agreement.mean[ACTIVE, 0]) > 0.5)
    assert targets.found is not None or "is not shown" in targets.sentence
    assert refined.found is None
    assert "There is one FFN, and so no rise" in refined.sentence
    assert ffn.found is False
    assert "in more than 10% of cases" in ffn.sentence
    assert composed.found is False
    assert carried.found is True
    assert "the 3 largest of 8 sub-updates are more than half" in carried.sentence
    assert promoted.found is None
    assert kept.found is None
    assert "but that it is more than with another prefix's update is not shown" in kept.sentence
    for each in said:
        assert "run@8, n = " in each.sentence
        assert "seed 0" in each.sentence
        assert each.sentence.endswith(".")
    assert "at step 0" in zero.sentence


def test_shares_are_shares_of_all_prefixes(real: tuple[Lab, Result]) -> None:
    _, result = real
    now = result.now
    for cases in (now.breakdown, now.breakdown_other, now.breakdown_dealt):
        torch.testing.assert_close(cases.mean.sum(0), torch.ones(2, dtype=torch.float64))
    zero = now.zero_agreement.mean
    assert (zero[0] <= zero[ACTIVE]).all()  # all memories agree at least as often as the active ones
    assert (zero[2] <= zero[3]).all()
    assert float(now.output_agreement.mean[-1]) == 1
    assert now.saturation.sum(1).tolist() == [result.n_prefixes] * 2
    assert (now.active_quartiles[0] <= now.active_quartiles[2]).all()
    torch.testing.assert_close(now.steps.mean[0], now.residual_agreement.mean[1] - now.residual_agreement.mean[0])
    torch.testing.assert_close(now.steps.mean[1], 1 - now.residual_agreement.mean[1])
    for part in (now.active, now.zero_agreement, now.breakdown, now.sub_updates.top.r_squared):
        assert (part.low <= part.mean + 1e-9).all()
        assert (part.high >= part.mean - 1e-9).all()
    assert now.promotion is not None
    assert int(now.promotion.by_layer.sum()) == now.promotion.n_events


def test_what_is_alike_with_another_prefixs_update_is_not_told_from_it(real: tuple[Lab, Result]) -> None:
    """A model whose FFNs write next to nothing keeps every token, with its own update and with another's."""
    lab, _ = real
    still = copy.deepcopy(lab.gpt)
    for block in still.layers:
        assert block.mlp is not None
        for part in block.mlp.parameters():
            part.data.mul_(1e-3)
    now = ffn_composition.run(replace(lab, gpt=still), QUICK).now
    assert now.p_kept_other.tolist() == now.p_ffn_other.tolist() == [1.0, 1.0]
    assert max(now.p_kept.tolist()) < 0.01  # all kept


@pytest.mark.whole
def test_batches_change_nothing(real: tuple[Lab, Result]) -> None:
    """But which prefixes lend their updates, and which memories are drawn."""
    lab, result = real
    again = ffn_composition.run(lab, replace(QUICK, batch_size=200)).now
    for name in ("active", "strong", "carrying", "zero_agreement", "zero_agreement_dealt", "residual_probability"):
        torch.testing.assert_close(getattr(again, name).mean, getattr(result.now, name).mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(again.breakdown.mean, result.now.breakdown.mean)
    torch.testing.assert_close(again.sub_updates.top.r_squared.mean, result.now.sub_updates.top.r_squared.mean)


@pytest.mark.whole
def test_the_same_seed_gives_the_same_result_and_another_another(real: tuple[Lab, Result]) -> None:
    lab, result = real
    assert same(ffn_composition.run(lab, QUICK), result)
    other = ffn_composition.run(lab, replace(QUICK, seed=1))
    assert not torch.equal(other.now.active.mean, result.now.active.mean)


@pytest.mark.whole
def test_step_0_is_that_of_the_run_itself(planted: tuple[Lab, Result]) -> None:
    lab, result = planted
    first = first_checkpoint(lab)
    assert first is not None
    alone = ffn_composition.run(first, result.config)
    assert alone.at_step_zero is None
    assert same(alone.now, result.at_step_zero)
    assert alone.step == 0
    without = ffn_composition.run(lab, replace(result.config, step_zero=False, n_prefixes=64))
    assert without.at_step_zero is None
    assert len(ffn_composition.inputs(lab, without.config)) == len(ffn_composition.inputs(lab, result.config)) - 1


def test_a_final_bias_is_owned_up_to(real: tuple[Lab, Result]) -> None:
    _, result = real
    assert not result.linear
    said = [each for each in ffn_composition.findings(result) if "the final LayerNorm's bias" in each.sentence]
    assert len(said) == 1
    assert said[0].found is None  # a count
    impossible = float(result.now.breakdown.mean[Case.IMPOSSIBLE].sum())
    assert said[0].sentence.startswith("Stream and update agree") is (impossible > 0)


def trained(result: Result, start: dict[str, Any] | None = None, **p: Any) -> Result:
    """As if the run had a step 0, like this checkpoint but for some numbers, and these p since then."""
    both = torch.full((result.n_layers,), 0.01)
    since = SinceStart(p_active=both, p_carried=both, p_rise=0.01, p_common=0.01, p_promoted=0.01)
    before = result.at_step_zero or result.now
    return replace(result, at_step_zero=replace(before, **(start or {})), since_start=replace(since, **p))


@pytest.mark.parametrize(
    ("share", "rises", "p", "p_another", "p_start", "found"),
    [
        (0.8, (3.0, 1.0), 0.01, 0.01, 0.01, True),
        (0.8, (3.0, 1.0), 0.01, 0.01, 0.2, None),  # as much at step 0
        (0.6, (3.0, 1.0), 0.01, 0.01, 0.01, None),  # less than at step 0
        (0.8, (3.0, 1.0), 0.01, 0.2, 0.01, None),  # every prediction rises
        (0.8, (1.0, 3.0), 0.01, 0.01, 0.01, None),
        (0.8, (3.0, 1.0), 0.2, 0.01, 0.01, None),
        (0.2, (3.0, 1.0), 0.01, 0.2, 0.2, False),
    ],
)
def test_promotion_is_found_where_it_is_more_than_a_half_than_at_step_0_and_than_of_any_prediction(
    real: tuple[Lab, Result], share: float, rises: Any, p: float, p_another: float, p_start: float, found: bool | None
) -> None:
    _, result = real
    old = result.now.promotion
    assert old is not None
    total = replace(old.total, mean=torch.tensor([rises[0], 0.5, rises[1]], dtype=torch.float64))
    interval = replace(old.promoted_share, mean=share)
    new = replace(old, promoted_share=interval, total=total, p_promoted=p, p_another=p_another)
    start = replace(old, promoted_share=replace(interval, mean=0.7))
    beside = trained(result, start={"promotion": start}, p_promoted=p_start)
    assert changed(beside, promotion=new)[-1].found is found
    without = changed(trained(result, start={"promotion": None}), promotion=new)[-1]
    assert without.found is (None if found else found)


def test_promotion_is_what_rises_make_up_of_rises_and_falls() -> None:
    """Of three events: both tokens rise, one rises and the other falls, both fall; and one prefix has none."""
    total = torch.tensor([[3.0, 1.0, 0.0], [1.0, -1.0, 0.0], [-1.0, -2.0, 0.0], [torch.nan] * 3])
    layer = torch.tensor([0, 1, 1, -1])
    events = Saturations(layer=layer, total=total, raised=total, lowered=total, dominant=total, random=total)
    found = promotion(events, 2, Units(torch.arange(4), 4, seed=0))
    assert found is not None
    assert found.n_events == 3
    assert found.by_layer.tolist() == [1, 2]
    assert found.promoted_share.mean == pytest.approx((3 + 1) / (3 + 1 + 1 + 2))
    assert (found.p_promoted, found.p_another, found.p_dominant) == (1, 1, 1)  # of three units nothing is said


def changed(result: Result, **fields: Any) -> list[Finding]:
    return ffn_composition.findings(replace(result, now=replace(result.now, **fields)))


@pytest.mark.parametrize(
    ("means", "ps", "found", "said"),
    [
        ((0.9, 0.8), (0.01, 0.02), True, "In every layer most predictions are those of no active memory"),
        ((0.9, 0.8), (0.01, 0.06), None, "is not shown (it is in layer 0)"),
        ((0.9, 0.2), (0.01, 0.01), False, "In layer 1 most predictions are those of an active memory, too"),
        ((0.2, 0.2), (0.06, 0.06), None, "is not shown (it is in none)"),
    ],
)
def test_a_claim_about_every_layer_needs_a_p_of_each(
    real: tuple[Lab, Result], means: tuple[float, float], ps: tuple[float, float], found: bool | None, said: str
) -> None:
    _, result = real
    mean = result.now.zero_agreement.mean.clone()
    mean[ACTIVE] = torch.tensor(means, dtype=mean.dtype)
    zero = replace(result.now.zero_agreement, mean=mean)
    finding = changed(result, zero_agreement=zero, p_zero=torch.tensor(ps))[1]
    assert finding.found is found
    assert said in finding.sentence


@pytest.mark.parametrize(
    ("mean", "p", "p_other", "found"),
    [
        (0.7, 0.01, 0.01, True),
        (0.7, 0.01, 0.2, None),  # as often with another prefix's update
        (0.7, 0.2, 0.01, None),
        (0.3, 0.01, 0.2, False),
    ],
)
def test_changes_are_mostly_third_tokens_where_they_surely_are_and_the_control_is_not_the_same(
    real: tuple[Lab, Result], mean: float, p: float, p_other: float, found: bool | None
) -> None:
    _, result = real
    share, other = (replace(result.now.composed_changes, mean=each) for each in (mean, mean - 0.1))
    both = {"composed_changes": share, "composed_changes_other": other}
    assert changed(result, **both, p_composed=p, p_composed_other=p_other)[6].found is found


@pytest.mark.parametrize(
    ("rise", "step", "p", "found"),
    [
        ((0.2, 0.4), (0.1, 0.3), 0.01, True),
        ((0.2, 0.4), (-0.015, -0.005), 0.01, True),  # a fall of less than two points is none
        ((0.2, 0.4), (-0.3, -0.1), 0.01, False),  # it falls on the way
        ((0.2, 0.4), (-0.3, -0.1), 0.2, None),
        ((-0.4, -0.2), (0.1, 0.3), 0.2, False),
        ((-0.1, 0.2), (0.1, 0.3), 0.2, None),
    ],
)
def test_the_models_token_comes_up_layer_by_layer_or_does_not(
    real: tuple[Lab, Result], rise: Any, step: Any, p: float, found: bool | None
) -> None:
    _, result = real
    now = result.now
    assert now.rise is not None
    steps = replace(
        now.steps,
        low=torch.tensor([step[0], 0.1], dtype=torch.float64),
        high=torch.tensor([step[1], 0.3], dtype=torch.float64),
    )
    rises = replace(now.rise, low=rise[0], high=rise[1])
    fields = {"steps": steps, "rise": rises, "p_steps": torch.tensor([p, 0.01])}
    assert changed(result, **fields)[3].found is (None if found else found)  # no step 0 to be held against
    beside = trained(result, start={"rise": replace(now.rise, mean=-1.0)}, p_rise=0.01)
    assert changed(beside, **fields)[3].found is found
    assert changed(trained(beside, p_rise=0.2), **fields)[3].found is (None if found else found)


def test_a_verdict_names_the_layers_against_it(real: tuple[Lab, Result]) -> None:
    _, result = real
    assert verdict_of(result, ([0], [1]), None, holds="a", fails="b") == (False, "In layer 1 b")


def test_what_holds_of_a_control_as_well_is_said_and_not_found(real: tuple[Lab, Result]) -> None:
    _, result = real
    surely = ([0, 1], [])
    more = Beyond("more than with b", [0, 1])
    assert verdict_of(result, surely, more, holds="a", fails="c") == (True, "In every layer a")
    found, said = verdict_of(result, surely, Beyond("more than with b", [1]), holds="a", fails="c")
    assert (found, said) == (None, "In every layer a, but that it is in layer 0 more than with b is not shown")
    found, said = verdict_of(result, surely, Beyond("more than with b", []), holds="a", fails="c")
    assert (found, said) == (None, "In every layer a, but that it is more than with b is not shown")
    assert verdict_of(result, surely, None, holds="a", fails="c")[0] is None
    found, said = verdict_of(replace(result, step=0), surely, more, holds="a", fails="c")
    assert (found, said) == (None, "In every layer a, before any training")


def test_of_random_weights_nothing_is_found(planted: tuple[Lab, Result], real: tuple[Lab, Result]) -> None:
    """As step 0 of a run, and as if they had been trained for some steps, with no step 0 beside them and with one."""
    lab, result = real
    first = first_checkpoint(planted[0])
    assert first is not None
    at_zero = ffn_composition.run(first, planted[1].config)
    again = ffn_composition.run(lab, replace(QUICK, seed=1))
    beside = replace(result, at_step_zero=again.now, since_start=None)
    for each in (at_zero, result, again, beside):
        assert [finding.sentence for finding in ffn_composition.findings(each) if finding.found] == []


def test_shares_are_ratios_over_units() -> None:
    units = Units(torch.tensor([0, 0, 0, 1]), 2, seed=0)
    values = torch.tensor([[1.0], [1.0], [0.0], [0.0]])
    assert units.sums(values).tolist() == [[2.0], [0.0]]
    assert float(units.share(values).mean[0]) == 0.5  # of prefixes, not of units
    kept = units.some(torch.tensor([False, False, False, True]))
    assert (kept.n, kept.of_prefix.tolist()) == (1, [0])
    many = Units(torch.arange(40) // 4, 10, seed=0)
    values = torch.tensor([[1.0, 0.5]]).repeat(40, 1)
    assert many.ps(values, 0.5).tolist() == [1, 1]  # of ten units nothing is said
    enough = Units(torch.arange(40) // 2, 20, seed=0)
    assert enough.ps(values, 0.5).tolist() == [pytest.approx(2 * 2 / 2**20), 1]  # twice one's: two layers
    assert enough.apart_ps(values, 0 * values).tolist() == [pytest.approx(2 * 2 / 2**20), 1]


def test_common_tokens_make_up_half_of_a_text() -> None:
    text = torch.tensor([0] * 4 + [1] * 3 + [2] * 2 + [3])
    assert common_tokens(text, 6).nonzero()[:, 0].tolist() == [0, 1]


@pytest.mark.whole
def test_a_file_of_the_users_is_read_instead(real: tuple[Lab, Result], tmp_path: Path) -> None:
    lab, result = real
    file = tmp_path / "own.txt"
    file.write_text("def f(x):\n    return x\n" * 40)
    config = replace(QUICK, text=str(file), n_prefixes=40)
    own = ffn_composition.run(lab, config)
    assert own.text == str(file)
    assert own.unit == "windows"
    assert file in ffn_composition.inputs(lab, config)
    assert result.unit in ("documents", "windows")
    with pytest.raises(InputError, match="are of one window"):
        ffn_composition.run(lab, replace(config, n_prefixes=4, per_window=8))


@pytest.mark.whole
def test_prefixes_can_be_kept_short(real: tuple[Lab, Result]) -> None:
    lab, _ = real
    short = ffn_composition.run(lab, replace(QUICK, longest=3, per_window=1, n_prefixes=60)).now
    assert short.targets.short is None or short.targets.short[1].mean == 1


def test_what_cannot_be_taken_apart_is_refused(tmp_path: Path) -> None:
    for change in ({"norm": "post"}, {"norm": "deepnorm"}):
        with pytest.raises(NotAdditiveError, match="needs a residual stream that is a sum"):
            ffn_composition.run(python_lab(tmp_path / change["norm"], **change), QUICK)
    wrong: dict[str, Any]
    for wrong, message in (
        ({"n_prefixes": 1}, "n_prefixes=1 is not allowed"),
        ({"ks": (10, 3)}, "not in rising order"),
        ({"ks": ()}, "not in rising order"),
        ({"strong": 1.0}, "strong=1.0 is not allowed"),
    ):
        with pytest.raises(ConfigError, match=message):
            Config(**wrong)


def test_tables_and_figure_show_what_was_measured(planted: tuple[Lab, Result], real: tuple[Lab, Result]) -> None:
    for _, result in (planted, real):
        rows = ffn_composition.table(result)
        n_steps = 1 if result.at_step_zero is None else 2
        assert len(rows) == n_steps * result.n_layers
        assert rows["zero_active"].iloc[0] == pytest.approx(float(result.now.zero_agreement.mean[ACTIVE, 0]))
        assert rows["composition"].iloc[0] == pytest.approx(float(result.now.breakdown.mean[Case.COMPOSITION, 0]))
        shares = ffn_composition.more_tables(result)["sub-updates"]
        assert len(shares) == n_steps * 2 * result.n_layers * len(result.now.sub_updates.ks)
        spec = draw(result).to_dict()
        names = [panel["title"]["text"] for row in spec["vconcat"] for panel in row["hconcat"]]
        assert names[0] == "Active memories"
        assert len(names) == 6
        stacked = [row for rows in spec["datasets"].values() for row in rows if row.get("case") == "composition"]
        assert {row["share"] for row in stacked if row["layer"] == 0} == {
            float(cases.mean[Case.COMPOSITION, 0]) for cases in (result.now.breakdown, result.now.breakdown_other)
        }


def test_a_result_survives_saving(planted: tuple[Lab, Result], real: tuple[Lab, Result]) -> None:
    for _, result in (planted, real):
        assert same(decode(Result, *encode(result)), result)
