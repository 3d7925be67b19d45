"""Ids and decoded text of published tokenisers, compared with transformers on 2,000 lines, nasty ones among them."""

import gzip
import json
import random
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from nasty import (
    BIDI,
    COMMANDS,
    DATA,
    EMOJI,
    FORMATS,
    INVISIBLE,
    LINE_BREAKS,
    MARKUP,
    NONCHARACTERS,
    NUMBERS,
    PLAIN,
    RIGHT_TO_LEFT,
    SCRIPTS,
    SIGNS,
    SPACES,
)
from seqloom.core.symbols import UNKNOWN
from seqloom.pretrained.renumbering import Roles
from seqloom.pretrained.tokenizers import ForeignText, read_tokenizers
from seqloom.text.normalise import collapse_spaces
from seqloom.text.tokenizer import Tokenizer

pytestmark = pytest.mark.parity

transformers = pytest.importorskip("transformers")

PLAIN_LINES = NASTY_LINES = 1000


@pytest.fixture(scope="module")
def english(real_data: Path) -> list[str]:
    return _read(real_data / "multi30k" / "train.en.gz")


@pytest.fixture(scope="module")
def german(real_data: Path) -> list[str]:
    return _read(real_data / "multi30k" / "train.de.gz")


def _read(path: Path) -> list[str]:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in islice(file, 3000)]


def nasty_lines(count: int = NASTY_LINES) -> list[str]:
    """Fragments of all kinds in a row, the same ones in each run."""
    draw = random.Random(7)
    kinds = (
        *(SPACES, EMOJI, SIGNS, MARKUP, FORMATS, DATA, COMMANDS, SCRIPTS, RIGHT_TO_LEFT, NUMBERS, PLAIN, PLAIN),
        *(BIDI, INVISIBLE, LINE_BREAKS, NONCHARACTERS, ("\0", "\x1b[31m", "\x7f", "a\0b", "e" + "\u0301" * 20)),
        tuple(chr(draw.choice([draw.randrange(1, 0xD800), draw.randrange(0xE000, 0x110000)])) for _ in range(300)),
    )
    lines = ["".join(draw.choice(draw.choice(kinds)) for _ in range(draw.randrange(7))) for _ in range(count)]
    return [line.replace("\n", "") for line in lines]


def trained_spm(path: Path, lines: Sequence[str], **options: Any) -> list[str]:
    """Train a sentencepiece model; its pieces."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines), model_writer=file, minloglevel=2, num_threads=1, **options
        )
    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return processor.id_to_piece(list(range(processor.get_piece_size())))  # type: ignore[no-any-return]


def same(
    ours: Tokenizer, theirs: Sequence[Sequence[int]], foreign: Sequence[int], lines: Sequence[str]
) -> list[tuple[str, list[int], list[int]]]:
    """The lines whose ids differ, with both."""
    encoded = ours.encode_many(lines)
    pairs = [([foreign[id] for id in ids], list(expected)) for ids, expected in zip(encoded, theirs, strict=True)]
    return [(line, got, wanted) for line, (got, wanted) in zip(lines, pairs, strict=True) if got != wanted]


def without_typed(lines: Sequence[str], special: Sequence[str]) -> list[str]:
    """The lines in which no special token is written out: they are text here, and symbols in transformers."""
    return [line for line in lines if not any(token in line for token in special)]


def same_decoding(ours: Tokenizer, found: ForeignText, decode: Any, lines: Sequence[str]) -> None:
    """Decoding is theirs on one line; what is unknown is shown here."""
    for ids in ours.encode_many(lines):
        known = [id for id in ids if id != UNKNOWN]
        theirs = decode([found.target.foreign[id] for id in known], skip_special_tokens=True)
        assert ours.decode(known) == collapse_spaces(theirs)


@pytest.fixture(scope="module")
def marian(tmp_path_factory: pytest.TempPathFactory, english: list[str], german: list[str]) -> Path:
    folder = tmp_path_factory.mktemp("marian")
    pieces = trained_spm(folder / "source.spm", english, vocab_size=800)
    pieces += trained_spm(folder / "target.spm", german, vocab_size=900)
    # As in OPUS-MT: end first, pad last, some pieces of both models missing, and languages.
    draw = random.Random(1)
    kept = [piece for piece in dict.fromkeys(pieces) if piece not in ("<unk>", "<s>", "</s>") and draw.random() < 0.98]
    tokens = ["</s>", "<unk>", *kept, ">>deu<<", ">>fra<<", ">>cmn_Hans<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}), encoding="utf-8")
    tokenizer = transformers.MarianTokenizer(
        str(folder / "source.spm"), str(folder / "target.spm"), str(folder / "vocab.json")
    )
    saved = folder / "saved"
    tokenizer.save_pretrained(saved)
    return saved


def marian_text(folder: Path) -> tuple[ForeignText, int]:
    symbols = len(json.loads((folder / "vocab.json").read_text(encoding="utf-8")))
    roles = Roles(pad=symbols - 1, begin=None, end=0, unknown=None)
    return read_tokenizers(folder, model_type="marian", config={}, roles=roles, symbols=symbols), symbols


def test_marian_ids_and_texts_are_those_of_transformers(marian: Path, english: list[str], german: list[str]) -> None:
    theirs = transformers.MarianTokenizer.from_pretrained(marian)
    found, _ = marian_text(marian)
    assert found.source == found.target
    assert found.tokenizers.is_shared
    for ours, lines, text in (
        (found.tokenizers.source, english, "text"),
        (found.tokenizers.target, german, "text_target"),
    ):
        lines = without_typed([*lines[:PLAIN_LINES], *nasty_lines()], theirs.all_special_tokens)
        assert len(lines) > 1900
        expected = [ids[:-1] for ids in theirs(**{text: lines})["input_ids"]]
        assert same(ours, expected, found.source.foreign, lines) == []
        assert any(UNKNOWN in ids for ids in ours.encode_many(lines))
    same_decoding(found.tokenizers.target, found, theirs.decode, lines)
    assert {code: found.source.foreign[id] for code, id in found.languages.items()} == {
        code: theirs.convert_tokens_to_ids(f">>{code}<<") for code in ("deu", "fra", "cmn_Hans")
    }


def test_marian_without_the_vocabulary_file_differs(marian: Path, english: list[str], tmp_path: Path) -> None:
    """A negative control: numbers that are one off, and a vocabulary of another order."""
    theirs = transformers.MarianTokenizer.from_pretrained(marian)
    found, symbols = marian_text(marian)
    expected = [ids[:-1] for ids in theirs(english[:20])["input_ids"]]
    shifted = [(id + 1) % symbols for id in found.source.foreign]
    assert len(same(found.tokenizers.source, expected, shifted, english[:20])) == 20
    shutil.copytree(marian, tmp_path / "swapped")
    shutil.copy(marian / "target.spm", tmp_path / "swapped" / "source.spm")
    assert same(marian_text(tmp_path / "swapped")[0].tokenizers.source, expected, found.source.foreign, english[:20])
