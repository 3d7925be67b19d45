"""Tokenisers of published folders: what is stored, what stays text, and what is refused."""

import io
import itertools
import json
import pickle
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
from hypothesis import given, settings

import nasty
from seqloom.core.errors import ModelError
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.pretrained.renumbering import Renumbering, Roles
from seqloom.pretrained.tokenizers import ForeignText, read_tokenizers
from seqloom.text.glossary import ways_to_write
from seqloom.text.tokenizer import Tokenizer, Tokenizers
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
