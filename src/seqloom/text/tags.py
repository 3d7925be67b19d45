"""Tags and placeholders: taken out of a line before it is translated, and put back where their words went.

    <b>…</b>            a pair goes around the words that its own words became
    <br/> {0} %s &amp;  one that stands alone goes before the word that it stood before, or after the one it touched

Pairs stay as they were nested: what was inside a pair is inside it again, what was beside it is beside it, though
perhaps on the other side. A tag whose words have no partner goes to the end of what it is in. None is ever lost.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from seqloom.text.words import Span, word_spans

_TAG = re.compile(
    r"""<!--.*?-->                                              # a comment
    | </?[A-Za-z][^<>]*>                                        # HTML and XML
    | \{\{[^{}]*\}\} | \$\{[^{}]*\} | \{[\w.:!,-]*\}            # templates and formats
    | %\([A-Za-z_]\w*\)[-+0\#]*\d*(?:\.\d+)?[a-zA-Z]            # %(name)s
    | (?<!\d)%(?:\d+\$)?[-+0\#]*\d*(?:\.\d+)?[sdifuxXeEgGcr@](?![A-Za-z])
    | (?<!\d)%%
    | &(?:[A-Za-z][A-Za-z0-9]*|\#[0-9]+|\#[xX][0-9A-Fa-f]+);    # an entity
    """,
    re.VERBOSE,
)
_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)[^<>]*?(/?)>")
_BREAKS = frozenset("br hr p div li ul ol dl dt dd table tr td th h1 h2 h3 h4 h5 h6 &nbsp; &#160;".split())  # noqa: SIM905
"""Elements and entities that part words even where no space stands beside them."""
_NO_SPACE_BEFORE = frozenset(".,;:!?…)]}»”’。，、！？；：）」』")


@dataclass(frozen=True)
class Tag:
    """A tag as it is written, and where it stood."""

    text: str
    place: int
    """How many characters of the line without tags stand before it."""
    has_space_before: bool
    has_space_after: bool


@dataclass(frozen=True)
class Node:
    """A tag that stands alone, or a pair with what is inside it."""

    tag: Tag
    closing: Tag | None = None
    children: tuple["Node", ...] = ()


@dataclass(frozen=True)
class Tagged:
    """A line without its tags, and the tags as they are nested."""

    plain: str
    nodes: tuple[Node, ...]


def take_out(line: str) -> Tagged:
    """Part a line from its tags. Where a tag leaves two spaces, or one before a mark, a space goes with it."""
    plain, end = "", 0
    tags: list[Tag] = []
    for match in _TAG.finditer(line):
        plain = _append(plain, line[end : match.start()], tags)
        end = match.end()
        before, after = line[max(0, match.start() - 1) : match.start()], line[end : end + 1]
        tags.append(Tag(match[0], len(plain), not before or before.isspace(), not after or after.isspace()))
    return Tagged(_append(plain, line[end:], tags), _nest(tags))


def _append(plain: str, more: str, tags: list[Tag]) -> str:
    """What stands behind tags, put after what stands before them."""
    passed = [tag for tag in tags if tag.place == len(plain)]
    if not plain.endswith(" "):
        is_break = plain and any((_parts(tag.text)[1] or tag.text) in _BREAKS for tag in passed)
        return f"{plain} {more}" if is_break and more[:1].isalnum() else plain + more
    if not passed:
        return plain + more
    if more.startswith(" "):
        return plain + more.lstrip(" ")
    if more[:1] in _NO_SPACE_BEFORE:
        kept = plain.rstrip(" ")
        tags[:] = [replace(tag, place=min(tag.place, len(kept))) for tag in tags]
        return kept + more
    return plain + more


def _nest(tags: Iterable[Tag]) -> tuple[Node, ...]:
    """Pairs find each other as in XML; one whose partner is missing stands alone."""
    levels: list[list[Node]] = [[]]
    names: list[str] = []
    for tag in tags:
        slash, name, is_empty = _parts(tag.text)
        if slash and name in names:
            while names[-1] != name:  # opened in between and never closed
                _close(levels, names, None)
            _close(levels, names, tag)
        elif name and not slash and not is_empty:
            levels[-1].append(Node(tag))
            levels.append([])
            names.append(name)
        else:
            levels[-1].append(Node(tag))
    while names:
        _close(levels, names, None)
    return tuple(levels[0])


def _close(levels: list[list[Node]], names: list[str], closing: Tag | None) -> None:
    names.pop()
    inner = levels.pop()
    opened = levels[-1].pop()
    levels[-1] += [Node(opened.tag), *inner] if closing is None else [Node(opened.tag, closing, tuple(inner))]


def _parts(text: str) -> tuple[bool, str, bool]:
    """Whether a tag closes, its name, and whether it is empty in itself; no name for what is no element."""
    found = _NAME.fullmatch(text)
    return (bool(found[1]), found[2].lower(), bool(found[3])) if found else (False, "", False)


# --- putting back -----------------------------------------------------------------------------------------------------


def put_back(
    tagged: Tagged,
    translation: str,
    *,
    target_spans: Sequence[Span],
    links: Iterable[tuple[int, int]],
    normalise: Callable[[str], str] = str,
) -> str:
    """A translation with the tags of its source, by the links between their words.

    `target_spans` are the places of the words of the translation; source words are those of the line without tags after
    it was normalised.
    """
    placer = _Placer(tagged.plain, translation, target_spans, links, normalise)
    tokens: list[str | Tag] = []
    placer.write(tokens, tagged.nodes, (0, len(translation)))
    return _spell(tokens)


class _Placer:
    def __init__(
        self,
        plain: str,
        translation: str,
        spans: Sequence[Span],
        links: Iterable[tuple[int, int]],
        normalise: Callable[[str], str],
    ) -> None:
        self._plain, self._normalise = plain, normalise
        self._translation, self._spans = translation, spans
        self._words = self._count(plain)
        self._partners: dict[int, list[int]] = {}
        for source, target in links:
            self._partners.setdefault(source, []).append(target)

    def write(self, tokens: list[str | Tag], nodes: Sequence[Node], inside: Span) -> None:
        """Lay nodes side by side into a span of the translation, by where they would like to begin."""
        cursor, end = inside
        wanted = [self._span(node) or (end, end) for node in nodes]
        for number in sorted(range(len(nodes)), key=lambda number: (wanted[number][0], number)):
            node, (start, stop) = nodes[number], wanted[number]
            if start < cursor:
                start = cursor
                while start < min(stop, end) and self._translation[start] == " ":
                    start += 1
            start = min(start, end)
            stop = min(max(stop, start), end)
            tokens += [self._translation[cursor:start], node.tag]
            if node.closing is not None:
                self.write(tokens, node.children, (start, stop))
                tokens.append(node.closing)
                cursor = stop
            else:
                cursor = start
        tokens.append(self._translation[cursor:end])

    def _span(self, node: Node) -> Span | None:
        """Where a node would like to be; None if none of its words has a partner."""
        if node.closing is None:
            return self._point(node.tag)
        first, last = self._gap(node.tag, is_opening=True), self._gap(node.closing, is_opening=False)
        if first == 0 and last >= self._words:
            return 0, len(self._translation)
        targets = [target for word in range(first, last) for target in self._partners.get(word, ())]
        if not targets:
            return self._point(node.tag)
        return self._spans[min(targets)][0], self._spans[max(targets)][1]

    def _point(self, tag: Tag) -> Span | None:
        gap = self._gap(tag, is_opening=False)
        if gap == 0:
            return 0, 0
        if gap >= self._words:
            return None
        before, after = self._partners.get(gap - 1), self._partners.get(gap)
        if after and (tag.has_space_before or not before):
            place = self._spans[min(after)][0]
        elif before:
            place = self._spans[max(before)][1]
        else:
            return None
        return place, place

    def _gap(self, tag: Tag, *, is_opening: bool) -> int:
        """How many words stand before a tag; a word in which it stands is before it, unless it opens a pair."""
        before = self._count(self._plain[: tag.place])
        is_in_word = before + self._count(self._plain[tag.place :]) > self._words
        return before - 1 if is_in_word and is_opening else before

    def _count(self, text: str) -> int:
        return len(word_spans(self._normalise(text)))


def _spell(tokens: Sequence[str | Tag]) -> str:
    """Text and tags in a row; tags that stand alone keep the spaces that they had."""
    text = ""
    pending: list[Tag] = []
    for token in [*(token for token in tokens if token != ""), ""]:
        if isinstance(token, Tag):
            pending.append(token)
            continue
        if pending:
            is_alone = any(_is_standing_alone(tag) for tag in pending)
            if is_alone and pending[0].has_space_before and text and not text.endswith(" "):
                text += " "
            text += "".join(tag.text for tag in pending)
            is_closed = token[:1] in _NO_SPACE_BEFORE | {" "}
            if is_alone and pending[-1].has_space_after and token and not is_closed:
                text += " "
            pending = []
        text += token
    return text


def _is_standing_alone(tag: Tag) -> bool:
    slash, name, is_empty = _parts(tag.text)
    return is_empty or not (name or slash)
