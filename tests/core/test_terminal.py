"""What a terminal is shown of text that it must not obey."""

import io
import json

import pytest
from hypothesis import given

import nasty
from seqloom.core.terminal import TerminalWriter, visible, visible_lines

OBEYED = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;title\x07", "\\u001b]0;title\\u0007"),
        ("\x9b2J", "\\u009b2J"),
        ("good\rbad", "good\\u000dbad"),
        ("a\b\b", "a\\u0008\\u0008"),
        ("\u202eevil\u2066", "\\u202eevil\\u2066"),
        ("a\tb\nc", "a b c"),
        ("Größe שלום 👩‍👩‍👧 می‌خواهم \u200e", "Größe שלום 👩‍👩‍👧 می‌خواهم \u200e"),
    ],
)
def test_what_would_be_obeyed_is_spelt_and_all_else_stays(text: str, shown: str) -> None:
    assert visible(text) == shown


@given(nasty.texts())
def test_nothing_that_is_obeyed_is_left_and_twice_is_once(text: str) -> None:
    assert not OBEYED & set(map(ord, visible(text)))
    assert not (OBEYED - {9, 10}) & set(map(ord, visible_lines(text)))
    assert visible(visible(text)) == visible(text)


@given(nasty.texts())
def test_a_line_of_json_stays_what_it_was(text: str) -> None:
    assert json.loads(visible(json.dumps(text, ensure_ascii=False))) == text


def test_a_stream_to_a_terminal_keeps_tabs_and_lines_alone() -> None:
    raw = io.BytesIO()
    stream = TerminalWriter(raw, encoding="utf-8", newline="\n")
    print("a\tb\x1b[2J\nc\r", file=stream, flush=True)
    assert raw.getvalue() == b"a\tb\\u001b[2J\nc\\u000d\n"
