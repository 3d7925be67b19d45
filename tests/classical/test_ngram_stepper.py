"""An n-gram model as a stepper: the laws, generating, and standing beside another model."""

import numpy as np
import pytest
import torch
from torch import Tensor

from classical.ngram_twin import encoded
from laws.stepping import LAWS, make_case
from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.classical.steppers import NGramStepper
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.search.decode import decode
from seqloom.search.ensemble import Ensemble, Fusion
from seqloom.search.settings import SearchConfig

LINES = ["a b c d", "a b d", "c d a b", "b b a", "d", "a b c"]


def fitted(order: int) -> NGram:
    return NGramConfig(order=order).fit(encoded(LINES))


def nothing(rows: int) -> Source:
    """A source that only says how many rows there are."""
    return Source(torch.full((rows, 1), END), torch.ones(rows, dtype=torch.int64))


@pytest.mark.parametrize("order", [1, 2, 4])
@pytest.mark.parametrize("law", LAWS)
def test_the_laws_of_stepping_hold(law: str, order: int) -> None:
    model = fitted(order)

    def forward(source: Source, prefix: Tensor) -> Tensor:
        rows = [
            [np.log(_normalised(model.distribution([row[: end + 1]])[0])) for end in range(len(row))]
            for row in prefix.tolist()
        ]
        return torch.from_numpy(np.array(rows))

    case = make_case(
        lambda: NGramStepper(model), model.symbols, target_symbols=model.symbols, teacher_forced=forward, tolerance=1e-9
    )
    with np.errstate(divide="ignore"):
        LAWS[law](case)


def _normalised(row: np.ndarray) -> np.ndarray:
    result: np.ndarray = row / row.sum()
    return result


def test_beam_search_finds_the_likeliest_sentence() -> None:
    model = fitted(3)
    settings = SearchConfig(beam=8, length_normalisation="none")
    best = decode(NGramStepper(model), nothing(1), settings)[0][0]
    sentence = [id for id in best.symbols if id != END]
    assert best.score == pytest.approx(model.log_probs(np.array([*sentence, END])).sum(), abs=1e-6)
    assert best.score >= max(model.score_lines([*LINES, "a b", "d d"])) - 1e-6


def test_drawn_sentences_come_as_often_as_they_are_likely() -> None:
    model = fitted(3)
    settings = SearchConfig(method="sample", top_k=0, top_p=1.0, nbest=1, beam=1, seed=5)
    drawn = decode(NGramStepper(model), nothing(1500), settings)
    alone = sum([model.vocabulary[id] for id in row[0].symbols if id != END] == ["d"] for row in drawn) / len(drawn)
    assert alone == pytest.approx(float(np.exp(model.score_lines(["d"])[0])), abs=0.03)


def test_it_stands_beside_other_models() -> None:
    small, large = NGramStepper(fitted(1)), NGramStepper(fitted(3))
    begin = torch.tensor([BEGIN])
    for joined in (Ensemble([small, large], mode="mean"), Fusion(large, small, weight=0.3)):
        step = joined.step(joined.start(nothing(1)), begin)
        assert step.log_probs.logsumexp(1).item() == pytest.approx(0, abs=1e-9)
    mean = Ensemble([small, large], mode="mean")
    parts = [each.step(each.start(nothing(1)), begin).log_probs.exp() for each in (small, large)]
    got = mean.step(mean.start(nothing(1)), begin).log_probs.exp()
    torch.testing.assert_close(got, (parts[0] + parts[1]) / 2)
