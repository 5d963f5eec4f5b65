from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from model.errors import ConfigError, InputError, UnknownNameError
from model.settings import from_plain, to_plain
from model.tokenizer import BPETokenizer, ByteTokenizer, CharTokenizer, load_tokenizer
from model.training import sources
from model.training.corpus import Corpus, DataConfig, build_corpus, build_tokenizer

Write = Callable[..., DataConfig]


@pytest.fixture
def many(tmp_path: Path) -> DataConfig:
    """Thirty documents of different lengths."""
    for index in range(30):
        lines = [f"document {index}, line {line}, written to be read\n" for line in range(5 + index % 7)]
        (tmp_path / f"{index:02}.txt").write_text("".join(lines))
    return DataConfig(sources=(f"text:{tmp_path}/*.txt",), held_out=0.2)


def corpus_of(config: DataConfig) -> Corpus:
    return build_corpus(config, build_tokenizer(config))


def text_of(corpus: Corpus, start: int, end: int) -> str:
    return ByteTokenizer().decode(corpus.tokens[start:end])


def test_the_tokens_are_the_documents_one_behind_the_other(many: DataConfig, tmp_path: Path) -> None:
    corpus = corpus_of(many)
    assert corpus.names == tuple(f"{index:02}.txt" for index in range(30))
    for name, start, end in zip(corpus.names, corpus.starts, corpus.ends, strict=True):
        assert text_of(corpus, start, end) == (tmp_path / name).read_text()
    assert corpus.tokens.dtype == np.uint16


def test_an_offset_names_a_place_in_a_document(many: DataConfig, tmp_path: Path) -> None:
    corpus = corpus_of(many)
    for offset in (0, 1, int(corpus.starts[1]) - 1, int(corpus.starts[1]), len(corpus.tokens) - 1):
        name, inside = corpus.where(offset)
        assert (tmp_path / name).read_text()[inside] == text_of(corpus, offset, offset + 1)
    assert corpus.window(7, 5).tolist() == corpus.tokens[7:12].tolist()
    assert corpus.window(7, 5).dtype == torch.int64


@pytest.mark.parametrize("call", [lambda c: c.where(-1), lambda c: c.where(len(c.tokens))])
def test_a_place_outside_the_corpus_is_refused(many: DataConfig, call: Callable[[Corpus], object]) -> None:
    with pytest.raises(InputError, match="There is no token"):
        call(corpus_of(many))


@pytest.mark.parametrize("offset", [-1, 10**6])
def test_a_window_outside_the_corpus_is_refused(many: DataConfig, offset: int) -> None:
    with pytest.raises(InputError, match=f"No window of 8 tokens starts at offset {offset}"):
        corpus_of(many).window(offset, 8)


def test_documents_are_held_out_whole_and_at_most_the_asked_share(many: DataConfig) -> None:
    corpus = corpus_of(many)
    spans = np.stack([corpus.starts, corpus.ends], axis=1)
    assert sorted([*corpus.train.spans.tolist(), *corpus.held_out.spans.tolist()]) == spans.tolist()
    assert corpus.train.n_tokens + corpus.held_out.n_tokens == len(corpus.tokens)
    assert 0.1 < corpus.held_out.n_tokens / len(corpus.tokens) <= 0.2


def test_the_seed_decides_which_documents_are_held_out(many: DataConfig) -> None:
    held_out = {tuple(corpus_of(from_plain(DataConfig, to_plain(many) | {"seed": s})).is_held_out) for s in range(4)}
    assert len(held_out) > 1


def test_a_single_document_is_held_out_by_its_end_at_a_line(tmp_path: Path) -> None:
    text = "".join(f"line {line}\n" for line in range(100))
    (tmp_path / "only.txt").write_text(text)
    corpus = corpus_of(DataConfig(sources=(f"text:{tmp_path}/only.txt",), held_out=0.25))
    assert corpus.names == ("only.txt", "only.txt (end)")
    assert text_of(corpus, 0, len(corpus.tokens)) == text
    (start, end) = corpus.held_out.spans[0]
    assert text_of(corpus, start, end).startswith("line ")
    assert corpus.held_out.n_tokens / len(corpus.tokens) == pytest.approx(0.25, abs=0.02)


def test_windows_stay_inside_documents_and_every_offset_is_reached(many: DataConfig) -> None:
    corpus, length = corpus_of(many), 40
    split = corpus.train
    reached = split.nth_window(np.arange(split.n_windows(length)), length)
    inside = [o for start, end in split.spans for o in range(start, end) if o + length <= end]
    assert reached.tolist() == inside
    laid = split.windows(length)
    assert set(laid) <= set(inside)
    assert len(laid) == sum((end - start) // length for start, end in split.spans)
    assert split.windows(length, stride=1).tolist() == inside


def test_the_same_files_give_the_same_corpus_and_a_changed_byte_another_hash(many: DataConfig, tmp_path: Path) -> None:
    first, second = corpus_of(many), corpus_of(many)
    assert first.sha256 == second.sha256
    assert first.sha256 != corpus_of(from_plain(DataConfig, to_plain(many) | {"seed": 9})).sha256
    path = tmp_path / "07.txt"
    path.write_text(path.read_text().replace("read", "lead", 1))
    assert corpus_of(many).sha256 != first.sha256


def test_the_hash_does_not_depend_on_where_the_folder_stands(tmp_path: Path) -> None:
    hashes = set()
    for place in ("a", "b/c"):
        folder = tmp_path / place
        folder.mkdir(parents=True)
        (folder / "x.txt").write_text("some text\n" * 30)
        hashes.add(corpus_of(DataConfig(sources=(f"text:{folder}",))).names)
    assert len(hashes) == 1


def test_the_standard_library_is_read_fast_the_same_twice_and_up_to_its_limit() -> None:
    started = time.process_time()
    config = DataConfig(sources=("stdlib",))
    corpus = corpus_of(config)
    assert time.process_time() - started < 2
    assert 3_000_000 < len(corpus.tokens) <= config.stdlib_bytes
    assert len(corpus.names) > 150
    assert corpus.sha256 == corpus_of(config).sha256
    assert not any(folder in name.split("/") for name in corpus.names for folder in ("test", "tests", "site-packages"))
    assert len(corpus_of(DataConfig(sources=("stdlib",), stdlib_bytes=200_000)).tokens) <= 200_000


def test_each_tokenizer_is_built_as_named(many: DataConfig) -> None:
    kinds = {"bytes": ByteTokenizer, "chars": CharTokenizer, "bpe:300": BPETokenizer}
    for name, kind in kinds.items():
        config = from_plain(DataConfig, to_plain(many) | {"tokenizer": name})
        tokenizer = build_tokenizer(config)
        assert type(tokenizer) is kind
        corpus = build_corpus(config, tokenizer)
        assert tokenizer.n_bytes(corpus.tokens) == len(corpus_of(many).tokens)
    assert build_tokenizer(config).d_vocab == 300


def test_a_corpus_without_text_sources_is_empty_and_has_a_hash() -> None:
    corpus = corpus_of(DataConfig(sources=("repeats",)))
    assert (len(corpus.tokens), corpus.names, corpus.train.n_windows(5), len(corpus.train.windows(5))) == (0, (), 0, 0)
    assert corpus.describe()["corpus"]["tokens_by_source"] == {}


def test_run_json_says_what_the_corpus_is(many: DataConfig) -> None:
    corpus = corpus_of(many)
    said = corpus.describe()
    assert said["corpus_sha256"] == corpus.sha256
    assert said["corpus"]["n_documents"] == 30
    assert sum(said["corpus"]["tokens_by_source"].values()) == said["corpus"]["n_tokens"] == len(corpus.tokens)


# --- what a user can get wrong ---


@pytest.mark.parametrize("content", [None, ""])
def test_a_source_without_text_is_one_sentence(tmp_path: Path, content: str | None) -> None:
    if content is None:
        with pytest.raises(UnknownNameError, match="matches no file"):
            corpus_of(DataConfig(sources=(f"text:{tmp_path}/*.txt",)))
        return
    (tmp_path / "empty.txt").write_text(content)
    with pytest.raises(InputError, match="holds no text: the corpus would be empty"):
        corpus_of(DataConfig(sources=(f"text:{tmp_path}/*.txt",)))


def test_a_library_cut_shorter_than_its_first_file_says_which_setting_to_raise() -> None:
    with pytest.raises(InputError, match=r"stdlib holds no text: .*; raise data\.stdlib_bytes=1, for only whole files"):
        corpus_of(DataConfig(sources=("stdlib",), stdlib_bytes=1))


def test_what_is_hidden_below_a_folder_is_not_read(tmp_path: Path) -> None:
    root = tmp_path / ".checkout"
    for name in ("a.md", "b/c.md", ".git/objects/ab/cdef", ".git/HEAD", "b/.cache/x/y.md", "b/.hidden.md"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"some text\n" if name.endswith(".md") else b"\xff\x00")
    for source in (f"text:{root}", f"text:{root}/**", f"text:{root}/**/*.md"):
        names = [document.name for document in sources.read_documents(DataConfig(sources=(source,)))]
        assert [name for name in names if not name.endswith("(end)")] == ["a.md", "b/c.md"]
    for spelled in (f"text:{root}/b/.hidden.md", f"text:{root}/b/.h*"):
        assert sources.read_documents(DataConfig(sources=(spelled,)))[0].name == ".hidden.md"


@pytest.mark.parametrize("second", ["*.txt", "", "link.txt"])
def test_a_file_in_two_sources_is_refused_by_name(tmp_path: Path, second: str) -> None:
    (tmp_path / "a.txt").write_text("some text\n" * 9)
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    config = DataConfig(sources=(f"text:{tmp_path}/a.txt", f"text:{tmp_path}/{second}=2"))
    with pytest.raises(InputError, match=r"\.txt is in two data sources, text:.*a\.txt and text:.*Leave it out of one"):
        sources.read_documents(config)


def test_a_file_of_the_standard_library_is_not_read_again_as_text() -> None:
    config = DataConfig(sources=("stdlib", f"text:{Path(json.__file__).parent}/*.py"))
    with pytest.raises(InputError, match=r"\.py is in two data sources, stdlib and text:"):
        sources.read_documents(config)


def test_a_file_that_a_source_finds_twice_is_read_once(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("some text\n" * 9)
    (tmp_path / "z.txt").symlink_to(tmp_path / "a.txt")
    documents = sources.read_documents(DataConfig(sources=(f"text:{tmp_path}/*.txt",)))
    assert [document.name for document in documents] == ["a.txt", "a.txt (end)"]


def test_a_file_without_rights_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "secret.txt").write_text("text")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with pytest.raises(InputError, match=r"secret\.txt could not be read: no right to do so"):
        corpus_of(DataConfig(sources=(f"text:{tmp_path}/secret.txt",)))


def test_a_file_that_is_no_text_is_named_with_the_byte(tmp_path: Path) -> None:
    (tmp_path / "picture.txt").write_bytes(b"abc\xff\x00")
    with pytest.raises(InputError, match=r"picture\.txt is not UTF-8 text \(byte 0xff at 3\)"):
        corpus_of(DataConfig(sources=(f"text:{tmp_path}/picture.txt",)))


def test_an_unknown_character_names_the_document(many: DataConfig) -> None:
    with pytest.raises(InputError, match=r"00\.txt cannot be tokenised\. The character 'd'"):
        build_corpus(many, CharTokenizer.train("abc"))


def test_a_trained_tokenizer_without_text_is_refused() -> None:
    with pytest.raises(InputError, match=r"chars tokenizer is made from text, and data\.sources has none"):
        build_tokenizer(DataConfig(sources=("repeats",), tokenizer="chars"))


def test_a_small_vocabulary_needs_no_text(tmp_path: Path) -> None:
    tokenizer = build_tokenizer(DataConfig(sources=("repeats",), tokenizer="chars:12"))
    assert (tokenizer.d_vocab, tokenizer.bos, tokenizer.str_tokens(range(12))) == (12, 11, [*"abcdefghijk", "<bos>"])
    tokenizer.save(tmp_path / "tokenizer.json")
    assert load_tokenizer(tmp_path / "tokenizer.json").state() == tokenizer.state()
    for size in ("2", "96"):
        with pytest.raises(InputError, match=f"A vocabulary of {size} visible characters and BOS .* ask for 3 to 95"):
            build_tokenizer(DataConfig(sources=("repeats",), tokenizer=f"chars:{size}"))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"sources": ()}, "data.sources is empty"),
        ({"sources": ("stdlb",)}, 'There is no data source "stdlb". Did you mean "stdlib"'),
        ({"sources": ("text:",)}, 'There is no data source "text:"'),
        ({"sources": ("hf:wikitext",)}, 'There is no data source "hf:wikitext"'),
        ({"sources": ("stdlib=0",)}, "must be a positive number"),
        ({"sources": ("stdlib=many",)}, "must be a positive number"),
        ({"sources": ("stdlib", "stdlib=2")}, "names stdlib twice"),
        ({"tokenizer": "words"}, 'data.tokenizer="words" is not a tokenizer; take bytes, chars, bpe:N'),
        ({"tokenizer": "chars:"}, "is not a tokenizer"),
        ({"tokenizer": "bpe:"}, "is not a tokenizer"),
        ({"min_period": 9, "max_period": 8}, "is no range of periods"),
        ({"min_period": 1}, "is no range of periods"),
        ({"held_out": 0.0}, "data.held_out=0.0 is not a share"),
        ({"held_out": 0.9}, "data.held_out=0.9 is not a share"),
    ],
)
def test_a_config_that_describes_no_data_is_one_sentence(settings: dict[str, object], sentence: str) -> None:
    with pytest.raises((ConfigError, UnknownNameError)) as error:
        DataConfig(**settings)
    assert sentence in str(error.value)


def test_a_config_survives_as_plain_data() -> None:
    config = DataConfig(sources=("text:a b/*.md=0.25", "repeats=2"), tokenizer="bpe:512")
    assert from_plain(DataConfig, to_plain(config)) == config


def test_recorded_names_are_never_absolute(many: DataConfig) -> None:
    documents = sources.read_documents(many)
    assert not any(document.name.startswith("/") for document in documents)
