"""The recurrent language model: laws of stepping, its formula by hand, what it remembers, settings that do not fit."""

import math

import pytest
import torch
from torch import Tensor, nn

from laws.stepping import check_stepper_laws
from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError
from seqloom.core.symbols import BEGIN
from seqloom.models.rnn_lm import RnnLm, RnnLmConfig
from seqloom.nn.cells.lstm import LSTMCell
from seqloom.nn.embeddings import Symbols
from seqloom.nn.recurrent import Bidirectional

SYMBOLS = Symbols(source=11, target=11, is_shared=True)


def model_of(**settings: object) -> RnnLm:
    """A model in float64 with weights large enough that a mistake shows."""
    small: dict[str, object] = {"width": 6, "embedding_width": 5, "layers": 2}
    model = RnnLmConfig.model_validate(small | settings).build(SYMBOLS, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model


def log_probs(model: RnnLm, previous: Tensor) -> Tensor:
    features, _ = model.eval()(previous, None)
    return model.output.log_probs(features)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"cell": "rnn", "activation": "relu", "layers": 1},
        {"cell": "gru", "reset": "before", "skip": "residual"},
        {"cell": "gru", "reset": "input", "embedding_width": None},
        {"cell": "peephole", "skip": "highway", "embedding_width": 6},
        {"cell": "coupled", "skip": "dense", "layers": 3, "cell_norm": True},
        {"tying": "none", "dropout_kind": "variational"},
        {"tying": "none", "output": "adaptive", "cutoffs": (4, 7)},
        {"tying": "none", "output": "adaptive"},
    ],
)
def test_stepping_laws(settings: dict[str, object]) -> None:
    model = model_of(**settings)
    check_stepper_laws(
        model.stepper,
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda _, prefix: log_probs(model, prefix),
        tolerance=1e-11,
    )


def test_it_computes_its_formula() -> None:
    """Against torch's own LSTM and linear maps, with the same weights."""
    model = model_of(layers=1).eval()
    theirs = nn.LSTM(5, 6, batch_first=True, dtype=torch.float64)
    cell = model.layers.cells[0]
    parts = (cell.from_input.weight, cell.from_state.weight, cell.from_input.bias, cell.from_state.bias)
    theirs.load_state_dict(dict(zip(("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"), parts, strict=True)))
    previous = torch.randint(3, SYMBOLS.target, (3, 7))
    hidden, _ = theirs(nn.functional.embedding(previous, model.embedding.weight))
    assert model.projection is not None
    scores = model.projection(hidden) @ model.embedding.weight.t() + model.output.get_parameter("bias")
    torch.testing.assert_close(log_probs(model, previous), scores.log_softmax(-1), rtol=0, atol=1e-12)


def test_windows_with_a_carried_state_are_one_long_window() -> None:
    model = model_of(cell="gru").eval()
    previous = torch.randint(3, SYMBOLS.target, (3, 9))
    whole, last = model(previous, None)
    first, state = model(previous[:, :4], None)
    second, end = model(previous[:, 4:], state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole, rtol=0, atol=1e-12)
    torch.testing.assert_close(end, last, rtol=0, atol=1e-12)
    from_nothing, _ = model(previous[:, 4:], None)
    assert not torch.allclose(from_nothing, second, atol=1e-3)


@pytest.mark.parametrize("cell", ["rnn", "lstm", "peephole", "coupled", "gru"])
def test_a_word_five_places_back_changes_what_is_expected(cell: str) -> None:
    """It reads one word at a time, and yet it is no bigram model, which looks at the last word alone."""
    model = model_of(cell=cell)
    words = torch.tensor([[BEGIN, 4, 5, 6, 7, 8, 9]])
    changed = words.clone()
    changed[0, -6] = 10
    one, other = (log_probs(model, each)[0, -1] for each in (words, changed))
    assert bool((one - other).abs().max() > 1e-4)
    # The control: the same layers without a state between the steps see the last word, as a bigram model does.
    one, other = (model.output.log_probs(model(each[:, -1:], None)[0])[0, -1] for each in (words, changed))
    assert torch.equal(one, other)


def test_a_model_that_knows_nothing_is_uniform() -> None:
    model = model_of()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    labels = torch.randint(0, SYMBOLS.target, (8,))
    features, _ = model.eval()(torch.randint(0, SYMBOLS.target, (2, 4)), None)
    nats = float(model.output.cross_entropy(features.flatten(0, 1), labels).detach())
    assert math.exp(nats / 8) == pytest.approx(SYMBOLS.target, rel=1e-14)


def test_tied_tables_are_one_and_others_are_not() -> None:
    tied, free = model_of(), model_of(tying="none")
    assert tied.get_parameter("output.weight") is tied.embedding.weight
    assert tied.projection is not None
    assert free.get_parameter("output.weight").shape == (11, 6)
    assert free.projection is None
    assert model_of(embedding_width=None).projection is None


def test_dropout_acts_in_training_only() -> None:
    model = model_of(dropout_rate=0.5)
    previous = torch.randint(3, SYMBOLS.target, (2, 5))
    model.train()
    assert not torch.equal(model(previous, None)[0], model(previous, None)[0])
    model.eval()
    assert torch.equal(model(previous, None)[0], model(previous, None)[0])


def test_layers_that_read_ahead_are_refused() -> None:
    model = model_of(embedding_width=6)
    layers = Bidirectional(*([LSTMCell(6, 3)] for _ in range(2)), dropout_rate=0.0)
    with pytest.raises(ConfigError, match="a language model predicts each symbol from the ones before it"):
        RnnLm(model.embedding, layers, projection=None, output=model.output, dropout_rate=0.0, dropout_kind="between")


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"reset": "before"}, "model.reset=before is for a cell of kind gru, but model.cell is lstm"),
        ({"cell": "gru", "reset": "input"}, "states of width 6 reads inputs of width 5"),
        ({"output": "adaptive"}, "set model.tying=none, or model.output=full"),
        ({"output": "adaptive", "tying": "none", "learns_log_z": True}, "an adaptive softmax is normalised"),
        ({"cutoffs": [3]}, "are for model.output=adaptive"),
    ],
)
def test_settings_that_do_not_fit_are_refused(setting: dict[str, object], message: str) -> None:
    given = {"width": 6, "embedding_width": 5} | setting
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        resolve(RnnLmConfig, defaults=given)
