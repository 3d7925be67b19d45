"""The Transformer against Marian as Hugging Face wrote it, with copied weights, in float64."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.core.stepping import Source
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols

pytestmark = pytest.mark.parity

SYMBOLS, WIDTH, HEADS, INNER, LAYERS = 23, 16, 4, 24, 2
PAD = 0


@pytest.fixture(scope="module")
def theirs() -> Any:
    transformers = pytest.importorskip("transformers", reason="transformers is installed by `make parity`")
    config = transformers.MarianConfig(
        vocab_size=SYMBOLS,
        d_model=WIDTH,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=INNER,
        decoder_ffn_dim=INNER,
        activation_function="relu",
        dropout=0.0,
        pad_token_id=PAD,
        eos_token_id=2,
        decoder_start_token_id=1,
        scale_embedding=True,
        max_position_embeddings=64,
        init_std=0.3,  # weights that matter: with the usual 0.02 attention is all but uniform
    )
    torch.manual_seed(3)
    return transformers.MarianMTModel(config).double().eval()


def copied(theirs: Any) -> Transformer:
    """Our model with their weights: post-norm, tied tables, their sinusoids (sines first, then cosines)."""
    config = TransformerConfig(
        width=WIDTH,
        heads=HEADS,
        encoder_layers=LAYERS,
        decoder_layers=LAYERS,
        feed_forward=INNER,
        dropout_rate=0.0,
        norm="after",
    )
    ours = config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1).double().eval()
    with torch.no_grad():
        ours.output.weight.copy_(theirs.model.shared.weight)
        for stack, other in ((ours.encoder, theirs.model.encoder), (ours.decoder, theirs.model.decoder)):
            stack.positions.table = other.embed_positions.weight.detach().clone()  # type: ignore[attr-defined]
            for layer, their_layer in zip(stack.layers, other.layers, strict=True):
                copy_layer(layer, their_layer)
    return ours


def copy_layer(layer: Any, other: Any) -> None:
    attention = other.self_attn
    stacked(layer.self.qkv, attention.q_proj, attention.k_proj, attention.v_proj)
    stacked(layer.self.output, attention.out_proj)
    layer.around_self.norm.load_state_dict(other.self_attn_layer_norm.state_dict())
    if hasattr(other, "encoder_attn"):
        cross = other.encoder_attn
        stacked(layer.cross.query, cross.q_proj)
        stacked(layer.cross.memory, cross.k_proj, cross.v_proj)
        stacked(layer.cross.output, cross.out_proj)
        layer.around_cross.norm.load_state_dict(other.encoder_attn_layer_norm.state_dict())
    stacked(layer.feed_forward.inner, other.fc1)
    stacked(layer.feed_forward.outer, other.fc2)
    layer.around_feed_forward.norm.load_state_dict(other.final_layer_norm.state_dict())


def stacked(linear: nn.Linear, *others: nn.Linear) -> None:
    linear.weight.copy_(torch.cat([other.weight for other in others]))
    linear.bias.copy_(torch.cat([other.bias for other in others]))


def batch() -> tuple[Source, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(5)
    lengths, target_lengths = torch.tensor([7, 3, 5]), torch.tensor([4, 6, 1])
    ids = torch.randint(3, SYMBOLS, (3, 7), generator=generator)
    previous = torch.randint(3, SYMBOLS, (3, 6), generator=generator)
    for row, length in enumerate(lengths.tolist()):
        ids[row, length:] = PAD
    return Source(ids, lengths), previous, target_lengths


def their_scores(theirs: Any, source: Source, previous: Tensor, lengths: Tensor) -> Tensor:
    mask = (source.ids != PAD).long()
    scores = theirs(input_ids=source.ids, attention_mask=mask, decoder_input_ids=previous, use_cache=False).logits
    return torch.cat([row[:length] for row, length in zip(scores, lengths.tolist(), strict=True)])


def test_scores_equal_those_of_marian(theirs: Any) -> None:
    ours, (source, previous, lengths) = copied(theirs), batch()
    scores = ours.output(ours(source, previous, lengths))
    torch.testing.assert_close(scores, their_scores(theirs, source, previous, lengths), rtol=0, atol=1e-10)


def test_gradients_equal_those_of_marian(theirs: Any) -> None:
    ours, (source, previous, lengths) = copied(theirs), batch()
    theirs.zero_grad()
    ours.output(ours(source, previous, lengths)).square().sum().backward()
    their_scores(theirs, source, previous, lengths).square().sum().backward()
    gradient = theirs.model.shared.weight.grad.clone()
    gradient[PAD] = ours.output.weight.grad[PAD]  # type: ignore[index]  # neither looks padding up the same way
    torch.testing.assert_close(ours.output.weight.grad, gradient, rtol=0, atol=1e-8)


@pytest.mark.parametrize("change", ["weight", "positions", "mask"])
def test_a_small_change_is_noticed(theirs: Any, change: str) -> None:
    """The negative control: the comparison above can fail."""
    ours, (source, previous, lengths) = copied(theirs), batch()
    if change == "weight":
        with torch.no_grad():
            ours.decoder.layers[0].cross.query.weight[0, 0] += 1e-3
    elif change == "positions":
        ours.decoder.positions.table = ours.decoder.positions.table.roll(1, 0)  # type: ignore[attr-defined]
    else:
        source = Source(source.ids, torch.full_like(source.lengths, source.ids.shape[1]))
    scores = ours.output(ours(source, previous, lengths))
    expected = their_scores(theirs, *batch())
    assert (scores - expected).abs().max() > 1e-7
