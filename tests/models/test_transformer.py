"""The Transformer: laws of stepping, masks, positions, counts, searches that agree, and tasks it must learn."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.interop.frames import require_plain_frame
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Symbols
from seqloom.nn.fast import beam_attention
from seqloom.nn.outputs import smoothed_cross_entropy
from seqloom.nn.packing import pack, packing_of
from seqloom.nn.probe import listen
from seqloom.search.beam import beam_search
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import SearchConfig

SYMBOLS = Symbols(source=13, target=11, is_shared=False)
SHARED = Symbols(source=12, target=12, is_shared=True)
POSITIONS = ["sinusoidal", "concatenated", "learned", "shaw", "bias", "none"]


def config(**settings: object) -> TransformerConfig:
    small: dict[str, object] = {
        "width": 8,
        "heads": 2,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "feed_forward": 12,
        "longest": 5,
        "farthest": 2,
        "tying": "output",
    }
    return TransformerConfig.model_validate(small | settings)


def model_of(symbols: Symbols = SYMBOLS, **settings: object) -> Transformer:
    """A model in float64, not training, with weights large enough that a mistake shows."""
    model = config(**settings).build(symbols, seed=1).double().eval()
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


def teacher_forced(model: Transformer, source: Source, prefix: Tensor) -> Tensor:
    features = model(source, prefix, torch.full((len(prefix),), prefix.shape[1]))
    return model.output.log_probs(features).view(*prefix.shape, -1)


def check_laws(model: Transformer, *, attention: bool, steps: int = 3) -> None:
    check_stepper_laws(
        lambda: model.stepper(attention=attention),
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda source, prefix: teacher_forced(model, source, prefix),
        lengths=(3, 1, 5),
        steps=steps,
        tolerance=1e-11,
    )


@pytest.mark.parametrize(
    ("positions", "norm", "attention"), list(itertools.product(POSITIONS, ["before", "after"], [False, True]))
)
def test_stepping_laws(positions: str, norm: str, attention: bool) -> None:
    layers = 2 if positions == "sinusoidal" else 1
    check_laws(model_of(positions=positions, norm=norm, encoder_layers=1, decoder_layers=layers), attention=attention)


@pytest.mark.parametrize("positions", ["sinusoidal", "concatenated", "shaw"])
def test_stepping_laws_with_a_window(positions: str) -> None:
    model = model_of(positions=positions, attention_window=2, encoder_layers=1, decoder_layers=1)
    check_laws(model, attention=False)


@pytest.mark.parametrize("positions", ["sinusoidal", "concatenated"])
def test_a_window_is_the_same_in_blocks_in_full_and_in_compiled_steps(positions: str) -> None:
    model = model_of(positions=positions, attention_window=3).float()
    source = Source(torch.randint(4, SYMBOLS.source, (2, 50)), torch.tensor([50, 41]))
    previous = torch.cat([torch.full((2, 1), BEGIN), torch.randint(4, SYMBOLS.target, (2, 44))], 1)
    with torch.no_grad():
        blocks = teacher_forced(model, source, previous)
        with listen(model, "*.self"):  # listeners receive the weights of all pairs of positions
            torch.testing.assert_close(teacher_forced(model, source, previous), blocks, rtol=0, atol=2e-5)
        stepper, found = model.stepper(), []
        state = stepper.start(source)
        for column in previous.unbind(1):
            step = stepper.step(state, column)
            state, found = step.state, [*found, step.log_probs]
        torch.testing.assert_close(torch.stack(found, 1), blocks, rtol=0, atol=2e-4)
        for layer in model.decoder.layers:
            layer.self.window = None
        assert not torch.allclose(teacher_forced(model, source, previous), blocks, atol=1e-2)


def test_a_window_excludes_a_number_for_each_pair_of_positions() -> None:
    with pytest.raises(ValueError, match=r"attention_window=4 cannot be combined with model\.positions=bias"):
        config(positions="bias", attention_window=4)


@pytest.mark.parametrize("program", ["ONNX", "CTranslate2"])
def test_a_window_cannot_be_exported(program: str) -> None:
    with pytest.raises(ModelError, match=f"attention_window cannot be exported to {program}"):
        require_plain_frame(model_of(attention_window=4), program)


def test_stepping_laws_without_output_projection_and_with_gelu() -> None:
    settings = {"output_projection": False, "activation": "gelu", "final_norm": False}
    check_laws(model_of(**settings, encoder_layers=1, decoder_layers=1), attention=True)


FRAMES = [
    {"source_before": (7,), "target_before": (END, 6), "source_after": (4, 5)},
    {"source_after": (9,), "target_before": (PAD,)},
]


@pytest.mark.parametrize(("frame", "attention"), [(FRAMES[0], False), (FRAMES[0], True), (FRAMES[1], True)])
def test_stepping_laws_with_symbols_around_the_texts(frame: dict[str, object], attention: bool) -> None:
    model = model_of(
        frame=frame,
        absent=(BEGIN,),
        output_bias=True,
        embedding_norm=True,
        positions="learned",
        first_position=2,
        longest=20,
        is_bounded=True,
        scale_embeddings=False,
        activation="silu",
        encoder_layers=1,
        decoder_layers=1,
    )
    check_laws(model, attention=attention)


def test_a_frame_is_what_a_caller_would_have_passed() -> None:
    """Features and attention are those of a model without a frame that is given all symbols."""
    settings = {"positions": "sinusoidal", "sinusoids": "halves", "activation": "gelu_tanh"}
    plain, framed = model_of(**settings), model_of(**settings, frame=FRAMES[0])
    framed.load_state_dict(plain.state_dict())
    source, previous, lengths = batch_of()
    rows = [[7, *ids[:length], 4, 5] for ids, length in zip(source.ids.tolist(), source.lengths.tolist(), strict=True)]
    all_ids = torch.tensor([row + [PAD] * (9 - len(row)) for row in rows])
    read = torch.cat([torch.full((3, 1), END), previous.masked_fill(previous == BEGIN, 6)], 1)
    whole = (Source(all_ids, source.lengths + 3), read, lengths + 1)
    expected = torch.cat([each[1:] for each in plain(*whole).split((lengths + 1).tolist())])
    torch.testing.assert_close(framed(source, previous, lengths), expected, rtol=0, atol=1e-12)
    attention = framed.teacher_forced_attention(source, previous, lengths)
    outside = plain.teacher_forced_attention(*whole)[:, 1:, 1:7]
    for row, length in enumerate(source.lengths.tolist()):
        given = slice(0, int(lengths[row]))
        torch.testing.assert_close(attention[row, given, :length], outside[row, given, :length], rtol=0, atol=1e-12)
        assert not attention[row, :, length:].any()


def test_a_text_longer_than_a_bounded_table_is_an_error() -> None:
    model = model_of(positions="learned", longest=4, is_bounded=True)
    source, previous, lengths = batch_of()
    with pytest.raises(ModelError, match="a text of 6 tokens does not fit this model, whose table ends at 4"):
        model(source, previous, lengths)
    short = Source(source.ids[:, :3], source.lengths.clamp(max=3))
    for dtype in (torch.float32, torch.float64):
        with torch.inference_mode(), pytest.raises(ModelError, match="a text of 5 tokens"):
            beam_search(model.to(dtype).stepper(), short, SearchConfig(beam=2, length_factor=0, length_constant=9))


@pytest.mark.parametrize("positions", ["sinusoidal", "bias"])
def test_stepping_laws_while_caches_grow(positions: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam_attention, "FIRST_ROOM", 1)
    check_laws(model_of(positions=positions, encoder_layers=1, decoder_layers=1), attention=False, steps=4)


def test_stepping_past_the_first_room_equals_teacher_forcing() -> None:
    model = model_of()
    source, _, _ = batch_of()
    prefix = torch.randint(4, SYMBOLS.target, (3, 2 * beam_attention.FIRST_ROOM + 3))
    stepper = model.stepper()
    with torch.inference_mode():
        expected = teacher_forced(model, source, prefix)
        state = stepper.start(source)
        for position, last in enumerate(prefix.unbind(1)):
            step = stepper.step(state, last)
            state = step.state
            torch.testing.assert_close(step.log_probs, expected[:, position], rtol=0, atol=1e-11)


def test_a_step_returns_the_mean_attention_over_the_heads_of_the_last_layer() -> None:
    model = model_of()
    source, previous, _ = batch_of()
    stepper = model.stepper(attention=True)
    with torch.inference_mode():
        with listen(model, "decoder.layers.1.cross") as trace:
            teacher_forced(model, source, previous)
        (weights,) = trace["decoder.layers.1.cross.weights"]  # [batch, heads, target, source]
        state = stepper.start(source)
        for position, last in enumerate(previous.unbind(1)):
            step = stepper.step(state, last)
            state = step.state
            assert step.attention is not None
            torch.testing.assert_close(step.attention, weights[:, :, position].mean(1), rtol=0, atol=1e-12)


def test_listening_changes_no_feature() -> None:
    model = model_of()
    batch = batch_of()
    plain = model(*batch)
    with listen(model, "*") as trace:
        heard = model(*batch)
    torch.testing.assert_close(plain, heard, rtol=0, atol=1e-12)
    assert len(trace) == 6  # one for each attention
    assert all(len(values) == 1 for values in trace.values())


def random_sources(sentences: int, symbols: Symbols) -> Source:
    lengths = torch.randint(1, 9, (sentences,))
    ids = torch.randint(4, symbols.source, (sentences, 8))
    ids[torch.arange(sentences), lengths - 1] = END
    return Source(ids, lengths)


def alone(source: Source, row: int) -> Source:
    length = int(source.lengths[row])
    return Source(source.ids[row : row + 1, :length], source.lengths[row : row + 1])


@pytest.mark.parametrize("positions", ["sinusoidal", "bias"])
def test_a_batch_of_64_is_translated_as_its_sentences_one_by_one(positions: str) -> None:
    model = model_of(positions=positions, encoder_layers=1, decoder_layers=1)
    source = random_sources(64, SYMBOLS)
    beam, greedy = SearchConfig(beam=3, nbest=2, length_factor=1.0, length_constant=4), SearchConfig(length_factor=1.0)
    together = beam_search(model.stepper(), source, beam)
    together_greedy = greedy_search(model.stepper(), source, greedy)
    assert len({hypothesis.symbols for hypothesis in together_greedy}) > 10  # they are not all the same
    for row in range(0, 64, 13):
        (found,) = beam_search(model.stepper(), alone(source, row), beam)
        assert [each.symbols for each in found] == [each.symbols for each in together[row]]
        assert found[0].score == pytest.approx(together[row][0].score, abs=1e-9)
        (one,) = greedy_search(model.stepper(), alone(source, row), greedy)
        assert one.symbols == together_greedy[row].symbols


def test_beam_one_is_greedy() -> None:
    model = model_of()
    source = random_sources(32, SYMBOLS)
    settings = SearchConfig(beam=1)
    greedy = [each.symbols for each in greedy_search(model.stepper(), source, settings)]
    assert [best.symbols for (best,) in beam_search(model.stepper(), source, settings)] == greedy
    wide = beam_search(model.stepper(), source, SearchConfig(beam=4))
    assert [best.symbols for (best,) in wide] != greedy  # a search that looks further finds others


@pytest.mark.parametrize(("positions", "window"), [*((each, None) for each in POSITIONS), ("sinusoidal", 2)])
def test_padding_changes_no_feature_and_no_gradient(positions: str, window: int | None) -> None:
    model = model_of(positions=positions, attention_window=window)
    source, previous, lengths = batch_of()
    wide_source, wide_previous = torch.full((3, 9), 7), torch.full((3, 8), 7)
    for row in range(3):
        wide_source[row, : source.lengths[row]] = source.ids[row, : source.lengths[row]]
        wide_previous[row, : lengths[row]] = previous[row, : lengths[row]]
    features = model(source, previous, lengths)
    wide = model(Source(wide_source, source.lengths), wide_previous, lengths)
    torch.testing.assert_close(features, wide, rtol=0, atol=1e-12)
    weights = torch.randn_like(features)
    used = [parameter for parameter in model.parameters() if parameter.requires_grad]
    left, right = (torch.autograd.grad((each * weights).sum(), used, allow_unused=True) for each in (features, wide))
    for one, other in zip(left, right, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)
    wide_source[1, 2] = 8 if source.ids[1, 2] != 8 else 9  # a real token is seen
    assert not torch.allclose(model(Source(wide_source, source.lengths), wide_previous, lengths), features, atol=1e-4)


@pytest.mark.parametrize("positions", POSITIONS)
def test_a_later_target_symbol_changes_no_earlier_feature(positions: str) -> None:
    model = model_of(positions=positions)
    source, previous, _ = batch_of()
    lengths = torch.full((3,), 5)
    other = previous.clone()
    other[:, 3] = 4 + (other[:, 3] - 3) % 7
    out, changed = (model(source, each, lengths).view(3, 5, -1) for each in (previous, other))
    assert torch.equal(out[:, :3], changed[:, :3])
    assert not torch.isclose(out[:, 3:], changed[:, 3:]).all(-1).any()


@pytest.mark.parametrize("positions", POSITIONS)
def test_order_matters_only_where_there_are_positions(positions: str) -> None:
    model = model_of(positions=positions)
    ids = torch.tensor([[4, 5, 6, 7, 8]])
    previous, lengths = torch.tensor([[BEGIN, 5, 6]]), torch.tensor([3])
    shuffled = ids[:, [3, 0, 4, 2, 1]]
    out, other = (model(Source(each, torch.tensor([5])), previous, lengths) for each in (ids, shuffled))
    assert torch.allclose(out, other, rtol=0, atol=1e-12) == (positions == "none")


@pytest.mark.parametrize(("positions", "window"), [("sinusoidal", None), ("bias", None), ("sinusoidal", 2)])
def test_a_sentence_of_no_tokens_affects_no_other(positions: str, window: int | None) -> None:
    model = model_of(positions=positions, attention_window=window)
    ids, previous = torch.randint(4, SYMBOLS.source, (3, 4)), torch.tensor([[BEGIN, 5]] * 3)
    lengths = torch.tensor([2, 2, 2])
    together = model(Source(ids, torch.tensor([4, 0, 2])), previous, lengths)
    assert together.isfinite().all()
    neighbours = model(Source((ids - 3) % 9 + 4, torch.tensor([4, 0, 2])), previous, lengths)
    torch.testing.assert_close(together[2:4], neighbours[2:4], rtol=0, atol=1e-12)
    assert not torch.allclose(together[:2], neighbours[:2], atol=1e-3)
    for columns in (0, 3):
        empty = Source(ids[1:2, :columns], torch.tensor([0]))
        torch.testing.assert_close(model(empty, previous[:1], lengths[:1]), together[2:4], rtol=0, atol=1e-12)


@pytest.mark.parametrize("columns", [0, 3])
def test_a_batch_of_no_sentences_gives_every_weight_a_gradient_of_zero(columns: int) -> None:
    model = model_of(tying="none", positions="shaw", attention_window=2)
    nothing = torch.empty(0, columns, dtype=torch.long)
    lengths = torch.empty(0, dtype=torch.long)
    features = model(Source(nothing, lengths), nothing, lengths)
    assert features.shape == (0, 8)
    smoothed_cross_entropy(features, model.output.weight, None, lengths, smoothing=0.1).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name


def test_gradients_reach_the_embeddings_that_were_used_alone() -> None:
    model = model_of(tying="none")
    source, previous, lengths = batch_of()
    model(source, previous, lengths).square().sum().backward()
    for stack, ids, counts in ((model.encoder, source.ids, source.lengths), (model.decoder, previous, lengths)):
        used = set(pack(ids, packing_of(counts, ids.shape[1])).tolist())
        gradient = stack.embedding.weight.grad
        assert gradient is not None
        assert {row for row, each in enumerate(gradient) if each.any()} == used


def test_the_seed_decides_weights_and_dropout_and_nothing_global_does() -> None:
    before = torch.get_rng_state()
    first, again, other = (config(dropout_rate=0.3).build(SYMBOLS, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one, two) for one, two in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.output.weight, other.output.weight)
    batch = batch_of()
    dropped = first(*batch)
    assert torch.equal(dropped, again(*batch))
    assert not torch.equal(dropped, first(*batch))  # the next batch is dropped otherwise
    for model in (first, again):
        reseed(model, 9)
    assert torch.equal(first(*batch), again(*batch))
    assert not torch.allclose(first(*batch), first.eval()(*batch))


def parameters_of(layers: int, *, width: int = 8, inner: int = 12) -> int:
    """Parameters of encoder and decoder without tables, pre-norm with final norms, `layers` of each."""
    square, norm = width * width + width, 2 * width
    feed_forward = 2 * width * inner + inner + width
    encoder = 4 * square + feed_forward + 2 * norm
    decoder = 8 * square + feed_forward + 3 * norm
    return layers * (encoder + decoder) + 2 * norm


@pytest.mark.parametrize(("tying", "tables"), [("all", 12 * 8), ("output", 2 * 12 * 8), ("none", 3 * 12 * 8)])
def test_tying_gives_exact_numbers_of_parameters(tying: str, tables: int) -> None:
    model = config(tying=tying).build(SHARED, seed=1)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters_of(2) + tables


def test_options_add_exact_numbers_of_parameters() -> None:
    def count(**settings: object) -> int:
        return sum(parameter.numel() for parameter in config(**settings).build(SYMBOLS, seed=1).parameters())

    base = count()
    assert count(final_norm=False) == base - 2 * 16
    assert count(norm="after") == base - 2 * 16  # the paper has no last norm
    assert count(output_projection=False) == base - 6 * (64 + 8)
    assert count(positions="none") == base
    assert count(positions="concatenated") == base + 2 * 16 * 8
    assert count(positions="learned") == base + 2 * 5 * 8
    assert count(positions="shaw") == base + 4 * 5 * 4
    assert count(positions="bias") == base + 2 * 2 * 32


def test_tying_all_with_two_vocabularies_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"model\.tying is 'all'.*text\.shared=true.*model\.tying=output"):
        config(tying="all").build(SYMBOLS, seed=1)


def test_heads_that_do_not_fit_are_refused_when_the_settings_are_read(tmp_path: Path) -> None:
    sentence = r"width 256 cannot be shared by 7 heads; numbers of heads that fit: \[1, 2, 4, 8\]"
    with pytest.raises(ConfigError, match=sentence):
        resolve(TransformerConfig, overrides=["heads=7"])
    with pytest.raises(ConfigError, match=sentence):
        TransformerConfig(heads=7)


def test_a_dropout_rate_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dropout rate of 0\.999 "):
        config(dropout_rate=0.999).build(SYMBOLS, seed=1)


def copying(sentences: int, generator: torch.Generator) -> Iterator[tuple[Source, Tensor, Tensor]]:
    """Sentences of 2 to 6 symbols with their end, what precedes each symbol, and the symbols themselves."""
    while True:
        lengths = torch.randint(3, 8, (sentences,), generator=generator)
        ids = torch.randint(4, SHARED.source, (sentences, 7), generator=generator)
        ids[torch.arange(sentences), lengths - 1] = END
        ids[torch.arange(7) >= lengths[:, None]] = PAD
        previous = torch.cat([torch.full((sentences, 1), BEGIN), ids[:, :-1]], 1)
        yield Source(ids, lengths), previous, ids


def train(
    model: Transformer, batches: Iterator[tuple[Source, Tensor, Tensor]], *, steps: int, rate: float
) -> list[float]:
    """The mean loss of each step. The learning rate begins at its height, without a warm-up, and falls."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.05, total_iters=steps)
    losses = []
    for source, previous, target in itertools.islice(batches, steps):
        features = model(source, previous, source.lengths)
        labels = pack(target, packing_of(source.lengths, target.shape[1]))
        loss = smoothed_cross_entropy(features, model.output.weight, model.output.bias, labels) / len(labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    return losses


def test_it_learns_to_copy() -> None:
    settings = {"width": 32, "heads": 4, "feed_forward": 64, "encoder_layers": 1, "decoder_layers": 1, "tying": "all"}
    model = config(**settings, dropout_rate=0.0).build(SHARED, seed=1)
    train(model, copying(32, torch.Generator().manual_seed(0)), steps=200, rate=1e-2)
    source, _, _ = next(copying(64, torch.Generator().manual_seed(1)))
    found = greedy_search(model.eval().stepper(), source, SearchConfig(beam=1))
    wanted = [tuple(ids[: length - 1].tolist()) for ids, length in zip(source.ids, source.lengths, strict=True)]
    right = sum(hypothesis.symbols == symbols for hypothesis, symbols in zip(found, wanted, strict=True))
    assert right >= 60, f"{right} of 64 sentences are copied"


@pytest.mark.slow
def test_twelve_layers_with_the_norm_before_train_without_warmup() -> None:
    """Knowing how often each of the eight symbols comes gives 2.0; less is only to be had from the source."""
    settings = {"width": 16, "feed_forward": 32, "encoder_layers": 12, "decoder_layers": 12, "tying": "all"}
    model = config(**settings, dropout_rate=0.0).build(SHARED, seed=1)
    losses = train(model, copying(32, torch.Generator().manual_seed(0)), steps=150, rate=3e-3)
    assert sum(losses[-5:]) / 5 < 1.5
