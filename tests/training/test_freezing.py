"""Which weights are trained, and at which rate: training.freeze and training.layer_decay."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from seqloom.core.errors import ConfigError
from seqloom.models.bert import BertConfig
from seqloom.models.gpt import GptConfig
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.training.optimisers import freeze, layers_below_head, make_optimiser, set_rate, trained
from training.toy import ToyModel, make_trainer, same_bits, settings, weights

SIZES: dict[str, Any] = {"width": 8, "heads": 2, "feed_forward": 8}
TWO_STACKS: dict[str, Any] = {**SIZES, "encoder_layers": 3, "decoder_layers": 2}
BUILDERS: dict[str, Any] = {
    "transformer": TransformerConfig(**TWO_STACKS, tying="none", embedding_norm=True, positions="learned"),
    "t5": T5Config(**TWO_STACKS),
    "gpt": GptConfig(**SIZES, layers=3),
    "bert": BertConfig(**SIZES, layers=3, has_pooler=True, classes=4),
    "seq2seq": Seq2SeqConfig(width=6, embedding_width=4),
}


def built(name: str) -> nn.Module:
    model: nn.Module = BUILDERS[name].build(Symbols(12, 12, is_shared=True), seed=1)
    return model


def test_frozen_weights_keep_their_bits_also_after_a_resume(tmp_path: Path) -> None:
    changes: dict[str, Any] = {"freeze": ("first.*",), "weight_decay": 0.1, "average": 2}
    first = {name: tensor.clone() for name, tensor in ToyModel().state_dict().items()}
    whole, _ = make_trainer(tmp_path / "whole", **changes)
    whole.train()
    make_trainer(tmp_path / "parts", **{**changes, "steps": 3})[0].train()
    parts, _ = make_trainer(tmp_path / "parts", **changes)
    parts.train(resume=True)
    assert same_bits(weights(whole), weights(parts))
    found = weights(parts)
    frozen = {"first.weight", "first.bias", "rare", "never"}  # the second layer has the same weight
    assert {name for name in found if torch.equal(found[name], first[name])} == frozen
    assert {*parts.strategy.parameters} == {"second.bias", "output.weight", "output.bias"}
    assert not any(parameter.grad is not None for parameter in parts.model.first.parameters())


def test_names_that_match_nothing_are_refused_with_those_that_exist() -> None:
    with pytest.raises(
        ConfigError, match=r"freeze=encoder.layer.\* matches no weight of this model; there are: enc"
    ) as e:
        freeze(built("transformer"), ["encoder.*", "encoder.layer.*"])
    assert "encoder.layers.*.self.qkv.weight" in str(e.value)
    assert "and embeddings for all that comes before the layers" in str(e.value)
    with pytest.raises(ConfigError, match=r"freeze=embedings matches no weight .*; did you mean embeddings\?$"):
        freeze(built("transformer"), ["embedings"])
    with pytest.raises(ConfigError, match=r"freeze=\['\*'\] leaves nothing to train"):
        freeze(built("gpt"), ["*"])


@pytest.mark.parametrize("name", BUILDERS)
def test_embeddings_are_what_comes_before_the_layers(name: str) -> None:
    model = built(name)
    freeze(model, ["embeddings"])
    frozen = {each for each, parameter in model.named_parameters() if not parameter.requires_grad}
    two = {f"{side}.{part}" for side in ("encoder", "decoder") for part in ("embedding", "positions")}
    norms = {f"{side}.embedding_norm.{part}" for side in ("encoder", "decoder") for part in ("weight", "bias")}
    assert (
        frozen
        == {
            "transformer": {*(f"{each}.weight" for each in two), *norms},
            "t5": {"encoder.embedding.weight", "encoder.bias.weight", "decoder.bias.weight"},
            "gpt": {"embedding.weight", "positions.weight"},
            "bert": {"embedding.weight", "positions", "segments", "norm.weight", "norm.bias"},
            "seq2seq": {"encoder.embedding.weight"},
        }[name]
    )


def test_the_rate_falls_from_the_head_to_the_embeddings() -> None:
    below = layers_below_head(built("bert"))
    assert below["classifier.weight"] == below["pooler.bias"] == below["masked.dense.weight"] == 0
    assert [below[f"layers.{number}.self.qkv.weight"] for number in range(3)] == [3, 2, 1]
    assert below["embedding.weight"] == below["positions"] == below["norm.weight"] == 4
    both = layers_below_head(built("transformer"))
    assert [both[f"encoder.layers.{number}.self.qkv.weight"] for number in range(3)] == [3, 2, 1]
    assert [both[f"decoder.layers.{number}.self.qkv.weight"] for number in range(2)] == [2, 1]
    assert both["encoder.norm.weight"] == both["output.weight"] == 0
    assert both["encoder.embedding.weight"] == both["decoder.embedding.weight"] == 4
    shared = layers_below_head(built("gpt"))  # embeddings and output are one table
    assert (shared["embedding.weight"], shared["norm.weight"]) == (4, 0)
    with pytest.raises(ConfigError, match="needs a model that names its layers"):
        make_optimiser(nn.Linear(2, 2), settings(layer_decay=0.5))


def test_a_schedule_scales_the_rate_of_every_layer() -> None:
    model = built("bert")
    optimiser = make_optimiser(model, settings(optimiser="sgd", layer_decay=0.5, weight_decay=0.0))
    set_rate(optimiser, 0.1)
    before = {name: parameter.detach().clone() for name, parameter in trained(model).items()}
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimiser.step()
    moved = {name: float((before[name] - each.detach()).mean()) for name, each in trained(model).items()}
    for name, depth in layers_below_head(model).items():
        assert moved[name] == pytest.approx(0.1 * 0.5**depth, rel=1e-4), name
    # Without a decay there are as many groups as before, one with weight decay and one without.
    assert len(make_optimiser(model, settings()).param_groups) == 2
