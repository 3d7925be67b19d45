"""Nasty text: one strategy for every place where text comes in, so that what hurt one of them is tried on all.

texts            any text that UTF-8 can write, line feeds and NUL among it
lines, line      the same without LF: what one line of a file may hold
broken_texts     with half a surrogate pair, which JSON and Python can bring but no file
files            the bytes of a file: good text, damaged text, other encodings, no text at all
lines_of         the lines that a reader must find in the bytes of a good file

A text is a few fragments in a row. `KINDS` has them by name, the harmless first: a failing text shrinks towards
fewer fragments, and towards fragments further up. Nothing of the package is called while text is drawn: its checks of
types draw random numbers, and the examples would differ from run to run.
"""

import codecs
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from seqloom.core.symbols import RESERVED

LONGEST = 600
"""Characters of the longest fragment, unless asked for more: longer than any limit of the tiny models."""

LINE_BREAKS = "\u2028\u2029\x85\v\f\r\x1c\x1d\x1e"
"""What `str.splitlines` takes for the end of a line and a file of ours does not."""

BIDI = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c"
"""Embeddings, overrides, isolates and marks of direction."""

INVISIBLE = "\u200b\u200c\u200d\u2060\ufeff\u00ad\u034f\u180e\u115f\u3164"
"""Zero-width spaces and joiners, the byte-order mark inside a text, the soft hyphen, fillers."""

SPACES = ("\t", "\u00a0", "\u3000", "\u2003", "\u1680", "\u202f", "  ", "   \t ")

NONCHARACTERS = "\ufdd0\ufdef\ufffe\uffff\U0001fffe\U0001ffff\U0010ffff"

EMOJI = (
    *("😀", "❤️", "1️⃣", "👩🏽‍🚒", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "🇩", "🏴\U000e0067\U000e0062\U000e007f"),
    *("\U0001f3fd", "\u200d👧", "a\ufe0f"),
)

TYPED_OUT = (*RESERVED, "▁", "<0x41>")
"""Reserved symbols and signs of our own tokens, as somebody may write them."""

SIGNS = (
    "￭",
    "▅",
    "⁇",
    "▁▁a",
    "￭,￭",
    "<0x0A>",
    "\x1a",
    "\ufffd",
    "[UNK]",
    "<mask>",
    "<|endoftext|>",
    "< unk >",
    "<UNK>",
)
"""More of them, and those of others."""

MARKUP = (
    *("<b>", "</b>", "<br/>", '<a href="x>y">', "<!--", "]]>", "<![CDATA[", "<?pi", "&amp;", "&#0;", "&lt;b&gt;"),
    *("<", ">", "&"),
)

FORMATS = ("%s", "%(x)d", "%", "%%", "{0}", "{", "}", "{{x}}", "${HOME}", "{0!r:>{1}}", "\\n", "\\", "[bold]", "[/]")

DATA = (
    *("a=b", "'", '"', '{"a": [1, null]}', '"\\ud800"', '"a,""b"', "key: no", "---", "# x", "# sent_id = 1", "\\N"),
    *("a ||| b ||| 0", "0-0 1-1", "=1+1"),
)
"""What formats of ours and of others read as something else than text."""

COMMANDS = (
    *("-", "--json", "@a", "../..", "C:\\x", "$(exit 1)", "`ls`", "; exit 1", "| cat", "'; DROP TABLE x; --"),
    *("http://a.b/?q=%20", "a@b.c"),
)

SCRIPTS = (
    *("p\u0430ypal", "犬とdog", "我们在海边。", "「行く。」", "한국어", "สวัสดี", "नमस्ते।", "Ωmega", "Это", "Սա"),
    *("ﬁn", "İı", "Straße", "ẞ", "ǅ", "\u212b", "ΟΔΟΣ", "cafe\u0301", "ｶﾞ", "\u1100\u1161\u11a8", "ꙮ", "ŉ"),
)

RIGHT_TO_LEFT = ("שלום", "سلام", "می\u200cخواهم", "abc שלום 123", "(العربية)", "\u0627\ufdf2", "𐤀")

NUMBERS = (
    *("١٢٣", "۴۵", "१२३", "一二三", "Ⅷ", "½", "²", "③", "𝟘𝟙", "๑", "1,000.50", "1 984", "3.14.15", "１２"),
    *("1e400", "-0", "nan", "inf", "0x10", "1_000", "007"),
)

PLAIN = ("a", " ", "the dog", "Ein Mann läuft.", "a", " ", "Yes! No?", "Dr. No said: 'so', (and) went.", ".")

_ENDS = (b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b"\n\r\n")
_CUT = (b"\xff", b"\xfe", b"\x80", b"\xc3", b"\xe2\x82", b"\xf0\x9f\x98", b"\xc3(")
_FORBIDDEN = (b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80")  # too long, a surrogate, above U+10FFFF
_FOREIGN = (b"\0", b"\0\0\0\0", b"\x1f\x8b\x08", codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF32_BE)
_WIDE = ("utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be", "utf-8-sig")
_NARROW = ("café\n".encode("latin-1"), "Mädchen\r\n".encode("latin-1"), "日本語\n".encode("shift-jis"), b"plain\n")


def _kinds(longest: int) -> dict[str, SearchStrategy[str]]:
    """A strategy for each kind of fragment, of at most so many characters."""
    size = st.integers(1, longest)
    marks = st.text(st.characters(categories=["Mn", "Me"]), min_size=1, max_size=12)
    return {
        "plain": st.sampled_from(PLAIN),
        "spaces": st.sampled_from(SPACES),
        "scripts": st.sampled_from(SCRIPTS),
        "right_to_left": st.sampled_from(RIGHT_TO_LEFT),
        "numbers": st.sampled_from(NUMBERS),
        "typed_out": st.sampled_from(TYPED_OUT),
        "signs": st.sampled_from(SIGNS),
        "markup": st.sampled_from(MARKUP),
        "formats": st.sampled_from(FORMATS),
        "data": st.sampled_from(DATA),
        "commands": st.sampled_from(COMMANDS),
        "emoji": st.sampled_from(EMOJI),
        "any": st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"), min_size=1, max_size=8),
        "combining": st.builds(lambda letter, run: letter + run, st.sampled_from("eo カ"), marks),
        "line_breaks": st.text(LINE_BREAKS, min_size=1, max_size=3),
        "bidi": st.text(BIDI, min_size=1, max_size=3),
        "invisible": st.text(INVISIBLE, min_size=1, max_size=3),
        "control": st.text(st.characters(categories=["Cc"], exclude_characters="\n"), min_size=1, max_size=3),
        "escapes": st.sampled_from(["\x1b[31m", "\x1b]0;x\x07", "\x1b[2J", "\b\b", "\x7f"]),
        "nul": st.sampled_from(["\0", "a\0b"]),
        "astral": st.characters(min_codepoint=0x10000, categories=["L", "N", "S"]),
        "private": st.characters(categories=["Co"]),
        "unassigned": st.characters(categories=["Cn"]),
        "noncharacters": st.sampled_from(NONCHARACTERS),
        # A letter, a mark, a sign, one character with a combining run longer than the 200 that is cut there.
        "long_token": st.builds(str.__mul__, st.sampled_from(["a", "-", "é", "我", "\u0301", "😀", "１", "ab"]), size),
        "long_line": st.builds(
            lambda word, count: word * max(1, count // len(word)),
            st.sampled_from(["a ", "dog, ", "No. ", "我。"]),
            size,
        ),
    }


KINDS: Mapping[str, SearchStrategy[str]] = MappingProxyType(_kinds(LONGEST))
"""The fragments of a line by what is nasty about them."""

_LINE_FEEDS = st.sampled_from(["\n", "\r\n", "\n\n", "\n\r", "a\n b"])


def _joined(fragments: SearchStrategy[str], *, most: int, without: str) -> SearchStrategy[str]:
    whole = st.lists(fragments, max_size=most).map("".join)
    # Characters are taken out, not the texts that have them: almost every text would be lost.
    return whole.map(lambda text: text.translate(dict.fromkeys(map(ord, without)))) if without else whole


@cache
def texts(*, most: int = 6, longest: int = LONGEST, without: str = "") -> SearchStrategy[str]:
    """Any text: at most so many fragments of at most so many characters, without some characters."""
    fragments = st.one_of(*_kinds(longest).values(), _LINE_FEEDS)
    return _joined(fragments, most=most, without=without)


@cache
def line(*, most: int = 6, longest: int = LONGEST, without: str = "") -> SearchStrategy[str]:
    """The same without LF. An empty line, and one of nothing but spaces, are among them."""
    spaces = _joined(st.sampled_from(" \t\u3000\u200b\xa0"), most=3, without=without)
    whole = _joined(st.one_of(*_kinds(longest).values()), most=most, without=without + "\n")
    return st.one_of(whole, whole, whole, spaces)


def lines(*, fewest: int = 0, most: int = 6, longest: int = LONGEST, without: str = "") -> SearchStrategy[list[str]]:
    """Between so many lines and so many, each with fragments of at most so many characters."""
    return st.lists(line(most=4, longest=longest, without=without), min_size=fewest, max_size=most)


def broken_texts(*, most: int = 3) -> SearchStrategy[str]:
    """Text with half a surrogate pair somewhere."""
    half = st.characters(categories=["Cs"])
    return st.builds(lambda before, broken, after: before + broken + after, texts(most=most), half, texts(most=most))


def good_files(*, fewest: int = 0, most: int = 6, longest: int = LONGEST, without: str = "") -> SearchStrategy[bytes]:
    """The bytes of a file in UTF-8: LF and CR LF mixed, at times with a mark at the start or without a last LF."""
    written = st.lists(
        st.tuples(line(most=4, longest=longest, without=without).map(str.encode), st.sampled_from(_ENDS)),
        min_size=fewest,
        max_size=most,
    )
    marks = st.sampled_from([b"", b"", b"", codecs.BOM_UTF8])
    ends = st.sampled_from([b"", b"", b"the end", b"\r", b" "])
    return st.builds(lambda mark, rows, end: mark + b"".join(map(b"".join, rows)) + end, marks, written, ends)


def files(*, longest: int = LONGEST) -> SearchStrategy[bytes]:
    """The bytes of any file: good, damaged, cut inside a character, in another encoding, or no text at all."""
    good = good_files(longest=longest)
    encoded = line(most=3, longest=longest).map(str.encode)
    pieces = st.one_of(encoded, *map(st.sampled_from, (_ENDS, _CUT, _FORBIDDEN, _FOREIGN)))
    damaged = st.lists(pieces, max_size=8).map(b"".join)
    cut = st.builds(lambda data, at: data[: len(data) - at], good, st.integers(1, 4))
    wide = st.builds(
        lambda data, encoding: data.decode().encode(encoding, "replace"), good_files(longest=20), st.sampled_from(_WIDE)
    )
    narrow = st.lists(st.sampled_from(_NARROW), max_size=4).map(b"".join)
    return st.one_of(good, damaged, damaged, cut, wide, narrow, st.binary(max_size=60))


def lines_of(data: bytes) -> list[str]:
    """The lines of a good file: LF ends them and nothing else does, the last may lack it, and CR before it goes."""
    found = data.decode().removeprefix("\ufeff").split("\n")
    ended, last = found[:-1], found[-1]
    return [each.removesuffix("\r") for each in ended] + ([last] if last else [])
