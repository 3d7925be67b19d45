"""Tokenisers of published models: text is cut as their own library cuts it, and the pieces get ids of ours.

The stored form is a line of JSON and the model of the library, a sentencepiece model or a tokenizer.json:

    {"library": …, "spelling": …, "ids": […], "tokens": […], "hidden": […], "finds_unknown": …}
    …

Such files come from anywhere. A model is accepted only if it is made of parts that published models are known to have,
because the regular expressions of a tokenizer.json are run by a backtracking engine.
"""

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import sentencepiece
from jaxtyping import Int64, UInt32
from tokenizers import Tokenizer as FastTokenizer

from seqloom.core.errors import ModelError, SeqloomError
from seqloom.core.files import parse_json
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.text.marks import BYTE_PIECES, SPACE, UNKNOWN_SIGN

Library = Literal["sentencepiece", "tokenizers"]
"""What cuts the text."""

PieceSpelling = Literal["marked", "marked_bytes", "byte_level", "word_pieces"]
"""How tokens are written: with ▁ for spaces; the same with `<0x41>` for bytes; a letter for each byte, as GPT-2 does;
or with ## for what continues a word."""

MAX_TOKENS = 1 << 22
"""Tokens of the largest vocabulary that is read."""


class Placed(NamedTuple):
    """A piece of a text: its id, and where it begins and ends."""

    id: int
    begin: int
    end: int


class Published:
    """A tokeniser of a published model, from its stored form; a ValueError says what is wrong with that."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        line, _, model = content.partition(b"\n")
        found = parse_json(line)
        self.tokens = _tokens(found["tokens"])
        """How the published model writes each of our ids; None where it is not in its vocabulary."""
        self._spelling: PieceSpelling = _one_of(found["spelling"], get_args(PieceSpelling), "spelling")
        self._hidden = frozenset(_numbers(found["hidden"], len(self.tokens), "hidden").tolist())
        library: Library = _one_of(found["library"], get_args(Library), "library")
        self._model = _SentencePieces(model) if library == "sentencepiece" else _Fast(model)
        self._finds_unknown = _one_of(found["finds_unknown"], (True, False), "finds_unknown")
        ids = _numbers(found["ids"], len(self.tokens), "ids")
        if len(ids) < self._model.size:
            raise ValueError(f"it has ids for {len(ids):,} pieces, but its model has {self._model.size:,}")
        # Text never becomes a reserved symbol.
        self._ids = np.where(ids <= END, UNKNOWN, ids).astype(np.uint32)

    @staticmethod
    def stored(
        model: bytes,
        *,
        library: Library,
        spelling: PieceSpelling,
        ids: Sequence[int],
        tokens: Sequence[str | None],
        hidden: Iterable[int],
        finds_unknown: bool = False,
    ) -> bytes:
        """The stored form.

        `ids` has our id of each id of the model; `tokens` how each of ours is written there, None where it is not in
        the vocabulary; `hidden` those that decoding leaves out. `finds_unknown` is for vocabularies that are a file of
        their own: what the model does not know is then sought there, as it is written.
        """
        head = {
            "library": library,
            "spelling": spelling,
            "ids": list(ids),
            "tokens": list(tokens),
            "hidden": sorted(hidden),
            "finds_unknown": finds_unknown,
        }
        return json.dumps(head, ensure_ascii=False, separators=(",", ":")).encode("utf-8") + b"\n" + model

    def encode(self, texts: Sequence[str]) -> tuple[UInt32[np.ndarray, " ids"], Int64[np.ndarray, " texts"]]:
        """The ids of texts, one text after another, and how many each has."""
        rows = self._model.cut(list(texts))
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        cut = np.fromiter(chain.from_iterable(rows), np.int64, int(lengths.sum()))
        if len(cut) and cut.max() >= len(self._ids):
            raise ModelError(f"{_FAILED}: it gives number {cut.max():,}, and {len(self._ids):,} are known")
        ids = self._ids[cut]
        if self._finds_unknown and UNKNOWN in ids:
            begins = np.cumsum(lengths) - lengths
            for at in np.unique(np.searchsorted(begins, np.flatnonzero(ids == UNKNOWN), side="right") - 1):
                begin = begins[at]
                ids[begin : begin + lengths[at]] = [piece.id for piece in self.spans(texts[at])]
        return ids, lengths

    def spans(self, text: str) -> list[Placed]:
        """The pieces of a text with their places."""
        pieces = []
        for id, token, begin, end in self._model.places(text):
            ours = int(self._ids[id])
            if ours == UNKNOWN and self._finds_unknown:
                ours = self._id_of.get(token, UNKNOWN)
            pieces.append(Placed(ours, begin, end))
        return pieces

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; bytes that are not UTF-8 become U+FFFD."""
        table = self.table
        return b"".join([table[number] for number in ids]).decode("utf-8", errors="replace")

    @cached_property
    def _id_of(self) -> dict[str, int]:
        found = {token: number for number, token in enumerate(self.tokens) if token is not None}
        return {token: number for token, number in found.items() if number > UNKNOWN and number not in self._hidden}

    @cached_property
    def table(self) -> list[bytes]:
        """What each id spells in UTF-8, spaces included: nothing for hidden ones."""
        spell = _SPELLINGS[self._spelling]
        table = [
            b"" if token is None or number in self._hidden else spell(token) for number, token in enumerate(self.tokens)
        ]
        table[: len(RESERVED)] = [b""] * len(RESERVED)
        table[UNKNOWN] = f" {UNKNOWN_SIGN} ".encode()
        return table

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        """The pieces in the spelling of our own tokenisers, ▁ for a space and `<0x41>` for a byte; each occurs once."""
        show, hidden = _SHOWN[self._spelling], self._hidden
        pieces = [
            f"<unused_{number}>" if token is None else token if number in hidden else show(token) or token
            for number, token in enumerate(self.tokens)
        ]
        pieces[: len(RESERVED)] = RESERVED
        if len(set(pieces)) < len(pieces):
            seen = set(RESERVED)
            for number in range(len(RESERVED), len(pieces)):
                while pieces[number] in seen:
                    pieces[number] += f"#{number}"
                seen.add(pieces[number])
        return tuple(pieces)


def _tokens(found: Any) -> tuple[str | None, ...]:
    if not isinstance(found, list) or not len(RESERVED) <= len(found) <= MAX_TOKENS:
        raise ValueError(f"its tokens are not a list of {len(RESERVED)} to {MAX_TOKENS:,}")
    if not all(token is None or isinstance(token, str) for token in found):
        raise ValueError("its tokens are not all texts")
    return tuple(found)


def _numbers(found: Any, limit: int, name: str) -> Int64[np.ndarray, " numbers"]:
    if not isinstance(found, list) or len(found) > MAX_TOKENS or not all(type(number) is int for number in found):
        raise ValueError(f"its {name} are not a list of numbers")
    if found and not (min(found) >= 0 and max(found) < limit):
        raise ValueError(f"its {name} are not all from 0 to {limit - 1:,}")
    return np.array(found, np.int64)


def _one_of(found: Any, known: Sequence[Any], name: str) -> Any:
    if found not in known:
        raise ValueError(f"its {name} is {found!r}; known: {', '.join(known)}")
    return found


# --- spellings -------------------------------------------------------------------------------------------------------

_BYTE_OF = {piece: bytes([byte]) for byte, piece in enumerate(BYTE_PIECES)}


def _byte_letters() -> dict[str, int]:
    """The letter of each byte in byte-level tokens (Radford et al., 2019): itself if it can be seen, else one from
    U+0100 on."""
    seen = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = (byte for byte in range(256) if byte not in seen)
    return {chr(byte): byte for byte in seen} | {chr(0x100 + at): byte for at, byte in enumerate(others)}


BYTE_LETTERS = _byte_letters()


def _spell_marked(token: str) -> bytes:
    return token.replace(SPACE, " ").encode("utf-8")


def _spell_bytes(token: str) -> bytes:
    return _BYTE_OF.get(token) or _spell_marked(token)


def _spell_byte_level(token: str) -> bytes:
    try:
        return bytes([BYTE_LETTERS[letter] for letter in token])
    except KeyError:  # an added token, which is written as it is
        return token.encode("utf-8")


_TIGHT = tuple((f" {mark}", mark) for mark in (".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"))
"""Marks that the decoder of word pieces writes without the space before them."""


def _spell_word_piece(token: str) -> bytes:
    if token.startswith("##"):
        return token[2:].encode("utf-8")
    spelled = f" {token}"
    for loose, tight in _TIGHT:
        spelled = spelled.replace(loose, tight)
    return spelled.encode("utf-8")


_SPELLINGS: Mapping[PieceSpelling, Callable[[str], bytes]] = {
    "marked": _spell_marked,
    "marked_bytes": _spell_bytes,
    "byte_level": _spell_byte_level,
    "word_pieces": _spell_word_piece,
}


def _show_marked(token: str) -> str:
    return token.replace(" ", SPACE)


def _show_byte_level(token: str) -> str:
    return _shown(_spell_byte_level(token))


def _show_word_piece(token: str) -> str:
    return token[2:] if token.startswith("##") else SPACE + token


def _shown(spelled: bytes) -> str:
    """Bytes as a piece of ours; those that are not characters by themselves as `<0xE2>`."""
    try:
        return spelled.decode("utf-8").replace(" ", SPACE)
    except UnicodeDecodeError:
        return "".join(BYTE_PIECES[byte] if byte >= 0x80 else chr(byte) for byte in spelled).replace(" ", SPACE)


_SHOWN: Mapping[PieceSpelling, Callable[[str], str]] = {
    "marked": _show_marked,
    "marked_bytes": _show_marked,
    "byte_level": _show_byte_level,
    "word_pieces": _show_word_piece,
}


# --- libraries -------------------------------------------------------------------------------------------------------


class CutPiece(NamedTuple):
    """A piece as a library cuts it: its id and spelling there, and where it begins and ends in the text."""

    id: int
    token: str
    begin: int
    end: int


@contextmanager
def library_errors(doing: str) -> Iterator[None]:
    """A ModelError for whatever a library raises; bare exceptions of many kinds, panics among them."""
    try:
        yield
    except SeqloomError:
        raise
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise ModelError(f"{doing}: {' '.join(str(error).split())[:160]}") from error


_FAILED = "the tokenizer of the published model failed on a text, so its files are damaged"


class _SentencePieces:
    """A sentencepiece model."""

    def __init__(self, model: bytes) -> None:
        require_sound_rules(model)
        self._processor = sentencepiece.SentencePieceProcessor()
        self._processor.LoadFromSerializedProto(model)
        self.size: int = self._processor.get_piece_size()

    def cut(self, texts: list[str]) -> list[list[int]]:
        """The ids of the texts."""
        with library_errors(_FAILED):
            ids: list[list[int]] = self._processor.encode(texts, out_type=int, num_threads=1)
        return ids

    def places(self, text: str) -> list[CutPiece]:
        """The pieces of a text with their places."""
        with library_errors(_FAILED):
            # The message that every version of the library gives; its places are counted in bytes.
            message = self._processor.encode(text, out_type="serialized_proto")
        whole = text.encode("utf-8")
        pieces, begin, read = [], 0, 0
        for field, piece, _ in wire_fields(message):
            if field != 2:
                continue
            values = {field: value for field, value, _ in wire_fields(piece)}
            stop = int(values.get(5, 0))
            end = begin + len(whole[read:stop].decode("utf-8", errors="ignore"))
            pieces.append(CutPiece(int(values.get(2, 0)), bytes(values[1]).decode("utf-8", "replace"), begin, end))
            begin, read = end, max(read, stop)
        return pieces


class _Fast:
    """A tokenizer.json."""

    def __init__(self, model: bytes) -> None:
        with library_errors("the tokenizers library does not read tokenizer.json"):
            fast = FastTokenizer.from_str(model.decode("utf-8"))
            fast.encode_special_tokens = True  # what is typed stays text
            fast.no_padding()
            fast.no_truncation()
            self.size: int = fast.get_vocab_size(with_added_tokens=True)
        # Without the vocabulary, which is most of the file: a part gives its own JSON.
        names = ("dropout", "end_of_word_suffix", "continuing_subword_prefix")
        parts: dict[str, Any] = {
            "model": {name: getattr(fast.model, name, None) for name in names} | {"type": type(fast.model).__name__}
        }
        for name, part in (("normalizer", fast.normalizer), ("pre_tokenizer", fast.pre_tokenizer)):
            parts[name] = None if part is None else parse_json(part.__getstate__())
        require_known_parts(parts)
        self._fast = fast

    def cut(self, texts: list[str]) -> list[list[int]]:
        """The ids of the texts."""
        with library_errors(_FAILED):
            return [encoding.ids for encoding in self._fast.encode_batch_fast(texts, add_special_tokens=False)]

    def places(self, text: str) -> list[CutPiece]:
        """The pieces of a text with their places."""
        with library_errors(_FAILED):
            found = self._fast.encode(text, add_special_tokens=False)
        return [
            CutPiece(id, token, *place) for id, token, place in zip(found.ids, found.tokens, found.offsets, strict=True)
        ]


# --- what a tokenizer.json may be made of ----------------------------------------------------------------------------

_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LARGE, _SMALL = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = rf"[^\r\n\p{{L}}\p{{N}}]?{_LARGE}*{_SMALL}+", rf"[^\r\n\p{{L}}\p{{N}}]?{_LARGE}+{_SMALL}*"
_CASED_REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
QWEN2_PATTERN = rf"{_ENDINGS}|{_LETTERS}|\p{{N}}|{_REST}"
KNOWN_PATTERNS = frozenset(
    {
        GPT2_PATTERN,
        QWEN2_PATTERN,
        rf"{_ENDINGS}|{_LETTERS}|\p{{N}}{{1,3}}|{_REST}",  # Llama 3
        rf"{_CASED[0]}|{_CASED[1]}|\p{{N}}|{_CASED_REST}",  # Mistral, from Nemo on
        rf"{_CASED[0]}{_ENDINGS}?|{_CASED[1]}{_ENDINGS}?|\p{{N}}{{1,3}}|{_CASED_REST}",  # o200k
        # HunYuan, one after another
        r"\p{N}{1,3}",
        "[一-龥\u3040-ゟ゠-ヿ]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"""
        r""" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+""",
        # Spaces and line ends
        *(" {2,}", " +", r"\n", r"\s+", r"\s{2,}"),
    }
)
"""The regular expressions of known tokenizers. Others are refused, since one can be made to run for years."""

_MAX_LITERAL, _MAX_DEPTH = 32, 4
_NORMALIZERS = frozenset(
    {
        *("Precompiled", "BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Nmt", "Lowercase", "StripAccents", "Strip"),
        *("Prepend", "Replace", "Sequence"),
    }
)
_PRE_TOKENIZERS = frozenset(
    {
        *("Metaspace", "WhitespaceSplit", "Whitespace", "ByteLevel", "BertPreTokenizer", "Digits", "Punctuation"),
        *("Split", "Sequence"),
    }
)
_MODELS = frozenset({"BPE", "Unigram", "WordPiece"})


def require_known_parts(found: Any) -> None:
    """Raise a ValueError that names the first part of a tokenizer.json that known tokenizers do not have."""
    if not isinstance(found, dict):
        raise ValueError(f"it holds a {type(found).__name__}, not a table")
    model = found.get("model")
    kind = model.get("type") if isinstance(model, dict) else None
    if not isinstance(model, dict) or kind not in _MODELS:
        raise ValueError(f"its model is {_brief(kind)}; known: {', '.join(sorted(_MODELS))}")
    if model.get("dropout") or model.get("end_of_word_suffix"):
        raise ValueError("its model has a dropout or end_of_word_suffix, which is not supported")
    if (model.get("continuing_subword_prefix") or "") != ("##" if kind == "WordPiece" else ""):
        prefix = _brief(model.get("continuing_subword_prefix"))
        raise ValueError(f"its model has continuing_subword_prefix={prefix}, which is not supported")
    _require_known(found.get("normalizer"), "normalizer", _NORMALIZERS)
    _require_known(found.get("pre_tokenizer"), "pre_tokenizer", _PRE_TOKENIZERS)


def _require_known(part: Any, what: str, known: frozenset[str], depth: int = 0) -> None:
    if part is None:
        return
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in known or depth > _MAX_DEPTH:
        raise ValueError(f"its {what} is {_brief(kind)}, which is not supported; known: {', '.join(sorted(known))}")
    if kind == "Sequence":
        parts = part.get("normalizers" if what == "normalizer" else "pretokenizers")
        if not isinstance(parts, list) or len(parts) > 32:
            raise ValueError(f"its {what} has a Sequence that is not a short list")
        for each in parts:
            _require_known(each, what, known, depth + 1)
        return
    if kind == "Precompiled":
        rules = part.get("precompiled_charsmap")
        _require_sound_tree(base64.b64decode(rules if isinstance(rules, str) else "", validate=True))
    for name in ("content", "prepend", "replacement"):
        if isinstance(part.get(name), str) and len(part[name]) > _MAX_LITERAL:
            raise ValueError(f"its {what} {kind} has a {name} of {len(part[name]):,} characters")
    pattern = part.get("pattern")
    if pattern is not None or kind in ("Split", "Replace"):
        _require_known_pattern(pattern, f"{what} {kind}")


def _require_known_pattern(pattern: Any, where: str) -> None:
    if isinstance(pattern, dict) and len(pattern) == 1:
        literal, regex = pattern.get("String"), pattern.get("Regex")
        if isinstance(literal, str) and 0 < len(literal) <= _MAX_LITERAL:
            return
        # A line end may be written as itself.
        if isinstance(regex, str) and regex.replace("\r", r"\r").replace("\n", r"\n") in KNOWN_PATTERNS:
            return
    raise ValueError(
        f"its {where} has an unknown pattern, {_brief(pattern)}; if seqloom export has written the folder, use the run "
        "that it was made of"
    )


def _brief(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


# --- messages of Protocol Buffers, in which sentencepiece models are written -----------------------------------------

_NORMALIZER_SPEC, _CHARSMAP = (3, 5), 2


def require_sound_rules(model: bytes) -> None:
    """Raise a ValueError if the normalisation rules of a sentencepiece model point outside of themselves.

    The rules are a tree in an array (Aoe, 1989) that the library follows without looking where it goes.
    """
    for field, spec, _ in wire_fields(model):
        if field not in _NORMALIZER_SPEC or not isinstance(spec, bytes):
            continue
        for number, rules, _ in wire_fields(spec):
            if number == _CHARSMAP and rules:
                _require_sound_tree(rules)


def _require_sound_tree(rules: bytes) -> None:
    size = int.from_bytes(rules[:4], "little")
    if len(rules) < 8 or size % 4 or not 4 <= size < len(rules) - 4 or rules[-1]:
        raise ValueError("its normalisation rules are damaged")
    try:
        rules[4 + size :].decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("its normalisation rules are damaged") from None
    replacements = np.frombuffer(rules, np.uint8, offset=4 + size)
    units = np.frombuffer(rules, "<u4", size // 4, 4).astype(np.int64)
    begins = np.arange(len(units)) ^ ((units >> 10) << ((units & (1 << 9)) >> 6))  # of the children of each unit
    has_leaf = (units >> 8) & 1 == 1
    children = np.flatnonzero(units >> 31 == 0)
    places = children ^ (units[children] & 0xFF)  # where their parents' children begin
    order = np.argsort(places, kind="stable")
    children, places = children[order], places[order]
    seen = np.zeros(len(units), bool)
    level = np.array([0])
    while len(level):
        seen[level] = True
        begin = begins[level]
        if ((begin | 0xFF) >= len(units)).any():
            raise ValueError("its normalisation rules are damaged")
        texts = units[begin[has_leaf[level]]] & 0x7FFFFFFF
        if (texts >= len(replacements)).any() or (replacements[texts] & 0xC0 == 0x80).any():  # inside of a character
            raise ValueError("its normalisation rules are damaged")
        first, last = np.searchsorted(places, begin, "left"), np.searchsorted(places, begin, "right")
        counts = last - first
        found = children[np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())]
        level = np.unique(found[~seen[found]])


def wire_fields(message: bytes) -> Iterator[tuple[int, Any, int]]:
    """The fields of a message of Protocol Buffers: the number of each, its value, a number or bytes, and the place of
    that."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        wire = key & 7
        if wire == 0:
            place = at
            value, at = _varint(message, at)
            yield key >> 3, value, place
            continue
        if wire == 2:
            size, at = _varint(message, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
        else:
            raise ValueError(f"it is not a message of Protocol Buffers: byte {at:,}")
        if at + size > len(message):
            raise ValueError(f"it ends in the middle of a field, at byte {at:,}")
        yield key >> 3, message[at : at + size], at
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(message) or shift > 63:
            raise ValueError(f"it is not a message of Protocol Buffers: byte {at:,}")
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
