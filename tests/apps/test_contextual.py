"""Contextual vectors: the two bears, what the layers know that the table does not, and sentences that do not fit."""

from io import BytesIO

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.apps.contextual import ContextualModel, compare, teach, two_senses
from seqloom.core.errors import DataError, UsageError
from seqloom.models.elmo import ElmoConfig, ElmoFeatures

BEARS = ["I can't bear this", "This is a bear"]


@pytest.fixture(scope="module")
def taught() -> ContextualModel:
    return teach(two_senses(1000, seed=1), ElmoConfig(width=24, layers=2, dropout_rate=0.0), seed=1, steps=120, rows=48)


def test_the_two_bears_are_one_in_the_table_and_two_in_their_sentences(taught: ContextualModel) -> None:
    found = compare(taught, BEARS, "bear")
    assert [(use.sentence, use.place) for use in found.uses] == [(BEARS[0], 2), (BEARS[1], 3)]
    static, lower, upper = found.similarities[:, 0, 1]
    assert static == pytest.approx(1, abs=1e-6)
    assert lower < 0.95
    assert upper < 0.85
    one, other = (
        features.layers[:, use.place] for features, use in zip(taught.features(BEARS), found.uses, strict=True)
    )
    assert np.abs(one - other).max(1).min() > 0.1


def test_a_word_is_nearer_to_another_of_its_sense_than_to_itself_in_the_other(taught: ContextualModel) -> None:
    sentences = [*BEARS, "You will not endure the noise", "That was the old wolf"]
    top = compare(taught, sentences, ["bear", "bear", "endure", "wolf"]).similarities[-1]
    assert top[0, 2] > top[0, 1] + 0.1
    assert top[1, 3] > top[0, 1] + 0.1


def bears(taught: ContextualModel, *, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Sentences with one bear: ids, lengths, the bear's place, and whether it is an animal."""
    number = taught.tokenizer.encode("bear")[0]
    encoded = [taught.tokenizer.encode(line) for line in two_senses(400, seed=seed)]
    chosen = [ids for ids in encoded if ids.count(number) == 1]
    longest = max(map(len, chosen))
    modals = {taught.tokenizer.encode(word)[0] for word in ("can", "can't", "not", "must")}
    is_animal = [modals.isdisjoint(ids[: ids.index(number)]) for ids in chosen]
    return (
        torch.tensor([[*ids, *[0] * (longest - len(ids))] for ids in chosen]),
        torch.tensor([len(ids) for ids in chosen]),
        torch.tensor([ids.index(number) for ids in chosen]),
        torch.tensor(is_animal),
    )


@pytest.mark.parametrize("combine", ["scalar_mix", "concat"])
def test_a_probe_tells_the_sense_by_features_and_not_by_the_table(taught: ContextualModel, combine: str) -> None:
    ids, lengths, places, labels = bears(taught, seed=2)
    features = ElmoFeatures(taught.model, combine=combine)  # type: ignore[arg-type]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        probe = nn.Linear(features.width, 2)
    learned = [*probe.parameters(), *(each for each in features.parameters() if each.requires_grad)]
    optimiser = torch.optim.Adam(learned, lr=0.05)
    for _ in range(30):
        vectors = features(ids, lengths)[torch.arange(len(ids)), places]
        loss = nn.functional.cross_entropy(probe(vectors), labels.long())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    ids, lengths, places, labels = bears(taught, seed=3)
    found = probe(features(ids, lengths)[torch.arange(len(ids)), places]).argmax(1)
    assert (found == labels).double().mean() > 0.97
    # The control: in the table all bears are one vector, so that no probe can do better than the more frequent sense.
    static = taught.model.words(ids[torch.arange(len(ids)), places])
    assert (static == static[0]).all()
    assert max(labels.double().mean(), 1 - labels.double().mean()) < 0.8


def test_words_of_several_pieces_and_letters_work_too() -> None:
    config = ElmoConfig(width=8, layers=1, input="characters", character_width=4, filter_widths=(1, 2), filters=4)
    taught = teach(two_senses(50, seed=1), config, seed=1, steps=3, rows=8)
    found = compare(taught, ["A grizzly is a bear", "This is a grizzly"], "grizzly")
    assert found.similarities.shape == (2, 2, 2)
    np.testing.assert_allclose(found.similarities[0], 1, atol=1e-6)


def test_every_use_of_a_word_in_a_sentence_is_compared_and_drawn(taught: ContextualModel) -> None:
    found = compare(taught, ["A bear can bear it"], "Bear")
    assert [use.place for use in found.uses] == [1, 3]
    assert found.similarities[-1, 0, 1] < 0.95
    picture = BytesIO()
    found.draw().savefig(picture)
    assert picture.getvalue().startswith(b"\x89PNG")


def test_the_same_seed_teaches_the_same() -> None:
    config = ElmoConfig(width=8, layers=1)
    one, same, other = (
        teach(two_senses(30, seed=1), config, seed=seed, steps=2, rows=4).features(BEARS)[0].layers
        for seed in (5, 5, 6)
    )
    assert np.array_equal(one, same)
    assert not np.allclose(one, other)
    assert two_senses(9, seed=1) == two_senses(9, seed=1) != two_senses(9, seed=2)


def test_what_cannot_be_compared_is_refused(taught: ContextualModel) -> None:
    with pytest.raises(UsageError, match="'A dog runs away' does not contain the word 'bear'"):
        compare(taught, [*BEARS, "A dog runs away"], "bear")
    with pytest.raises(UsageError, match="got 3 words for 2 sentences"):
        compare(taught, BEARS, ["bear"] * 3)
    with pytest.raises(UsageError, match="no sentences to compare; give two or more"):
        compare(taught, [], "bear")
    with pytest.raises(DataError, match="' ' has no words to look at"):
        compare(taught, [BEARS[0], " "], "bear")
    with pytest.raises(DataError, match="no text to train a tokenizer on"):
        teach(["", " "], seed=1)
