"""`seqloom doctor`: told in words, as records and as a page; exit 3 where one must not train."""

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


def test_words_page_and_mended_copy(files: tuple[Path, Path], tmp_path: Path) -> None:
    out = tmp_path / "new" / "mended"
    called = call("doctor", *files, "--out", out, "--fix", "safe")
    assert called.code == 0, called.err
    assert called.lines[0] == "train 260 pairs"
    assert any(line.startswith("mend  Copies instead of translations (train): 1 line") for line in called.lines)
    assert f"report with pictures: {out / 'report.html'}" in called.lines
    assert "\u202e" not in called.out
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "<script" not in page
    assert "alert(1)&lt;/script&gt; {{FAULTS}} <span" in page
    assert "http" not in page.replace("http-equiv", "")
    kept = (out / "corpus.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert len(kept) == 257
    log = (out / "repairs.tsv").read_text(encoding="utf-8").split("\n")
    assert f"103\t{files[0]}\tdropped\tempty: nothing on one side" in log


def test_what_safe_repairs_leave_is_told(tmp_path: Path) -> None:
    pairs = [(pair.source, pair.target) for pair in sample_pairs("en", "de", count=400, seed=4)]
    pairs[100:120] = [(target, source) for source, target in pairs[100:120]]
    paths = tmp_path / "corpus.en", tmp_path / "corpus.de"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
    called = call("doctor", *paths, "--out", tmp_path / "mended", "--fix", "safe")
    at = called.lines.index("not mended:")
    assert called.lines[at + 1].startswith("  Source and target swapped (train, ")
    assert called.lines[at + 1].endswith(" lines): --fix swapped")
    assert any(line.startswith("all in one: --fix safe,swapped") for line in called.lines)
    called = call("doctor", *paths, "--out", tmp_path / "all", "--fix", "all")
    assert not any("--fix" in line for line in called.lines[called.lines.index("not mended:") + 2 :])
    assert any(line.endswith(": no --fix takes care of it") for line in called.lines), "characters of held-out lines"


def test_records(files: tuple[Path, Path], tmp_path: Path) -> None:
    called = call("doctor", "--train", f"{files[0]},{files[1]}", "--html", tmp_path / "r.html", "--json")
    assert called.code == 0, called.err
    *faults, verdict = called.records
    copies = next(record for record in faults if record.get("kind") == "copies")
    assert copies["lines"] == [{"line": 101, "place": f"{files[0]}:101"}]
    assert (copies["count"], copies["severity"], copies["left_out"]) == (1, "mend", 0)
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


def test_a_line_too_few_is_told_before_anything_else(files: tuple[Path, Path]) -> None:
    lines = files[1].read_text(encoding="utf-8").split("\n")
    files[1].write_text("\n".join(lines[:50] + lines[51:]), encoding="utf-8")
    called = call("doctor", *files)
    assert called.code == 3
    assert "has 260 lines" in called.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "name the text to look at"),
        (["--fix", "safe"], "name a folder for it with --out"),
        (["--fix", "copys", "--out", "x"], "--fix copys: no such repair"),
        (["data.encodin=latin-1"], "data.encodin"),
    ],
)
def test_what_cannot_be_done_is_said(files: tuple[Path, Path], words: list[str], message: str) -> None:
    called = call("doctor", *(files if words else ()), *words)
    assert called.code == 2
    assert message in called.err


def test_text_that_no_repair_made_is_not_replaced(files: tuple[Path, Path], tmp_path: Path) -> None:
    folder = tmp_path / "dev"
    folder.mkdir()
    for path in files:
        (folder / path.name).write_text("dear to somebody\n")
    called = call("doctor", *files, "--out", folder, "--fix", "safe")
    assert called.code == 2
    assert "is there already, and no repair made it" in called.err
    assert [path.read_text() for path in folder.iterdir()] == ["dear to somebody\n"] * 2, "and no report either"
    for _ in range(2):  # a second time into its own folder
        assert call("doctor", *files, "--out", tmp_path / "mended", "--fix", "safe").code == 0
    table = tmp_path / "repairs.tsv"
    table.write_text("eins\tone\nzwei\ttwo\n" * 20, encoding="utf-8")
    called = call("doctor", table, "--out", tmp_path / "log", "--fix", "safe")
    assert called.code == 2
    assert "the log of repairs has that name" in called.err
