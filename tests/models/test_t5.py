"""T5: its formulas written out, laws of stepping, numbers of parameters, and a task that it must learn."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from models.test_transformer import SHARED, train
from seqloom.core.declaration import DataFacts
from seqloom.core.errors import ConfigError, ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN, END, PAD, RESERVED
from seqloom.interop.frames import require_plain_frame
from seqloom.models.frames import FrameConfig
from seqloom.models.t5 import T5Config
from seqloom.models.transformer import Transformer
from seqloom.nn.blocks import RelativeBias
from seqloom.nn.embeddings import Symbols
from seqloom.search.greedy import greedy_search
from seqloom.search.settings import SearchConfig

FIRST: dict[str, object] = {"activation": "relu", "gated": False, "tying": "all", "scaled_output": True}
"""Version 1.0; the defaults are 1.1."""
FRAME = FrameConfig(source_before=(5, 6), target_before=(PAD,))
VERSIONS = {"1.0": FIRST, "1.1": {}, "framed": {"frame": FRAME, "absent": (BEGIN,)}}


def config(**settings: object) -> T5Config:
    small: dict[str, object] = {
        "width": 8,
        "heads": 3,
        "head_size": 5,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "feed_forward": 12,
        "buckets": 8,
        "farthest": 7,
    }
    return T5Config.model_validate(small | settings)


def model_of(**settings: object) -> Transformer:
    """In float64, not training, with every row of its tables set."""
    model = config(**settings).build(SHARED, seed=1).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def teacher_forced(model: Transformer, source: Source, prefix: Tensor) -> Tensor:
    features = model(source, prefix, torch.full((len(prefix),), prefix.shape[1]))
    return model.output.log_probs(features).view(*prefix.shape, -1)


# The formulas of models/t5.py, of one sentence, head by head.


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()


def heads_of(weight: Tensor, *, parts: int) -> list[list[Tensor]]:
    """The matrices of the parts, and of each the heads."""
    return [list(part.split(5)) for part in weight.split(15)][:parts]


def attended(x: Tensor, memory: Tensor, weights: tuple[Tensor, Tensor], output: Tensor, scores: Tensor) -> Tensor:
    """`scores` are what positions and the mask add: [heads, queries, keys]."""
    (queries,), (keys, values) = heads_of(weights[0], parts=1), heads_of(weights[1], parts=2)
    mixed = []
    for head in range(3):
        query, key, value = x @ queries[head].t(), memory @ keys[head].t(), memory @ values[head].t()
        mixed.append((query @ key.t() + scores[head]).softmax(-1) @ value)
    return torch.cat(mixed, 1) @ output.t()


def fed_forward(x: Tensor, weights: dict[str, Tensor], layer: str, *, is_first: bool) -> Tensor:
    inner = x @ weights[f"{layer}.feed_forward.inner.weight"].t()
    if is_first:
        active = inner.clamp(min=0)
    else:
        gate = x @ weights[f"{layer}.feed_forward.gate.weight"].t()
        active = 0.5 * gate * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (gate + 0.044715 * gate**3))) * inner
    return active @ weights[f"{layer}.feed_forward.outer.weight"].t()


def biases(weight: Tensor, length: int, *, is_causal: bool) -> Tensor:
    bucket = RelativeBias(3, buckets=8, farthest=7, is_causal=is_causal).bucket
    return torch.stack(
        [
            torch.stack([weight[:, bucket(torch.tensor([[s - t]]))].view(3) for s in range(length)], 1)
            for t in range(length)
        ],
        1,
    )  # [heads, queries, keys]


def plain(model: Transformer, source: list[int], previous: list[int], *, is_first: bool) -> Tensor:
    weights, memory = dict(model.state_dict()), None
    for stack, symbols in (("encoder", source), ("decoder", previous)):
        x = weights[f"{stack}.embedding.weight"][symbols]
        scores = biases(weights[f"{stack}.bias.weight"], len(symbols), is_causal=stack == "decoder")
        if stack == "decoder":
            scores = scores + torch.full((len(symbols),) * 2, float("-inf")).triu(1)
        for number in range(2):
            layer = f"{stack}.layers.{number}"
            qkv, output = weights[f"{layer}.self.qkv.weight"], weights[f"{layer}.self.output.weight"]
            normed = rms(x, weights[f"{layer}.around_self.norm.weight"])
            x = x + attended(normed, normed, (qkv[:15], qkv[15:]), output, scores)
            if memory is not None:
                cross = weights[f"{layer}.cross.query.weight"], weights[f"{layer}.cross.memory.weight"]
                normed = rms(x, weights[f"{layer}.around_cross.norm.weight"])
                nothing = x.new_zeros(3, len(symbols), len(source))
                x = x + attended(normed, memory, cross, weights[f"{layer}.cross.output.weight"], nothing)
            normed = rms(x, weights[f"{layer}.around_feed_forward.norm.weight"])
            x = x + fed_forward(normed, weights, layer, is_first=is_first)
        memory = rms(x, weights[f"{stack}.norm.weight"])
    assert memory is not None
    return (memory / 8**0.5 if is_first else memory) @ weights["output.weight"].t()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_scores_equal_the_formulas_of_the_paper(version: str) -> None:
    model = model_of(**VERSIONS[version])
    source, previous = [5, 9, 7, 4, 6, 11, 8, 10, 5, 4], [BEGIN, 4, 9, 9, 7, 10, 6, 5, 8]
    features = model(Source(torch.tensor([source]), torch.tensor([10])), torch.tensor([previous]), torch.tensor([9]))
    expected = plain(model, source, previous, is_first=version == "1.0")
    torch.testing.assert_close(model.output(features), expected, rtol=0, atol=1e-12)


def test_a_frame_is_read_around_texts() -> None:
    model = model_of(**VERSIONS["framed"])
    source = Source(torch.tensor([[9, 7, 2]]), torch.tensor([3]))
    scores = model.output(model(source, torch.tensor([[BEGIN, 4, 9]]), torch.tensor([3])))
    expected = plain(model, [5, 6, 9, 7, 2], [PAD, 4, 9], is_first=False)
    expected[:, BEGIN] = float("-inf")
    torch.testing.assert_close(scores, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("version", "attention"), [("1.0", False), ("framed", True)])
def test_stepping_laws(version: str, attention: bool) -> None:
    model = model_of(**VERSIONS[version], encoder_layers=1)
    check_stepper_laws(
        lambda: model.stepper(attention=attention),
        SHARED.source,
        target_symbols=SHARED.target,
        teacher_forced=lambda source, prefix: teacher_forced(model, source, prefix),
        lengths=(3, 1, 9),
        steps=3,
        tolerance=1e-11,
    )


@pytest.mark.parametrize(("tying", "tables"), [("all", 1), ("inputs", 2), ("none", 3)])
def test_options_give_exact_numbers_of_parameters(tying: str, tables: int) -> None:
    def count(**settings: object) -> int:
        return sum(each.numel() for each in config(**settings).build(SHARED, seed=1).parameters())

    attention, feed_forward, norms = 4 * 8 * 15, 2 * 8 * 12, 8
    layers = 2 * (attention + feed_forward + 2 * norms) + 2 * (2 * attention + feed_forward + 3 * norms)
    shared = layers + 2 * norms + 2 * 3 * 8  # last norms, and the bias of each stack
    assert count(tying=tying, gated=False) == shared + tables * 12 * 8
    assert count(tying=tying) == count(tying=tying, gated=False) + 4 * 8 * 12


def test_one_table_for_two_vocabularies_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigError, match=r"model\.tying is 'inputs'.*text\.shared=true.*model\.tying=output"):
        config().build(Symbols(13, 11, is_shared=False), seed=1)


@pytest.mark.parametrize("pairs", [1_000, 29_000, 4_000_000])
def test_sizes_follow_the_data(pairs: int) -> None:
    facts = DataFacts(pairs, 50.0, 50.0, are_unspaced=False)
    gated, plain = (T5Config(gated=gated).sizes_for_pairs(facts).settings for gated in (True, False))
    assert gated["heads"] * gated["head_size"] == gated["width"] == plain["width"]
    assert 3 * gated["feed_forward"] == pytest.approx(2 * plain["feed_forward"], rel=0.3)


@pytest.mark.parametrize("program", ["CTranslate2", "ONNX"])
def test_exports_that_have_no_such_layers_refuse_it(program: str) -> None:
    with pytest.raises(ModelError, match=rf"a T5 cannot be exported to {program}"):
        require_plain_frame(config().build(SHARED, seed=1), program)


def distinct(sentences: int, generator: torch.Generator) -> Iterator[tuple[Source, Tensor, Tensor]]:
    """Sentences of 2 to 6 different symbols with their end, what precedes each symbol, and the symbols themselves."""
    while True:
        lengths = torch.randint(3, 8, (sentences,), generator=generator)
        ids = torch.rand(sentences, 8, generator=generator).argsort(1)[:, :7] + len(RESERVED)
        ids[torch.arange(sentences), lengths - 1] = END
        ids[torch.arange(7) >= lengths[:, None]] = PAD
        yield Source(ids, lengths), torch.cat([torch.full((sentences, 1), BEGIN), ids[:, :-1]], 1), ids


def test_it_learns_to_copy() -> None:
    """The decoder does not see where a symbol of the source is: it has to learn which one follows which."""
    sizes: dict[str, Any] = {"width": 32, "heads": 4, "head_size": 8, "feed_forward": 64, "dropout_rate": 0.0}
    model = config(**sizes, encoder_layers=1, decoder_layers=1).build(SHARED, seed=1)
    train(model, distinct(32, torch.Generator().manual_seed(0)), steps=200, rate=1e-2)
    source, _, _ = next(distinct(64, torch.Generator().manual_seed(1)))
    found = greedy_search(model.eval().stepper(), source, SearchConfig(beam=1))
    wanted = [tuple(ids[: length - 1].tolist()) for ids, length in zip(source.ids, source.lengths, strict=True)]
    right = sum(hypothesis.symbols == symbols for hypothesis, symbols in zip(found, wanted, strict=True))
    assert right >= 58, f"{right} of 64 sentences are copied"
