"""`seqloom doctor`: output as text, as records and as a page; exit 3 if the text is unfit for training."""

import errno
from pathlib import Path

import pytest

from cli.calling import call
from seqloom.data.phrasebook import sample_pairs

HOSTILE = "</td><script>alert(1)</script> {{FAULTS}} \u202e evil"


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    pairs = [(pair.source, pair.target) for pair in sample_pairs("en", "de", count=260, seed=4)]
    pairs[100:104] = [(pairs[100][0], pairs[100][0]), pairs[3], ("", "Nichts."), (HOSTILE, "Eine böse Zeile hier.")]
    paths = tmp_path / "corpus.en", tmp_path / "corpus.de"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    return paths


def test_words_page_and_repaired_copy(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "repaired"
    called = call("doctor", *files, "--out", out, "--fix", "safe")
    assert called.code == 0, called.err
    assert called.lines[0] == "train 260 pairs"
    assert any(line.startswith("fix   Copies instead of translations (train): 1 line") for line in called.lines)
    assert f"report with charts: {out / 'report.html'}" in called.lines
    assert "\u202e" not in called.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "alert(1)&lt;/script&gt; {{FAULTS}} <span" in page
    assert "http" not in page.replace("http-equiv", "")
    kept = (out / "corpus.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(kept) == 257
    log = (out / "repairs.tsv").read_text(encoding="utf-8").split("\n")
    assert f"103\t{files[0]}\tdropped\tempty: one side is empty" in log


def test_the_pairs_of_a_folder_are_examined(files: tuple[Path, Path]) -> None:
    called = call("doctor", "--train", files[0].parent, "data.source=en")
    assert called.lines[0] == "train 260 pairs", called.err
    assert f"{files[0].parent}: 1 pair of files, en → de" in called.err


def test_faults_left_by_safe_repairs_are_listed(tmp_path: Path) -> None:
    pairs = [(pair.source, pair.target) for pair in sample_pairs("en", "de", count=400, seed=4)]
    pairs[100:120] = [(target, source) for source, target in pairs[100:120]]
    paths = tmp_path / "corpus.en", tmp_path / "corpus.de"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    called = call("doctor", *paths, "--out", tmp_path / "repaired", "--fix", "safe")
    at = called.lines.index("not repaired:")
    assert called.lines[at + 1].startswith("  Source and target swapped (train, ")
    assert called.lines[at + 1].endswith(" lines): --fix swapped")
    assert any(line.startswith("all of these: --fix safe,swapped") for line in called.lines)
    called = call("doctor", *paths, "--out", tmp_path / "all", "--fix", "all")
    assert not any("--fix" in line for line in called.lines[called.lines.index("not repaired:") + 2 :])
    assert any(line.endswith(": no --fix available") for line in called.lines), "characters of held-out lines"


def test_records(files: tuple[Path, Path], tmp_path: Path) -> None:
    called = call("doctor", "--train", f"{files[0]},{files[1]}", "--html", tmp_path / "r.html", "--json")
    assert called.code == 0, called.err
    *faults, verdict = called.records
    copies = next(record for record in faults if record.get("kind") == "copies")
    assert copies["lines"] == [{"line": 101, "place": f"{files[0]}:101"}]
    assert (copies["count"], copies["severity"], copies["left_out"]) == (1, "fix", 0)
    assert verdict["record"] == "verdict"
    assert verdict["pairs"] == {"train": 260}
    assert verdict["settings"]["text"]["size"] == 1000
    assert (tmp_path / "r.html").is_file()


def test_swapped_files_exit_with_three(files: tuple[Path, Path], tmp_path: Path) -> None:
    english, german = tmp_path / "turned.en", tmp_path / "turned.de"
    english.write_bytes(files[1].read_bytes())
    german.write_bytes(files[0].read_bytes())
    called = call("doctor", english, german)
    assert called.code == 3
    assert "stop  Swapped files" in called.out
    assert called.err.count("error") == 0


def test_a_missing_line_is_reported_first(files: tuple[Path, Path]) -> None:
    lines = files[1].read_text(encoding="utf-8").split("\n")
    files[1].write_text("\n".join(lines[:50] + lines[51:]), encoding="utf-8")
    called = call("doctor", *files)
    assert called.code == 3
    assert "has 260 lines" in called.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no training text given"),
        (["--fix", "safe"], "name a folder for it with --out"),
        (["--fix", "copys", "--out", "x"], "--fix copys: unknown repair"),
        (["data.encodin=latin-1"], "data.encodin"),
    ],
)
def test_invalid_requests_are_refused(files: tuple[Path, Path], words: list[str], message: str) -> None:
    called = call("doctor", *(files if words else ()), *words)
    assert called.code == 2
    assert message in called.err


def test_no_file_is_replaced_and_nothing_is_read_before(files: tuple[Path, Path], tmp_path: Path) -> None:
    """Whatever lies where the report, the log or a repaired file would go: text of the user, or an earlier report."""
    for name in ("report.html", "repairs.tsv", files[0].name, files[1].name):
        folder = tmp_path / f"with-{name}"
        folder.mkdir()
        (folder / name).write_text("dear to somebody\n")
        called = call("doctor", *files, "--out", folder, "--fix", "safe")
        assert called.code == 2
        assert f"{folder / name} already exists; remove it, or name another place with --out" in called.err
        assert "reading" not in called.err
        assert [path.read_text() for path in folder.iterdir()] == ["dear to somebody\n"], "and no report either"
    folder = tmp_path / "with-report.html"
    called = call("doctor", *files, "--out", folder)
    assert called.code == 2
    assert (folder / "report.html").read_text() == "dear to somebody\n"
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "report.html").symlink_to(tmp_path / "elsewhere.html")
    assert call("doctor", *files, "--out", tmp_path / "linked").code == 2
    assert not (tmp_path / "elsewhere.html").exists()


@pytest.mark.parametrize("more", [(), ("--fix", "safe")])
def test_no_text_that_is_read_is_written(
    files: tuple[Path, Path], tmp_path: Path, more: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = files[0].read_bytes()
    page = tmp_path / "report.html"
    page.write_bytes(text)
    monkeypatch.chdir(tmp_path)
    for folder in (Path(), tmp_path):
        called = call("doctor", "report.html", files[1], "--out", folder, *more)
        assert called.code == 2
        assert "is the input itself, which is never modified" in called.err
    dev = tmp_path / "dev"
    dev.mkdir()
    (dev / "repairs.tsv").write_text("line\tfile\twhat\twhy\n")
    for name, other in (("corpus.en", "corpus.de"), ("report.html", "dev.de")):
        (dev / name).write_bytes(text)
        (dev / other).write_bytes(files[1].read_bytes())
    for name, other in (("corpus.en", "corpus.de"), ("report.html", "dev.de")):
        for option in ("--dev", "--test"):
            held_out = f"{dev / name},{dev / other}"
            called = call("doctor", "--train", ",".join(map(str, files)), option, held_out, "--out", dev, *more)
            assert called.code == 2
    for pattern in ("report.html", "corp*.en"):
        called = call("doctor", pattern, files[1], "--html", tmp_path / pattern.replace("*", "us"))
        assert called.code == 2
        assert "is also an input" in called.err
    assert {path.read_bytes() for path in (page, files[0], dev / "corpus.en", dev / "report.html")} == {text}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.de", "corpus.en", "dev", "report.html"]
    assert len(list(dev.iterdir())) == 5


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["repairs.tsv"], "the log of repairs has that name"),
        (["report.html", "b.en"], "the report has that name"),
        (["a/same", "b/same"], "source and target have the same name"),
    ],
)
def test_names_that_would_be_written_twice(
    tmp_path: Path, names: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in names:
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("eins\tone\nzwei\ttwo\n" * 20, encoding="utf-8")
    called = call("doctor", *names, "--out", "new", "--fix", "safe")
    assert called.code == 2
    assert message in called.err
    assert not Path("new").exists()


def test_an_unwritable_output_is_refused_before_the_examination(
    files: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def create(_path: Path, *, place: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(place))

    monkeypatch.setattr("seqloom.core.files.create", create)
    (tmp_path / "there").mkdir()
    for out, told in (("new/below", "new"), ("there", "there/report.html")):
        called = call("doctor", *files, "--out", tmp_path / out)
        assert called.code == 2
        assert f"{tmp_path / told}: Permission denied" in called.err
        assert "reading" not in called.err
    assert not (tmp_path / "new").exists()


def test_the_page_cannot_replace_the_repaired_text(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "new"
    called = call("doctor", *files, "--out", out, "--fix", "safe", "--html", out / "corpus.de")
    assert called.code == 2
    assert "is a file of the repaired text" in called.err
    called = call("doctor", *files, "--out", files[0])
    assert called.code == 2
    assert "is not a folder" in called.err
