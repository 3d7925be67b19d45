"""Error rates on the Canadian Hansards, whose gold links were made by hand."""

import unicodedata
from pathlib import Path

import pytest

from cli.calling import call
from seqloom.apps.align import AlignConfig, fit_words, read_reference, read_words
from seqloom.classical.alignment import DEFAULT_ALIGNMENT, DiagonalConfig, Model1Config, score_alignments
from seqloom.data.corpus import open_corpus


def without_accents(text: str) -> str:
    """As the training text is written."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


@pytest.mark.slow
def test_hansards_are_aligned_and_positions_help(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "hansards"
    if not (folder / "test.wa").is_file():
        pytest.skip(f"{folder / 'test.wa'} is missing")
    test = [tmp_path / "test.en", tmp_path / "test.fr"]
    for path in test:
        path.write_text(without_accents((folder / path.name).read_text(encoding="utf-8")), encoding="utf-8")
    train = [folder / f"train.tok.{language}.gz" for language in ("en", "fr")]
    corpus, tested = open_corpus([*train, *test]), open_corpus(test)
    first = len(corpus) - len(tested)
    plain = AlignConfig(segmentation="spaces")
    text = read_words(corpus, plain)
    reference = read_reference(folder / "test.wa", tested, plain)
    rates = []
    tense = Model1Config(tension=4.0, null_rate=0.08, dirichlet_alpha=0.01)
    kinds = (Model1Config(), tense, DiagonalConfig(), DEFAULT_ALIGNMENT)
    for model in kinds:
        learned = fit_words(text, plain.model_copy(update={"model": model}), threads=2)
        links = [pair.links for pair in learned.link(first=first)]
        rates.append(score_alignments(links, reference).error_rate)
    assert rates[0] < 0.2
    assert rates[1] < 0.15
    assert rates[2] < 0.11
    assert rates[3] < 0.06


def test_the_wrong_words_for_the_hansards_gold_links_are_warned_of(real_data: Path) -> None:
    folder = real_data / "hansards"
    if not (folder / "test.wa").is_file():
        pytest.skip(f"{folder / 'test.wa'} is missing")
    files = f"{folder / 'test.en'},{folder / 'test.fr'}"
    rates, warnings = [], []
    for segmentation in ("words", "spaces"):
        gold = ("--reference", folder / "test.wa", f"segmentation={segmentation}")
        called = call("align", "--train", files, *gold, "--json")
        assert called.code == 0, called.err
        rates += [message["aer"] for message in called.messages if "aer" in message]
        warnings.append("use segmentation=spaces" in called.err)
    assert warnings == [True, False]
    assert rates[1] < rates[0] - 0.05
