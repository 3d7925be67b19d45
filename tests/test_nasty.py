"""The nasty text is as nasty as it says: every kind that it promises turns up, and the same ones in every run."""

import codecs
import unicodedata
from collections.abc import Callable
from functools import cache
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis.strategies import SearchStrategy

from nasty import KINDS, LONGEST, broken_texts, files, good_files, line, lines, lines_of, texts
from seqloom.core.symbols import RESERVED

T = TypeVar("T")


def drawn(strategy: SearchStrategy[T], count: int = 100) -> list[T]:
    """What a test of so many examples is given."""
    found: list[T] = []

    @settings(max_examples=count, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def gather(value: T) -> None:
        found.append(value)

    gather()
    return found


@cache
def sample() -> list[str]:
    return drawn(texts(), 1_000)


@cache
def sample_of_files() -> list[bytes]:
    return drawn(files(), 1_000)


def has(characters: str) -> Callable[[str], bool]:
    return lambda text: not set(characters).isdisjoint(text)


def holds(*fragments: str) -> Callable[[str], bool]:
    return lambda text: any(fragment in text for fragment in fragments)


def is_of(*categories: str) -> Callable[[str], bool]:
    return lambda text: any(unicodedata.category(character) in categories for character in text)


def longest_run(text: str, *, of: Callable[[str], bool]) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if of(character) else 0
        longest = max(longest, run)
    return longest


# What is asked of the texts is written without the lists that they are made from.
PROMISED: dict[str, Callable[[str], bool]] = {
    "empty": lambda text: text == "",
    "only spaces": lambda text: text != "" and text.isspace(),
    "line feed": has("\n"),
    "CR LF": holds("\r\n"),
    "lone CR": lambda text: "\r" in text.replace("\r\n", ""),
    "U+2028": has("\u2028"),
    "U+2029": has("\u2029"),
    "U+0085": has("\u0085"),
    "vertical tab": has("\v"),
    "form feed": has("\f"),
    "NUL": has("\0"),
    "C0 controls": has("\x01\x02\x03\x04\x05\x06\x07\x08\x0e\x0f"),
    "C1 controls": lambda text: any("\x86" <= character <= "\x9f" for character in text),
    "terminal escapes": holds("\x1b["),
    "tab": has("\t"),
    "other spaces": has("\u00a0\u2003\u3000"),
    "bidi overrides": has("\u202d\u202e"),
    "bidi isolates": has("\u2066\u2067\u2068"),
    "zero width": has("\u200b\u200c\u200d\u2060"),
    "soft hyphen": has("\u00ad"),
    "BOM in the middle": lambda text: "\ufeff" in text[1:],
    "combining runs": lambda text: longest_run(text, of=lambda c: unicodedata.category(c) == "Mn") >= 5,
    "combining runs longer than are sorted": lambda text: longest_run(text, of=lambda c: c == "\u0301") > 200,
    "ZWJ emoji": holds("👧\u200d👦", "👩🏽\u200d🚒"),
    "flags": holds("🇩🇪"),
    "half a flag": lambda text: text.count("🇩") > text.count("🇩🇪"),
    "astral": lambda text: any(ord(c) > 0xFFFF and unicodedata.category(c)[0] == "L" for c in text),
    "unassigned": lambda text: any(unicodedata.category(c) == "Cn" and ord(c) & 0xFFFE != 0xFFFE for c in text),
    "private use": is_of("Co"),
    "noncharacters": lambda text: any(ord(c) & 0xFFFE == 0xFFFE or "\ufdd0" <= c <= "\ufdef" for c in text),
    "</s> typed out": holds("</s>"),
    "<pad> typed out": holds("<pad>"),
    "<unk> typed out": holds("<unk>"),
    "<s> typed out": holds("<s>"),
    "a byte piece typed out": holds("<0x41>"),
    "the word-begin mark": has("▁"),
    "the joiner": has("￭"),
    "markup": holds("<b>", "</b>", "&amp;"),
    "format strings": holds("%s", "{0}", "%(x)d"),
    "JSON": holds('{"a"'),
    "shell": holds("$(", "`ls`"),
    "SQL": holds("DROP TABLE"),
    "mixed scripts": holds("犬とdog", "p\u0430ypal"),
    "right to left": lambda text: any(unicodedata.bidirectional(character) in ("R", "AL") for character in text),
    "digits of other scripts": lambda text: any(c.isdecimal() and ord(c) > 127 for c in text),
    "digits that are no decimals": lambda text: any(c.isdigit() and not c.isdecimal() for c in text),
    "not in a normal form": lambda text: unicodedata.normalize("NFC", text) != text,
    "long token": lambda text: max(map(len, text.split()), default=0) > LONGEST // 2,
    "long line": lambda text: len(text.split()) > LONGEST // 8,
    "several kinds at once": lambda text: len({unicodedata.category(character) for character in text}) > 6,
}


@pytest.mark.parametrize("kind", PROMISED)
def test_every_kind_that_is_promised_turns_up(kind: str) -> None:
    assert any(map(PROMISED[kind], sample()))


def test_plain_text_has_hardly_any_of_these_kinds() -> None:
    """What is asked above must be able to fail: of an ordinary sentence almost nothing is true."""
    ordinary = "The old dog sleeps in the garden today."
    assert not [kind for kind, is_there in PROMISED.items() if is_there(ordinary)]


@pytest.mark.parametrize("token", RESERVED)
def test_every_reserved_symbol_is_typed_out(token: str) -> None:
    assert any(token in text for text in sample())


def test_a_line_has_no_line_feed_and_is_blank_at_times() -> None:
    found = [each for row in drawn(lines(fewest=1, most=3)) for each in row]
    assert not any("\n" in each for each in found)
    assert "" in found
    assert any(each and not each.strip(" \t\u3000\u200b\xa0") for each in found)
    assert all(each.encode() for each in found if each)


def test_characters_can_be_left_out() -> None:
    for strategy in (texts(without="\0\t"), line(without="\0\t")):
        assert not any(has("\0\t")(text) for text in drawn(strategy))
    assert any(has("\0\t")(text) for text in sample())


def test_texts_are_valid_and_broken_ones_are_not() -> None:
    assert all(text.encode() or not text for text in sample())
    for text in drawn(broken_texts()):
        with pytest.raises(UnicodeEncodeError):
            text.encode()


def test_all_of_it_is_affordable() -> None:
    sizes = sorted(map(len, sample()))
    assert sizes[-1] <= 6 * 2 * LONGEST
    assert sum(sizes) / len(sizes) < LONGEST


def test_the_same_text_comes_in_every_run() -> None:
    assert drawn(texts()) == drawn(texts())
    assert drawn(files()) == drawn(files())


@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_fragment_of_a_kind_is_short(kind: str) -> None:
    assert len(find(KINDS[kind], bool)) <= 15


@pytest.mark.parametrize("smallest", ["\u2028", "\u202e", "\0"])
def test_what_fails_shrinks_to_what_is_nasty_alone(smallest: str) -> None:
    assert find(lines(), lambda found: any(smallest in each for each in found)) == [smallest]


# --- files -----------------------------------------------------------------------------------------------------------


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_cut(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        return error.reason == "unexpected end of data"
    return False


PROMISED_OF_FILES: dict[str, Callable[[bytes], bool]] = {
    "empty": lambda data: data == b"",
    "good": lambda data: bool(data) and is_utf8(data),
    "invalid UTF-8": lambda data: not is_utf8(data) and b"\xff" in data,
    "cut inside a character": is_cut,
    "overlong": lambda data: b"\xc0\x80" in data,
    "a surrogate as UTF-8": lambda data: b"\xed\xa0\x80" in data,
    "CR LF and LF": lambda data: b"\r\n" in data and b"\n" in data.replace(b"\r\n", b""),
    "BOM at the start": lambda data: data.startswith(codecs.BOM_UTF8),
    "BOM inside": lambda data: codecs.BOM_UTF8 in data[1:],
    "UTF-16 with a mark": lambda data: data.startswith(codecs.BOM_UTF16_LE),
    "UTF-16 without a mark": lambda data: b"a\0" in data and not data.startswith(codecs.BOM_UTF16_LE),
    "UTF-32": lambda data: data.startswith(codecs.BOM_UTF32_LE),
    "no final newline": lambda data: bool(data) and not data.endswith(b"\n"),
    "final newline": lambda data: data.endswith(b"\n"),
    "NUL": lambda data: b"\0" in data,
    "Shift JIS": lambda data: "日本語".encode("shift-jis") in data,
    "Latin-1": lambda data: b"caf\xe9" in data,
}


@pytest.mark.parametrize("kind", PROMISED_OF_FILES)
def test_every_kind_of_file_that_is_promised_turns_up(kind: str) -> None:
    assert any(map(PROMISED_OF_FILES[kind], sample_of_files()))


def test_a_plain_file_is_of_no_such_kind() -> None:
    plain = b"The dog sleeps.\n"
    assert [kind for kind, is_there in PROMISED_OF_FILES.items() if is_there(plain)] == ["good", "final newline"]


def test_lines_of_a_good_file_end_at_line_feeds_only() -> None:
    assert lines_of(b"") == []
    assert lines_of(b"\n") == [""]
    assert lines_of("\ufeffa\u2028b\r\n\r\nc\rd\n\ufeffe\r".encode()) == ["a\u2028b", "", "c\rd", "\ufeffe\r"]
    assert all(is_utf8(data) for data in drawn(good_files()))
