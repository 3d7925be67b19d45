"""`seqloom translate` with catalogues: a real model, every format."""

import gzip
import stat
from pathlib import Path

import pytest

from cli.calling import Called, call
from cli.conftest import Tiny
from seqloom.text.formats.carry import Carrier, has_all_of
from seqloom.text.formats.readers import open_catalogue
from text.formats.mo_files import compile_mo
from text.formats.samples import NAMES, PO, write

EN_DE = ("en", "de")


@pytest.mark.parametrize("name", NAMES)
def test_what_is_untranslated_is_filled_and_nothing_else_changes(tiny: Tiny, tmp_path: Path, name: str) -> None:
    path, out = write(tmp_path, name), tmp_path / f"new-{name}"
    called = call("translate", tiny.run, path, "--out", out)
    assert called.code == 0, called.err
    before, after = open_catalogue(path, languages=EN_DE), open_catalogue(out, languages=EN_DE)
    assert len(before.segments) == len(after.segments)
    filled = 0
    for old, new in zip(before.segments, after.segments, strict=True):
        assert (old.source, old.context) == (new.source, new.context)
        if old.state != "untranslated":
            assert (old.state, old.target) == (new.state, new.target)
        elif new.target:
            filled += 1
            texts = tuple(piece for piece in old.source if isinstance(piece, str))
            assert has_all_of(texts, (new.target,)) or name.endswith(("xlf", "xliff", "tmx"))
    assert f"{path}: {filled} of {len(before.segments)} segments translated" in called.err
    assert filled >= 2


def test_standard_output_gets_the_catalogue_and_in_place_writes_over_it(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    called = call("translate", tiny.run, path, "--target", "de")
    assert called.code == 0
    assert path.read_text(encoding="utf-8") == PO
    assert call("translate", tiny.run, path, "--in-place").code == 0
    assert path.read_text(encoding="utf-8") == called.out != PO
    again = call("translate", tiny.run, path, "--in-place", "--json")
    assert again.records[0]["filled"] == 0
    assert path.read_text(encoding="utf-8") == called.out


def test_a_catalogue_filled_in_place_is_as_private_as_it_was_and_other_names_keep_the_old_one(
    tiny: Tiny, tmp_path: Path
) -> None:
    path, other, link = write(tmp_path, "messages.po"), tmp_path / "b.po", tmp_path / "c.po"
    old = path.read_bytes()
    path.chmod(0o600)
    other.hardlink_to(path)
    link.symlink_to(path)
    assert call("translate", tiny.run, link, "--in-place").code == 0
    assert link.is_symlink()
    assert path.read_bytes() != old
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert other.read_bytes() == old


def test_fuzzy_entries_are_translated_again_on_request(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    assert 'msgstr[0] "%d Dokument"' in call("translate", tiny.run, path).out
    assert 'msgstr[0] "%d Dokument"' not in call("translate", tiny.run, path, "--fuzzy").out


@pytest.mark.parametrize("name", NAMES)
def test_what_was_filled_is_marked_for_review_on_request(tiny: Tiny, tmp_path: Path, name: str) -> None:
    path, out = write(tmp_path, name), tmp_path / f"new-{name}"
    called = call("translate", tiny.run, path, "--out", out, "--review", "--json")
    assert called.code == 0, called.err
    before, after = open_catalogue(path, languages=EN_DE), open_catalogue(out, languages=EN_DE)
    for old, new in zip(before.segments, after.segments, strict=True):
        assert new.state == ("fuzzy" if old.state == "untranslated" and new.target else old.state)
    assert called.records[0]["review"] is True
    assert called.records[0]["marked"] == called.records[0]["filled"]
    assert "marked fuzzy" not in called.err  # all of them are, not the few that the model was unsure of
    assert any("segments translated and marked for review" in each["message"] for each in called.messages)
    mark = {"page.xlf": 'state="needs-review-translation"', "page2.xliff": 'state="initial"'}.get(name)
    assert mark is None or out.read_text(encoding="utf-8").count(mark) == called.records[0]["filled"]


def test_the_reason_for_untranslated_segments_is_reported(
    tiny: Tiny, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Carrier, "filling", lambda *_given, **_named: None)
    called = call("translate", tiny.run, write(tmp_path, "messages.po"))
    why = "the model produced no text, or placeholders could not be separated from words"
    assert f"5 left untranslated: {why}\n" in called.err


def test_the_summary_accounts_for_every_segment(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    again = "2 fuzzy (--fuzzy translates them again)"
    assert (
        f"5 of 8 segments translated; not translated: 1 already translated, {again}\n"
        in call("translate", tiny.run, path).err
    )
    assert (
        "7 of 8 segments translated; not translated: 1 already translated\n"
        in call("translate", tiny.run, path, "--fuzzy").err
    )
    page = write(tmp_path, "page.xlf")
    called = call("translate", tiny.run, page, "--out", tmp_path / "new.xlf", "--json")
    assert called.records[0]["alone"] == {"translated": 1, "fuzzy": 1, "blank": 0, "locked": 1, "foreign": 0}
    again = "1 fuzzy (--fuzzy translates it again)"
    locked = '1 locked (translate="no")'
    told = f"{page}: 4 of 6 segments translated; not translated: 1 already translated, {again}, {locked}"
    assert told in [each["message"] for each in called.messages]


def test_units_of_a_memory_without_the_source_language_are_accounted_for(tiny: Tiny, tmp_path: Path) -> None:
    units = [f'<tu><tuv xml:lang="{code}"><seg>Good morning.</seg></tuv></tu>' for code in ("en", "fr", "de")]
    path = tmp_path / "m.tmx"
    path.write_text(f'<tmx version="1.4"><header srclang="en"/><body>{"".join(units)}</body></tmx>', encoding="utf-8")
    called = call("translate", tiny.run, path)
    assert f"{path}: 1 of 1 segments translated; not translated: 2 without the source language\n" in called.err
    called = call("translate", tiny.run, path, "--target", "pt-BR")
    assert called.code == 2
    assert "into 'pt-BR', but this model translates into 'de'; use another model, or leave out --target\n" in called.err


def test_entries_that_are_mostly_unknown_are_named_by_their_lines(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "messages.po"
    known = 'msgid "Good morning."\nmsgstr ""\n\n'
    strange = 'msgid "日本語のテスト"\nmsgstr ""\n\n'
    path.write_text(known + strange + known, encoding="utf-8")
    unknown = "is unknown to this model, so the translation is unreliable"
    assert f"{path}: more than half of line 4 {unknown}" in _said(call("translate", tiny.run, path))
    path.write_text(known + strange + strange + known, encoding="utf-8")
    assert f"{path}: more than half of each of lines 4, 7 {unknown}" in _said(call("translate", tiny.run, path))
    path.write_text(known, encoding="utf-8")
    assert "unknown" not in call("translate", tiny.run, path).err


def _said(called: Called) -> str:
    """What was told, however it was wrapped."""
    return " ".join(called.err.split())


def test_a_compressed_catalogue_is_read(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "messages.po.gz"
    path.write_bytes(gzip.compress(PO.encode()))
    plain = write(tmp_path, "messages.po")
    assert call("translate", tiny.run, path).out == call("translate", tiny.run, plain).out
    assert "cannot be filled in place" in call("translate", tiny.run, path, "--in-place").err


def _refused(called: Called, message: str, *, code: int = 2) -> None:
    assert (called.code, called.out) == (code, "")
    assert message in called.err
    assert "Traceback" not in called.err


def test_what_does_not_fit_is_refused(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    _refused(call("translate", path, "--target", "fr"), f"name the model before it: seqloom translate MODEL {path}")
    _refused(
        call("translate", tiny.run, path, "--nbest", 2),
        "--nbest is not supported with a catalogue: it is for text with one sentence per line",
    )
    _refused(call("translate", tiny.run, path, "--json"), "name a file for the catalogue with --out")
    _refused(call("translate", tiny.run, path, "--out", path), "is also an input")
    _refused(
        call("translate", tiny.run, path, "--in-place", "--out", tmp_path / "b.po"),
        "--in-place cannot be combined with --out",
    )
    _refused(
        call("translate", tiny.run, tiny.dev[0], "--fuzzy"),
        "--fuzzy is not supported with plain text: it is for catalogues",
    )
    _refused(call("translate", tiny.run, tiny.dev[0], "--review"), "--review is not supported with plain text")
    compiled = tmp_path / "messages.mo"
    compiled.write_bytes(compile_mo([]))
    _refused(call("translate", tiny.run, compiled), "translate the .po file that it was compiled from")
    _refused(call("translate", tiny.run, path, "--target", "fr"), "this model translates into 'de'")
    path.write_text(PO.replace("Language: de", "Language: fr"), encoding="utf-8")
    _refused(
        call("translate", tiny.run, path), f"{path} is to be translated into 'fr', but this model translates into 'de'"
    )
    path.write_text(PO.replace('msgstr "Datei', "msgstr Datei"), encoding="utf-8")
    _refused(call("translate", tiny.run, path), f"{path}:15:7: a string in quotes is expected", code=3)
    _refused(call("translate", tiny.run, tmp_path / "none.po"), "no such file")


def test_training_reads_memories_and_globs(tmp_path: Path) -> None:
    from cli.conftest import SETTINGS

    unit = '<tu><tuv xml:lang="{0}"><seg>{1}</seg></tuv><tuv xml:lang="{2}"><seg>{3}</seg></tuv></tu>'
    for number in (1, 2):
        units = "".join(unit.format("en-GB", f"a dog {n}", "de", f"ein\nHund {n}") for n in range(20 * number))
        text = f'<tmx version="1.4"><header srclang="en"/><body>{units}</body></tmx>'
        (tmp_path / f"memory{number}.tmx").write_text(text, encoding="utf-8")
    called = call("train", "--train", tmp_path / "memory*.tmx", "--out", tmp_path / "run", *SETTINGS)
    assert called.code == 0, called.err
    assert "line ends and tabs inside 20 pairs were read as spaces" in called.err
    config = (tmp_path / "run" / "config.yaml").read_text()
    assert "source: en" in config
    assert "target: de" in config


@pytest.mark.parametrize("name", NAMES)
def test_a_target_that_is_no_code_is_refused(tiny: Tiny, tmp_path: Path, name: str) -> None:
    called = call("translate", tiny.run, write(tmp_path, name), "--target", 'de-"<&')
    assert called.code == 2
    assert "--target 'de-\"<&' is not a language code, such as de" in called.err


def test_what_would_be_torn_up_is_left_and_counted_with_its_reason(tiny: Tiny, tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    private = "".join(map(chr, range(0xE000, 0xF900)))
    long = "{n, plural, other {" + "a " * 1_000 + "}}"
    path.write_text(f'msgid "a b {long}"\nmsgstr ""\n\nmsgid "a {private}"\nmsgstr ""\n', encoding="utf-8")
    before = path.read_bytes()
    called = call("translate", tiny.run, path, "--in-place", "--json")
    assert called.code == 0, called.err
    assert path.read_bytes() == before
    assert "0 of 2 segments translated" in called.err
    assert "1 left untranslated: braces or a comment in the text have more than 2,000 characters" in called.err
    assert "1 left untranslated: the text holds all 6,400 private characters" in called.err
    assert (called.records[0]["wanted"], called.records[0]["left"]) == (2, 2)
