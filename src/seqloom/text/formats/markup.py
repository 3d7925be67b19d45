"""Tokens of HTML with their places, as browsers read them: nothing is an error, and each character is in one token.

In XML, names keep their case and no element has text instead of tags inside; otherwise the rules are the same.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

TokenKind = Literal["text", "raw", "open", "close", "empty", "other"]
"""`raw` is text without entities and tags (of scripts), `empty` is <br> or <x/>, `other` comments and declarations."""

VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())  # noqa: SIM905
RAW = frozenset("script style xmp iframe noembed noframes plaintext".split())  # noqa: SIM905
"""Elements with text inside that has neither tags nor entities."""
TEXT_ONLY = frozenset({"title", "textarea"})
"""Elements with text and entities inside, but no tags."""

_S = r"[ \t\n\r\f]"
# Possessive quantifiers: a tag that does not end is given up at once, and with it, as in a browser, all that follows.
_TAG = re.compile(
    rf"""<(?P<slash>/?)(?P<name>[A-Za-z][^ \t\n\r\f/>]*+)
    (?: [ \t\n\r\f/]++
      | [^ \t\n\r\f/>][^ \t\n\r\f/>=]*+ (?: {_S}*+ = {_S}*+ (?: "[^"]*+" | '[^']*+' | (?!["']) [^ \t\n\r\f>]*+ ) )?+
    )*+ >""",
    re.VERBOSE,
)
_ATTRIBUTE = re.compile(
    rf"""[ \t\n\r\f/]*+ (?P<name>[^ \t\n\r\f/>][^ \t\n\r\f/>=]*+)
    (?: {_S}*+ = {_S}*+ (?: "(?P<double>[^"]*+)" | '(?P<single>[^']*+)' | (?!["']) (?P<bare>[^ \t\n\r\f>]*+) ) )?+""",
    re.VERBOSE,
)
_COMMENT_END = re.compile("--!?>")
_SPACES = re.compile(rf"{_S}+")


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of a text from `start` to before `end`."""

    kind: TokenKind
    start: int
    end: int
    name: str = ""
    """Of an element; in lower case, unless it is XML."""


@dataclass(frozen=True)
class MarkupAttribute:
    """An attribute of a tag: its value, and where that is between its quotes."""

    value: str
    start: int
    end: int
    quote: str
    """Empty if it has none."""


def markup_tokens(text: str, *, is_xml: bool = False) -> Iterator[Token]:
    """All tokens of a text, in their order; together they are the text."""
    at, has_cdata = 0, True
    while at < len(text):
        start = text.find("<", at)
        while start >= 0 and not _can_begin_tag(text[start + 1 : start + 3]):
            start = text.find("<", start + 1)
        if start != at:
            end = start if start >= 0 else len(text)
            yield Token("text", at, end)
            at = end
            continue
        if text.startswith("<!--", at):
            at = _end_of_comment(text, at)
            yield Token("other", start, at)
        elif text.startswith("<![CDATA[", at):
            end = text.find("]]>", at) if has_cdata else -1
            has_cdata = end >= 0
            at = end + 3 if has_cdata else _after(text, ">", at)
            yield Token("other", start, at)
        elif (found := _TAG.match(text, at)) is None:
            # A declaration, an instruction, a bogus comment, or a tag that never ends.
            at = len(text) if _is_letter(text[at + 1 : at + 3].lstrip("/")[:1]) else _after(text, ">", at)
            yield Token("other", start, at)
        else:
            name, at = found["name"], found.end()
            if not is_xml:
                name = name.lower()
            if found["slash"]:
                yield Token("close", start, at, name)
                continue
            is_empty = text[at - 2] == "/" or (name in VOID and not is_xml)
            yield Token("empty" if is_empty else "open", start, at, name)
            if not is_xml and not is_empty and name in RAW | TEXT_ONLY:
                end = _end_of_raw(text, at, name)
                if end > at:
                    yield Token("raw" if name in RAW else "text", at, end)
                at = end


def _is_letter(character: str) -> bool:
    return character.isascii() and character.isalpha()


def _can_begin_tag(after: str) -> bool:
    """Whether what follows < makes it more than text."""
    return after[:1] in ("!", "?") or _is_letter(after[:1]) or (after[:1] == "/" and len(after) > 1)


def _after(text: str, mark: str, at: int) -> int:
    found = text.find(mark, at)
    return len(text) if found < 0 else found + len(mark)


def _end_of_comment(text: str, at: int) -> int:
    for short in ("<!-->", "<!--->"):
        if text.startswith(short, at):
            return at + len(short)
    found = _COMMENT_END.search(text, at + 4)
    return found.end() if found else len(text)


def _end_of_raw(text: str, at: int, name: str) -> int:
    """Where the text inside an element ends that has no tags inside."""
    if name == "plaintext":
        return len(text)
    found = re.compile(rf"</{name}[ \t\n\r\f/>]", re.IGNORECASE).search(text, at)
    return found.start() if found else len(text)


def attributes_of(text: str, token: Token) -> dict[str, MarkupAttribute]:
    """The attributes of a tag by their names in lower case; of those with one name the first counts."""
    attributes: dict[str, MarkupAttribute] = {}
    at = token.start + 1 + len(token.name)
    while at < token.end - 1 and (found := _ATTRIBUTE.match(text, at, token.end - 1)):
        at = found.end()
        group = next((name for name in ("double", "single", "bare") if found[name] is not None), None)
        quote = {"double": '"', "single": "'"}.get(group or "", "")
        start, end = found.span(group) if group else (at, at)
        value = html.unescape(text[start:end])
        attributes.setdefault(found["name"].lower(), MarkupAttribute(value, start, end, quote))
    return attributes


def fold_spaces(text: str) -> str:
    """Text as a browser shows it: a run of white space is one space."""
    return _SPACES.sub(" ", text)
