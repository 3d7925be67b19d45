"""The pointer gate: its formula by loops, its loss, the laws of stepping, and symbols that only copying can write."""

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.errors import ConfigError, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.pointer import Pointer, PointerOutput

SYMBOLS = 13
TRANSFORMER = TransformerConfig(
    width=8, heads=2, encoder_layers=1, decoder_layers=2, feed_forward=8, dropout_rate=0.0, copy=True
)
SEQ2SEQ = Seq2SeqConfig(
    width=6, embedding_width=5, encoder_layers=1, decoder_layers=1, dropout_rate=0.0, copy=True, input_feeding=True
)
CONFIGS = {"transformer": TRANSFORMER, "seq2seq": SEQ2SEQ}


def model_of(kind: str) -> Transformer | Seq2Seq:
    return CONFIGS[kind].build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=3).double().eval()


def test_probabilities_are_those_of_the_formula() -> None:
    torch.manual_seed(1)
    pointer = Pointer(4, 6).double()
    output = PointerOutput(Embedding(SYMBOLS, 4).weight, has_bias=True).double()
    features, memory = torch.randn(2, 3, 4, dtype=torch.float64), torch.randn(2, 5, 6, dtype=torch.float64)
    ids, lengths = torch.tensor([[4, 7, 4, 9, END], [5, END, 0, 0, 0]]), torch.tensor([5, 2])
    read = pointer(features, pointer.remember(memory, ids, lengths))
    found = output.log_probs(read).exp()  # [batch, queries, symbols]
    for row in range(2):
        for query, f in enumerate(features[row]):
            vocabulary = (output.weight @ f + output.bias).softmax(0)
            gate = torch.sigmoid(pointer.gate.weight[0] @ f + pointer.gate.bias[0])
            keys = [pointer.key.weight @ h for h in memory[row, : lengths[row]]]
            weights = torch.stack([f @ key / 2 for key in keys]).softmax(0)
            for symbol in range(SYMBOLS):
                copied = sum(weights[at] for at in range(lengths[row]) if ids[row, at] == symbol)
                expected = gate * vocabulary[symbol] + (1 - gate) * copied
                torch.testing.assert_close(found[row, query, symbol], expected, rtol=0, atol=1e-12)
    without_gate = (output(features)).softmax(-1)
    assert (found - without_gate).abs().max() > 1e-3


def test_the_loss_is_that_of_the_probabilities_and_smoothing_that_of_the_vocabulary() -> None:
    torch.manual_seed(2)
    pointer, output = Pointer(4, 4).double(), PointerOutput(Embedding(SYMBOLS, 4).weight).double()
    features = torch.randn(1, 4, 4, dtype=torch.float64, requires_grad=True)
    memory = pointer.remember(torch.randn(1, 3, 4, dtype=torch.float64), torch.tensor([[4, 5, 4]]), torch.tensor([3]))
    read, labels = pointer(features, memory)[0], torch.tensor([4, 5, 9, END])  # two of them cannot be copied
    plain = -output.log_probs(read).gather(1, labels[:, None]).sum()
    torch.testing.assert_close(output.cross_entropy(read, labels), plain)
    uniform = -output(features[0]).log_softmax(1).mean(1).sum()
    smoothed = output.cross_entropy(read, labels, smoothing=0.1)
    torch.testing.assert_close(smoothed, 0.9 * plain + 0.1 * uniform)
    for loss in (smoothed, plain):
        (gradient,) = torch.autograd.grad(loss, features, retain_graph=True)
        assert gradient.isfinite().all()
    assert torch.autograd.gradcheck(
        lambda given: output.cross_entropy(pointer(given, memory)[0], labels, smoothing=0.1), features
    )
    with pytest.raises(ConfigError, match=r"task\.consistency=1 is not supported with model\.copy"):
        output.consistent_cross_entropy(read.expand(2, -1, -1), labels, consistency=1.0)


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_laws_of_stepping_hold(kind: str) -> None:
    model = model_of(kind)

    def teacher_forced(source: Source, prefix: Tensor) -> Tensor:
        lengths = torch.full((len(prefix),), prefix.shape[1])
        log_probs = model.output.log_probs(model(source, prefix, lengths))
        return log_probs.view(len(prefix), prefix.shape[1], SYMBOLS)

    with torch.no_grad():
        check_stepper_laws(model.stepper, source_symbols=SYMBOLS, target_symbols=SYMBOLS, teacher_forced=teacher_forced)


@pytest.mark.parametrize("kind", CONFIGS)
def test_what_cannot_be_copied_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"model\.copy=true copies symbols of the source"):
        CONFIGS[kind].model_copy(update={"tying": "output"}).build(Symbols(5, 6, is_shared=False), seed=1)
    with pytest.raises(UsageError, match=r"search\.shortlist cannot be combined with model\.copy"):
        model_of(kind).stepper(shortlist=lambda source: source.ids)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("can_copy", [True, False])
def test_a_symbol_that_was_never_a_target_is_copied(can_copy: bool) -> None:
    """The target is the first symbol of the source. Without a pointer, a new symbol cannot be written."""
    symbols, new = 24, 18
    config = TRANSFORMER.model_copy(update={"copy": can_copy, "width": 16, "feed_forward": 16})
    model = config.build(Symbols(symbols, symbols, is_shared=True), seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    generator = torch.Generator().manual_seed(1)

    def examples(first: int, last: int, count: int) -> tuple[Source, Tensor]:
        ids = torch.randint(first, last, (count, 4), generator=generator)
        ids[:, 3] = END
        return Source(ids, torch.full((count,), 4)), ids[:, 0]

    begin, one = torch.full((32, 1), BEGIN), torch.ones(32, dtype=torch.long)
    for _ in range(250):
        source, labels = examples(4, new, 32)
        loss = model.output.cross_entropy(model(source, begin, one), labels, smoothing=0.0)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    source, labels = examples(new, symbols, 32)
    with torch.no_grad():
        found = model.output.log_probs(model(source, begin, one)).argmax(1)
    share = float((found == labels).float().mean())
    assert (share > 0.8) == can_copy, share
