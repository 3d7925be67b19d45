"""The tagger by counting, on a small tagged text written by hand."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest

from seqloom.classical.tagger import HmmTagger, TaggingAccuracy, read_conllu
from seqloom.core.errors import DataError, ModelError

ROWS = [
    "the DET dog NOUN chases VERB the DET cat NOUN",
    "a DET cat NOUN sees VERB a DET bird NOUN",
    "the DET singing NOUN stops VERB",
    "Anna PROPN walks VERB the DET dog NOUN",
    "Peter PROPN sees VERB Anna PROPN",
    "the DET walks NOUN stop VERB",
    "dogs NOUN sing VERB loudly ADV",
    "birds NOUN sing VERB quietly ADV",
    "Anna PROPN runs VERB quickly ADV",
]


def write_conllu(path: Path) -> Path:
    """The rows as CoNLL-U, with a comment, a range of words and an empty node, which have no tags."""
    lines = ["# sent_id = 1", "1-2\tthedog" + "\t_" * 8]
    for row in ROWS:
        words = row.split()
        for number, (word, tag) in enumerate(zip(words[::2], words[1::2], strict=True), 1):
            lines.append(f"{number}\t{word}\t{word}\t{tag}\t{tag[:2]}" + "\t_" * 5)
        lines += [f"{len(words) // 2}.1\tempty" + "\t_" * 8, ""]
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def sentences(tmp_path_factory: pytest.TempPathFactory) -> list[list[tuple[str, str]]]:
    return list(read_conllu(write_conllu(tmp_path_factory.mktemp("tags") / "train.conllu")))


def test_words_are_tagged_by_their_neighbours_and_unknown_ones_by_their_endings(
    sentences: list[list[tuple[str, str]]],
) -> None:
    assert sentences[0] == [("the", "DET"), ("dog", "NOUN"), ("chases", "VERB"), ("the", "DET"), ("cat", "NOUN")]
    tagger = HmmTagger.fit(sentences)
    assert tagger.tag(["the", "walks", "stop"]) == ["DET", "NOUN", "VERB"]
    assert tagger.tag(["Peter", "walks", "the", "bird"]) == ["PROPN", "VERB", "DET", "NOUN"]
    assert tagger.tag(["Anna", "sees", "Paula"]) == ["PROPN", "VERB", "PROPN"]  # capitalised, and an ending in -a
    assert tagger.tag(["dogs", "sing", "happily"])[-1] == "ADV"
    assert tagger.tag([]) == []
    assert tagger.measure(sentences).accuracy == 1.0
    found = tagger.measure([[("the", "DET"), ("gently", "ADV"), ("dog", "VERB")]])
    assert (found.known, found.unknown, found.known_right) == (2, 1, 1)
    assert str(TaggingAccuracy(3, 4, 1, 2)) == "66.67% of 6 words (known 75.00% of 4, unknown 50.00% of 2)"


def test_the_path_is_the_best_of_all(sentences: list[list[tuple[str, str]]]) -> None:
    tagger = HmmTagger.fit(sentences)
    words = ["a", "zing", "walks", "Anna"]
    table, outside = tagger._log_trigrams, len(tagger.tags)
    found = [dict(zip(*map(np.ndarray.tolist, tagger._candidates(word)), strict=True)) for word in words]

    def score(path: tuple[int, ...]) -> float:
        history = [outside, outside, *path, outside]
        chain = sum(table[tuple(history[i : i + 3])] for i in range(len(path) + 1))
        return float(chain + sum(found[i][tag] for i, tag in enumerate(path)))

    best = max(product(*found), key=score)
    assert tagger.tag(words) == [tagger.tags[tag] for tag in best]
    assert np.isfinite(table).all()  # whatever the neighbours are, each tag is possible
    seen = tagger.trigrams.sum(2) > 0
    np.testing.assert_allclose(np.exp(table).sum(2)[seen], 1, atol=1e-12)
    assert sum(tagger.weights) == pytest.approx(1)


def test_it_is_stored_as_arrays(sentences: list[list[tuple[str, str]]]) -> None:
    tagger = HmmTagger.fit(sentences)
    arrays = tagger.arrays()
    again = HmmTagger.restore(arrays)
    for words in (["the", "walks", "stop"], ["Paula", "sings", "softly", "."]):
        assert again.tag(words) == tagger.tag(words)
    for name, array in arrays.items():
        with pytest.raises(ModelError, match="not the arrays of a tagger"):
            HmmTagger.restore({other: value for other, value in arrays.items() if other != name})
        if name not in ("tags", "lexicon.names", "suffixes.names"):
            with pytest.raises(ModelError, match=r"damaged|trigrams are"):
                HmmTagger.restore({**arrays, name: array[:-1]})
    with pytest.raises(ModelError, match="lexicon is damaged"):
        HmmTagger.restore({**arrays, "lexicon.tags": arrays["lexicon.tags"] + 9})
    with pytest.raises(ModelError, match="names are damaged"):
        HmmTagger.restore({**arrays, "tags": np.array([255, 10], np.uint8)})


def test_errors_name_the_place(tmp_path: Path) -> None:
    (tmp_path / "bad.conllu").write_text("1\tdog\tNOUN\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"bad.conllu:1: 3 columns, but CoNLL-U has 10"):
        list(read_conllu(tmp_path / "bad.conllu"))
    with pytest.raises(DataError, match="no tagged words"):
        HmmTagger.fit([[]])
    with pytest.raises(DataError, match="300 different tags are more than 256"):
        HmmTagger.fit([[("word", str(number)) for number in range(300)]])
    with pytest.raises(DataError, match="'' is empty"):
        HmmTagger.fit([[("", "NOUN")]])
