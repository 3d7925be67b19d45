"""Files: atomic writes, lines split at LF only, hashes, and messages that say what is wrong and where."""

import errno
import gzip
import os
import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

import nasty
from core.limits import files_up_to
from seqloom.core import files
from seqloom.core import text_files as decoding
from seqloom.core.errors import DataError, SeqloomError, UsageError
from seqloom.core.files import (
    LineReader,
    check_manifest,
    directory_manifest,
    new_place,
    open_output,
    partial_name,
    read_lines,
    require_file,
    require_writable,
    sha256_of,
    write_atomically,
)

NASTY_LINES = nasty.lines(without="\0")


def written(folder: Path, content: bytes, name: str = "text.de") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@given(NASTY_LINES)
def test_lines_come_back_as_they_were_written(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    lines = [line.rstrip("\r") for line in lines]
    if lines:
        lines[0] = lines[0].lstrip("\ufeff")
    path = written(tmp_path_factory.mktemp("lines"), "".join(f"{line}\n" for line in lines).encode())
    assert list(read_lines(path)) == lines


@given(nasty.files())
def test_any_bytes_are_lines_or_a_data_error_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    path = written(tmp_path_factory.getbasetemp(), data, "any.de")
    try:
        lines = list(read_lines(path))
    except DataError as error:
        told = str(error)
    else:
        assert lines == nasty.lines_of(data)
        return
    assert str(path) in told
    assert "\0" in data.decode("utf-8", "replace") or not is_utf8(data)


def is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def test_only_lf_ends_a_line(tmp_path: Path) -> None:
    path = written(tmp_path, "a\rb\u2028c\u2029d\x85e\x0bf\x0cg\r\nh\n".encode())
    assert list(read_lines(path)) == ["a\rb\u2028c\u2029d\x85e\x0bf\x0cg", "h"]


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a", ["a"]),
        (b"a\n\nb", ["a", "", "b"]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\r\r\nb\r", ["a\r", "b\r"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
    ],
)
def test_ends_of_lines_and_files(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(written(tmp_path, content))) == lines


@pytest.mark.parametrize("chunk", [1, 2, 3, 7])
def test_chunk_borders_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    content = "\ufeffgrün\r\n\r\n😀 äöü\r\nlast".encode()
    monkeypatch.setattr(files, "CHUNK", chunk)
    assert list(read_lines(written(tmp_path, content))) == ["grün", "", "😀 äöü", "last"]
    wide = written(tmp_path, "grün\r\n😀\n".encode("utf-16"))
    assert list(read_lines(wide, "utf-16")) == ["grün", "😀"]


def test_a_reader_tells_what_it_met_and_starts_again(tmp_path: Path) -> None:
    reader = LineReader(written(tmp_path, b"\xef\xbb\xbfa\r\nb\n"))
    assert list(reader) == list(reader) == ["a", "b"]
    assert (reader.lines, reader.decoder.had_mark, reader.decoder.had_carriage_returns) == (2, True, True)
    plain = LineReader(written(tmp_path, b"a\rb\n"))
    assert list(plain) == ["a\rb"]
    assert (plain.lines, plain.decoder.had_mark, plain.decoder.had_carriage_returns) == (1, False, False)


@pytest.mark.parametrize("chunk", [1, 5, 1 << 20])
def test_invalid_utf8_is_named_by_line_column_and_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(files, "CHUNK", chunk)
    path = written(tmp_path, "gut\nschön\nMän".encode() + b"n\xe9 caf\n")
    with pytest.raises(DataError) as caught:
        list(read_lines(path))
    assert str(caught.value) == (
        f"{path}:3:5: invalid UTF-8 byte 0xE9; the rest is UTF-8, so repair or remove such lines"
    )


def test_a_character_cut_at_the_end_of_the_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"text\.de:2:1: invalid UTF-8 byte 0xC3"):
        list(read_lines(written(tmp_path, b"a\n\xc3")))


def test_latin1_can_be_asked_for(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, b"caf\xe9\n"), "latin-1")) == ["café"]


def test_nul_is_binary_data(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"text\.de:2:3: NUL character; is this binary data\?"):
        list(read_lines(written(tmp_path, b"some words\nab\0cd and more words that are plain text\n")))


@pytest.mark.parametrize(
    ("encoding", "hint"),
    [
        ("utf-16", "utf-16"),
        ("utf-32", "utf-32"),
        ("utf-16-le", "utf-16-le"),
        ("utf-16-be", "utf-16-be"),
        ("utf-32-le", "utf-32-le"),
        ("utf-32-be", "utf-32-be"),
    ],
)
def test_wide_encodings_are_recognised_and_readable_as_hinted(tmp_path: Path, encoding: str, hint: str) -> None:
    path = written(tmp_path, "Zwei Männer\nein Hund\n".encode(encoding))
    with pytest.raises(DataError, match=f"add --encoding {hint}$"):
        list(read_lines(path, "utf-8"))
    assert list(read_lines(path, hint)) == ["Zwei Männer", "ein Hund"]


def test_an_unknown_encoding_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown encoding 'utf-7\.5'"):
        read_lines(written(tmp_path, b"a\n"), "utf-7.5")


def test_gzip_is_read_like_plain_text(tmp_path: Path) -> None:
    assert list(read_lines(written(tmp_path, gzip.compress(b"a\nb\n"), "text.gz"))) == ["a", "b"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (gzip.compress(os.urandom(5000).hex().encode())[:-500], "cut short or damaged"),
        (b"plain text\n", "not gzip data, though the name ends in .gz"),
    ],
)
def test_bad_gzip_is_a_data_error(tmp_path: Path, content: bytes, message: str) -> None:
    with pytest.raises(DataError, match=message):
        list(read_lines(written(tmp_path, content, "text.gz")))


def test_flipped_gzip_is_a_data_error(tmp_path: Path) -> None:
    content = bytearray(gzip.compress(b"some words to compress, some words\n" * 50))
    content[len(content) // 2] ^= 0xFF
    with pytest.raises(DataError, match=r"text\.gz"):
        list(read_lines(written(tmp_path, bytes(content), "text.gz")))


def test_a_line_without_end_stops_before_the_memory_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 100)
    monkeypatch.setattr(decoding, "MAX_LINE_LENGTH", 1000)
    path = written(tmp_path, gzip.compress(b"ok\n" + b"a" * 10_000), "bomb.gz")
    with pytest.raises(DataError, match=r"bomb\.gz:2: the line is longer than 1,000 characters"):
        list(read_lines(path))


def test_reading_is_fast(tmp_path: Path) -> None:
    path = written(tmp_path, "Zwei junge weiße Männer sind im Freien in der Nähe vieler Büsche .\r\n".encode() * 29_000)
    started = time.process_time()
    assert sum(1 for _ in read_lines(path)) == 29_000
    assert time.process_time() - started < 0.2


def test_required_files_are_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, b"a\n", "train.de")
    require_file(path)
    with pytest.raises(UsageError, match=r"trian\.de: no such file; did you mean .*train\.de\?") as caught:
        require_file(tmp_path / "trian.de")
    assert caught.value.file == tmp_path / "trian.de"
    written(tmp_path, b"", "x.en.xz")
    with pytest.raises(UsageError, match=r"nix\.en: no such file$"):
        require_file(tmp_path / "nix.en")
    with pytest.raises(UsageError, match=r"no such file \(the folder .*nowhere does not exist either\)"):
        require_file(tmp_path / "nowhere" / "train.de")
    with pytest.raises(UsageError, match="is a folder"):
        require_file(tmp_path)
    with pytest.raises(UsageError, match="pipe or a device"):
        require_file(Path(os.devnull))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(UsageError, match="permission denied"):
        require_file(path)


def test_a_write_replaces_the_whole_file(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "grün")
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


@pytest.mark.parametrize("broken", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "old")

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, broken, fail)
    with pytest.raises(SeqloomError, match=r"cannot write .*No space left on device; it needs 3 bytes and [\d,]+ byte"):
        write_atomically(path, "new")
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["state.json"]


def test_a_write_into_a_missing_folder_says_so(tmp_path: Path) -> None:
    with pytest.raises(SeqloomError, match=r"cannot write .*nowhere.*No such file"):
        write_atomically(tmp_path / "nowhere" / "a", b"")


def test_an_interrupted_write_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(tmp_path / "a", b"a")
    assert list(tmp_path.iterdir()) == []


def test_sha256_is_the_published_one(tmp_path: Path) -> None:
    assert (
        sha256_of(written(tmp_path, b"abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )  # FIPS 180-2, example B.1


def test_a_manifest_notices_every_change(tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    written(tmp_path, b"weights", "model")
    written(tmp_path / "text", b"words", "words")
    manifest = directory_manifest(tmp_path)
    assert list(manifest) == ["model", "text/words"]
    assert manifest["model"]["size"] == 7
    written(tmp_path, b"{}", "manifest.json")
    assert directory_manifest(tmp_path, leave_out=["manifest.json"]) == manifest
    assert check_manifest(tmp_path, manifest) == []
    written(tmp_path, b"weightz", "model")
    (tmp_path / "text" / "words").unlink()
    flipped, missing = check_manifest(tmp_path, manifest)
    assert flipped.startswith("model: SHA-256 is ")
    assert missing == "text/words: missing"
    written(tmp_path, b"weigh", "model")
    assert check_manifest(tmp_path, manifest)[0] == "model: 5 bytes, but 7 were written"


def test_a_manifest_cannot_point_outside_its_folder(tmp_path: Path) -> None:
    outside = written(tmp_path, b"secret", "secret")
    inside = tmp_path / "model"
    inside.mkdir()
    record = {"size": 6, "sha256": sha256_of(outside)}
    (sentence,) = check_manifest(inside, {"../secret": record})
    assert sentence == f"../secret: lies outside {inside}"
    assert check_manifest(inside, {"a": 3}) == ["a: the manifest holds no size and hash for it"]


def test_a_pipe_is_written_into_and_never_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_atomically(pipe, "grün")
        assert os.read(reading, 100) == "grün".encode()
    finally:
        os.close(reading)
    assert pipe.is_fifo()
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


LONGEST = "ä" * 127 + "x"
"""255 bytes, which is all that most file systems take."""


def write_text(path: Path, text: str) -> None:
    with open_output(path) as file:
        file.write(text)


WRITERS = pytest.mark.parametrize("write", [write_atomically, write_text])


@WRITERS
def test_a_file_that_is_replaced_hands_on_its_permissions_and_its_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], None]
) -> None:
    path = written(tmp_path, b"old")
    path.chmod(0o640)
    asked: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "chown", lambda _path, user, group: asked.append((user, group)))
    write(path, "new")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", 0o640)
    assert asked == [(path.stat().st_uid, path.stat().st_gid)]


def test_what_replaces_a_private_file_is_private_from_its_first_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, b"old")
    path.chmod(0o600)
    modes = []
    whole = os.fsync

    def look(handle: int) -> None:
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        whole(handle)

    opened = os.open

    def open_and_look(*args: Any, **kwargs: Any) -> int:
        handle = opened(*args, **kwargs)
        modes.append(stat.S_IMODE(os.fstat(handle).st_mode))
        return handle

    monkeypatch.setattr(os, "fsync", look)
    monkeypatch.setattr(os, "open", open_and_look)
    write_atomically(path, "new")
    assert modes[:2] == [0o600, 0o600]


def test_rights_of_a_group_do_not_go_to_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path, b"old")
    path.chmod(0o664)
    whole = Path.stat

    def of_another(self: Path, **flags: Any) -> Any:
        found = whole(self, **flags)
        values = list(found)
        values[5] = found.st_gid + (self == path)
        return os.stat_result(values)

    def refuse(*_: Any) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "chown", refuse)
    monkeypatch.setattr(Path, "stat", of_another)
    write_atomically(path, "new")
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@WRITERS
def test_names_of_all_lengths_that_the_system_takes_can_be_written(
    tmp_path: Path, write: Callable[[Path, str], None]
) -> None:
    path = tmp_path / LONGEST
    require_writable(path)
    write(path, "new")
    with new_place(tmp_path / f"{LONGEST[:-1]}y") as place:
        place.write_text("new")
    assert sorted(file.name for file in tmp_path.iterdir()) == sorted([LONGEST, f"{LONGEST[:-1]}y"])
    with pytest.raises(UsageError, match="File name too long"):
        require_writable(tmp_path / f"{LONGEST}y")


def test_a_partial_name_is_cut_at_a_character_and_known_as_a_leftover(tmp_path: Path) -> None:
    cut = partial_name(tmp_path / f"x{LONGEST}")
    assert re.fullmatch(r"\.xä+\.partial-[0-9a-f]{8}", cut.name)
    assert len(cut.name.encode()) < 143
    assert cut.parent == tmp_path
    assert re.fullmatch(r"model\.before-[0-9a-f]{8}", partial_name(Path("model"), mark="before", is_hidden=False).name)


@WRITERS
@pytest.mark.parametrize(("number", "code"), [(errno.EROFS, 2), (errno.EACCES, 2), (errno.ENOSPC, 1)])
def test_what_cannot_be_written_is_told_by_the_name_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, str], None], number: int, code: int
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files, "create", fail)
    for attempt in (lambda path: write(path, "new"), require_writable):
        with pytest.raises(SeqloomError, match=rf"^cannot write {tmp_path}/a: {os.strerror(number)}") as caught:
            attempt(tmp_path / "a")
        assert caught.value.exit_code == code
    assert list(tmp_path.iterdir()) == []


@WRITERS
def test_a_limit_on_files_is_told_with_the_bytes_and_not_with_the_room_on_the_disk(
    tmp_path: Path, write: Callable[[Path, str], None]
) -> None:
    with files_up_to(1000), pytest.raises(SeqloomError) as caught:
        write(tmp_path / "a", "x" * 5000)
    assert re.fullmatch(
        rf"cannot write {tmp_path}/a: File too large; it needs (at least )?5,000 bytes, and a limit on the size "
        r"of files \(ulimit -f\) or a quota prevents it",
        str(caught.value),
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("need", "told"), [(None, "at least 1,000"), (5000, "5,000")])
def test_a_new_file_or_folder_that_does_not_fit_is_told_with_its_bytes(
    tmp_path: Path, need: int | None, told: str
) -> None:
    sentence = rf"cannot write {tmp_path}/a: File too large; it needs {told} bytes, and a limit on the size"
    with files_up_to(1000), pytest.raises(SeqloomError, match=sentence), new_place(tmp_path / "a", need=need) as place:
        place.write_bytes(b"x" * 5000)
    assert list(tmp_path.iterdir()) == []


def test_looking_whether_a_file_can_be_written_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = written(tmp_path, b"old")
    before = path.stat()
    require_writable(path)
    require_writable(tmp_path / "new")
    assert path.stat() == before
    assert list(tmp_path.iterdir()) == [path]
    require_writable(Path(os.devnull))
