"""FFN memories of random models over real text: what the study counts is what a slow count gives, to the number."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from analyses import ffn_memories
from analyses.ffn import values as ffn_values
from analyses.ffn.parts import FRACTIONS
from analyses.ffn.reading import read_text
from analyses.ffn_memories import Split, planned_windows, replayed_coefficient
from analyses.records import same
from interp.coefficient_bins import histogram_edges
from interp.memory_values import value_scores
from interp.prefixes import window_batches
from model.errors import InputError
from model.tokenizer import ByteTokenizer
from tests.conftest import make_gpt_with
from tests.memory_runs import few_replays, python_lab, quick, sparse, written_run

__all__ = ["few_replays"]  # a fixture for all

pytestmark = pytest.mark.whole  # annotations are checked in test_ffn_memories.py


def test_a_random_model_beside_another_random_model_has_nothing_found(tmp_path: Path) -> None:
    first, second = (make_gpt_with(seed=seed, d_vocab=257, n_ctx=24, ffn="relu") for seed in (1, 2))
    lab = written_run(tmp_path / "run", first, ByteTokenizer(), ("stdlib",), zero=second)
    said = ffn_memories.findings(ffn_memories.run(lab, quick(n_tokens=6_000)))
    about_training = [finding for finding in said if "training" in finding.sentence.lower()]
    assert len(about_training) == 4
    assert not any(finding.found for finding in said), [each.sentence for each in said]
    assert False in [finding.found for finding in about_training]


def test_activity_is_that_of_a_slow_count(tmp_path: Path) -> None:
    lab, config = python_lab(tmp_path / "run", ffn="swiglu"), sparse(n_tokens=1500)
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


@pytest.mark.parametrize(
    ("norm", "ffn", "positions"),
    [("pre", "relu", "rope"), ("post", "gelu", "learned"), ("sandwich", "swiglu", "alibi"), ("none", "gelu", "rope")],
)
def test_a_trigger_of_real_text_fed_again_gives_its_stored_coefficient(
    tmp_path: Path, norm: str, ffn: str, positions: str
) -> None:
    lab = python_lab(tmp_path / "run", norm=norm, ffn=ffn, positions=positions)
    config = sparse(n_tokens=1500, n_triggers=3)
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
    lab, config = python_lab(tmp_path / "run", ffn="relu"), sparse(n_tokens=2000, n_triggers=4, batch_size=16)
    windows = planned_windows(lab, config)
    coefficients, ends = [], []
    for rows, places in window_batches(lab.corpus.tokens, windows, bos=256, batch_size=16):
        _, cache = lab.gpt.run_with_cache(rows, "blocks.1.mlp.hook_post")
        coefficients.append(cache["post", 1][places >= 0])
        ends.append(places[places >= 0])
    everything, where = torch.cat(coefficients), torch.cat(ends)
    order = everything.sort(dim=0, descending=True, stable=True)
    triggers = ffn_memories.run(lab, config).reading.triggers
    present = triggers.present[1]
    assert torch.equal(triggers.coefficient[1], order.values[:4].T)
    last = triggers.offset[1] + triggers.length[1] - 1
    assert torch.equal(last[present], where[order.indices[:4].T][present])
    assert len(where) == windows.n_prefixes >= 2000


def test_parts_of_the_corpus_merged_in_any_order_give_the_whole(tmp_path: Path) -> None:
    lab, config = python_lab(tmp_path / "run"), sparse(n_tokens=3000, batch_size=8)
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
    lab, config = python_lab(tmp_path), sparse(n_tokens=2000)
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
    alone = ffn_memories.run(lab, sparse(n_tokens=2000, n_triggers=1, n_random_sets=40))
    assert alone.random_last_token_share == 1
    many = ffn_memories.run(lab, sparse(n_tokens=2000, n_triggers=50, n_random_sets=40))
    commonest = torch.bincount(torch.from_numpy(lab.corpus.tokens.astype("int64"))).max() / len(lab.corpus.tokens)
    assert float(commonest) - 0.05 < many.random_last_token_share < float(commonest) + 0.15


def test_held_out_text_is_read_where_it_is_asked_for(tmp_path: Path) -> None:
    lab = python_lab(tmp_path / "run")
    held_out = {(int(start), int(end)) for start, end in lab.corpus.held_out.spans}
    windows = planned_windows(lab, quick(n_tokens=10**9, split=Split.HELD_OUT))
    assert windows.n_prefixes == sum(end - start - 1 for start, end in held_out)
    assert all(any(a <= start < b for a, b in held_out) for start in windows.starts.tolist())


def test_an_attention_only_model_is_refused_with_a_sentence(tmp_path: Path) -> None:
    lab = python_lab(tmp_path / "run", ffn="none")
    with pytest.raises(InputError, match="attention-only"):
        ffn_memories.run(lab, quick())


def test_a_run_without_text_is_refused_with_a_sentence(tmp_path: Path) -> None:
    lab = written_run(tmp_path / "run", make_gpt_with(d_vocab=257), ByteTokenizer(), ("repeats",))
    with pytest.raises(InputError, match="has no text in its train split"):
        ffn_memories.run(lab, quick())
