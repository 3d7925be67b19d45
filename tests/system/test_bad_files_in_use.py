"""Odd text that a trained model meets: it is put right, told of, and as many lines come out as went in.

The rows are those of the section "Bad files" in docs/reliability.md.
"""

from pathlib import Path
from unittest import mock

import pytest

from seqloom.apps.backends import NetworkBackend
from seqloom.runs import translator as translate
from system.bad_files import ENGLISH, GERMAN, LANGUAGE_MODEL, TRANSLATOR, Bench, as_bytes, write_model

A, B = as_bytes(ENGLISH), as_bytes(GERMAN)
BAD = A.replace(b"house 2", b"caf\xe9 2")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("models")
    return write_model(folder / "translator", TRANSLATOR), write_model(folder / "lm", LANGUAGE_MODEL)


@pytest.fixture
def bench(tmp_path: Path, models: tuple[Path, Path]) -> Bench:
    return Bench(tmp_path, *models)


MARK = "the byte-order mark at the start was left out"
ROWS: dict[str, tuple[bytes, tuple[str, ...], int, list[str]]] = {
    # what stands in the file, flags, lines that come out, what is said
    "empty": (b"", (), 0, []),
    "no final newline": (b"a cat\na dog", (), 2, []),
    "mark at the start": (b"\xef\xbb\xbfthe dog\n", (), 1, [MARK]),
    "CR LF": (b"the dog\r\nthe cat\n", (), 2, ["carriage returns at the ends of lines were left out"]),
    "other line breaks": ("a\rb\u2028c\u2029d\x85e\x0bf\x0cg\n".encode(), (), 1, []),
    "NUL": (b"the d\0og\nthe\0 cat\n", (), 2, ["a.en:1: NUL characters are read as spaces; is this binary data?"]),
    "Latin-1, said": (BAD, ("--encoding", "latin-1"), 12, []),
    "UTF-16, said": (A.decode().encode("utf-16"), ("--encoding", "utf-16"), 12, []),
    "bad bytes, replaced": (BAD, ("--on-bad-utf8", "replace"), 12, ["(line 3) has U+FFFD in place of each such byte"]),
    "bad bytes, skipped": (BAD, ("--on-bad-utf8", "skip"), 12, ["(line 3) is read as empty"]),
    "zero width, soft hyphens": ("a\u200bb\u00adc\u2060\ufeffd\n".encode(), (), 1, []),
    "accents in piles": (("Z" + "\u0300\u0315" * 300 + "algo\n").encode(), (), 1, []),
    "right to left": ("שלום the dog مرحبا\n".encode(), (), 1, []),
    "direction overrides": ("the \u202edog\u202c \u2066cat\u2069\n".encode(), (), 1, []),
    "emoji, joined, flags, astral": ("👩\u200d👩\u200d👧 🇩🇪 🏴\U000e0067\U000e0062 𝔘 𠜎\n".encode(), (), 1, []),
    "all unknown": ("αβγ δεζ\nηθι\n".encode(), (), 2, ["100% of the source is unknown to this model"]),
    "another script": (
        ("Собака в доме. " * 9 + "\n").encode(),
        (),
        1,
        ["should be English (en), but its letters are Cy"],
    ),
    "another language": (B, (), 12, ["the source should be English (en), but its small words are German"]),
    "special tokens": (b"</s> <pad> <s> <unk>\n", (), 1, []),
}


@pytest.mark.parametrize("row", ROWS)
def test_as_many_lines_come_out_and_what_is_odd_is_told_once(bench: Bench, row: str) -> None:
    content, flags, lines, said = ROWS[row]
    bench.write({"a.en": content})
    called = bench.call("translate", "MODEL", "a.en", *flags)
    assert called.code == 0, called.err
    assert len(called.lines) == lines
    assert called.out.endswith("\n") == bool(lines)
    assert "\r" not in called.out
    for sentence in said:
        assert called.err.count(sentence) == 1, called.err


def test_a_text_that_nothing_is_wrong_with_is_not_commented(bench: Bench) -> None:
    bench.write({"a.en": A, "a.de": B})
    for words in (("translate", "MODEL", "a.en", "search.length_factor=3.0"), ("score", "MODEL", "a.en", "a.de")):
        called = bench.call(*words)
        said = [line for line in called.err.split("\n") if line and "maximum output length" not in line]
        assert (called.code, said) == (0, [])


def test_blank_lines_stay_blank_and_the_model_is_not_asked(bench: Bench) -> None:
    bench.write({"a.en": "\n \t\u3000\n\u200b\u200d\ufeff\u00ad\n".encode(), "a.de": b"x\ny\nz\n"})
    with mock.patch.object(translate, "decode", side_effect=AssertionError("the model was asked")):
        plain = bench.call("translate", "MODEL", "a.en")
        scored = bench.call("translate", "MODEL", "a.en", "--scores")
    assert (plain.code, plain.out) == (0, "\n\n\n")
    assert scored.lines == ["null\t"] * 3
    with mock.patch.object(NetworkBackend, "_log_probs", side_effect=AssertionError("the model was asked")):
        assert bench.call("score", "MODEL", "a.en", "a.de").lines == ["null"] * 3


def test_a_skipped_line_is_an_empty_one(bench: Bench) -> None:
    bench.write({"a.en": BAD, "a.de": B})
    lines = bench.call("translate", "MODEL", "a.en", "--on-bad-utf8", "skip", "--scores").lines
    assert [line == "null\t" for line in lines] == [n == 2 for n in range(12)]
    scores = bench.call("score", "MODEL", "a.en", "a.de", "--on-bad-utf8", "skip").lines
    assert [score == "null" for score in scores] == [n == 2 for n in range(12)]


def test_all_bad_lines_of_a_file_are_told_before_the_model_is_read(bench: Bench) -> None:
    bench.write({"a.en": b"ok\n" + b"\xff\n" * 7})
    called = bench.call("translate", bench.folder / "no.model", "a.en", "--json")
    assert called.code == 3
    assert [problem["line"] for problem in called.messages[-1]["problems"]] == [2, 3, 4, 5, 6, 7, 8]
    assert "… and 2 more problems like these" in called.messages[-1]["message"]


@pytest.mark.parametrize("text", ["the dog " * 12_500, "dog" * 33_000])
def test_a_line_of_a_hundred_thousand_stays_one_line_and_is_named(bench: Bench, text: str) -> None:
    bench.write({"a.en": as_bytes(["the dog", text, "the cat"])})
    called = bench.call("translate", "MODEL", "a.en", "search.length_factor=0", "search.length_constant=1")
    assert called.code == 0, called.err
    assert len(called.lines) == 3
    assert "a.en:2: longer than 256 tokens, translated in " in called.err


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["the dog ", "x"])
def test_a_line_of_half_a_million_is_gone_through_to_its_end(bench: Bench, unit: str) -> None:
    bench.write({"a.en": as_bytes([unit * (500_000 // len(unit))])})
    called = bench.call("translate", "MODEL", "a.en", "search.length_factor=0", "search.length_constant=1")
    assert (called.code, len(called.lines)) == (0, 1)


def test_scoring_and_measuring_read_as_translating_does(bench: Bench) -> None:
    bench.write({"a.en": b"\xef\xbb\xbfthe d\0og\r\n\nthe cat", "a.de": b"der Hund\nx\ndie Katze\n"})
    scored = bench.call("score", "MODEL", "a.en", "a.de")
    assert [line == "null" for line in scored.lines] == [False, True, False]
    for said in (MARK, "a.en:1: NUL characters are read as spaces"):
        assert scored.err.count(said) == 1
    measured = bench.call("perplexity", "LM", "a.en", "--per-line")
    assert (measured.code, len(measured.lines)) == (0, 3)
    assert measured.err.count("a.en:1: NUL characters are read as spaces") == 1
    bench.write({"a.en": BAD})
    skipped = bench.call("perplexity", "LM", "a.en", "--per-line", "--on-bad-utf8", "skip")
    assert (skipped.code, len(skipped.lines)) == (0, 12)
    bench.write({"a.en": b""})
    assert bench.call("perplexity", "LM", "a.en").code == 3


def test_swapped_files_are_told_when_they_are_scored(bench: Bench) -> None:
    bench.write({"a.en": A, "a.de": B})
    swapped = bench.call("score", "MODEL", "a.de", "a.en")
    assert swapped.err.count("source and target look swapped") == 1
    evaluated = bench.call("evaluate", "MODEL", "--source", "a.de", "--reference", "a.de")
    assert "the source should be English (en), but its small words are German" in evaluated.err


def test_words_that_are_unknown_can_be_copied_through(bench: Bench) -> None:
    bench.write({"a.en": "😀 𠜎\n".encode()})
    called = bench.call("translate", "MODEL", "a.en", "search.unknown=copy")
    assert (called.code, len(called.lines)) == (0, 1)


def test_a_tokeniser_of_another_model_is_refused_with_both_hashes(bench: Bench, tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", TRANSLATOR)
    (piece_file,) = (model / "text" / "shared").glob("bpe.json")
    piece_file.write_text(piece_file.read_text(encoding="utf-8").replace("Hund", "Huhn"), encoding="utf-8")
    bench.write({"a.en": A})
    called = bench.call("translate", model, "a.en")
    assert (called.code, called.out) == (4, "")
    assert "bpe.json: SHA-256 is " in called.err
    assert "… was written" in called.err
