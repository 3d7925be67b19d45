"""Attention with fewer heads of keys, sizes of its own, norms and rotary positions; gated feed-forward; RMS norm."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.nn import multihead
from seqloom.nn.blocks import Activation, FeedForward, Residual, RMSNorm
from seqloom.nn.fast.beam_attention import BeamCache
from seqloom.nn.multihead import CrossAttention, HeadNorm, SelfAttention
from seqloom.nn.packing import packing_of, side_by_side
from seqloom.nn.rotary import Rotary, rotary_rates

WIDTH, HEADS, KEY_HEADS, SIZE, TIME = 12, 6, 2, 8, 7


def attention(head_norm: HeadNorm | None = None, *, key_heads: int = KEY_HEADS, scale: float = 0.3) -> SelfAttention:
    made = SelfAttention(
        WIDTH,
        HEADS,
        head_size=SIZE,
        key_heads=key_heads,
        has_bias=False,
        has_output_bias=False,
        scale=scale,
        rotary=Rotary(rotary_rates(SIZE, base=100.0)),
        head_norm=head_norm,
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return made


def by_the_formula(made: SelfAttention, x: Tensor) -> Tensor:
    """One sequence, head by head: head h of the queries has head h // group of the keys."""
    sizes = [HEADS * SIZE, made.key_heads * SIZE, made.key_heads * SIZE]
    query, key, value = ((x @ part.t()).unflatten(1, (-1, SIZE)) for part in made.qkv.weight.split(sizes))
    assert made.rotary is not None
    assert made.scale is not None
    turned: list[Tensor] = []
    for each, norm in ((query, made.query_norm), (key, made.key_norm)):
        for step in ("before", "turn", "after"):
            if step == "turn":
                each = made.rotary(each.transpose(0, 1)[None])[0].transpose(0, 1)
            elif step == made.head_norm and norm is not None:
                each = each / (each.square().mean(-1, keepdim=True) + norm.eps).sqrt() * norm.weight
        turned.append(each)
    query, key = turned
    future = torch.full((len(x), len(x)), -torch.inf, dtype=x.dtype).triu(1)
    group = HEADS // made.key_heads
    mixed = [
        (made.scale * query[:, h] @ key[:, h // group].t() + future).softmax(-1) @ value[:, h // group]
        for h in range(HEADS)
    ]
    assert isinstance(made.output, torch.nn.Linear)
    return torch.cat(mixed, 1) @ made.output.weight.t()


@pytest.mark.parametrize("is_fused", [False, True])
@pytest.mark.parametrize("head_norm", [None, "before", "after"])
@pytest.mark.parametrize("key_heads", [1, KEY_HEADS, HEADS])
def test_attention_is_its_formula_at_once_and_step_by_step(
    key_heads: int, head_norm: HeadNorm | None, is_fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multihead, "MAX_EXPLICIT_KEYS", 0 if is_fused else 96)
    made = attention(head_norm, key_heads=key_heads)
    lengths = torch.tensor([TIME, 3])
    x = torch.randn(TIME + 3, WIDTH, dtype=torch.float64)
    expected = torch.cat([by_the_formula(made, each) for each in x.split([TIME, 3])])
    found = made(x, packing_of(lengths, TIME), mask=None, is_causal=True)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    with torch.no_grad():
        cache = BeamCache.empty(1, 1, heads=key_heads, size=SIZE, like=x)
        queries = side_by_side(torch.zeros(1, dtype=torch.long), 1)
        steps = [made.step(x[t : t + 1], cache, 0, queries=queries, position=t, mask=None) for t in range(TIME)]
    torch.testing.assert_close(torch.cat(steps), expected[:TIME], rtol=0, atol=1e-12)
    upstream = torch.randn_like(found)
    left, right = (torch.autograd.grad(each, made.qkv.weight, upstream)[0] for each in (found, expected))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-11)


def test_key_heads_in_another_order_are_another_attention() -> None:
    made = attention()
    x = torch.randn(TIME, WIDTH, dtype=torch.float64)
    packing = packing_of(torch.tensor([TIME]), TIME)
    expected = made(x, packing, mask=None, is_causal=True)
    with torch.no_grad():
        rows = made.qkv.weight[: HEADS * SIZE].unflatten(0, (HEADS // KEY_HEADS, KEY_HEADS, SIZE))
        made.qkv.weight[: HEADS * SIZE] = rows.transpose(0, 1).flatten(0, 2)
        output = made.output.weight.unflatten(1, (HEADS // KEY_HEADS, KEY_HEADS, SIZE))
        made.output.weight.copy_(output.transpose(1, 2).flatten(1, 3))
    assert not torch.allclose(made(x, packing, mask=None, is_causal=True), expected, atol=1e-3)


def test_heads_that_cannot_share_keys_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"6 heads cannot share 4 heads of keys; numbers that fit: \[1, 2, 3, 6\]"):
        SelfAttention(WIDTH, 6, key_heads=4)


def test_cross_attention_takes_a_head_size_and_a_scale() -> None:
    cross = CrossAttention(WIDTH, 3, head_size=5, has_bias=False, scale=1.0).double()
    x, memory = torch.randn(2, TIME, WIDTH, dtype=torch.float64)
    packing = packing_of(torch.tensor([TIME]), TIME)
    query, keys = cross.query(x), cross.memory(memory)
    heads = [(query[:, own] @ keys[:, own].t()).softmax(-1) @ keys[:, 15:][:, own] for own in torch.arange(15).split(5)]
    found = cross(x, packing, cross.key_values(memory, packing), mask=None)
    torch.testing.assert_close(found, cross.output(torch.cat(heads, 1)), rtol=0, atol=1e-12)
    assert [name for name, _ in cross.named_parameters() if "bias" in name] == []


@pytest.mark.parametrize("activation", ["relu", "gelu", "gelu_tanh", "silu"])
def test_a_gate_multiplies_the_inner_layer(activation: Activation) -> None:
    block = FeedForward(4, 9, activation=activation, has_bias=False, is_gated=True).double()
    functions = {
        "relu": torch.relu,
        "gelu": lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
        "gelu_tanh": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
        "silu": lambda x: x / (1 + torch.exp(-x)),
    }
    x = torch.randn(5, 4, dtype=torch.float64)
    assert block.gate is not None
    expected = (
        functions[activation](x @ block.gate.weight.t()) * (x @ block.inner.weight.t())
    ) @ block.outer.weight.t()
    torch.testing.assert_close(block(x), expected, rtol=0, atol=1e-14)
    plain = FeedForward(4, 9, activation=activation).double()
    inner = functions[activation](F.linear(x, plain.inner.weight, plain.inner.bias))
    torch.testing.assert_close(plain(x), F.linear(inner, plain.outer.weight, plain.outer.bias), rtol=0, atol=1e-14)


def test_an_rms_norm_divides_by_the_root_of_the_mean_square() -> None:
    norm, x = RMSNorm(6, 1e-3).double(), 2 + torch.randn(5, 6, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    expected = x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt() * norm.weight
    torch.testing.assert_close(norm(x), expected, rtol=0, atol=1e-14)
    assert isinstance(Residual(6, norm="before", dropout_rate=0.0, kind="rms", epsilon=1e-6).norm, RMSNorm)
