"""The recurrent encoder-decoder: laws of stepping, padding, gradients, counts, and settings that do not fit."""

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, PAD
from seqloom.models.seq2seq import Seq2Seq, Seq2SeqConfig
from seqloom.nn.decoder import Decoder, DecoderState
from seqloom.nn.dropout import reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.packing import pack, packing_of
from seqloom.nn.recurrent import Bidirectional

SYMBOLS = Symbols(source=13, target=11, is_shared=False)
SHARED = Symbols(source=12, target=12, is_shared=True)

SLOW = pytest.mark.slow


def config(**settings: object) -> Seq2SeqConfig:
    small: dict[str, object] = {"width": 6, "embedding_width": 5, "tying": "output"}
    return Seq2SeqConfig.model_validate(small | settings)


def model_of(**settings: object) -> Seq2Seq:
    """A model in float64 with weights large enough that a mistake shows."""
    model = config(**settings).build(SYMBOLS, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model


def batch_of() -> tuple[Source, Tensor, Tensor]:
    """Sources, what precedes each target symbol, and target lengths."""
    source = Source(torch.randint(4, SYMBOLS.source, (3, 6)), torch.tensor([6, 3, 1]))
    previous = torch.randint(4, SYMBOLS.target, (3, 5))
    previous[:, 0] = BEGIN
    return source, previous, torch.tensor([2, 5, 4])


def check_laws(model: Seq2Seq) -> None:
    check_stepper_laws(
        lambda: model.stepper(attention=True),
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda source, prefix: teacher_forced(model, source, prefix),
        tolerance=1e-11,
    )


def teacher_forced(model: Seq2Seq, source: Source, prefix: Tensor) -> Tensor:
    model.eval()
    features = model(source, prefix, torch.full((len(prefix),), prefix.shape[1]))
    return model.output.log_probs(features).view(*prefix.shape, -1)


@pytest.mark.parametrize("attention", ["dot", "bilinear", pytest.param("additive", marks=SLOW)])
@pytest.mark.parametrize(("cell", "query"), [("lstm", "current"), ("gru", "previous")])
@pytest.mark.parametrize("input_feeding", [False, True])
def test_stepping_laws(cell: str, attention: str, query: str, input_feeding: bool) -> None:
    check_laws(model_of(cell=cell, attention=attention, query=query, input_feeding=input_feeding))


@pytest.mark.parametrize(
    "settings",
    [
        {"cell": "rnn"},
        {"cell": "rnn", "activation": "relu", "attention": "none"},
        {"cell": "rnn", "activation": "identity", "start": "spectral", "spectral_radius": 0.5},
        {"cell": "peephole", "context": "every"},
        {"cell": "peephole", "peephole": "full", "skip": "residual"},
        {"cell": "coupled", "attention": "none", "context": "first"},
        {"cell": "gru", "reset": "before", "start": "xavier"},
        {"cell": "gru", "reset": "input", "is_bidirectional": False, "embedding_width": 6},
        {"cell": "gru", "update": "new", "query": "previous", "input_feeding": True},
        *({"cell": cell, "cell_norm": True} for cell in ("lstm", "gru")),
        *(pytest.param({"cell": cell, "cell_norm": True}, marks=SLOW) for cell in ("rnn", "peephole", "coupled")),
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_stepping_laws_for_every_cell(settings: dict[str, object]) -> None:
    check_laws(model_of(**settings))


@pytest.mark.parametrize(
    ("attention", "summary"), [("none", "mean"), pytest.param("none", "max", marks=SLOW), ("bilinear", "last")]
)
@pytest.mark.parametrize("context", ["state", "first", "every"])
def test_stepping_laws_for_every_way_of_the_context(context: str, attention: str, summary: str) -> None:
    settings = {"encoder_width": 8, "encoder_layers": 1, "decoder_layers": 3}
    check_laws(model_of(summary=summary, attention=attention, context=context, **settings))


def test_join_is_the_last_state_of_both_directions() -> None:
    settings = config(attention="none")
    last, join = (settings.model_copy(update={"summary": each}).build(SYMBOLS, seed=1) for each in ("last", "join"))
    assert torch.equal(last.eval()(*batch_of_fixed()), join.eval()(*batch_of_fixed()))


@pytest.mark.parametrize("context", ["first", "every"])
@pytest.mark.parametrize("query", ["current", "previous"])
def test_stepping_laws_with_a_context_and_input_feeding(context: str, query: str) -> None:
    check_laws(model_of(context=context, query=query, input_feeding=True, cell="gru", skip="residual"))


@pytest.mark.parametrize("summary", ["last", "mean", "max"])
def test_stepping_laws_from_left_to_right(summary: str) -> None:
    check_laws(model_of(summary=summary, is_bidirectional=False, encoder_layers=1, encoder_width=7))


@pytest.mark.parametrize("skip", ["residual", "dense", "highway"])
@pytest.mark.parametrize(
    "settings",
    [
        {"query": "previous"},
        pytest.param({"query": "current", "input_feeding": True, "decoder_layers": 3}, marks=SLOW),
        {"attention": "none", "is_bidirectional": False, "cell": "gru", "embedding_width": 6},
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_stepping_laws_for_every_skip_connection(skip: str, settings: dict[str, object]) -> None:
    check_laws(model_of(skip=skip, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {"query": "current"},
        {"query": "previous"},
        {"query": "previous", "skip": "highway"},
        {"attention": "none"},
        {"attention": "none", "context": "first"},
        {"attention": "none", "context": "every", "skip": "dense"},
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_all_at_once_equals_step_by_step_with_gradients(settings: dict[str, object]) -> None:
    model = model_of(**settings, dropout_rate=0.0)
    source, previous, lengths = batch_of()
    packing = packing_of(lengths, previous.shape[1])
    at_once = model(source, previous, lengths)
    followed = pack(model.decoder.follow(previous, model.start(source))[0], packing)
    weights = torch.randn_like(at_once)
    parameters = [parameter for name, parameter in model.named_parameters() if not name.startswith("output.bias")]
    left, right = (torch.autograd.grad((each * weights).sum(), parameters) for each in (at_once, followed))
    torch.testing.assert_close(at_once, followed, rtol=0, atol=1e-12)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    "settings",
    [
        {"input_feeding": False},
        {"input_feeding": True},
        *({"attention": "none", "context": way, "summary": "mean"} for way in ("state", "first", "every")),
        {"attention": "none", "summary": "max", "skip": "dense"},
    ],
    ids=lambda settings: "-".join(str(value) for value in settings.values()),
)
def test_padding_changes_no_feature_on_either_side(settings: dict[str, object]) -> None:
    model = model_of(**settings).eval()
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


def test_what_the_ways_of_the_context_cost() -> None:
    """Against the bridge: one layer to the decoder's input, or a wider input; no attention saves its weights."""

    def count(**settings: object) -> int:
        model = config(encoder_width=8, decoder_layers=2, cell="gru", **settings).build(SYMBOLS, seed=1)
        return sum(parameter.numel() for parameter in model.parameters())

    bridge = (8 + 1) * 2 * 6
    assert count(context="first") == count() - bridge + (8 + 1) * 5
    assert count(context="every") == count() - bridge + 3 * 6 * 8
    assert count(attention="none") == count() - 8 * 6 - 8 * 5


def test_weights_of_saved_models_keep_their_names() -> None:
    """A model saved by an earlier version is read by these names."""
    gates = [f"{side}.{kind}" for side in ("from_input", "from_state") for kind in ("weight", "bias")]
    layers = ["encoder.layers.rightward", "encoder.layers.leftward", "decoder.stack.cells"]
    cells = [f"{layer}.{number}.{gate}" for layer in layers for number in (0, 1) for gate in gates]
    others = ["bridge.hint.weight", "bridge.hint.bias", "decoder.join.weight", "decoder.join.bias", "output.bias"]
    tables = ["encoder.embedding.weight", "decoder.embedding.weight", "output.weight"]
    for cell in ("lstm", "gru"):
        saved = Seq2SeqConfig(cell=cell, tying="output").build(SYMBOLS, seed=1).state_dict()
        assert set(saved) == {*cells, *others, *tables, "decoder.attention.score.from_memory.weight"}


def test_tying_everything_needs_one_vocabulary() -> None:
    with pytest.raises(ConfigError, match=r"model\.tying is 'all', but .* text\.shared=true"):
        config(tying="all").build(SYMBOLS, seed=1)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("encoder_width=7", r"width of 7 cannot be halved .* 6 or 8"),
        ("width=1", r"width of 1 cannot be halved .* set model.encoder_width to 2, or model.is_bidirectional=false"),
        ("width=6 encoder_width=8 attention=dot", "decoder states of width 6 with a memory of width 8"),
        ("reset=before", r"model\.reset=before is for a cell of kind gru, but model\.cell is lstm"),
        ("update=new cell=coupled", r"model\.update=new is for .* gru, but model\.cell is coupled"),
        ("activation=relu cell=gru", r"model\.activation=relu is for a cell of kind rnn, .* gru; .* model\.cell=rnn"),
        ("peephole=full", r"model\.peephole=full is for a cell of kind peephole, but model\.cell is lstm"),
        ("forget_bias=2.0 cell=gru", r"model\.forget_bias=2\.0 is for a cell of kind lstm or peephole or coupled"),
        (
            "spectral_radius=0.9 start=xavier",
            r"model\.spectral_radius=0\.9 cannot be combined with model\.start=xavier",
        ),
        ("attention=none query=previous", r"model\.query=previous .* model\.attention is none"),
        ("attention=none input_feeding=true", r"model\.input_feeding=true .* model\.context=every"),
        ("summary=join is_bidirectional=false", r"model\.summary=join .* set model\.summary=last"),
        ("cell=gru reset=input", r"encoder with states of width 128 reads inputs of width 256"),
        (
            "cell=gru reset=input is_bidirectional=false context=every",
            r"decoder with states of width 256 reads inputs of width 512",
        ),
    ],
)
def test_conflicting_settings_are_reported_when_they_are_read(overrides: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve(Seq2SeqConfig, overrides=overrides.split())


def test_one_direction_needs_no_two_halves() -> None:
    encoder = config(encoder_width=7, is_bidirectional=False).build(SYMBOLS, seed=1).encoder
    source = Source(torch.tensor([[4, 5, 2]]), torch.tensor([3]))
    assert encoder(source).shape == (1, 3, 7)


def test_a_decoder_that_reads_in_both_directions_is_refused() -> None:
    encoder = config().build(SYMBOLS, seed=1).encoder.layers
    assert isinstance(encoder, Bidirectional)
    with pytest.raises(ConfigError, match="a decoder predicts each symbol from the ones before it"):
        Decoder(
            Embedding(11, 5),
            encoder,
            attention=None,
            join=torch.nn.Linear(6, 5),
            first=None,
            query="current",
            reads_context=False,
            feeds_attention=False,
            dropout_rate=0.0,
            dropout_kind="between",
        )


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


@pytest.mark.parametrize("kind", ["between", "variational"])
@pytest.mark.parametrize("input_feeding", [False, True])
def test_dropout_is_the_same_under_the_same_seed(kind: str, input_feeding: bool) -> None:
    model = model_of(dropout_rate=0.5, dropout_kind=kind, input_feeding=input_feeding).train()
    results = []
    for seed in (1, 1, 2):
        reseed(model, seed)
        results.append(model(*batch_of_fixed()))
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


@pytest.mark.parametrize("context", ["state", "first", "every"])
@pytest.mark.parametrize("query", ["current", "previous"])
def test_variational_dropout_is_one_for_all_steps_of_a_sentence(context: str, query: str) -> None:
    """Trained step by step or all at once, the same numbers are dropped."""
    model = model_of(dropout_rate=0.5, dropout_kind="variational", context=context, query=query).train()
    source, previous, lengths = batch_of()
    reseed(model, 3)
    at_once = model(source, previous, lengths)
    reseed(model, 3)
    start = model.start(source)
    features, _ = model.decoder.follow(previous, start)
    followed = pack(features * start.masks[-1][:, None], packing_of(lengths, previous.shape[1]))
    torch.testing.assert_close(at_once, followed, rtol=0, atol=1e-12)
    assert {int(count) for count in (at_once != 0).unique(dim=0).sum(1)} != {5}  # some features are dropped
    zeros = [set((row == 0).nonzero().flatten().tolist()) for row in at_once]
    assert zeros[2] == zeros[3] == zeros[6]  # the five positions of the second sentence


def batch_of_fixed() -> tuple[Source, Tensor, Tensor]:
    torch.manual_seed(5)
    return batch_of()


def test_selecting_all_rows_is_free_and_memory_is_never_copied_per_row() -> None:
    stepper = model_of().stepper()
    source = Source(torch.randint(4, 13, (4, 6)), torch.tensor([6, 3, 1, 2]))
    state = stepper.start(source)
    assert state.select(torch.arange(4)) is state
    beams = state.select(torch.arange(4).repeat_interleave(5))
    assert state.memory is not None
    assert beams.memory is state.memory
    assert beams.layers[0][0].shape == (20, 6)


def test_finished_sentences_leave_the_memory() -> None:
    stepper = model_of().stepper(attention=True)
    source = Source(torch.randint(4, 13, (4, 6)), torch.tensor([6, 3, 1, 2]))
    state = stepper.start(source)
    three = state.select(torch.tensor([3, 3, 1, 0]))
    assert three.memory is state.memory
    one = three.select(torch.tensor([1, 0]))
    assert one.memory is not None
    assert len(one.memory.values) == 1
    last = torch.tensor([5, 6])
    alone = stepper.step(state.select(torch.tensor([3, 3])), last)
    torch.testing.assert_close(stepper.step(one, last).log_probs, alone.log_probs)
    nobody = one.select(torch.zeros(0, dtype=torch.long))
    assert isinstance(nobody, DecoderState)
    assert stepper.step(nobody, torch.zeros(0, dtype=torch.long)).log_probs.shape == (0, 11)


def test_a_model_without_attention_keeps_no_memory_and_returns_no_attention() -> None:
    stepper = model_of(attention="none", context="every").stepper(attention=True)
    source = Source(torch.randint(4, 13, (4, 6)), torch.tensor([6, 3, 1, 2]))
    state = stepper.start(source)
    assert state.memory is None
    assert stepper.step(state, torch.full((4,), BEGIN)).attention is None
    one = state.select(torch.tensor([3, 3]))
    assert one.context is not None
    assert len(one.context) == 1


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("input_feeding", [False, True])
def test_an_empty_batch_has_no_features(cell: str, input_feeding: bool) -> None:
    model = model_of(cell=cell, input_feeding=input_feeding)
    nothing = torch.zeros(0, dtype=torch.long)
    features = model(Source(nothing.view(0, 3), nothing), nothing.view(0, 2), nothing)
    assert features.shape == (0, 5)
    features.sum().backward()
