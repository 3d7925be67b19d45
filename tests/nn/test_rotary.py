"""Rotary positions: the rates of published models, the pairs, and that only distances matter."""

import pytest
import torch
from torch import Tensor

from seqloom.nn.rotary import Rotary, llama3_rates, rotary_rates, yarn_rates

SIZE = 16


def turned(rotary: Rotary, position: int, vector: Tensor) -> Tensor:
    return rotary(vector[None, None, None], first=position)[0, 0, 0]


def test_a_score_depends_on_the_distance_alone_and_lengths_are_kept() -> None:
    rotary = Rotary(rotary_rates(SIZE, base=10_000.0))
    query, key = torch.randn(2, SIZE, dtype=torch.float64)
    scores = [turned(rotary, first + 5, query) @ turned(rotary, first, key) for first in (0, 3, 700)]
    torch.testing.assert_close(torch.stack(scores), scores[0].expand(3), rtol=0, atol=1e-11)
    assert not torch.isclose(scores[0], turned(rotary, 6, query) @ turned(rotary, 0, key))
    torch.testing.assert_close(turned(rotary, 9, query).norm(), query.norm())
    torch.testing.assert_close(turned(rotary, 0, query), query)


def test_many_positions_at_once_are_those_one_by_one() -> None:
    rotary = Rotary(rotary_rates(SIZE, base=500.0), factor=1.5)
    x = torch.randn(2, 3, 300, SIZE)
    at_once = rotary(x, first=2)
    side_by_side = torch.cat([rotary(x[:, :, t : t + 1], first=2 + t, is_one=True) for t in range(300)], 2)
    torch.testing.assert_close(at_once, side_by_side, rtol=0, atol=0)


SCALINGS = {
    "default": ({}, lambda base: (rotary_rates(SIZE, base=base), 1.0)),
    "linear": ({"factor": 4.0}, lambda base: (rotary_rates(SIZE, base=base) / 4, 1.0)),
    "llama3": (
        {
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
        lambda base: (llama3_rates(rotary_rates(SIZE, base=base), factor=8.0, slow=1.0, fast=4.0, trained=64), 1.0),
    ),
    "yarn": (
        {"factor": 4.0, "original_max_position_embeddings": 64},
        lambda base: (
            yarn_rates(SIZE, base=base, factor=4.0, slow=1.0, fast=32.0, trained=64),
            0.1 * torch.log(torch.tensor(4.0)).item() + 1,
        ),
    ),
}


@pytest.mark.parity
@pytest.mark.parametrize("kind", list(SCALINGS))
def test_rates_and_pairs_equal_transformers(kind: str) -> None:
    pytest.importorskip("transformers")
    from transformers import LlamaConfig
    from transformers.models.llama import modeling_llama

    options, ours = SCALINGS[kind]
    config = LlamaConfig(
        hidden_size=2 * SIZE,
        num_attention_heads=2,
        max_position_embeddings=256,
        rope_parameters={"rope_type": kind, "rope_theta": 10_000.0, **options},
    )
    theirs = modeling_llama.LlamaRotaryEmbedding(config)
    rates, factor = ours(10_000.0)
    torch.testing.assert_close(theirs.inv_freq.double(), rates, rtol=1e-5, atol=1e-9)
    assert theirs.attention_scaling == pytest.approx(factor)
    query = torch.randn(1, 2, 40, SIZE, dtype=torch.float64)
    places = torch.arange(40)[None]
    expected, _ = modeling_llama.apply_rotary_pos_emb(query, query, *theirs(query, places))
    rotary = Rotary(rates, factor=factor)
    torch.testing.assert_close(rotary(query), expected, rtol=0, atol=2e-5)
    neighbours = query.unflatten(-1, (-1, 2)).transpose(-1, -2).flatten(-2)  # pairs 2i and 2i + 1: another model
    assert not torch.allclose(rotary(neighbours), expected, atol=1e-2)
