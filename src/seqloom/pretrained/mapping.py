"""Tensors of a published model as tensors of ours, and back: every change is reversible bit by bit."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from seqloom.pretrained.renumbering import Renumbering

Side = Literal["source", "target"]


class StoredTensors(Protocol):
    """The tensors of a folder, read one at a time."""

    @property
    def names(self) -> tuple[str, ...]: ...

    def shape(self, name: str) -> tuple[int, ...]:
        """Without reading the tensor."""
        ...

    def dtype(self, name: str) -> torch.dtype: ...

    def tensor(self, name: str) -> Tensor:
        """On the CPU, in the type in which it is stored."""
        ...


class NamedTensors(StoredTensors, Protocol):
    """The same under names of today."""

    def original(self, name: str) -> str:
        """The name in the file; of a file in a folder below, after that folder and a slash."""
        ...


@dataclass(frozen=True)
class TensorMap:
    """One of our tensors, made of one or several of theirs."""

    ours: str
    """Its name in our model; the first of its names if it is shared."""
    theirs: tuple[str, ...]
    """Joined along the first axis, in this order: queries, keys and values, for example."""
    is_transposed: bool = False
    """Whether each of theirs is the transpose of our part."""
    rows: Side | None = None
    """The vocabulary that its first axis counts, if it is one."""
    is_flat: bool = False
    """Whether theirs has a first axis of size 1 that ours does not have."""


def imported(map: TensorMap, read: Callable[[str], Tensor], numbers: Mapping[Side, Renumbering]) -> Tensor:
    """Our tensor, from theirs by name."""
    parts = [read(name) for name in map.theirs]
    if map.is_flat:
        parts = [part[0] for part in parts]
    if map.is_transposed:
        parts = [part.t() for part in parts]
    whole = parts[0] if len(parts) == 1 else torch.cat(parts)
    return whole.contiguous() if map.rows is None else numbers[map.rows].import_rows(whole)


def imported_shape(
    map: TensorMap, shape: Callable[[str], tuple[int, ...]], numbers: Mapping[Side, Renumbering]
) -> tuple[int, ...] | None:
    """The shape of our tensor, from those of theirs; None if theirs do not fit together or into the vocabulary."""
    parts = [shape(name) for name in map.theirs]
    if map.is_flat:
        if any(len(part) < 2 or part[0] != 1 for part in parts):
            return None
        parts = [part[1:] for part in parts]
    if map.is_transposed:
        parts = [part[::-1] for part in parts]
    if any(not part or part[1:] != parts[0][1:] for part in parts) or (map.is_transposed and len(parts[0]) != 2):
        return None
    first = sum(part[0] for part in parts)
    if map.rows is not None:
        if first != len(numbers[map.rows].ours):
            return None
        first = len(numbers[map.rows].foreign)
    return first, *parts[0][1:]


def exported(
    map: TensorMap, tensor: Tensor, numbers: Mapping[Side, Renumbering], rows: tuple[int, ...]
) -> list[Tensor]:
    """Their tensors, from ours. `rows` are the lengths of their parts along our first axis."""
    whole = tensor if map.rows is None else numbers[map.rows].export_rows(tensor)
    parts = [part.clone() for part in whole.split(rows)]
    if map.is_transposed:
        parts = [part.t().contiguous() for part in parts]
    return [part[None] for part in parts] if map.is_flat else parts
