"""Tokenisers of published folders: which files they have, and what each foreign id is.

    source.spm, target.spm, vocab.json     Marian
    tokenizer.json                         most others; it has the numbers of all tokens in it
    one spm and vocab.json                 M2M100: languages follow the numbers of vocab.json
    vocab.json, merges.txt                 GPT-2, Qwen
    vocab.txt                              BERT
    one spm                                NLLB, mBART, XLM-R, T5, Pegasus, Llama: each has its own order of numbers

The first of these that a folder has is read: each needs less interpretation than those below it. Marian comes first,
because a tokenizer.json beside its files was converted from one of them alone.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import sentencepiece
from tokenizers import Tokenizer as FastTokenizer

from seqloom.core.errors import ModelError
from seqloom.core.files import parse_json
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.pretrained.language_codes import M2M100, MBART, MBART50, NLLB, WMT21
from seqloom.pretrained.renumbering import NONE, Renumbering, Roles
from seqloom.text.published import (
    MAX_TOKENS,
    QWEN2_PATTERN,
    Library,
    PieceSpelling,
    Published,
    library_errors,
    require_known_parts,
    require_sound_rules,
    wire_fields,
)
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
        if 2 * len(self.tokens) < symbols:
            raise ModelError(
                f"the vocabulary does not fit the weights: it names {len(self.tokens):,} of their {symbols:,} rows; is "
                "this the tokenizer of another model?"
            )
        if roles.unknown is None:
            roles = replace(roles, unknown=self.unknown)
        numbers = Renumbering.of(roles, symbols)
        ours = numbers.ours.tolist()
        tokens = [None if number == NONE else self.tokens.get(number) for number in numbers.foreign]
        stored = Published.stored(
            self.model,
            library=self.library,
            spelling=self.spelling,
            ids=[UNKNOWN if number == NONE else ours[number] for number in self.ids],
            tokens=tokens,
            hidden=[ours[number] for number in {*self.special, *self.languages.values()}],
            finds_unknown=self.finds_unknown,
        )
        config = TextConfig(kind="published", size=len(tokens), unicode_form="none", shared=False)
        with library_errors("the tokenizer cannot be used"):
            return Tokenizer(config, PublishedPieces(stored)), numbers


def read_tokenizers(
    folder: Path,
    *,
    model_type: str,
    config: Mapping[str, Any],  # noqa: ARG001 - what it says of symbols is in the roles
    roles: Roles,
    symbols: int,
    source_symbols: int | None = None,
) -> ForeignText:
    """The tokenisers of a folder, for weights with so many rows. What cannot be read is a ModelError.

    `roles` are those of the model; the symbol for what is unknown is taken from the tokeniser if they name none.
    """
    source, target = _read(folder, model_type, symbols)
    target_tokenizer, target_numbers = target.numbered(roles, symbols)
    if source_symbols is not None:
        source_tokenizer, source_numbers = source.numbered(_roles_by_name(source, folder), source_symbols)
    elif source is target:
        source_tokenizer, source_numbers = target_tokenizer, target_numbers
    else:
        source_tokenizer, source_numbers = source.numbered(roles, symbols)
    ours = source_numbers.ours
    return ForeignText(
        Tokenizers(source_tokenizer, target_tokenizer),
        source_numbers,
        target_numbers,
        {code: int(ours[number]) for code, number in sorted(source.languages.items())},
    )


def _read(folder: Path, model_type: str, symbols: int) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """The tokenisers of both sides; one and the same unless there are two models."""
    files = _Files(folder, model_type)
    if (folder / "source.spm").is_file():
        return _read_marian(files)
    spm = next((folder / name for name in _SPM_NAMES if (folder / name).is_file()), None)
    if (folder / "tokenizer.json").is_file():
        found = _read_tokenizer_json(files)
    elif spm is not None and (folder / "vocab.json").is_file():
        found = _read_m2m100(files, spm)
    elif (folder / "vocab.json").is_file() and (folder / "merges.txt").is_file():
        found = _read_byte_pairs(files)
    elif (folder / "vocab.txt").is_file():
        found = _read_word_pieces(files)
    elif spm is not None:
        found = _read_spm(files, spm, symbols)
    else:
        raise ModelError(
            f"{folder} has no tokenizer: none of source.spm, tokenizer.json, vocab.json with merges.txt, vocab.txt, "
            f"{', '.join(_SPM_NAMES)} is there; download the missing files"
        )
    return found, found


_SPM_NAMES = ("sentencepiece.bpe.model", "spiece.model", "tokenizer.model")


@dataclass(frozen=True)
class _Files:
    """The small files beside a vocabulary, which not every folder has."""

    folder: Path
    model_type: str

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """What tokenizer_config.json says."""
        return self._optional("tokenizer_config.json")

    def flag(self, name: str, default: bool | None) -> bool | None:
        """A yes or no of tokenizer_config.json."""
        value = self.settings.get(name, default)
        if value is not None and not isinstance(value, bool):
            raise ModelError(f"{self.folder}/tokenizer_config.json has {name}={str(value)[:40]!r}, not true or false")
        return value

    @cached_property
    def special(self) -> tuple[str, ...]:
        """The tokens that are not text, each once."""
        names: dict[str, None] = {}
        for found in (self.settings, self._optional("special_tokens_map.json")):
            names.update(dict.fromkeys(name for key in _NAMED if (name := _name(found.get(key))) is not None))
            for key in _LISTED:
                listed = found.get(key)
                values = listed.values() if isinstance(listed, dict) else listed if isinstance(listed, list) else ()
                names.update(dict.fromkeys(name for value in values if (name := _name(value)) is not None))
        return tuple(names)

    @cached_property
    def added(self) -> Mapping[int, tuple[str, bool]]:
        """Tokens that were added to the vocabulary by their numbers, and whether each is special."""
        found = {}
        for token, number in self._optional("added_tokens.json").items():
            found[_row(number, token, self.folder / "added_tokens.json")] = (token, False)
        listed = self.settings.get("added_tokens_decoder")
        for number, entry in (listed if isinstance(listed, dict) else {}).items():
            name = _name(entry)
            if name is not None and isinstance(number, str) and number.isdecimal() and len(number) < 9:
                found[int(number)] = (name, isinstance(entry, dict) and entry.get("special") is True)
        return found

    def with_added(self, tokens: Mapping[int, str]) -> dict[int, str]:
        """Tokens of a vocabulary and those that were added; none gets a second number."""
        known = set(tokens.values())
        added = {number: token for number, (token, _) in self.added.items() if token not in known}
        return {**added, **tokens}

    def special_numbers(self, tokens: Mapping[int, str]) -> frozenset[int]:
        """The numbers of the tokens that are not text."""
        names = {*self.special, *(token for token, is_special in self.added.values() if is_special)}
        return frozenset(number for number, token in tokens.items() if token in names)

    def _optional(self, name: str) -> dict[str, Any]:
        path = self.folder / name
        return _table(path) if path.is_file() else {}


_NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
_LISTED = ("additional_special_tokens", "extra_special_tokens")


def _name(value: Any) -> str | None:
    """A token that is written as a text, or as a table with its content."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and value else None


# --- languages -------------------------------------------------------------------------------------------------------

_LANGUAGE_TOKENS = {
    "marian": re.compile(r">>([^<>\s]+)<<"),
    "m2m_100": re.compile(r"__([a-z]{2,4})__|([a-z]{3}_[A-Z][a-z]{3})"),
    "mbart": re.compile(r"([a-z]{2}_[A-Z]{2})"),
    "t5": re.compile(r"<2([A-Za-z0-9_-]+)>"),
    "mt5": re.compile(r"<2([A-Za-z0-9_-]+)>"),
}
"""How the symbols of languages are written: `>>deu<<`, `__de__` or `deu_Latn`, `de_DE`, `<2de>`."""

_MIN_LANGUAGES = 2


def _languages(model_type: str, tokens: Mapping[int, str], special: Collection[int] | None = None) -> dict[str, int]:
    """The numbers of languages by their codes, among the special tokens if these are given."""
    pattern = _LANGUAGE_TOKENS.get(model_type)
    if pattern is None:
        return {}
    found = {}
    for number, token in tokens.items():
        match = pattern.fullmatch(token)
        if match is not None and (special is None or number in special or token in MBART50):
            found[next(group for group in match.groups() if group is not None)] = number
    return found


# --- source.spm, target.spm, vocab.json ------------------------------------------------------------------------------


def _read_marian(files: _Files) -> tuple[ForeignTokenizer, ForeignTokenizer]:
    """Pieces are looked up in vocab.json as they are written; the numbers inside the two models mean nothing."""
    folder, path = files.folder, files.folder / "target_vocab.json"
    source = _vocabulary(folder / "vocab.json")
    target = _vocabulary(path) if files.flag("separate_vocabs", False) and path.is_file() else source
    return (
        _looked_up(files, folder / "source.spm", {number: token for token, number in source.items()}),
        _looked_up(files, folder / "target.spm", {number: token for token, number in target.items()}),
    )


def _looked_up(files: _Files, path: Path, tokens: Mapping[int, str]) -> ForeignTokenizer:
    """A sentencepiece model with a vocabulary beside it."""
    numbers = {token: number for number, token in tokens.items()}
    if "<unk>" not in numbers:
        raise ModelError(f"{files.folder}/vocab.json has no <unk>, which pieces without a number need")
    special = files.special_numbers(tokens) | {numbers[name] for name in _RESERVED_NAMES if name in numbers}
    languages = _languages(files.model_type, tokens, None if files.model_type == "marian" else special)
    hidden = special | {*languages.values()}
    model = _without_typed(_content(path), {tokens[number] for number in hidden}, path)
    return ForeignTokenizer(
        model,
        library="sentencepiece",
        spelling="marked",
        ids=[numbers.get(piece, NONE) for piece in _spm_pieces(model, path)],
        tokens=tokens,
        special=special,
        unknown=numbers["<unk>"],
        languages=languages,
        finds_unknown=True,
    )


_RESERVED_NAMES = ("<pad>", "<s>", "</s>", "<unk>")


def _roles_by_name(tokenizer: ForeignTokenizer, folder: Path) -> Roles:
    """The roles of a vocabulary of its own, by the names that its symbols have in every folder."""
    numbers = {token: number for number, token in tokenizer.tokens.items()}
    end = numbers.get("</s>")
    if end is None:
        raise ModelError(f"{folder}/vocab.json has no </s>, at which texts end")
    return Roles(numbers.get("<pad>"), None, end, tokenizer.unknown)


def _read_m2m100(files: _Files, path: Path) -> ForeignTokenizer:
    """vocab.json, then the languages, then rows that nothing uses."""
    vocabulary = _vocabulary(files.folder / "vocab.json")
    codes = WMT21 if files.settings.get("language_codes") == "wmt21" else M2M100
    languages = {len(vocabulary) + at: f"__{code}__" for at, code in enumerate(codes)}
    tokens = files.with_added({number: token for token, number in vocabulary.items()} | languages)
    found = _looked_up(files, path, tokens)
    return replace(found, special=found.special | {*languages}, languages=_languages("m2m_100", tokens, {*languages}))


# --- tokenizer.json, and what can be written as one ------------------------------------------------------------------


def _read_tokenizer_json(files: _Files) -> ForeignTokenizer:
    path = files.folder / "tokenizer.json"
    return _from_parts(files, _table(path), path)


def _read_byte_pairs(files: _Files) -> ForeignTokenizer:
    """vocab.json and merges.txt. Which pattern cuts the words follows from the family."""
    folder = files.folder
    merges = []
    for number, line in enumerate(_lines(folder / "merges.txt")):
        if line and not (number == 0 and line.startswith("#version")):
            pair = line.split(" ")
            if len(pair) != 2:
                raise ModelError(f"{folder}/merges.txt:{number + 1}: {line[:40]!r} is not a pair of tokens")
            merges.append(pair)
    levels: dict[str, Any] = {
        "type": "ByteLevel",
        "add_prefix_space": bool(files.flag("add_prefix_space", False)),
        "trim_offsets": True,
        "use_regex": True,
    }
    is_qwen = files.model_type.startswith("qwen")
    if is_qwen:
        split = {"type": "Split", "pattern": {"Regex": QWEN2_PATTERN}, "behavior": "Isolated", "invert": False}
        levels = {"type": "Sequence", "pretokenizers": [split, levels | {"use_regex": False}]}
    parts: dict[str, Any] = {
        "normalizer": {"type": "NFC"} if is_qwen else None,
        "pre_tokenizer": levels,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": _vocabulary(folder / "vocab.json"), "merges": merges},
        "added_tokens": [],
    }
    return _from_parts(files, parts, folder / "vocab.json")


def _read_word_pieces(files: _Files) -> ForeignTokenizer:
    """vocab.txt, a token in each line."""
    path = files.folder / "vocab.txt"
    vocabulary: dict[str, int] = {}
    for number, token in enumerate(_lines(path)):
        if token in vocabulary:
            raise ModelError(f"{path}:{number + 1}: {token!r} is also in line {vocabulary[token] + 1}")
        vocabulary[token] = number
    unknown = _name(files.settings.get("unk_token")) or "[UNK]"
    if unknown not in vocabulary:
        raise ModelError(f"{path} has no {unknown}, which words without a piece need")
    parts = {
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": files.flag("tokenize_chinese_chars", True),
            "strip_accents": files.flag("strip_accents", None),
            "lowercase": files.flag("do_lower_case", True),
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "vocab": vocabulary,
            "unk_token": unknown,
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
        },
        "added_tokens": [
            {"id": vocabulary[name], "content": name, "special": True}
            for name in ("[PAD]", unknown, "[CLS]", "[SEP]", "[MASK]")
            if name in vocabulary
        ],
    }
    return _from_parts(files, parts, path)


_HIDDEN_PREFIX = " "
"""What a special token gets before its name, so that it is not found in a text: spaces are never part of a piece."""


def _from_parts(files: _Files, found: Mapping[str, Any], path: Path) -> ForeignTokenizer:
    """A tokenizer of the tokenizers library, from the parts of a tokenizer.json."""
    found = {**found, "model": _typed_model(found.get("model"))}
    try:
        require_known_parts(found)
    except ValueError as error:
        raise ModelError(f"{path} is not supported: {error}") from error
    kept = {name: found.get(name) for name in ("normalizer", "pre_tokenizer")}
    kept |= {"version": "1.0", "truncation": None, "padding": None, "post_processor": None, "decoder": None}
    model, added = dict(found["model"]), _added_tokens(found.get("added_tokens"), path)
    vocabulary = _model_vocabulary(model, path)
    numbers = _with_added_tokens(vocabulary, added, path)
    tokens = files.with_added({number: token for token, number in numbers.items()})
    special = files.special_numbers(tokens) | {numbers[entry["content"]] for entry in added if entry["special"]}
    unknown = _unknown_number(model, vocabulary)
    if unknown is None:  # bytes spell everything, but there may be a symbol
        unknown = numbers.get(_name(files.settings.get("unk_token")) or "")
    languages = _languages(files.model_type, tokens, None if files.model_type in ("t5", "mt5") else special)
    if len(languages) < _MIN_LANGUAGES:
        languages = {}
    hidden = special | {*languages.values()} | ({unknown} if unknown is not None else set())
    names = {tokens[number] for number in hidden}
    found_in_text = [entry for entry in added if entry["content"] not in names]
    written = kept | {"model": _renamed(model, names, path), "added_tokens": found_in_text}
    content = json.dumps(written, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
    cut = vocabulary
    if any(entry["content"] not in vocabulary for entry in found_in_text):
        cut = vocabulary | _library_numbers(content, [entry["content"] for entry in found_in_text], path)
    ids = [NONE] * (max(cut.values()) + 1)
    for token, number in cut.items():
        foreign = numbers[token]
        # A special token never comes from a text; the unknown one does.
        ids[number] = NONE if foreign in hidden and foreign != unknown else foreign
    return ForeignTokenizer(
        _encoded(content, path),
        library="tokenizers",
        spelling=_spelling(found, model),
        ids=ids,
        tokens=tokens,
        special=frozenset(special),
        unknown=unknown,
        languages=languages,
    )


def _typed_model(model: Any) -> Any:
    """A model with its type, which the oldest files leave out."""
    if not isinstance(model, dict) or "type" in model:
        return model
    kind = "BPE" if "merges" in model else "Unigram" if isinstance(model.get("vocab"), list) else "WordPiece"
    return {"type": kind, **model}


def _added_tokens(found: Any, path: Path) -> list[dict[str, Any]]:
    """The added tokens of a tokenizer.json, complete and in the order of their numbers."""
    if not isinstance(found, list | None) or len(found or ()) > MAX_TOKENS:
        raise ModelError(f"{path} has added_tokens that are not a list")
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    entries = []
    for entry in found or ():
        content = _name(entry) if isinstance(entry, dict) else None
        if content is None:
            raise ModelError(f"{path} has an added token without its content")
        number = _row(entry.get("id"), content, path)
        entries.append({"id": number, "content": content} | {flag: entry.get(flag) is True for flag in flags})
    return sorted(entries, key=lambda entry: int(entry["id"]))


def _model_vocabulary(model: dict[str, Any], path: Path) -> dict[str, int]:
    """The numbers of the tokens of a model, which is completed where older files leave something out."""
    found = model.get("vocab")
    if model["type"] == "Unigram":
        if not isinstance(found, list) or not all(
            isinstance(entry, list) and len(entry) == 2 and isinstance(entry[0], str) for entry in found
        ):
            raise ModelError(f"{path} has a vocab that is not a list of tokens with their scores")
        found = {entry[0]: number for number, entry in enumerate(found)}
    return _checked(found, path)


def _with_added_tokens(vocabulary: Mapping[str, int], added: Sequence[Mapping[str, Any]], path: Path) -> dict[str, int]:
    """The numbers of all tokens."""
    numbers = dict(vocabulary)
    for entry in added:
        if numbers.setdefault(entry["content"], entry["id"]) != entry["id"]:
            raise ModelError(f"{path} gives {entry['content'][:40]!r} two numbers, one of them {entry['id']:,}")
    return _checked(numbers, path)


def _library_numbers(content: str, tokens: Iterable[str], path: Path) -> dict[str, int]:
    """The numbers that the library gives added tokens: it counts on from its vocabulary, whatever the file says."""
    with library_errors(f"{path} cannot be read"):
        fast = FastTokenizer.from_str(content)
        return {token: number for token in tokens if (number := fast.token_to_id(token)) is not None}


def _unknown_number(model: Mapping[str, Any], vocabulary: Mapping[str, int]) -> int | None:
    if model["type"] == "Unigram":
        number = model.get("unk_id")
        return number if type(number) is int and 0 <= number < len(vocabulary) else None
    name = model.get("unk_token")
    return vocabulary.get(name) if isinstance(name, str) else None


def _merges(found: Any, path: Path) -> list[list[str]]:
    """The pairs that are joined; older files write each as a line."""
    if not isinstance(found, list):
        raise ModelError(f"{path} has merges that are not a list")
    pairs = [pair.split(" ", 1) if isinstance(pair, str) else pair for pair in found]
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            raise ModelError(f"{path} has {str(pair)[:40]!r} among its merges, which is not a pair of tokens")
    return pairs


def _renamed(model: Mapping[str, Any], names: Set[str], path: Path) -> dict[str, Any]:
    """A model in which these tokens cannot be found in a text, but keep their numbers."""

    def new(token: str) -> str:
        return _HIDDEN_PREFIX + token if token in names else token

    changed = dict(model)
    if model["type"] == "Unigram":
        changed["vocab"] = [[new(token), score] for token, score in model["vocab"]]
        return changed
    changed["vocab"] = {new(token): number for token, number in model["vocab"].items()}
    if isinstance(model.get("unk_token"), str):
        changed["unk_token"] = new(model["unk_token"])
    if model["type"] == "BPE":
        changed["merges"] = [
            pair for pair in _merges(model.get("merges"), path) if names.isdisjoint((*pair, "".join(pair)))
        ]
    return changed


def _spelling(found: Mapping[str, Any], model: Mapping[str, Any]) -> PieceSpelling:
    if model["type"] == "WordPiece":
        return "word_pieces"
    kinds = {part.get("type") for part in _parts_of(found.get("decoder")) + _parts_of(found.get("pre_tokenizer"))}
    if "ByteLevel" in kinds:
        return "byte_level"
    return "marked_bytes" if model.get("byte_fallback") is True or "ByteFallback" in kinds else "marked"


def _parts_of(part: Any) -> list[Mapping[str, Any]]:
    """A decoder or pre-tokenizer, or those that it is a sequence of."""
    if not isinstance(part, dict):
        return []
    inner = part.get("decoders") or part.get("pretokenizers") or ()
    return [part, *(each for each in inner if isinstance(each, dict))] if isinstance(inner, list | tuple) else [part]


# --- one spm ---------------------------------------------------------------------------------------------------------

_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
"""The first numbers of models that were trained with fairseq; those of the spm follow with an offset of 1."""

MAX_EXTRA = 10_000
"""The most symbols that a tokenizer_config.json may add by their number."""


def _read_spm(files: _Files, path: Path, symbols: int) -> ForeignTokenizer:
    """A sentencepiece model alone: how its numbers become those of the weights depends on the family."""
    model = _content(path)
    pieces = _spm_pieces(model, path)
    own = range(len(pieces))
    ids: list[int] = list(own)
    languages: Sequence[str] = ()
    if files.model_type in ("m2m_100", "mbart", "xlm-roberta"):
        by_name = {name: number for number, name in enumerate(_FAIRSEQ)}
        ids = [
            by_name.get(piece, number + 1) if number < len(RESERVED) - 1 else number + 1
            for number, piece in enumerate(pieces)
        ]
        languages = _listed_languages(files, len(pieces) + 1, symbols)
        tokens = dict(enumerate(_FAIRSEQ)) | dict(zip(ids, pieces, strict=True))
        tokens |= {len(pieces) + 1 + at: code for at, code in enumerate(languages)}
        tokens |= {len(pieces) + 1 + len(languages): "<mask>"}
        special = {*range(len(_FAIRSEQ)), *range(len(pieces) + 1, len(tokens))}
    elif files.model_type == "pegasus":
        offset = _extra(files, "offset", 103)
        ids = [number + offset if number > 1 else number for number in own]
        first = ("<pad>", "</s>", "<mask_1>", "<mask_2>", *(f"<unk_{number}>" for number in range(2, offset)))
        tokens = dict(enumerate(first[: offset + 2])) | dict(zip(ids, pieces, strict=True))
        special = {*range(offset + 3)}
    else:
        # As many as there are rows for: mT5 has none.
        most = max(0, symbols - len(pieces))
        extra = min(most, _extra(files, "extra_ids", 100)) if files.model_type in ("t5", "mt5") else 0
        tokens = dict(enumerate(pieces))
        tokens |= {len(pieces) + at: f"<extra_id_{extra - 1 - at}>" for at in range(extra)}
        special = {*range(len(pieces), len(pieces) + extra)}
    tokens = files.with_added(tokens)
    kinds = _spm_kinds(model, path)
    special |= files.special_numbers(tokens)
    special |= {ids[number] for number in own if kinds[number] in (_UNKNOWN, _CONTROL)}
    found = _languages(files.model_type, tokens, None if files.model_type in ("t5", "mt5") else special)
    model = _without_typed(model, {tokens[number] for number in {*special, *found.values()} if number in tokens}, path)
    return ForeignTokenizer(
        model,
        library="sentencepiece",
        spelling="marked_bytes" if _BYTE in kinds else "marked",
        ids=ids,
        tokens=tokens,
        special=frozenset(special),
        unknown=next((ids[number] for number in own if kinds[number] == _UNKNOWN), None),
        languages=found if len(found) >= _MIN_LANGUAGES else {},
    )


def _extra(files: _Files, name: str, default: int) -> int:
    value = files.settings.get(name, default)
    if type(value) is not int or not 0 <= value <= MAX_EXTRA:
        raise ModelError(f"{files.folder}/tokenizer_config.json has {name}={str(value)[:40]}; 0 to {MAX_EXTRA:,} fit")
    return value


def _listed_languages(files: _Files, begin: int, symbols: int) -> Sequence[str]:
    """The codes that follow the pieces: as the folder lists them, else the longest list for which there are rows."""
    pattern = _LANGUAGE_TOKENS.get(files.model_type)
    if pattern is None:
        return ()
    listed = [name for name in files.special if pattern.fullmatch(name)]
    known: Iterable[Sequence[str]] = (NLLB,) if files.model_type == "m2m_100" else (MBART50, MBART)
    return listed or next((codes for codes in known if begin + len(codes) < symbols), ())


# --- files -----------------------------------------------------------------------------------------------------------


def _content(path: Path) -> bytes:
    try:
        if path.exists() and not path.is_file():  # reading from a pipe would not end
            raise ModelError(f"{path} is not a file; is the download complete?")
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; is the download complete?") from error
    if len(content) > MAX_FILE_BYTES:
        raise ModelError(f"{path} has more than {MAX_FILE_BYTES:,} bytes, which no known tokenizer has")
    return content


def _encoded(text: str, path: Path) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ModelError(f"{path} has a token with half a surrogate pair, which is no text") from error


def _table(path: Path) -> dict[str, Any]:
    try:
        found = parse_json(_content(path))
    except ValueError as error:
        raise ModelError(f"{path} is not JSON: {' '.join(str(error).split())[:120]}") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds a {type(found).__name__}, not a table")
    return found


def _lines(path: Path) -> list[str]:
    try:
        text = _content(path).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ModelError(f"{path} is not UTF-8: {error.reason} at byte {error.start + 1:,}") from error
    lines = text.split("\n")
    return [line.removesuffix("\r") for line in (lines if lines[-1] else lines[:-1])]


def _vocabulary(path: Path) -> dict[str, int]:
    """The number of each token."""
    return _checked(_table(path), path)


def _row(number: Any, token: str, path: Path) -> int:
    if type(number) is not int or not 0 <= number < MAX_TOKENS:
        raise ModelError(f"{path} gives {token[:40]!r} the number {str(number)[:40]}, which is not one of a row")
    return number


def _checked(found: Any, path: Path) -> dict[str, int]:
    if not isinstance(found, dict) or not 1 <= len(found) <= MAX_TOKENS:
        count = f"{len(found):,}" if isinstance(found, dict) else "no table of"
        raise ModelError(f"{path} has {count} tokens; 1 to {MAX_TOKENS:,} are read")
    _encoded("".join(found), path)
    seen: dict[int, str] = {}
    for token, number in found.items():
        _row(number, token, path)
        if number in seen:
            raise ModelError(f"{path} gives number {number:,} to two tokens, {seen[number]!r} and {token!r}")
        seen[number] = token
    return found


def _spm_pieces(model: bytes, path: Path) -> list[str]:
    """The pieces of a sentencepiece model in the order of its numbers."""
    processor = sentencepiece.SentencePieceProcessor()
    with library_errors(f"{path} is not a sentencepiece model"):
        require_sound_rules(model)
        processor.LoadFromSerializedProto(model)
        pieces: list[str] = processor.id_to_piece(list(range(processor.get_piece_size())))
    if not len(RESERVED) <= len(pieces) <= MAX_TOKENS:
        raise ModelError(f"{path} has {len(pieces):,} pieces; {len(RESERVED)} to {MAX_TOKENS:,} are read")
    return pieces


_PIECES, _PIECE, _TYPE = 1, 1, 3
_UNKNOWN, _CONTROL, _USER_DEFINED, _BYTE = 2, 3, 4, 6
"""Fields of a sentencepiece model, and kinds of its pieces."""


def _spm_kinds(model: bytes, path: Path) -> list[int]:
    """The kind of each piece."""
    with library_errors(f"{path} is not a sentencepiece model"):
        found = [dict(each[:2] for each in wire_fields(piece)) for field, piece, _ in wire_fields(model) if field == 1]
    return [int(piece.get(_TYPE, 1)) for piece in found]


def _without_typed(model: bytes, names: Collection[str], path: Path) -> bytes:
    """A sentencepiece model that does not find these pieces in a text, where it was made to find them."""
    changed = bytearray(model)
    with library_errors(f"{path} is not a sentencepiece model"):
        for field, piece, at in wire_fields(model):
            if field != _PIECES:
                continue
            values = {field: (value, place) for field, value, place in wire_fields(piece)}
            kind, place = values.get(_TYPE, (0, 0))
            if kind == _USER_DEFINED and values[_PIECE][0].decode("utf-8", "replace") in names:
                changed[at + place] = _CONTROL
    return bytes(changed)
