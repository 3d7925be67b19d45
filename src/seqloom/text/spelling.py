"""How symbols become text one by one: what each adds to the text of those before it.

Joined, what the symbols add is what `Tokenizer.decode` gives, before it makes one space of each run of white space and
takes those at the ends away.
"""

import codecs
import unicodedata
from collections.abc import Callable, Collection, Hashable, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, Protocol

from seqloom.core.symbols import END, UNKNOWN
from seqloom.text.marks import JOINER, UNKNOWN_SIGN, show_spaces
from seqloom.text.normalise import Normaliser
from seqloom.text.tokenizer import Tokenizer, byte_table
from seqloom.text.words import LETTER_SORT, Sort, is_border, sort_of


class Spelling(Protocol):
    """A place is what of the symbols so far decides how the next one is written; only a spelling can read it."""

    def begin(self) -> Hashable:
        """Before the first symbol."""
        ...

    def middle(self) -> Hashable:
        """In the middle of a character, where that can be; else behind one that touches nothing that follows."""
        ...

    def after(self, place: Any, symbol: int) -> tuple[str, Hashable]:
        """What a symbol adds to the text, and the place after it."""
        ...

    def rest(self, place: Any) -> str:
        """What the end of the text adds: a sign for the bytes of an incomplete character."""
        ...


@lru_cache(maxsize=8)
def spelling_of(tokenizer: Tokenizer) -> Spelling:
    """How a tokeniser writes its symbols."""
    if tokenizer.kind == "word":
        return _SpacedWords(tokenizer.vocabulary, has_joiners=tokenizer.config.segmentation != "spaces")
    if tokenizer.published is not None:
        return _Bytes(tokenizer.published.table, show=str)
    return _Bytes(byte_table(tokenizer.vocabulary), show=partial(show_spaces, has_start=False))


class _SpacedWords:
    """Words with spaces between them, unless a mark touches its neighbour. A place is whether the next word
    follows without a space: at the start, and after a mark that touches what follows."""

    def __init__(self, pieces: Sequence[str], *, has_joiners: bool) -> None:
        self._pieces = [UNKNOWN_SIGN if number == UNKNOWN else piece for number, piece in enumerate(pieces)]
        self._has_joiners = has_joiners

    def begin(self) -> bool:
        return True

    def middle(self) -> bool:
        return False

    def after(self, place: bool, symbol: int) -> tuple[str, bool]:
        if symbol < UNKNOWN:
            return "", place
        word = self._pieces[symbol]
        if not self._has_joiners:
            return (word if place else f" {word}"), False
        core = word.removeprefix(JOINER)
        space = "" if place or len(core) < len(word) else " "
        return space + core.removesuffix(JOINER).replace("\x1a", JOINER), core.endswith(JOINER)

    def rest(self, place: bool) -> str:  # noqa: ARG002 - words are never left half written
        return ""


class _Bytes:
    """Pieces in UTF-8, one after the other. A place is the bytes of an incomplete character."""

    def __init__(self, table: Sequence[bytes], *, show: Callable[[str], str]) -> None:
        self._bytes, self._show = table, show
        self._alone = [self._read(each) for each in self._bytes]
        self._half = next((rest for _, rest in self._alone if rest), b"")

    def begin(self) -> bytes:
        return b""

    def middle(self) -> bytes:
        return self._half

    def after(self, place: bytes, symbol: int) -> tuple[str, bytes]:
        return self._read(place + self._bytes[symbol]) if place else self._alone[symbol]

    def rest(self, place: bytes) -> str:
        return place.decode("utf-8", errors="replace")

    def _read(self, content: bytes) -> tuple[str, bytes]:
        # What can still become a character is left for the next symbol; what cannot becomes U+FFFD.
        text, read = codecs.utf_8_decode(content, "replace", False)
        return self._show(text), content[read:]


# Phrases in a text that is written symbol by symbol: where a forbidden one would occur, where one may begin and end.
#
# A text says the same however it is cut into symbols, so both read the characters that each symbol adds, as the
# decoded text will show them. A phrase occurs in a text only between word borders (`seqloom.text.words`).

_ROOT = 0


class Reading(NamedTuple):
    """The state of a text: how its next symbol is spelled, its last character, and which phrases it has begun."""

    spelled: Hashable
    last: Sort | None
    begun: tuple[int, ...] = ()
    """The nodes, in the tree of all beginnings of phrases, of those that may end here or later."""


class _Added(NamedTuple):
    """What a symbol adds to a text."""

    characters: tuple[tuple[str, Sort], ...]
    quiet: int
    """From this character on no phrase can begin."""


class Unwritten:
    """Reads a text and reports where it would contain one of these phrases between word boundaries.

    Whether a phrase that is complete ends at a border shows with the next character, or with the end of the text.
    """

    def __init__(self, tokenizer: Tokenizer, phrases: Sequence[str]) -> None:
        self._spelling = spelling_of(tokenizer)
        self._children: list[dict[str, int]] = [{}]
        self._is_whole = [False]
        # A phrase may be spelled as the model's text is normalised, and with letters and their accents apart.
        normal = {normaliser(phrase) for phrase in phrases for normaliser in (Normaliser(), tokenizer.normaliser)}
        for form in (normal | {unicodedata.normalize("NFD", form) for form in normal}) - {""}:
            node = _ROOT
            for character in form:
                if character not in self._children[node]:
                    self._children[node][character] = len(self._children)
                    self._children.append({})
                    self._is_whole.append(False)
                node = self._children[node][character]
            self._is_whole[node] = True
        self._added: dict[str, _Added] = {}

    def begin(self) -> Reading:
        """Before the first symbol."""
        return Reading(self._spelling.begin(), None)

    def after(self, place: Reading, symbol: int) -> Reading | None:
        """The place one symbol later, or None if the text would then hold a phrase, whatever follows."""
        text, spelled = self._spelling.after(place.spelled, symbol)
        if not text:
            # Half a character may become part of the word or not. Behind a whole phrase that is not risked.
            return None if spelled and self._has_whole(place.begun) else place._replace(spelled=spelled)
        read = self._read(place.last, place.begun, text)
        if read is None or (spelled and self._has_whole(read[1])):
            return None
        return Reading(spelled, *read)

    def may_end(self, place: Reading) -> bool:
        """Whether the text may end here."""
        rest = self._spelling.rest(place.spelled)
        read = self._read(place.last, place.begun, rest) if rest else (place.last, place.begun)
        return read is not None and not self._has_whole(read[1])

    def _read(self, last: Sort | None, begun: tuple[int, ...], text: str) -> tuple[Sort | None, tuple[int, ...]] | None:
        characters, quiet = self._added.get(text) or self._add_text(text)
        for number, (character, sort) in enumerate(characters):
            if not begun and number >= quiet:
                # Nothing can happen any more; of spaces at the start of the text nothing is left.
                final = characters[-1][1]
                return (None if last is None and final.is_space and len(characters) == 1 else final), ()
            if sort.is_space and (last is None or last.is_space):
                continue
            is_at_border = is_border(last, sort)
            if is_at_border and self._has_whole(begun):
                return None
            nodes = (*begun, _ROOT) if is_at_border else begun
            begun = tuple(self._children[node][character] for node in nodes if character in self._children[node])
            last = sort
        return last, begun

    def _has_whole(self, begun: tuple[int, ...]) -> bool:
        return any(self._is_whole[node] for node in begun)

    def _add_text(self, text: str) -> _Added:
        characters: list[tuple[str, Sort]] = []
        for character in text:
            sort = sort_of(character)
            if not (sort.is_space and characters and characters[-1][1].is_space):
                characters.append((" " if sort.is_space else character, sort))
        quiet = 0
        for number, (character, sort) in enumerate(characters):
            can_begin = number == 0 or is_border(characters[number - 1][1], sort)
            if can_begin and character in self._children[_ROOT]:
                quiet = number + 1
        self._added[text] = _Added(tuple(characters), quiet)
        return self._added[text]


unwritten = lru_cache(maxsize=8)(Unwritten)
"""The reader that finds these phrases in a tokeniser's texts; one for all sentences, since it remembers much."""


class WordBorders:
    """Finds the symbols before which the text has a word border. Where that is undecided, it has none."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._spelling = spelling_of(tokenizer)
        self._symbols = tokenizer.size
        self._inner: dict[Reading, frozenset[int]] = {}

    def begin(self) -> Reading:
        """Before the first symbol."""
        return Reading(self._spelling.begin(), None)

    def inside(self) -> Reading:
        """Where the fewest symbols have a border before them: in the middle of a letter, or else behind one."""
        return Reading(self._spelling.middle(), LETTER_SORT)

    def after(self, place: Reading, symbol: int) -> Reading:
        """The place one symbol later."""
        text, spelled = self._spelling.after(place.spelled, symbol)
        last = place.last
        for character in text:
            sort = sort_of(character)
            last = None if last is None and sort.is_space else sort
        return Reading(spelled, last)

    def may_begin(self, place: Reading, symbol: int) -> bool:
        """Whether a phrase whose first symbol is this one begins at a border here."""
        if self._spelling.rest(place.spelled):
            return False
        text, spelled = self._spelling.after(place.spelled, symbol)
        if text:
            return is_border(place.last, sort_of(text[0]))
        # The first byte of a character: where a letter may begin, any phrase may.
        return bool(spelled) and is_border(place.last, LETTER_SORT)

    def may_end(self, place: Reading, symbol: int) -> bool:
        """Whether a phrase that is complete has ended at a border, now that this symbol comes."""
        text, _ = self._spelling.after(place.spelled, symbol)
        return bool(text) and is_border(place.last, sort_of(text[0]))

    def inner(self, place: Reading) -> Collection[int]:
        """All symbols before which there is no border. END is the end of the text, which is one."""
        if place not in self._inner:
            symbols = (symbol for symbol in range(self._symbols) if symbol != END)
            self._inner[place] = frozenset(symbol for symbol in symbols if not self.may_end(place, symbol))
        return self._inner[place]


word_borders = lru_cache(maxsize=8)(WordBorders)
"""The borders of words in a tokeniser's texts; one for all sentences, since it remembers much."""
