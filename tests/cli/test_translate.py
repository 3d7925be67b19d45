"""`seqloom translate`: as many lines out as in, whatever is in them."""

import gzip
import json
import re
import shutil
from pathlib import Path

import pytest

from cli.calling import call, start
from cli.conftest import Tiny, as_lowercase_model
from seqloom.cli import inputs

ODD = "Good morning.\n\n \u200b \nThe dog\u2028sees\u0085a\x0btree.\r\nlone\rreturn\n日本語 🙂\nlast without end"
ODD_LINES = 7


def test_n_lines_in_n_lines_out_in_a_locale_without_utf8(tiny: Tiny) -> None:
    process = start("translate", tiny.run, locale="C")
    out, err = process.communicate(ODD.encode(), timeout=120)
    lines = out.decode("utf-8").split("\n")
    assert process.returncode == 0, err
    assert len(lines) == ODD_LINES + 1
    assert (lines[1], lines[2], lines[-1]) == ("", "", "")


def test_lines_are_translated_before_the_input_ends_and_a_closed_pipe_is_not_an_error(tiny: Tiny) -> None:
    process = start("translate", tiny.run)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.write(b"Good morning.\n")
    process.stdin.flush()
    assert process.stdout.readline().endswith(b"\n")  # would wait for ever if lines were held back
    process.stdout.close()
    process.stdin.write(b"Good evening.\n" * 50)
    process.stdin.close()
    assert process.wait(timeout=120) == 0
    assert process.stderr.read() == b""


def test_a_file_and_standard_input_give_the_same(tiny: Tiny, tmp_path: Path) -> None:
    source = tiny.dev[0]
    packed = tmp_path / "dev.en.gz"
    packed.write_bytes(gzip.compress(source.read_bytes()))
    expected = call("translate", tiny.run, stdin=source.read_bytes())
    assert len(expected.lines) == 6
    assert call("translate", tiny.run, source).out == expected.out
    assert call("translate", tiny.run / "model", packed).out == expected.out
    out = tmp_path / "dev.out"
    called = call("translate", tiny.run, source, "--out", out)
    assert (called.code, called.out) == (0, "")
    assert out.read_text(encoding="utf-8") == expected.out
    assert [path.name for path in tmp_path.iterdir() if "partial" in path.name] == []


def test_empty_input_gives_empty_output(tiny: Tiny) -> None:
    called = call("translate", tiny.run)
    assert (called.code, called.out) == (0, "")


def test_nbest_lists_line_text_and_score_best_first(tiny: Tiny) -> None:
    called = call("translate", tiny.run, "--nbest", 3, stdin=b"Good morning.\n\nThe dog sees a tree.\n")
    cells = [line.split(" ||| ") for line in called.lines]
    assert [row[0] for row in cells] == ["1", "1", "1", "2", "3", "3", "3"]
    assert cells[3] == ["2", "", "null"]
    scores = [float(row[2]) for row in cells[:3]]
    assert scores == sorted(scores, reverse=True)


def test_nbest_beyond_the_beam_is_refused_with_both_numbers(tiny: Tiny) -> None:
    called = call("translate", tiny.run, "--nbest", 9)
    assert called.code == 2
    assert "--nbest 9 is larger than search.beam=4; add search.beam=9" in called.err
    grouped = call("translate", tiny.run, "--nbest", 9, "search.groups=2")
    assert "add search.beam=10" in grouped.err


def test_nbest_of_samples_does_not_depend_on_the_beam(tiny: Tiny) -> None:
    words = ["--nbest", 9, "search.method=sample", "search.top_k=1"]
    called = call("translate", tiny.run, *words, stdin=b"Good morning.\n")
    assert called.code == 0
    assert len(called.lines) == 9
    texts = {line.split(" ||| ")[1] for line in called.lines}
    assert len(texts) == 1  # one symbol to choose from at each step


def test_scores_precede_the_text(tiny: Tiny) -> None:
    called = call("translate", tiny.run, "--scores", stdin=b"Good morning.\n\n")
    first, second = (line.split("\t") for line in called.lines)
    assert float(first[0]) < 0
    assert first[1] == call("translate", tiny.run, stdin=b"Good morning.\n").lines[0]
    assert second == ["null", ""]


def test_json_itemises_the_score(tiny: Tiny) -> None:
    called = call("translate", tiny.run, "--json", "search.nbest=2", stdin=b"Good morning.\n\n")
    first, second = called.records
    assert (first["line"], first["source"], len(first["translations"])) == (1, "Good morning.", 2)
    best = first["translations"][0]
    assert sum(best["terms"].values()) == pytest.approx(best["score"], abs=1e-9)
    assert sum(best["token_log_probs"]) == pytest.approx(best["terms"]["log_prob"], abs=1e-9)
    assert len(best["tokens"]) == len(best["token_log_probs"])
    assert second["translations"][0]["text"] == ""
    assert second["translations"][0]["score"] is None


def test_json_marks_translations_that_no_wider_beam_can_beat(tiny: Tiny) -> None:
    def marks(*words: str) -> list[list[bool]]:
        records = call("translate", tiny.run, "--json", *words, stdin=b"Good morning.\nYes.\nThe dog sleeps.\n").records
        return [[each["is_complete"] for each in record["translations"]] for record in records]

    # With so high a price per symbol nothing can beat the shortest output, and the search proves it.
    proven = ["search.reward=-100", "search.beam=300", "search.nbest=2", "search.length_constant=0"]
    assert [each[0] for each in marks(*proven)] == [True] * 3
    assert marks(*proven, "search.rerank=agreement") == [[False, False]] * 3  # no longer ordered by score
    assert not any(each[0] for each in marks("search.method=sample"))


def test_settings_of_the_search_are_used(tiny: Tiny) -> None:
    greedy = call("translate", tiny.run, "search.beam=1", "--json", stdin=b"Good morning.\n").records
    assert len(greedy[0]["translations"]) == 1
    short = call("translate", tiny.run, "search.length_factor=0", "search.length_constant=1", "--json", stdin=b"Hm.\n")
    assert len(short.records[0]["translations"][0]["tokens"]) == 1


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["model.width=32"], ["'model.width=32'", "search.beam=8"]),
        (["search.beem=3"], ["beem", "beam"]),
        (["--scores", "--json"], ["--scores cannot be combined with --json: it includes the scores"]),
        (["a.de", "b.de"], ["a.de, b.de", "at most one text file"]),
        (["nowhere.de"], ["nowhere.de: no such file"]),
        (["--out", "no/such/folder/x.en"], ["no/such/folder"]),
        (["device=cude"], ["cude"]),
        (["search.temperature=0.7"], ["search.temperature=0.7 has no effect", "search.method=sample"]),
        (["search.top_k=5"], ["search.top_k=5 has no effect", "search.method=sample"]),
        (["search.rerank=agreement"], ["search.rerank=agreement has no effect", "search.nbest"]),
        (["search.groups=3"], ["beam 4 is not divisible", "search.beam=3 or 6", "search.groups=2 or 4"]),
    ],
)
def test_invalid_arguments_are_refused_with_a_message(tiny: Tiny, words: list[str], parts: list[str]) -> None:
    called = call("translate", tiny.run, *words)
    assert (called.code, called.out) == (2, "")
    assert [part for part in parts if part not in called.err] == []


def test_an_output_file_that_is_the_input_is_refused_and_left_alone(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_text("Good morning.\n")
    called = call("translate", tiny.run, path, "--out", tmp_path / "." / "text.en")
    assert called.code == 2
    assert f"{path} is also an input" in called.err
    assert path.read_text() == "Good morning.\n"


def test_no_output_takes_the_place_of_a_model(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_text("Good morning.\n")
    packed = tmp_path / "model.zip"
    assert call("pack", tiny.run, packed).code == 0
    weights = tiny.run / "model" / "model.safetensors"
    before = packed.read_bytes(), weights.read_bytes()
    for words in (
        ["translate", packed, path, "--out", packed],
        ["translate", packed, path, "--align", packed],
        ["translate", tiny.run, path, "--out", weights],
        ["evaluate", packed, "--source", path, "--reference", path, "--out", packed],
    ):
        called = call(*words)
        assert called.code == 2, words
        assert "is also an input" in called.err or "is part of a model" in called.err
    assert (packed.read_bytes(), weights.read_bytes()) == before


def test_invalid_utf8_is_reported_with_line_and_column(tiny: Tiny, tmp_path: Path) -> None:
    text = "fine\nschön\xe9\n".encode("latin-1")
    called = call("translate", tiny.run, stdin=text)
    assert (called.code, called.out) == (3, "")
    assert "standard input:2:4: invalid UTF-8 byte 0xF6" in called.err
    path = tmp_path / "latin.de"
    path.write_bytes(text)
    called = call("translate", tiny.run, path, "--json")
    assert called.code == 3
    (record,) = called.messages
    assert record["problems"][0]["line"] == 2
    assert record["problems"][0]["file"] == str(path)


def test_nul_bytes_become_spaces_with_one_warning(tiny: Tiny) -> None:
    called = call("translate", tiny.run, stdin=b"Good morning.\nGood\0morning.\0\n")
    assert called.code == 0
    assert len(called.lines) == 2
    assert called.err.count("standard input:2: NUL") == 1


def test_a_source_that_is_all_unknown_is_warned_of_once(tiny: Tiny) -> None:
    called = call("translate", tiny.run, "--json", stdin="字字\n漢漢\n".encode())
    assert called.code == 0
    assert len(called.records) == 2
    assert [record["message"] for record in called.messages if "unknown" in record["message"]] == [
        "100% of the source is unknown to this model; is this the right language and model?"
    ]


def test_lines_that_are_mostly_unknown_are_named_at_the_end(tiny: Tiny) -> None:
    text = "Good morning.\n日本語のテスト\n\nGood 🙂\n🙂🙂🙂 ok\n"
    called = call("translate", tiny.run, "--json", stdin=text.encode())
    (message,) = [each["message"] for each in called.messages if "unknown" in each["message"]]
    assert message.startswith("standard input: more than half of each of lines 2, 5 is unknown to this model")
    fine = call("translate", tiny.run, stdin=b"Good morning.\n")
    assert "unknown" not in fine.err


def test_translations_that_were_cut_are_counted_once_at_the_end(tiny: Tiny) -> None:
    short = ["search.length_factor=0", "search.length_constant=1", "search.beam=1"]
    text = b"Good morning.\n\nThe dog sees a tree.\n"
    called = call("translate", tiny.run, *short, "--json", stdin=text)
    cut = [each["hit_limit"] for record in called.records for each in record["translations"]]
    (message,) = [each["message"] for each in called.messages if "maximum output length" in each["message"]]
    assert cut == [True, False, True]
    assert message.startswith("standard input: 2 of 3 translations ended at the maximum output length")
    assert "(lines 1, 3)" in message
    assert "increase search.length_overrun" in message
    whole = call("translate", tiny.run, "search.beam=1", "search.length_factor=100", "--json", stdin=b"\n")
    assert whole.err == ""


def test_a_lowercase_model_finds_terms_in_any_case(tiny: Tiny, tmp_path: Path) -> None:
    terms = tmp_path / "terms.tsv"
    terms.write_text("DOG\tKatze\n", encoding="utf-8")
    words = ["--glossary", terms, "search.beam=4", "search.length_constant=20"]
    line = b"The dog sees a tree.\n"
    small = as_lowercase_model(tiny.run / "model", tmp_path / "small", setting="text")
    called = call("translate", small, *words, stdin=line)
    assert called.code == 0, called.err
    assert "katze" in called.out.split("\n")[0]
    assert "Katze" not in call("translate", tiny.run, *words, stdin=line).out  # there case counts


def test_invalid_settings_are_reported_before_the_weights_are_read(tiny: Tiny, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny.run / "model", tmp_path / "copy")
    (copy / "model.safetensors").write_bytes(b"")
    called = call("translate", copy, "search.alpha=-1", stdin=b"Hm.\n")
    assert called.code == 2
    assert "alpha" in called.err
    assert "damaged" in call("translate", copy, stdin=b"Hm.\n").err


def test_a_line_longer_than_the_model_reads_stays_one_line_and_is_named(tiny: Tiny) -> None:
    called = call("translate", tiny.run, "search.beam=1", stdin=b"ok\n" + b"The dog sees a tree. " * 30 + b"\n")
    assert len(called.lines) == 2
    assert "standard input:2: longer than 256 tokens" in called.err


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    called = call("translate", tmp_path, "--json")
    assert called.code == 4
    assert json.loads(called.err)["message"].startswith(f"{tmp_path} is not a model directory: model.json is missing")


def test_a_damaged_model_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    copy = shutil.copytree(tiny.run / "model", tmp_path / "copy")
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    called = call("translate", copy, stdin=b"Hm.\n")
    assert (called.code, called.out) == (4, "")
    assert "damaged: model.safetensors" in called.err


# --- constraints, ensembles, alignments, tags, engines ----------------------------------------------------------------


def test_constraints_come_from_files_and_flags(tiny: Tiny, tmp_path: Path) -> None:
    glossary, prefixes = tmp_path / "terms.tsv", tmp_path / "prefixes"
    glossary.write_text("dog\tKatze\n", encoding="utf-8")
    prefixes.write_text("der\n\n", encoding="utf-8")
    text = b"The dog sleeps.\nThe tree is old.\n"
    flags = ["--glossary", glossary, "--prefix", prefixes, "--forbid", "das", "--forbid", "ist"]
    called = call("translate", tiny.run, *flags, stdin=text)
    assert called.code == 0, called.err
    first, second = called.lines
    assert first.startswith("der")
    assert "Katze" in first
    assert "Katze" not in second
    assert not {"das", "ist"} & set(f"{first} {second}".split())


def test_as_many_prefixes_as_lines_are_needed(tiny: Tiny, tmp_path: Path) -> None:
    prefixes, text = tmp_path / "prefixes", tmp_path / "text"
    prefixes.write_text("der\n", encoding="utf-8")
    text.write_text("One.\nTwo.\n", encoding="utf-8")
    called = call("translate", tiny.run, text, "--prefix", prefixes)
    assert (called.code, called.out) == (3, "")
    assert f"{prefixes}: 1 prefixes for 2 lines of text" in called.err
    assert call("translate", tiny.run, "--prefix", prefixes, stdin=b"One.\nTwo.\n").code == 3


def test_a_model_beside_itself_decides_as_it_does_alone(tiny: Tiny) -> None:
    alone = call("translate", tiny.run, stdin=b"The dog sleeps.\n")
    assert call("translate", tiny.run, "--with", tiny.run / "model", stdin=b"The dog sleeps.\n").out == alone.out


def test_alignments_have_a_line_for_each_line_and_are_in_the_records(tiny: Tiny, tmp_path: Path) -> None:
    links = tmp_path / "links"
    called = call("translate", tiny.run, "--align", links, "--json", stdin=b"The dog sleeps.\n\nYes.\n")
    assert called.code == 0, called.err
    lines = links.read_text(encoding="utf-8").split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    best = called.records[0]["translations"][0]
    assert best["source_words"] == ["The", "dog", "sleeps", "."]
    assert lines[0] == " ".join(f"{source}-{target}" for source, target in best["alignment"])
    # To standard output, where translations go elsewhere.
    called = call("translate", tiny.run, "--align", "-", "--out", links, stdin=b"The dog sleeps.\n\nYes.\n")
    assert called.lines == lines[:-1]
    called = call("translate", tiny.run, "--align", "-", stdin=b"Yes.\n")
    assert (called.code, called.out) == (2, "")
    assert "--align - writes to standard output, and so do the translations" in called.err
    assert {target for _, target in best["alignment"]} == set(range(len(best["target_words"])))
    assert "".join(best["target_words"]) == best["text"].replace(" ", "")


def test_tags_come_back_and_the_words_are_those_without_them(tiny: Tiny) -> None:
    plain = call("translate", tiny.run, stdin=b"The old dog sleeps.\n").lines[0]
    called = call("translate", tiny.run, "--tags", stdin=b"<p>The <b>old</b> dog{0} sleeps.</p>\n<br/>\n")
    assert called.code == 0, called.err
    tagged, alone = called.lines
    assert tagged.startswith("<p>")
    assert tagged.endswith("</p>")
    assert all(tagged.count(tag) == 1 for tag in ("<p>", "<b>", "</b>", "{0}", "</p>"))
    assert re.sub(r"</?[pb]>|\{0\}| ", "", tagged) == plain.replace(" ", "")
    assert alone == "<br/>"


def test_requested_splitting_is_not_reported(tiny: Tiny) -> None:
    text = b"The dog sleeps. Where is my book?\n"
    called = call("translate", tiny.run, "search.split=sentences", stdin=text)
    assert called.code == 0
    assert "parts" not in called.err


@pytest.mark.slow
def test_several_processes_give_what_one_gives(tiny: Tiny) -> None:
    flags = ["--tags", "--forbid", "das", "--json"]
    text = b"The dog <b>sleeps</b>.\n\nYes.\n"
    alone = call("translate", tiny.run, *flags, stdin=text)
    assert alone.code == 0, alone.err
    assert call("translate", tiny.run, *flags, "--jobs", 2, stdin=text).out == alone.out


def test_heads_and_unknown_words_are_settings(tiny: Tiny, tmp_path: Path) -> None:
    links, words = tmp_path / "links", tmp_path / "words.tsv"
    words.write_text("dog\tHund\n", encoding="utf-8")
    flags = ["--align", links, "--dictionary", words, "search.heads=0/1"]
    called = call("translate", tiny.run, *flags, stdin="The dog ☃ sleeps.\n".encode())
    assert called.code == 0, called.err
    assert "⁇" not in called.out
    assert call("translate", tiny.run, "--align", links, "search.heads=3/0", stdin=b"Yes.\n").code == 2


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["--engine", "onnx"], ["Invalid value for '--engine': 'onnx' is not one of 'seqloom', 'ctranslate2'"]),
        (["--engine", "ctranslate2", "--tags"], ["--tags is not supported with --engine ctranslate2"]),
        (["--forbid", " "], ["--forbid is blank"]),
        (["--jobs", "2", "--engine", "ctranslate2"], ["--jobs is not supported with --engine ctranslate2"]),
        (["--jobs", "2", "--with", "other"], ["--with cannot be combined with --jobs"]),
        (["--out", "same", "--align", "./same"], ["--out and --align both name same"]),
        (["--glossary", "nowhere.tsv"], ["nowhere.tsv: no such file"]),
        (["--forbid", "das", "search.mode=fairseq"], ["search.mode=fairseq supports neither constraints"]),
    ],
)
def test_conflicting_flags_are_refused(tiny: Tiny, words: list[str], parts: list[str]) -> None:
    called = call("translate", tiny.run, *words, stdin=b"Good morning.\n")
    assert (called.code, called.out) == (2, "")
    assert [part for part in parts if part not in called.err] == []


# Two processes draw as one does: tests/apps/test_jobs.py. Four of them take as long as all other tests here.
@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_size_of_blocks_changes_no_draw_and_no_number(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jobs: int
) -> None:
    source = tmp_path / "same.en"
    source.write_text("The dog sees a tree.\n" * 5 + "The dog sees a tree. " * 30 + "\n" + "Good morning.\n")
    words = ["translate", tiny.run, source, "--jobs", jobs, "search.method=sample", "search.temperature=2"]
    whole = call(*words)
    monkeypatch.setattr(inputs, "CHUNK", 7)
    small = call(*words)
    assert (whole.code, small.code) == (0, 0)
    assert small.out == whole.out
    assert len(set(whole.lines[:5])) > 1  # or keys would not matter
    for called in (whole, small):
        assert f"{source}:6: longer than" in called.err


@pytest.mark.parametrize("chunk", [7, 1 << 18])
def test_invalid_constraints_are_reported_with_the_line_of_the_file(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(inputs, "CHUNK", chunk)
    source, prefixes = tmp_path / "text.en", tmp_path / "begin.de"
    source.write_text("Good morning.\n" * 3 + "The dog sees a tree.\n" + "Good morning.\n")
    prefixes.write_text("\n\n\nDer Hund sieht einen Baum.\nDer Hund sieht einen Baum.\n", encoding="utf-8")
    short = ["search.length_factor=0", "search.length_constant=2"]
    called = call("translate", tiny.run, source, "--prefix", prefixes, *short)
    assert called.code == 2
    assert "line 4: " in called.err
