"""word2vec: equal to a plain loop in double precision, the same bytes from the same seed, vectors that mean much."""

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from seqloom.classical.vectors import SubwordConfig
from seqloom.classical.word2vec import LOSS_EVERY, Learner, Word2VecConfig, sigmoids
from seqloom.classical.word2vec_text import SENTENCE_END
from seqloom.core.errors import DataError, ModelError
from seqloom.core.events import Event
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import RESERVED
from seqloom.reference.word2vec import Word2Vec
from seqloom.text.tokenizer import EncodedText

MASK = (1 << 64) - 1
FORMS: dict[str, dict[str, object]] = {
    "skip-gram": {},
    "skip-gram, negatives per pair": {"shared_negatives": False},
    "skip-gram of the notes": {"context": "sampled", "contexts": 2},
    "skip-gram with a tree": {"output": "hierarchical"},
    "CBOW mean": {"architecture": "cbow"},
    "CBOW sum": {"architecture": "cbow", "pooling": "sum"},
    "CBOW product": {"architecture": "cbow", "pooling": "product"},
    "CBOW with a tree": {"architecture": "cbow", "output": "hierarchical"},
    "skip-gram with subwords": {"subwords": SubwordConfig(shortest=2, longest=3, buckets=2000)},
    "CBOW with subwords": {"architecture": "cbow", "subwords": SubwordConfig(shortest=2, longest=3, buckets=2000)},
}


def encoded(sentences: Sequence[Sequence[str]]) -> EncodedText:
    words = sorted({word for sentence in sentences for word in sentence})
    ids = {word: number for number, word in enumerate(words, start=len(RESERVED))}
    flat = [number for sentence in sentences for number in (*(ids[word] for word in sentence), 2)]
    return EncodedText(np.array(flat, np.int32), (*RESERVED, *words))


def random_text(*, tokens: int = 300, words: int = 12, seed: int = 3) -> EncodedText:
    generator = np.random.default_rng(seed)
    names = [f"{chr(97 + word % 5)}w{word}" for word in range(words)]
    shares = 1 / np.arange(1, words + 1)
    drawn = generator.choice(words, size=tokens, p=shares / shares.sum())
    return encoded([[names[word] for word in part] for part in np.array_split(drawn, tokens // 15)])


class Twin(Word2Vec):
    """One epoch of the readable edition, with the random bits and the tables of the fast one."""

    def __init__(self, learner: Learner) -> None:
        super().__init__(learner.tables.inputs, learner.tables.outputs, rate=learner.config.learning_rate)
        self.learner, self.state = learner, seed_for(learner.seed, "word2vec", 0, 0)

    def bits(self) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return z ^ (z >> 31)

    def below(self, limit: int) -> int:
        return ((self.bits() >> 32) * limit) >> 32

    def noise(self) -> int:
        bits = self.bits()
        entry = ((bits >> 32) * len(self.learner.noise.aliases)) >> 32
        is_itself = bits & 0xFFFFFFFF < self.learner.noise.thresholds[entry]
        return entry if is_itself else int(self.learner.noise.aliases[entry])

    def rows(self, words: Sequence[int]) -> list[int]:
        if self.learner.config.subwords is None:
            return list(words)
        parts = self.learner.parts
        return [int(row) for word in words for row in parts.members[parts.starts[word] : parts.starts[word + 1]]]

    def predicted(self, word: int) -> list[tuple[int, int]]:
        if self.learner.config.output == "hierarchical":
            paths = self.learner.paths
            inside = slice(paths.starts[word], paths.starts[word + 1])
            return [(int(n), 1 - int(c)) for n, c in zip(paths.members[inside], paths.codes[inside], strict=True)]
        drawn = [self.noise() for _ in range(self.learner.plan.negatives)]
        return [(word, 1), *((other, 0) for other in drawn if other != word)]

    def window(self, words: list[int], i: int) -> None:
        config = self.learner.config
        reach = config.window if config.context == "sampled" else config.window - self.below(config.window)
        contexts = words[max(0, i - reach) : i] + words[i + 1 : i + reach + 1]
        self.counts_loss = i % LOSS_EVERY == 0
        if not contexts:
            return
        if config.architecture == "cbow":
            self.cbow(words[i], contexts, pooling=config.pooling)
        elif config.context == "sampled":
            self.skip_gram_sampled(words[i], contexts, count=config.contexts)
        elif config.subwords is not None:
            self.skip_gram_of_parts(words[i], contexts)
        else:
            self.skip_gram(words[i], contexts, is_shared=bool(self.learner.plan.is_shared))

    def sentences(self) -> Iterator[list[int]]:
        words: list[int] = []
        for symbol in self.learner.text.ids:
            row = int(self.learner.text.row_of[symbol])
            if row == SENTENCE_END:
                yield words
                words = []
            elif row >= 0 and self.bits() >> 32 < self.learner.text.keep[row]:
                words.append(row)

    def learn(self) -> float:
        for words in self.sentences():
            for i in range(len(words)):
                self.window(words, i)
        return self.loss / self.terms


def small(**changes: object) -> Word2VecConfig:
    settings: dict[str, object] = {"width": 7, "window": 3, "minimum_count": 1, "threads": 1, "subsampling": 0.05}
    return Word2VecConfig.model_validate(settings | changes)


@pytest.mark.parametrize("form", FORMS)
def test_equals_plain_loops(form: str) -> None:
    learner = Learner(random_text(), small(learning_rate=0.1, **FORMS[form]), seed=4)
    twin, wrong = Twin(learner), Twin(learner)
    expected = twin.learn()
    wrong.step = lambda *a, **k: 0.9 * Twin.step(wrong, *a, **k)  # type: ignore[method-assign]
    wrong.learn()
    assert learner.learn(0) == pytest.approx(expected, rel=1e-4)
    np.testing.assert_allclose(learner.tables.inputs, twin.inputs, atol=2e-4)
    np.testing.assert_allclose(learner.tables.outputs, twin.outputs, atol=2e-4)
    assert np.abs(learner.tables.inputs - wrong.inputs).max() > 2e-3  # the comparison can tell


def test_padding_of_rows_stays_zero() -> None:
    learner = Learner(random_text(), small(), seed=1)
    learner.learn(0)
    assert learner.tables.inputs.shape[1] == 8
    assert not learner.tables.inputs[:, 7:].any()
    assert not learner.tables.outputs[:, 7:].any()


@pytest.mark.parametrize("width", [7, 8])
def test_vectors_stay_as_they_were_while_learning_goes_on(width: int) -> None:
    learner = Learner(random_text(), small(width=width), seed=1)
    before = learner.vectors()
    copy = before.vectors.tobytes()
    learner.learn(0)
    assert before.vectors.tobytes() == copy
    assert learner.vectors().vectors.tobytes() != copy


def test_sigmoid_is_right_to_four_millionths() -> None:
    values = np.linspace(-30, 30, 20_001).astype(np.float32)
    found = values.copy()
    sigmoids(found, len(found))
    np.testing.assert_allclose(found, 1 / (1 + np.exp(-values.astype(np.float64))), rtol=0, atol=4e-6)
    assert np.abs(found - 1 / (1 + np.exp(-values * 1.001))).max() > 1e-4


# --- seeds, threads, events -------------------------------------------------------------------------------------------


def test_one_thread_gives_the_same_bytes_for_the_same_seed() -> None:
    text = random_text(tokens=3000)
    first, again, other = (small().fit(text, seed=seed).vectors.tobytes() for seed in (5, 5, 6))
    assert first == again
    assert first != other


def test_two_threads_learn_as_well_and_say_that_they_cannot_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.classical.word2vec_text.CHUNK", 200)
    heard: list[Event] = []
    text = random_text(tokens=4000)
    found = small(threads=2, epochs=3).fit(text, seed=5, listener=heard.append)
    alone = small(threads=1, epochs=3).fit(text, seed=5)
    assert found.losses[-1] == pytest.approx(alone.losses[-1], rel=0.05)
    notices = [event["message"] for event in heard if event.kind == "notice"]
    assert notices == [
        "2 threads write into the same vectors without locks: fast, but not reproducible; "
        "model.threads=1 gives the same vectors for the same seed"
    ]
    epochs = [event["epoch"] for event in heard if event.kind == "epoch"]
    assert epochs == [1, 2, 3]
    assert [event["done"] for event in heard if event.kind == "progress"][-1] == 3 * len(text.ids)


def test_one_thread_says_nothing_of_the_kind() -> None:
    heard: list[Event] = []
    small(threads=1).fit(random_text(), seed=5, listener=heard.append)
    assert not [event for event in heard if event.kind == "notice"]


def test_chunks_end_where_sentences_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("seqloom.classical.word2vec_text.CHUNK", 40)
    text = random_text(tokens=600)
    borders = Learner(text, small(), seed=1).borders
    assert borders[0] == 0
    assert borders[-1] == len(text.ids)
    assert all(text.ids[end - 1] == 2 for end in borders[1:])
    assert max(np.diff(borders)) <= 40


def test_reads_a_text_that_cannot_be_written_to() -> None:
    text = random_text()
    locked = text.ids.copy()
    locked.setflags(write=False)
    found = small().fit(EncodedText(locked, text.vocabulary), seed=2)
    np.testing.assert_array_equal(found.vectors, small().fit(text, seed=2).vectors)


# --- learning ---------------------------------------------------------------------------------------------------------


def topics() -> EncodedText:
    """Two topics whose words never meet."""
    generator = np.random.default_rng(1)
    pick = [[f"{topic}{number}" for number in range(6)] for topic in ("sea", "hill")]
    return encoded([[str(w) for w in generator.choice(pick[number % 2], 8)] for number in range(600)])


@pytest.mark.parametrize("form", FORMS)
def test_words_of_one_topic_become_neighbours(form: str) -> None:
    config = small(subsampling=0.0, epochs=8, learning_rate=0.1, **FORMS[form])
    found = config.fit(topics(), seed=1)
    assert found.losses[-1] < found.losses[0]
    nearest = [neighbours[0].word for neighbours in found.nearest(found.words, count=1)]
    assert np.mean([one[:3] == other[:3] for one, other in zip(found.words, nearest, strict=True)]) > 0.9, form


def test_frequent_words_come_first_and_rare_ones_are_left_out() -> None:
    found = small(minimum_count=2).fit(encoded([["a", "b", "b", "c"], ["b", "c", "c", "c", "d"]] * 1 + [["a"]]), seed=1)
    assert found.words == ("c", "b", "a")
    assert found.counts.tolist() == [4, 3, 2]


def test_subsampling_keeps_the_share_that_the_formula_says() -> None:
    learner = Learner(random_text(tokens=2000), small(subsampling=0.01), seed=1)
    shares = learner.counts / learner.counts.sum()
    expected = np.minimum(1, np.sqrt(0.01 / shares) + 0.01 / shares)
    np.testing.assert_allclose(learner.text.keep / 2**32, expected, atol=1e-9)


# --- keeping and refusing ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["skip-gram", "skip-gram with subwords"])
def test_restores_what_it_kept(form: str) -> None:
    text, config = random_text(), small(**FORMS[form])
    found = config.fit(text, seed=1)
    again = config.restore(found.arrays(), text.vocabulary)
    assert again.words == found.words
    assert again.losses == found.losses
    np.testing.assert_array_equal(again.vectors, found.vectors)
    if form == "skip-gram with subwords":
        np.testing.assert_array_equal(again.vector("neverseen"), found.vector("neverseen"))


def test_restoring_something_else_is_refused() -> None:
    with pytest.raises(ModelError, match="not the arrays of word vectors: counts, symbols missing"):
        small().restore({"vectors": np.zeros((2, 3), np.float32)}, ("a", "b"))
    arrays = {"vectors": np.zeros((1, 3), np.float32), "counts": np.ones(1, np.int64), "symbols": np.array([-1])}
    with pytest.raises(ModelError, match="symbols run from -1 to -1, but the vocabulary has 2"):
        small().restore(arrays, ("a", "b"))
    short = {**arrays, "symbols": np.array([1]), "buckets": np.zeros((4, 3), np.float32)}
    with pytest.raises(ModelError, match=r"no buckets of shape \[5, 3\]"):
        small(subwords=SubwordConfig(buckets=5)).restore(short, ("a", "b"))


def test_a_text_without_words_is_refused() -> None:
    text = EncodedText(np.array([3, 2, 3, 3, 2], np.int32), (*RESERVED, "a"))
    with pytest.raises(DataError, match="no words to learn: all 5 tokens are line ends or unknown words"):
        small().fit(text, seed=1)


def test_too_few_of_each_word_are_refused_with_the_way_out() -> None:
    with pytest.raises(DataError, match=r"no word occurs 5 times.*'b', occurs 2 times.*model.minimum_count=2"):
        small(minimum_count=5).fit(encoded([["a", "b", "b"]]), seed=1)


def test_one_word_by_itself_is_refused() -> None:
    with pytest.raises(DataError, match="only one word, 'a'"):
        small().fit(encoded([["a", "a", "a"]]), seed=1)


def test_a_rate_that_explodes_is_told_by_name() -> None:
    with pytest.raises(DataError, match="not finite"):
        small(learning_rate=1e30, final_rate=1e30, epochs=2).fit(random_text(), seed=1)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pooling": "sum"}, "pooling: sum is for architecture: cbow"),
        ({"context": "sampled", "architecture": "cbow"}, "context: sampled is a form of skip-gram"),
        ({"final_rate": 1.0}, "final_rate 1.0 is above learning_rate 0.025"),
        ({"subwords": {"shortest": 5, "longest": 3}}, "shortest 5 is above longest 3"),
        (
            {"architecture": "cbow", "pooling": "product", "subwords": {}},
            "pooling: product takes words one by one",
        ),
    ],
)
def test_settings_that_exclude_each_other_are_refused(changes: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValidationError, match=sentence):
        small(**changes)


def test_the_loss_of_a_tree_is_the_entropy_of_the_words_at_first() -> None:
    """All inner nodes begin at 0, so each turn has a chance of one half: log 2 per term."""
    learner = Learner(random_text(), small(output="hierarchical", learning_rate=1e-9, final_rate=1e-9), seed=1)
    assert learner.learn(0) == pytest.approx(math.log(2), rel=1e-6)


def test_a_text_of_which_subsampling_leaves_nothing_is_refused() -> None:
    config = Word2VecConfig(width=8, epochs=1, minimum_count=1, subsampling=1e-30, threads=1)
    with pytest.raises(
        DataError, match=r"nothing was learned from 9 tokens .*subsampling=1e-30.*set model\.subsampling=0"
    ):
        config.fit(encoded([["a", "b"], ["b", "c"], ["c", "a"]]), seed=1)


def test_words_by_themselves_in_their_lines_teach_nothing() -> None:
    config = Word2VecConfig(width=8, epochs=2, minimum_count=1, subsampling=0.0, threads=1)
    with pytest.raises(DataError, match="no two words were in the same window"):
        config.fit(encoded([["a"], ["b"]]), seed=1)


def test_learning_without_negatives_is_told() -> None:
    told: list[Event] = []
    config = Word2VecConfig(width=8, epochs=1, minimum_count=1, subsampling=0.0, negatives=0, threads=1)
    config.fit(encoded([["a", "b"], ["b", "a"]]), seed=1, listener=told.append)
    assert any("all vectors become equal" in str(event.values) for event in told)
