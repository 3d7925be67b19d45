"""Archives: what is written, what is read, and all that is refused."""

import io
import random
import stat
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from core.zips import END, FOLDER, LINK, File, build, deflate
from seqloom.core.archive import Limits, extract_archive, is_archive, write_archive
from seqloom.core.errors import ModelError, SeqloomError, UsageError

FILES = {
    "model.json": b"{}",
    "text/shared/vocabulary.txt": b"a\nb\n" * 100,
    "weights": bytes(range(256)) * 9,
    "none": b"",
}


def contents(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def written(folder: Path) -> Path:
    """An archive of FILES."""
    for name, data in FILES.items():
        (folder / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "in" / name).write_bytes(data)
    write_archive(folder / "good.zip", {name: folder / "in" / name for name in reversed(FILES)})
    return folder / "good.zip"


def refused(tmp_path: Path, archive: bytes, *, limits: Limits | None = None) -> str:
    """Why an archive is refused; nothing may have been written beside the folder that is to be thrown away."""
    path, home = tmp_path / "bad.zip", tmp_path / "home"
    path.write_bytes(archive)
    home.mkdir(exist_ok=True)
    with pytest.raises(ModelError) as error:
        extract_archive(path, home / "out", limits=limits)
    assert {each.name for each in home.iterdir()} <= {"out"}
    assert {each.name for each in tmp_path.iterdir()} == {"bad.zip", "home"}
    message = str(error.value)
    assert message.isprintable()
    return message


def test_files_come_back_as_they_were_and_python_reads_them_too(tmp_path: Path) -> None:
    archive = written(tmp_path)
    assert extract_archive(archive, tmp_path / "out") == sorted(FILES)
    assert contents(tmp_path / "out") == FILES
    with zipfile.ZipFile(archive) as theirs:
        assert theirs.testzip() is None
        assert {info.filename: theirs.read(info) for info in theirs.infolist()} == FILES
        assert all(stat.S_ISREG(info.external_attr >> 16) for info in theirs.infolist())


def test_the_same_files_give_the_same_bytes_whenever_they_were_written(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first = written(tmp_path / "a")
    second = written(tmp_path / "b")
    for file in (tmp_path / "b" / "in").rglob("*"):
        file.touch()
        file.chmod(0o700)
    second.unlink()
    write_archive(second, {name: tmp_path / "b" / "in" / name for name in FILES})
    assert first.read_bytes() == second.read_bytes()
    (tmp_path / "b" / "in" / "weights").write_bytes(b"other")
    second.unlink()
    write_archive(second, {name: tmp_path / "b" / "in" / name for name in FILES})
    assert first.read_bytes() != second.read_bytes()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_what_other_programs_write_is_read(tmp_path: Path, method: int, is_streamed: bool) -> None:
    class Pipe(io.BytesIO):
        """A stream that cannot go back: sizes then follow the bytes."""

        def seekable(self) -> bool:
            return not is_streamed

        def tell(self) -> int:
            if is_streamed:
                raise OSError
            return super().tell()

    stream = Pipe()
    with zipfile.ZipFile(stream, "w", method) as theirs:
        theirs.writestr("text/", b"")
        for name, data in FILES.items():
            theirs.writestr(name, data)
    (tmp_path / "theirs.zip").write_bytes(stream.getvalue())
    extract_archive(tmp_path / "theirs.zip", tmp_path / "out")
    assert contents(tmp_path / "out") == FILES


def test_an_archive_of_folders_and_deflated_files_is_read(tmp_path: Path) -> None:
    files = [File(b"a", b"x" * 5000, deflated=True), File(b"sub/", b"", attributes=FOLDER), File(b"sub/b", b"")]
    (tmp_path / "good.zip").write_bytes(build(files))
    assert extract_archive(tmp_path / "good.zip", tmp_path / "out") == ["a", "sub/b"]
    assert contents(tmp_path / "out") == {"a": b"x" * 5000, "sub/b": b""}


HOSTILE_NAMES = {
    b"../evil": "leaves the folder",
    b"a/../../evil": "leaves the folder",
    b"a/..": "leaves the folder",
    b"/etc/evil": "absolute path",
    b"C:evil": "absolute path",
    b"c:/evil": "absolute path",
    b"..\\evil": "backslash",
    b"a\\b": "backslash",
    b"con": "reserved for a device",
    b"a/NUL.txt": "device",
    b"COM1.tar.gz": "device",
    b".hidden": "characters other than",
    b"a/./b": "characters other than",
    b"a//b": "characters other than",
    b"": "characters other than",
    b"trailing.": "characters other than",
    b"trailing ": "characters other than",
    b"a:stream": "absolute path",
    b"file:stream": "characters other than",
    b"nul\x00.txt": "characters other than",
    b"esc\x1b[2J": "characters other than",
    "e\u0301".encode(): "characters other than",
    "\u202egnp.exe".encode(): "characters other than",
    b"\xff\xfe": "characters other than",
    b"~/evil": "characters other than",
    b"a*b": "characters other than",
    b"x" * 120: "characters other than",
    b"x/" * 120 + b"x": "longer than 200 characters or deeper",
    b"a/b/c/d/e/f/g/h/i": "longer than 200 characters or deeper",
}


@pytest.mark.parametrize("name", HOSTILE_NAMES)
def test_a_name_that_is_not_plain_is_refused_and_shown_safely(tmp_path: Path, name: bytes) -> None:
    message = refused(tmp_path, build([File(b"good"), File(name)]))
    assert HOSTILE_NAMES[name] in message
    assert len(message) < 400 + len(str(tmp_path))


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ((b"a", b"a"), "same place on some systems"),
        ((b"Model.json", b"model.JSON"), "same place on some systems"),
        ((b"text/a", b"Text/b"), "same place on some systems"),
        ((b"text", b"text/a"), "same place on some systems"),
        ((b"TEXT/a/b", b"text"), "same place on some systems"),
    ],
)
def test_names_that_would_be_one_are_refused(tmp_path: Path, names: tuple[bytes, ...], reason: str) -> None:
    assert reason in refused(tmp_path, build([File(name) for name in names]))


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        (File(b"a", b"/etc/passwd", attributes=LINK), "not a regular file"),
        (File(b"a", attributes=0o020666 << 16), "not a regular file"),
        (File(b"a", attributes=0o010666 << 16), "not a regular file"),
        (File(b"a", attributes=FOLDER), "not a regular file"),
        (File(b"a", attributes=0x10), "not a regular file"),
        (File(b"a", attributes=0x400), "not a regular file"),
        (File(b"a/", attributes=LINK), "not a regular file"),
        (File(b"a", flags=1), "encrypted"),
        (File(b"a", flags=1 << 6), "strong encryption"),
        (File(b"a", method=12), "method 12"),
        (File(b"a", method=99), "method 99"),
        (File(b"a", local_name=b"b"), "File name in directory 'a' and header b'b' differ"),
        (File(b"a", size=9), ""),
        (File(b"a", b"x" * 50, deflated=True, size=40), "Bad CRC-32"),
        (File(b"a", b"x" * 50, deflated=True, size=60), "is shorter than the directory says"),
        (File(b"a", checksum=1), "Bad CRC-32"),
        (File(b"a", b"x", deflated=True, packed=b"\xff\xff\xff"), "invalid"),
        (File(b"a", b"x" * 90, deflated=True, packed=deflate(b"x" * 90)[:2]), ""),
        (File(b"a", offset=7), "has data before it"),
        (File(b"a", size=0xFFFFFFFF), ""),
    ],
)
def test_a_file_that_is_not_what_it_seems_is_refused(tmp_path: Path, file: File, reason: str) -> None:
    message = refused(tmp_path, build([File(b"good"), file] if file.offset is None else [file]))
    assert reason in message
    assert message.endswith("; download it again, or have it packed again with seqloom pack")


def test_files_that_overlap_are_refused(tmp_path: Path) -> None:
    inner = File(b"b", b"y" * 10)
    data = build([inner])[:41]  # a whole file, header and all, as the bytes of another one
    outer = build([File(b"a", data)])
    offset = outer.index(data)
    entry = build([replace(inner, offset=offset)])[41:-22]  # only told of in the directory
    end = outer.index(b"PK\1\2")
    directory = outer[end:-22] + entry
    archive = outer[:end] + directory + END.pack(b"PK\5\6", 0, 0, 2, 2, len(directory), end, 0)
    assert zipfile.ZipFile(io.BytesIO(archive)).namelist() == ["a", "b"]
    assert "'b' overlaps another file" in refused(tmp_path, archive)


@pytest.mark.parametrize(
    "archive",
    [
        b"",
        b"PK",
        b"\x80\x04\x95 a pickle",
        build([File(b"a")])[:-1],
        build([File(b"a")])[:-30],
        build([File(b"a")])[:20],
        build([File(b"a")], after=b"rubbish"),
        build([File(b"a")], comment=b"a comment"),
        build([File(b"a")], before=b"#!/bin/sh\n"),
        b"MZ" + build([File(b"a")]),
        build([File(b"a")], count=2),
        build([File(b"a"), File(b"b")], count=1),
        build([File(b"a")], count=0xFFFF),
    ],
)
def test_truncated_archives_and_data_before_or_after_are_refused(tmp_path: Path, archive: bytes) -> None:
    refused(tmp_path, archive)


def test_bombs_are_refused_before_they_grow(tmp_path: Path) -> None:
    zeros = bytes(5 << 20)
    assert "at most 100 to 1" in refused(tmp_path, build([File(b"a", zeros, deflated=True)]))
    many = build([File(f"f{number}".encode(), b"") for number in range(6)])
    assert "it has 6 files; at most 5 are allowed" in refused(tmp_path, many, limits=Limits(members=5))
    large = build([File(b"a", bytes(60)), File(b"b", bytes(60))])
    assert "its files have 120 bytes; at most 100 are allowed" in refused(tmp_path, large, limits=Limits(bytes=100))
    # A bomb that says it is small: what comes out is counted, and the rest is never made.
    liar = build([File(b"a", zeros, deflated=True, size=1000)])
    assert "Bad CRC-32" in refused(tmp_path, liar)
    left = tmp_path / "home" / "out" / "a"
    assert left.stat().st_size <= 1000


def test_a_full_disk_is_reported_before_anything_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = written(tmp_path)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 7})())
    with pytest.raises(SeqloomError, match="and 7 are free") as error:
        extract_archive(archive, tmp_path / "out")
    assert not isinstance(error.value, ModelError)
    assert not (tmp_path / "out").exists()


def test_what_cannot_be_unpacked_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"")
    for name in ("../a", "CON", "ä"):
        with pytest.raises(UsageError, match="cannot be put into an archive"):
            write_archive(tmp_path / "out.zip", {name: tmp_path / "a"})
    assert not (tmp_path / "out.zip").exists()


def test_an_archive_is_known_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.ZIP").write_bytes(b"")
    (tmp_path / "b.zip").mkdir()
    (tmp_path / "c.pt").write_bytes(build([File(b"a")]))
    assert [is_archive(tmp_path / name) for name in ("a.ZIP", "b.zip", "c.pt", "d.zip")] == [True, False, False, False]


def test_bytes_changed_anywhere_give_the_same_files_or_a_refusal(tmp_path: Path) -> None:
    """Every byte outside the largest file, and some inside, each in two ways."""
    files = [File(b"a", b"x" * 40, deflated=True), File(b"sub/b", b"data of b"), File(b"c", b"")]
    whole = build(files)
    good = {file.name.decode(): file.data for file in files}
    chance, path, kept = random.Random(1), tmp_path / "home" / "flipped.zip", 0
    messages: list[str] = []
    path.parent.mkdir()
    for number in range(2 * len(whole)):
        changed = bytearray(whole)
        changed[number // 2] ^= 1 << chance.randrange(8) if number % 2 else 0xFF
        path.write_bytes(changed)
        out = path.parent / f"out-{number}"
        try:
            extract_archive(path, out)
        except ModelError as error:
            messages.append(str(error))
        else:
            kept += 1
            assert contents(out) == good
        assert {each.name for each in tmp_path.iterdir()} == {"home"}
    assert all(map(str.isprintable, messages))
    assert 0 < kept < len(whole)  # dates and the like may change, most may not
