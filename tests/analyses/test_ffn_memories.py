"""FFN memories: planted ones are found with exactly their triggers, real ones can be fed again, absence is denied."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from analyses import ffn_memories, ffn_values
from analyses.ffn_memories import Config, Result, Split, planned_windows, replayed_coefficient
from analyses.ffn_parts import FRACTIONS
from analyses.ffn_reading import read_text
from analyses.ffn_tables import layer_rows, trigger_text
from analyses.records import decode, encode, same
from analyses.registry import Finding
from interp.coefficient_bins import histogram_edges
from interp.memory_values import value_scores
from interp.pattern_kinds import TriggerPattern
from interp.prefixes import window_batches
from model import GPT
from model.checkpoint import save_checkpoint
from model.errors import ConfigError, InputError
from model.lab import Lab, open_run
from model.settings import to_plain
from model.tokenizer import ByteTokenizer, CharTokenizer, Tokenizer
from model.training.sources import DataConfig
from tests import planted
from tests.conftest import make_gpt_with
from tests.planted import PlantedMemory, Side, memories_model

LETTERS = "abcdefghijklmnopqrs"
PLANTED = {0: "abp", 1: "cdq", 2: "dfh", 3: "gar", 4: "hks", 5: "ien", 6: "jem", 7: "kgo"}
"""Memory: the bigram that fires it, and the token that it promotes and that always follows."""


def quick(**settings: object) -> Config:
    """The study's config with small samples and few deals, which are enough for what is set by hand."""
    return Config(**({"n_random_sets": 40, "n_deleted": 4, "n_sampled": 64, "n_permutations": 200} | settings))


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


def written_run(
    folder: Path, gpt: GPT, tokenizer: Tokenizer, sources: tuple[str, ...], *, zero: GPT | None = None
) -> Lab:
    """A run on disk with `gpt` at step 8 and, where given, `zero` at step 0."""
    if zero is not None:
        save_checkpoint(folder, zero, step=0, tokens_seen=0)
    save_checkpoint(folder, gpt, step=8, tokens_seen=1024)
    tokenizer.save(folder / "tokenizer.json")
    data = DataConfig(sources=sources, stdlib_bytes=100_000, held_out=0.2)
    (folder / "run.json").write_text(json.dumps({"config": {"data": to_plain(data)}}))
    return open_run(f"{folder}@8")


def letters_lab(folder: Path, gpt: GPT, *, zero: GPT | None = None) -> Lab:
    texts = folder / "texts"
    texts.mkdir(parents=True)
    for i in range(3):
        (texts / f"{i}.txt").write_text(planted_text(seed=i))
    return written_run(folder / "run", gpt, CharTokenizer(LETTERS), (f"text:{texts}/*.txt",), zero=zero)


def python_lab(folder: Path, **config: object) -> Lab:
    """Random weights large enough to matter, and real text."""
    made = {"d_vocab": 257, "n_ctx": 24, "d_model": 16, "n_heads": 2, "d_ff": 24} | config
    return written_run(folder, make_gpt_with(**made), ByteTokenizer(), ("stdlib",))


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
    assert "layer 0 100.0% [100.0%, 100.0%] of 8 against 12.5% by chance, 8.0 times" in agreement.sentence


def test_every_sentence_names_run_step_n_seed_and_level(found: tuple[Lab, Result]) -> None:
    _, result = found
    for finding in ffn_memories.findings(result):
        assert (
            f"run@8, n = {result.n_prefixes:,} prefixes of the train split, seed 0, 95% intervals" in finding.sentence
        )


def test_agreement_is_denied_where_values_promote_something_else(tmp_path: Path) -> None:
    elsewhere = dict(zip(PLANTED.values(), "bcdefghi", strict=True))
    gpt = planted_memories(promotes=lambda word: elsewhere[word])
    result = ffn_memories.run(letters_lab(tmp_path, gpt), quick(n_triggers=6))
    assert result.reading.summary.layers[0].agreement.share == 0
    assert result.initial is None
    said = ffn_memories.findings(result)
    assert said[0].found is False
    assert said[0].sentence.startswith("In no layer")
    unknown = [finding for finding in said if "step 0 was not read" in finding.sentence]
    assert [finding.found for finding in unknown] == [None] * 4  # last tokens, patterns, cut triggers and activity


def test_a_random_model_beside_another_random_model_has_nothing_found(tmp_path: Path) -> None:
    first, second = (make_gpt_with(seed=seed, d_vocab=257, n_ctx=24, ffn="relu") for seed in (1, 2))
    lab = written_run(tmp_path / "run", first, ByteTokenizer(), ("stdlib",), zero=second)
    said = ffn_memories.findings(ffn_memories.run(lab, quick(n_tokens=6_000)))
    about_training = [finding for finding in said if "training" in finding.sentence.lower()]
    assert [finding.found for finding in (said[0], *about_training)] == [False] * 5, [each.sentence for each in said]


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


@pytest.mark.parametrize(("ffn", "side"), [("gelu", Side.NEGATIVE), ("swiglu", Side.NEGATIVE_LINEAR)])
def test_a_memory_that_answers_by_its_negative_side_is_found_there(tmp_path: Path, ffn: str, side: Side) -> None:
    word = PLANTED[0]
    first, second, promoted = (LETTERS.index(letter) for letter in word)
    memory = PlantedMemory(first, second, promoted, side=side)
    lab = letters_lab(tmp_path, memories_model({(0, 2): memory}, ffn=ffn))
    result = ffn_memories.run(lab, quick(n_negative=6))
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


def test_activity_is_that_of_a_slow_count(tmp_path: Path) -> None:
    lab, config = python_lab(tmp_path / "run", ffn="swiglu"), quick(n_tokens=1500, step_zero=False)
    windows = planned_windows(lab, config)
    (rows, ends), *_ = window_batches(lab.corpus.tokens, windows, bos=256, batch_size=len(windows))
    _, cache = lab.gpt.run_with_cache(rows, "blocks.1.mlp.hook_post")
    held = cache["post", 1][ends >= 0]
    reading = ffn_memories.run(lab, config).reading
    activity = reading.activity
    torch.testing.assert_close(activity.firing_rate[1], (held > 0).float().mean(0))
    torch.testing.assert_close(activity.negative_rate[1], (held < 0).float().mean(0))
    torch.testing.assert_close(activity.largest[1], held.amax(0))
    torch.testing.assert_close(activity.lowest[1], held.amin(0))
    above = activity.active_above()[1]
    edges = histogram_edges()
    for place, fraction in enumerate(FRACTIONS):
        asked = activity.furthest[1] * fraction
        reached = edges[(torch.bucketize(asked, edges, right=True) - 1).clamp_min(0)]  # down to the edge of its bin
        torch.testing.assert_close(above[:, place], (held.abs() >= reached).float().mean(0))
    span = held.amax(0).clamp_min(0) - held.amin(0)
    torch.testing.assert_close(reading.summary.below_zero[1], -held.amin(0) / span)


def with_changes(result: Result, *, rate: Callable[[Tensor], Tensor]) -> Result:
    """The result with other firing rates at the checkpoint; at step 0 all are a tenth."""
    assert result.initial is not None
    start = torch.full((1, 8), 0.1)
    summary = replace(result.reading.summary, firing_rate=rate(start))
    initial = replace(
        result.initial, firing_rate=start, layers=tuple(replace(each, n_dead=2) for each in result.initial.layers)
    )
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
            lambda start: start * torch.tensor([0.1, 1, 1, 1, 1, 1, 1, 9]),
            False,
            "Whether training changed by a factor of 1.5 or more how often memories fire",
        ),
    ],
)
def test_a_change_is_claimed_denied_or_left_open_by_its_whole_interval(
    found: tuple[Lab, Result], rate: Callable[[Tensor], Tensor], found_it: bool, opening: str
) -> None:
    said = changed_rates(found[1], rate)
    assert said.sentence.startswith(opening)
    assert said.found is found_it


def test_firing_rates_are_shown_as_they_are_compared_with_deaths_at_both_steps(found: tuple[Lab, Result]) -> None:
    """One memory of eight has died: it is counted, and the geometric means are over the seven others."""
    rates = torch.tensor([[0.0, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1 * 2**7]])
    said = changed_rates(found[1], lambda _: rates).sentence
    assert "layer 0 20.0%, at step 0 10.0% (paired times 2.00" in said
    assert ", n = 7)" in said
    assert "Never fired: 0 of 8 in layer 0 (2 at step 0)" in said


def test_agreement_that_a_layer_shows_too_little_of_is_not_claimed(found: tuple[Lab, Result]) -> None:
    """Half a point above chance, however sure, is below the floor; a wide interval denies nothing."""
    (layer,) = found[1].reading.summary.layers

    def said(**measured: float) -> Finding:
        other = replace(layer, agreement=replace(layer.agreement, p=0.001, **measured))
        summary = replace(found[1].reading.summary, layers=(other,))
        return ffn_memories.findings(replace(found[1], reading=replace(found[1].reading, summary=summary)))[0]

    sure = said(share=0.130, low=0.128, high=0.132, chance=0.125)
    assert sure.sentence.startswith("In no layer")
    wide = said(share=0.2, low=0.05, high=0.4, chance=0.125)
    assert "is shown in no layer, nor that they do not in layer 0" in wide.sentence
    assert not sure.found
    assert not wide.found


def test_a_result_is_not_that_of_another_step_zero(tmp_path: Path) -> None:
    lab = letters_lab(tmp_path, planted_memories(), zero=planted_memories())
    names = [path.relative_to(lab.path) for path in ffn_memories.inputs(lab, Config())]
    assert names == [Path("tokenizer.json"), Path("checkpoints/step-00000000/manifest.json")]
    assert all((lab.path / name).is_file() for name in names)
    assert ffn_memories.inputs(lab, Config(step_zero=False)) == [lab.path / "tokenizer.json"]


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


@pytest.mark.parametrize(
    ("norm", "ffn", "positions"),
    [("pre", "relu", "rope"), ("post", "gelu", "learned"), ("sandwich", "swiglu", "alibi"), ("none", "gelu", "rope")],
)
def test_a_trigger_of_real_text_fed_again_gives_its_stored_coefficient(
    tmp_path: Path, norm: str, ffn: str, positions: str
) -> None:
    lab = python_lab(tmp_path / "run", norm=norm, ffn=ffn, positions=positions)
    config = quick(n_tokens=1500, n_triggers=3, step_zero=False)
    result = ffn_memories.run(lab, config)
    triggers = result.reading.triggers
    for layer, memory, rank in triggers.present.nonzero()[::9].tolist():
        again = replayed_coefficient(lab, result.reading, layer, memory, rank)
        assert again == pytest.approx(float(triggers.coefficient[layer, memory, rank]), abs=1e-5)
        end = int(triggers.offset[layer, memory, rank] + triggers.length[layer, memory, rank])
        assert int(triggers.last_token[layer, memory, rank]) == lab.corpus.tokens[end - 1]
        assert int(triggers.next_token[layer, memory, rank]) == lab.corpus.tokens[end]
        assert lab.corpus.where(end)[0] == lab.corpus.where(end - 1)[0]  # what follows is of the same document
    assert result.n_replayed > 0
    assert result.replay_error < 1e-5


def test_the_triggers_of_real_text_are_those_of_brute_force(tmp_path: Path) -> None:
    lab, config = python_lab(tmp_path / "run", ffn="relu"), quick(n_tokens=2000, n_triggers=4, batch_size=16)
    windows = planned_windows(lab, config)
    coefficients, ends = [], []
    for rows, places in window_batches(lab.corpus.tokens, windows, bos=256, batch_size=16):
        _, cache = lab.gpt.run_with_cache(rows, "blocks.1.mlp.hook_post")
        coefficients.append(cache["post", 1][places >= 0])
        ends.append(places[places >= 0])
    everything, where = torch.cat(coefficients), torch.cat(ends)
    order = everything.sort(dim=0, descending=True, stable=True)
    triggers = ffn_memories.run(lab, replace(config, step_zero=False)).reading.triggers
    present = triggers.present[1]
    assert torch.equal(triggers.coefficient[1], order.values[:4].T)
    last = triggers.offset[1] + triggers.length[1] - 1
    assert torch.equal(last[present], where[order.indices[:4].T][present])
    assert len(where) == windows.n_prefixes >= 2000


def test_parts_of_the_corpus_merged_in_any_order_give_the_whole(tmp_path: Path) -> None:
    lab, config = python_lab(tmp_path / "run"), quick(n_tokens=3000, batch_size=8)
    windows = planned_windows(lab, config)
    batches = list(window_batches(lab.corpus.tokens, windows, bos=256, batch_size=8))

    def state(of: list) -> ffn_memories.State:
        known = ffn_memories.start(lab, config)
        for tokens, ends in of:
            known = ffn_memories.update(lab, known, tokens, ends)
        return known

    spans = [(int(start), int(stop)) for start, stop in lab.corpus.train.spans]
    text = read_text(lab.corpus.tokens, spans, windows, config)
    whole = ffn_memories.finish(lab, config, text, state(batches))
    shards = [state(batches[rank::3]) for rank in (2, 0, 1)]
    merged = ffn_memories.finish(lab, config, text, ffn_memories.merge(ffn_memories.merge(*shards[:2]), shards[2]))
    assert same(whole.triggers, merged.triggers)
    assert same(whole.values, merged.values)
    assert torch.equal(whole.activity.histogram, merged.activity.histogram)
    torch.testing.assert_close(whole.activity.std, merged.activity.std)


def test_ranks_are_counted_exactly_and_chance_over_a_sample_of_pairs_comes_near(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab, config = python_lab(tmp_path), quick(n_tokens=2000)
    result = ffn_memories.run(lab, config)
    for layer, summary in enumerate(result.reading.summary.layers):
        alive = result.reading.activity.alive[layer]
        scores, following = value_scores(lab.gpt, layer)[alive], result.reading.triggers.next_token[layer, alive, 0]
        table = (scores[:, :, None] > scores[:, following.long()][:, None, :]).sum(1)
        own = torch.eye(len(table), dtype=torch.bool)
        assert result.reading.values.next_rank[layer, alive].tolist() == table[own].tolist()
        assert summary.median_rank == float(table[own].double().quantile(0.5))
        assert summary.chance_rank == float(table[~own].double().quantile(0.5))
    monkeypatch.setattr(ffn_values, "_COMPARED", 0)
    for exact, sampled in zip(
        result.reading.summary.layers, ffn_memories.run(lab, config).reading.summary.layers, strict=True
    ):
        assert sampled.median_rank == exact.median_rank
        n_pairs = 16 * (exact.n_memories - exact.n_dead)
        assert abs(sampled.chance_rank - exact.chance_rank) < 4 * 0.5 * lab.config.d_vocab / n_pairs**0.5


def test_the_random_control_is_what_random_prefixes_share(tmp_path: Path) -> None:
    """With one trigger every set agrees with itself; with many, at least the corpus's commonest token is shared."""
    lab = python_lab(tmp_path / "run")
    alone = ffn_memories.run(lab, quick(n_tokens=2000, n_triggers=1))
    assert alone.random_last_token_share == 1
    many = ffn_memories.run(lab, quick(n_tokens=2000, n_triggers=50))
    commonest = torch.bincount(torch.from_numpy(lab.corpus.tokens.astype("int64"))).max() / len(lab.corpus.tokens)
    assert float(commonest) - 0.05 < many.random_last_token_share < float(commonest) + 0.15


def test_held_out_text_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    lab = python_lab(tmp_path / "run")
    held_out = {(int(start), int(end)) for start, end in lab.corpus.held_out.spans}
    windows = planned_windows(lab, quick(n_tokens=10**9, split=Split.HELD_OUT))
    assert windows.n_prefixes == sum(end - start - 1 for start, end in held_out)
    assert all(any(a <= start < b for a, b in held_out) for start in windows.starts.tolist())


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


def test_an_attention_only_model_is_refused_with_a_sentence(tmp_path: Path) -> None:
    lab = python_lab(tmp_path / "run", ffn="none")
    with pytest.raises(InputError, match="attention-only"):
        ffn_memories.run(lab, quick())


def test_a_run_without_text_is_refused_with_a_sentence(tmp_path: Path) -> None:
    lab = written_run(tmp_path / "run", make_gpt_with(d_vocab=257), ByteTokenizer(), ("repeats",))
    with pytest.raises(InputError, match="has no text in its train split"):
        ffn_memories.run(lab, quick())


def test_seeds_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="seed=-1 is not allowed"):
        Config(seed=-1)


def test_amounts_of_nothing_are_refused() -> None:
    with pytest.raises(ConfigError, match="n_triggers=0 is not an amount"):
        quick(n_triggers=0)
