r"""Strings of message catalogues: "quoted", escaped as in C, and going on over several lines."""

import re

WIDTH = 79
"""Columns up to which gettext fills a line."""

_STRING = re.compile(r'[ \t]*"((?:[^"\\\n]|\\.)*)"')
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]++)|(.))", re.DOTALL)
_BYTE = re.compile("[\udc80-\udcff]")
_MEANINGS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_WRITTEN = {value: f"\\{name}" for name, value in _MEANINGS.items()} | {"\\": "\\\\", '"': '\\"'}
_TO_ESCAPE = re.compile(r'[\x00-\x1f\x7f\\"]')
_WORD = re.compile(r"[^ ]*+ *+(?!$)|[^ ]*+ *+")


def read_strings(line: str) -> tuple[str, int]:
    """What the strings of a line say together, and where the last one ends; -1 if something else is there."""
    values, end = [], 0
    while found := _STRING.match(line, end):
        values.append(unescape(found[1]))
        end = found.end()
    return "".join(values), end if values and not line[end:].strip() else -1


def unescape(text: str) -> str:
    """The characters that escapes stand for; bytes beyond ASCII, which are parts of characters, as lone surrogates."""
    return _ESCAPED.sub(_meaning, text) if "\\" in text else text


def _meaning(found: "re.Match[str]") -> str:
    if found[3] is not None:
        return _MEANINGS.get(found[3], found[3])
    byte = (int(found[1], 8) if found[1] is not None else int(found[2][-2:], 16)) & 0xFF  # as in C, what is over goes
    return chr(byte) if byte < 0x80 else chr(0xDC00 + byte)


def with_bytes(text: str, encoding: str) -> str:
    """A text whose lone surrogates are read as bytes, together with their neighbours, or else a UnicodeError."""
    if _BYTE.search(text) is None:
        return text
    return text.encode(encoding, errors="surrogateescape").decode(encoding)


def escape(text: str) -> str:
    """A text as it stands between quotes."""
    return _TO_ESCAPE.sub(lambda found: _WRITTEN.get(found[0], f"\\{ord(found[0]):03o}"), text)


def write_strings(text: str, *, column: int, line_end: str = "\n", is_wrapped: bool = True) -> str:
    """A text in quotes, after `column` characters of its line: on one line, or begun anew after each line end."""
    lines = [escape(line) for line in re.split(r"(?<=\n)", text)]
    lines = lines[:-1] if lines[-1] == "" and len(lines) > 1 else lines
    if len(lines) == 1 and (not is_wrapped or column + len(lines[0]) + 2 <= WIDTH):
        return f'"{lines[0]}"'
    filled = [part for line in lines for part in (_fill(line) if is_wrapped else [line])]
    return line_end.join(['""', *(f'"{part}"' for part in filled)])


def _fill(line: str) -> list[str]:
    """A line in parts that fit, each with the spaces after its words."""
    parts = [""]
    for word in _WORD.findall(line):
        if parts[-1] and len(parts[-1]) + len(word) + 2 > WIDTH:
            parts.append("")
        parts[-1] += word
    return parts
