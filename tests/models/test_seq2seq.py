"""The recurrent encoder-decoder: laws of stepping, padding, gradients, counts, and a task it must learn."""

import itertools
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.seq2seq import Decoding, Seq2Seq, Seq2SeqConfig
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Symbols
from seqloom.nn.losses import smoothed_cross_entropy
from seqloom.nn.packing import pack, packing_of

SYMBOLS = Symbols(source=13, target=11, is_shared=False)
STEPS = 200
SHARED = Symbols(source=12, target=12, is_shared=True)


def config(**settings: object) -> Seq2SeqConfig:
    small: dict[str, object] = {"width": 6, "embedding_width": 5, "tying": "output"}
    return Seq2SeqConfig.model_validate(small | settings)


def model_of(symbols: Symbols = SYMBOLS, **settings: object) -> Seq2Seq:
    """A model in float64 with weights large enough that a mistake shows."""
    model = config(**settings).build(symbols, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model


def batch_of(symbols: Symbols = SYMBOLS) -> tuple[Source, Tensor, Tensor]:
    """Sources, what precedes each target symbol, and target lengths."""
    source = Source(torch.randint(4, symbols.source, (3, 6)), torch.tensor([6, 3, 1]))
    previous = torch.randint(4, symbols.target, (3, 5))
    previous[:, 0] = BEGIN
    return source, previous, torch.tensor([2, 5, 4])


def teacher_forced(model: Seq2Seq, source: Source, prefix: Tensor) -> Tensor:
    model.eval()
    features = model(source, prefix, torch.full((len(prefix),), prefix.shape[1]))
    return model.output.log_probs(features).view(*prefix.shape, -1)


@pytest.mark.parametrize(
    ("cell", "attention", "query", "input_feeding"),
    list(
        itertools.product(["lstm", "gru"], ["dot", "bilinear", "additive"], ["current", "previous"], [False, True]),
    ),
)
def test_stepping_laws(cell: str, attention: str, query: str, input_feeding: bool) -> None:
    model = model_of(cell=cell, attention=attention, query=query, input_feeding=input_feeding)
    check_stepper_laws(
        lambda: model.stepper(attention=True),
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda source, prefix: teacher_forced(model, source, prefix),
        tolerance=1e-11,
    )


@pytest.mark.parametrize("summary", ["last", "mean", "max"])
@pytest.mark.parametrize("is_bidirectional", [True, False])
def test_stepping_laws_for_every_start(summary: str, is_bidirectional: bool) -> None:
    model = model_of(
        summary=summary, is_bidirectional=is_bidirectional, encoder_width=8, encoder_layers=1, decoder_layers=3
    )
    check_stepper_laws(
        model.stepper,
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda source, prefix: teacher_forced(model, source, prefix),
        tolerance=1e-11,
    )


@pytest.mark.parametrize("query", ["current", "previous"])
def test_all_at_once_equals_step_by_step_with_gradients(query: str) -> None:
    model = model_of(query=query, dropout_rate=0.0)
    source, previous, lengths = batch_of()
    packing = packing_of(lengths, previous.shape[1])
    at_once = model(source, previous, lengths)
    followed = pack(model.decoder.follow(previous, model.start(source))[0], packing)
    weights = torch.randn_like(at_once)
    parameters = [parameter for name, parameter in model.named_parameters() if not name.startswith("output.bias")]
    left, right = (torch.autograd.grad((each * weights).sum(), parameters) for each in (at_once, followed))
    torch.testing.assert_close(at_once, followed, rtol=0, atol=1e-12)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-11)


@pytest.mark.parametrize("input_feeding", [False, True])
def test_padding_changes_no_feature_on_either_side(input_feeding: bool) -> None:
    model = model_of(input_feeding=input_feeding).eval()
    source, previous, lengths = batch_of()
    features = model(source, previous, lengths)
    assert features.shape == (11, 5)
    wide_source, wide_previous = torch.full((3, 9), 7), torch.full((3, 8), 7)
    for row in range(3):
        wide_source[row, : source.lengths[row]] = source.ids[row, : source.lengths[row]]
        wide_previous[row, : lengths[row]] = previous[row, : lengths[row]]
    wide = model(Source(wide_source, source.lengths), wide_previous, lengths)
    torch.testing.assert_close(features, wide, rtol=0, atol=1e-12)
    wide_source[1, 2] = 8 if source.ids[1, 2] != 8 else 9  # a real token is seen
    assert not torch.allclose(model(Source(wide_source, source.lengths), wide_previous, lengths), features, atol=1e-4)


def test_gradients_reach_the_embeddings_that_were_used_alone() -> None:
    model = model_of(tying="none")
    source, previous, lengths = batch_of()
    model(source, previous, lengths).square().sum().backward()
    for table, ids, counts in ((model.encoder, source.ids, source.lengths), (model.decoder, previous, lengths)):
        used = set(pack(ids, packing_of(counts, ids.shape[1])).tolist())
        gradient = table.embedding.weight.grad
        assert gradient is not None
        assert {row for row in range(len(gradient)) if gradient[row].any()} == used - {PAD}


@pytest.mark.parametrize(("cell", "gates"), [("lstm", 4), ("gru", 3)])
def test_parameter_count(cell: str, gates: int) -> None:
    settings = config(cell=cell, encoder_width=8, decoder_layers=3, attention="bilinear")

    def cells(inputs: int, width: int) -> int:
        return gates * width * (inputs + width + 2)

    encoder = 2 * (cells(5, 4) + cells(8, 4))
    decoder = cells(5, 6) + 2 * cells(6, 6)
    bridge, score, join = (8 + 1) * 3 * 6, 8 * 6, (8 + 6 + 1) * 5
    layers = encoder + decoder + bridge + score + join
    tables = {"output": (13 + 11) * 5 + 11, "none": (13 + 11 + 11) * 5 + 11}
    for tying, table in tables.items():
        model = settings.model_copy(update={"tying": tying}).build(SYMBOLS, seed=1)
        assert sum(parameter.numel() for parameter in model.parameters()) == layers + table
    model = settings.model_copy(update={"tying": "all"}).build(SHARED, seed=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == layers + 12 * 5 + 12


def test_tying_everything_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match=r"model\.tying is 'all', but .* text\.shared=true"):
        config(tying="all").build(SYMBOLS, seed=1)


def test_an_odd_encoder_has_no_two_halves() -> None:
    with pytest.raises(ConfigError, match=r"width of 7 cannot be halved .* 6 or 8"):
        config(encoder_width=7).build(SYMBOLS, seed=1)
    config(encoder_width=7, is_bidirectional=False).build(SYMBOLS, seed=1)


def test_dot_attention_with_unequal_widths_is_refused() -> None:
    with pytest.raises(ConfigError, match="decoder states of width 6 with a memory of width 8"):
        config(encoder_width=8, attention="dot").build(SYMBOLS, seed=1)


def test_the_same_seed_builds_the_same_model() -> None:
    one, same, other = (config().build(SYMBOLS, seed=seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["decoder.join.weight"], other["decoder.join.weight"])


def test_a_stepper_drops_nothing_and_leaves_the_mode_alone() -> None:
    model = model_of(dropout_rate=0.5).train()
    model.encoder.eval()
    source, _, _ = batch_of()
    last = torch.full((3,), BEGIN)
    first, second = (model.stepper().step(model.stepper().start(source), last).log_probs for _ in range(2))
    assert torch.equal(first, second)
    assert not first.requires_grad
    assert model.training
    assert model.decoder.dropout.training
    assert not model.encoder.dropout.training


def test_dropout_is_the_same_under_the_same_seed() -> None:
    model = model_of(dropout_rate=0.5).train()
    results = []
    for seed in (1, 1, 2):
        reseed(model, seed)
        results.append(model(*batch_of_fixed()))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def batch_of_fixed() -> tuple[Source, Tensor, Tensor]:
    torch.manual_seed(5)
    return batch_of()


def test_selecting_all_rows_is_free_and_memory_is_never_copied_per_row() -> None:
    stepper = model_of().stepper()
    source = Source(torch.randint(4, 13, (4, 6)), torch.tensor([6, 3, 1, 2]))
    state = stepper.start(source)
    assert state.select(torch.arange(4)) is state
    beams = state.select(torch.arange(4).repeat_interleave(5))
    assert beams.memory is state.memory
    assert beams.layers[0][0].shape == (20, 6)


def test_finished_sentences_leave_the_memory() -> None:
    stepper = model_of().stepper(attention=True)
    source = Source(torch.randint(4, 13, (4, 6)), torch.tensor([6, 3, 1, 2]))
    state = stepper.start(source)
    three = state.select(torch.tensor([3, 3, 1, 0]))
    assert three.memory is state.memory
    one = three.select(torch.tensor([1, 0]))
    assert len(one.memory.values) == 1
    last = torch.tensor([5, 6])
    alone = stepper.step(state.select(torch.tensor([3, 3])), last)
    torch.testing.assert_close(stepper.step(one, last).log_probs, alone.log_probs)
    nobody = one.select(torch.zeros(0, dtype=torch.long))
    assert isinstance(nobody, Decoding)
    assert stepper.step(nobody, torch.zeros(0, dtype=torch.long)).log_probs.shape == (0, 11)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("input_feeding", [False, True])
def test_an_empty_batch_has_no_features(cell: str, input_feeding: bool) -> None:
    model = model_of(cell=cell, input_feeding=input_feeding)
    nothing = torch.zeros(0, dtype=torch.long)
    features = model(Source(nothing.view(0, 3), nothing), nothing.view(0, 2), nothing)
    assert features.shape == (0, 5)
    features.sum().backward()


@pytest.mark.parametrize(
    "settings",
    [
        {"cell": "lstm"},
        {"cell": "gru", "attention": "additive"},
        {"cell": "gru", "attention": "dot", "query": "previous", "input_feeding": True},
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_learns_to_reverse_and_looks_where_it_reads(settings: dict[str, object]) -> None:
    """Greedy decoding turns every unseen sentence round after a few seconds of training."""
    symbols = Symbols(source=14, target=14, is_shared=True)
    model = config(
        **settings, width=64, embedding_width=32, encoder_layers=1, decoder_layers=1, dropout_rate=0.0, tying="all"
    ).build(symbols, seed=1)
    generator = torch.Generator().manual_seed(1)
    optimiser = torch.optim.Adam(model.parameters(), lr=8e-3)
    falling = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=STEPS)
    for _ in range(STEPS):
        source, labels, lengths = reversals(generator, rows=64)
        previous = torch.cat([torch.full((64, 1), BEGIN), labels[:, :-1]], 1)
        wanted = pack(labels, packing_of(lengths, labels.shape[1]))
        features = model(source, previous, lengths)
        loss = smoothed_cross_entropy(features, model.output.weight, model.output.bias, wanted) / len(wanted)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        falling.step()
    source, labels, lengths = reversals(torch.Generator().manual_seed(2), rows=100)
    wanted_rows = [row[:length].tolist() for row, length in zip(labels, lengths.tolist(), strict=True)]
    assert greedy(model, source, steps=labels.shape[1]) == wanted_rows
    looked_at = torch.stack([*positions_looked_at(model, source, labels)], 1)
    mirrored = lengths[:, None] - 2 - torch.arange(labels.shape[1])
    is_word = mirrored >= 0
    assert float((looked_at == mirrored)[is_word].float().mean()) > 0.9


def positions_looked_at(model: Seq2Seq, source: Source, labels: Tensor) -> Iterator[Tensor]:
    """The source position with the largest weight, for each symbol of the right answer."""
    stepper = model.stepper(attention=True)
    state, last = stepper.start(source), torch.full((len(labels),), stepper.begin)
    for following in labels.unbind(1):
        step = stepper.step(state, last)
        assert step.attention is not None
        assert isinstance(step.state, Decoding)
        yield step.attention.argmax(1)
        state, last = step.state, following


def reversals(generator: torch.Generator, *, rows: int) -> tuple[Source, Tensor, Tensor]:
    """Sentences of 1 to 6 symbols and themselves turned round, ends included."""
    lengths = torch.randint(2, 8, (rows,), generator=generator)
    ids = torch.randint(4, 14, (rows, 7), generator=generator)
    turned = ids.clone()
    for row, length in enumerate(lengths.tolist()):
        turned[row, : length - 1] = ids[row, : length - 1].flip(0)
        for side in (ids, turned):
            side[row, length - 1] = END
            side[row, length:] = PAD
    return Source(ids, lengths), turned, lengths


def greedy(model: Seq2Seq, source: Source, *, steps: int) -> list[list[int]]:
    stepper = model.stepper()
    state, last = stepper.start(source), torch.full((len(source.lengths),), stepper.begin)
    columns = []
    for _ in range(steps):
        step = stepper.step(state, last)
        assert isinstance(step.state, Decoding)
        state, last = step.state, step.log_probs.argmax(1)
        columns.append(last)
    rows = torch.stack(columns, 1).tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in rows]
