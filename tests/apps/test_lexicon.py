"""Lexicons of models: where they come from, what they do to a search, and that the model directory stays whole."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as effort

import nasty
from seqloom.apps.lexicon import FILE, fit_lexicon, load_lexicon, offered_symbols, shortlist_of
from seqloom.apps.request import ConstraintSet, required_symbols
from seqloom.apps.translator import Translator
from seqloom.classical.lexicon import Lexicon, Shortlist
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END, RESERVED
from seqloom.runs.loading import load
from seqloom.runs.train import Trained
from seqloom.search.settings import SearchConfig


@pytest.fixture
def model(tiny: Trained, tmp_path: Path) -> Path:
    """A copy to write into."""
    return Path(shutil.copytree(tiny.run / "model", tmp_path / "model"))


def settings(translator: Translator, **changes: object) -> SearchConfig:
    return SearchConfig.model_validate({**translator.config.search.model_dump(), **changes})


def test_the_text_of_the_run_gives_the_lexicon_that_its_files_give(
    tiny: Trained, model: Path, corpus: tuple[list[str], list[str]], tmp_path: Path
) -> None:
    run = Path(shutil.copytree(tiny.run, tmp_path / "run"))
    from_run = fit_lexicon(run)
    from_files = fit_lexicon(model, [Path(name) for name in corpus[0]])
    assert from_run.path == run / "model" / FILE
    assert (from_run.pairs, from_run.words) == (from_files.pairs, from_files.words)
    one, other = Lexicon.load(from_run.path), Lexicon.load(from_files.path)
    for name in ("starts", "targets", "scores", "frequent"):
        assert np.array_equal(getattr(one, name), getattr(other, name))


def test_a_model_without_its_run_needs_text(model: Path) -> None:
    with pytest.raises(UsageError, match="name text: --train SOURCE --train TARGET"):
        fit_lexicon(model)


def test_the_model_directory_stays_whole_and_damage_to_the_lexicon_is_found(
    model: Path, corpus: tuple[list[str], list[str]]
) -> None:
    paths = [Path(name) for name in corpus[0]]
    for _ in range(2):  # the second one replaces the first
        fit_lexicon(model, paths)
        load(model)
    (model / FILE).write_bytes((model / FILE).read_bytes()[:-8])
    with pytest.raises(ModelError, match=f"is damaged: {FILE}"):
        load(model)


def test_a_search_without_a_lexicon_says_how_to_make_one(tiny: Trained) -> None:
    translator = Translator.load(tiny.run)
    with pytest.raises(UsageError, match=r"create it with: seqloom shortlist \S+model --train SOURCE"):
        translator.translate(["the cat"], search=settings(translator, shortlist=5))


def test_a_lexicon_of_another_vocabulary_is_refused(model: Path, tiny: Trained) -> None:
    from seqloom.runs.model_dir import add_file

    foreign = Lexicon(
        np.array([0, 1], np.int64), np.array([60_000], np.int32), np.array([1.0]), np.array([5], np.int32)
    )
    add_file(model, FILE, write=foreign.save)
    with pytest.raises(ModelError, match="belongs to another vocabulary: it has target symbol 60000"):
        load_lexicon(model, load(tiny.run).tokenizers)


def lines_of(corpus: tuple[list[str], list[str]], count: int) -> list[str]:
    return Path(corpus[1][0]).read_text(encoding="utf-8").split("\n")[:count]


def test_a_short_list_gives_its_own_symbols_and_is_each_lines_own(
    model: Path, corpus: tuple[list[str], list[str]]
) -> None:
    fit_lexicon(model, [Path(name) for name in corpus[0]])
    translator, lines = Translator.load(model), lines_of(corpus, 6)
    tokenizers = translator.loaded.tokenizers
    short = settings(translator, shortlist=2)
    lists = shortlist_of(load_lexicon(model, tokenizers), 2)
    for line, (found, *_) in zip(lines, translator.search(lines, search=short), strict=True):
        offered = set(lists.symbols([*tokenizers.source.encode(line), END]).tolist())
        assert {symbol for each in found.hypotheses for symbol in each.symbols} <= offered
    alone = [translator.search([line], search=short)[0][0].text for line in lines]
    assert alone == translator.translate(lines, search=short)


def test_lists_are_padded_and_hold_what_is_needed() -> None:
    lexicon = Lexicon(
        np.array([0, 0, 0, 0, 0, 2, 2], np.int64),
        np.array([9, 7], np.int32),
        np.array([0.9, 0.1]),
        np.array([6], np.int32),
    )
    shortlist = Shortlist.of(lexicon, translations=2, frequent=1)
    source = Source(torch.tensor([[4, END], [5, END]]), torch.tensor([2, 2]))
    needed: Sequence[set[int]] = [set(), {12}]
    reserved = list(range(len(RESERVED)))
    assert offered_symbols(shortlist, source, required=needed).tolist() == [
        [*reserved, 6, 7, 9],
        [*reserved, 6, 12, -1],
    ]


def test_forced_words_are_written_although_the_lexicon_does_not_know_it(
    model: Path, corpus: tuple[list[str], list[str]]
) -> None:
    fit_lexicon(model, [Path(name) for name in corpus[0]])
    translator = Translator.load(model)
    target = translator.loaded.tokenizers.target
    word = Path(corpus[0][1]).read_text(encoding="utf-8").split()[-1]
    given = ConstraintSet(phrases=(word,))
    assert required_symbols(given, target) >= set(target.encode(word))
    assert required_symbols(None, target) == set()
    search = settings(translator, shortlist=1, length_constant=20)
    (found,) = translator.search([lines_of(corpus, 1)[0]], search=search, constraints=[given])
    assert word in found[0].text
    assert required_symbols(ConstraintSet(prefix=word), target) == set(target.encode(word))


def test_eight_bits_translate_every_line(tiny: Trained, corpus: tuple[list[str], list[str]]) -> None:
    translator, lines = Translator.load(tiny.run), lines_of(corpus, 4)
    assert len(translator.translate(lines, search=settings(translator, precision="int8"))) == 4


@given(nasty.lines(fewest=1, most=4, longest=20, without="\0\t\r\ufeff"))
@effort(max_examples=10, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_gives_a_lexicon_of_known_symbols(model: Path, lines: list[str]) -> None:
    paths = [model.parent / "any.en", model.parent / "any.de"]
    for path, side in zip(paths, (lines, lines[::-1]), strict=True):
        path.write_bytes("".join(f"{line}\n" for line in [*side, "the end"]).encode())
    fitted = fit_lexicon(model, paths)
    tokenizers = load(model).tokenizers
    lexicon = load_lexicon(model, tokenizers)
    assert fitted.pairs <= len(lines) + 1
    offered = Shortlist.of(lexicon, frequent=2)
    for line in lines:
        symbols = offered.symbols([*tokenizers.source.encode(line), END])
        assert END in symbols
        assert symbols.max() < tokenizers.target.size
