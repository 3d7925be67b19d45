"""Tokenisers of published folders: what is stored, what stays text, and what is refused."""

import hashlib
import io
import itertools
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tokenizers
import tokenizers.decoders
import tokenizers.models
import tokenizers.pre_tokenizers
import tokenizers.trainers
from hypothesis import given, settings

import nasty
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.pretrained.renumbering import Renumbering, Roles
from seqloom.pretrained.tokenizers import ForeignText, read_tokenizers
from seqloom.text.glossary import ways_to_write
from seqloom.text.spelling import word_borders
from seqloom.text.tokenizer import TextConfig, Tokenizer, Tokenizers, unfamiliar_share
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.text.words import decoded_spans, piece_spans

TEXT = [
    *("a dog runs in the park", "the man reads a book", "two women eat apples", "a girl sings in the rain"),
    *("der Hund rennt im Park", "ein Mann liest das Buch", "zwei Frauen essen Äpfel", "das Mädchen singt laut"),
]


def spm(*, size: int = 50, **options: object) -> bytes:
    """A small sentencepiece model."""
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(TEXT), model_writer=content, vocab_size=size, minloglevel=2, num_threads=1, **options
    )
    return content.getvalue()


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("marian")
    model = spm(user_defined_symbols=[">>deu<<"])
    (folder / "source.spm").write_bytes(model)
    (folder / "target.spm").write_bytes(model)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = [piece for piece in processor.id_to_piece(list(range(50))) if piece not in ("<unk>", "<s>", "</s>")]
    tokens = ["</s>", "<unk>", *pieces, ">>fra<<", "<s>", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}), encoding="utf-8")
    return folder


SYMBOLS = 52


def read(folder: Path) -> ForeignText:
    roles = Roles(pad=SYMBOLS - 1, begin=None, end=0, unknown=None)
    return read_tokenizers(folder, model_type="marian", config={}, roles=roles, symbols=SYMBOLS)


def test_stored_tokeniser_gives_the_same_ids_in_every_process(marian: Path, tmp_path: Path) -> None:
    found = read(marian)
    assert found.tokenizers.source.vocabulary[:4] == RESERVED
    assert len(set(found.tokenizers.source.vocabulary)) == found.tokenizers.source.size == len(found.source.foreign)
    found.tokenizers.save(tmp_path / "text")
    loaded = Tokenizers.load(tmp_path / "text")
    assert loaded == found.tokenizers == pickle.loads(pickle.dumps(found.tokenizers))
    assert loaded.source.encode_many(TEXT) == [found.tokenizers.source.encode(line) for line in TEXT]
    assert [loaded.source.decode(ids) for ids in loaded.source.encode_many(TEXT)] == TEXT
    assert read(marian).tokenizers == found.tokenizers


def test_typed_symbols_stay_text(marian: Path) -> None:
    found = read(marian)
    tokenizer, symbols = found.tokenizers.source, set(found.languages.values())
    assert sorted(found.languages) == ["deu", "fra"]
    for typed in ("</s>", "<pad>", "<unk>", "<s>", ">>deu<<", ">>deu<< a dog", ">>fra<<"):
        ids = set(tokenizer.encode(typed))
        assert min(ids) > END
        assert not symbols & ids, typed


@given(nasty.line())
@settings(max_examples=60)
def test_spans_cover_a_text_in_order(line: str) -> None:
    tokenizer = _stored()
    ids, spans = tokenizer.encode(line), piece_spans(tokenizer, line)
    assert len(ids) == len(spans)
    assert all(0 <= begin <= end <= len(line) for begin, end in spans)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))
    decoded = decoded_spans(tokenizer, ids)
    assert len(decoded) == len(ids)
    assert "\n" not in tokenizer.decode(ids)


_kept: list[Tokenizer] = []


def _stored() -> Tokenizer:
    return _kept[0]


@pytest.fixture(autouse=True)
def _keep(marian: Path) -> None:
    if not _kept:
        _kept.append(read(marian).tokenizers.source)


def test_glossary_terms_can_be_written(marian: Path) -> None:
    tokenizer = read(marian).tokenizers.target
    ways = ways_to_write("Hund", tokenizer)
    assert ways
    assert all(tokenizer.decode(way) == "Hund" for way in ways)


def test_unknown_is_shown_and_pieces_missing_in_the_vocabulary_are_unknown(marian: Path) -> None:
    tokenizer = read(marian).tokenizers.source
    ids = tokenizer.encode("a ☃ dog")
    assert ids.count(UNKNOWN) == 1
    assert tokenizer.decode(ids) == "a ⁇ dog"


Change = Callable[[Path], object]


def _rewrite(change: Callable[[dict[str, object]], object]) -> Change:
    def apply(folder: Path) -> None:
        path = folder / "vocab.json"
        table = json.loads(path.read_text(encoding="utf-8"))
        change(table)
        path.write_text(json.dumps(table), encoding="utf-8")

    return apply


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_rewrite(lambda table: table.update({"x": 99})), "'x' is number 99, but the weights have 52 rows"),
        (_rewrite(lambda table: table.update({"x": 0})), "number 0 to two tokens, '</s>' and 'x'"),
        (_rewrite(lambda table: table.update({"x": -1})), "gives 'x' the number -1"),
        (_rewrite(lambda table: table.update({"x": "1"})), "gives 'x' the number 1"),
        (_rewrite(lambda table: table.pop("<unk>")), "has no <unk>"),
        (lambda folder: (folder / "vocab.json").write_text("[1]"), "holds a list, not a table"),
        (lambda folder: (folder / "vocab.json").write_text("[" * 9999), "is not JSON"),
        (lambda folder: (folder / "vocab.json").write_text("{}"), "has 0 tokens"),
        (lambda folder: (folder / "source.spm").write_bytes(b"\x00" * 50), "source.spm is not a sentencepiece model"),
        (lambda folder: (folder / "target.spm").unlink(), "target.spm cannot be read: No such file"),
    ],
)
def test_vocabulary_that_does_not_fit_is_refused(marian: Path, tmp_path: Path, change: Change, message: str) -> None:
    for file in marian.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    change(tmp_path)
    with pytest.raises(ModelError, match=re.escape(message)):
        read(tmp_path)


def test_a_symbol_with_two_roles_ends_texts() -> None:
    numbers = Renumbering.of(Roles(pad=2, begin=2, end=2, unknown=0), 6)
    assert numbers.foreign == (-1, -1, 2, 0, 1, 3, 4, 5)
    assert numbers.absent == (0, 1)


def byte_level_parts() -> dict[str, Any]:
    """A small byte-level tokenizer.json."""
    fast = tokenizers.Tokenizer(tokenizers.models.BPE())
    fast.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    fast.train_from_iterator(TEXT, trainer)
    found: dict[str, Any] = json.loads(fast.to_str())
    return found


def read_parts(folder: Path, parts: dict[str, Any]) -> ForeignText:
    (folder / "tokenizer.json").write_text(json.dumps(parts), encoding="utf-8")
    roles = Roles(pad=None, begin=None, end=0, unknown=None)
    return read_tokenizers(folder, model_type="gpt2", config={}, roles=roles, symbols=302)


def test_byte_level_pieces_are_written_as_ours(tmp_path: Path) -> None:
    found = read_parts(tmp_path, byte_level_parts())
    tokenizer = found.tokenizers.source
    assert found.target.absent == (0, 1, 3)
    assert tokenizer.pieces("a dog, der Hund")[0] == "a"
    assert "▁the" in tokenizer.vocabulary
    assert "".join(tokenizer.pieces(" der")) == "▁der"
    # Half a character is a piece, and no text of its own.
    assert tokenizer.pieces("☃") == ["<0xE2>", "<0x98>", "<0x83>"]
    line = "zwei  Äpfel ☃\tim Park <|end|>"
    ids = tokenizer.encode(line)
    assert min(ids) > UNKNOWN
    assert tokenizer.decode(ids) == "zwei Äpfel ☃ im Park <|end|>"
    assert unfamiliar_share(tokenizer, line) == 0
    ways = ways_to_write("Äpfel", tokenizer)
    assert {tokenizer.piece(way[0]).startswith("▁") for way in ways} == {True, False}
    borders = word_borders(tokenizer)
    place = borders.begin()
    for id in tokenizer.encode("der"):
        place = borders.after(place, id)
    assert borders.may_end(place, tokenizer.encode(" Hund")[0])
    assert not borders.may_end(place, tokenizer.encode("n")[0])


@pytest.mark.parametrize(
    ("part", "value", "message"),
    [
        ("normalizer", {"type": "Evil"}, "its normalizer is 'Evil'"),
        ("pre_tokenizer", {"type": "Sequence", "pretokenizers": [{"type": "X"}]}, "its pre_tokenizer is 'X'"),
        ("pre_tokenizer", {"type": "Split", "pattern": {"Regex": "(a+)+$"}}, r"unknown pattern, {'Regex': '(a+)+$'}"),
        ("normalizer", {"type": "Replace", "pattern": {"String": ""}, "content": "x"}, "unknown pattern"),
        ("normalizer", {"type": "Prepend", "prepend": "x" * 99}, "a prepend of 99 characters"),
        ("normalizer", {"type": "Precompiled", "precompiled_charsmap": "AAAA"}, "rules are damaged"),
        ("model", {"type": "WordLevel", "vocab": {"<|end|>": 0}}, "its model is 'WordLevel'"),
        ("model", {"type": "BPE", "vocab": {"<|end|>": 0}, "merges": []}, "it names 1 of their 302 rows"),
        ("model", {"type": "BPE", "vocab": {"<|end|>": 0}, "merges": [[1]]}, "among its merges"),
        ("model", {**byte_level_parts()["model"], "merges": [["a", "☃"]]}, "out of vocabulary"),
        ("model", {"type": "BPE", "vocab": [], "merges": []}, "has no table of tokens"),
        ("model", [], "its model is None"),
        ("added_tokens", [{"id": 0}], "an added token without its content"),
    ],
)
def test_parts_that_no_known_tokenizer_has_are_refused(tmp_path: Path, part: str, value: Any, message: str) -> None:
    with pytest.raises(ModelError, match=re.escape(message)):
        read_parts(tmp_path, {**byte_level_parts(), part: value})


def test_unknown_pattern_in_a_stored_tokeniser_is_refused(tmp_path: Path) -> None:
    read_parts(tmp_path, byte_level_parts()).tokenizers.source.save(tmp_path / "text")
    model, description = tmp_path / "text" / "published.model", tmp_path / "text" / "text.json"
    split = b'{"type":"Split","pattern":{"Regex":"(a+)+$"},"behavior":"Isolated","invert":false}'
    head, _, parts = model.read_bytes().partition(b"\n")
    table = json.loads(parts) | {"pre_tokenizer": json.loads(split)}
    model.write_bytes(head + b"\n" + json.dumps(table).encode())
    known = json.loads(description.read_text(encoding="utf-8"))
    known["sha256"] = hashlib.sha256(model.read_bytes()).hexdigest()
    description.write_text(json.dumps(known), encoding="utf-8")
    with pytest.raises(ModelError, match="unknown pattern"):
        Tokenizer.load(tmp_path / "text")


def test_kind_published_cannot_be_learned() -> None:
    config = TextConfig(kind="published", unicode_form="none")
    with pytest.raises(ConfigError, match=r"text\.kind=published is for imported models"):
        train_tokenizer(TEXT, config)
    with pytest.raises(ConfigError, match="kind published is for imported models"):
        TextConfig(kind="published")
