"""The recurrent encoder-decoder learns to copy and to reverse in seconds, in every form, and looks where it reads."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.nn.decoder import DecoderState
from seqloom.nn.embeddings import Symbols
from seqloom.nn.outputs import smoothed_cross_entropy
from seqloom.nn.packing import pack, packing_of

RESERVED = 4
ROWS = 64


def sentences(
    generator: torch.Generator, *, rows: int, words: int, longest: int, is_reversed: bool
) -> tuple[Source, Tensor, Tensor]:
    """Sentences of 1 to `longest` words, and themselves or themselves turned round, ends included."""
    lengths = torch.randint(2, longest + 2, (rows,), generator=generator)
    ids = torch.randint(RESERVED, RESERVED + words, (rows, longest + 1), generator=generator)
    target = ids.clone()
    for row, length in enumerate(lengths.tolist()):
        if is_reversed:
            target[row, : length - 1] = ids[row, : length - 1].flip(0)
        for side in (ids, target):
            side[row, length - 1] = END
            side[row, length:] = PAD
    return Source(ids, lengths), target, lengths


def trained(settings: dict[str, object], *, steps: int, words: int, longest: int, is_reversed: bool) -> Seq2Seq:
    small = {"width": 64, "embedding_width": 32, "encoder_layers": 1, "decoder_layers": 1, "dropout_rate": 0.0}
    symbols = Symbols(RESERVED + words, RESERVED + words, is_shared=True)
    model = Seq2SeqConfig.model_validate(small | settings).build(symbols, seed=1)
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(model.parameters(), lr=8e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    for _ in range(steps):
        source, labels, lengths = sentences(generator, rows=ROWS, words=words, longest=longest, is_reversed=is_reversed)
        previous = torch.cat([torch.full((ROWS, 1), BEGIN), labels[:, :-1]], 1)
        wanted = pack(labels, packing_of(lengths, labels.shape[1]))
        features = model(source, previous, lengths)
        loss = smoothed_cross_entropy(features, model.output.weight, model.output.bias, wanted) / len(wanted)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        falling.step()
    return model


def greedy(model: Seq2Seq, source: Source, *, steps: int) -> list[list[int]]:
    stepper = model.stepper()
    state, last = stepper.start(source), torch.full((len(source.lengths),), stepper.begin)
    columns = []
    for _ in range(steps):
        step = stepper.step(state, last)
        assert isinstance(step.state, DecoderState)
        state, last = step.state, step.log_probs.argmax(1)
        columns.append(last)
    rows = torch.stack(columns, 1).tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


def positions_looked_at(model: Seq2Seq, source: Source, labels: Tensor) -> Iterator[Tensor]:
    """The source position with the largest weight, for each symbol of the right answer."""
    stepper = model.stepper(attention=True)
    state, last = stepper.start(source), torch.full((len(labels),), stepper.begin)
    for following in labels.unbind(1):
        step = stepper.step(state, last)
        assert step.attention is not None
        assert isinstance(step.state, DecoderState)
        yield step.attention.argmax(1)
        state, last = step.state, following


def named(settings: object) -> str | None:
    return "-".join(str(value) for value in settings.values()) if isinstance(settings, dict) else None


@pytest.mark.parametrize(
    ("settings", "is_reversed"),
    [
        ({"cell": "lstm"}, True),
        pytest.param({"cell": "gru", "attention": "additive"}, True, marks=pytest.mark.slow),
        pytest.param(
            {"cell": "gru", "attention": "dot", "query": "previous", "input_feeding": True},
            True,
            marks=pytest.mark.slow,
        ),
        pytest.param({"cell": "gru", "attention": "bilinear"}, False, marks=pytest.mark.slow),
        pytest.param({"cell": "lstm", "attention": "dot", "context": "first"}, False, marks=pytest.mark.slow),
    ],
    ids=named,
)
def test_with_attention_every_fresh_sentence_is_right_and_read_in_order(
    settings: dict[str, object], is_reversed: bool
) -> None:
    """Copying looks along the diagonal, reversing along the other one."""
    model = trained(settings, steps=200, words=10, longest=6, is_reversed=is_reversed)
    fresh = torch.Generator().manual_seed(2)
    source, labels, lengths = sentences(fresh, rows=100, words=10, longest=6, is_reversed=is_reversed)
    wanted = [row[:length].tolist() for row, length in zip(labels, lengths.tolist(), strict=True)]
    assert greedy(model, source, steps=labels.shape[1]) == wanted
    looked_at = torch.stack([*positions_looked_at(model, source, labels)], 1)
    place = torch.arange(labels.shape[1])
    is_word = place < lengths[:, None] - 1
    due = lengths[:, None] - 2 - place if is_reversed else place.expand_as(labels)
    assert float((looked_at == due)[is_word].float().mean()) > 0.9


@pytest.mark.parametrize(
    ("context", "is_reversed", "longest"),
    [
        pytest.param("state", True, 3, id="state-reverse-3"),
        pytest.param("state", True, 4, id="state-reverse", marks=pytest.mark.slow),
        pytest.param("first", False, 4, id="first-copy", marks=pytest.mark.slow),
        pytest.param("every", False, 4, id="every-copy", marks=pytest.mark.slow),
        pytest.param("state", False, 4, id="state-copy", marks=pytest.mark.slow),
        pytest.param("first", True, 4, id="first-reverse", marks=pytest.mark.slow),
        pytest.param("every", True, 4, id="every-reverse", marks=pytest.mark.slow),
    ],
)
def test_one_vector_is_enough_for_short_sentences(context: str, is_reversed: bool, longest: int) -> None:
    """Without attention all that is known of the source passes through its context, whichever way that enters."""
    settings: dict[str, object] = {"cell": "gru", "attention": "none", "context": context}
    steps, words = (400, 8) if longest > 3 else (200, 5)
    model = trained(settings, steps=steps, words=words, longest=longest, is_reversed=is_reversed)
    source, labels, lengths = sentences(
        torch.Generator().manual_seed(2), rows=100, words=words, longest=longest, is_reversed=is_reversed
    )
    wanted = [row[:length].tolist() for row, length in zip(labels, lengths.tolist(), strict=True)]
    assert greedy(model, source, steps=labels.shape[1]) == wanted
