"""`seqloom translate` with catalogues: a real model, every format."""

import gzip
from pathlib import Path

import pytest

from cli.calling import Called, call
from cli.conftest import Tiny
from seqloom.text.formats.carrying import has_all_of
from seqloom.text.formats.catalogues import open_catalogue
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


def test_fuzzy_entries_are_translated_again_on_request(tiny: Tiny, tmp_path: Path) -> None:
    path = write(tmp_path, "messages.po")
    assert 'msgstr[0] "%d Dokument"' in call("translate", tiny.run, path).out
    assert 'msgstr[0] "%d Dokument"' not in call("translate", tiny.run, path, "--fuzzy").out


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
    _refused(call("translate", tiny.run, path, "--nbest", 2), "--nbest is for text with a sentence per line")
    _refused(call("translate", tiny.run, path, "--json"), "name a file for the catalogue with --out")
    _refused(call("translate", tiny.run, path, "--out", path), "is the input as well")
    _refused(call("translate", tiny.run, path, "--in-place", "--out", tmp_path / "b.po"), "leave one out")
    _refused(call("translate", tiny.run, tiny.dev[0], "--fuzzy"), "--fuzzy is for catalogues")
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
