"""Hidden Markov models of text: a language model that steps, scores, samples its text and is stored."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import Tensor

from classical.ngram_twin import encoded
from laws.stepping import LAWS, make_case
from seqloom.classical.hmm_text import HmmConfig, HmmText
from seqloom.classical.steppers import HmmReader, HmmStepper
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.events import Event
from seqloom.core.reading import TextIds
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD

LINES = ["a b c d", "a b d", "c d a b", "b b a", "d", "a b c"]


def fitted(lines: list[str] = LINES, **settings: float) -> HmmText:
    return HmmConfig.model_validate({"states": 3, "iterations": 10, **settings}).fit(encoded(lines), seed=1)


@pytest.mark.parametrize("law", LAWS)
def test_the_laws_of_stepping_hold(law: str) -> None:
    model = fitted()

    def forward(source: Source, prefix: Tensor) -> Tensor:
        """log P of each next symbol as the difference of two lines' log P."""
        rows = []
        for row in prefix[:, 1:].tolist():
            prefixes = [row[:end] for end in range(len(row) + 1)]
            longer = [[model.model.log_likelihoods([np.array([*each, symbol])])[0] for symbol in range(8)]
                      for each in prefixes]  # fmt: skip
            before = [model.model.log_likelihoods([np.array(each, np.int64)])[0] for each in prefixes]
            rows.append(np.array(longer) - np.array(before)[:, None])
        return torch.from_numpy(np.array(rows))

    assert len(model.vocabulary) == 8
    LAWS[law](make_case(lambda: HmmStepper(model), 8, target_symbols=8, teacher_forced=forward, tolerance=1e-9))


def test_symbols_that_never_occur_have_no_probability_and_unknown_words_some() -> None:
    model = fitted()
    assert (model.emissions[:, [PAD, BEGIN]] == 0).all()
    assert (model.emissions[:, 3:] > 0).all()
    impossible = fitted(smoothing=0.0)
    assert np.isneginf(impossible.log_probs(np.array([3, END]))).any()


def test_lines_are_read_by_themselves() -> None:
    model, text = fitted(), encoded(LINES)
    together = model.log_probs(text.ids)
    ends = [0, *(np.flatnonzero(text.ids == END) + 1)]
    apart = [model.log_probs(text.ids[a:b]) for a, b in pairwise(ends)]
    np.testing.assert_allclose(together, np.concatenate(apart), rtol=0, atol=1e-12)
    total = model.model.log_likelihoods([text.ids[a:b] for a, b in pairwise(ends)]).sum()
    assert together.sum() == pytest.approx(total, abs=1e-10)
    reader = HmmReader(model)
    got = reader.log_probs(TextIds.of([[4, 5], []]), context="line", progress=lambda _: None)
    np.testing.assert_allclose(got, model.log_probs(np.array([4, 5, END, END])))
    with pytest.raises(UsageError, match="reads each line by itself"):
        reader.log_probs(TextIds.of([[4]]), context="text", progress=lambda _: None)


def test_it_finds_classes_of_words() -> None:
    """A text of articles, nouns and verbs in turn: three states and one for the end know what follows."""
    generator = np.random.default_rng(2)
    words = [["the", "a"], ["dog", "cat", "man", "hat"], ["runs", "sits", "eats"]]
    lines = [" ".join(str(generator.choice(kind)) for kind in words) for _ in range(200)]
    model = fitted(lines, states=4, iterations=40, starts=2)
    # The best there is: the choice among 2, 4 and 3 words, and an end that is certain.
    assert model.perplexity(encoded(lines).ids) < (2 * 4 * 3) ** 0.25 * 1.05
    nouns = {model.tag(_ids(model, line))[1] for line in lines}
    assert len(nouns) == 1
    assert {word for word, _ in model.words(int(nouns.pop()), 4)} == set(words[1])


def _ids(model: HmmText, line: str) -> np.ndarray:
    numbers = {word: number for number, word in enumerate(model.vocabulary)}
    return np.array([*(numbers[word] for word in line.split()), END])


def test_a_long_text_is_sampled_and_read_once_at_the_end() -> None:
    lines = [f"w{number % 7} w{number % 5} x{number}" for number in range(60)]
    events: list[Event] = []
    text = encoded(lines)
    model = HmmConfig(states=2, iterations=3, tokens=40).fit(text, seed=3, listener=events.append)
    said = [str(event["message"]) for event in events if event.kind == "notice"]
    assert len(said) == 1
    assert said[0].startswith("EM learns from 40 of 240 tokens, in whole lines drawn at random (model.tokens=40)")
    # Each x occurs once in 240 tokens; with the sample alone most would have what smoothing gives them.
    counted = model.emissions[:, [number for number, word in enumerate(text.vocabulary) if word.startswith("x")]]
    assert counted.max(0).min() > 0.5 / 240
    again = HmmConfig(states=2, iterations=3, tokens=40).fit(text, seed=3)
    assert (again.emissions == model.emissions).all()


def test_damaged_arrays_are_refused() -> None:
    model = fitted()
    arrays = model.arrays()
    restored = HmmConfig().restore(arrays, model.vocabulary)
    assert (restored.log_probs(encoded(LINES).ids) == model.log_probs(encoded(LINES).ids)).all()
    with pytest.raises(ModelError, match="start missing"):
        HmmConfig().restore({name: arrays[name] for name in ("transitions", "emissions")}, model.vocabulary)
    with pytest.raises(ModelError, match="belong to different models"):
        HmmConfig().restore(arrays, [*model.vocabulary, "more"])
    with pytest.raises(ModelError, match=r"row 0 of the transitions is not a distribution.*fit it again"):
        HmmConfig().restore({**arrays, "transitions": arrays["transitions"] * 2}, model.vocabulary)
    with pytest.raises(UsageError, match=r"model.states=4096 with 40,000 symbols need tables of 1.2 GiB each; at most"):
        HmmConfig(states=4096).fit(encoded(["a"], symbols=[str(n) for n in range(39_995)]), seed=1)
