"""The Transformer against torch.nn.Transformer: the same weights, the same features, the same gradients."""

import math
from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.stepping import Source
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn import multihead
from seqloom.nn.embeddings import Symbols

SYMBOLS = Symbols(source=19, target=17, is_shared=False)
WIDTH, HEADS, LAYERS, INNER = 12, 3, 2, 20
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([7, 2, 4, 1]), torch.tensor([3, 6, 1, 5])
TOLERANCE = 1e-10

pytestmark = pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # a faster path of theirs, not used here


def our_model(norm: str, activation: str = "relu") -> Transformer:
    """A model in float64 whose every number, norms and biases too, is far from where it would begin."""
    config = TransformerConfig.model_validate(
        {
            "width": WIDTH,
            "heads": HEADS,
            "encoder_layers": LAYERS,
            "decoder_layers": LAYERS,
            "feed_forward": INNER,
            "activation": activation,
            "dropout_rate": 0.0,
            "norm": norm,
            "final_norm": True,
            "tying": "none",
        }
    )
    model = config.build(SYMBOLS, seed=3).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def in_their_words(values: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights, or gradients, of our layers under the names that torch gives them."""
    theirs: dict[str, Tensor] = {}
    for side, norms in (("encoder", ("self", "feed_forward")), ("decoder", ("self", "cross", "feed_forward"))):
        for kind in ("weight", "bias"):
            theirs[f"{side}.norm.{kind}"] = values[f"{side}.norm.{kind}"]
            for layer in range(LAYERS):
                ours, their = f"{side}.layers.{layer}", f"{side}.layers.{layer}"
                theirs[f"{their}.self_attn.in_proj_{kind}"] = values[f"{ours}.self.qkv.{kind}"]
                theirs[f"{their}.self_attn.out_proj.{kind}"] = values[f"{ours}.self.output.{kind}"]
                theirs[f"{their}.linear1.{kind}"] = values[f"{ours}.feed_forward.inner.{kind}"]
                theirs[f"{their}.linear2.{kind}"] = values[f"{ours}.feed_forward.outer.{kind}"]
                for number, around in enumerate(norms, start=1):
                    theirs[f"{their}.norm{number}.{kind}"] = values[f"{ours}.around_{around}.norm.{kind}"]
                if side == "decoder":
                    parts = [values[f"{ours}.cross.{part}.{kind}"] for part in ("query", "memory")]
                    theirs[f"{their}.multihead_attn.in_proj_{kind}"] = torch.cat(parts)
                    theirs[f"{their}.multihead_attn.out_proj.{kind}"] = values[f"{ours}.cross.output.{kind}"]
    return theirs


def their_model(model: Transformer, norm: str, activation: str = "relu") -> nn.Transformer:
    theirs = nn.Transformer(
        WIDTH,
        HEADS,
        LAYERS,
        LAYERS,
        INNER,
        dropout=0.0,
        activation=activation,
        batch_first=True,
        norm_first=norm == "before",
        dtype=torch.float64,
    )
    theirs.load_state_dict(in_their_words(model.state_dict()), strict=True)
    return theirs


def embedded(ids: Tensor, table: Tensor) -> Tensor:
    """√width · E[id] + the position code, number by number."""
    code = torch.zeros(ids.shape[1], WIDTH, dtype=torch.float64)
    for position in range(ids.shape[1]):
        for column in range(WIDTH):
            angle = position / 10000 ** (2 * (column // 2) / WIDTH)
            code[position, column] = math.sin(angle) if column % 2 == 0 else math.cos(angle)
    # Our table is made in float32, as it is used.
    return F.embedding(ids, table) * math.sqrt(WIDTH) + code.float().double()


def batch() -> tuple[Source, Tensor]:
    source = torch.randint(4, SYMBOLS.source, (4, int(SOURCE_LENGTHS.max())))
    previous = torch.randint(4, SYMBOLS.target, (4, int(TARGET_LENGTHS.max())))
    return Source(source, SOURCE_LENGTHS), previous


def their_features(theirs: nn.Transformer, tables: tuple[Tensor, Tensor], source: Source, previous: Tensor) -> Tensor:
    """Their features of the real target positions. Their masks are True where nothing may be seen."""
    source_padding = torch.arange(source.ids.shape[1]) >= source.lengths[:, None]
    target_padding = torch.arange(previous.shape[1]) >= TARGET_LENGTHS[:, None]
    later = torch.ones(previous.shape[1], previous.shape[1], dtype=torch.bool).triu(1)
    features: Tensor = theirs(
        embedded(source.ids, tables[0]),
        embedded(previous, tables[1]),
        tgt_mask=later,
        src_key_padding_mask=source_padding,
        tgt_key_padding_mask=target_padding,
        memory_key_padding_mask=source_padding,
    )
    return features[~target_padding]


@pytest.mark.parametrize("short", [0, multihead.MAX_EXPLICIT_KEYS], ids=["fused", "explicit"])
@pytest.mark.parametrize(("norm", "activation"), [("before", "relu"), ("after", "relu"), ("before", "gelu")])
def test_features_and_gradients_equal_torch(
    norm: str, activation: str, short: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multihead, "MAX_EXPLICIT_KEYS", short)
    ours = our_model(norm, activation)
    theirs = their_model(ours, norm, activation)
    source, previous = batch()
    tables = [stack.embedding.weight.detach().clone().requires_grad_() for stack in (ours.encoder, ours.decoder)]

    left = ours(source, previous, TARGET_LENGTHS)
    right = their_features(theirs, (tables[0], tables[1]), source, previous)
    torch.testing.assert_close(left, right, rtol=0, atol=TOLERANCE)

    weights = torch.randn_like(left)
    (left * weights).sum().backward()
    (right * weights).sum().backward()
    used = {name: each.grad for name, each in ours.named_parameters() if each.grad is not None}
    gradients = in_their_words(used)
    for name, parameter in theirs.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 1e-3 or name.endswith("in_proj_bias"), name
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=0, atol=TOLERANCE, msg=name)
    for stack, table in zip((ours.encoder, ours.decoder), tables, strict=True):
        torch.testing.assert_close(stack.embedding.weight.grad, table.grad, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("norm", ["before", "after"])
def test_the_comparison_notices_one_weight_one_mask_and_the_place_of_the_norm(norm: str) -> None:
    ours = our_model(norm)
    source, previous = batch()
    tables = (ours.encoder.embedding.weight, ours.decoder.embedding.weight)
    features = ours(source, previous, TARGET_LENGTHS)

    def differs(theirs: nn.Transformer, source: Source = source) -> float:
        return float((their_features(theirs, tables, source, previous) - features).detach().abs().max())

    assert differs(their_model(ours, norm)) < TOLERANCE
    perturbed = their_model(ours, norm)
    with torch.no_grad():
        perturbed.state_dict()["encoder.layers.0.self_attn.in_proj_weight"][0, 0] += 1e-4
    assert differs(perturbed) > 1e3 * TOLERANCE
    unmasked = Source(source.ids, torch.full_like(source.lengths, source.ids.shape[1]))
    assert differs(their_model(ours, norm), unmasked) > 1e-3
    assert differs(their_model(ours, "after" if norm == "before" else "before")) > 1e-3
