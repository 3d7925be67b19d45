"""`seqloom look beam`: the tree of a search as a figure and as text."""

from pathlib import Path

import pytest

from cli.calling import call
from cli.conftest import Tiny

SENTENCE = "The dog sleeps."


def test_the_page_is_written_and_summarised(tiny: Tiny, tmp_path: Path) -> None:
    page = tmp_path / "new" / "beam.html"
    called = call("look", "beam", tiny.run, SENTENCE, "search.beam=3", "--out", page)
    assert called.code == 0, called.err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
    assert "candidates were expanded" in called.out
    assert called.lines[-1] == f"drawn in {page}"


def test_the_record_has_the_translation_first_and_terms_that_add_up(tiny: Tiny, tmp_path: Path) -> None:
    words = ("look", "beam", tiny.run, SENTENCE, "search.beam=3", "--out", tmp_path / "beam.svg", "--json")
    (record,) = call(*words).records
    (best,) = call("translate", tiny.run, "search.beam=3", stdin=f"{SENTENCE}\n".encode()).lines
    assert record["leaves"][0]["text"] == best
    for leaf in record["leaves"]:
        assert sum(leaf["terms"].values()) == pytest.approx(leaf["score"], abs=1e-9)
    assert {node["fate"] for node in record["nodes"]} <= {"kept", "pruned", "finished", "cut", "left"}


def test_invalid_arguments_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    for words, part in (
        ([SENTENCE, "--out", tmp_path / "beam.doc"], "neither .html nor .svg nor .png"),
        ([SENTENCE, "another"], "quote the sentence"),
        ([SENTENCE, "model.width=3"], "cannot be changed after training"),
        ([SENTENCE, "search.method=sample", "--out", tmp_path / "beam.svg"], "only the built-in beam search"),
        ([SENTENCE, "search.mode=fairseq", "--out", tmp_path / "beam.svg"], "set search.mode=seqloom\n"),
    ):
        called = call("look", "beam", tiny.run, *words)
        assert (called.code, called.out) == (2, ""), words
        assert part in called.err
