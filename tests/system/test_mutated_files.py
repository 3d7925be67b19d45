"""Files that were changed by chance: every reader reads them, or refuses them by name, and does nothing else.

The promise is that no file makes the program show a traceback, hang, or ask for absurd memory. What the readers are is
in `system.readers`, what is done to their files in `system.mutations`.
"""

import gzip
import json
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from seqloom.core.errors import DataError
from system.mutations import Case, Escape, Outcome, attempt, attempt_many
from system.readers import READERS
from system.text_readers import APPROVED, DTD
from text.formats.samples import TMX, XLIFF_2

QUICK, THOROUGH, COSTLY = 3, 1_500, 300
"""Mutations of each file; fewer of those that are read with a whole model or run around them."""

NEVER_REFUSE = frozenset({"journal", "pointer", "run data/train/store.json"})
"""What cannot be read of a journal or a pointer is left out, and ids of a run are made again from its text."""


@pytest.mark.parametrize("name", READERS)
def test_a_file_changed_by_chance_is_read_or_refused_by_its_name(tmp_path: Path, name: str) -> None:
    attempt_many(READERS[name](tmp_path), name=name, count=QUICK)


@pytest.fixture(scope="module")
def others(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """A good file of each kind, to go on as."""
    return [build(tmp_path_factory.mktemp("other")).path.read_bytes() for build in READERS.values()]


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_a_file_changed_in_many_ways_is_read_or_refused_by_its_name(
    tmp_path: Path, name: str, others: list[bytes]
) -> None:
    count = COSTLY if name.startswith(("model", "ngram", "word2vec", "aligner", "run")) else THOROUGH
    outcomes = attempt_many(READERS[name](tmp_path), name=name, count=count, others=others)
    # Otherwise the mutations have missed what the reader looks at.
    assert ("refused" in outcomes) == (name not in NEVER_REFUSE)


# --- what was found so, or by looking --------------------------------------------------------------------------------

FAR = json.dumps({"pid": 10**30, "host": socket.gethostname()}).encode()
SHARED = struct.pack("<7I", 0x950412DE, 0, 200, 28, 28, 0, 0) + struct.pack("<2I", 1_600, 28) * 200
CARD = b'{"source": "en", "target": "en", "parameters": -1e999, "trained_on": {}, "scores": [], "format": 1}'
BRACES = APPROVED.replace("wait", f"{{{'7' * 3_000}}}")
FOUND: dict[str, tuple[str, bytes, Outcome]] = {
    "a model of minus infinity parameters": ("model model.json", CARD, "refused"),
    "a placeholder of thousands of digits": ("approved.xlf filled", BRACES.encode(), "read"),
    "a header with a plural": ("messages.po filled", b'msgid ""\nmsgid_plural "x"\nmsgstr[0] ""\n', "read"),
    "a message about charsets": (
        "messages.po filled",
        b'msgid ""\nmsgstr ""\n\nmsgid "charset=x"\nmsgstr ""\n',
        "read",
    ),
    "a reference that only a DTD could explain": ("memory.tmx filled", TMX.replace('"1"', '"&x;"').encode(), "read"),
    "quotes in an instruction before the root": ("subset.tmx filled", DTD.encode(), "read"),
    "UTF-16 without a mark": ("unmarked.xlf filled", XLIFF_2.encode("utf-16-be"), "read"),
    "a unit that is doubted twice": ("approved.xlf filled", APPROVED.encode(), "read"),
    "messages that lie over each other": ("little.mo pairs", SHARED, "refused"),
    "a lock of a process that cannot be": ("lock", FAR, "read"),
    "a lock that is no text": ("lock", b"\xff", "read"),
    "a pointer to a step of thousands of digits": ("pointer", b"step-" + b"1" * 5_000, "read"),
    "a bomb of n-grams": ("a.arpa.gz", gzip.compress(bytes(1 << 27)), "refused"),
    "a bomb of vectors": ("a.bin.gz", gzip.compress(b"9 9\n" + bytes(1 << 27)), "refused"),
}


@pytest.mark.parametrize("found", FOUND)
def test_what_escaped_once_does_not_again(tmp_path: Path, found: str) -> None:
    name, content, outcome = FOUND[found]
    assert attempt(READERS[name](tmp_path), content) == outcome


# --- controls: a careless reader is seen -----------------------------------------------------------------------------


def _careless_parser(path: Path) -> None:
    for line in path.read_text().split("\n")[:-1]:
        name, number = line.split("\t")
        assert name
        int(number)


def _nameless(path: Path) -> None:
    try:
        _careless_parser(path)
    except (AssertionError, ValueError) as error:
        raise DataError("a line is wrong") from error


def _trusting(path: Path) -> None:
    """Asks for as much as the file says that it holds."""
    data = path.read_bytes()
    bytearray(struct.unpack("<Q", data[:8].ljust(8, b"\0"))[0] & 0xFFFF_FFFF_FFFF)


def _sound(path: Path) -> None:
    try:
        json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: no JSON") from error


CONTROLS: dict[str, tuple[Callable[[Path], None], bytes, str]] = {
    "another exception": (_careless_parser, b"cat\t12\ndog\t7\n", "ValueError|UnicodeDecodeError|AssertionError"),
    "no name": (_nameless, b"cat\t12\ndog\t7\n", "this does not name"),
    "memory": (_trusting, struct.pack("<Q", 9) + bytes(24), "MemoryError"),
}


@pytest.mark.parametrize("control", CONTROLS)
def test_a_careless_reader_is_found_within_forty_mutations(tmp_path: Path, control: str) -> None:
    read, content, message = CONTROLS[control]
    path = tmp_path / "a.txt"
    path.write_bytes(content)
    with pytest.raises(Escape, match=message):
        attempt_many(Case(path, lambda: read(path)), name=control, count=40)


def test_a_sound_reader_is_not_found_fault_with(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"a": [1, 2, "x"]}')
    outcomes = attempt_many(Case(path, lambda: _sound(path)), name="sound", count=300)
    assert set(outcomes) == {"read", "refused"}
    assert attempt(Case(path, lambda: _sound(path)), b"[" * 100_000) == "refused"
