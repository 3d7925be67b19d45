"""Every kind of model under every score: wide beams and hypotheses marked complete are what the oracle finds."""

from typing import Any

import pytest
import torch

from search.steppers import Bigram, sentences
from seqloom.core.stepping import Source, Stepper
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.beam import beam_search
from seqloom.search.ensemble import Ensemble
from seqloom.search.exhaustive import exhaustive_search
from seqloom.search.settings import SearchConfig

SYMBOLS = Symbols(source=20, target=5, is_shared=False)

SCORES: dict[str, dict[str, Any]] = {
    "none": {"length_normalisation": "none"},
    "mean": {"length_normalisation": "mean"},
    "power": {"length_normalisation": "power", "alpha": 1.4},
    "gnmt": {"length_normalisation": "gnmt", "alpha": 0.6},
    "reward": {"length_normalisation": "none", "reward": 0.4},
    "coverage": {"length_normalisation": "gnmt", "coverage": 0.3},
    "end": {"length_normalisation": "gnmt", "end_normalisation": 0.8},
    "all": {
        "length_normalisation": "gnmt",
        "reward": 0.2,
        "coverage": 0.3,
        "end_normalisation": 1.5,
        "end_kind": "add",
    },
}


def stepper_of(kind: str) -> Stepper:
    """Models of five symbols with weights so large that they prefer something."""
    if kind == "n-gram":
        return Bigram(5, seed=4)
    if kind == "ensemble":
        return Ensemble([stepper_of("transformer"), stepper_of("rnn")])
    small: TransformerConfig | Seq2SeqConfig
    if kind == "transformer":
        small = TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=1, feed_forward=8, tying="none")
    else:
        small = Seq2SeqConfig(width=6, embedding_width=4, encoder_layers=1, decoder_layers=1, tying="none")
    model = small.build(SYMBOLS, seed=3).double().eval()
    with torch.no_grad():
        model.output.weight.mul_(6)
    return model.stepper(attention=True)


@pytest.mark.parametrize("score", list(SCORES))
@pytest.mark.parametrize("kind", ["n-gram", "rnn", "transformer", "ensemble"])
def test_a_wide_beam_and_what_is_marked_complete_equal_the_oracle(kind: str, score: str) -> None:
    if kind == "n-gram" and "coverage" in SCORES[score]:
        pytest.skip("a table of symbols looks at nothing")
    stepper, source = stepper_of(kind), sentences([3, 2], seed=5)
    limits = {"length_factor": 0.0, "length_constant": 4}
    oracle = exhaustive_search(stepper, source, SearchConfig(**SCORES[score], **limits))
    wide = beam_search(stepper, source, SearchConfig(beam=200, nbest=3, **SCORES[score], **limits))
    for found, best in zip(wide, oracle, strict=True):
        if kind != "n-gram":  # whose paths may take the same steps in another order, and tie
            assert [each.symbols for each in found] == [each.symbols for each in best[:3]]
        assert [each.score for each in found] == pytest.approx([each.score for each in best[:3]], abs=1e-9)
        assert all(each.is_complete for each in found if each.is_finished)
    for beam in (1, 2, 4):
        narrow = beam_search(stepper, source, SearchConfig(beam=beam, **SCORES[score], **limits))
        for [found], best in zip(narrow, oracle, strict=True):
            assert not found.is_finished or found.score <= best[0].score + 1e-9
            if found.is_complete:
                assert found.score == pytest.approx(best[0].score, abs=1e-9)


def test_narrow_beams_of_models_are_sometimes_wrong_and_then_not_marked() -> None:
    """The negative control: were everything marked complete, the law above would fail on these."""
    wrong = 0
    for seed in range(30):
        stepper, source = Bigram(5, seed=seed), sentences([3], seed=seed)
        chosen = SearchConfig(beam=1, length_normalisation="none", length_factor=0.0, length_constant=4)
        [[found]] = beam_search(stepper, source, chosen)
        best = exhaustive_search(stepper, source, chosen)[0][0]
        if found.score < best.score - 1e-9:
            wrong += 1
            assert not found.is_complete
    assert wrong > 3


def test_the_source_matters_to_the_models() -> None:
    """Else the comparisons above would compare one distribution with itself."""
    for kind in ("rnn", "transformer"):
        stepper = stepper_of(kind)
        sources = [Source(torch.tensor([[a, b, 2]]), torch.tensor([3])) for a, b in ((4, 9), (15, 6))]
        first, second = (stepper.step(stepper.start(each), torch.tensor([1])).log_probs for each in sources)
        assert not torch.allclose(first, second, atol=1e-3)
