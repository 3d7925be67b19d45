"""The tagger: neighbours and padding change nothing, each output is what its formula says, and each encoder learns."""

import itertools
from typing import Literal

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.models.tagger import Tagger, TaggerConfig, TaggerInput
from seqloom.nn.embeddings import Symbols
from seqloom.nn.packing import packing_of

SYMBOLS = Symbols(source=12, target=20, is_shared=False)
TINY = {"width": 8, "layers": 2, "word_width": 6, "letter_width": 5, "filters": 3, "heads": 2, "feed_forward": 8}
Encoder = Literal["recurrent", "window", "transformer"]
ENCODERS: tuple[tuple[Encoder, int], ...] = (("recurrent", 2), ("recurrent", 1), ("window", 2), ("transformer", 2))


def build(encoder: Encoder = "recurrent", directions: int = 2, **options: object) -> Tagger:
    settings = {**TINY, "encoder": encoder, "directions": directions, "outputs": (4, 3), **options}
    return TaggerConfig(**settings).build(SYMBOLS, seed=3).double().eval()  # type: ignore[arg-type]


def sentences_of(lengths: list[int], *, seed: int = 0, extra: int = 0) -> TaggerInput:
    """Random sentences; padding holds what would be wrong if it were read."""
    generator = torch.Generator().manual_seed(seed)
    time = max(lengths) + extra
    words = torch.randint(4, SYMBOLS.target, (len(lengths), time), generator=generator)
    letter_lengths = torch.randint(2, 7, (9,), generator=generator)
    letters = torch.randint(4, SYMBOLS.source, (9, int(letter_lengths.max()) + extra), generator=generator)
    forms = torch.randint(9, (len(lengths), time), generator=generator)
    return TaggerInput(words, forms, torch.tensor(lengths), letters, letter_lengths)


def only(given: TaggerInput, row: int) -> TaggerInput:
    length = int(given.lengths[row])
    return TaggerInput(
        given.words[row : row + 1, :length],
        given.forms[row : row + 1, :length],
        given.lengths[row : row + 1],
        given.letters,
        given.letter_lengths,
    )


@pytest.mark.parametrize(("encoder", "directions"), ENCODERS)
def test_a_sentence_has_the_same_states_alone_and_in_a_batch(encoder: Encoder, directions: int) -> None:
    model, lengths = build(encoder, directions), [3, 1, 5, 4]
    given = sentences_of(lengths, extra=2)
    with torch.no_grad():
        together = model(given)[0].split(lengths)
        for row, states in enumerate(together):
            torch.testing.assert_close(model(only(given, row))[0], states, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("encoder", "directions", "reached"), [("recurrent", 1, 0), ("window", 2, 2), ("recurrent", 2, 5)]
)
def test_how_far_ahead_an_encoder_looks(encoder: Encoder, directions: int, reached: int) -> None:
    """One direction sees no later word, a window two, both directions all."""
    model, given = build(encoder, directions), sentences_of([6])
    changed = given.words.clone()
    seen = []
    with torch.no_grad():
        for ahead in range(1, 6):
            words = changed.clone()
            words[0, ahead] = (words[0, ahead] + 1 - 4) % 16 + 4
            other = TaggerInput(words, given.forms, given.lengths, given.letters, given.letter_lengths)
            seen.append(not torch.equal(model(other)[0][0], model(given)[0][0]))
    assert seen == [ahead <= reached for ahead in range(1, 6)]


def sequences(scores: Tensor, steps: Tensor) -> dict[tuple[int, ...], float]:
    found = {}
    for path in itertools.product(range(scores.shape[1]), repeat=len(scores)):
        value = steps[-1, path[0]] + steps[path[-1], -1]
        value = value + sum(scores[t, tag] for t, tag in enumerate(path))
        found[path] = float(value + sum(steps[a, b] for a, b in itertools.pairwise(path)))
    return found


def test_outputs_are_softmax_and_crf() -> None:
    """The loss of a softmax is torch's; that of a CRF, with one tag unknown, is the sum over all ways to tag it."""
    softmax, crf = build(), build(output="crf")
    given, lengths = sentences_of([3, 2]), [3, 2]
    packing = packing_of(given.lengths, 3)
    tags = torch.tensor([0, 2, 1, 3, -1])
    states = torch.randn(5, 16, dtype=torch.float64)
    total, count = softmax.outputs[0].loss(states, tags, packing)
    scores = softmax.outputs[0].scores(states)
    torch.testing.assert_close(total, F.cross_entropy(scores[:4], tags[:4], reduction="sum"))
    assert count == 4
    output = crf.outputs[0]
    assert output.crf is not None
    with torch.no_grad():
        output.crf.steps.copy_(torch.randn(5, 5, dtype=torch.float64))
    total, count = output.loss(states, tags, packing)
    expected = 0.0
    best = []
    for scores, known in zip(output.scores(states).split(lengths), tags.split(lengths), strict=True):
        every = sequences(scores.detach(), output.crf.steps.detach())
        right = [v for path, v in every.items() if all(k in (-1, p) for p, k in zip(path, known.tolist(), strict=True))]
        sums = [torch.tensor(values, dtype=torch.float64).logsumexp(0) for values in ([*every.values()], right)]
        expected += float(sums[0] - sums[1])
        best += max(every, key=every.__getitem__)
    assert total.item() == pytest.approx(expected, abs=1e-10)
    assert count == 4
    assert output.best(states, packing).tolist() == best


def test_illegal_steps_are_never_predicted() -> None:
    """With a softmax too: of all sequences, the most probable one that is legal."""
    model, given = build(), sentences_of([5, 4, 5], seed=2)
    legal = torch.ones(5, 5, dtype=torch.bool)
    legal[0, 1] = legal[4, 1] = False  # tag 1 neither begins a sentence nor follows tag 0
    states = 5 * torch.randn(14, 16, dtype=torch.float64)
    packing = packing_of(given.lengths, 5)
    free, bound = model.outputs[0].best(states, packing), model.outputs[0].best(states, packing, legal=legal)

    def breaks(tags: Tensor) -> int:
        return sum(
            not legal[before, after]
            for sentence in tags.split([5, 4, 5])
            for before, after in itertools.pairwise([4, *sentence.tolist()])
        )

    assert breaks(free) > 0 == breaks(bound)


@pytest.mark.parametrize(("encoder", "directions"), ENCODERS)
def test_every_encoder_learns_a_tag_that_depends_on_the_word_before(encoder: Encoder, directions: int) -> None:
    model = TaggerConfig(
        **{**TINY, "width": 16, "encoder": encoder, "directions": directions, "outputs": (2,), "dropout_rate": 0.0}  # type: ignore[arg-type]
    ).build(SYMBOLS, seed=1)
    given = sentences_of([6] * 30, seed=5)
    before = torch.cat([torch.full((30, 1), 4), given.words[:, :-1]], 1)
    tags = (before % 2).flatten()
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(40):
        states, packing = model(given)
        loss, count = model.outputs[0].loss(states, tags, packing)
        optimiser.zero_grad()
        (loss / count).backward()
        optimiser.step()
    states, packing = model.eval()(given)
    accuracy = (model.outputs[0].best(states, packing) == tags).double().mean()
    assert accuracy > 0.95


def test_settings_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="width 10 cannot be shared by 4 heads"):
        TaggerConfig(encoder="transformer", width=10, heads=4)
