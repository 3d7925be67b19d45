"""Tags and placeholders: taken out of a line before it is translated, and put back where their words went.

    <b>…</b>            a pair goes around the words that its own words became
    <br/> {0} %s &amp;  a single one is placed before the word it preceded, or after the one it touched
    [X7X] <x id="7"></x>  so are the marks that translation platforms put in place of what must stay
    %d%% {0}{1}<br/>    those that touch each other move as one, in their order, with the spaces around them

Pairs stay as they were nested: what was inside a pair is inside it again, what was beside it is beside it, though
perhaps on the other side. A tag whose words have no partner goes to the end of what it is in, before the full stop.
None is ever lost.

A line may be a whole page with thousands of tags, or hold as many inside each other: nothing here recurses, and the
work grows like n log n.
"""

import re
import unicodedata
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile

from seqloom.text.normalise import NO_BREAKS
from seqloom.text.words import Span, sort_of, word_spans

# Possessive quantifiers: what they took is never tried again with less, which would take quadratic time.
_TAG = re.compile(
    r"""<!--                                                    # a comment, whose end is found separately
    | <([A-Za-z][\w:.-]*+)(?:\s[^<>]*+)?></\1\s*>             # an element with nothing inside: <x id="7"></x>
    | <[A-Za-z](?:[^<>"'=]++|=\s*+(?:"[^"]{0,1000}+"|'[^']{0,1000}+')?+){0,100}+>  # HTML and XML: <a title="x > y">
    | </?[A-Za-z][^<>]*>                                        # the same, with quotes that do not match
    | <\?[A-Za-z][^<>]*\?> | <![A-Z]+\s[^<>]*> | <!\[CDATA\[ | \]\]>
    | \{\{[^{}]*\}\} | \$\{[^{}]*\} | \{[\w.:!,-]*\}            # templates and formats
    | %\([A-Za-z_]\w*\)[-+0\#]*+\d*+(?:\.\d++)?[a-zA-Z]         # %(name)s
    | (?<!\d)%(?:\d++\$)?[-+0\#]*+(?:\*|\d++)?(?:\.(?:\*|\d++))?(?:hh|ll|[hljzt])?[sdifuxXeEgGcr@](?![A-Za-z])
    | (?:(?<![\w.,])\d++(?:[.,]\d++)*+)?%%                     # with its number: 100%%
    | \[X[0-9]+X\]                                             # Weblate: [X7X]
    | &(?:[A-Za-z][A-Za-z0-9]*|\#[0-9]+|\#[xX][0-9A-Fa-f]+);    # an entity
    """,
    re.VERBOSE,
)
_CLOSED = re.compile(r"[^<]></[A-Za-z][\w:.-]*+\s*>\Z")
"""The end of an element with nothing inside, which is one tag."""
_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*).*?(/?)>", re.DOTALL)
_EMPTY = frozenset("area br col embed hr img input wbr".split())  # noqa: SIM905
"""Elements of HTML that hold nothing, with a slash at their end or without."""
_BREAKS = frozenset("br hr p div li ul ol dl dt dd table tr td th h1 h2 h3 h4 h5 h6 &nbsp; &#160;".split())  # noqa: SIM905
"""Elements and entities that separate words even without a space next to them."""
_NO_SPACE_BEFORE = frozenset(".,;:!?…)]}»”’。，、！？；：）」』")
_FINAL = ".!?…。！？"
_QUOTES = "\"'”’»“」』"


@dataclass(frozen=True)
class Tag:
    """A tag as written, and its position."""

    text: str
    place: int
    """How many characters of the line without tags precede it."""
    has_space_before: bool
    has_space_after: bool
    is_touching: bool = False
    """Whether the tag before it in the line ends where this one begins."""
    is_after_word: bool = True
    """Whether the character before it is that of a word."""
    is_before_word: bool = True


@dataclass(frozen=True)
class TagNode:
    """A single tag, or a pair with what is inside it."""

    tag: Tag
    closing: Tag | None = None
    children: tuple["TagNode", ...] = ()


@dataclass(frozen=True)
class Tagged:
    """A line without its tags, and the nested tags."""

    plain: str
    nodes: tuple[TagNode, ...]


def take_out(line: str) -> Tagged:
    """Separate a line from its tags. Where a tag leaves two spaces, or one before a mark, one is removed."""
    plain: list[str] = []
    tags: list[Tag] = []
    end, last_comment, found = 0, line.rfind("-->"), _TAG.search(line)
    while found:
        start, stop = found.span()
        if found[0] == "<!--":
            if last_comment < stop:  # it never ends, so it is text
                found = _TAG.search(line, stop)
                continue
            stop = line.index("-->", stop) + len("-->")
        _append(plain, line[end:start], tags)
        before, after = line[max(0, start - 1) : start], line[stop : stop + 1]
        is_parted = not before or before.isspace(), not after or after.isspace()
        is_in_word = tuple(bool(each) and sort_of(each).is_in_word for each in (before, after))
        tags.append(Tag(line[start:stop], len(plain), *is_parted, bool(tags) and start == end, *is_in_word))
        end, found = stop, _TAG.search(line, stop)
    _append(plain, line[end:], tags)
    return Tagged("".join(plain), _nest(tags))


def blank_out(text: str) -> str:
    """A text with a space for each tag or placeholder, for those who only read its words."""
    return _TAG.sub(" ", text)


def _append(plain: list[str], more: str, tags: list[Tag]) -> None:
    """Append the text after tags to the text before them."""
    if more and tags and tags[-1].place == len(plain):
        if not plain or plain[-1] != " ":
            # One of the last tags, those at this place, may part words.
            last = takewhile(lambda tag: tag.place == len(plain), reversed(tags))
            if plain and more[0].isalnum() and any((_parts(tag.text)[1] or tag.text) in _BREAKS for tag in last):
                plain.append(" ")
        elif more[0] == " ":
            more = more.lstrip(" ")
        elif more[0] in _NO_SPACE_BEFORE:
            while plain and plain[-1] == " ":
                plain.pop()
            for number in range(len(tags) - 1, -1, -1):
                if tags[number].place <= len(plain):
                    break
                tags[number] = replace(tags[number], place=len(plain))
    plain.extend(more)


def _nest(tags: Iterable[Tag]) -> tuple[TagNode, ...]:
    """Match pairs as in XML; a tag without a partner is a single one."""
    nodes: list[TagNode] = []  # what is not inside a closed pair
    opened: list[tuple[str, int]] = []  # names of open pairs, and where among the nodes they are
    names: Counter[str] = Counter()
    for tag in tags:
        slash, name, is_empty = _parts(tag.text)
        if slash and names[name]:
            closed, place = "", 0
            while closed != name:  # those opened in between and never closed stay where they are
                closed, place = opened.pop()
                names[closed] -= 1
            nodes[place:] = [TagNode(nodes[place].tag, tag, tuple(nodes[place + 1 :]))]
            continue
        if name and not slash and not is_empty:
            opened.append((name, len(nodes)))
            names[name] += 1
        nodes.append(TagNode(tag))
    return tuple(nodes)


def _parts(text: str) -> tuple[bool, str, bool]:
    """Whether a tag closes, its name, and whether it is empty in itself; no name for what is not an element."""
    found = _NAME.fullmatch(text)
    if found is None:
        return False, "", False
    closes, name = bool(found[1]), found[2].lower()
    is_empty = bool(found[3]) or (name in _EMPTY and not closes) or _CLOSED.search(text) is not None
    return closes, name, is_empty


# --- putting back -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Placed:
    """A translation with the tags of its source."""

    text: str
    is_guessed: bool
    """Whether the place of some tag is a guess: none of its words has a partner, or it stood inside of one."""


def place_tags(
    tagged: Tagged,
    translation: str,
    *,
    target_spans: Sequence[Span],
    links: Iterable[tuple[int, int]],
    normalise: Callable[[str], str] = str,
) -> Placed:
    """A translation with the tags of its source, by the links between their words.

    `target_spans` are the places of the words of the translation; source words are those of the line without tags after
    it was normalised.
    """
    placement = _Placement(_TagPositions(tagged, normalise), links, target_spans, translation=translation)
    return Placed(_spell(_lay_out(tagged.nodes, translation, placement)), placement.has_guessed)


def _end_of_words(text: str) -> int:
    """Where the marks begin that end a sentence, a space before them included; the end of a text that has none."""
    marks = text[len(text.rstrip(_FINAL + _QUOTES)) :].lstrip(_QUOTES)
    return len(text[: -len(marks)].rstrip(" ")) if marks else len(text)


class _TagPositions:
    """Between which words of the normalised line a tag is, found by counting the letters before it."""

    def __init__(self, tagged: Tagged, normalise: Callable[[str], str]) -> None:
        normal = normalise(tagged.plain)
        # Letters, not places: a normaliser may put spaces in or take them out, and words have none.
        spans = word_spans(normal)
        ends = list(accumulate(end - begin for begin, end in spans))
        self.count = len(ends)
        self.has_final = bool(spans) and _is_final(normal[spans[-1][0] : spans[-1][1]])
        """Whether the last word is a mark that ends a sentence."""
        self._begins, self._ends = [0, *ends[:-1]] if ends else [], ends
        line = tagged.plain.rstrip()
        self._marks = _end_of_words(line) if _end_of_words(line) < len(line) else len(tagged.plain)
        self._letters: dict[int, int] = {}
        """How many letters of the normalised line precede each position of a tag."""
        # The line is normalised piece by piece. What composes with the letter before it, such as an accent, is never
        # at the beginning of a piece, so that together they are what the line becomes as a whole.
        plain, places, left = tagged.plain, set[int](), list(tagged.nodes)
        while left:
            node = left.pop()
            places |= {tag.place for tag in (node.tag, node.closing) if tag is not None}
            left += node.children
        done = letters = 0
        for place in sorted(places):
            end = max(place, done)
            while end < len(plain) and _composes(plain[end]):
                end += 1
            piece = normalise(plain[done:end])
            letters += len(piece) - piece.count(" ")
            self._letters[place] = letters
            done = end

    def is_behind_marks(self, tag: Tag) -> bool:
        """Whether a tag follows the marks that end the line, as in "Done. %s"."""
        return tag.place > self._marks

    def before(self, tag: Tag, *, is_opening: bool) -> int:
        """How many words precede a tag; a word that contains it does, unless the tag opens a pair."""
        before = bisect_left(self._begins, self._letters[tag.place])
        return before - 1 if is_opening and self.is_in_word(tag) else before

    def is_in_word(self, tag: Tag) -> bool:
        """Whether a tag is inside a word, as in "ISO%sfile"."""
        letters = self._letters[tag.place]
        before = bisect_left(self._begins, letters)
        return before > 0 and letters < self._ends[before - 1]


def _is_final(word: str) -> bool:
    """Whether a word is a mark that ends a sentence."""
    return bool(word) and not word.strip(_FINAL)


def _composes(character: str) -> bool:
    """Whether a character can become one with that before it, in any Unicode form, or vanishes."""
    if character in NO_BREAKS:
        return True
    first = unicodedata.normalize("NFKD", character)[0]
    return unicodedata.category(first)[0] == "M" or "\u1160" <= first <= "\u11ff"  # Hangul vowels and finals


class _Placement:
    """Where the nodes of a line belong in its translation."""

    def __init__(
        self, words: _TagPositions, links: Iterable[tuple[int, int]], spans: Sequence[Span], *, translation: str
    ) -> None:
        self._words, self._spans = words, spans
        self._length, self._marks = len(translation), _end_of_words(translation)
        self.has_guessed = False
        missing = len(spans)
        first, last = [missing] * words.count, [-1] * words.count  # partners of each word
        # The full stop of a line is that of its translation, and nothing else is: attention is loose there, and a tag
        # should not move across it.
        final = -1
        if spans and _is_final(translation[spans[-1][0] : spans[-1][1]]):
            final = missing - 1
        for source, target in links:
            is_last = words.has_final and source == words.count - 1
            if source < words.count and not is_last and target != final:
                first[source] = min(first[source], target)
                last[source] = max(last[source], target)
        if words.has_final and final >= 0:
            first[-1] = last[-1] = final
        self._first, self._last = _Ranges(first, min), _Ranges(last, max)

    def around(self, node: TagNode) -> Span | None:
        """From where to where the words of a pair have gone; None if it has no words, or they have no partner."""
        if node.closing is None:
            return None
        begin, end = self._words.before(node.tag, is_opening=True), self._words.before(node.closing, is_opening=False)
        if begin == 0 and end >= self._words.count:
            return 0, self._length
        if begin >= end:
            return None
        if self._last.of(begin, end) < 0:
            self.has_guessed = True
            return None
        return self._spans[self._first.of(begin, end)][0], self._spans[self._last.of(begin, end)][1]

    def point(self, tag: Tag) -> Span | None:
        """Where a tag at this position belongs; None if the words next to it are not aligned."""
        gap = self._words.before(tag, is_opening=False)
        self.has_guessed |= self._words.is_in_word(tag)
        if gap == 0:
            return 0, 0
        if gap >= self._words.count:
            place = self._length if self._words.is_behind_marks(tag) else self._marks
            return place, place
        is_before, is_after = self._last.of(gap - 1, gap) >= 0, self._last.of(gap, gap + 1) >= 0
        if is_after and (tag.has_space_before or not is_before):
            place = self._spans[self._first.of(gap, gap + 1)][0]
        elif is_before:
            place = self._spans[self._last.of(gap - 1, gap)][1]
        else:
            return None
        return place, place

    def guess(self, inside: Span) -> Span:
        """The end of a span, for a tag without a place of its own; before the marks that end the sentence."""
        self.has_guessed = True
        begin, end = inside
        place = self._marks if end == self._length and begin <= self._marks else end
        return place, place


class _Ranges:
    """The least or greatest of any run of values: runs of 1, 2, 4 … values are known, and two of them cover any run."""

    def __init__(self, values: list[int], choose: Callable[[int, int], int]) -> None:
        self._choose = choose
        self._runs = [values]
        while (size := 1 << len(self._runs)) <= len(values):
            shorter = self._runs[-1]
            self._runs.append(list(map(choose, shorter, shorter[size // 2 :])))

    def of(self, begin: int, end: int) -> int:
        """Of the values from `begin` to before `end`, of which there must be some."""
        level = (end - begin).bit_length() - 1
        return self._choose(self._runs[level][begin], self._runs[level][end - (1 << level)])


@dataclass
class _Level:
    """Nodes that are laid side by side into a span of the translation."""

    nodes: Iterator[tuple[TagNode, Span]]
    cursor: int
    end: int
    closing: Tag | None
    """What ends the pair that they are inside of."""


def _lay_out(nodes: Sequence[TagNode], translation: str, placement: _Placement) -> list[str | Tag]:
    """Text and tags in a row: of those side by side, the one whose place is first comes first."""
    tokens: list[str | Tag] = []
    levels = [_level(nodes, (0, len(translation)), placement)]
    while levels:
        level = levels[-1]
        node, (start, stop) = next(level.nodes, (None, (0, 0)))
        if node is None:
            tokens.append(translation[level.cursor : level.end])
            if level.closing is not None:
                tokens.append(level.closing)
            levels.pop()
            continue
        if start < level.cursor:
            start = level.cursor
            while start < min(stop, level.end) and translation[start] == " ":
                start += 1
        start = min(start, level.end)
        stop = min(max(stop, start), level.end)
        tokens += [translation[level.cursor : start], node.tag]
        level.cursor = start
        if node.closing is not None:
            level.cursor = stop
            levels.append(_level(node.children, (start, stop), placement, closing=node.closing))
    return tokens


def _level(nodes: Sequence[TagNode], inside: Span, placement: _Placement, *, closing: Tag | None = None) -> _Level:
    """Where the nodes of a level belong.

    Neighbours that touch each other are a run. Its pairs with words go where their words went, its tags next to the
    last such pair before them, or else the first. A run without one goes to one place, by the space before its first.
    """
    runs: list[list[TagNode]] = []
    for node in nodes:
        if runs and node.tag.is_touching:
            runs[-1].append(node)
        else:
            runs.append([node])
    wanted: list[tuple[TagNode, Span, int]] = []  # a node, its span, and where the run that it moves with begins
    for run in runs:
        around = [placement.around(node) for node in run]
        first = next((span for span in around if span is not None), None)
        at = first or placement.point(run[0].tag) or placement.guess(inside)
        key = at[0]  # those before a pair make way as it does, so they have its span
        for node, span in zip(run, around, strict=True):
            if span is not None:
                at, key = span, span[0]
            wanted.append((node, at, key))
            if span is not None:
                at = span[1], span[1]
    # One key for a run, and a sort that keeps the order of equals: nothing comes between what touches.
    in_order = sorted(wanted, key=lambda each: each[2])
    return _Level(iter([(node, span) for node, span, _ in in_order]), *inside, closing)


def _spell(tokens: Iterable[str | Tag]) -> str:
    """Text and tags as one string; single tags keep the spaces that they had, also to their neighbours."""
    parts: list[str] = []
    pending: list[Tag] = []
    for token in [*(token for token in tokens if token != ""), ""]:
        if isinstance(token, Tag):
            pending.append(token)
            continue
        if pending:
            is_alone = any(_is_standing_alone(tag) for tag in pending)
            if is_alone and parts and not parts[-1].endswith(" "):
                ends_word = parts[-1] != "" and sort_of(parts[-1][-1]).is_in_word
                if pending[0].has_space_before or (ends_word and not pending[0].is_after_word):
                    parts.append(" ")
            for before, tag in zip([None, *pending], pending, strict=False):
                if before is not None and not tag.is_touching:
                    had_space = before.has_space_after and tag.has_space_before
                    # Two tags must not become one when the word between them is missing.
                    alone = _is_standing_alone(before), _is_standing_alone(tag)
                    parts.append(" " if all(alone) or (had_space and is_alone) else "")
                parts.append(tag.text)
            is_closed = token[:1] in _NO_SPACE_BEFORE | {" "}
            if is_alone and token and not is_closed:
                begins_word = sort_of(token[0]).is_in_word
                if pending[-1].has_space_after or (begins_word and not pending[-1].is_before_word):
                    parts.append(" ")
            pending = []
        parts.append(token)
    return "".join(parts)


def _is_standing_alone(tag: Tag) -> bool:
    slash, name, is_empty = _parts(tag.text)
    return is_empty or not (name or slash)
