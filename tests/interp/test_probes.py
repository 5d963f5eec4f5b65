"""Probes read what was planted where it was planted, memory is told from reading, and documents do not leak."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from interp import probe_features, probes
from interp.probe_draws import N_CONTROLS, Draw, UnprobedError, draw, with_places
from interp.probe_features import probe_sites, stream_features
from interp.probe_labels import Task, Types, get_task
from interp.probe_text import Amounts, Part, probe_text
from interp.probes import Reading, fit_probe, probe
from model.errors import InputError, UnknownNameError, UnknownSiteError
from model.lab import Lab
from model.sites import sites
from model.tokenizer import ByteTokenizer
from tests.conftest import make_gpt_with
from tests.probe_runs import AMOUNTS, letters_lab, written_run

PLACES = ["blocks.0.hook_resid_pre", "resid_post", "L0H0", "L0H1"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return letters_lab(tmp_path_factory.mktemp("letters"))


def drawn_by_hand(label: Tensor, unit: Tensor, part: Tensor, control: Tensor | None = None) -> Draw:
    """A draw of classes, its test samples unit by unit, equally many of each."""
    return Draw(
        task=Task(name="by-hand", meaning="label", labels=lambda tokens, _: tokens),
        place=torch.arange(len(label)),
        part=part,
        label=label,
        controls=(label if control is None else control)[None],
        token=torch.zeros_like(label),
        classes=tuple(map(str, range(int(label.max()) + 1))),
        n_units=len(unit[part == Part.TEST].unique()),
        labelled_share=1.0,
    )


def test_the_previous_token_is_read_where_its_head_writes_it_and_nowhere_before(lab: Lab) -> None:
    found = probe(lab, "previous-token", PLACES, amounts=AMOUNTS)
    assert found.sites == ("embed", "resid_pre 0", "L0H0", "L0H1", "resid_post 0", "resid_post 1")
    for site in ("L0H1", "resid_post 0", "resid_post 1"):
        assert found.score(site).mean == 1
    for site in ("embed", "resid_pre 0", "L0H0"):  # L0H0 writes nothing: its features are constant
        assert found.score(site).mean < 0.12  # chance is 1 / 19
    assert found.score("L0H1").n == found.draw.n_units > 10


def test_the_position_is_read_behind_the_position_embedding_and_not_off_the_token(lab: Lab) -> None:
    found = probe(lab, "position", PLACES, amounts=AMOUNTS)
    assert found.score("embed").mean < 0.2  # chance is 1 / 8
    assert found.score("resid_pre 0").mean == 1
    # one dimension per position: any label of positions can be learned by heart, and selectivity says so
    assert found.control("resid_pre 0").mean > 0.98  # 47 positions, 450 samples: some were hardly ever seen
    assert abs(found.selectivity("resid_pre 0").mean) < 0.02


def test_a_label_of_ones_own_may_be_a_number(lab: Lab) -> None:
    def place(tokens: Tensor, _: Lab) -> Tensor:
        places = torch.arange(tokens.shape[1]).float().expand(tokens.shape).clone()
        places[:, 0] = float("nan")
        return places

    found = probe(lab, Task(name="place", meaning="place", labels=place, types=Types.POSITION), PLACES, amounts=AMOUNTS)
    assert found.draw.is_number
    assert found.score("resid_pre 0").mean > 0.999
    assert abs(found.score("embed").mean) < 0.1
    assert float(found.draw.majority().mean()) == pytest.approx(0, abs=1e-3)
    assert probe(lab, place, ["embed"], amounts=AMOUNTS).draw.task.name == "labels"


def test_the_mean_over_units_of_the_score_of_numbers_is_r_squared(lab: Lab) -> None:
    task = Task(name="place", meaning="place", labels=lambda tokens, _: torch.rand(tokens.shape, dtype=torch.float64))
    drawn = draw(lab, probe_text(lab, AMOUNTS, longest=256, seed=0), task, AMOUNTS, 0)
    truth, mean = drawn.of(Part.TEST, drawn.label), drawn.of(Part.TRAIN, drawn.label).mean()
    predicted = 0.5 * truth + 0.2
    expected = 1 - (predicted - truth).square().sum() / (truth - mean).square().sum()
    assert float(drawn.by_unit(predicted).mean()) == pytest.approx(float(expected))


def test_a_probe_that_only_memorises_has_no_selectivity() -> None:
    """Features that tell every type apart, and a label that is a random table of types: all is memory."""
    generator = torch.Generator().manual_seed(0)
    types = torch.randint(40, (3000,), generator=generator)
    label, control = (torch.randint(4, (40,), generator=generator)[types] for _ in range(2))
    unit = torch.arange(30).repeat_interleave(100)
    part = torch.where(unit < 15, Part.TRAIN, torch.where(unit < 20, Part.VALIDATION, Part.TEST))
    drawn = drawn_by_hand(label, unit, part, control)
    features = torch.nn.functional.one_hot(types, 40).float()
    score, memorised = (fit_probe(features, drawn, labels).score.mean() for labels in (label, control))
    assert score == memorised == 1


def test_a_label_of_documents_is_not_decodable_from_other_documents_though_it_would_be_by_token() -> None:
    """Features that only tell documents apart: dealt by token the label is read perfectly, by document not at all."""
    unit = torch.arange(40).repeat_interleave(50)
    by_document = torch.where(unit < 20, Part.TRAIN, torch.where(unit < 26, Part.VALIDATION, Part.TEST))
    by_token = torch.where(torch.arange(2000) % 2 == 0, Part.TRAIN, Part.TEST)
    by_token[torch.arange(2000) % 10 == 0] = Part.VALIDATION
    honest = []
    for seed in range(12):
        generator = torch.Generator().manual_seed(seed)
        label = torch.randint(2, (40,), generator=generator)[unit]
        features = torch.nn.functional.one_hot(unit, 40).float() + 0.1 * torch.randn(2000, 40, generator=generator)
        leaking = fit_probe(features, drawn_by_hand(label, unit, by_token), label, strengths=(0.03,)).score.mean()
        assert leaking > 0.9
        drawn = drawn_by_hand(label, unit, by_document)
        honest.append(float(fit_probe(features, drawn, label, strengths=(0.03,)).score.mean()))
    assert sum(honest) / len(honest) == pytest.approx(0.5, abs=0.1)  # of 168 documents: a standard error of 0.04


def test_what_the_test_part_holds_changes_nothing_that_is_chosen() -> None:
    generator = torch.Generator().manual_seed(0)
    unit = torch.arange(30).repeat_interleave(20)
    part = torch.where(unit < 15, Part.TRAIN, torch.where(unit < 20, Part.VALIDATION, Part.TEST))
    features = torch.randn(600, 12, generator=generator)
    label = (features[:, 0] + torch.randn(600, generator=generator) > 0).long()
    drawn = drawn_by_hand(label, unit, part)
    elsewhere = torch.where(part[:, None] == Part.TEST, 1000 * features + 50, features)
    one, other = (fit_probe(each, drawn, label) for each in (features, elsewhere))
    assert (one.validation, one.strength) == (other.validation, other.strength)
    assert one.validation > 0.6
    assert not torch.equal(one.score, other.score)


@pytest.fixture(scope="module")
def tables() -> Tensor:
    """What 150 random tables are learned to in 120 units [table, unit]: 60 types of Zipf's frequency, two labels 4:1.

    So alike that a probe learns most of them by heart, and unlike in how often the rare label falls on a common type.
    """
    generator = torch.Generator().manual_seed(0)
    unit = torch.arange(142).repeat_interleave(60)
    types = torch.multinomial(1 / torch.arange(1, 61.0), len(unit), replacement=True, generator=generator)
    part = torch.where(unit < 18, Part.TRAIN, torch.where(unit < 22, Part.VALIDATION, Part.TEST))
    features = torch.randn(60, 24, generator=generator)[types]
    drawn = drawn_by_hand((types == 0).long(), unit, part)
    labels = (torch.rand(150, 60, generator=generator) < 0.2).long()
    return torch.stack([fit_probe(features, drawn, each[types], strengths=(0.03,)).score for each in labels])


def reading_of(tables: Tensor, seed: int) -> Reading:
    """Some of the tables in some of the units: the first takes the place of the task's own label."""
    generator = torch.Generator().manual_seed(seed)
    some = torch.randperm(len(tables), generator=generator)[: N_CONTROLS + 1]
    found = tables[some][:, None, torch.randperm(tables.shape[1], generator=generator)[:18]]
    one = torch.ones(1, dtype=torch.float64)
    return Reading(
        score=found[0],
        validation=one,
        strength=one,
        converged=one.bool(),
        controls=found[1:],
        controls_converged=one.bool().expand(N_CONTROLS, 1),
    )


def test_the_interval_of_the_control_covers_what_tables_are_learned_to_on_average(tables: Tensor) -> None:
    intervals = [reading_of(tables, seed).control_at(0, seed) for seed in range(200)]
    covered = sum(each.low <= float(tables.mean()) <= each.high for each in intervals)
    assert 0.89 <= covered / 200 <= 0.99  # over units alone it was 0.4 with three tables


def test_a_label_that_is_one_more_random_table_is_hardly_ever_said_to_be_more_or_less_than_memory(
    tables: Tensor,
) -> None:
    said = [reading_of(tables, seed).above_memory(0, seed) for seed in range(200)]
    assert said.count(True) <= 20  # 1 in 20 is expected of each
    assert said.count(False) <= 20
    real = reading_of(tables, 0)
    real.score[0] = 0.999
    assert real.above_memory(0, 0) is True
    real.score[0] = 0.7
    assert real.above_memory(0, 0) is False


def test_the_token_alone_is_what_a_table_of_tokens_tells(lab: Lab) -> None:
    def is_vowel(tokens: Tensor, lab: Lab) -> Tensor:
        return torch.isin(tokens, torch.tensor(lab.tokenizer.encode("aeio"))).long()

    found = probe(lab, is_vowel, ["embed"], amounts=AMOUNTS)
    assert float(found.draw.by_token().mean()) == 1
    assert float(found.draw.majority().mean()) == pytest.approx(15 / 19, abs=0.06)
    assert found.score("embed").mean == 1


def test_the_control_gives_every_token_one_label_in_every_part(lab: Lab) -> None:
    text = probe_text(lab, AMOUNTS, longest=256, seed=0)
    drawn = draw(lab, text, get_task("previous-token"), AMOUNTS, 0)
    assert len(drawn.controls.unique(dim=0)) == N_CONTROLS
    for control in drawn.controls.tolist():
        table = dict(zip(drawn.token.tolist(), control, strict=True))
        assert control == [table[token] for token in drawn.token.tolist()]
        assert len(set(table.values())) > 5
        assert set(table.values()) <= set(range(len(drawn.classes)))


def test_the_labels_of_the_control_are_as_frequent_as_those_of_the_training_part(lab: Lab) -> None:
    def is_first(tokens: Tensor, lab: Lab) -> Tensor:
        return torch.isin(tokens, torch.tensor(lab.tokenizer.encode("abc"))).long()

    task = Task(name="first", meaning="first letters", labels=is_first)
    drawn = draw(lab, probe_text(lab, AMOUNTS, longest=256, seed=0), task, AMOUNTS, 0)
    tables = torch.stack([drawn.controls[:, drawn.token == token][:, 0] for token in drawn.token.unique()])
    trained = float(drawn.of(Part.TRAIN, drawn.label).double().mean())
    assert trained < 0.2
    assert float(tables.double().mean()) == pytest.approx(trained, abs=0.07)  # of 361 drawn: a standard error of 0.02


def test_every_site_and_model_is_asked_at_the_same_labelled_positions(lab: Lab) -> None:
    text = probe_text(lab, AMOUNTS, longest=256, seed=0)
    n_pos = text.tokens.shape[1]
    tasks = [get_task("position"), get_task("previous-token")]
    places, shared = with_places([draw(lab, text, task, AMOUNTS, 0) for task in tasks], n_pos)
    for each, task in zip(shared, tasks, strict=True):
        labels = task.labels(text.tokens, lab)
        window, position = places[each.place].unbind(1)
        assert [each.classes[index] for index in each.label.tolist()] == [
            task.spelled(label, lab) for label in labels[window, position].tolist()
        ]
        assert torch.equal(text.part[window], each.part)
        of_test = text.unit[window][each.part == Part.TEST].view(each.n_units, -1)
        assert (of_test == of_test[:, :1]).all()
        assert abs(each.n(Part.TRAIN) - AMOUNTS.train) < 60
    assert len(places) < 1.2 * len(shared[0].place)  # tasks share positions


def test_features_are_those_of_a_run_with_cache_however_many_passes_they_take(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = probe_text(lab, AMOUNTS, longest=256, seed=0).tokens[:20]
    places = torch.tensor([[0, 3], [0, 5], [4, 1], [19, 40]])
    wanted = probe_sites(lab.config, ["z", "L0H1", "resid_post"])
    whole = dict(stream_features(lab.gpt, tokens, places, wanted))
    monkeypatch.setattr(probe_features, "_KEPT", 1)
    monkeypatch.setattr(probe_features, "_PASSED", 1)
    passes: list[tuple[int, int]] = []
    few = dict(stream_features(lab.gpt, tokens, places, wanted, counted=lambda *n: passes.append(n)))
    _, cache = lab.gpt.run_with_cache(tokens)
    assert passes == [(index, len(wanted)) for index in range(len(wanted))]
    for place in wanted:
        held = cache[str(place.site)][places[:, 0], places[:, 1]]
        expected = (held if place.index is None else held[:, place.index]).flatten(1)
        torch.testing.assert_close(whole[place], expected)
        torch.testing.assert_close(few[place], expected)


def test_every_place_with_a_position_can_be_probed() -> None:
    gpt = make_gpt_with(ffn="swiglu", norm="sandwich", n_kv_heads=2)
    names = [name for name in sites(gpt.config) if "pattern" not in name and "scores" not in name]
    wanted = probe_sites(gpt.config, names)
    read = dict(stream_features(gpt, torch.randint(50, (3, 9)), torch.tensor([[0, 2], [2, 8]]), wanted))
    assert len(read) == len(names)
    assert all(features.isfinite().all() and len(features) == 2 for features in read.values())


def test_places_are_those_of_the_one_grammar_and_one_name_is_one_place() -> None:
    gpt, tokens, places = make_gpt_with(), torch.randint(50, (3, 9)), torch.tensor([[0, 2], [2, 8]])
    wanted = probe_sites(gpt.config, ["L1M3", "L0H2", "L0.attn", "L1.ffn"])
    assert [place.label for place in wanted] == ["embed", "L0H2", "attn_out 0", "L1M3", "mlp_out 1"]
    read = dict(stream_features(gpt, tokens, places, wanted))
    _, cache = gpt.run_with_cache(tokens)
    window, position = places.unbind(1)
    held = [cache["z", 0][..., 2, :], cache["attn_out", 0], cache["post", 1][..., 3:4], cache["mlp_out", 1]]
    for place, expected in zip(wanted[1:], held, strict=True):
        torch.testing.assert_close(read[place], expected[window, position])
    assert [place.label for place in probe_sites(gpt.config, "resid_post")] == ["embed", "resid_post 0", "resid_post 1"]


def test_a_probe_agrees_with_a_pipeline_of_scikit_learn(lab: Lab) -> None:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    text = probe_text(lab, AMOUNTS, longest=256, seed=0)
    (place,) = [each for each in probe_sites(lab.config, ["L0H1"]) if each.index == 1]
    places, (drawn,) = with_places([draw(lab, text, get_task("position"), AMOUNTS, 0)], 48)
    ((_, features),) = stream_features(lab.gpt, text.tokens, places, [place])
    own = fit_probe(features[drawn.place], drawn, drawn.label)
    x, y = features[drawn.place].double().numpy(), drawn.label.numpy()
    train, validation, test = ((drawn.part == part).numpy() for part in Part)
    best: tuple[float, float, float] | None = None
    for strength in probes.STRENGTHS:
        theirs = make_pipeline(StandardScaler(), LogisticRegression(C=strength, max_iter=2000)).fit(x[train], y[train])
        score = theirs.score(x[validation], y[validation])
        if best is None or score > best[0] + 1e-9:
            best = (score, strength, theirs.score(x[test], y[test]))
    assert best is not None
    assert own.validation == pytest.approx(best[0], abs=0.011)  # two samples of 200
    assert float(own.score.mean()) == pytest.approx(best[2], abs=0.011)


def test_a_solver_that_does_not_come_to_an_end_is_a_result_and_no_noise(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(probes, "MAX_ITERATIONS", 1)
    found = probe(lab, "previous-token", ["resid_post"], amounts=AMOUNTS)
    assert not found.reading.converged.any()


def test_a_seed_gives_the_same_scores_again_and_another_seed_draws_other_positions(lab: Lab) -> None:
    small = Amounts(train=200, validation=80, test=120)
    first, again, other = (probe(lab, "position", ["L0H1"], amounts=small, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(first.reading.score, again.reading.score)
    assert torch.equal(first.reading.control, again.reading.control)
    assert not torch.equal(first.draw.place, other.draw.place)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("blocks.0.attn.hook_pattern", "goes by batch, head, query, key, and a probe reads one vector per position"),
        ("resid_pots", 'nothing called "resid_pots" to probe. Did you mean "resid_post"'),
        ("L2H0", "no L2H0: this model has 2 layers"),
        ("L0H4", "no L0H4: layer 0 has 4 heads"),
        ("L0.ffn", "no L0.ffn: this model is attention-only"),
    ],
)
def test_a_place_that_cannot_be_probed_is_refused_in_a_sentence(lab: Lab, name: str, sentence: str) -> None:
    with pytest.raises((UnknownSiteError, UnknownNameError), match=sentence):
        probe(lab, "position", [name], amounts=AMOUNTS)


def test_a_site_that_was_not_probed_has_no_score(lab: Lab) -> None:
    found = probe(lab, "position", ["embed"], amounts=Amounts(train=60, validation=30, test=60))
    with pytest.raises(UnknownSiteError, match='"z 0" was not probed'):
        found.score("z 0")


def only_one_document_of_the_test_part(tokens: Tensor, lab: Lab) -> Tensor:
    """Letters are labelled in all documents but those held out, of which one is."""
    text = probe_text(lab, AMOUNTS, longest=256, seed=0)
    first = text.unit[text.part == Part.TEST].min()
    asked = (text.part != Part.TEST) | (text.unit == first)
    return torch.where(asked[:, None], tokens, -1)


def test_labels_of_another_shape_or_of_one_value_are_refused(lab: Lab) -> None:
    with pytest.raises(InputError, match="The labels of labels are torch.int64"):
        probe(lab, lambda tokens, _: tokens[:, 1:], ["embed"], amounts=AMOUNTS)
    with pytest.raises(InputError, match="torch.bool"):
        probe(lab, lambda tokens, _: tokens > 3, ["embed"], amounts=AMOUNTS)
    with pytest.raises(UnprobedError, match="has one value only in the 4\\d\\d positions"):
        probe(lab, lambda tokens, _: torch.zeros_like(tokens), ["embed"], amounts=AMOUNTS)
    with pytest.raises(UnprobedError, match="has no labelled position in the train part"):
        probe(lab, "indentation-depth", ["embed"], amounts=AMOUNTS)
    with pytest.raises(
        UnprobedError, match="has labels in 1 of the held-out documents to test on; an interval needs 6"
    ):
        probe(lab, only_one_document_of_the_test_part, ["embed"], amounts=AMOUNTS)
    numbers = replace(get_task("previous-token"), labels=lambda tokens, _: tokens.double())
    with pytest.raises(InputError, match="n_commonest chooses among classes"):
        probe(lab, numbers, ["embed"], amounts=AMOUNTS)


def test_brackets_are_not_asked_of_a_run_without_text(tmp_path: Path) -> None:
    lab = written_run(tmp_path / "run", make_gpt_with(d_vocab=257), ByteTokenizer(), "repeats")
    with pytest.raises(UnprobedError, match="bracket depth .* means nothing in fresh sequences of repeats"):
        probe(lab, "bracket-depth", amounts=AMOUNTS)
    found = probe(lab, "position", ["embed"], amounts=Amounts(train=160, validation=80, test=160))
    assert found.score("embed").mean < 0.3


def test_a_model_whose_dropout_is_on_is_refused(lab: Lab) -> None:
    gpt = make_gpt_with(dropout=0.1, n_ctx=48).train()
    with pytest.raises(InputError, match="call gpt.eval"):
        probe(replace(lab, gpt=gpt), "position", ["embed"], amounts=AMOUNTS)


def test_scikit_learn_is_not_imported_before_a_probe_is_fitted() -> None:
    code = "import sys, apps.cli, analyses.probes, analyses.study; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_commonest_label_of_the_test_is_not_that_of_training() -> None:
    unit = torch.arange(4).repeat_interleave(4)
    part = torch.tensor([Part.TRAIN, Part.VALIDATION, Part.TEST, Part.TEST]).repeat_interleave(4)
    label = torch.tensor([[0, 0, 0, 1], [0, 0, 0, 1], [1, 1, 1, 0], [1, 1, 2, 2]]).flatten()
    drawn = replace(drawn_by_hand(label, unit, part), classes=("none", "one"))  # 2: a label that training does not have
    assert drawn.majority().tolist() == [0.25, 0]
    assert drawn.test_majority().tolist() == [0.75, 0.5]
