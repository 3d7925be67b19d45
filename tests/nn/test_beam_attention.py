"""Compiled attention of decoding steps: what the products give, for rows that come and go."""

import pytest
import torch

from laws.stepping import check_stepper_laws
from nn.loops import use_loops
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast.beam_attention import BeamCache, EncoderMemory, KeyValues, Lineage, StepAttention, Table
from seqloom.nn.packing import side_by_side
from seqloom.search.beam import beam_search
from seqloom.search.settings import SearchConfig

SYMBOLS = Symbols(source=20, target=20, is_shared=True)


def model() -> Transformer:
    config = TransformerConfig(width=16, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=16)
    return config.build(SYMBOLS, seed=1).eval()


def log_probs(monkeypatch: pytest.MonkeyPatch, *, fewest: int) -> list[torch.Tensor]:
    """A search of 40 positions, past the first room of the cache, with rows repeated, reordered and dropped."""
    use_loops(monkeypatch, fewest=fewest)
    generator = torch.Generator().manual_seed(3)
    stepper = model().stepper()
    source = Source(torch.tensor([[4, 9, 5, END], [7, END, 0, 0], [8, 6, END, 0]]), torch.tensor([4, 2, 3]))
    found = []
    with torch.inference_mode():
        state, rows = stepper.start(source), 3
        for position in range(40):
            step = stepper.step(state, torch.randint(4, 20, (rows,), generator=generator))
            found.append(step.log_probs)
            picked = torch.randint(0, rows, (max(2, 9 - position // 5),), generator=generator)
            state, rows = step.state.select(picked), len(picked)
    return found


def test_the_loops_give_what_the_products_give(monkeypatch: pytest.MonkeyPatch) -> None:
    loops, products = (log_probs(monkeypatch, fewest=fewest) for fewest in (1, 1000))
    for one, other in zip(loops, products, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)
    assert not torch.equal(loops[-1], products[-1])  # they are different ways


def test_loops_and_products_may_alternate_in_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed, products = (log_probs(monkeypatch, fewest=fewest) for fewest in (6, 1000))
    for one, other in zip(mixed, products, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-5)


def test_the_laws_of_stepping_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    use_loops(monkeypatch, fewest=1)
    translator = model()
    check_stepper_laws(lambda: translator.stepper(), 20, target_symbols=20, tolerance=1e-4)


def test_neighbours_do_not_change_a_bit_of_the_attention() -> None:
    generator = torch.Generator().manual_seed(5)
    query, keys, values = (torch.randn(*shape, generator=generator) for shape in ((7, 16), (3, 2, 5, 8), (3, 2, 5, 8)))
    owners, lengths = torch.tensor([0, 0, 1, 2, 2, 1, 0]), torch.tensor([5, 2, 3])
    memory = EncoderMemory((KeyValues(keys, values),), torch.zeros(3, 1, 1, 5), lengths)

    def look(rows: slice) -> torch.Tensor:
        lineage = Lineage(owners[rows], side_by_side(owners[rows], 3), torch.zeros(len(owners[rows]), 1).long())
        attention = StepAttention(BeamCache.empty(1, 3, heads=2, size=8, like=keys), lineage, memory)
        return attention.to_memory(Table(query[rows]), 0, Table(torch.empty_like(query[rows]))).tensor

    with torch.inference_mode():
        together, alone = look(slice(None)), look(slice(3, 4))
    assert torch.equal(together[3:4], alone)
    expected = torch.softmax(query[3].view(2, 1, 8) @ keys[2, :, :3].mT / 8**0.5, -1) @ values[2, :, :3]
    torch.testing.assert_close(alone[0], expected.flatten(), rtol=0, atol=1e-6)


def test_a_beam_finds_the_same_with_both(monkeypatch: pytest.MonkeyPatch) -> None:
    translator = model()
    source = Source(torch.tensor([[4, 9, 5, END], [7, END, 0, 0]]), torch.tensor([4, 2]))
    outputs = []
    for fewest in (1, 1000):
        use_loops(monkeypatch, fewest=fewest)
        found = beam_search(translator.stepper(), source, SearchConfig(beam=4, nbest=4))
        outputs.append([[each.symbols for each in hypotheses] for hypotheses in found])
    assert outputs[0] == outputs[1]
