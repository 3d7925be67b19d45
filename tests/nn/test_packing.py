"""Packing: there and back is nothing done, padding is never seen, gradients are those of a padded batch."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from seqloom.nn.packing import (
    Packing,
    full_packing,
    join_heads,
    length_mask,
    pack,
    pack_features,
    packing_of,
    side_by_side,
    split_heads,
)

LENGTHS = st.lists(st.integers(0, 5), min_size=0, max_size=5)
EXTRA = st.integers(0, 2)
PARTS, HEADS, SIZE = 3, 2, 4


def packing_for(lengths: list[int], extra: int) -> Packing:
    return packing_of(torch.tensor(lengths, dtype=torch.long), max(lengths, default=0) + extra)


def padded_split(packed: Tensor, lengths: list[int], longest: int) -> Tensor:
    """What `split_heads` is, sentence by sentence; zeros for padding."""
    split = packed.new_zeros(PARTS, len(lengths), HEADS, longest, SIZE)
    begin = 0
    for sentence, length in enumerate(lengths):
        mine = packed[begin : begin + length].view(length, PARTS, HEADS, SIZE)
        split[:, sentence, :, :length] = mine.permute(1, 2, 0, 3)
        begin += length
    return split + 0 * packed.sum()  # has a gradient for a batch of no tokens too


@given(LENGTHS, EXTRA)
def test_pack_takes_the_tokens_in_order(lengths: list[int], extra: int) -> None:
    packing = packing_for(lengths, extra)
    padded = torch.arange(packing.batch * packing.longest).view(packing.batch, packing.longest)
    expected = [padded[row, column].item() for row, length in enumerate(lengths) for column in range(length)]
    assert pack(padded, packing).tolist() == expected
    assert packing.positions.tolist() == [column for length in lengths for column in range(length)]
    assert packing.has_empty == (0 in lengths)
    assert torch.equal(packing.mask(), length_mask(torch.tensor(lengths, dtype=torch.long), packing.longest))


@given(LENGTHS, EXTRA)
def test_splitting_then_joining_changes_nothing(lengths: list[int], extra: int) -> None:
    packing = packing_for(lengths, extra)
    packed = torch.randn(sum(lengths), PARTS * HEADS * SIZE)
    split = torch.stack(split_heads(packed, packing, parts=PARTS, heads=HEADS))
    assert split.shape == (PARTS, packing.batch, HEADS, packing.longest, SIZE)
    parts = packed.view(sum(lengths), PARTS, HEADS * SIZE).unbind(1)
    for part, mine in zip(parts, split.unbind(0), strict=True):
        assert torch.equal(join_heads(mine, packing), part)


@given(LENGTHS, EXTRA)
def test_values_and_gradients_equal_those_of_a_padded_batch(lengths: list[int], extra: int) -> None:
    packing = packing_for(lengths, extra)
    packed = torch.randn(sum(lengths), PARTS * HEADS * SIZE, dtype=torch.float64, requires_grad=True)
    mask = packing.mask()
    ours = torch.stack(split_heads(packed, packing, parts=PARTS, heads=HEADS))
    plain = padded_split(packed, lengths, packing.longest)
    assert torch.equal(ours * mask[:, None, :, None], plain)
    # What comes back at padding must be ignored, so it is not masked here.
    upstream = torch.randn_like(plain)
    (left,) = torch.autograd.grad(ours, packed, upstream, retain_graph=True)
    (right,) = torch.autograd.grad(plain, packed, upstream)
    assert torch.equal(left, right)

    split = torch.randn(packing.batch, HEADS, packing.longest, SIZE, dtype=torch.float64, requires_grad=True)
    joined = join_heads(split, packing)
    expected = split.transpose(1, 2)[mask].flatten(1)
    assert torch.equal(joined, expected)
    upstream = torch.randn_like(joined)
    (left,) = torch.autograd.grad(joined, split, upstream)
    (right,) = torch.autograd.grad(expected, split, upstream)
    assert torch.equal(left, right)


@given(LENGTHS, EXTRA)
def test_what_padding_holds_never_matters(lengths: list[int], extra: int) -> None:
    packing = packing_for(lengths, extra)
    mask = packing.mask()
    padded = torch.randn(packing.batch, packing.longest, SIZE)
    other = torch.where(mask[..., None], padded, torch.full_like(padded, 1e30))
    assert torch.equal(pack_features(padded, packing), pack_features(other, packing))
    assert torch.equal(pack_features(padded, packing), padded[mask])
    assert torch.equal(pack(padded, packing), pack(other, packing))


@given(LENGTHS, EXTRA)
def test_a_sentence_of_no_tokens_reads_as_zeros(lengths: list[int], extra: int) -> None:
    packing = packing_for([*lengths, 0], extra)
    (split,) = split_heads(torch.randn(sum(lengths), HEADS * SIZE), packing, parts=1, heads=HEADS)
    assert not split[-1].any()
    assert split.isfinite().all()


@pytest.mark.parametrize("lengths", [[3, 1, 2], [2, 2], [0, 3]])
def test_gradcheck(lengths: list[int]) -> None:
    packing = packing_for(lengths, 1)
    mask = packing.mask()[:, None, :, None]
    packed = torch.randn(sum(lengths), 2 * HEADS * SIZE, dtype=torch.float64, requires_grad=True)

    def split_seen(packed: Tensor) -> Tensor:
        return torch.stack(split_heads(packed, packing, parts=2, heads=HEADS)) * mask

    assert torch.autograd.gradcheck(split_seen, packed)
    split = torch.randn(len(lengths), HEADS, packing.longest, SIZE, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda split: join_heads(split, packing), split)


@given(st.lists(st.integers(0, 3), max_size=8))
def test_rows_are_side_by_side_in_their_sentences(owners: list[int]) -> None:
    packing = side_by_side(torch.tensor(owners, dtype=torch.long), 4)
    counts = [owners.count(sentence) for sentence in range(4)]
    assert (packing.batch, packing.longest) == (4, max(counts))
    places = [owners[:row].count(owner) for row, owner in enumerate(owners)]
    assert packing.positions.tolist() == places
    rows = torch.randn(len(owners), HEADS * SIZE)
    split = split_heads(rows, packing, parts=1, heads=HEADS)[0]
    for row, (owner, place) in enumerate(zip(owners, places, strict=True)):
        assert torch.equal(split[owner, :, place].flatten(), rows[row])
    assert torch.equal(join_heads(split, packing), rows)
    assert torch.equal(pack(split.transpose(1, 2), packing).flatten(1), rows)


@pytest.mark.parametrize(("batch", "longest"), [(3, 4), (1, 5), (0, 4), (3, 0)])
def test_a_batch_without_padding_is_copied_as_it_is_gathered(batch: int, longest: int) -> None:
    plain, lengths = full_packing(batch, longest, device=torch.device("cpu")), torch.full((batch,), longest)
    same = packing_of(lengths, longest)
    assert torch.equal(plain.flat, same.flat)
    assert torch.equal(plain.positions, same.positions)
    assert plain.has_empty == same.has_empty
    assert plain.is_plain
    gathered = replace(plain, is_ordered=False)
    packed = torch.randn(batch * longest, PARTS * HEADS * SIZE, requires_grad=True)
    upstream = torch.randn(PARTS, batch, HEADS, longest, SIZE)
    found = []
    for packing in (plain, gathered):
        split = torch.stack(split_heads(packed, packing, parts=PARTS, heads=HEADS))
        joined = join_heads(split[0], packing)
        (to_packed,) = torch.autograd.grad([split, joined], packed, [upstream, joined.detach()])
        found.append((split, joined, to_packed))
    for copied, through_indices in zip(*found, strict=True):
        assert torch.equal(copied, through_indices)
