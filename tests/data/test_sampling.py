"""Samples of large corpora: blocks from all over, the same ones each time."""

from pathlib import Path

import pytest

from seqloom.data import corpus as corpus_module
from seqloom.data.corpus import open_corpus, sample_lines


@pytest.mark.parametrize("suffix", ["", ".tsv"])
def test_a_sample_has_about_as_many_lines_from_all_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, suffix: str
) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 10)
    paths = [tmp_path / "a.tsv"] if suffix else [tmp_path / "a.x", tmp_path / "a.y"]
    for path in paths:
        path.write_text("".join(f"{at}\t{at}\n" if suffix else f"{at}\n" for at in range(2000)))
    corpus = open_corpus(paths)
    samples = [[line.number for line in sample_lines(corpus, 300, seed=seed)] for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    for sample in samples:
        assert 290 <= len(sample) <= 310
        assert sample == sorted(set(sample))
        begins = sample[::10]
        assert max(after - before for before, after in zip([1, *begins], [*begins, 2000], strict=True)) <= 80
    assert list(sample_lines(corpus, 2000, seed=1)) == list(corpus)
