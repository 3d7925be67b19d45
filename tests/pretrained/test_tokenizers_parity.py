"""Ids and decoded text of published tokenisers, compared with transformers on 2,000 lines, nasty ones among them."""

import gzip
import json
import random
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import sentencepiece
import tokenizers
import tokenizers.models
import tokenizers.pre_tokenizers
import tokenizers.trainers

from cuts import assert_same_cuts
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
from seqloom.pretrained.language_codes import MBART, MBART50, NLLB
from seqloom.pretrained.renumbering import Roles
from seqloom.pretrained.tokenizers import ForeignText, read_tokenizers
from seqloom.text.normalise import collapse_spaces
from seqloom.text.published import Published
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


class Case(NamedTuple):
    """A family: its tokenizer in transformers, its sentencepiece file, and how that is trained."""

    model_type: str
    tokenizer: str
    file: str
    options: dict[str, Any]


PLAIN_SPM = {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1}
LLAMA_SPM = {"byte_fallback": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False}
CASES = {
    "nllb": Case("m2m_100", "NllbTokenizer", "sentencepiece.bpe.model", {"model_type": "bpe"}),
    "mbart": Case("mbart", "MBartTokenizer", "sentencepiece.bpe.model", {}),
    "mbart50": Case("mbart", "MBart50Tokenizer", "sentencepiece.bpe.model", {}),
    "xlm-r": Case("xlm-roberta", "XLMRobertaTokenizer", "sentencepiece.bpe.model", {}),
    "t5": Case("t5", "T5Tokenizer", "spiece.model", PLAIN_SPM),
    "pegasus": Case("pegasus", "PegasusTokenizer", "spiece.model", PLAIN_SPM),
    "llama": Case("llama", "LlamaTokenizer", "tokenizer.model", {"model_type": "bpe", **LLAMA_SPM}),
}


def special_tokens(theirs: Any) -> list[str]:
    return [theirs.convert_ids_to_tokens(id) for id in theirs.all_special_ids]


def text_of(folder: Path, theirs: Any, model_type: str, *, more: int = 3) -> ForeignText:
    """What the folder gives for weights with some more rows than there are tokens."""
    roles = Roles(pad=theirs.pad_token_id, begin=theirs.bos_token_id, end=theirs.eos_token_id, unknown=None)
    return read_tokenizers(folder, model_type=model_type, config={}, roles=roles, symbols=len(theirs) + more)


def compare(found: ForeignText, theirs: Any, lines: Sequence[str]) -> None:
    """Ids and texts of one vocabulary for both sides."""
    lines = without_typed(lines, special_tokens(theirs))
    assert len(lines) > 0.9 * (PLAIN_LINES + NASTY_LINES)
    expected = theirs(lines, add_special_tokens=False)["input_ids"]
    assert found.tokenizers.source == found.tokenizers.target
    assert same(found.tokenizers.source, expected, found.source.foreign, lines) == []
    shifted = [id + 1 for id in found.source.foreign]
    assert len(same(found.tokenizers.source, expected[:50], shifted, lines[:50])) == 50
    same_decoding(found.tokenizers.target, found, theirs.decode, lines)
    hidden = {found.source.ours[id] for id in theirs.all_special_ids} - {UNKNOWN}
    for typed in special_tokens(theirs)[:20]:
        assert hidden.isdisjoint(found.tokenizers.source.encode(f"a {typed} b"))


@pytest.mark.parametrize("name", CASES)
def test_ids_and_texts_of_tokenizer_json_are_those_of_transformers(
    name: str, tmp_path: Path, english: list[str], german: list[str]
) -> None:
    case, given, saved = CASES[name], tmp_path / "given", tmp_path / "saved"
    given.mkdir()
    trained_spm(given / case.file, [*english, *german], vocab_size=900, **case.options)
    (given / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": case.tokenizer}), encoding="utf-8")
    extra = {"extra_special_tokens": list(NLLB)} if name == "nllb" else {}
    getattr(transformers, case.tokenizer).from_pretrained(given, **extra).save_pretrained(saved)
    theirs = getattr(transformers, case.tokenizer).from_pretrained(saved)
    found = text_of(saved, theirs, case.model_type)
    compare(found, theirs, [*english[:PLAIN_LINES], *nasty_lines()])
    codes = {"nllb": NLLB, "mbart": MBART, "mbart50": MBART50}.get(name, ())
    assert {code: found.source.foreign[id] for code, id in found.languages.items()} == {
        code: theirs.convert_tokens_to_ids(code) for code in codes
    }
    # The sentencepiece model alone gives the same numbers. Only what transformers normalises in its own way differs:
    # ordinary text does not.
    plain = [*english[:PLAIN_LINES], *german[:PLAIN_LINES]]
    alone = text_of(given, theirs, case.model_type)
    assert isinstance(alone.tokenizers.source.published, Published)
    expected = theirs(plain, add_special_tokens=False)["input_ids"]
    differing = same(alone.tokenizers.source, expected, alone.source.foreign, plain)
    if case.options.get("model_type") == "bpe":
        assert differing == []
    processor = sentencepiece.SentencePieceProcessor(model_file=str(given / case.file))
    scores = {processor.id_to_piece(id): processor.get_score(id) for id in range(processor.get_piece_size())}
    cuts = [[theirs.convert_ids_to_tokens(ids) for ids in pair] for _, *pair in differing]
    assert_same_cuts([ours for ours, _ in cuts], [wanted for _, wanted in cuts], scores)
    if name != "nllb":
        assert alone.languages == found.languages
    assert [alone.source.foreign[id] for id in range(4)] == [found.source.foreign[id] for id in range(4)]


def test_m2m100_ids_and_languages_are_those_of_transformers(
    tmp_path: Path, english: list[str], german: list[str]
) -> None:
    pieces = trained_spm(tmp_path / "spm", [*english, *german], vocab_size=900, model_type="bpe")
    tokens = ["<s>", "<pad>", "</s>", "<unk>", *random.Random(2).sample(pieces[3:], 850)]
    (tmp_path / "vocab").write_text(json.dumps({token: id for id, token in enumerate(tokens)}), encoding="utf-8")
    saved = tmp_path / "saved"
    transformers.M2M100Tokenizer(str(tmp_path / "vocab"), str(tmp_path / "spm")).save_pretrained(saved)
    theirs = transformers.M2M100Tokenizer.from_pretrained(saved)
    found = text_of(saved, theirs, "m2m_100", more=108)
    compare(found, theirs, [*english[:PLAIN_LINES], *nasty_lines()])
    assert {code: found.source.foreign[id] for code, id in found.languages.items()} == theirs.lang_code_to_id


def byte_pairs(lines: Sequence[str], specials: Sequence[str]) -> tuple[dict[str, int], list[tuple[str, str]]]:
    """The vocabulary and merges of byte-level byte pairs."""
    fast = tokenizers.Tokenizer(tokenizers.models.BPE())
    fast.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=900, initial_alphabet=alphabet, special_tokens=list(specials), show_progress=False
    )
    fast.train_from_iterator(lines, trainer)
    model = json.loads(fast.to_str())["model"]
    return model["vocab"], [tuple(pair) for pair in model["merges"]]


@pytest.mark.parametrize(("name", "model_type"), [("GPT2Tokenizer", "gpt2"), ("Qwen2Tokenizer", "qwen2")])
def test_byte_level_ids_and_texts_are_those_of_transformers(
    name: str, model_type: str, tmp_path: Path, english: list[str], german: list[str]
) -> None:
    vocabulary, merges = byte_pairs([*english, *german], ["<|endoftext|>"])
    # Added tokens that are not special are found in text, here as there.
    theirs = getattr(transformers, name)(vocab=vocabulary, merges=merges)
    theirs.add_tokens(["<think>", "Mann läuft"])
    theirs.save_pretrained(tmp_path / "saved")
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "saved")
    lines = [*english[:PLAIN_LINES], *nasty_lines(), "a <think> b", "Ein Mann läuft."]
    found = text_of(tmp_path / "saved", theirs, model_type)
    compare(found, theirs, lines)
    # The oldest files do not name the type of their model, and write merges as lines.
    path = tmp_path / "saved" / "tokenizer.json"
    parts = json.loads(path.read_text(encoding="utf-8"))
    del parts["model"]["type"]
    parts["model"]["merges"] = [" ".join(pair) for pair in parts["model"]["merges"]]
    path.write_text(json.dumps(parts), encoding="utf-8")
    assert text_of(tmp_path / "saved", theirs, model_type).tokenizers == found.tokenizers
    # The older files.
    old = tmp_path / "old"
    old.mkdir()
    (old / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    written = "".join(f"{left} {right}\n" for left, right in merges)
    (old / "merges.txt").write_text(f"#version: 0.2\n{written}", encoding="utf-8")
    settings = {"unk_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    (old / "tokenizer_config.json").write_text(json.dumps(settings), encoding="utf-8")
    theirs = getattr(transformers, name)(vocab=vocabulary, merges=merges)
    compare(text_of(old, theirs, model_type), theirs, [*german[:PLAIN_LINES], *nasty_lines()])


@pytest.mark.parametrize("lowercase", [True, False])
def test_word_piece_ids_and_texts_are_those_of_transformers(
    lowercase: bool, tmp_path: Path, english: list[str], german: list[str]
) -> None:
    trained = tokenizers.BertWordPieceTokenizer(lowercase=lowercase)
    trained.train_from_iterator([*english, *german], vocab_size=900, show_progress=False)
    theirs = transformers.BertTokenizer(vocab=trained.get_vocab(), do_lower_case=lowercase)
    theirs.save_pretrained(tmp_path / "saved")
    lines = [*english[:PLAIN_LINES], *nasty_lines()]
    theirs.eos_token, theirs.bos_token = "[SEP]", "[CLS]"
    compare(text_of(tmp_path / "saved", theirs, "bert"), theirs, lines)
    old = tmp_path / "old"
    old.mkdir()
    trained.save_model(str(old))
    (old / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}), encoding="utf-8")
    compare(text_of(old, theirs, "bert"), theirs, lines)
