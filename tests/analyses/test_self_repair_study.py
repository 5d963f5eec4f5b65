"""The self-repair study: planted repairs and stand-ins come out as planted; of a random model nothing is claimed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from analyses import self_repair
from analyses.records import decode, encode, same
from analyses.registry import Finding
from analyses.repair.figure import draw, effect_rows, pair_rows, part_rows, shown
from analyses.repair.findings import adding
from analyses.repair.result import COPIED, TOP
from analyses.self_repair import Config, Result
from interp.places import Intervention
from model import GPT
from model.config import Norm
from model.errors import ConfigError, NotAdditiveError
from model.lab import Lab
from tests import planted
from tests.interp.test_interactions import doubled
from tests.interp.test_self_repair import backed_up
from tests.planted_run import planted_lab

CONFIG = Config(n_sequences=12, intervention=Intervention.ZERO, n_paired=4)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """An induction head with a backup for 0.7 of what it writes."""
    lab = planted_lab(tmp_path_factory.mktemp("runs") / "planted", backed_up(0.7))
    return self_repair.run(lab, CONFIG)


@pytest.fixture(scope="module")
def twice(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Two equal induction heads, either of which says the next token well."""
    return self_repair.run(planted_lab(tmp_path_factory.mktemp("runs") / "planted", doubled(8.0)), CONFIG)


def test_the_planted_backup_is_found_with_its_share(repaired: Result):
    copied = repaired.on(COPIED)
    assert [each.label for each in copied.components][-2:] == ["L1H3", "L1.ffn"]
    row = copied.row("L1H2")
    assert adding(copied, 0.05) == [row]
    share = copied.share(row, 0.05)
    assert share is not None
    assert share.mean == pytest.approx(0.7, abs=1e-3)
    assert copied.share(copied.row("L0H0"), 0.05) is None  # it adds nothing
    assert max(each.largest_residual for each in repaired.repairs) < 1e-4
    said = [
        each for each in self_repair.findings(repaired) if "On the tokens that a repeat determines" in each.sentence
    ]
    assert said[0].found is True
    for part in (
        "1 of the 1 heads",
        "L1H2",
        "70% [70%, 70%] is made good",
        "0% [0%, 0%] by later heads, 70% [70%, 70%] by FFNs, 0% [0%, 0%] by the final norm",
        "216 tokens; ",
        "planted@8",
    ):
        assert part in said[0].sentence


@pytest.mark.whole
def test_without_a_backup_nothing_is_made_good(tmp_path: Path):
    result = self_repair.run(planted_lab(tmp_path / "planted", planted.induction_model()), CONFIG)
    copied, _, norm, line, pairs, induction = self_repair.findings(result)
    assert copied.found is False
    assert "no loss of any of the 1 heads" in copied.sentence
    assert norm.found is False  # there is none
    assert line.found is None  # the head writes as much at every token
    assert pairs.found is True
    assert "L0H1 and L1H2" in pairs.sentence
    assert "less than the sum" in pairs.sentence  # one circuit: either takes all
    assert induction.found is None
    assert "one head alone passes the rule" in induction.sentence


def test_heads_that_stand_in_for_each_other_are_super_additive(twice: Result):
    assert twice.induction is not None
    assert twice.induction.heads == ("L1H2", "L1H3")
    assert twice.induction.in_nats.low > 2
    assert twice.induction.in_logits.mean == pytest.approx(1.0, abs=1e-4)  # logits add up; the loss bends
    pairs, induction = self_repair.findings(twice)[-2:]
    assert pairs.found is True
    assert "L1H2 and L1H3" in pairs.sentence
    assert induction.found is True
    assert "cost copying more together than one by one" in induction.sentence
    assert twice.pairs is not None
    assert twice.pairs.places == ("L0H0:zero", "L0H1:zero", "L1H2:zero", "L1H3:zero")  # those that matter among them


def test_step_0_stands_beside(twice: Result):
    assert twice.at_step_zero is not None
    assert twice.at_step_zero.pairs is not None
    assert twice.at_step_zero.pairs.places == twice.pairs.places  # type: ignore[union-attr]
    assert float(twice.at_step_zero.on(COPIED).numbers.direct.mean.abs().max()) < 0.1
    assert "at step 0" in self_repair.findings(twice)[0].sentence


def random_lab(folder: Path, **changes: object) -> Lab:
    return planted_lab(folder, GPT(planted.induction_model().config.varied(**changes), seed=9))


@pytest.mark.whole
def test_of_a_random_model_nothing_is_affirmed_about_copies(tmp_path: Path):
    """Its heads add nothing to speak of; held-out tokens on which they add most are made of chance."""
    result = self_repair.run(random_lab(tmp_path / "random"), replace(CONFIG, intervention=Intervention.MEAN))
    copied, top, norm, line, pairs, induction = self_repair.findings(result)
    assert [each.found for each in (copied, top, norm, line, induction)] == [None] * 5
    assert "No head adds 0.05 logits or more by itself to the tokens that a repeat determines" in copied.sentence
    assert pairs.found is False
    assert "no head passes the rule" in induction.sentence


def lines_and_norms(result: Result, p: float, ends: tuple[float, float]) -> list[Finding]:
    """The findings on the norm and the line, had every head added 1 logit, with these p and these ends of intervals."""
    changed = []
    for each in result.repairs:
        numbers, like = each.numbers, each.numbers.direct
        low, high = (torch.full_like(like.mean, end) for end in ends)
        adds = replace(like, mean=-torch.ones_like(like.mean), low=like.low - 2, high=-torch.ones_like(like.mean))
        slope = replace(numbers.line.slope, mean=(low + high) / 2, low=low, high=high)
        parts = numbers.share_by_part
        made_good = {"low": (1 - high)[:, None].expand_as(parts.low), "high": (1 - low)[:, None].expand_as(parts.low)}
        share = replace(parts, **made_good)
        numbers = replace(numbers, direct=adds, line=replace(numbers.line, slope=slope), share_by_part=share)
        ps = torch.full_like(each.p, p)
        changed.append(replace(each, numbers=numbers, p_norm=ps, p_slope=ps))
    return self_repair.findings(replace(result, repairs=tuple(changed)))[2:4]


@pytest.mark.parametrize(
    ("p", "ends", "found", "norm", "line"),
    [
        (0.01, (0.7, 0.9), True, "some of it good for 8 of the 8 heads", "(a slope below 1) for 8 of the 8 heads"),
        (0.06, (0.7, 0.9), None, "is not shown for any of the 8 heads", "is not shown for any of the 8 heads"),
        (0.01, (0.7, 1.1), None, "is not shown for any of the 8 heads", "is not shown for any of the 8 heads"),
        (0.01, (1.0, 1.2), False, "makes nothing good for any of the 8 heads", "for none of the 8 heads"),
    ],
)
def test_any_head_is_found_only_by_a_p_corrected_over_all(
    p: float, ends: tuple[float, float], found: bool | None, norm: str, line: str, repaired: Result
):
    by_norm, by_line = lines_and_norms(repaired, p, ends)
    assert (by_norm.found, by_line.found) == (found, found)
    assert norm in by_norm.sentence
    assert line in by_line.sentence
    assert "Holm over 8 heads at 0.05" in by_norm.sentence
    assert "Holm over 8 heads at 0.05" in by_line.sentence


@pytest.mark.whole
def test_each_p_is_corrected_over_the_heads(tmp_path: Path):
    """With 12 sequences a p is so many times 2 in 4096, and the least of 8 heads' 8 times that."""
    lab = random_lab(tmp_path / "normed", norm="pre")
    top = self_repair.run(lab, replace(CONFIG, top_share=0.5)).on(TOP)
    heads = top.heads()
    assert len(heads) == 8
    least = [float(p[heads].min()) * 2**12 for p in (top.p, top.p_norm, top.p_slope)]
    assert [each % 16 for each in least] == [0, 0, 0]
    assert max(least) < 2**12


def test_a_single_head_has_no_pairs_and_a_sum_norm_is_refused(tmp_path: Path):
    lab = random_lab(tmp_path / "one", n_heads=1, n_layers=1)
    result = self_repair.run(lab, CONFIG)
    assert result.pairs is None
    assert self_repair.findings(result)[-2].found is None
    assert not self_repair.more_tables(result)
    draw(result)
    with pytest.raises(NotAdditiveError, match="self-repair needs a residual stream that is a sum"):
        self_repair.run(random_lab(tmp_path / "post", norm=Norm.POST), CONFIG)
    with pytest.raises(
        ConfigError, match="intervention=counterfactual is not for this study; give mean, mean@pos, zero"
    ):
        Config(intervention=Intervention.COUNTERFACTUAL)


def test_table_and_figure_show_what_was_measured(repaired: Result):
    rows = self_repair.table(repaired)
    assert len(rows) == 2 * 10
    head = rows[(rows["tokens"] == COPIED) & (rows["ablated"] == "L1H2")].iloc[0]
    assert head["share"] == pytest.approx(0.7, abs=1e-3)
    assert head["direct"] + head["repaired"] == pytest.approx(head["total"])
    added = sum(head[f"by {part}"] for part in ("heads", "FFNs", "output norms", "final norm"))
    assert added == pytest.approx(head["repaired"], abs=1e-4)
    assert rows["share"].isna().sum() > 10  # most add nothing
    assert len(self_repair.more_tables(repaired)["pairs"]) == 6
    copied = repaired.on(COPIED)
    assert copied.components[shown(copied)[0]].label == "L1H2"
    assert set(shown(copied)) == set(copied.heads())  # an FFN's effects would hide those of heads
    assert "-0.00" not in pair_rows(repaired)["text"].tolist()
    effects = effect_rows(copied)
    assert effects[effects["ablated"] == "L1H2"]["change"].tolist() == pytest.approx([-19.0, -19.0 * 0.3], abs=1e-3)
    parts = part_rows(copied)
    by_ffns = parts[(parts["ablated"] == "L1H2") & (parts["by"] == "FFNs")]
    assert by_ffns["made_good"].tolist() == pytest.approx([19 * 0.7], abs=1e-3)
    assert len(pair_rows(repaired)) == 12
    assert repaired.on(TOP).numbers.n_tokens[0] >= 1
    assert (
        draw(repaired).to_dict()["title"]["text"]
        == "Of what L1H2 adds to copied tokens, the others make good 70% [70%, 70%]"
    )


def test_a_result_survives_saving(repaired: Result, twice: Result):
    for result in (repaired, twice):
        assert same(decode(Result, *encode(result)), result)
