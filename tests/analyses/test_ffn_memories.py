"""FFN memories that were planted are found with exactly their triggers, and findings affirm, deny or leave open."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from analyses import ffn_memories
from analyses.ffn.findings import confidence, depth
from analyses.ffn.summary import Summary
from analyses.ffn.tables import layer_rows, trigger_text
from analyses.ffn_memories import Config, Result, planned_windows
from analyses.records import decode, encode, same
from analyses.registry import Finding
from interp.agreement_trends import ConfidenceTrend
from interp.pattern_kinds import TriggerPattern
from model import GPT
from model.errors import ConfigError
from model.lab import Lab
from model.tokenizer import CharTokenizer
from tests import planted
from tests.memory_runs import few_replays, quick, sparse, written_run
from tests.planted import PlantedMemory, Side, memories_model

__all__ = ["few_replays"]  # a fixture for all

LETTERS = "abcdefghijklmnopqrs"
PLANTED = {0: "abp", 1: "cdq", 2: "dfh", 3: "gar", 4: "hks", 5: "ien", 6: "jem", 7: "kgo"}
"""Memory: the bigram that fires it, and the token that it promotes and that always follows."""


def planted_memories(*, promotes: Callable[[str], str] = lambda word: word[2]) -> GPT:
    """Every memory of the planted model with a bigram and a promoted token of its own."""
    gpt = planted.memory_model()
    ffn, (token, previous, output) = gpt.layers[0].mlp, (0, 68, 88)  # where the planted stream holds what
    with torch.no_grad():
        for projection in (ffn.in_proj, ffn.out_proj):
            projection.weight.zero_()
        ffn.in_proj.bias.fill_(-1.0)
        for memory, word in PLANTED.items():
            first, second, _ = (LETTERS.index(letter) for letter in word)
            ffn.in_proj.weight[memory, previous + first] = 1.0
            ffn.in_proj.weight[memory, token + second] = 1.0
            ffn.out_proj.weight[output + LETTERS.index(promotes(word)), memory] = 5.0
    return gpt


def planted_text(seed: int = 0, n_words: int = 400) -> str:
    """Letters in which each planted bigram occurs only in its word: the last letter of a word begins none."""
    drawn = random.Random(seed)
    return "".join(drawn.choice([*PLANTED.values(), "ll", "lo", "nl"]) for _ in range(n_words))


def letters_lab(folder: Path, gpt: GPT, *, zero: GPT | None = None) -> Lab:
    texts = folder / "texts"
    texts.mkdir(parents=True)
    for i in range(3):
        (texts / f"{i}.txt").write_text(planted_text(seed=i))
    return written_run(folder / "run", gpt, CharTokenizer(LETTERS), (f"text:{texts}/*.txt",), zero=zero)


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lab, Result]:
    lab = letters_lab(
        tmp_path_factory.mktemp("planted"), planted_memories(), zero=GPT(planted_memories().config, seed=3)
    )
    return lab, ffn_memories.run(lab, quick(n_triggers=6, batch_size=7, n_permutations=1000))


def occurrences(lab: Lab, config: Config, word: str) -> list[tuple[int, int]]:
    """(offset, length) of every prefix that was read and ends in the word's bigram, in corpus order."""
    letters = lab.tokenizer.decode(lab.corpus.tokens)
    windows = planned_windows(lab, config)
    return [
        (int(start), end - int(start) + 1)
        for start, length in zip(windows.starts, windows.lengths, strict=True)
        for end in range(int(start) + 1, int(start + length))
        if letters[end - 1 : end + 1] == word[:2]
    ]


def test_planted_memories_are_found_with_exactly_their_triggers(found: tuple[Lab, Result]) -> None:
    lab, result = found
    triggers = result.reading.triggers
    for memory, word in PLANTED.items():
        expected = occurrences(lab, result.config, word)
        assert len(expected) > 6
        stored = [(int(o), int(n)) for o, n in zip(triggers.offset[0, memory], triggers.length[0, memory], strict=True)]
        assert stored == expected[:6]  # all coefficients are 1: of equals, the first in the corpus
        assert triggers.coefficient[0, memory].tolist() == [1.0] * 6
        assert trigger_text(result, 0, memory, 0).endswith(word[:2])
        assert {LETTERS[token] for token in triggers.next_token[0, memory].tolist()} == {word[2]}
        assert float(result.reading.activity.firing_rate[0, memory]) == pytest.approx(len(expected) / result.n_prefixes)


def test_planted_values_promote_what_follows_with_agreement_one_and_the_lift_of_eight_tokens(
    found: tuple[Lab, Result],
) -> None:
    _, result = found
    (layer,) = result.reading.summary.layers
    assert (layer.agreement.share, layer.agreement.n, layer.n_dead) == (1.0, 8, 0)
    assert layer.agreement.chance == 1 / 8  # eight different tokens, each promoted once and following once
    assert layer.agreement.lift == 8
    assert layer.agreement.p == 1 / 1001
    assert (layer.precision.share, layer.precision.chance) == (1, pytest.approx(1 / 8))
    assert layer.median_rank == 0
    assert layer.last_token_share == 1
    assert (result.reading.values.next_rank == 0).all()
    assert result.reading.values.promoted_score[0, :, 0].tolist() == [5.0] * 8


def test_findings_affirm_what_was_planted(found: tuple[Lab, Result]) -> None:
    _, result = found
    agreement = ffn_memories.findings(result)[0]
    assert agreement.found
    assert "layer 0 100.0% [63.1%, 100.0%] of 8 against 12.5% by chance, 8.0 times" in agreement.sentence


def test_findings_are_marked_as_they_begin(found: tuple[Lab, Result]) -> None:
    """Of eight memories much is left open, and what is open is neither affirmed nor denied."""
    marks = {"In layer": True, "In no layer": False, "Whether": None, "That": None, "Training did not": None}
    said = ffn_memories.findings(found[1])
    begun = [next(start for start in marks if each.sentence.startswith(start)) for each in said]
    assert [each.found for each in said] == [marks[start] for start in begun]
    about_training = [start for start, each in zip(begun, said, strict=True) if "training changed" in each.sentence]
    assert about_training == ["Whether"] * 4  # last tokens, patterns, cut triggers, rates


def test_every_sentence_names_run_step_n_seed_and_level(found: tuple[Lab, Result]) -> None:
    _, result = found
    for finding in ffn_memories.findings(result):
        assert (
            f"run@8, n = {result.n_prefixes:,} prefixes of the train split, seed 0, 95% intervals" in finding.sentence
        )


@pytest.mark.whole
def test_agreement_is_not_denied_of_eight_memories_whose_values_promote_something_else(tmp_path: Path) -> None:
    elsewhere = dict(zip(PLANTED.values(), "bcdefghi", strict=True))
    gpt = planted_memories(promotes=lambda word: elsewhere[word])
    result = ffn_memories.run(letters_lab(tmp_path, gpt), quick(n_triggers=6))
    assert result.reading.summary.layers[0].agreement.share == 0
    assert result.initial is None
    said = ffn_memories.findings(result)
    assert said[0].found is None  # up to a third of such memories could agree and leave no trace in eight
    assert "0.0% [0.0%, 36.9%] of 8 against" in said[0].sentence
    unknown = [finding for finding in said if "step 0 was not read" in finding.sentence]
    assert [finding.found for finding in unknown] == [None] * 4  # last tokens, patterns, cut triggers and activity


def test_what_triggers_share_and_lose_is_that_of_a_bigram(found: tuple[Lab, Result]) -> None:
    """Coefficients are all 1, so that the first of the corpus are kept: few texts, but the bigram stands out."""
    _, result = found
    evidence, cut = result.reading.evidence, result.reading.deletions
    bigram = tuple(TriggerPattern).index(TriggerPattern.LAST_BIGRAM)
    assert (evidence.last_bigram_share == 1).all()
    assert (evidence.random_level("last_bigram_share") < 0.5).all()
    assert evidence.holds[0, :, bigram].sum() >= 6  # the others' few triggers are copies, or no commoner than there
    assert cut is not None
    assert (cut.of("last") == 1).all()
    assert (cut.of("last_replaced") == 1).all()
    assert (cut.of("first").abs() < 0.5).all()  # with two tokens before the bigram none, with none before it all
    assert result.reading.summary.layers[0].last_beats_first is not None
    assert (result.reading.negative.length == 0).all()
    assert result.reading.gate_signs is None


@pytest.mark.whole
@pytest.mark.parametrize(("ffn", "side"), [("gelu", Side.NEGATIVE), ("swiglu", Side.NEGATIVE_LINEAR)])
def test_a_memory_that_answers_by_its_negative_side_is_found_there(tmp_path: Path, ffn: str, side: Side) -> None:
    word = PLANTED[0]
    first, second, promoted = (LETTERS.index(letter) for letter in word)
    memory = PlantedMemory(first, second, promoted, side=side)
    lab = letters_lab(tmp_path, memories_model({(0, 2): memory}, ffn=ffn))
    result = ffn_memories.run(lab, sparse(n_negative=6, n_deleted=4))
    reading = result.reading
    stored = list(zip(reading.negative.offset[0, 2].tolist(), reading.negative.length[0, 2].tolist(), strict=True))
    assert stored == occurrences(lab, result.config, word)[:6]
    lowest = memory.coefficient(ffn, 2)
    assert reading.negative.coefficient[0, 2].tolist() == pytest.approx([lowest] * 6, rel=1e-4)
    assert float(reading.activity.lowest[0, 2]) == pytest.approx(lowest, rel=1e-4)
    assert {LETTERS[token] for token in reading.negative.next_token[0, 2].tolist()} == {word[2]}
    assert int(reading.activity.dead[0].sum()) == 7  # the other seven never move
    assert (reading.gate_signs is not None) == (ffn == "swiglu")
    if reading.gate_signs is not None:
        assert reading.gate_signs.linear_is_negative(0).all()
    row = ffn_memories.table(result).iloc[2]
    assert row["most negative trigger"].endswith(word[:2])


def with_changes(result: Result, *, rate: Callable[[Tensor], Tensor]) -> Result:
    """The result with other firing rates at the checkpoint, of 24 memories; at step 0 all are a tenth."""
    assert result.initial is not None
    start = torch.full((1, 24), 0.1)
    never_below = torch.zeros_like(start)
    summary = replace(result.reading.summary, firing_rate=rate(start), below_zero=never_below)
    layers = tuple(replace(each, n_dead=2) for each in result.initial.layers)
    initial = replace(result.initial, firing_rate=start, below_zero=never_below, layers=layers)
    return replace(result, reading=replace(result.reading, summary=summary), initial=initial)


def changed_rates(result: Result, rate: Callable[[Tensor], Tensor]) -> Finding:
    """What is said of firing rates where they were changed."""
    said = ffn_memories.findings(with_changes(result, rate=rate))
    return next(each for each in said if "how often memories fire" in each.sentence)


@pytest.mark.parametrize(
    ("rate", "found_it", "opening"),
    [
        (lambda start: start * 2, True, "In layer 0 training changed by a factor of 1.5 or more how often"),
        (lambda start: start * 1.2, False, "In no layer did training change by a factor of 1.5 or more how often"),
        (
            lambda start: start * torch.tensor([0.01, *[1] * 18, *[9] * 5]),
            None,
            "Whether training changed by a factor of 1.5 or more how often memories fire",
        ),
    ],
)
def test_a_change_is_claimed_denied_or_left_open_by_its_whole_interval(
    found: tuple[Lab, Result], rate: Callable[[Tensor], Tensor], found_it: bool | None, opening: str
) -> None:
    said = changed_rates(found[1], rate)
    assert said.sentence.startswith(opening)
    assert said.found is found_it


def test_firing_rates_are_shown_as_they_are_compared_with_deaths_at_both_steps(found: tuple[Lab, Result]) -> None:
    """One memory of 24 has died: it is counted, and the geometric means are over the 23 others."""
    rates = torch.tensor([[0.0, *[0.1] * 22, 0.1 * 2**23]])
    said = changed_rates(found[1], lambda _: rates).sentence
    assert "layer 0 20.0%, at step 0 10.0% (paired times 2.00" in said
    assert ", n = 23)" in said
    assert "Never fired: 0 of 8 in layer 0 (2 at step 0)" in said


def test_agreement_that_a_layer_shows_too_little_of_is_not_claimed(found: tuple[Lab, Result]) -> None:
    """Half a point above chance, however sure, is below the floor; a wide interval denies nothing."""
    (layer,) = found[1].reading.summary.layers

    def said(**measured: float) -> Finding:
        other = replace(layer, agreement=replace(layer.agreement, **({"p": 0.001} | measured)))
        summary = replace(found[1].reading.summary, layers=(other,))
        return ffn_memories.findings(replace(found[1], reading=replace(found[1].reading, summary=summary)))[0]

    sure = said(n=100_000, share=0.130, chance=0.125)
    assert sure.sentence.startswith("In no layer")
    assert sure.found is False
    wide = said(n=20, share=0.2, chance=0.125)
    assert "chance, but that it is by 1 point or more, and more often than at step 0, is shown in no" in wide.sentence
    assert wide.found is None
    none_of_few = said(n=32, share=0.0, chance=0.0, p=1.0)  # a share of 2% leaves no trace in half of such layers
    assert none_of_few.found is None
    assert "is shown in no layer, nor that they do not in layer 0" in none_of_few.sentence


def with_trends(result: Result, now: ConfidenceTrend, start: ConfidenceTrend | None) -> Result:
    """The result with another trend of agreement with confidence, at the checkpoint and at step 0."""
    summary = replace(result.reading.summary, confidence_trend=now)
    initial = None if start is None or result.initial is None else replace(result.initial, confidence_trend=start)
    return replace(result, reading=replace(result.reading, summary=summary), initial=initial)


def test_surer_values_that_agree_more_must_do_so_more_than_at_step_zero(found: tuple[Lab, Result]) -> None:
    trend = ConfidenceTrend(
        n=1000, n_agreeing=200, rho=0.3, chance=0.05, p=0.001, within=0.7, within_p=0.001, n_permutations=999
    )
    less, none = replace(trend, rho=0.1, chance=0.0), replace(trend, rho=float("nan"), n_agreeing=0)
    as_much = replace(trend, rho=0.2, chance=-0.05)  # as far above what dealt next tokens give
    for start, claimed in ((None, True), (less, True), (none, True), (trend, None), (as_much, None)):
        said = confidence(with_trends(found[1], trend, start))
        assert said.found is claimed
        assert ("at step 0" in said.sentence) == (start is not None)
    few = confidence(with_trends(found[1], replace(trend, n=40), replace(less, n=40)))
    assert few.found is None
    assert few.sentence.startswith("That values that are surer")


def with_layers(result: Result, now: list[float], start: list[float] | None) -> Result:
    """The result as if it had a layer for each of these shares that agree, and the fewer the better ranks."""

    def summary(of: Summary, shares: list[float]) -> Summary:
        (layer,) = of.layers
        layers = (
            replace(layer, layer=n, median_rank=100 * (1 - share), agreement=replace(layer.agreement, share=share))
            for n, share in enumerate(shares)
        )
        return replace(of, layers=tuple(layers))

    assert result.initial is not None
    reading = replace(result.reading, summary=summary(result.reading.summary, now))
    return replace(result, reading=reading, initial=None if start is None else summary(result.initial, start))


def test_agreement_that_rises_with_depth_must_have_gained_with_depth(found: tuple[Lab, Result]) -> None:
    rising, flat = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6], [0.1] * 6
    for now, start, claimed in (
        (rising, None, True),
        (rising, flat, True),
        (rising, rising, None),  # as at step 0
        (rising, [0.0, 0.12, 0.24, 0.36, 0.48, 0.6], None),  # there it rose even more
        (flat, flat[::-1], None),
    ):
        said = depth(with_layers(found[1], now, start))
        assert said.found is claimed, said.sentence
        assert ("at step 0" in said.sentence) == (start is not None)


@pytest.mark.whole
def test_a_result_is_not_that_of_another_step_zero(tmp_path: Path) -> None:
    lab = letters_lab(tmp_path, planted_memories(), zero=planted_memories())
    names = [path.relative_to(lab.path) for path in ffn_memories.inputs(lab, Config())]
    assert names == [Path("tokenizer.json"), Path("checkpoints/step-00000000/manifest.json")]
    assert all((lab.path / name).is_file() for name in names)
    assert ffn_memories.inputs(lab, Config(step_zero=False)) == [lab.path / "tokenizer.json"]


@pytest.mark.whole
def test_a_memory_that_never_fires_is_dead_and_has_no_triggers(tmp_path: Path) -> None:
    gpt = planted_memories()
    with torch.no_grad():
        gpt.layers[0].mlp.in_proj.bias[3] = -2.0
        gpt.layers[0].mlp.in_proj.bias[4] = 5.0  # and one that always does
    result = ffn_memories.run(letters_lab(tmp_path, gpt), quick(n_triggers=6))
    layer = result.reading.summary.layers[0]
    assert (layer.n_dead, layer.agreement.n) == (1, 7)
    assert layer.n_dense == 1
    assert float(result.reading.activity.firing_rate[0, 4]) == 1
    assert float(result.reading.activity.lowest[0, 4]) == 0  # never negative
    assert not result.reading.activity.alive[0, 3]
    assert result.reading.triggers.length[0, 3].tolist() == [0] * 6
    assert (result.reading.triggers.next_token[0, 3] == -1).all()
    row = ffn_memories.table(result).iloc[3]
    assert (row["memory"], row["top trigger"], row["next"], row["agrees"]) == ("L0M3", "", "", False)


def test_the_table_has_a_row_per_memory_and_the_figure_draws(found: tuple[Lab, Result]) -> None:
    _, result = found
    table = ffn_memories.table(result)
    assert table["memory"].tolist() == [f"L0M{memory}" for memory in range(8)]
    assert table["agrees"].all()
    assert table["next"].tolist() == [word[2] for word in PLANTED.values()]
    assert {row["step"] for row in layer_rows(result)} == {0, 8}
    chart = ffn_memories.figure(result).to_dict()
    assert "L0M2" in json.dumps(chart)


def test_a_result_comes_back_whole_from_its_record(found: tuple[Lab, Result]) -> None:
    _, result = found
    tree, tensors = encode(result)
    back = decode(Result, json.loads(json.dumps(tree, allow_nan=False)), tensors)
    assert same(result, back)
    assert ffn_memories.findings(back) == ffn_memories.findings(result)
    assert ffn_memories.figure(back).to_dict() == ffn_memories.figure(result).to_dict()


def test_seeds_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed=-1 is not allowed"):
        Config(seed=-1)


def test_amounts_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_triggers=0 is not an amount"):
        quick(n_triggers=0)
