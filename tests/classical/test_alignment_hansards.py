"""Error rates on the Canadian Hansards, whose gold links were made by hand."""

import unicodedata
from pathlib import Path

import pytest

from seqloom.classical.alignment import Model1Config
from seqloom.data.corpus import open_corpus
from seqloom.metrics.aer import score_alignments
from seqloom.recipes.align import AlignConfig, fit_words, link_words, read_reference, read_words


def without_accents(text: str) -> str:
    """As the training text is written."""
    return "".join(mark for mark in unicodedata.normalize("NFKD", text) if not unicodedata.combining(mark))


def as_pharaoh(text: str, lines: int) -> str:
    """From `sentence source target S|P`, all counted from 1, to a line per sentence."""
    gold: list[list[str]] = [[] for _ in range(lines)]
    for line in text.splitlines():
        sentence, source, target, kind = line.split()
        gold[int(sentence) - 1].append(f"{int(source) - 1}{'-' if kind == 'S' else '?'}{int(target) - 1}")
    return "".join(" ".join(links) + "\n" for links in gold)


@pytest.mark.slow
def test_hansards_are_aligned_and_a_tension_helps(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "hansards"
    if not (folder / "test.wa").is_file():
        pytest.skip(f"{folder / 'test.wa'} is missing")
    test = [tmp_path / "test.en", tmp_path / "test.fr"]
    for path in test:
        path.write_text(without_accents((folder / path.name).read_text(encoding="utf-8")), encoding="utf-8")
    train = [folder / f"train.tok.{language}.gz" for language in ("en", "fr")]
    corpus = open_corpus([*train, *test])
    first = len(corpus) - len(open_corpus(test))
    gold = tmp_path / "gold"
    gold.write_text(as_pharaoh((folder / "test.wa").read_text(encoding="utf-8"), len(corpus) - first), encoding="utf-8")
    plain = AlignConfig(segmentation="spaces")
    text = read_words(corpus, plain)
    reference = read_reference(gold, text, first=first)
    rates = []
    for model in (Model1Config(), Model1Config(tension=4.0, null_rate=0.08, dirichlet_alpha=0.01)):
        config = plain.model_copy(update={"model": model})
        aligner = fit_words(text, config, threads=2)
        rates.append(score_alignments(list(link_words(text, aligner, config, first=first)), reference).error_rate)
    assert rates[0] < 0.2
    assert rates[1] < 0.15
