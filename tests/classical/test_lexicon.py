"""The lexicon: the best translations by hand and by brute force, shortlists, and what is stored."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from seqloom.classical.alignment import Bitext, Model1Config, WordAligner, fit_aligner
from seqloom.classical.lexicon import Lexicon, Shortlist
from seqloom.core.errors import ModelError
from seqloom.core.symbols import RESERVED, UNKNOWN

sentences = st.lists(st.lists(st.integers(3, 9), min_size=1, max_size=4), min_size=6, max_size=6)


def planted(pairs: int = 80, *, words: int = 20) -> Bitext:
    """Word n of the source is translated by n + 1; every target sentence ends with 4, every source may hold UNKNOWN."""
    generator = np.random.default_rng(5)
    sources = [generator.integers(5, 5 + words, size=generator.integers(1, 7)).tolist() for _ in range(pairs)]
    targets = [[word + 1 for word in source] + [4] for source in sources]
    return Bitext.from_sentences([[*source, UNKNOWN] for source in sources], targets)


@pytest.fixture(scope="module")
def bitext() -> Bitext:
    return planted()


@pytest.fixture(scope="module")
def aligner(bitext: Bitext) -> WordAligner:
    return fit_aligner(bitext, Model1Config(iterations=8))


@pytest.fixture(scope="module")
def lexicon(bitext: Bitext, aligner: WordAligner) -> Lexicon:
    return Lexicon.from_aligner(aligner, np.bincount(bitext.targets))


def test_planted_translations_come_first(lexicon: Lexicon, bitext: Bitext) -> None:
    words = np.unique(bitext.sources)
    assert all(lexicon.best(word, count=1)[0][0] == word + 1 for word in words[words > UNKNOWN].tolist())
    assert lexicon.frequent[0] == 4


@pytest.mark.parametrize("ranking", ["both", "forward"])
@given(sources=sentences, targets=sentences, best=st.integers(1, 4))
@settings(max_examples=30)
def test_entries_are_the_best_of_all_pairs(
    ranking: str, sources: list[list[int]], targets: list[list[int]], best: int
) -> None:
    bitext = Bitext.from_sentences(sources, targets)
    aligner = fit_aligner(bitext)
    counts = np.bincount(bitext.targets)
    lexicon = Lexicon.from_aligner(aligner, counts, best=best, ranking=ranking, least=1e-3)  # type: ignore[arg-type]
    for word in range(12):
        pairs = []
        for target in range(len(RESERVED), 12):
            there = aligner.forward.table.probability(word, target) if word < aligner.forward.table.null else 0.0
            back = aligner.backward.table.probability(target, word) if target < aligner.backward.table.null else 0.0
            score = there if ranking == "forward" else (there * back) ** 0.5
            if score >= 1e-3 and word >= len(RESERVED):
                pairs.append((-score, target))
        found = lexicon.best(word)
        assert [target for target, _ in found] == [target for _, target in sorted(pairs)[:best]]
        assert [score for _, score in found] == pytest.approx([-score for score, _ in sorted(pairs)[:best]])
    seen = sorted((-count, target) for target, count in enumerate(counts.tolist()) if count and target > UNKNOWN)
    assert lexicon.frequent.tolist() == [target for _, target in seen]


def test_reserved_symbols_are_neither_translated_nor_translations(lexicon: Lexicon) -> None:
    assert all(lexicon.best(number) == [] for number in range(len(RESERVED)))
    assert lexicon.targets.min() >= len(RESERVED)
    assert lexicon.best(-1) == lexicon.best(10**6) == []


def test_a_shortlist_is_the_union_of_translations_frequent_and_reserved_symbols(lexicon: Lexicon) -> None:
    shortlist = Shortlist.of(lexicon, translations=2, frequent=3)
    sentence = [7, 9, 7, UNKNOWN, 5000]
    wanted = {0, 1, 2, 3, *lexicon.frequent[:3].tolist()}
    wanted |= {target for word in sentence for target, _ in lexicon.best(word, count=2)}
    found = shortlist.symbols(sentence)
    assert found.dtype == np.int64
    assert found.tolist() == sorted(wanted)
    assert {8, 10} <= set(found.tolist())
    assert shortlist.symbols(np.array(sentence[::-1])).tolist() == found.tolist()
    assert Shortlist.of(lexicon, translations=0, frequent=0).symbols(sentence).tolist() == [0, 1, 2, 3]


# --- on disk ---------------------------------------------------------------------------------------------------------


def test_what_is_saved_is_loaded_again_from_the_same_bytes(lexicon: Lexicon, tmp_path: Path) -> None:
    path = tmp_path / "lexicon.safetensors"
    lexicon.save(path)
    loaded = Lexicon.load(path)
    for name in ("starts", "targets", "scores", "frequent"):
        assert np.array_equal(getattr(loaded, name), getattr(lexicon, name))
    again = tmp_path / "again.safetensors"
    loaded.save(again)
    assert again.read_bytes() == path.read_bytes()
    assert sorted(file.name for file in tmp_path.iterdir()) == [again.name, path.name]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda arrays: arrays.pop("scores"), "is not a complete lexicon"),
        (lambda arrays: arrays.update(scores=arrays["scores"][:-1].copy()), "is damaged: its entries do not fit"),
        (lambda arrays: arrays.update(starts=arrays["starts"][::-1].copy()), "is damaged"),
        (lambda arrays: arrays.update(targets=-arrays["targets"]), "is damaged"),
        (lambda arrays: arrays.update(targets=arrays["targets"].astype(np.float32)), "is not a complete lexicon"),
    ],
)
def test_damage_is_told(lexicon: Lexicon, tmp_path: Path, change: object, message: str) -> None:
    path = tmp_path / "lexicon.safetensors"
    lexicon.save(path)
    arrays = load_file(path)
    change(arrays)  # type: ignore[operator]
    save_file(arrays, path, {"lexicon": "1"})
    with pytest.raises(ModelError, match=message) as caught:
        Lexicon.load(path)
    assert str(path) in str(caught.value)


def test_foreign_newer_cut_and_missing_files_are_refused(lexicon: Lexicon, tmp_path: Path) -> None:
    path = tmp_path / "lexicon.safetensors"
    lexicon.save(path)
    arrays, content = load_file(path), path.read_bytes()
    for metadata, message in (
        ({"lexicon": "2"}, "has format 2, and this version reads 1"),
        ({"model": "1"}, "is not a lexicon: its header is"),
        (None, "is not a lexicon: its header is empty"),
    ):
        save_file(arrays, path, metadata)
        with pytest.raises(ModelError, match=message):
            Lexicon.load(path)
    path.write_bytes(content[:-10])
    with pytest.raises(ModelError, match="is damaged or not a lexicon"):
        Lexicon.load(path)
    with pytest.raises(ModelError, match=r"none\.safetensors cannot be read"):
        Lexicon.load(tmp_path / "none.safetensors")


def test_alignment_and_lexicon_need_no_torch() -> None:
    program = "import sys, seqloom.classical.lexicon; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
