"""Text from files, models and arguments as a terminal may show it.

A terminal obeys what it is sent: an escape sequence moves the cursor, rewrites lines that were there, names the window
or hides what follows; a direction override lets text be read backwards. None of that may come from data, so such
characters are written out, as JSON would write them: ESC becomes \\u001b. A line of JSON therefore stays what it was.
"""

import io

_CONTROLS = [*range(0x20), *range(0x7F, 0xA0)]
_OVERRIDES = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
"""Embeddings, overrides and isolates of direction. Marks that only set the direction of their neighbours stay."""

_SPELT = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_OVERRIDES)}
_OF_LINES = {**_SPELT, **dict.fromkeys(map(ord, "\t\n"), " ")}
_OF_STREAM = {code: spelt for code, spelt in _SPELT.items() if code not in map(ord, "\t\n")}


def visible(text: str) -> str:
    """One line that a terminal shows unchanged: control characters and direction overrides are spelt out.

    Tabs and line feeds do no harm but break a line: they become spaces.
    """
    return text.translate(_OF_LINES)


def visible_lines(text: str) -> str:
    """The same for text of several lines: tabs and line feeds stay."""
    return text.translate(_OF_STREAM)


class TerminalWriter(io.TextIOWrapper):
    """A text stream to a terminal on which only tabs and line feeds are obeyed."""

    def write(self, text: str, /) -> int:
        super().write(visible_lines(text))
        return len(text)
