"""Multi-head attention: both ways of computing it, masks, heads, and the √d."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.core.errors import ConfigError
from seqloom.nn import multihead
from seqloom.nn.dropout import Dropout, reseed
from seqloom.nn.fast.beam_attention import BeamCache, Lineage
from seqloom.nn.multihead import (
    CrossAttention,
    SelfAttention,
    ShawKeys,
    attend,
    attend_in_blocks,
    attend_nearby,
    check_heads,
)
from seqloom.nn.packing import (
    additive,
    full_packing,
    future,
    length_mask,
    pack_features,
    packing_of,
    side_by_side,
)
from seqloom.nn.probe import Probe, listen
from seqloom.reference.attention import attend as attend_plainly

WIDTH, HEADS = 12, 3
DOUBLE = torch.float64


MASKS = {
    "none": None,
    "padding": additive(length_mask(torch.tensor([5, 2]), 5), DOUBLE)[:, None, None],
    "bias": torch.linspace(-2, 2, HEADS * 25, dtype=DOUBLE).view(1, HEADS, 5, 5),
}


@pytest.mark.parametrize("way", ["blocks", "short", "fused", "heard"])
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("mask_name", list(MASKS))
def test_every_way_to_attend_equals_the_formula(
    mask_name: str, is_causal: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multihead, "MAX_EXPLICIT_KEYS", 96 if way == "short" else 0)
    monkeypatch.setattr(multihead, "MAX_BLOCKED_KEYS", 256 if way == "blocks" else 0)
    calls: list[bool] = []
    fused = F.scaled_dot_product_attention

    def counted(*args: Tensor, **options: Any) -> Tensor:
        calls.append(True)
        return fused(*args, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    query, key, value = torch.randn(3, 2, HEADS, 5, 4, dtype=DOUBLE).unbind(0)
    query.requires_grad_()
    mask, probe = MASKS[mask_name], Probe()
    if way == "heard":
        with listen(torch.nn.ModuleDict({"probe": probe}), "probe") as trace:
            out = attend(query, key, value, mask=mask, is_causal=is_causal, weights=probe)
        (weights,) = trace["probe"]
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 5, dtype=DOUBLE))
        torch.testing.assert_close(weights @ value, out)
    else:
        out = attend(query, key, value, mask=mask, is_causal=is_causal, weights=probe)
    assert bool(calls) == (way == "fused")
    later = future(5, 5, like=query.detach())[None, None]
    seen = mask if not is_causal else later if mask is None else mask + later
    torch.testing.assert_close(out, attend_plainly(query.detach(), key, value, seen), rtol=0, atol=1e-12)
    theirs = fused(query, key, value, attn_mask=seen)
    torch.testing.assert_close(out, theirs, rtol=0, atol=1e-12)
    upstream = torch.randn_like(out)
    left, right = (torch.autograd.grad(each, query, upstream)[0] for each in (out, theirs))
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)
    if seen is not None:
        unmasked = attend(query, key, value, mask=None, is_causal=False, weights=probe)
        assert not torch.allclose(out, unmasked, atol=1e-3)


@pytest.mark.parametrize("keys", [96, 97])
def test_either_side_of_the_limit_for_short_keys_gives_the_same(keys: int) -> None:
    query, key, value = torch.randn(1, 2, 3, 4), torch.randn(1, 2, keys, 4), torch.randn(1, 2, keys, 4)
    out = attend(query, key, value, mask=None, is_causal=False, weights=Probe())
    torch.testing.assert_close(out, attend_plainly(query, key, value, None), rtol=0, atol=1e-6)


def test_a_score_has_variance_d_before_the_division_and_1_after() -> None:
    for size in (16, 64):
        query, key = torch.randn(2, 100_000, size)
        scores = (query * key).sum(1)
        assert abs(float(scores.var()) / size - 1) < 0.05
        assert abs(float((scores / math.sqrt(size)).var()) - 1) < 0.05


def self_attention(heads: int = HEADS, *, has_output: bool = True, relative: ShawKeys | None = None) -> SelfAttention:
    attention = SelfAttention(WIDTH, heads, has_output=has_output, relative=relative).double()
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return attention


LENGTHS = torch.tensor([4, 2, 3])
PACKING = packing_of(LENGTHS, 4)
PADDING = additive(length_mask(LENGTHS, 4), DOUBLE)[:, None, None]


def test_one_head_is_single_attention_and_more_heads_are_several_side_by_side() -> None:
    x = torch.randn(9, WIDTH, dtype=DOUBLE)
    for heads in (1, 2, 4):
        attention = self_attention(heads)
        out = attention(x, PACKING, mask=PADDING, is_causal=False)
        query, key, value = attention.qkv(x).split(WIDTH, dim=1)
        for begin, length in ((0, 4), (4, 2), (6, 3)):
            own = slice(begin, begin + length)
            each = []
            for head in torch.arange(WIDTH).split(WIDTH // heads):
                scores = query[own][:, head] @ key[own][:, head].t() / math.sqrt(WIDTH // heads)
                each.append(scores.softmax(1) @ value[own][:, head])
            torch.testing.assert_close(out[own], attention.output(torch.cat(each, 1)), rtol=0, atol=1e-12)


def test_without_output_projection_the_joined_heads_come_out_as_they_are() -> None:
    x = torch.randn(9, WIDTH, dtype=DOUBLE)
    with_output, without = self_attention(), self_attention(has_output=False)
    without.qkv.load_state_dict(with_output.qkv.state_dict())
    plain = without(x, PACKING, mask=PADDING, is_causal=False)
    assert not list(without.output.parameters())
    mixed = with_output(x, PACKING, mask=PADDING, is_causal=False)
    torch.testing.assert_close(mixed, with_output.output(plain))
    assert not torch.allclose(mixed, plain, atol=1e-3)


def test_self_attention_is_cross_attention_to_itself() -> None:
    mine, cross = self_attention(), CrossAttention(WIDTH, HEADS).double()
    query, rest = (torch.split(each, [WIDTH, 2 * WIDTH]) for each in (mine.qkv.weight, mine.qkv.bias))
    cross.query.load_state_dict({"weight": query[0], "bias": rest[0]})
    cross.memory.load_state_dict({"weight": query[1], "bias": rest[1]})
    cross.output.load_state_dict(mine.output.state_dict())
    x = torch.randn(9, WIDTH, dtype=DOUBLE)
    left = mine(x, PACKING, mask=PADDING, is_causal=False)
    right = cross(x, PACKING, cross.key_values(x, PACKING), mask=PADDING)
    torch.testing.assert_close(left, right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_future_token_changes_no_earlier_output(is_relative: bool) -> None:
    relative = ShawKeys(WIDTH // HEADS, farthest=2) if is_relative else None
    attention = self_attention(relative=relative)
    packing = packing_of(torch.tensor([6]), 6)
    x = torch.randn(6, WIDTH, dtype=DOUBLE)
    other = x.clone()
    other[4] += 1
    out, changed = (attention(each, packing, mask=None, is_causal=True) for each in (x, other))
    assert torch.equal(out[:4], changed[:4])
    assert not torch.isclose(out[4:], changed[4:]).any()
    open_to_all = [attention(each, packing, mask=None, is_causal=False) for each in (x, other)]
    assert not torch.isclose(open_to_all[0][:4], open_to_all[1][:4]).any()  # without the mask it leaks


@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("is_relative", [False, True])
def test_stepping_through_a_cache_equals_all_at_once(is_relative: bool, has_bias: bool) -> None:
    attention = self_attention(relative=ShawKeys(WIDTH // HEADS, farthest=2) if is_relative else None)
    rows, length = 2, 6
    packing = packing_of(torch.full((rows,), length), length)
    x = torch.randn(rows, length, WIDTH, dtype=DOUBLE)
    bias = torch.randn(1, HEADS, length, length, dtype=DOUBLE) if has_bias else None
    at_once = attention(pack_features(x, packing), packing, mask=bias, is_causal=True).view(rows, length, WIDTH)
    owners = torch.arange(rows)
    queries = side_by_side(owners, rows)
    with torch.no_grad():
        cache = BeamCache.empty(1, rows, heads=HEADS, size=WIDTH // HEADS, like=x)
        for position in range(length):
            now = None if bias is None else bias[:, :, position : position + 1, : position + 1]
            cache = cache.at(position, slots=1)
            out = attention.step(x[:, position], cache, 0, queries=queries, position=position, mask=now)
            torch.testing.assert_close(out, at_once[:, position], rtol=0, atol=1e-12)


@pytest.mark.parametrize("is_relative", [False, True])
def test_rows_of_a_sentence_attend_to_their_own_histories_in_a_shared_cache(is_relative: bool) -> None:
    """Two hypotheses of one sentence: row 0 goes on from itself twice, row 1 from row 0 and then from itself."""
    attention = self_attention(relative=ShawKeys(WIDTH // HEADS, farthest=2) if is_relative else None)
    first, left, right, last = torch.randn(4, 1, WIDTH, dtype=DOUBLE).unbind(0)
    ways = [torch.stack([first, left, last], 1), torch.stack([first, right, last], 1)]
    packing = packing_of(torch.tensor([3]), 3)
    alone = [attention(pack_features(way, packing), packing, mask=None, is_causal=True)[-1] for way in ways]
    steps = [(first, [[0]], 1), (torch.cat([left, right]), [[0, 0], [0, 1]], 2), (last.expand(2, -1), None, 2)]
    with torch.no_grad():
        cache = BeamCache.empty(1, 1, heads=HEADS, size=WIDTH // HEADS, like=first)
        for position, (x, ancestors, slots) in enumerate(steps):
            table = torch.tensor([[0, 0, 0], [0, 1, 1]] if ancestors is None else ancestors)
            owners = torch.zeros(len(x), dtype=torch.long)
            lineage = Lineage(owners, side_by_side(owners, 1), table)
            cache = cache.at(position, slots=slots)
            mask = lineage.mask(cache.slots, dtype=DOUBLE)
            out = attention.step(x, cache, 0, queries=lineage.queries, position=position, mask=mask)
    torch.testing.assert_close(out, torch.stack(alone), rtol=0, atol=1e-12)
    assert not torch.allclose(out[0], out[1])


def test_shaw_keys_follow_the_formula_and_only_know_distances() -> None:
    shaw = ShawKeys(4, farthest=2).double()
    query = torch.randn(2, HEADS, 5, 4, dtype=DOUBLE)
    bias = shaw(query, first=3, keys=9)
    for row in range(5):
        for key in range(9):
            distance = min(max(key - (3 + row), -2), 2)
            expected = query[:, :, row] @ shaw.weight[distance + 2] / 2
            torch.testing.assert_close(bias[:, :, row, key], expected)
    same = query[:, :, :1].expand(-1, -1, 5, -1)
    whole = shaw(same, first=0, keys=5)
    torch.testing.assert_close(whole[:, :, 1:, 1:], whole[:, :, :-1, :-1])


@pytest.mark.parametrize(
    ("width", "heads", "fits"), [(10, 4, "1, 2, 5"), (256, 7, "1, 2, 4, 8"), (6, 0, "1, 2"), (7, 2, "1")]
)
def test_heads_that_do_not_divide_the_width_are_refused_with_those_that_do(width: int, heads: int, fits: str) -> None:
    sentence = f"width {width} cannot be shared by {heads} heads; numbers of heads that fit: \\[{fits}\\]"
    with pytest.raises(ConfigError, match=sentence):
        check_heads(width, heads)
    with pytest.raises(ConfigError, match=sentence):
        CrossAttention(width, heads)


@given(
    length=some.integers(1, 23),
    window=some.integers(1, 9),
    block=some.integers(1, 6),
    is_causal=some.booleans(),
    is_relative=some.booleans(),
    padding=some.lists(some.integers(0, 30), max_size=2),
    key_heads=some.sampled_from([1, 2, 4]),
)
def test_local_attention_equals_full_attention_with_a_band(
    length: int, window: int, block: int, is_causal: bool, is_relative: bool, padding: list[int], key_heads: int
) -> None:
    """Outputs of real positions and all gradients; padding lies after the text."""
    torch.manual_seed(length)
    shape = (2, 4, length, 3)
    query, key, value = (torch.randn(2, heads, *shape[2:], dtype=DOUBLE) for heads in (4, key_heads, key_heads))
    parts = [each.requires_grad_() for each in (query, key, value)]
    relative = ShawKeys(3, farthest=4).double() if is_relative else None
    lengths = torch.tensor([max(1, length - each) for each in [*padding, 0, 0][:2]])
    is_real = length_mask(lengths, length)
    mask = additive(is_real, DOUBLE)[:, None, None] if padding else None
    is_real = is_real if padding else torch.ones_like(is_real)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(multihead, "MIN_BLOCK", block)
        options: dict[str, Any] = {"window": window, "mask": mask, "is_causal": is_causal, "relative": relative}
        ours = attend_nearby(*parts, **options, weights=Probe())
    apart = torch.arange(length)[:, None] - torch.arange(length)
    band = additive((apart.abs() < window) & ((apart >= 0) | (not is_causal)), DOUBLE)[None, None]
    band = band if mask is None else band + mask
    band = torch.where(torch.eye(length, dtype=torch.bool), 0.0, band)
    if relative is not None:
        band = band + relative(query, first=0, keys=length)
    grouped = [each.repeat_interleave(4 // key_heads, 1) for each in (key, value)]
    whole = attend_plainly(query, *grouped, band)
    upstream = torch.randn(shape, dtype=DOUBLE) * is_real[:, None, :, None]
    shown = is_real[:, None, :, None].expand(shape)
    torch.testing.assert_close(ours[shown], whole[shown], rtol=0, atol=1e-12)
    weights = [] if relative is None else [relative.weight]
    gradients, expected = (torch.autograd.grad(each, [*parts, *weights], upstream) for each in (ours, whole))
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-11)


def test_memory_of_local_attention_grows_with_the_length() -> None:
    class Largest(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            if isinstance(result, Tensor):
                self.numbers = max(self.numbers, result.numel())
            return result

    found = []
    for length in (512, 1024):
        query = torch.randn(1, 2, length, 4)
        with Largest() as largest:
            attend_nearby(query, query, query, window=16, mask=None, is_causal=True, weights=Probe())
        found.append(largest.numbers)
    assert found[1] == 2 * found[0]
    assert found[1] < 1024**2 / 4


def test_listeners_see_the_weights_of_all_pairs() -> None:
    layer = SelfAttention(WIDTH, HEADS, window=2)
    packing = packing_of(torch.tensor([70]), 70)
    x = torch.randn(70, WIDTH)
    plain = layer(x, packing, mask=None, is_causal=False)
    with listen(layer, "weights") as trace:
        heard = layer(x, packing, mask=None, is_causal=False)
    torch.testing.assert_close(heard, plain)
    (weights,) = trace["weights"]
    apart = torch.arange(70)[:, None] - torch.arange(70)
    assert weights.shape == (1, HEADS, 70, 70)
    assert torch.equal(weights[0, 0] > 0, apart.abs() < 2)


@pytest.mark.parametrize("rate", [0.0, 0.3])
@pytest.mark.parametrize("places", [1, 5, 64, 65, 150])
@pytest.mark.parametrize("mask_name", ["causal", "padding", "none"])
def test_attention_in_blocks_equals_the_products_one_by_one(mask_name: str, places: int, rate: float) -> None:
    inputs = [torch.randn(2, HEADS, places, 4, dtype=DOUBLE, requires_grad=True) for _ in range(3)]
    upstream = torch.randn(2, HEADS, places, 4, dtype=DOUBLE)
    mask = None
    if mask_name == "padding":
        mask = additive(length_mask(torch.tensor([places, (places + 1) // 2]), places), DOUBLE)[:, None, None]
    is_causal, dropout = mask_name == "causal", Dropout(rate)
    found = []
    for is_plain in (False, True):
        reseed(dropout, 3)  # both drop the same weights
        if is_plain:
            query, key, value = inputs
            scores = query @ key.transpose(-1, -2) * 0.7
            scores = scores if mask is None else scores + mask
            scores = scores + future(places, places, like=scores.detach()) if is_causal else scores
            mixed = dropout(scores.softmax(-1)) @ value
        else:
            mixed = attend_in_blocks(*inputs, mask=mask, is_causal=is_causal, scale=0.7, dropout=dropout)
        found.append([mixed, *torch.autograd.grad(mixed, inputs, upstream)])
    for ours, plain in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("window", [None, 40])
def test_dropped_attention_weights_are_those_of_the_seed_in_training_only(window: int | None) -> None:
    attention = SelfAttention(WIDTH, HEADS, dropout_rate=0.3, window=window).double()
    packing = packing_of(torch.tensor([130, 130]), 130)
    x = torch.randn(260, WIDTH, dtype=DOUBLE)

    def attended(seed: int) -> Tensor:
        reseed(attention, seed)
        mixed: Tensor = attention(x, packing, mask=None, is_causal=True)
        return mixed

    assert torch.equal(attended(1), attended(1))
    assert not torch.allclose(attended(1), attended(2))
    in_blocks = attended(1)
    with torch.no_grad():  # product by product
        torch.testing.assert_close(attended(1), in_blocks, rtol=0, atol=1e-12)
    attention.eval()
    without = SelfAttention(WIDTH, HEADS, window=window).double()
    without.load_state_dict(attention.state_dict())
    torch.testing.assert_close(attended(1), without(x, packing, mask=None, is_causal=True), rtol=0, atol=1e-12)


@pytest.mark.parametrize("places", [1, 2, 9])
@pytest.mark.parametrize("is_causal", [False, True])
def test_heads_read_in_place_equal_heads_that_were_cut_out(
    is_causal: bool, places: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention = SelfAttention(WIDTH, HEADS, scale=0.7).double()
    x = torch.randn(4 * places, WIDTH, dtype=DOUBLE, requires_grad=True)
    packing = full_packing(4, places, device=x.device)
    upstream, results = torch.randn_like(x), []
    for limit in (0, multihead.MAX_DIRECT_KEYS):
        monkeypatch.setattr(multihead, "MAX_DIRECT_KEYS", limit)
        assert attention.is_direct(x, packing) == (limit > 0)
        mixed = attention(x, packing, mask=None, is_causal=is_causal)
        results.append((mixed, *torch.autograd.grad(mixed, [x, *attention.parameters()], upstream)))
    torch.testing.assert_close(results[1], results[0], rtol=0, atol=1e-12)


def test_heads_are_cut_out_for_padding_dropout_listeners_and_shorter_windows() -> None:
    x = torch.randn(10, WIDTH)
    full, padded = full_packing(2, 5, device=x.device), packing_of(torch.tensor([6, 4]), 6)
    attention = SelfAttention(WIDTH, HEADS)
    assert attention.is_direct(x, full)
    assert not attention.is_direct(x, padded)
    with listen(attention, "weights"):
        assert not attention.is_direct(x, full)
    with torch.no_grad():
        assert not attention.is_direct(x, full)
    assert [SelfAttention(WIDTH, HEADS, window=window).is_direct(x, full) for window in (4, 5)] == [False, True]
    assert not SelfAttention(WIDTH, HEADS, dropout_rate=0.5).is_direct(x, full)
    assert not SelfAttention(WIDTH, HEADS, key_heads=1).is_direct(x, full)
