"""Argos packages (`.argosmodel`): a zip that Argos Translate and LibreTranslate install.

    metadata.json          languages and versions
    sentencepiece.model    splits the source; the target is joined as strings
    model/                 a CTranslate2 model whose vocabularies hold the pieces as they are written
    README.md

Argos passes a line to sentencepiece unchanged. So the sentencepiece model of a package also normalises as Seqloom does,
by a table of replacements, and puts ▁ before the first word.
"""

import io
import itertools
import json
import sys
import tempfile
import unicodedata
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import sentencepiece

from seqloom.core.errors import ModelError, UsageError
from seqloom.text.languages import find_language
from seqloom.text.marks import SPACE, mark_spaces
from seqloom.text.normalise import Normaliser, UnicodeForm
from seqloom.text.tokenizer import TextConfig

ARGOS_VERSION = "1.11"
"""The version of Argos that packages were tried with; it finds a sentence splitter by itself."""

_SPECIAL = ",.!?▁\u2585"
"""Characters that are separated from words, or have a special meaning inside pieces."""

_NORMALISER_SPEC = 3
"""The field of a sentencepiece model that says how text is normalised."""

_LENGTH_DELIMITED = 2
"""Protocol buffers: the wire type of strings and of messages inside messages."""


@dataclass(frozen=True)
class Package:
    """The metadata of a package."""

    from_code: str
    to_code: str
    version: str

    @property
    def name(self) -> str:
        """The folder of an installed package, and the name that its file should have."""
        return f"translate-{self.from_code}_{self.to_code}-{self.version.replace('.', '_')}"

    def metadata(self) -> str:
        """The content of `metadata.json`."""
        values = {
            "package_version": self.version,
            "argos_version": ARGOS_VERSION,
            "from_code": self.from_code,
            "from_name": find_language(self.from_code).name,
            "to_code": self.to_code,
            "to_name": find_language(self.to_code).name,
        }
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"


def require_sentencepiece(config: TextConfig) -> None:
    """Refuse a model whose source Argos could not split into pieces."""
    if config.kind != "unigram":
        raise ModelError(
            f"an Argos package needs a sentencepiece model, and this model was made with text.kind={config.kind}; "
            "train one with text.kind=unigram, or export this one with --to ctranslate2"
        )


def differences(config: TextConfig, *, from_code: str) -> list[str]:
    """How Argos treats the text differently from Seqloom, a sentence each; empty where it does not."""
    found = []
    if config.lowercase:
        found.append("text is lower-cased character by character, so a Greek sigma at the end of a word stays σ")
    if find_language(from_code).is_unspaced:
        found.append("a line that begins with a word of a script with spaces gets no ▁ before it")
    return found


def sentencepiece_for_argos(content: bytes, normaliser: Normaliser, *, from_code: str) -> bytes:
    """The unigram model with the normalisation of Seqloom added to it, and ▁ put before the first word.

    `content` is the stored form of a tokeniser of kind unigram, which expects text that is normalised and marked.
    """
    with tempfile.TemporaryDirectory() as folder:
        rules = Path(folder) / "rules.tsv"
        rules.write_text("".join(f"{_hex(old)}\t{_hex(new)}\n" for old, new in rules_of(normaliser).items()))
        compiled = sentencepiece.SentencePieceNormalizer(
            rule_tsv=str(rules),
            # Scripts without spaces have no ▁ at the start.
            add_dummy_prefix=not find_language(from_code).is_unspaced,
            escape_whitespaces=True,
            remove_extra_whitespaces=True,
        )
    spec = [field for number, field in _fields(compiled.serialized_model_proto()) if number == _NORMALISER_SPEC]
    rest = [field for number, field in _fields(content) if number != _NORMALISER_SPEC]
    return b"".join([*rest, *spec])


def write_package(file: Path, package: Package, *, contents: Mapping[str, bytes]) -> None:
    """Write a package; the same contents give the same bytes."""
    with zipfile.ZipFile(file, "x", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(f"{package.name}/{name}", date_time=(1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, contents[name])


def require_codes(from_code: str | None, to_code: str | None) -> tuple[str, str]:
    """Both languages, by the codes of the table."""
    if from_code is None or to_code is None:
        missing = "--from-code" if from_code is None else "--to-code"
        raise UsageError(f"an Argos package names its languages, and this model does not; give {missing}, such as de")
    return find_language(from_code).code, find_language(to_code).code


# --- the normalisation as a table ------------------------------------------------------------------------------------


@lru_cache(maxsize=4)  # a walk through all characters
def rules_of(normaliser: Normaliser) -> dict[str, str]:
    """What our normalisation does to each character and to each sequence that it composes, where it does anything."""
    rules: dict[str, str] = {}
    for code in itertools.chain(range(1, 0xD800), range(0xE000, sys.maxunicode + 1)):
        character = chr(code)
        if unicodedata.category(character) in {"Cn", "Co"} or _is_plain(character):
            continue
        for sequence in (character, *_spellings(character, normaliser.form)):
            normal = _normal(sequence, normaliser)
            if normal != sequence:
                rules[sequence] = normal
    return rules


def _is_plain(character: str) -> bool:
    """Whether no normalisation does anything to a character. Most are plain, which is quickly decided."""
    return (
        character.isprintable()
        and character.lower() == character
        and unicodedata.is_normalized("NFKD", character)
        and character not in _SPECIAL
    )


def _normal(text: str, normaliser: Normaliser) -> str:
    """The text in normal form between two signs that no mark composes with, so that spaces at its ends stay."""
    whole = mark_spaces(normaliser(f"|{text}|"), has_start=False)
    return whole[1:-1].replace(SPACE, " ")


def _spellings(character: str, form: UnicodeForm) -> Iterator[str]:
    """Other ways to spell a composed character: its marks apart, in any order, or some of them composed already."""
    parts = unicodedata.normalize("NFD", character)
    if form == "none" or len(parts) == 1 or unicodedata.normalize("NFC", parts) != character:
        return
    base, marks = parts[0], parts[1:]
    for order in itertools.permutations(marks):
        for composed in range(len(marks)):
            head = unicodedata.normalize("NFC", base + "".join(order[:composed]))
            spelling = head + "".join(order[composed:])
            if len(head) == 1 and unicodedata.normalize("NFC", spelling) == character:
                yield spelling


def _hex(text: str) -> str:
    return " ".join(f"{ord(character):X}" for character in text)


# --- protocol buffers, as far as they are needed here -----------------------------------------------------------------


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message whose fields are all strings or messages: number, and the bytes with their head."""
    stream = io.BytesIO(message)
    while stream.tell() < len(message):
        begin = stream.tell()
        key = _read_number(stream)
        if key & 7 != _LENGTH_DELIMITED:
            raise ModelError(f"a sentencepiece model has no field of wire type {key & 7}; is this one?")
        size = _read_number(stream)
        end = stream.seek(size, io.SEEK_CUR)
        yield key >> 3, message[begin:end]


def _read_number(stream: io.BytesIO) -> int:
    value = shift = 0
    while True:
        byte = stream.read(1)
        if not byte:
            raise ModelError("the sentencepiece model is cut short")
        value |= (byte[0] & 127) << shift
        shift += 7
        if byte[0] < 128:
            return value
