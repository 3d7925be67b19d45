"""Tensors that come one after another, and a safetensors file that is written as they come.

The library that writes such files wants all tensors at once. A rank that gathers a model from shards has room for one
of them: this module lays out the file beforehand, from names, types and shapes alone. The bytes are the same.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO

import torch
from torch import Tensor

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""The names of types in a file, in the order that the format gives them; tensors of the last stand first."""

_RANKS = {dtype: rank for rank, dtype in enumerate(_NAMES)}
_ALIGNMENT = 8


@dataclass(frozen=True)
class Form:
    """What is known of a tensor before it comes."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class Arriving:
    """Tensors by name in the order of their file, each of them made when it is asked for, and once.

    Where ranks make them together, all must ask for all: `finish` asks for those that nobody has asked for yet.
    """

    def __init__(self, forms: Mapping[str, Form], make: Callable[[str], Tensor | None]) -> None:
        """`make` gives None on a rank that has a part in a tensor, but does not get it."""
        order = sorted(forms, key=lambda name: (-_RANKS[forms[name].dtype], name))
        self.forms = {name: forms[name] for name in order}
        self._make = make
        self._left = iter(order)

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return sum(form.nbytes for form in self.forms.values())

    def __iter__(self) -> Iterator[tuple[str, Tensor | None]]:
        for name in self._left:
            yield name, self._make(name)

    def finish(self) -> None:
        """Have the rest made, and drop it."""
        for _ in self:
            pass


def write_safetensors(file: BinaryIO, tensors: Arriving) -> None:
    """Write a safetensors file with one tensor in memory at a time."""
    file.write(_header(tensors.forms))
    for name, tensor in tensors:
        assert tensor is not None, "only the rank that gets the tensors writes them"
        form = tensors.forms[name]
        assert (tensor.dtype, tuple(tensor.shape)) == (form.dtype, form.shape), f"{name} is not as it was announced"
        file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _header(forms: Mapping[str, Form]) -> bytes:
    """Its length in eight bytes, then JSON, filled up with spaces so that what follows is aligned."""
    entries, offset = {}, 0
    for name, form in forms.items():
        end = offset + form.nbytes
        entries[name] = {"dtype": _NAMES[form.dtype], "shape": list(form.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
