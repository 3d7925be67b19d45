"""Tokenisers: from a line of text to ids and back, stored in a folder. `seqloom.text.training` learns them."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from seqloom.core.arguments import as_text
from seqloom.core.config import Config
from seqloom.core.errors import ModelError
from seqloom.core.files import write_atomically
from seqloom.core.json_files import parse_json
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.text.kinds import BytePairs, Characters, FlatIds, Kind, Segmentation, Unigram, Words
from seqloom.text.marks import BYTE_PIECES
from seqloom.text.normalise import Normaliser, UnicodeForm, collapse_spaces
from seqloom.text.vocabulary import Vocabulary

FORMAT = 1
"""The number of the stored form; a newer one is refused, not guessed at."""

DESCRIPTION = "text.json"
"""Settings, size and hash of a stored tokeniser. `tokenizer.json` would be taken for a file of another library."""


class TextConfig(Config):
    """How text is normalised and cut into pieces."""

    kind: Literal["word", "char", "bpe", "unigram"] = "bpe"
    """What pieces are: whole words, single characters, byte-pair subwords, or subwords of the unigram model."""
    size: int = Field(default=8000, gt=len(RESERVED), le=10_000_000)
    """The most pieces there may be, the four reserved ones included. A small text gives fewer."""
    shared: bool = True
    """Whether source and target have one vocabulary, learned from both, or one each."""
    byte_fallback: bool = False
    """Whether unknown characters are spelled in bytes (256 more pieces), so that any text comes back whole."""
    minimum_count: int = Field(default=1, ge=1)
    """How often a word, a character (kinds without words) or a pair (bpe, at least 2) must be seen to get a piece."""
    segmentation: Segmentation = "words"
    """How the kind word finds words. `words` parts them from punctuation, which then carries a sign where it touches
    its neighbour. `spaces` takes what stands between spaces: for text that is segmented already, such as Chinese."""
    unknown_word: str | None = None
    """The word that stands for unknown ones in text that was prepared so, such as `<unk>` in WikiText: it is read as
    the unknown symbol, and never written unless asked for. For kind word with segmentation spaces."""
    unicode_form: UnicodeForm = "nfc"
    """The Unicode normal form; nfkc also folds full-width letters, ligatures and the like."""
    lowercase: bool = False
    """Whether capital letters become small ones, in training and in use."""
    space_before_punctuation: bool = False
    """Whether `,`, `.`, `!` and `?` are set apart from the word before them, as in the d2l book."""

    @model_validator(mode="after")
    def _check(self) -> "TextConfig":
        if self.byte_fallback and self.kind == "word":
            raise ValueError("byte_fallback is for kind char, bpe or unigram; words are not spelled")
        if self.byte_fallback and self.size <= len(RESERVED) + len(BYTE_PIECES) + 1:
            raise ValueError(
                f"size {self.size} has no room for characters beside {len(RESERVED)} reserved and {len(BYTE_PIECES)} "
                "byte pieces; make it 400 or more, or set byte_fallback: false"
            )
        if self.unknown_word is not None:
            if self.kind != "word" or self.segmentation != "spaces":
                raise ValueError(
                    f"unknown_word {self.unknown_word!r} needs kind word and segmentation spaces, "
                    f"and here are {self.kind} and {self.segmentation}; otherwise it would be cut as any other text"
                )
            if self.unknown_word.split() != [self.unknown_word]:
                raise ValueError(f"unknown_word {self.unknown_word!r} is no word: it is empty or holds a space")
        return self

    @property
    def normaliser(self) -> Normaliser:
        """The rule that lines pass before they are cut."""
        return Normaliser(self.unicode_form, self.lowercase, self.space_before_punctuation)


@dataclass(frozen=True)
class RoundTrip:
    """What is left of lines that are encoded and decoded again."""

    count: int
    """Lines looked at."""
    normalised: int
    """Lines that the normalisation rule alone changes."""
    changed: int
    """Lines that come back other than in their normal form."""
    examples: tuple[tuple[str, str], ...]
    """The first of these: the normal form, and what came back."""
    tokens: int
    """Tokens of all lines."""
    unknown: int
    """How many of them are `<unk>`."""

    @property
    def unknown_rate(self) -> float:
        """The share of unknown tokens."""
        return self.unknown / self.tokens if self.tokens else 0.0


class Tokenizer:
    """Text to ids and back. It never changes, and what a text says is never taken for a reserved symbol."""

    def __init__(self, config: TextConfig, kind: Kind) -> None:
        self.config = config
        self.normaliser = config.normaliser
        self._kind = kind
        self._files = {DESCRIPTION: _describe(config, kind), _file_of(config): kind.to_bytes()}
        digest = hashlib.sha256()
        for name, content in sorted(self._files.items()):
            digest.update(f"{name}\0{len(content)}\0".encode() + content)
        self.fingerprint = digest.hexdigest()
        """The SHA-256 of what `save` writes: equal ones give equal ids."""

    def __repr__(self) -> str:
        return f"Tokenizer({self.kind}, {self.size} pieces, {self.fingerprint[:12]})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tokenizer) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    @property
    def kind(self) -> str:
        """`word`, `char`, `bpe` or `unigram`."""
        return self.config.kind

    @property
    def size(self) -> int:
        """The number of ids, the reserved ones included."""
        return len(self._kind.pieces)

    @property
    def vocabulary(self) -> tuple[str, ...]:
        """The piece of each id, the reserved ones first."""
        return self._kind.pieces

    def encode(self, line: str) -> list[int]:
        """The ids of a line, without BEGIN and END."""
        ids: list[int] = self._kind.segment([self.normaliser(as_text(line, "line"))]).ids.tolist()
        return ids

    def encode_many(self, lines: Sequence[str]) -> list[list[int]]:
        """The ids of each line; the same as `encode` for each, in a fraction of the time."""
        return self.encode_flat(lines).rows()

    def encode_flat(self, lines: Sequence[str]) -> FlatIds:
        """The same ids in two arrays, for whole corpora."""
        return self._kind.segment([self.normaliser(line) for line in lines])

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, always one line. Reserved ids are left out, except `<unk>`, which is shown as ⁇."""
        self._require_known(ids)
        # A model may put pieces together that no text gives: spaces in a row, bytes that spell a line end.
        return collapse_spaces(self._kind.join(ids))

    def pieces(self, line: str) -> list[str]:
        """The pieces into which a line is cut, as they are written in the vocabulary."""
        return [self._kind.pieces[number] for number in self.encode(line)]

    def piece(self, number: int) -> str:
        """The piece of an id."""
        self._require_known([number])
        return self._kind.pieces[number]

    def _require_known(self, ids: Sequence[int]) -> None:
        if ids and not (min(ids) >= 0 and max(ids) < self.size):
            wrong = next(number for number in ids if not 0 <= number < self.size)
            raise ModelError(
                f"id {wrong} is outside this {self.kind} tokeniser, whose ids are 0 to {self.size - 1}; "
                "does the tokeniser belong to the model?"
            )

    def round_trip_report(self, lines: Iterable[str], *, shown: int = 5) -> RoundTrip:
        """Encode and decode lines and count what does not come back."""
        given = list(lines)
        normal = [self.normaliser(line) for line in given]
        encoded = self._kind.segment(normal).rows()
        back = [self.decode(ids) for ids in encoded]
        changed = [(before, after) for before, after in zip(normal, back, strict=True) if before != after]
        return RoundTrip(
            count=len(given),
            normalised=sum(line != text for line, text in zip(given, normal, strict=True)),
            changed=len(changed),
            examples=tuple(changed[:shown]),
            tokens=sum(map(len, encoded)),
            unknown=sum(ids.count(UNKNOWN) for ids in encoded),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        """How another process gets it: as it is stored."""
        return _made_of, (self.config, self._kind.to_bytes())

    def save(self, folder: Path) -> None:
        """Write the tokeniser into a folder; the same tokeniser gives the same bytes."""
        folder.mkdir(parents=True, exist_ok=True)
        # The description names the hash of the other file, so it is written last.
        for name in sorted(self._files, key=lambda name: name == DESCRIPTION):
            write_atomically(folder / name, self._files[name])

    @staticmethod
    def load(folder: Path) -> "Tokenizer":
        """Read a tokeniser that `save` wrote; a missing or damaged file is a ModelError that names it."""
        description = _read_description(folder / DESCRIPTION)
        config: TextConfig = description["text"]
        path = folder / _file_of(config)
        content = _read_bytes(path)
        found = hashlib.sha256(content).hexdigest()
        if found != description["sha256"]:
            raise ModelError(f"{path} is damaged: its SHA-256 is {found[:12]}…, not {description['sha256'][:12]}…")
        try:
            kind = _kind_from(config, content)
        except Exception as error:  # the libraries raise bare exceptions of many kinds
            raise ModelError(f"{path} cannot be read as a {config.kind} tokeniser: {error}") from error
        if kind.pieces[: len(RESERVED)] != RESERVED or len(kind.pieces) != description["size"]:
            begin = kind.pieces[: len(RESERVED)]
            raise ModelError(
                f"{path} does not fit {DESCRIPTION}: {len(kind.pieces)} pieces that begin with {begin}, "
                f"but {description['size']} that begin with {RESERVED} are described"
            )
        return Tokenizer(config, kind)


@dataclass(frozen=True)
class Tokenizers:
    """The tokenisers of both sides of a translation."""

    source: Tokenizer
    target: Tokenizer

    @property
    def is_shared(self) -> bool:
        """Whether an id means the same on both sides, so that embeddings may be shared."""
        return self.source == self.target

    def save(self, folder: Path) -> None:
        """Write into `shared/`, or into `source/` and `target/`."""
        if self.is_shared:
            self.source.save(folder / "shared")
        else:
            self.source.save(folder / "source")
            self.target.save(folder / "target")

    @staticmethod
    def load(folder: Path) -> "Tokenizers":
        """Read what `save` wrote."""
        if (folder / "shared").is_dir():
            tokenizer = Tokenizer.load(folder / "shared")
            return Tokenizers(tokenizer, tokenizer)
        if not (folder / "source").is_dir():
            raise ModelError(f"{folder} has no tokeniser: neither shared/ nor source/ and target/ are there")
        return Tokenizers(Tokenizer.load(folder / "source"), Tokenizer.load(folder / "target"))


def _made_of(config: TextConfig, content: bytes) -> Tokenizer:
    return Tokenizer(config, _kind_from(config, content))


def _file_of(config: TextConfig) -> str:
    return {"bpe": "bpe.json", "unigram": "unigram.model"}.get(config.kind, "vocabulary.txt")


def _kind_from(config: TextConfig, content: bytes) -> Kind:
    if config.kind == "bpe":
        return BytePairs(content)
    if config.kind == "unigram":
        return Unigram(content)
    vocabulary = Vocabulary.from_text(content.decode("utf-8"))
    if config.kind == "char":
        return Characters(vocabulary)
    return Words(vocabulary, segmentation=config.segmentation)


def _describe(config: TextConfig, kind: Kind) -> bytes:
    settings = config.model_dump(mode="json")
    if config.unknown_word is None:
        del settings["unknown_word"]  # it came later: without it a tokeniser keeps the fingerprint that it had before
    description = {
        "format": FORMAT,
        "size": len(kind.pieces),
        "sha256": hashlib.sha256(kind.to_bytes()).hexdigest(),
        "text": settings,
    }
    return (json.dumps(description, indent=2, ensure_ascii=False) + "\n").encode("utf-8")


def _read_description(path: Path) -> dict[str, Any]:
    content = _read_bytes(path)
    try:
        found = parse_json(content)
        if found["format"] > FORMAT:
            raise ModelError(
                f"{path} has format {found['format']}, and this version reads up to {FORMAT}; install a newer one"
            )
        return {
            "text": TextConfig.model_validate(found["text"]),
            "size": int(found["size"]),
            "sha256": str(found["sha256"]),
        }
    except (ValueError, KeyError, TypeError, OverflowError, ValidationError) as error:
        reason = " ".join(str(error).split())[:200]
        raise ModelError(f"{path} is damaged or not a tokeniser of this program: {reason}") from error


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; is the model complete?") from error
