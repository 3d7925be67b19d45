"""Whole symbols beside a text: a line "walk TAB V;PST" is the text "walk" with the symbols V and PST.

A symbol is never cut, and its piece begins with a space, which no piece of a text does: the symbol V and the letter V
have different ids.
"""

import re
from collections.abc import Iterable

_cut = re.compile(r"[^;|\s]+").findall


def split_symbols(line: str) -> tuple[str, list[str]]:
    """The text of a line, and its symbols."""
    text, _, rest = line.partition("\t")
    return text, _cut(rest)


def join_symbols(columns: Iterable[str]) -> str:
    """The symbols of some columns, in one."""
    return ";".join(symbol for column in columns for symbol in _cut(column))


def with_symbols(text: str, symbols: str) -> str:
    """A line of both; the text alone where it has no symbols."""
    return f"{text}\t{symbols}" if symbols else text


def piece_of(symbol: str) -> str:
    """The piece of a symbol in a vocabulary."""
    return f" {symbol}"
