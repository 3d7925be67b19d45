"""Files: whole or not at all when written, text split at LF only when read, known by their hashes."""

import contextlib
import difflib
import errno
import glob
import hashlib
import io
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Collection, Iterator, Mapping
from functools import partial
from io import BufferedWriter, FileIO, RawIOBase, TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from seqloom.core.errors import SeqloomError, UsageError, is_of_user
from seqloom.core.text_files import HiddenCharacters, LineDecoder, OnBad, open_bytes

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


# Names and permissions of incomplete files: written next to the final path, under a recognisable name.

_KEPT = 100
"""Bytes of a name that are kept. File systems take 255, or 143 where they encrypt names, and a mark is added."""


def partial_name(path: Path, *, mark: str = "partial", is_hidden: bool = True) -> Path:
    """A temporary name in the same folder as a path: `.NAME.partial-1a2b3c4d`, where a long NAME is cut."""
    kept = path.name
    if len(os.fsencode(kept)) > _KEPT:  # at a border of characters: some systems take no name that is not UTF-8
        kept = os.fsencode(kept)[:_KEPT].decode("utf-8", "ignore")
    return path.with_name(f"{'.' if is_hidden else ''}{kept}.{mark}-{secrets.token_hex(4)}")


def create(partial: Path, *, place: Path) -> io.FileIO:
    """A new file that is to be put in a place. It gets the permissions and, if allowed, the owner of an old one.

    No other user may open it before they are set.
    """
    is_old = place.is_file()
    file = io.FileIO(partial, "xb", opener=lambda name, flags: os.open(name, flags, 0o600 if is_old else 0o666))
    if not is_old:
        return file
    try:
        old = place.stat()
        for user in (old.st_uid, -1) if hasattr(os, "chown") else ():  # only root can change owners
            with contextlib.suppress(OSError):
                os.chown(partial, user, old.st_gid)
                break
        with contextlib.suppress(PermissionError):  # of a file system without permissions
            shutil.copystat(place, partial)  # with access lists, where there are some
        new = partial.stat()
        if new.st_gid != old.st_gid:  # one group's rights are not another's
            partial.chmod(stat.S_IMODE(new.st_mode) & ~stat.S_IRWXG | (new.st_mode & stat.S_IRWXO) << 3)
    except BaseException:
        file.close()
        raise
    return file


# JSON files that may come from elsewhere: of bounded size, and an error of two kinds only.

MAX_JSON_BYTES = 1 << 26
"""Bytes. Descriptions of models have some thousands, vocabularies some millions."""


def read_json(path: Path, *, largest: int = MAX_JSON_BYTES) -> Any:
    """What a file holds. It raises an OSError where it cannot be read, and a ValueError where it is not JSON."""
    with path.open("rb") as file:
        content = file.read(largest + 1)
    if len(content) > largest:
        raise ValueError(f"it has more than {largest:,} bytes")
    return parse_json(content)


def parse_json(content: bytes | str) -> Any:
    """The value of a JSON text in UTF-8; whatever is wrong with it is a ValueError."""
    try:
        return json.loads(content.decode("utf-8") if isinstance(content, bytes) else content)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


# Patterns of file names: `memories/*.tmx`.


def matching_files(path: Path) -> list[Path]:
    """The files that match a pattern with *, ? or [ ], sorted; a file of that very name is itself."""
    if not glob.has_magic(str(path)) or path.exists():
        return [path]
    files = sorted(each for each in Path(path.anchor).glob(str(path.relative_to(path.anchor))) if not each.is_dir())
    if not files:
        raise UsageError(f"{path}: no file has such a name", file=path)
    return files


CHUNK = 1 << 20
"""Bytes read at a time: large enough that decoding, not Python, takes the time."""

_LIMITED = {errno.EDQUOT, errno.EFBIG}
"""Errors of the system where the disk may have room."""

_NEAR = 0.7
"""How much of a name must be the same for a guess: text.de for text.fr, but not x.en.xz for nix.en."""


class FileRecord(TypedDict):
    """What a manifest knows of one file."""

    size: int
    sha256: str


# --- writing ---------------------------------------------------------------------------------------------------------


def write_atomically(path: Path, data: bytes | str) -> None:
    """Write a file so that a crash at any moment leaves the old content or the new one, never a part.

    Text is written as UTF-8. Write under another name, fsync, replace, fsync the folder. A file that is replaced hands
    on its permissions and owner. A pipe or a device (/dev/null) is written into directly: root could
    replace it for every other program.
    """
    content = data.encode("utf-8") if isinstance(data, str) else data
    try:
        if _is_stream(path):
            with path.open("wb") as stream:
                stream.write(content)
            return
        partial = partial_name(path)
        try:
            with BufferedWriter(create(partial, place=path)) as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)
            raise
        fsync(path.parent)
    except OSError as error:
        raise unwritten(path, error, need=len(content)) from error


@contextlib.contextmanager
def open_output(path: Path) -> Iterator[TextIOWrapper]:
    """A text file, in UTF-8 and with LF, that appears under its name when it is whole; a symbolic link is followed.

    A new file keeps the permissions and owner of the one it replaces. A pipe or a device is written into directly.
    """
    if _is_stream(path):
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    place = Path(os.path.realpath(path))
    partial = partial_name(place)
    try:
        with _naming(path):
            raw = create(partial, place=place)
        with TextIOWrapper(BufferedWriter(_Named(raw, path)), encoding="utf-8", newline="\n") as file:
            yield file
            file.flush()
            with _naming(path):
                os.fsync(file.fileno())
        with _naming(path):
            partial.replace(place)
            fsync(place.parent)
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


class _Named(RawIOBase):
    """A file whose errors have its name: while it is written, other files are open."""

    def __init__(self, raw: FileIO, name: Path) -> None:
        self._raw, self._name = raw, name

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return self._raw.write(data)
        except OSError as error:
            need = self._raw.tell() + memoryview(data).nbytes
            raise unwritten(self._name, error, need=need, is_least=True) from error

    def close(self) -> None:
        self._raw.close()
        super().close()


def require_writable(path: Path) -> None:
    """Raise a UsageError with the reason if a path cannot be written; an existing file is not changed."""
    with _naming(path):
        if _is_stream(path):
            return
        place = Path(os.path.realpath(path))
        partial = partial_name(place)
        try:
            create(partial, place=place).close()
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def _is_stream(path: Path) -> bool:
    """Whether a path names a pipe or a device, or a folder, which cannot be opened."""
    return path.exists() and not path.is_file()


def fsync(path: Path) -> None:
    """Make a file, or the names in a folder, survive a power cut."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # Windows has no such call and needs none
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)  # Windows requires write access
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let errors of the system name a path instead of its temporary name."""
    try:
        yield
    except OSError as error:
        raise unwritten(path, error) from error


def unwritten(path: Path, error: OSError, *, need: int | None = None, is_least: bool = False) -> SeqloomError:
    """The error for something that could not be written, which another name may avoid."""
    kind = UsageError if is_of_user(error) else SeqloomError
    return kind(f"cannot write {path}: {why_unwritten(error, path.parent, need=need, is_least=is_least)}")


def why_unwritten(error: Exception, folder: Path, *, need: int | None, is_least: bool = False) -> str:
    """Why something could not be written; where room is lacking, with what it needs, or needs at least, and is free."""
    number, reason = None, str(error)
    if isinstance(error, OSError) and error.errno is not None:
        number, reason = error.errno, error.strerror or reason
    elif found := re.search(r"\(os error (\d+)\)", reason):  # libraries in Rust give the number in their message only
        number, reason = int(found[1]), os.strerror(int(found[1]))
    needs = "" if need is None else f"it needs {'at least ' if is_least else ''}{need:,} bytes"
    if number in _LIMITED:
        limit = "a limit on the size of files (ulimit -f) or a quota prevents it"
        return f"{reason}; {f'{needs}, and ' if needs else ''}{limit}"
    if number != errno.ENOSPC:
        return reason
    with contextlib.suppress(OSError):
        needs = f"{f'{needs} and ' if needs else ''}{shutil.disk_usage(folder).free:,} bytes are free"
    return f"{reason}; {needs}" if needs else reason


def require_folders_above(path: Path) -> None:
    """Raise a UsageError if something above a path is not a folder."""
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

    Files that the manifest does not name are ignored.
    """
    found: list[str | None] = []
    for name, record in manifest.items():
        try:
            found.append(_difference(folder, name, record))
        except OSError as error:
            found.append(f"{name}: {error.strerror or error}")
    return [sentence for sentence in found if sentence is not None]


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
            raise UsageError(f"{path} is a folder; a file is needed here", file=path)
        if not path.exists():
            raise UsageError(f"{path}: no such file{_similar(path)}", file=path)
    except PermissionError as error:
        raise UsageError(f"{path} may not be read: {error.strerror}", file=path) from error
    if not path.is_file():
        message = f"{path} is a pipe or a device, which can be read only once; copy it into a file first"
        raise UsageError(message, file=path)
    if not os.access(path, os.R_OK):
        raise UsageError(f"{path} may not be read: permission denied", file=path)


def _similar(path: Path) -> str:
    with contextlib.suppress(OSError):
        if not path.parent.is_dir():
            return f" (the folder {path.parent} does not exist either)"
        names = [file.name for file in path.parent.iterdir()]
        near = difflib.get_close_matches(path.name, names, n=1, cutoff=_NEAR)
        return f"; did you mean {path.with_name(near[0])}?" if near else ""
    return ""


def read_lines(path: Path, encoding: str | None = None) -> Iterator[str]:
    """The lines of a text file (`.gz`, `.xz` and `.zst` are decompressed), without their ends.

    Only LF ends a line; a CR before it goes, and so does a byte-order mark at the start. All else stays in the line:
    a lone CR, U+2028, U+0085, form feeds. A last line without LF counts. Without an `encoding` it is UTF-8, and
    messages offer no other.
    """
    return iter(LineReader(path, encoding))


class LineReader:
    """`read_lines` that also reports what it found: each iteration starts the file again with new counts."""

    def __init__(
        self,
        path: Path,
        encoding: str | None = None,
        *,
        on_bad: OnBad = "error",
        blank: str = "",
        nul_is_space: bool = False,
    ) -> None:
        """For `on_bad`, `blank` and `nul_is_space` see LineDecoder."""
        self._path = path
        self._start = partial(LineDecoder, str(path), encoding, on_bad=on_bad, blank=blank, nul_is_space=nul_is_space)
        self.decoder = self._start()
        """What was met while reading."""
        self._hidden = HiddenCharacters()
        require_file(path)

    @property
    def lines(self) -> int:
        """Lines read so far."""
        return self.decoder.lines

    def notices(self) -> list[str]:
        """What was put right, and what is there without being seen, a sentence each."""
        return [*self.decoder.notices(), *self._hidden.sentences(str(self._path))]

    def __iter__(self) -> Iterator[str]:
        decoder = self.decoder = self._start()
        hidden = self._hidden = HiddenCharacters()
        for chunk in self._chunks():
            before = decoder.lines
            lines = decoder.feed(chunk)
            hidden.count(chunk if decoder.is_utf8 else "\n".join(lines).encode("utf-8", "surrogatepass"), lines=before)
            yield from lines
        decoder.require_good()

    def _chunks(self) -> Iterator[bytes]:
        """The decompressed bytes, with an empty chunk at the end."""
        try:
            with open_bytes(self._path) as file:
                while chunk := file.read(CHUNK):
                    yield chunk
        except OSError as error:
            raise UsageError(f"{self._path} cannot be read: {error.strerror or error}") from error
        yield b""


# Files and folders that appear under their names when they are whole, where nothing was before.


def require_new(path: Path, *, named_by: str | None = "--out") -> None:
    """Refuse a place where something is already; `named_by` is the option that names it, if one does."""
    if path.exists() or path.is_symlink():
        option = f" with {named_by}" if named_by else ""
        raise UsageError(f"{path} already exists; remove it, or name another place{option}")
    require_folders_above(path)


def require_run(run: Path) -> None:
    """Refuse a run directory that is not there."""
    if not run.is_dir():
        raise UsageError(f"{run}: run directory not found", file=run)


@contextlib.contextmanager
def new_place(path: Path, *, named_by: str | None = "--out", need: int | None = None) -> Iterator[Path]:
    """Another name for a path at which nothing may be yet; what is written there gets its own name at the end.

    A process that is killed meanwhile leaves a hidden name with "partial" in it. `need` is its size in bytes,
    if that is known.
    """
    require_new(path, named_by=named_by)
    partial = partial_name(path)
    written = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield partial
            for file in [partial, *partial.rglob("*")]:
                fsync(file)
            partial.rename(path)
        finally:
            written = sum(file.stat().st_size for file in [partial, *partial.rglob("*")] if file.is_file())
            shutil.rmtree(partial, ignore_errors=True)
            partial.unlink(missing_ok=True)
        fsync(path.parent)
    except OSError as error:
        raise unwritten(path, error, need=need or written or None, is_least=need is None) from error
