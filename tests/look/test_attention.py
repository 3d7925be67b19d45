"""Looking at a translator's beam search."""

from dataclasses import replace
from pathlib import Path

import pytest

from seqloom.apps.translator import Translator
from seqloom.core.errors import DataError, UsageError
from seqloom.look.attention import beam_of, draw_beam_search
from seqloom.runs.train import Trained

LINE = "The dog sleeps."


@pytest.fixture(scope="module")
def translator(tiny: Trained) -> Translator:
    return Translator.load(tiny.run)


def with_search(translator: Translator, **settings: object) -> Translator:
    search = translator.config.search.model_copy(update=settings)
    config = translator.config.model_copy(update={"search": search})
    return Translator(replace(translator.loaded, config=config))


def test_the_leaves_are_the_translations(translator: Translator) -> None:
    asked = with_search(translator, beam=4, nbest=3)
    tree = beam_of(asked, LINE)
    (found,) = asked.search([LINE])
    assert (tree.leaves[0].text, tree.leaves[0].is_returned) == (found[0].text, True)
    assert [leaf.node.score for leaf in tree.leaves[:3]] == pytest.approx([each.score for each in found], abs=1e-9)


def test_it_is_drawn_as_page_and_as_picture(translator: Translator, tmp_path: Path) -> None:
    for name, start in (("beam.html", b"<!doctype html>"), ("beam.svg", b"<?xml"), ("beam.png", b"\x89PNG")):
        draw_beam_search(translator, LINE, tmp_path / name)
        assert (tmp_path / name).read_bytes().startswith(start)
    assert "beam 2, stop exact, length gnmt (alpha 0.6)" in (tmp_path / "beam.html").read_text(encoding="utf-8")


def test_unsupported_inputs_are_refused(translator: Translator, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the sentence is blank"):
        beam_of(translator, " ")
    with pytest.raises(UsageError, match=r"set search\.method=beam"):
        beam_of(with_search(translator, method="sample"), LINE)
    with pytest.raises(UsageError, match=r"set search\.groups=1"):
        beam_of(with_search(translator, groups=2), LINE)
    with pytest.raises(UsageError, match=r"neither \.html nor \.svg nor \.png"):
        draw_beam_search(translator, LINE, tmp_path / "beam.pdf")
