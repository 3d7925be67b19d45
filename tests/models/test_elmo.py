"""ELMo: its formula, what each direction may know, laws of stepping, features for other models."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from laws.stepping import check_stepper_laws
from seqloom.core.errors import ConfigError, DataError, UsageError
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED
from seqloom.models.elmo import Elmo, ElmoConfig, ElmoFeatures, frame
from seqloom.nn.embeddings import Symbols

PIECES = (*RESERVED, "i", "can", "not", "bear", "this", "is", "a", "dog")
SYMBOLS = Symbols(source=12, target=12, is_shared=True, pieces=PIECES)
CANNOT_BEAR, A_BEAR = [4, 5, 6, 7, 8], [8, 9, 10, 7]
LENGTHS = torch.tensor([5, 4])
SENTENCES = torch.tensor([CANNOT_BEAR, [*A_BEAR, PAD]])

KINDS: list[dict[str, Any]] = [
    {},
    {"input": "characters", "cell": "gru", "character_width": 3, "filter_widths": (1, 2), "filters": 2},
    {"embedding_width": None, "skip": "residual", "tying": "none"},
    {"embedding_width": None, "skip": "highway", "cell": "coupled", "dropout_kind": "variational"},
    {"cell": "rnn", "skip": "dense", "layers": 3},
    {"layers": 1, "cell": "peephole"},
]


def model_of(**settings: Any) -> Elmo:
    """A model in float64 with weights large enough that a mistake shows."""
    small: dict[str, Any] = {"width": 6, "embedding_width": 5, "layers": 2}
    model = ElmoConfig.model_validate(small | settings).build(SYMBOLS, seed=1).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5).add_(0.1 * torch.randn_like(parameter))
    return model.eval()


def log_probs(model: Elmo, prefix: Tensor) -> Tensor:
    features, _ = model.forward_half()(prefix, None)
    return model.output.log_probs(features)


@pytest.mark.parametrize("settings", KINDS)
def test_stepping_laws(settings: dict[str, Any]) -> None:
    model = model_of(**settings)
    check_stepper_laws(
        model.stepper,
        SYMBOLS.source,
        target_symbols=SYMBOLS.target,
        teacher_forced=lambda _, prefix: log_probs(model, prefix),
        tolerance=1e-11,
    )


@pytest.mark.parametrize("settings", KINDS)
def test_training_predicts_the_next_symbol_like_the_forward_half(settings: dict[str, Any]) -> None:
    model = model_of(**settings)
    following = model(SENTENCES, LENGTHS).following
    framed = frame(SENTENCES, LENGTHS)
    alone = [log_probs(model, framed[row : row + 1, : length + 1])[0] for row, length in enumerate(LENGTHS.tolist())]
    torch.testing.assert_close(model.output.log_probs(following), torch.cat(alone), rtol=0, atol=1e-11)


def test_it_computes_its_formula() -> None:
    """Against torch's own LSTMs over the sentence and over the sentence turned round."""
    model = model_of(layers=1)
    theirs = []
    for direction in (model.rightward, model.leftward):
        lstm = nn.LSTM(5, 6, batch_first=True, dtype=torch.float64)
        cell = direction.layers.cells[0]
        parts = (cell.from_input.weight, cell.from_state.weight, cell.from_input.bias, cell.from_state.bias)
        names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
        lstm.load_state_dict(dict(zip(names, parts, strict=True)))
        theirs.append(lstm)
    framed = torch.tensor([[BEGIN, *CANNOT_BEAR, END]])
    assert isinstance(model.words, nn.Module)
    words = model.words(framed)
    rightward, leftward = theirs[0](words)[0], theirs[1](words.flip(1))[0].flip(1)
    assert model.rightward.projection is not None
    assert model.leftward.projection is not None
    table, bias = model.output.weight, model.output.get_parameter("bias")
    following = model.rightward.projection(rightward[0, :-1]) @ table.t() + bias
    preceding = model.leftward.projection(leftward[0, 1:]) @ table.t() + bias
    found = model(torch.tensor([CANNOT_BEAR]), torch.tensor([5]))
    torch.testing.assert_close(model.output(found.following), following, rtol=0, atol=1e-12)
    torch.testing.assert_close(model.output(found.preceding), preceding, rtol=0, atol=1e-12)
    features = model.features(torch.tensor([CANNOT_BEAR]), torch.tensor([5]))
    joined = torch.cat([rightward, leftward], -1)[:, 1:-1]
    torch.testing.assert_close(features.layers[0], joined, rtol=0, atol=1e-12)
    torch.testing.assert_close(features.concat(), torch.cat([joined, words[:, 1:-1]], -1), rtol=0, atol=1e-12)


@pytest.mark.parametrize("settings", KINDS)
@pytest.mark.parametrize("place", [0, 2, 4])
def test_no_direction_knows_what_it_has_not_read(settings: dict[str, Any], place: int) -> None:
    model = model_of(**settings)
    changed = SENTENCES[:1].clone()
    changed[0, place] = 11
    one, other = (model.features(each, LENGTHS[:1]).layers for each in (SENTENCES[:1], changed))
    for layer in range(len(one)):
        rightward = (one[layer, 0, :, :6] - other[layer, 0, :, :6]).abs().amax(1)
        leftward = (one[layer, 0, :, 6:] - other[layer, 0, :, 6:]).abs().amax(1)
        assert not rightward[:place].any()
        assert not leftward[place + 1 :].any()
        # The controls: what has read the word knows it, at its own place and beyond.
        assert (rightward[place:] > 1e-9).all()
        assert (leftward[: place + 1] > 1e-9).all()


def test_no_symbol_is_predicted_from_states_that_have_seen_it() -> None:
    model = model_of()
    changed = SENTENCES[:1].clone()
    changed[0, 2] = 11
    one, other = (model(each, LENGTHS[:1]) for each in (SENTENCES[:1], changed))
    following = (one.following - other.following).abs().amax(1)  # of w_1 … w_5, END
    preceding = (one.preceding - other.preceding).abs().amax(1)  # of BEGIN, w_1 … w_5
    assert [bool(each > 1e-9) for each in following] == [False, False, False, True, True, True]
    assert [bool(each > 1e-9) for each in preceding] == [True, True, True, False, False, False]


@pytest.mark.parametrize("settings", KINDS)
def test_padding_and_neighbours_change_nothing(settings: dict[str, Any]) -> None:
    model = model_of(**settings)
    wide = nn.functional.pad(SENTENCES, (0, 3), value=9)
    wide[1, 4] = 9
    together = model.features(wide, LENGTHS)
    loss = model(wide, LENGTHS)
    before = 0
    for row, length in enumerate(LENGTHS.tolist()):
        ids, alone = SENTENCES[row : row + 1, :length], LENGTHS[row : row + 1]
        found = model.features(ids, alone)
        torch.testing.assert_close(together.layers[:, row, :length], found.layers[:, 0], rtol=0, atol=1e-11)
        both = model(ids, alone)
        after = before + length + 1
        torch.testing.assert_close(loss.following[before:after], both.following, rtol=0, atol=1e-11)
        torch.testing.assert_close(loss.preceding[before:after], both.preceding, rtol=0, atol=1e-11)
        before = after


@pytest.mark.parametrize("settings", KINDS)
def test_the_two_bears_differ_in_their_sentences_and_are_equal_in_the_table(settings: dict[str, Any]) -> None:
    found = model_of(**settings).features(SENTENCES, LENGTHS)
    one, other = (0, CANNOT_BEAR.index(7)), (1, A_BEAR.index(7))
    assert torch.equal(found.words[one], found.words[other])
    for layer in found.layers:
        assert float((layer[one] - layer[other]).abs().max()) > 1e-3


def test_top_layers_of_a_residual_stack_keep_what_is_below() -> None:
    model = model_of(embedding_width=None, skip="residual", tying="none")
    with torch.no_grad():
        for direction in (model.rightward, model.leftward):
            for parameter in direction.layers.cells[1].parameters():
                parameter.zero_()
    found = model.features(SENTENCES, LENGTHS)
    torch.testing.assert_close(found.layers[1], found.layers[0], rtol=0, atol=1e-12)


def test_words_that_were_never_seen_are_read_by_their_letters() -> None:
    model = model_of(input="characters")
    written = [[PIECES[number] for number in sentence] for sentence in (CANNOT_BEAR, A_BEAR)]
    same = model.features_of_words(written)
    by_ids = model.features(SENTENCES, LENGTHS)
    for row, length in enumerate(LENGTHS.tolist()):
        torch.testing.assert_close(same.layers[:, row, :length], by_ids.layers[:, row, :length], rtol=0, atol=1e-11)
    unseen = model.features_of_words([["this", "is", "a", "grizzly"], []])
    assert unseen.layers.isfinite().all()
    assert not torch.allclose(unseen.layers[:, 0, 3], by_ids.layers[:, 1, 3], atol=1e-3)
    with pytest.raises(UsageError, match=r"train one with model\.input=characters"):
        model_of().features_of_words(written)


def test_a_sentence_without_words_and_a_batch_without_sentences_are_read() -> None:
    model = model_of()
    empty = model(torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0]))
    assert empty.following.shape == empty.preceding.shape == (2, 5)
    assert model.features(torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 0])).layers.shape == (2, 2, 0, 12)


def test_features_for_other_models_frozen_or_not() -> None:
    for combine, width in (("scalar_mix", 12), ("concat", 18)):
        for is_frozen in (True, False):
            model = model_of(embedding_width=None).train()
            features = ElmoFeatures(model, combine=combine, is_frozen=is_frozen).double()  # type: ignore[arg-type]
            found = features(SENTENCES, LENGTHS)
            assert found.shape == (2, 5, width) == (2, 5, features.width)
            learns = [name for name, parameter in features.named_parameters() if parameter.requires_grad]
            assert any(name.startswith("elmo.") for name in learns) != is_frozen
            assert ("mix.scores" in learns) == (combine == "scalar_mix")
            if is_frozen:
                assert torch.equal(found, features(SENTENCES, LENGTHS)), "a frozen model has no dropout"
            assert model.training


def test_settings_that_do_not_fit_are_refused() -> None:
    for settings, part in (
        ({"input": "characters", "tying": "output"}, "has none; leave model.tying out"),
        ({"filter_widths": ()}, "one or more widths from 1"),
        ({"filter_widths": (60,)}, "model.longest_word=50"),
        ({"cell": "gru", "reset": "input", "embedding_width": 4}, "needs inputs as wide as the states"),
    ):
        with pytest.raises(ValueError, match=part):
            ElmoConfig.model_validate(settings)
    with pytest.raises(ConfigError, match="spells all 12 symbols, but the pieces of 0 were given"):
        ElmoConfig(input="characters").build(Symbols(12, 12, is_shared=True), seed=1)
    with pytest.raises(UsageError, match=r"leave model\.embedding_width out, or use concat"):
        ElmoFeatures(model_of()).double()(SENTENCES, LENGTHS)
    with pytest.raises(ConfigError, match="normalise=True is for combine='scalar_mix'"):
        ElmoFeatures(model_of(), combine="concat", normalise=True)
    with pytest.raises(DataError, match="a row cannot have 6 positions in a batch of 5"):
        model_of().features(SENTENCES, torch.tensor([6, 2]))


def test_the_same_seed_gives_the_same_model() -> None:
    config = ElmoConfig(width=4, layers=1)
    one, same, other = (config.build(SYMBOLS, seed=seed) for seed in (3, 3, 4))
    weights = [torch.cat([each.flatten() for each in model.parameters()]) for model in (one, same, other)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
