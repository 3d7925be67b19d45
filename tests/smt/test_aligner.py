"""Aligners as models: what they link after they were saved, and words that they have never seen."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

import seqloom
from seqloom.apps.align import AlignConfig, LearnedAligner, fit_words, read_words
from seqloom.classical.alignment import (
    AlignmentModelConfig,
    Bitext,
    DiagonalConfig,
    HmmAlignmentConfig,
    Model1Config,
)
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, ModelError, UsageError
from seqloom.core.files import sha256_of
from seqloom.core.symbols import UNKNOWN
from seqloom.data.corpus import open_corpus
from seqloom.data.phrasebook import sample_pairs
from seqloom.runs.config import DataConfig, RunConfig
from seqloom.runs.model_dir import add_file
from seqloom.smt.aligner import AlignerConfig, FittedAligner
from seqloom.smt.pairs import EncodedPairs
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer

MODELS: list[AlignmentModelConfig] = [HmmAlignmentConfig(), DiagonalConfig(), Model1Config()]


@dataclass(frozen=True)
class Saved:
    """An aligner in memory and on disk, with pairs that it was not fitted to."""

    learned: LearnedAligner
    folder: Path
    sources: list[str]
    targets: list[str]


@pytest.fixture(scope="module", params=MODELS, ids=lambda model: str(model.kind))
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Saved:
    folder = tmp_path_factory.mktemp("aligner")
    texts = [
        [
            [getattr(pair, side) for pair in sample_pairs("en", "de", count=count, seed=seed)]
            for side in ("source", "target")
        ]
        for count, seed in ((150, 1), (20, 2))
    ]
    paths = [folder / "a.en", folder / "a.de"]
    for path, lines in zip(paths, texts[0], strict=True):
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    corpus, config = open_corpus(paths), AlignConfig(model=request.param)
    learned = fit_words(read_words(corpus, config), config)
    data = DataConfig(train=tuple(map(str, paths)), source="en", target="de")
    learned.save(folder / "aligner", data=data, fingerprint=corpus.fingerprint())
    return Saved(learned, folder / "aligner", *texts[1])


def test_a_saved_aligner_links_new_pairs_as_the_fitted_one(saved: Saved) -> None:
    aligner, fitted = seqloom.Aligner.load(saved.folder), saved.learned.fitted
    assert aligner.languages == ("en", "de")
    words = [aligner.words(*pair) for pair in zip(saved.sources, saved.targets, strict=True)]
    here = list(fitted.align([pair[0] for pair in words], [pair[1] for pair in words]))
    assert aligner.align(saved.sources, saved.targets) == here
    assert aligner.align(saved.sources, saved.targets, threads=3) == here
    assert sum(map(len, here)) > 60
    for source, target, pair in zip(saved.sources, saved.targets, words, strict=True):
        assert np.array_equal(aligner.probabilities(source, target), fitted.probabilities(*pair))
    alone = [aligner.align([source], [target])[0] for source, target in zip(saved.sources, saved.targets, strict=True)]
    assert alone == here
    assert aligner.align([" "], ["x"]) == [[]]
    assert aligner.probabilities("", "x y").shape == (0, 2)


def test_probabilities_are_the_mean_of_two_directions_that_each_add_up_to_one(saved: Saved) -> None:
    aligner = seqloom.Aligner.load(saved.folder)
    model = aligner.fitted.aligner
    for source, target in zip(saved.sources[:8], saved.targets[:8], strict=True):
        words = aligner.words(source, target)
        ids = [
            side.encode(side.fold(each))
            for side, each in zip((aligner.fitted.source, aligner.fitted.target), words, strict=True)
        ]
        if UNKNOWN in ids[0] or UNKNOWN in ids[1]:
            continue
        forward, backward = model.forward.posteriors(*ids), model.backward.posteriors(*ids[::-1])
        np.testing.assert_allclose(forward.sum(axis=1), 1, atol=1e-5)
        np.testing.assert_allclose(backward.sum(axis=1), 1, atol=1e-5)
        together = np.sqrt(forward[:, 1:].T * backward[:, 1:])
        np.testing.assert_allclose(aligner.probabilities(source, target), together, atol=1e-5)


def test_an_unknown_word_is_linked_to_its_copy_alone(saved: Saved) -> None:
    aligner = seqloom.Aligner.load(saved.folder)
    source, target = saved.sources[0].split(), saved.targets[0].split()
    found = aligner.align([" ".join(["Xyzzy", "4711", *source])], [" ".join([*target, "4711", "xyzzy"])])[0]
    own, other = (len(side) for side in aligner.words(" ".join(source), " ".join(target)))
    assert {(0, other + 1), (1, other)} <= set(found)
    assert [link for link in found if link[0] in (0, 1) or link[1] >= other] == [(0, other + 1), (1, other)]
    table = aligner.probabilities(" ".join(["Xyzzy", *source]), " ".join([*target, "xyzzy"]))
    assert table[0].tolist() == [0.0] * other + [1.0]
    assert table.shape == (own + 1, other + 1)


def test_unknown_words_that_translate_each_other_are_found_by_what_is_around_them(saved: Saved) -> None:
    fitted, found, tried = saved.learned.fitted, 0, 0
    for pair in sample_pairs("en", "de", count=40, seed=3):
        source, target = list(pair.source_tokens), list(pair.target_tokens)
        sides = [[link[side] for link in pair.alignment] for side in (0, 1)]
        alone = [link for link in pair.alignment if all(sides[side].count(link[side]) == 1 for side in (0, 1))]
        i, j = alone[len(alone) // 2]
        source[i], target[j] = "frobnicate", "quux"
        (links,) = fitted.align([source], [target])
        found, tried = found + ((i, j) in links), tried + 1
    if saved.learned.config.model.kind == "hmm":
        assert found > 0.5 * tried
    else:  # which know nothing of what is beside a word
        assert found == 0


def test_case_is_ignored_whatever_the_tokenisers_keep() -> None:
    sources = ["der Hund schläft", "Der Hund bellt", "die Katze schläft", "DIE Katze bellt"] * 3
    targets = ["the dog sleeps", "The dog barks", "the cat sleeps", "The CAT barks"] * 3

    def fitted(lines: tuple[list[str], list[str]]) -> tuple[FittedAligner, Tokenizers]:
        tokenizers = Tokenizers(*(train_tokenizer(side, TextConfig(kind="word")) for side in lines))
        ids = [
            tokenizer.encode_many(side)
            for tokenizer, side in zip((tokenizers.source, tokenizers.target), lines, strict=True)
        ]
        pairs = EncodedPairs(Bitext.from_sentences(*ids), Bitext.from_sentences([], []), tokenizers)
        return AlignerConfig().fit_pairs(pairs, seed=1), tokenizers

    cased, tokenizers = fitted((sources, targets))
    lowered, _ = fitted(([line.lower() for line in sources], [line.lower() for line in targets]))
    pairs = [[line.split() for line in side] for side in (sources, targets)]
    assert list(cased.align(*pairs)) == list(lowered.align(*pairs))
    turned = [["Schläft", "HUND"]], [["Dog", "SLEEPS"]]
    assert (1, 0) in next(cased.align(*turned))
    restored = AlignerConfig().restore_pairs(cased.arrays(), tokenizers)
    assert list(restored.align(*pairs)) == list(cased.align(*pairs))
    strict = AlignerConfig(lowercase=False).restore_pairs(cased.arrays(), tokenizers)
    assert (1, 0) not in next(strict.align(*turned))


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("forward.columns", 10**6, "the forward table has"),
        ("backward.probabilities", 7.0, "the backward table is damaged: not all of its numbers are probabilities"),
        ("backward.starts", -1, "the translation table is damaged"),
    ],
)
def test_a_damaged_table_is_refused(saved: Saved, tmp_path: Path, name: str, value: float, part: str) -> None:
    path = saved.folder / "model.safetensors"
    arrays, before = load_file(path), path.read_bytes()
    arrays[name][0] = value
    try:
        add_file(saved.folder, "model.safetensors", write=lambda to: save_file(arrays, to))
        with pytest.raises(ModelError, match=part):
            seqloom.Aligner.load(saved.folder)
    finally:
        add_file(saved.folder, "model.safetensors", write=lambda to: to.write_bytes(before))
    assert seqloom.Aligner.load(saved.folder).languages == ("en", "de")


def test_the_same_text_gives_the_same_file_with_any_number_of_threads(saved: Saved, tmp_path: Path) -> None:
    text, config = saved.learned.text, saved.learned.config
    data = DataConfig(train=("a.en", "a.de"), source="en", target="de")
    hashes = set()
    for threads in (1, 2, 5):
        folder = tmp_path / str(threads)
        fit_words(text, config, threads=threads).save(folder, data=data, fingerprint="x")
        hashes.add(sha256_of(folder / "model.safetensors"))
    assert hashes == {sha256_of(saved.folder / "model.safetensors")}


def test_a_setting_of_another_model_of_alignment_names_the_kinds_that_have_it() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(RunConfig, overrides=["model.kind=aligner", "model.alignment.tension=4"])
    choices = "model.alignment.kind=model1 or model.alignment.kind=diagonal"
    assert str(caught.value).endswith(f"it is a setting of the kinds model1 and diagonal ({choices})")


def test_wrong_arguments_are_named(saved: Saved) -> None:
    aligner = seqloom.Aligner.load(saved.folder)
    with pytest.raises(UsageError, match="2 sources but 1 targets"):
        aligner.align(["a", "b"], ["c"])
    with pytest.raises(UsageError, match=r"threshold 2.0 .* is not a probability"):
        aligner.align(["a"], ["c"], threshold=2.0)
    with pytest.raises(ModelError, match="is an aligner of en → de, and the text is de → en"):
        aligner.require_languages(("de", "en"))
    aligner.require_languages(("en_GB", None))
