"""ARPA files: they read back equal, KenLM and its lmplz agree, and what is wrong is told with its line."""

import gzip
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from classical.ngram_twin import KneserNeyTwin, encoded
from classical.test_ngram import HELD_OUT, TEXT
from seqloom.classical.ngram import NGram, NGramConfig, encode_lines
from seqloom.core.errors import DataError
from seqloom.core.files import read_lines
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.interop.arpa import read_arpa, write_arpa
from seqloom.text.tokenizer import EncodedText, TextConfig
from seqloom.text.tokenizer_training import train_tokenizer

SMALL = r"""
a comment before the data
\data\
ngram 1=5
ngram 2=3
ngram 3=1

\1-grams:
-1.0	<unk>
-99	<s>	-0.5
-0.6	</s>
-0.4	a	-0.3
-0.7	b	-0.2

\2-grams:
-0.2	<s> a	-0.1
-0.3	a b
-0.25	b </s>

\3-grams:
-0.15	<s> a b

\end\
"""


def written(folder: Path, text: str, name: str = "model.arpa") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def log10_of(model: NGram, words: str) -> list[float]:
    ids, _ = encode_lines([words], model.words)
    return [float(value) for value in model.log_probs(ids) / np.log(10)]


def test_a_small_file_is_read_as_it_says(tmp_path: Path) -> None:
    model = read_arpa(written(tmp_path, SMALL))
    assert list(model.vocabulary) == [*RESERVED, "a", "b"]
    assert repr(model) == "NGram(order 3, 6 symbols, 10 n-grams)"
    # <s> a: listed; <s> a b: listed; a b </s> backs off to b </s>
    assert log10_of(model, "a b") == pytest.approx([-0.2, -0.15, -0.25], abs=1e-6)
    # <s> b: back-off of <s>; b a: back-off of b; a unknown: back-off of a; then </s> alone
    assert log10_of(model, "b a z") == pytest.approx([-0.5 - 0.7, -0.2 - 0.4, -0.3 - 1.0, -0.6], abs=1e-6)


def test_spaces_carriage_returns_and_gzip_make_no_difference(tmp_path: Path) -> None:
    model = read_arpa(written(tmp_path, SMALL))
    loose = SMALL.replace("\t", "  ").replace("\n", " \r\n")
    packed = tmp_path / "model.arpa.gz"
    packed.write_bytes(gzip.compress(loose.encode()))
    for other in (read_arpa(written(tmp_path, loose, "loose.arpa")), read_arpa(packed)):
        assert other.trie.nodes.tobytes() == model.trie.nodes.tobytes()


def test_a_file_without_unk_makes_unknown_words_all_but_impossible(tmp_path: Path) -> None:
    text = SMALL.replace("-1.0	<unk>\n", "").replace("ngram 1=5", "ngram 1=4")
    assert log10_of(read_arpa(written(tmp_path, text)), "z")[0] == pytest.approx(-100.5, abs=1e-4)


def test_the_unknown_word_may_be_written_in_capitals(tmp_path: Path) -> None:
    text = SMALL.replace("<unk>", "<UNK>").replace("-0.3	a b", "-0.3	a <UNK>")
    model = read_arpa(written(tmp_path, text))
    assert list(model.vocabulary) == [*RESERVED, "a", "b"]
    assert log10_of(model, "a z")[1] == pytest.approx(-0.1 - 0.3, abs=1e-6)


def test_ngrams_that_a_file_left_out_get_what_backing_off_gives(tmp_path: Path) -> None:
    """SRILM may list `<s> a b` without `a b`; the answers are those of the back-off rule."""
    text = SMALL.replace("-0.3	a b\n", "").replace("ngram 2=3", "ngram 2=2")
    model = read_arpa(written(tmp_path, text))
    assert log10_of(model, "a b")[:2] == pytest.approx([-0.2, -0.15], abs=1e-6)
    assert log10_of(model, "b a b")[2] == pytest.approx(-0.3 - 0.7, abs=1e-6)
    np.testing.assert_allclose(model.distribution([[4, 5]]), model.distribution([[5]]), rtol=1e-6)


@pytest.mark.parametrize("name", ["model.arpa", "model.arpa.gz"])
@pytest.mark.parametrize("order", [1, 2, 4])
def test_a_model_reads_back_equal(tmp_path: Path, name: str, order: int) -> None:
    model = NGramConfig(order=order).fit(TEXT)
    write_arpa(model, tmp_path / name)
    again = read_arpa(tmp_path / name)
    assert list(again.vocabulary) == list(model.vocabulary)
    assert again.trie.nodes.tobytes() == model.trie.nodes.tobytes()
    assert again.trie.slots.tobytes() == model.trie.slots.tobytes()


def test_impossible_words_are_written_as_other_programs_do(tmp_path: Path) -> None:
    write_arpa(NGramConfig(order=1, smoothing="mle").fit(encoded(["a b"])), tmp_path / "model.arpa")
    lines = (tmp_path / "model.arpa").read_text(encoding="utf-8").split("\n")
    assert "-99\t<s>" in lines
    assert "-99\t<unk>" in lines
    assert not any("<pad>" in line for line in lines)


def fitted_to(lines: list[str], **settings: str) -> tuple[NGram, np.ndarray]:
    """A model of words between spaces, and the ids of its text."""
    given = {"kind": "word", "segmentation": "spaces", **settings}
    tokenizer = train_tokenizer(lines, TextConfig.model_validate(given))
    ids = np.array([id for line in lines for id in (*tokenizer.encode(line), END)])
    return NGramConfig(order=2).fit(EncodedText(ids, tokenizer.vocabulary)), ids


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "<unk>",
            "beside the unknown symbol of the model, and an ARPA file cannot hold both; train with 'text.unknown",
        ),
        ("<UNK>", "train with 'text.unknown_word=<UNK>'"),
        ("</s>", "an ARPA file would give it for the symbol of the model that is written so; write it otherwise"),
    ],
)
def test_words_written_like_symbols_are_refused_with_the_way_out(tmp_path: Path, word: str, message: str) -> None:
    model, _ = fitted_to([f"the {word} sleeps", f"a {word} reads"])
    with pytest.raises(DataError, match=re.escape(message)):
        write_arpa(model, tmp_path / "no.arpa")
    assert not (tmp_path / "no.arpa").exists()


def test_a_text_with_marked_unknown_words_goes_through_a_file(tmp_path: Path) -> None:
    model, ids = fitted_to(["the <unk> sleeps", "a <unk> reads", "the dog reads"], unknown_word="<unk>")
    assert (ids == UNKNOWN).sum() == 2
    write_arpa(model, tmp_path / "model.arpa")
    np.testing.assert_allclose(read_arpa(tmp_path / "model.arpa").log_probs(ids), model.log_probs(ids), rtol=1e-6)


def test_symbols_with_spaces_cannot_be_written(tmp_path: Path) -> None:
    model = NGramConfig(order=1).fit(EncodedText(np.array([4, END]), [*RESERVED, "two words"]))
    with pytest.raises(DataError, match="symbol 4, 'two words', cannot be written to an ARPA file"):
        write_arpa(model, tmp_path / "model.arpa")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("\\data\\", "data", "model.arpa: no line \\data\\ found; this is not an ARPA file"),
        ("ngram 2=3", "ngram 3=3", ":5: 'ngram 3=3' is not of the form 'ngram 2=count'"),
        ("ngram 2=3", "ngram 2=9999", "the header declares 10,005 n-grams, but the file has"),
        ("ngram 2=3", "ngram 2=4", ":19: 3 2-grams end here, but the header declares 4"),
        ("ngram 2=3", "ngram 2=2", ":18: expected \\3-grams:, found '-0.25\\tb </s>'"),
        (
            "ngram 1=5",
            "ngram 1=6",
            ":14: a 1-gram is a number, a word and perhaps a number, but this line has 0 fields",
        ),
        ("-0.4	a	-0.3", "-0.4	a	-0.3 x", ":12: a 1-gram is a number, a word and perhaps a number"),
        ("-0.4	a", "nan	a", ":12: 'nan' is not a number"),
        ("-0.4	a", "0.4	a", ":12: '0.4': a logarithm of a probability is at most 0"),
        ("-0.7	b", "-0.7	a", ":13: the word 'a' is listed twice"),
        ("-0.6	</s>", "-0.6	c", "the 1-grams lack </s>, without which no sentence can end"),
        ("-0.3	a b", "-0.3	a", ":17: a 2-gram cannot be read: it has too few words"),
        (
            "-0.3	a b",
            "-0.3	a q",
            ":17: a 2-gram cannot be read: it contains a word that is not among the 1-grams",
        ),
        ("-0.3	a b", "x	a b", ":17: a 2-gram cannot be read: a number is required at the beginning"),
        ("-0.3	a b", "0.3	a b", ":17: a 2-gram cannot be read: a logarithm of a probability is at most 0"),
        ("-0.3	a b", "-0.3	a b 0 0", ":17: a 2-gram cannot be read: something follows the back-off weight"),
        ("-0.3	a b", "-0.3	b </s>", "the 2-gram 'b </s>' is listed twice"),
        ("\\end\\", "", "expected \\end\\, found the end of the file"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in SMALL
    with pytest.raises(DataError) as caught:
        read_arpa(written(tmp_path, SMALL.replace(old, new, 1)))
    assert message in str(caught.value)


def test_damaged_gzip_is_told(tmp_path: Path) -> None:
    path = tmp_path / "model.arpa.gz"
    path.write_bytes(gzip.compress(SMALL.encode())[:-30])
    with pytest.raises(DataError, match="cut short or damaged"):
        read_arpa(path)


# --- KenLM -----------------------------------------------------------------------------------------------------------

LMPLZ = Path(__file__).parents[1] / "golden" / "lmplz"
"""400 lines of the phrasebook, and the trigrams that KenLM 0.3.0 estimated from them: `lmplz -o 3 --text text.txt`."""
ASKED = ["My grandfather visits this town .", "this teacher lends", "the zebra gives Robert the ticket ?", "", "zebra"]
"""Lines that the text does not have, with words that it does not have."""


@pytest.fixture
def kenlm() -> Any:
    return pytest.importorskip("kenlm", reason="kenlm is not installed; it is built from source, by cmake and g++")


def kenlm_scores(model: Any, ids: np.ndarray, vocabulary: list[str]) -> np.ndarray:
    """log10 P of each id by KenLM."""
    scores: list[float] = []
    for sentence in np.split(ids, np.flatnonzero(ids == END) + 1):
        if len(sentence):
            line = " ".join(vocabulary[id] for id in sentence[:-1])
            scores += [score for score, _, _ in model.full_scores(line)]
    return np.array(scores)


@pytest.mark.parity
@pytest.mark.parametrize("order", [2, 3, 5])
def test_kenlm_reads_ours_with_equal_numbers(kenlm: Any, tmp_path: Path, order: int) -> None:
    model = NGramConfig(order=order).fit(TEXT)
    write_arpa(model, tmp_path / "model.arpa")
    theirs = kenlm_scores(kenlm.Model(str(tmp_path / "model.arpa")), HELD_OUT, list(model.vocabulary))
    np.testing.assert_allclose(model.log_probs(HELD_OUT) / np.log(10), theirs, atol=1e-5)
    wrong = NGramConfig(order=order, smoothing="laplace").fit(TEXT).log_probs(HELD_OUT) / np.log(10)
    assert np.abs(wrong - theirs).max() > 0.1


@pytest.mark.parity
def test_we_read_the_file_of_lmplz_with_the_numbers_of_kenlm(kenlm: Any) -> None:
    theirs = kenlm.Model(str(LMPLZ / "order-3.arpa.gz"))
    lines = [*ASKED, *read_lines(LMPLZ / "text.txt")]
    expected = [theirs.score(line) for line in lines]
    ours = read_arpa(LMPLZ / "order-3.arpa.gz")
    np.testing.assert_allclose(ours.score_lines(lines) / np.log(10), expected, atol=1e-5)
    assert np.abs(ours.score_lines(lines[::-1]) / np.log(10) - expected).max() > 1


def test_our_estimate_is_that_of_lmplz() -> None:
    text = encoded(list(read_lines(LMPLZ / "text.txt")))
    lines = [*ASKED, *read_lines(LMPLZ / "text.txt")]
    theirs = read_arpa(LMPLZ / "order-3.arpa.gz")
    ours = NGramConfig(order=3).fit(text)
    assert ours.sizes() == theirs.sizes()
    np.testing.assert_allclose(_log10(ours, lines), _log10(theirs, lines), atol=1e-4)
    for wrong in (NGramConfig(order=2), NGramConfig(order=3, prune=(0, 0, 1))):
        assert np.abs(_log10(wrong.fit(text), lines) - _log10(theirs, lines)).max() > 1e-2


def _log10(model: NGram, lines: list[str]) -> np.ndarray:
    """log10 P of each token of these lines."""
    ids, _ = encode_lines(lines, model.words)
    return model.log_probs(ids) / np.log(10)


def wikitext(folder: Path) -> tuple[EncodedText, np.ndarray]:
    """The training text with its vocabulary, and the first lines of the test text."""
    lines = {name: [line.split() for line in read_lines(folder / f"{name}.txt.gz")] for name in ("train", "test")}
    counts = Counter(word for line in lines["train"] for word in line)
    vocabulary = [*RESERVED, *(word for word in counts if word not in RESERVED)]
    numbers = {word: id for id, word in enumerate(vocabulary)}
    train, test = (
        np.array([id for line in side for id in [*(numbers.get(word, UNKNOWN) for word in line), END]], np.int32)
        for side in lines.values()
    )
    ends = np.flatnonzero(test == END)
    return EncodedText(train, vocabulary), test[: int(ends[ends >= 10_000][0]) + 1]


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("order", [2, 3, 4, 5])
def test_kenlm_agrees_on_wikitext(kenlm: Any, real_data: Path, tmp_path: Path, order: int) -> None:
    text, ids = wikitext(real_data / "wikitext-2")
    model = NGramConfig(order=order).fit(text)
    write_arpa(model, tmp_path / "model.arpa")
    theirs = kenlm_scores(kenlm.Model(str(tmp_path / "model.arpa")), ids, list(model.vocabulary))
    assert len(theirs) >= 10_000
    np.testing.assert_allclose(model.log_probs(ids) / np.log(10), theirs, atol=1e-5)


@pytest.mark.slow
def test_kneser_ney_on_wikitext_equals_the_readable_edition(real_data: Path) -> None:
    text, ids = wikitext(real_data / "wikitext-2")
    model, twin = NGramConfig(order=3).fit(text), KneserNeyTwin(text, 3)
    few = ids[: int(np.flatnonzero(ids == END)[10]) + 1]
    np.testing.assert_allclose(model.log_probs(few) / np.log(10), twin.log_probs(few) / np.log(10), atol=1e-5)
    rows = model.distribution([[], [1], few[2:4], few[30:32], few[50:52]])
    np.testing.assert_allclose(rows.sum(1), 1, atol=1e-6)
