"""From the bytes of a text to its lines, chunk by chunk, with what was met on the way."""

import codecs
import contextlib
import gzip
import importlib
import lzma
import re
import zlib
from array import array
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from seqloom.core.errors import MAX_LISTED_PROBLEMS, DataError, Problem, UsageError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# Compressed files, known by their names: .gz, .xz and .zst, decompressed piece by piece and never without bound.

PIECE = 1 << 20
"""Bytes that a decompressor returns at a time, where it takes a limit."""

RATIO_FREE_BYTES = 1 << 26
"""Decompressed bytes below which the compression ratio is not checked."""

MAX_RATIO = 400
"""Bytes out for a byte in. Text comes to 3 to 20, and a corpus of one repeated line can reach some hundreds."""

MAX_WHOLE_BYTES = 1 << 30
"""Bytes of a file that is read as a whole."""

_XZ_MEMORY = 1 << 29  # xz -9 needs 65 MiB; a header can demand gigabytes
_ZSTD_WINDOW = 1 << 27  # the default limit of zstd
_ZSTD_FED = 1 << 10  # at most 128 KiB come out for four bytes, so this bounds what one call can give


def bare_name(path: Path) -> str:
    """The name of a file without the ending of a compressed one: `memory.tmx` of `memory.tmx.zst`."""
    return path.name[: -len(path.suffix)] if path.suffix in _DECOMPRESSORS else path.name


def is_compressed(path: Path) -> bool:
    """Whether a file is compressed, by its name."""
    return path.suffix in _DECOMPRESSORS


def open_bytes(path: Path) -> BufferedReader:
    """The bytes of a file, decompressed if its name ends in .gz, .xz or .zst."""
    return BufferedReader(_Decompressed(path), 1 << 16) if is_compressed(path) else path.open("rb")


def read_whole(path: Path, *, largest: int = MAX_WHOLE_BYTES) -> bytes:
    """All bytes of a file at once, decompressed; a file that would fill the memory is refused."""
    pieces, size = [], 0
    with open_bytes(path) as file:
        while piece := file.read(PIECE):
            size += len(piece)
            if size > largest:
                raise DataError(f"{path}: larger than {largest:,} bytes, which cannot be held as a whole; split it")
            pieces.append(piece)
    return b"".join(pieces)


class _Decompressed(RawIOBase):
    """What a compressed file holds, to be read once from the beginning to the end.

    Damage is a DataError, and so is a file that becomes more than `MAX_RATIO` times as large.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._raw = path, path.open("rb")
        self._pieces = _DECOMPRESSORS[path.suffix](self._raw, path)
        self._left, self._given = memoryview(b""), 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        if not self._left:
            self._left = memoryview(self._next())
        room = memoryview(buffer)
        part = self._left[: len(room)]
        room[: len(part)], self._left = part, self._left[len(part) :]
        return len(part)

    def _next(self) -> bytes:
        kind = self._path.suffix
        try:
            piece = next(self._pieces, b"")
        except _Foreign as error:
            raise DataError(f"{self._path}: not {_NAMES[kind]} data, though the name ends in {kind}") from error
        except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError, _Damaged) as error:
            raise DataError(f"{self._path}: the compressed data is cut short or damaged; download it again") from error
        self._given += len(piece)
        if self._given > RATIO_FREE_BYTES and self._given > MAX_RATIO * self._raw.tell():
            raise DataError(
                f"{self._path}: what is in it is more than {MAX_RATIO} times as large as the file, as if made to "
                "fill the memory; if that is intended, decompress it manually"
            )
        return piece

    def close(self) -> None:
        self._pieces.close()
        self._raw.close()
        super().close()


class _Foreign(Exception):
    """The file is of another kind."""


class _Damaged(Exception):
    """The file ends too early, or holds what its kind does not allow."""


Pieces = Generator[bytes, None, None]


def _gzip(raw: BufferedReader, _path: Path) -> Pieces:
    if (begin := raw.peek(2)[:2]) and begin != _GZIP_MARK:
        raise _Foreign
    with gzip.GzipFile(fileobj=raw, mode="rb") as file:
        while piece := file.read1(PIECE):
            yield piece


def _xz(raw: BufferedReader, _path: Path) -> Pieces:
    data = raw.read(PIECE)
    if data and not data.startswith(_XZ_MARK):
        raise _Foreign
    while data:
        stream = lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
        while not stream.eof:
            if stream.needs_input and not data and not (data := raw.read(PIECE)):
                raise EOFError
            if piece := stream.decompress(data, PIECE):
                yield piece
            data = b""
        # Streams may follow each other, with zeros between them.
        data = stream.unused_data.lstrip(b"\0")
        while not data and (more := raw.read(PIECE)):
            data = more.lstrip(b"\0")


def _zstd(raw: BufferedReader, path: Path) -> Pieces:
    try:
        zstandard: Any = importlib.import_module("zstandard")
    except ImportError as error:
        raise UsageError(f"{path} needs the library zstandard to be read: pip install zstandard") from error
    data = raw.read(_ZSTD_FED)
    if data and not data.startswith(_ZSTD_MARKS):
        raise _Foreign
    while data:
        frame = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        while not frame.eof:
            if not data and not (data := raw.read(_ZSTD_FED)):
                raise EOFError
            try:
                piece = frame.decompress(data)
            except zstandard.ZstdError as error:
                raise _Damaged(error) from error
            data = b""
            if piece:
                yield piece
        data = frame.unused_data or raw.read(_ZSTD_FED)


_GZIP_MARK = b"\x1f\x8b"
_XZ_MARK = b"\xfd7zXZ\0"
_ZSTD_MARKS = (b"\x28\xb5\x2f\xfd", *(bytes([low, 0x2A, 0x4D, 0x18]) for low in range(0x50, 0x60)))
_NAMES = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}
_DECOMPRESSORS: Mapping[str, Callable[[BufferedReader, Path], Pieces]] = {".gz": _gzip, ".xz": _xz, ".zst": _zstd}


OnBad = Literal["error", "replace", "skip"]
"""What becomes of invalid bytes: an error, U+FFFD for each, or an empty line in place of theirs."""

MAX_LINE_LENGTH = 1 << 26
"""Characters after which a line is not considered text, before it fills the memory."""

MAX_NAMED_LINES = 5
"""Lines that a notice names; more are counted."""

# The four-byte marks come first: one of them begins with a two-byte one.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}

# What replaces a byte that could not be decoded; for UTF-8 it encodes the byte.
_ESCAPED, _REPLACED = re.compile("[\udc80-\udcff]"), re.compile("\ufffd")

_HALF = re.compile("[\ud800-\udfff]")
"""Half of a character, which some codecs let pass (UTF-7)."""


class LineDecoder:
    """Takes the bytes of a text chunk by chunk and gives the lines that end in each, without their ends.

    Only LF ends a line; a CR before it goes, and so does a byte-order mark at the start. All else stays in the line.
    Without an `encoding` the text is UTF-8, and messages offer no other.
    """

    def __init__(
        self,
        name: str,
        encoding: str | None = None,
        *,
        on_bad: OnBad = "error",
        blank: str = "",
        nul_is_space: bool = False,
    ) -> None:
        """`name` is for messages; `blank` replaces a line that is skipped."""
        self._can_be_set, encoding = encoding is not None, "utf-8" if encoding is None else encoding
        if not is_encoding_of_files(encoding):
            raise UsageError(f"unknown encoding {encoding[:40]!a}; try utf-8, latin-1 or utf-16")
        self._codec = codecs.lookup(encoding)
        self.name = name
        self.lines = 0
        """Lines given so far."""
        self.had_mark = False
        """Whether the text began with a byte-order mark."""
        self.had_carriage_returns = False
        """Whether some line ended with CR LF."""
        self.bad = array("q")
        """The numbers of the lines with invalid bytes, counted from 1."""
        self.first_nul: int | None = None
        """The first line with a NUL that became a space."""
        self._on_bad, self._blank, self._nul_is_space = on_bad, blank, nul_is_space
        self._sign = _ESCAPED if self.is_utf8 else _REPLACED
        lenient = "surrogateescape" if self.is_utf8 else "replace"
        self._decoder = self._codec.incrementaldecoder("strict" if on_bad == "error" else lenient)
        self._is_first, self._is_lenient = True, on_bad != "error"
        self._start = b""  # bytes that may be those of a mark
        self._pieces: list[str] = []  # of the line that has not ended yet
        self._held = 0
        self._problems: list[Problem] = []
        self._above_ascii = 0
        """Lines with characters that UTF-8 writes with several bytes, once there was a bad one; before, chunks."""

    @property
    def is_utf8(self) -> bool:
        return self._codec.name == "utf-8"

    def feed(self, chunk: bytes) -> list[str]:
        """The lines that end in a chunk; an empty chunk ends the text, and gives its last line if that has no LF.

        After the first bad byte of UTF-8, if that is an error, the rest is only looked through: see `require_good`.
        """
        known = self._start + chunk
        if self._is_first and chunk and any(mark.startswith(known) for mark in _MARKS if mark != known):
            self._start = known  # a pipe may bring the first bytes of a mark alone
            return []
        self._start = b""
        return [*self._taken(known), *self._taken(b"")] if known and not chunk else self._taken(known)

    def _taken(self, chunk: bytes) -> list[str]:
        if self._is_first and (kind := _picture(chunk)):
            message = f"this is an image ({kind}), not a text; images are read by models of kind vit and swin"
            raise DataError(problems=[Problem(message, self.name)])
        if self._is_first and chunk.startswith(b"PK\x03\x04"):
            message = "this is a ZIP archive (.zip, .npz, .docx …), not a text; extract the text from it"
            raise DataError(problems=[Problem(message, self.name)])
        if self._is_first and not self._codec.name.startswith(("utf-16", "utf-32")) and (name := _wide(chunk)):
            message = f"this is {name.upper()}, not {self._codec.name.upper()}; {self._offer(name)}"
            raise DataError(problems=[Problem(message, self.name)])
        text = self._decode(chunk)
        if not self.is_utf8 and (half := _HALF.search(text)):
            if self._on_bad == "error":
                message = f"half of a character (the lone surrogate U+{ord(half[0]):04X})"
                raise self._error(message, "".join(self._pieces) + text[: half.start()])
            text = _HALF.sub("\ufffd", text)
        if "\0" in text:
            before = "".join(self._pieces) + text[: text.index("\0")]
            if not self._nul_is_space:
                raise self._error("NUL character; is this binary data?", before)
            if self.first_nul is None:
                self.first_nul = self.lines + before.count("\n") + 1
            text = text.replace("\0", " ")
        if self._is_first and text.startswith("\ufeff"):
            self.had_mark, text = True, text[1:]
        self._is_first = self._is_first and not text
        if not chunk:
            last, self._pieces = "".join([*self._pieces, text]), []
            return self._ended(last) if last else []
        cut = text.rfind("\n")
        if cut < 0:
            self._pieces.append(text)
            self._held += len(text)
            if self._held > MAX_LINE_LENGTH:
                message = f"the line is longer than {MAX_LINE_LENGTH:,} characters; is this a text file?"
                raise DataError(problems=[Problem(message, self.name, self.lines + 1)])
            return []
        block = "".join([*self._pieces, text[:cut]])
        self._pieces, self._held = [text[cut + 1 :]], len(text) - cut - 1
        if "\r" in block:
            # The CR of the last line is before the LF that was cut off.
            without = block.removesuffix("\r").replace("\r\n", "\n")
            self.had_carriage_returns |= len(without) < len(block)
            block = without
        return self._ended(block)

    def require_good(self) -> None:
        """Raise a DataError with all lines that have invalid bytes, if that is an error."""
        if self._problems:
            first, *others = self._problems
            first = replace(first, message=first.message + self._hint())
            raise DataError(problems=[first, *others], more=len(self.bad) - len(self._problems))

    def notices(self) -> list[str]:
        """What was changed while reading, a sentence each."""
        notices = []
        if self.had_mark:
            notices.append(f"{self.name}: the byte-order mark at the start was left out")
        if self.had_carriage_returns:
            notices.append(f"{self.name}: carriage returns at the ends of lines were left out")
        if self.bad:
            shown = ", ".join(f"{number:,}" for number in self.bad[:MAX_NAMED_LINES])
            lines = f"line{'s' if len(self.bad) > 1 else ''} {shown}{' …' if len(self.bad) > MAX_NAMED_LINES else ''}"
            are, have = ("are", "have") if len(self.bad) > 1 else ("is", "has")
            what = f"{are} read as empty" if self._on_bad == "skip" else f"{have} U+FFFD in place of each such byte"
            notices.append(
                f"{self.name}: {len(self.bad):,} {'lines' if len(self.bad) > 1 else 'line'} with bytes that are not "
                f"{self._codec.name.upper()} ({lines}) {what}"
            )
        return notices

    # ------------------------------------------------------------------------------------------------------------------

    def _ended(self, block: str) -> list[str]:
        lines = block.split("\n")
        if self._on_bad == "error" and not block.isascii():
            # Checking each line of a valid text would be slow.
            self._above_ascii += sum(map(_is_above_ascii, lines)) if self._is_lenient else 1
        if self._is_lenient and self._sign.search(block):
            for at, line in enumerate(lines):
                found = self._sign.search(line)
                if found is None:
                    continue
                number = self.lines + at + 1
                self.bad.append(number)
                if self._on_bad == "error" and len(self._problems) < MAX_LISTED_PROBLEMS:
                    message = f"invalid UTF-8 byte 0x{ord(found[0]) - 0xDC00:02X}"
                    self._problems.append(Problem(message, self.name, number, found.start() + 1))
                lines[at] = self._blank if self._on_bad == "skip" else self._sign.sub("\ufffd", line)
        self.lines += len(lines)
        return [] if self._problems else lines

    def _decode(self, chunk: bytes) -> str:
        try:
            return self._decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            if not self.is_utf8:
                # Only its own bytes are at fault: what the decoder held or was given before them is good.
                before = "".join(self._pieces)
                with contextlib.suppress(UnicodeError):  # not every codec can replace; then the place is only near
                    before += error.object[: error.start].decode(self._codec.name, errors="replace")
                byte = error.object[error.start] if error.start < len(error.object) else 0
                raise self._error(f"invalid {self._codec.name.upper()} byte 0x{byte:02X}", before) from error
        except UnicodeError as error:  # no byte is at fault: a mark is missing, or the codec takes no such text
            message = f"this is not {self._codec.name.upper()} ({error}); {self._offer('ENCODING')}"
            raise DataError(problems=[Problem(message, self.name, self.lines + 1)]) from error
        # The rest is read too, so that all bad lines can be reported at once.
        state = self._decoder.getstate()
        self._decoder, self._is_lenient = self._codec.incrementaldecoder("surrogateescape"), True
        self._decoder.setstate(state)
        return self._decoder.decode(chunk, final=not chunk)

    def _error(self, message: str, before: str) -> DataError:
        """A problem after the text `before`, which begins where the lines given so far end."""
        line = self.lines + before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        return DataError(problems=[Problem(message, self.name, line, column)])

    def _hint(self) -> str:
        # Text in Latin-1 is hardly ever UTF-8 by chance: where as much is right as wrong, some lines are damaged.
        if self._above_ascii >= len(self.bad):
            ways = "; --on-bad-utf8 skip leaves such lines out, replace puts U+FFFD in place of each such byte"
            return ways if self._can_be_set else "; the rest is UTF-8, so repair or remove such lines"
        if not self._can_be_set:
            return f"; if it is Latin-1, {self._offer('latin-1')}"
        return f"; if it is Latin-1, {self._offer('latin-1')}; --on-bad-utf8 skip leaves such lines out"

    def _offer(self, encoding: str) -> str:
        if self._can_be_set:
            return f"add --encoding {encoding}"
        return f"convert it first: iconv -f {encoding} -t utf-8"


_NOT_OF_FILES = frozenset({"idna", "punycode", "unicode-escape", "unicode_escape", "raw-unicode-escape", "undefined"})
"""Codecs of names and of programs, whose lines are not those of a file; some take the square of its length."""


def is_encoding_of_files(encoding: str) -> bool:
    """Whether a name is that of an encoding in which text is kept in files."""
    try:
        "".encode(encoding)  # codecs that are not of text (hex, zlib) refuse this
    except (LookupError, ValueError):
        return False
    return codecs.lookup(encoding).name not in _NOT_OF_FILES


def _is_above_ascii(line: str) -> bool:
    """Whether a line has characters, other than replacements of bad bytes, that take several bytes in UTF-8."""
    return not line.isascii() and not _ESCAPED.sub("", line).isascii()


def _wide(chunk: bytes) -> str | None:
    """UTF-16 or UTF-32, known by the mark or by NULs in every second or fourth byte of ASCII characters."""
    for mark, name in _MARKS.items():
        if chunk.startswith(mark):
            return name
    sample = chunk[:4096]
    # NULs among line ends alone are not text in any encoding.
    if len(sample) < 4 or b"\0" not in sample or not sample.translate(None, b"\0").strip():
        return None
    sample = sample[: len(sample) // 4 * 4]
    columns = "".join("0" if sample[start::4].count(0) * 8 > len(sample) else "x" for start in range(4))
    return {"x000": "utf-32-le", "000x": "utf-32-be", "x0x0": "utf-16-le", "0x0x": "utf-16-be"}.get(columns)


_PICTURES = {
    "PNG": rb"\x89PNG\r\n\x1a\n",
    "JPEG": rb"\xff\xd8\xff",
    "GIF": rb"GIF8[79]a.{0,200}?[\x00\x80-\xff]",  # a text may begin with the letters
    "BMP": rb"BM.{4}\x00{4}.{3}\x00",
    "TIFF": rb"II\*\x00|MM\x00\*",
    "WEBP": rb"RIFF.{4}WEBPVP8",
}


def _picture(chunk: bytes) -> str | None:
    """The format of an image, by its first bytes; None for anything else."""
    return next((kind for kind, begin in _PICTURES.items() if re.match(begin, chunk, re.DOTALL)), None)


# Invisible characters, counted in the UTF-8 bytes of a file while it is read.

_HIDDEN_SENTENCES = {
    "turning": ("character", "that turn the direction of writing (U+202A to U+202E, U+2066 to U+2069)"),
    "invisible": ("invisible character", "such as zero-width spaces, soft hyphens and byte-order marks"),
    "piled": ("letter", "under 5 accents or more"),
}

_TURNING, _INVISIBLE = rb"\xe2(?:\x80[\xaa-\xae]|\x81[\xa6-\xa9])", rb"\xe2(?:\x80[\x8b-\x8f]|\x81[\xa0-\xa4])"
_PILED = rb"(?:\xcc[\x80-\xbf]|\xcd[\x80-\xaf]){5,}"

_HIDDEN_PATTERNS = [
    # The kind, the bytes of a character, and the bytes without which there is no match.
    ("turning", 3, re.compile(_TURNING), (b"\xe2\x80", b"\xe2\x81")),
    ("invisible", 3, re.compile(_INVISIBLE), (b"\xe2\x80", b"\xe2\x81")),
    ("invisible", 3, re.compile(codecs.BOM_UTF8), (codecs.BOM_UTF8,)),
    ("invisible", 2, re.compile(rb"\xc2\xad"), (b"\xc2\xad",)),
    ("piled", 2, re.compile(_PILED), (b"\xcc", b"\xcd")),
]


class HiddenCharacters:
    """How many characters are invisible, turn the direction of the text, or are accents piled on a letter."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.first: dict[str, int] = {}
        """The line of the first of each kind."""
        self._tail: bytes | None = None

    def count(self, chunk: bytes, *, lines: int) -> None:
        """Count in the next bytes, which follow so many lines."""
        if self._tail is None:  # a byte-order mark at the very start is legitimate
            self._tail, chunk = b"", chunk.removeprefix(codecs.BOM_UTF8)
        tail = self._tail
        self._tail = (tail + chunk[-2:])[-2:]  # a character may lie on the border of two chunks
        if chunk.isascii():
            return
        data = tail + chunk
        starts: dict[str, list[int]] = {}
        for kind, width, pattern, needed in _HIDDEN_PATTERNS:
            if any(part in data for part in needed):
                begin = max(0, len(tail) - width + 1)  # what ends within the tail was counted before
                starts.setdefault(kind, []).extend(found.start() for found in pattern.finditer(data, begin))
        for kind, places in starts.items():
            if not places:
                continue
            self.counts[kind] = self.counts.get(kind, 0) + len(places)
            self.first.setdefault(kind, lines + data.count(b"\n", len(tail), max(len(tail), min(places))) + 1)

    def sentences(self, name: str) -> list[str]:
        """A sentence for each kind that a file of this name holds."""
        found = []
        for kind, (noun, what) in _HIDDEN_SENTENCES.items():
            if count := self.counts.get(kind, 0):
                these = f"1 {noun}" if count == 1 else f"{count:,} {noun}s"
                found.append(f"{name}: {these} {what}; the first is in line {self.first[kind]:,}")
        return found
