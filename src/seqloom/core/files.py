"""Files: whole or not at all when written, text split at LF only when read, known by their hashes."""

import codecs
import contextlib
import difflib
import errno
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Collection, Iterator, Mapping
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TypedDict

from seqloom.core.compressed import open_bytes
from seqloom.core.errors import DataError, Problem, SeqloomError, UsageError

CHUNK = 1 << 20
"""Bytes read at a time: large enough that decoding, not Python, takes the time."""

LONGEST_LINE = 1 << 26
"""Characters after which a line is taken for something that is no text, before it fills the memory."""

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}

# The four-byte marks come first: one of them begins with a two-byte one.
_MARKS = {
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


class FileRecord(TypedDict):
    """What a manifest knows of one file."""

    size: int
    sha256: str


# --- writing ---------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file so that a crash at any moment leaves the old content or the new one, never a part.

    Text is written as UTF-8. Write under another name, fsync, replace, fsync the folder.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    partial = path.with_name(f".{path.name}.partial-{secrets.token_hex(4)}")
    try:
        try:
            with partial.open("xb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        fsync_directory(path.parent)
    except OSError as error:
        raise SeqloomError(f"cannot write {path}: {why_unwritten(error, path.parent, need=len(content))}") from error


@contextlib.contextmanager
def open_output(path: Path) -> Iterator[TextIOWrapper]:
    """A text file, in UTF-8 and with LF, that appears under its name when it is whole; a symbolic link is followed.

    A pipe or a device is written into as it stands: a new file in its place would take it from everybody else.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    place = Path(os.path.realpath(path))
    partial = place.with_name(f".{place.name}.partial-{secrets.token_hex(4)}")
    try:
        with partial.open("x", encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(place)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
    fsync_directory(place.parent)


def fsync_directory(folder: Path) -> None:
    """Make the names in a folder survive a power cut. Windows has no such call and needs none."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def why_unwritten(error: Exception, folder: Path, *, need: int) -> str:
    """Why something could not be written; where room is lacking, with what it needs and what is free."""
    number, reason = _number_and_reason(error)
    if number not in _FULL:
        return reason
    with contextlib.suppress(OSError):
        return f"{reason}; it needs {need:,} bytes and {shutil.disk_usage(folder).free:,} bytes are free"
    return f"{reason}; it needs {need:,} bytes"


def _number_and_reason(error: Exception) -> tuple[int | None, str]:
    """The error number of the system and its words. Libraries in Rust give the number in their message only."""
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno, error.strerror or str(error)
    found = re.search(r"\(os error (\d+)\)", str(error))
    return (int(found.group(1)), os.strerror(int(found.group(1)))) if found else (None, str(error))


def require_folders_above(path: Path) -> None:
    """Raise a UsageError if something above a path is no folder, so that nothing can be made there."""
    for above in path.parents:
        if (above.exists() or above.is_symlink()) and not above.is_dir():
            raise UsageError(f"{above} is a file, not a folder, so {path} cannot be made in it; name another place")


# --- hashes ----------------------------------------------------------------------------------------------------------


def sha256_of(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def directory_manifest(folder: Path, *, leave_out: Collection[str] = ()) -> dict[str, FileRecord]:
    """Size and SHA-256 of every file below a folder, by its path from there with forward slashes."""
    files = {file.relative_to(folder).as_posix(): file for file in folder.rglob("*") if file.is_file()}
    return {
        name: {"size": files[name].stat().st_size, "sha256": sha256_of(files[name])}
        for name in sorted(files)
        if name not in leave_out
    }


def check_manifest(folder: Path, manifest: Mapping[str, Any]) -> list[str]:
    """What differs from the manifest, a sentence per file; empty when all is as it was written.

    Files that the manifest does not name are not looked at.
    """
    found = (_difference_of(folder, name, record) for name, record in manifest.items())
    return [sentence for sentence in found if sentence is not None]


def _difference_of(folder: Path, name: str, record: Any) -> str | None:
    try:
        return _difference(folder, name, record)
    except OSError as error:
        return f"{name}: {error.strerror or error}"


def _difference(folder: Path, name: str, record: Any) -> str | None:
    # A manifest may come from elsewhere: it may hold anything, and must not make us read outside its own folder.
    if not isinstance(record, Mapping) or not isinstance(record.get("size"), int) or "sha256" not in record:
        return f"{name}: the manifest holds no size and hash for it"
    path = folder / name
    if "\0" in name:
        return f"{name!r}: no name of a file"
    if not path.resolve().is_relative_to(folder.resolve()):
        return f"{name}: lies outside {folder}"
    if not path.is_file():
        return f"{name}: missing"
    size = path.stat().st_size
    if size != record["size"]:
        return f"{name}: {size:,} bytes, but {record['size']:,} were written"
    found = sha256_of(path)
    if found != record["sha256"]:
        return f"{name}: SHA-256 is {found[:12]}…, but {str(record['sha256'])[:12]}… was written"
    return None


# --- reading ---------------------------------------------------------------------------------------------------------


def require_file(path: Path) -> None:
    """Raise a UsageError that names path and reason unless a regular file can be read there."""
    try:
        if path.is_dir():
            raise UsageError(f"{path} is a folder; a file is needed here")
        if not path.exists():
            raise UsageError(f"{path}: no such file{_similar(path)}")
    except PermissionError as error:
        raise UsageError(f"{path} may not be read: {error.strerror}") from error
    if not path.is_file():
        raise UsageError(f"{path} is a pipe or a device, which can be read only once; copy it into a file first")
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path} may not be read: permission denied")


def _similar(path: Path) -> str:
    with contextlib.suppress(OSError):
        if not path.parent.is_dir():
            return f" (there is no folder {path.parent} either)"
        near = difflib.get_close_matches(path.name, [file.name for file in path.parent.iterdir()], n=1)
        return f"; did you mean {path.with_name(near[0])}?" if near else ""
    return ""


def read_lines(path: Path, encoding: str = "utf-8") -> Iterator[str]:
    """The lines of a text file (`.gz`, `.xz` and `.zst` are decompressed), without their ends.

    Only LF ends a line; a CR before it goes, and so does a byte-order mark at the start. All else stays in the line:
    a lone CR, U+2028, U+0085, form feeds. A last line without LF counts.
    """
    return iter(LineReader(path, encoding))


class LineReader:
    """`read_lines` that also tells what it met: each iteration starts the file again and renews the three fields."""

    lines: int
    """Lines read so far."""
    had_mark: bool
    """Whether the file began with a byte-order mark."""
    had_carriage_returns: bool
    """Whether some line ended with CR LF."""

    def __init__(self, path: Path, encoding: str = "utf-8") -> None:
        try:
            self._codec = codecs.lookup(encoding)
        except LookupError as error:
            raise UsageError(f"data.encoding={encoding}: no such encoding; try utf-8, latin-1 or utf-16") from error
        require_file(path)
        self._path = path
        self._forget()

    def _forget(self) -> None:
        self.lines, self.had_mark, self.had_carriage_returns = 0, False, False

    def __iter__(self) -> Iterator[str]:
        self._forget()
        pieces: list[str] = []  # of the line that the chunks so far have not ended
        for text in self._texts(pieces):
            cut = text.rfind("\n")
            if cut < 0:
                pieces.append(text)
                if sum(map(len, pieces)) > LONGEST_LINE:
                    raise self._error(f"the line is longer than {LONGEST_LINE:,} characters; is this a text file?")
                continue
            block = "".join([*pieces, text[:cut]])
            pieces[:] = [text[cut + 1 :]]
            if "\r" in block:
                # The CR of the last line stands before the LF that was cut off.
                without = block.removesuffix("\r").replace("\r\n", "\n")
                self.had_carriage_returns |= len(without) < len(block)
                block = without
            for line in block.split("\n"):
                self.lines += 1
                yield line
        last = "".join(pieces)
        if last:
            self.lines += 1
            yield last

    def _texts(self, pieces: list[str]) -> Iterator[str]:
        """Decoded chunks; `pieces` are the beginning of the line that goes on in the next one."""
        decoder = self._codec.incrementaldecoder("strict")
        is_first = True
        for chunk in self._chunks():
            if is_first:
                self._refuse_wide(chunk)
            try:
                text = decoder.decode(chunk, final=not chunk)
            except UnicodeDecodeError as error:
                raise self._undecodable(error, "".join(pieces)) from error
            except UnicodeError as error:  # no byte is at fault: a mark is missing, or the codec takes no such text
                raise self._error(f"this is not {self._codec.name.upper()} ({error}); set data.encoding") from error
            if "\0" in text:
                before = "".join(pieces) + text[: text.index("\0")]
                raise self._error("NUL character; is this binary data?", before)
            if is_first and text.startswith("\ufeff"):
                self.had_mark, text = True, text[1:]
            is_first = is_first and not text
            yield text

    def _chunks(self) -> Iterator[bytes]:
        """The decompressed bytes, with an empty chunk at the end."""
        try:
            with open_bytes(self._path) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror or error}") from error
        yield b""

    def _refuse_wide(self, chunk: bytes) -> None:
        """UTF-16 and UTF-32 are known by their mark, or by NULs in every second or fourth byte."""
        if self._codec.name.startswith(("utf-16", "utf-32")):
            return
        name = next((name for mark, name in _MARKS.items() if chunk.startswith(mark)), None) or _wide(chunk[:4096])
        if name is not None:
            hint = f"this is {name.upper()}, not {self._codec.name.upper()}; set data.encoding={name}"
            raise DataError(problems=[Problem(hint, str(self._path))])

    def _undecodable(self, error: UnicodeDecodeError, before: str) -> DataError:
        # Only its own bytes are at fault: what the decoder held or was given before them is good.
        with contextlib.suppress(UnicodeError):  # not every codec can replace; then the place is only near
            before += error.object[: error.start].decode(self._codec.name, errors="replace")
        byte = error.object[error.start] if error.start < len(error.object) else 0
        hint = "; if the file is Latin-1, set data.encoding=latin-1" if self._codec.name == "utf-8" else ""
        return self._error(f"invalid {self._codec.name.upper()} byte 0x{byte:02X}{hint}", before)

    def _error(self, message: str, before: str | None = None) -> DataError:
        """A problem after the text `before`, which begins where the lines read so far end."""
        if before is None:
            return DataError(problems=[Problem(message, str(self._path), self.lines + 1)])
        line = self.lines + before.count("\n") + 1
        column = len(before) - before.rfind("\n")
        return DataError(problems=[Problem(message, str(self._path), line, column)])


def _wide(sample: bytes) -> str | None:
    """The encoding whose ASCII characters would leave NULs where this sample has them."""
    if len(sample) < 4 or b"\0" not in sample:
        return None
    sample = sample[: len(sample) // 4 * 4]
    columns = [sample[start::4].count(0) * 4 / len(sample) for start in range(4)]
    is_empty = [share > 0.5 for share in columns]
    shapes = {
        (False, True, True, True): "utf-32-le",
        (True, True, True, False): "utf-32-be",
        (False, True, False, True): "utf-16-le",
        (True, False, True, False): "utf-16-be",
    }
    return shapes.get((is_empty[0], is_empty[1], is_empty[2], is_empty[3]))
