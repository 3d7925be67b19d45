"""Shortlists: the laws of stepping hold, the softmax is over the list, and neighbours have lists of their own."""

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from nn.loops import use_loops
from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.shortlist import Offered
from seqloom.nn.outputs import Output

SYMBOLS = Symbols(source=20, target=17, is_shared=False)


def lists(source: Source) -> Tensor:
    """Symbols chosen by what the sentence itself holds, lists of different lengths."""
    found = [
        sorted({END, *(5 + int(id) * 7 % 12 for id in ids[:length])})
        for ids, length in zip(source.ids, source.lengths.tolist(), strict=True)
    ]
    longest = max(map(len, found), default=0)
    return torch.tensor([[*each, *[-1] * (longest - len(each))] for each in found])


def model_of(kind: str) -> Seq2Seq | Transformer:
    if kind == "transformer":
        small = TransformerConfig(width=8, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=8, tying="none")
        return small.build(SYMBOLS, seed=1).double().eval()
    if kind == "t5":
        sizes = T5Config(
            width=8, heads=2, head_size=3, encoder_layers=1, decoder_layers=2, feed_forward=8, tying="none"
        )
        return sizes.build(SYMBOLS, seed=1).double().eval()
    return Seq2SeqConfig(width=6, embedding_width=4, tying="none").build(SYMBOLS, seed=1).double().eval()


@pytest.mark.parametrize("kind", ["transformer", "seq2seq"])
def test_a_shortlisted_stepper_keeps_the_laws_of_stepping(kind: str) -> None:
    model = model_of(kind)
    check_stepper_laws(
        lambda: model.stepper(attention=True, shortlist=lists), SYMBOLS.source, target_symbols=17, tolerance=1e-11
    )


@pytest.mark.parametrize("kind", ["transformer", "t5", "seq2seq"])
def test_the_softmax_is_taken_over_the_list(kind: str) -> None:
    model = model_of(kind)
    source = Source(torch.tensor([[4, 9, END], [7, END, 0]]), torch.tensor([3, 2]))
    whole, short = model.stepper(), model.stepper(shortlist=lists)
    last = torch.tensor([1, 1])
    with torch.inference_mode():
        full = whole.step(whole.start(source), last).log_probs
        step = short.step(short.start(source), last)
    for row, wanted in enumerate(lists(source).tolist()):
        wanted = [symbol for symbol in wanted if symbol >= 0]
        assert step.symbols is not None
        kept = step.log_probs[row] > float("-inf")
        assert step.symbols[row][kept].tolist() == wanted
        expected = full[row, wanted].log_softmax(0)
        torch.testing.assert_close(step.log_probs[row][kept], expected, rtol=0, atol=1e-12)
        assert not torch.allclose(step.log_probs[row][kept], full[row, wanted])  # the others had a share


def test_a_list_of_another_vocabulary_or_without_an_end_is_refused() -> None:
    output = Output(torch.nn.Parameter(torch.randn(9, 4)))
    with pytest.raises(ModelError, match="offers symbol 9, but the model has 9"):
        Offered.of(output, torch.tensor([[2, 9]]))
    with pytest.raises(ModelError, match="without the end symbol"):
        Offered.of(output, torch.tensor([[2, 5], [4, 5]]))


def test_loops_give_what_products_give(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(2)
    output = Output(torch.nn.Parameter(torch.randn(17, 9, generator=generator)), has_bias=True)
    listed = torch.tensor([[END, 5, 7, 16], [END, 8, -1, -1]])
    owners, slots = torch.tensor([0, 0, 1, 0, 1]), torch.tensor([0, 1, 0, 2, 1])
    features = torch.randn(5, 9, generator=generator)
    found = []
    with torch.inference_mode():
        for fewest in (1, 1000):
            use_loops(monkeypatch, fewest=fewest)
            found.append(Offered.of(output, listed).log_probs(features, owners=owners, slots=slots))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-6)
    assert not torch.equal(found[0], found[1])  # they are different ways
    assert found[0].isneginf().sum(1).tolist() == [0, 0, 2, 0, 2]
