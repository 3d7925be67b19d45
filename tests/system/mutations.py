"""Good files made bad at random, and what every reader of a file must then do: read it, or refuse it by its name."""

import contextlib
import os
import random
import re
import resource
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from seqloom.core.errors import SeqloomError

Outcome = Literal["read", "refused"]
Chance = random.Random

MEMORY = 1 << 30
"""Bytes that a reader may ask for beyond what the process has. The files here have some thousands."""

_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_VALUE = re.compile(rb'"[^"\n]{0,80}"|-?[0-9]+(?:\.[0-9]+)?|\btrue\b|\bfalse\b|\bnull\b')
_NUMBERS = (b"-1", b"0", b"1e999", b"-1e999", b"nan", b"0.5", b"9" * 19, b"4294967296", b"1000000000", b"7" * 5_000)
_VALUES = (b"null", b"true", b"-1", b"1e999", b"NaN", b'""', b'"x"', b"[]", b"{}", b"[1]", b'{"a": 1}', b'"\\ud800"')
_WORDS = (
    *(b"&foo;", b"&#1;", b"<", b">", b'"', b"'", b"]]>", b"<!--", b"<?x it's ?>", b"\\", b"\\ud800", b"%", b"{", b"}"),
    *(b"\n", b"\r\n", b"\r", b"\t", b" ", b"\0", b"\xef\xbb\xbf", b"\xff\xfe", b"\xe2\x80\xa8", b"\xed\xa0\x80"),
    *(b"utf-16", b"utf-7", b"ascii", b"iso-8859-1", b"BF16", b"F8_E4M3", b"BOOL", b"[" * 3_000, b'{"a":' * 3_000),
)
_WHOLE = (0, 1, 0x7F, 0xFF, 0x7FFF_FFFF, 0xFFFF_FFFF, 1 << 31, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


# --- mutations -------------------------------------------------------------------------------------------------------


def _place(content: bytes, chance: Chance) -> int:
    """Anywhere, or where a line or an element begins: whole lines make files that are more nearly right."""
    starts = [found.end() for found in re.finditer(rb"\n(?=.)", content)] if chance.random() < 0.5 else []
    return chance.choice(starts) if starts else chance.randint(0, len(content))


def _slice(content: bytes, chance: Chance) -> tuple[int, int]:
    one, other = sorted((_place(content, chance), _place(content, chance)))
    return one, other


def _flip(content: bytes, chance: Chance) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _change(content: bytes, chance: Chance) -> bytes:
    changed = bytearray(content)
    if changed:
        changed[chance.randrange(len(changed))] = chance.randrange(256)
    return bytes(changed)


def _cut(content: bytes, chance: Chance) -> bytes:
    return content[: _place(content, chance)]


def _extend(content: bytes, chance: Chance) -> bytes:
    return content + chance.randbytes(chance.choice([1, 2, 7, 8, 100]))


def _repeat(content: bytes, chance: Chance) -> bytes:
    begin, end = _slice(content, chance)
    at = chance.choice([end, _place(content, chance)])
    return content[:at] + content[begin:end] + content[at:]


def _delete(content: bytes, chance: Chance) -> bytes:
    begin, end = _slice(content, chance)
    return content[:begin] + content[end:]


def _swap(content: bytes, chance: Chance) -> bytes:
    a, b, c, d = sorted(_place(content, chance) for _ in range(4))
    return content[:a] + content[c:d] + content[b:c] + content[a:b] + content[d:]


def _overwrite(content: bytes, chance: Chance) -> bytes:
    begin, end = _slice(content, chance)
    end = min(end, begin + chance.choice([1, 4, 8, 1_000]))
    return content[:begin] + chance.choice([b"\0", b"\xff"]) * (end - begin) + content[end:]


def _binary_number(content: bytes, chance: Chance) -> bytes:
    size, begin = chance.choice([2, 4, 8]), chance.randint(0, len(content)) & ~1
    number = chance.choice(_WHOLE) & ((1 << 8 * size) - 1)
    return content[:begin] + number.to_bytes(size, chance.choice(["little", "big"])) + content[begin + size :]


def _replace(pattern: re.Pattern[bytes], instead: Sequence[bytes]) -> "Mutation":
    def change(content: bytes, chance: Chance) -> bytes:
        found = list(pattern.finditer(content))
        if not found:
            return content
        chosen = chance.choice(found)
        return content[: chosen.start()] + chance.choice(instead) + content[chosen.end() :]

    return change


def _insert_word(content: bytes, chance: Chance) -> bytes:
    at = chance.randint(0, len(content))
    return content[:at] + chance.choice(_WORDS) + content[at:]


Mutation = Callable[[bytes, Chance], bytes]
MUTATIONS: Sequence[Mutation] = (
    *(_flip, _change, _cut, _extend, _repeat, _delete, _swap, _overwrite, _binary_number, _insert_word),
    *(_replace(_NUMBER, _NUMBERS), _replace(_VALUE, _VALUES)),
)


def mutated(content: bytes, chance: Chance, *, others: Sequence[bytes]) -> bytes:
    """A file with one thing wrong, or up to three; now and then its head goes on as another good file does."""
    for _ in range(chance.choice([1, 1, 1, 1, 2, 3])):
        if others and chance.random() < 0.05:
            other = chance.choice(others)
            content = content[: _place(content, chance)] + other[_place(other, chance) :]
        else:
            content = chance.choice(MUTATIONS)(content, chance)
    return content


# --- what readers must do --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A good file, and how it is read."""

    path: Path
    """The file that is mutated."""
    read: Callable[[], object]
    """Reads it, makes use of what came out, and asserts that it is of the right kind."""
    vouch: Callable[[], object] = lambda: None
    """Makes hashes that others keep of the file agree with it, so that they do not hide its reader."""
    named: Path | None = None
    """What a refusal must name, if it is not the file but the folder around it."""


Build = Callable[[Path], Case]
"""Writes a good file into an empty folder, and says how it is read."""


class Escape(AssertionError):
    """A reader that met a bad file with something else than a result or a refusal of ours that names the file."""


def attempt(case: Case, content: bytes) -> Outcome:
    """Give a reader this content. What it must not do is an `Escape`."""
    case.path.write_bytes(content)
    case.vouch()
    try:
        with _bounded_memory(), warnings.catch_warnings():
            warnings.simplefilter("error", RuntimeWarning)  # what a user would see of it is a line from a library
            case.read()
    except SeqloomError as error:
        if str(case.named or case.path) not in str(error):
            raise Escape(f"this does not name {case.named or case.path}: {error}") from error
        return "refused"
    except Exception as error:
        raise Escape(f"{type(error).__name__}: {error}") from error
    return "read"


def attempt_many(case: Case, *, name: str, count: int, others: Sequence[bytes] = ()) -> list[Outcome]:
    """Give a reader its good file, which it must read, and so many mutated ones."""
    good = case.path.read_bytes()
    assert attempt(case, good) == "read"
    outcomes: list[Outcome] = []
    for number in range(count):
        content = mutated(good, random.Random(f"{name} {number}"), others=others)
        try:
            outcomes.append(attempt(case, content))
        except Escape as error:
            shown = content if len(content) <= 2_000 else content[:2_000] + b" ..."
            raise Escape(f"{name}, mutation {number}: {error}\nthe file was {shown!r}") from error
    return outcomes


@contextlib.contextmanager
def _bounded_memory() -> Iterator[None]:
    """Let whoever asks for absurd memory meet a MemoryError, where the system can do that."""
    pages = Path("/proc/self/statm")
    if not pages.exists():
        yield
        return
    has = int(pages.read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if soft != resource.RLIM_INFINITY and soft <= has + MEMORY:
        yield
        return
    resource.setrlimit(resource.RLIMIT_AS, (has + MEMORY, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
