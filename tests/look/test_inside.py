"""Heads, drift and ablation: what they report is what the model computes, for each kind, trained or imported."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from published_folders import write_llama_folder, write_opus_folder, write_sentence_folder
from seqloom.apps.classifier import Classifier
from seqloom.core.errors import DataError, ModelError, SeqloomWarning, UsageError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END
from seqloom.look.gradients import GradientPair, text_pairs
from seqloom.look.inside import (
    ablate,
    drift_of,
    encode_pair,
    encode_text,
    head_groups,
    head_maps,
    log_prob_of,
    look_at_ablation,
    look_at_drift,
    look_at_heads,
    read_once,
    require_texts,
)
from seqloom.models.bert import BertConfig
from seqloom.models.gpt import GptConfig
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import LoadedModel, build_model, load
from seqloom.runs.model_dir import Card
from seqloom.tasks.masked_language_modelling import MASK_MARK
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer

LINES = ["the old man reads a book", "a dog sleeps", "the dog sleeps in the old house", "a man reads"]
SIZES = {"width": 12, "heads": 2, "feed_forward": 16, "longest": 16}
MODELS: dict[str, Any] = {
    "transformer": TransformerConfig.model_validate({**SIZES, "encoder_layers": 2, "decoder_layers": 1}),
    "transformer, norm after": TransformerConfig.model_validate(
        {**SIZES, "encoder_layers": 1, "decoder_layers": 1, "norm": "after"}
    ),
    "gpt": GptConfig.model_validate({**SIZES, "layers": 2}),
    "gpt, few keys": GptConfig.model_validate({**SIZES, "heads": 4, "key_heads": 2, "layers": 1}),
    "bert": BertConfig.model_validate({**SIZES, "layers": 2}),
}


def make(name: str, settings: Any = None) -> LoadedModel:
    """A model of words in double precision, with weights large enough that a mistake shows."""
    settings = settings or MODELS[name]
    tokenizer = train_tokenizer(LINES, TextConfig(kind="word"), marks=[MASK_MARK])
    tokenizers = Tokenizers(tokenizer, tokenizer)
    model = build_model(settings, tokenizers, seed=1).double().eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(2).add_(0.2 * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    values: dict[str, Any] = {"model": settings, "text": tokenizer.config}
    if settings.kind == "gpt":
        values["task"] = {"kind": "language_modelling", "windows": "random", "length": 16}
    elif getattr(settings, "classes", 0):
        values["task"] = {"kind": "classification", "labels": tuple(map(str, range(settings.classes)))}
    config = RunConfig.model_validate(values)
    return LoadedModel(Path("model"), config, tokenizers, model, Card(source=None, target="en", parameters=1))


def texts(loaded: LoadedModel) -> list[GradientPair]:
    if loaded.config.purpose == "translator":
        return text_pairs(loaded, list(zip(LINES, reversed(LINES), strict=True)))
    return encode_text(loaded, LINES)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_cost_of_a_head_is_that_of_its_columns_set_to_zero(name: str) -> None:
    loaded = make(name)
    pairs = texts(loaded)
    groups = head_groups(loaded)
    idle = next(iter(groups.values()))[0]
    with torch.no_grad():
        idle.output.weight.view(12, idle.heads, -1)[:, 1] = 0  # type: ignore[union-attr, operator]
    seen: list[int] = []
    found = ablate(loaded, pairs, progress=seen.append)
    assert seen == list(range(1, sum(each.heads for group in groups.values() for each in group) + 1))
    assert next(iter(found.costs.values()))[0, 1] == 0
    for group, attentions in groups.items():
        for layer, attention in enumerate(attentions):
            for head in range(attention.heads):
                weight = attention.output.weight
                assert isinstance(weight, Tensor)
                with torch.no_grad():
                    kept = weight.clone()
                    weight.view(12, attention.heads, -1)[:, head] = 0
                    changed = log_prob_of(loaded, pairs)
                    weight.copy_(kept)
                cost = (found.log_prob - changed) / found.tokens
                assert found.costs[group][layer, head] == pytest.approx(cost, abs=1e-12)
    assert max(float(np.abs(costs).max()) for costs in found.costs.values()) > 1e-3
    assert log_prob_of(loaded, pairs) == pytest.approx(found.log_prob, abs=1e-12)  # all heads are back


def test_the_cost_of_a_head_of_a_classifier_is_that_of_the_predicted_class() -> None:
    loaded = make("", BertConfig.model_validate({**SIZES, "layers": 1, "classes": 3, "has_output": False}))
    pairs, (attention,) = texts(loaded), head_groups(loaded)["self"]
    assert [len(pair.target) for pair in pairs] == [len(line.split()) + 1 for line in LINES]
    found, before = ablate(loaded, pairs), Classifier(loaded).classify(LINES)
    labels, weight = [each.label for each in before], attention.output.weight
    assert isinstance(weight, Tensor)
    with torch.no_grad():
        weight.view(12, 2, -1)[:, 1] = 0
    after = Classifier(loaded).classify(LINES)
    falls = [np.log(a.probability / b.probabilities[label]) for a, b, label in zip(before, after, labels, strict=True)]
    assert found.tokens == len(LINES)
    assert found.log_prob == pytest.approx(sum(np.log(each.probability) for each in before), abs=1e-9)
    assert found.costs["self"][0, 1] == pytest.approx(np.mean(falls), abs=1e-9)
    assert abs(found.costs["self"][0, 1]) > 1e-4
    for finding in [
        *look_at_drift(loaded, pairs[0]),
        *look_at_heads(loaded, pairs[0]),
        *look_at_ablation(loaded, pairs),
    ]:
        assert finding.draw().axes


def test_models_of_images_and_pairs_are_refused_for_what_they_read() -> None:
    task = {"kind": "classification", "labels": ("a", "b")}
    images = {"model": {"kind": "vit", "classes": 2}, "task": task}
    pairs = {"model": {"kind": "bert", "classes": 2}, "task": {**task, "is_paired": True}}
    for values, message in ((images, "it reads images"), (pairs, "it reads pairs of texts")):
        with pytest.raises(UsageError, match=f"layers of run cannot be looked at: {message}. Translators"):
            require_texts(Path("run"), RunConfig.model_validate(values))


def test_long_texts_are_drawn_with_names_and_colours_that_can_be_told_apart() -> None:
    loaded = make("", BertConfig.model_validate({**SIZES, "layers": 1, "longest": 64}))
    (pair,) = encode_text(loaded, [" ".join(LINES * 3)])
    (maps,), (drift,) = look_at_heads(loaded, pair), look_at_drift(loaded, pair)
    count, figure = len(maps.data["keys"]), maps.draw()
    assert count == 3 * 19 + 2
    for head, axes in enumerate(figure.axes):
        assert axes.images[0].get_clim() == (0, pytest.approx(np.max(maps.data["weights"][0][head])))
        assert [label.get_text() for label in axes.get_xticklabels()] == maps.data["keys"][::3]
    right = drift.draw().axes[1]
    assert f"the first 16 of {count} pieces" in right.get_title()
    heights = sorted(text.get_position()[1] for text in right.texts)
    low, high = right.get_ylim()
    assert len(heights) == len({tuple(line.get_color()) for line in right.lines}) == 16
    assert np.diff(heights).min() > 0.05 * (high - low)
    assert low < heights[0] < heights[-1] < high


def test_log_probs_are_those_of_each_text_by_itself() -> None:
    """Of tokens after those before them, of translations, and of tokens that are hidden one at a time."""
    for name in ("gpt", "transformer", "bert"):
        loaded = make(name)
        pairs = texts(loaded)
        one_by_one = sum(log_prob_of(loaded, [pair]) for pair in pairs)
        assert log_prob_of(loaded, pairs) == pytest.approx(one_by_one, abs=1e-9)
    by_hand, model = 0.0, loaded.model
    hidden = loaded.tokenizers.target.id_of(MASK_MARK)
    for pair in pairs:
        for place, token in enumerate(pair.target[:-1], start=1):
            read = torch.tensor([[BEGIN, *pair.target]])
            read[0, place] = hidden
            with torch.no_grad():
                states = model.read(read, torch.tensor([read.shape[1]]))  # type: ignore[operator]
                scores = model.output(model.masked_features(states[place]))  # type: ignore[operator]
            by_hand += float(scores.log_softmax(-1)[token])
    assert log_prob_of(loaded, pairs) == pytest.approx(by_hand, abs=1e-9)


@pytest.mark.parametrize("name", list(MODELS))
def test_the_last_vector_is_what_the_model_leaves(name: str) -> None:
    loaded = make(name)
    pair = texts(loaded)[0]
    found = drift_of(loaded, pair)
    layers = {"transformer": [2, 1], "transformer, norm after": [1, 1], "gpt": [2], "gpt, few keys": [1], "bert": [2]}
    has_output = name in ("transformer", "gpt", "gpt, few keys")  # a norm after the last layer
    assert [len(each.places) for each in found] == [1 + count + has_output for count in layers[name]]
    assert [each.places[-1] for each in found] == ["output" if has_output else f"layer {n - 1}" for n in layers[name]]
    np.testing.assert_array_equal(found[-1].vectors[-1], read_once(loaded, pair).numpy())
    if loaded.config.purpose == "translator":
        source = Source(torch.tensor([pair.source]), torch.tensor([len(pair.source)]))
        with torch.no_grad():
            memory = loaded.model.encode(source)[0]  # type: ignore[operator]
        np.testing.assert_array_equal(found[0].vectors[-1], memory.numpy())
        assert found[0].tokens == (*LINES[0].split(), loaded.tokenizers.source.piece(END))
    for each in found:
        np.testing.assert_allclose(each.to_embedding[0], 1)
        step = torch.cosine_similarity(*(torch.from_numpy(each.vectors[place]) for place in (0, 1)), dim=1)
        np.testing.assert_allclose(each.to_previous[0], step.numpy())


def test_without_positions_the_nearest_piece_of_an_embedding_is_its_token() -> None:
    sizes = {**SIZES, "encoder_layers": 1, "decoder_layers": 1, "positions": "none"}
    loaded = make("", TransformerConfig.model_validate(sizes))
    for drift in drift_of(loaded, texts(loaded)[0], near=2):
        assert tuple(near[0] for near in drift.near[0]) == drift.tokens


@pytest.mark.parametrize("name", list(MODELS))
def test_maps_of_heads_are_distributions_over_what_may_be_seen(name: str) -> None:
    loaded = make(name)
    maps = {each.name: each for each in head_maps(loaded, texts(loaded)[0])}
    is_translator = loaded.config.purpose == "translator"
    assert set(maps) == ({"encoder self", "decoder self", "decoder cross"} if is_translator else {"self"})
    for each in maps.values():
        np.testing.assert_allclose(each.weights.sum(-1), 1)
        assert each.weights.shape[2:] == (len(each.queries), len(each.keys))
        is_causal = each.name == "decoder self" or loaded.config.purpose == "language model"
        assert (np.triu(each.weights, 1) == 0).all() == is_causal
    if is_translator:
        assert len(maps["decoder cross"].keys) == len(maps["encoder self"].keys)


@pytest.mark.parametrize("write", [write_opus_folder, write_llama_folder, write_sentence_folder])
def test_imported_models(write: Callable[[Path], Path], tmp_path: Path) -> None:
    loaded = load(write(tmp_path / "hub" / "model"))
    line = "the old man reads a book" if write is not write_sentence_folder else "a man reads"
    pairs = text_pairs(loaded, [(line, line)]) if write is write_opus_folder else encode_text(loaded, [line])
    for finding in [*look_at_drift(loaded, pairs[0]), *look_at_heads(loaded, pairs[0])]:
        assert finding.draw().axes
    drift = drift_of(loaded, pairs[0])[-1]
    np.testing.assert_allclose(drift.vectors[-1], read_once(loaded, pairs[0]).double().numpy())
    if write is write_sentence_folder:  # it makes vectors and has no output
        with pytest.raises((ModelError, UsageError), match=r"no output|no mask"):
            ablate(loaded, pairs)
        return
    (finding,) = look_at_ablation(loaded, pairs)
    assert any(np.any(np.array(grid) != 0) for grid in finding.data["costs"].values())
    assert finding.draw().axes


def test_an_empty_translation_is_looked_at_and_a_blank_sentence_is_not() -> None:
    loaded = make("transformer")
    pair = encode_pair(loaded, LINES[0], "")
    assert pair.target == [END]
    for finding in [*look_at_drift(loaded, pair), *look_at_heads(loaded, pair)]:
        assert finding.draw().axes
    with pytest.raises(DataError, match="the sentence is blank"):
        encode_pair(loaded, " ", "")


def test_long_texts_are_counted_or_refused_before_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention with its weights takes memory with the square of the length: of a line of 12,000 words, 19 GB."""
    translator, gpt = make("transformer"), make("gpt")
    long, short = "a dog " * 200, LINES[0]
    with pytest.warns(SeqloomWarning, match="1 of 2 pairs have more than 256 tokens on a side; they are left out"):
        (pair,) = text_pairs(translator, [(short, short), (short, long)])
    assert pair.source == pair.target
    with pytest.raises(DataError, match="1 of 1 pairs have more than 256 tokens on a side; split the lines"):
        text_pairs(translator, [(long, short)])
    with pytest.warns(SeqloomWarning, match="1 of 2 lines have more than 256 tokens; they are read up to there"):
        assert [len(each.target) for each in encode_text(gpt, [short, long])] == [7, 256]
    with pytest.raises(UsageError, match="the text has 401 tokens, and 256 at most are looked at; give a shorter one"):
        encode_pair(translator, short, long)
    monkeypatch.setattr("seqloom.look.inside.read_stacks", None)
    with pytest.raises(UsageError, match="the text has 81 pieces, and maps are drawn of 64 at most"):
        head_maps(translator, encode_pair(translator, "a dog " * 40, short))


@pytest.mark.parametrize("look", [head_maps, drift_of])
def test_damaged_weights_are_not_drawn(look: Callable[[LoadedModel, GradientPair], object]) -> None:
    loaded = make("bert")
    with torch.no_grad():
        next(loaded.model.parameters()).fill_(torch.nan)
    with pytest.raises(ModelError, match="model gives vectors with NaN or infinite numbers; its weights are damaged"):
        look(loaded, texts(loaded)[0])


def test_a_model_without_heads_is_refused() -> None:
    loaded = make("", RnnLmConfig(width=8, layers=1))
    with pytest.raises(UsageError, match="no heads of attention to look at"):
        ablate(loaded, encode_text(loaded, LINES))
