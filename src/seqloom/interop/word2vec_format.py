"""Word vectors in the formats of the original word2vec, which gensim, fastText, spaCy and others read and write.

    text     a line `words width`, then a line per word: the word and its numbers, with spaces between
    binary   the same first line, then for each word its bytes, a space, and its numbers as little-endian float32

A file is binary if its name ends in `.bin` (or `.bin.gz`); both may be compressed by gzip.
"""

import gzip
import re
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float32

from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.files import read_lines, require_file, require_folders_above, write_atomically
from seqloom.core.text_files import read_whole

_HEADER = re.compile(r"\s*([0-9]{1,18})\s+([0-9]{1,18})\s*")
_WIDEST = 100_000


def is_binary_name(path: Path) -> bool:
    """Whether a file of this name is taken to be binary."""
    return path.suffix == ".bin" or path.suffixes[-2:] == [".bin", ".gz"]


def write_vectors(vectors: WordVectors, path: Path, *, binary: bool | None = None) -> None:
    """Write all words with their vectors; as text or binary by the name of the file, unless it is given."""
    require_folders_above(path)
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name the file to write the vectors to")
    unwritable = [word for word in vectors.words if not word or re.search(r"\s", word)]
    if unwritable:
        raise DataError(
            f"{len(unwritable)} words are empty or hold spaces, which these formats use to end a word: {unwritable[:5]}"
        )
    header = f"{len(vectors)} {vectors.width}\n".encode()
    if is_binary_name(path) if binary is None else binary:
        numbers = np.ascontiguousarray(vectors.vectors, "<f4")
        rows = [word.encode("utf-8") + b" " + row.tobytes() for word, row in zip(vectors.words, numbers, strict=True)]
        data = header + b"".join(rows)
    else:
        # Nine digits give every float32 back as it was.
        form = " ".join(["%.9g"] * vectors.width)
        lines = [
            f"{word} {form % tuple(row)}\n" for word, row in zip(vectors.words, vectors.vectors.tolist(), strict=True)
        ]
        data = header + "".join(lines).encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def read_vectors(path: Path, *, binary: bool | None = None) -> WordVectors:
    """Read all words with their vectors; as text or binary by the name of the file, unless it is given.

    The formats hold no counts, so they are zeros; words are assumed to be in order of falling frequency.
    """
    is_binary = is_binary_name(path) if binary is None else binary
    found = _read_binary(path) if is_binary else _read_text(path)
    seen: set[str] = set()
    repeated = [word for word in found.words if word in seen or seen.add(word)]  # type: ignore[func-returns-value]
    if repeated:
        raise DataError(f"{path}: {len(repeated)} words have more than one vector, such as {repeated[:3]}")
    is_finite = np.isfinite(found.vectors).all(axis=1)
    problems = [
        Problem(what, str(path), found.lines[row] if found.lines else None)
        for row, word in enumerate(found.words)
        if (what := _wrong_with(word, row, is_finite=bool(is_finite[row])))
    ]
    if problems:
        raise DataError("invalid word vectors; drop such words, or get the file again", problems=problems)
    return WordVectors(tuple(found.words), found.vectors, np.zeros(len(found.words), np.int64))


@dataclass(frozen=True)
class _Read:
    """What a file holds; `lines` are those of the words, where it has lines."""

    words: list[str]
    vectors: Float32[np.ndarray, "words width"]
    lines: list[int]


def _wrong_with(word: str, row: int, *, is_finite: bool) -> str | None:
    if not word:
        return f"word {row + 1:,} is empty"
    return None if is_finite else f"the vector of {word!r}, word {row + 1:,}, has numbers that are not finite"


# --- text -------------------------------------------------------------------------------------------------------------


def _read_text(path: Path) -> _Read:
    lines = iter(read_lines(path))
    count, width = _sizes(next(lines, ""), path)
    words: list[str] = []
    numbers: list[int] = []
    rows: list[Float32[np.ndarray, " width"]] = []
    for number, line in enumerate(lines, start=2):
        if not line.strip():
            continue
        parts = line.rstrip(" ").rsplit(" ", width)  # from the right: some programs write phrases with spaces
        try:
            if len(parts) != width + 1:
                raise ValueError
            rows.append(np.array(parts[1:], np.float32))
        except ValueError:
            what = f"{line[:40]!r} … is not a word and {width} numbers, as the first line says"
            raise DataError(problems=[Problem(what, str(path), number)]) from None
        words.append(parts[0])
        numbers.append(number)
    _require_count(path, found=len(words), wanted=count)
    return _Read(words, np.stack(rows), numbers)


# --- binary -----------------------------------------------------------------------------------------------------------


def _read_binary(path: Path) -> _Read:
    data = _bytes_of(path)
    end = data.find(b"\n", 0, 100)
    count, width = _sizes(data[: max(end, 0)].decode("ascii", errors="replace"), path)
    size = 4 * width
    # The first line may be wrong: memory is allocated only if the file can hold so many numbers.
    if count * size > len(data):
        raise DataError(
            f"{path} is cut short: {count:,} words of width {width} need {count * size:,} bytes, it has {len(data):,}"
        )
    words: list[str] = []
    vectors = np.empty((count, width), np.float32)
    at = end + 1
    for row in range(count):
        space = data.find(b" ", at)
        if space < 0 or space + 1 + size > len(data):
            raise DataError(f"{path} is cut short: it ends in word {row + 1:,} of {count:,}; get the file again")
        name = data[at:space].lstrip(b"\r\n")  # the original program ends each vector with a line end
        try:
            words.append(name.decode("utf-8"))
        except UnicodeDecodeError:
            raise DataError(
                f"{path}: word {row + 1:,} is {name[:20]!r}, which is not UTF-8; is the width really {width}?"
            ) from None
        vectors[row] = np.frombuffer(data, "<f4", width, space + 1)
        at = space + 1 + size
    if data[at:].strip():
        raise DataError(f"{path} has {len(data) - at:,} more bytes after its {count:,} words; get the file again")
    return _Read(words, vectors, [])


def _bytes_of(path: Path) -> bytes:
    require_file(path)
    try:
        return read_whole(path, largest=sys.maxsize) if path.suffix == ".gz" else path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


# --- both -------------------------------------------------------------------------------------------------------------


def _sizes(header: str, path: Path) -> tuple[int, int]:
    match = _HEADER.fullmatch(header)
    if match is None:
        raise DataError(
            f"{path}:1: {header[:40]!r} is not the number of words and the width, with which word2vec files begin; "
            "GloVe files lack this line: put it there"
        )
    count, width = int(match[1]), int(match[2])
    if not count or not 0 < width <= _WIDEST:
        raise DataError(f"{path}:1: {count} words of width {width} are not word vectors")
    return count, width


def _require_count(path: Path, *, found: int, wanted: int) -> None:
    if found != wanted:
        what = "is cut short" if found < wanted else "is longer than it says"
        raise DataError(f"{path} {what}: {found:,} words, but its first line says {wanted:,}; get the file again")
