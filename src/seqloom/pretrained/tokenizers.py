"""Tokenisers of published folders: which files they have, and what each foreign id is.

source.spm, target.spm, vocab.json        Marian
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import sentencepiece

from seqloom.core.errors import ModelError
from seqloom.core.files import parse_json
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.pretrained.renumbering import NONE, Renumbering, Roles
from seqloom.text.published import MAX_TOKENS, Library, PieceSpelling, Published, wire_fields
from seqloom.text.tokenizer import PublishedPieces, TextConfig, Tokenizer, Tokenizers

MAX_FILE_BYTES = 200_000_000
"""Bytes of the largest file of a tokeniser that is read."""


@dataclass(frozen=True)
class ForeignText:
    """The tokenisers of a folder as ours, and the foreign id of each of our ids."""

    tokenizers: Tokenizers
    source: Renumbering
    target: Renumbering
    languages: Mapping[str, int]
    """Our id of the symbol of each language, by the code that the folder uses."""


@dataclass(frozen=True)
class ForeignTokenizer:
    """A tokeniser as a folder has it, with foreign ids."""

    model: bytes
    """What the library that cuts texts is loaded from."""
    library: Library
    spelling: PieceSpelling
    ids: Sequence[int]
    """The foreign id of each piece of that model, `NONE` where the vocabulary lacks it."""
    tokens: Mapping[int, str]
    """How each foreign id is written."""
    special: frozenset[int]
    """Foreign ids that are not text."""
    unknown: int | None
    languages: Mapping[str, int]
    """The foreign id of each language."""
    finds_unknown: bool = False
    """Whether pieces that the model does not know are looked up in the vocabulary as they are written."""

    def numbered(self, roles: Roles, symbols: int) -> tuple[Tokenizer, Renumbering]:
        """The tokeniser with our ids, for weights with so many rows."""
        if self.tokens and max(self.tokens) >= symbols:
            worst = max(self.tokens)
            raise ModelError(
                f"the vocabulary does not fit the weights: {self.tokens[worst]!r} is number {worst:,}, but the weights "
                f"have {symbols:,} rows"
            )
        if roles.unknown is None:
            roles = replace(roles, unknown=self.unknown)
        numbers = Renumbering.of(roles, symbols)
        ours = numbers.ours.tolist()
        tokens = [None if number == NONE else self.tokens.get(number) for number in numbers.foreign]
        content = Published.stored(
            self.model,
            library=self.library,
            spelling=self.spelling,
            ids=[UNKNOWN if number == NONE else ours[number] for number in self.ids],
            tokens=tokens,
            hidden=[ours[number] for number in {*self.special, *self.languages.values()}],
            finds_unknown=self.finds_unknown,
        )
        config = TextConfig(kind="published", size=len(tokens), unicode_form="none", shared=False)
        return Tokenizer(config, PublishedPieces(content)), numbers


def read_tokenizers(
    folder: Path,
    *,
    model_type: str,
    config: Mapping[str, Any],  # noqa: ARG001
    roles: Roles,
    symbols: int,
    source_symbols: int | None = None,
) -> ForeignText:
    """The tokenisers of a folder, for weights with so many rows. What cannot be read is a ModelError.

    `roles` are those of the model; the symbol for what is unknown is taken from the tokeniser if they name none.
    """
    if not (folder / "source.spm").is_file():
        raise ModelError(f"{folder} has no tokenizer that is known for {model_type}: source.spm is missing")
    source, target = _read_marian(folder)
    target_tokenizer, target_numbers = target.numbered(roles, symbols)
    if source_symbols is None:
        source_tokenizer, source_numbers = source.numbered(roles, symbols)
    else:
        source_tokenizer, source_numbers = source.numbered(_roles_by_name(source, folder), source_symbols)
    ours = source_numbers.ours
    return ForeignText(
        Tokenizers(source_tokenizer, target_tokenizer),
        source_numbers,
        target_numbers,
        {code: int(ours[number]) for code, number in sorted(source.languages.items())},
    )


# --- source.spm, target.spm, vocab.json ------------------------------------------------------------------------------


def _read_marian(folder: Path) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """Pieces are looked up in vocab.json as they are written; the numbers inside the two models mean nothing."""
    settings = _settings(folder)
    source = _vocabulary(folder / "vocab.json")
    path = folder / "target_vocab.json"
    target = _vocabulary(path) if settings.get("separate_vocabs") is True and path.is_file() else source
    names = _special_names(folder, settings)
    return tuple(
        _looked_up(_content(folder / name), vocabulary, names | {"<pad>", "</s>", "<unk>"}, where=folder / name)
        for name, vocabulary in (("source.spm", source), ("target.spm", target))
    )  # type: ignore[return-value]


def _looked_up(
    model: bytes, vocabulary: Mapping[str, int], special: Collection[str], *, where: Path
) -> ForeignTokenizer:
    """A sentencepiece model with a vocabulary beside it."""
    model = _with_control(model, {*special, *(token for token in vocabulary if _marian_language(token))}, where)
    pieces = _spm_pieces(model, where)
    unknown = vocabulary.get("<unk>")
    if unknown is None:
        raise ModelError(f"{where.parent} has a vocabulary without <unk>, so it cannot be used")
    return ForeignTokenizer(
        model,
        library="sentencepiece",
        spelling="marked",
        ids=[vocabulary.get(piece, NONE) for piece in pieces],
        tokens={number: token for token, number in vocabulary.items()},
        special=frozenset(vocabulary[name] for name in special if name in vocabulary),
        unknown=unknown,
        languages={code: number for token, number in vocabulary.items() if (code := _marian_language(token))},
        finds_unknown=True,
    )


def _marian_language(token: str) -> str | None:
    """The code in `>>deu<<`."""
    return token[2:-2] if len(token) > 4 and token.startswith(">>") and token.endswith("<<") else None


def _roles_by_name(tokenizer: ForeignTokenizer, folder: Path) -> Roles:
    """The roles of a vocabulary of its own, by the names that its symbols have in every folder."""
    numbers = {token: number for number, token in tokenizer.tokens.items()}
    end = numbers.get("</s>")
    if end is None:
        raise ModelError(f"{folder}/vocab.json has no </s>, at which texts end")
    return Roles(numbers.get("<pad>"), None, end, tokenizer.unknown)


# --- files -----------------------------------------------------------------------------------------------------------


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; is the download complete?") from error
    if len(content) > MAX_FILE_BYTES:
        raise ModelError(f"{path} has more than {MAX_FILE_BYTES:,} bytes, which no known tokenizer has")
    return content


def _table(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(_content(path))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {' '.join(str(error).split())[:120]}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}, not a table")
    return found


def _vocabulary(path: Path) -> dict[str, int]:
    """The number of each token."""
    found = _table(path)
    if not found or len(found) > MAX_TOKENS:
        raise ModelError(f"{path} has {len(found):,} tokens; 1 to {MAX_TOKENS:,} are read")
    seen: dict[int, str] = {}
    for token, number in found.items():
        if type(number) is not int or not 0 <= number < MAX_TOKENS:
            raise ModelError(f"{path} gives {token!r} the number {str(number)[:40]}, which is not one of a row")
        if number in seen:
            raise ModelError(f"{path} gives number {number:,} to two tokens, {seen[number]!r} and {token!r}")
        seen[number] = token
    return found


def _settings(folder: Path) -> dict[str, Any]:
    """tokenizer_config.json, which not every folder has."""
    path = folder / "tokenizer_config.json"
    return _table(path) if path.is_file() else {}


_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED = ("additional_special_tokens", "extra_special_tokens")


def _special_names(folder: Path, settings: Mapping[str, Any]) -> frozenset[str]:
    """The tokens that are not text, by the files beside the vocabulary."""
    path = folder / "special_tokens_map.json"
    names: set[str] = set()
    for found in (settings, _table(path) if path.is_file() else {}):
        names.update(name for key in _NAMED if (name := _name(found.get(key))) is not None)
        for key in _LISTED:
            listed = found.get(key)
            values = listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else ()
            names.update(name for value in values if (name := _name(value)) is not None)
    return frozenset(names)


def _name(value: Any) -> str | None:
    """A token that is written as a text, or as a table with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


def _spm_pieces(model: bytes, path: Path) -> list[str]:
    """The pieces of a sentencepiece model in the order of its numbers."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
    except Exception as error:  # the library raises bare exceptions of many kinds
        raise ModelError(f"{path} is not a sentencepiece model: {' '.join(str(error).split())[:120]}") from error
    size = processor.get_piece_size()
    if not len(RESERVED) <= size <= MAX_TOKENS:
        raise ModelError(f"{path} has {size:,} pieces; {len(RESERVED)} to {MAX_TOKENS:,} are read")
    return processor.id_to_piece(list(range(size)))


_PIECES, _PIECE, _TYPE, _USER_DEFINED, _CONTROL = 1, 1, 3, 4, 3
"""Fields and values of a sentencepiece model."""


def _with_control(model: bytes, names: Collection[str], path: Path) -> bytes:
    """A sentencepiece model that does not find these pieces in a text, where it was made to find them."""
    changed = bytearray(model)
    try:
        for field, piece, at in wire_fields(model):
            if field != _PIECES or not isinstance(piece, bytes):
                continue
            values = {field: (value, place) for field, value, place in wire_fields(piece)}
            kind, place = values.get(_TYPE, (0, 0))
            if kind == _USER_DEFINED and bytes(values[_PIECE][0]).decode("utf-8", "replace") in names:
                changed[at + place] = _CONTROL
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not a sentencepiece model: {error}") from error
    return bytes(changed)
