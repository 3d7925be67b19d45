"""What counts as a placeholder, and that looking for them takes linear time."""

import time
from collections import Counter

import pytest

from seqloom.text.formats.placeholders import (
    MAX_ENCLOSED_LENGTH,
    count_placeholders,
    find_placeholders,
    is_too_long,
    without_placeholders,
)


def _found(text: str) -> list[str]:
    return [each.text for each in find_placeholders(text)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Save %s and %-5.2lf", ["%s", "%-5.2lf"]),
        ("%1$d of %2$s, %(name)s", ["%1$d", "%2$s", "%(name)s"]),
        ("%dx%d pixels", ["%d", "%d"]),
        ("100%% of %d%%, %5.1f%%s", ["100%%", "%d", "%%", "%5.1f", "%%"]),
        ("1,000.5%%, x2%%, .5%%, %d 7%%", ["1,000.5%%", "%%", "%%", "%d", "7%%"]),
        ("100% sure, 50% off, 5 % more, 100%ig, 100%dünn, 1,5%ige, 100% der", []),
        ("50%-Rabatt, 50 %-ige, 9\u00a0%-Satz, 100%<b>so</b>", ["<b>", "</b>"]),
        ("100%s, 5 %d of 7 %sx, ISO9660%sdatei, v2%dfoo", ["%s", "%d", "%s", "%s", "%d"]),
        ("%I64d %I32u %Id %I:%M %w64x", ["%I64d", "%I32u", "%Id", "%I", "%M", "%w64x"]),
        ("%*1$d %2$*1$d %-*.*f %.*2$s %.f.", ["%*1$d", "%2$*1$d", "%-*.*f", "%.*2$s", "%.f"]),
        ("%(na(m)e)s %(n)ld %(n)-5.2f %(a)*d", ["%(na(m)e)s", "%(n)ld", "%(n)-5.2f", "%(a)*d"]),
        ("%<PRIu64>x %-5<PRIdMAX> %1$<PRIx32>", ["%<PRIu64>", "%-5<PRIdMAX>", "%1$<PRIx32>"]),
        ("%1 of %2 by %n, %L1", ["%1", "%2", "%n", "%L1"]),
        ("%1 %2, %3%4. Open %5.", ["%1", "%2", "%3", "%4", "%5"]),
        ("%1% of %2%, %1.2f", ["%1%", "%2%", "%1.2f"]),
        ("%{name} %<count>d", ["%{name}", "%<count>d"]),
        ("%Y-%m-%d in %APPDATA%", ["%Y", "%m", "%d", "%APPDATA%"]),
        ("{} {0} {name!r:>10} {{x}} ${y} #{z}", ["{}", "{0}", "{name!r:>10}", "{{x}}", "${y}", "#{z}"]),
        ("{n, number, integer} at {d, date}", ["{n, number, integer}", "{d, date}"]),
        ("{n, plural, one {# file} other {# files}}!", ["{n, plural, one {# file} other {# files}}"]),
        ("an open { brace", []),
        ('<a href="%s">here</a><br/>', ['<a href="%s">', "</a>", "<br/>"]),
        ("a < b and <!-- a > b --> c", ["<!-- a > b -->"]),
        ("a <!-- that never ends", []),
        ("fish &amp; chips &#160; A&B", ["&amp;", "&#160;"]),
        ("see https://example.org/%s, or (http://a.b/c).", ["https://example.org/%s", "http://a.b/c"]),
        ("mail to a.b@example.org.", ["a.b@example.org"]),
        ("use --verbose or -v, well--known", ["--verbose"]),
        ("$HOME costs $5", ["$HOME"]),
        ("one\\ntwo \\u00e9", ["\\n", "\\u00e9"]),
        ("one \n two", [" \n "]),
    ],
)
def test_placeholders_are_found(text: str, found: list[str]) -> None:
    assert _found(text) == found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("% d dogs, 100% der, %+ -5d, % (x)d", ["% d", "% d", "%+ -5d"]),
        ("100%sure, 50 %-ige", ["%s", "%-i"]),
        ("%X_%d and %(name)s, 100%%, 5 %.", ["%X", "%d", "%(name)s", "100%%"]),
    ],
)
def test_in_a_format_every_percent_sign_counts(text: str, found: list[str]) -> None:
    assert [each.text for each in find_placeholders(text, is_format=True)] == found
    assert count_placeholders(text, is_format=True) == Counter(found)
    assert not list(find_placeholders(without_placeholders(text, is_format=True), is_format=True))


def test_a_plural_of_icu_holds_text_and_a_number_does_not() -> None:
    assert [each.holds_text for each in find_placeholders("{n, plural, other {x}} {n, number} {{x}}")] == [
        True,
        False,
        False,
    ]


def test_counting_does_not_look_at_the_spaces_around_a_line_end() -> None:
    assert count_placeholders("a  \n b %s") == count_placeholders("c\n%s d")


def test_what_appears_as_others_go_is_taken_out_as_well() -> None:
    assert without_placeholders("50 %&amp;s and {<b>0}") == "50  and "
    assert _found(without_placeholders("%%%ss {{{0}}} &a{0}mp;")) == []


@pytest.mark.parametrize(
    "unit",
    [
        "<",
        "<!--",
        "{",
        "%",
        "%(",
        "%(()",
        "1%s",
        "1,",
        "1",
        "&",
        "a.",
        "--a",
        "http:",
        "\\",
        "$",
        "{a",
        "a@",
        " \n",
        "<a ",
    ],
)
def test_the_time_is_linear_in_the_length(unit: str) -> None:
    def seconds(length: int) -> float:
        text, begin = unit * length, time.process_time()
        sum(1 for _ in find_placeholders(text))
        is_too_long(text)
        return time.process_time() - begin

    # Braces and comments are looked through for their end, up to a limit.
    assert seconds(5_000) < 5


def test_a_run_of_spaces_is_gone_through_once() -> None:
    # Each space tried by itself would take a million million steps.
    text = f"a{' ' * 1_000_000}b \n {' ' * 1_000_000}c\t\n\n d"
    assert [each.is_line_end for each in find_placeholders(text)] == [True] * 3
    assert _found("a \n \n\t b\r\n c") == [" \n ", "\n\t ", "\r\n "]


def test_braces_inside_braces_are_gone_through_once() -> None:
    class Counting(str):
        looks = 0

        def __getitem__(self, place: object) -> str:
            Counting.looks += 1
            return super().__getitem__(place)  # type: ignore[index]

    text = Counting("{" * 1_500 + "}" + "{a {b} {{c}}}")
    found = list(find_placeholders(text))
    assert [each.text for each in found] == ["{}", "{a {b} {{c}}}"]
    assert [each.holds_text for each in found] == [False, True]
    assert Counting.looks <= len(text)


@pytest.mark.parametrize(("inside", "found"), [(MAX_ENCLOSED_LENGTH - 1, 1), (MAX_ENCLOSED_LENGTH, 0)])
def test_braces_that_are_far_apart_are_no_pair(inside: int, found: int) -> None:
    assert len(_found("{" + "a" * inside + "}")) == found


@pytest.mark.parametrize(
    ("before", "after", "rest"),
    [("{", "}", 0), ("<!--", "-->", 2), ("{a {b} ", " {c}}", 10), ("<!-- --><!--", "-->", 2)],
)
def test_what_is_too_long_to_be_found_is_known_to_be_there(before: str, after: str, rest: int) -> None:
    assert not is_too_long(before + "a" * (MAX_ENCLOSED_LENGTH - 1 - rest) + after)
    assert _found(before + "a" * (MAX_ENCLOSED_LENGTH - 1 - rest) + after)[-1].endswith("a" + after)
    assert is_too_long(before + "a" * (MAX_ENCLOSED_LENGTH - rest) + after)
    assert not is_too_long(before + "a" * MAX_ENCLOSED_LENGTH)
