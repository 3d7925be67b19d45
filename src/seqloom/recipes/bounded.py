"""Models from elsewhere: what their settings ask for must fit what their weights are, before memory is given for it."""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from seqloom.core.errors import ModelError

NUMBERS = 4, 1 << 24
"""Numbers that building a model may ask for: so many times those of its weights, and so many besides for tables that
are computed. Our models ask for what they have and hardly more."""

TENSORS = 4, 100
"""The same for the number of tensors that are made, which ends a model of a million layers at its hundredth."""

_MAKERS = frozenset(f"aten::{name}" for name in ("empty", "empty_strided", "zeros", "ones", "full", "rand", "randn"))


def build_within(weights: Path, build: Callable[[], nn.Module]) -> nn.Module:
    """Build a model whose weights are in a file; settings that ask for far more than the file holds are refused.

    Settings are a line of text: one that says width 1000000000 would otherwise fill the memory before anybody sees
    that no such weights are there.
    """
    shapes = shapes_of(weights)
    numbers, tensors = sum(map(math.prod, shapes.values())), len(shapes)
    complaint = (
        f"{weights.parent} does not fit together: its settings ask for a model far larger than the {numbers:,} numbers "
        f"in {weights.name}; copy the model directory again from where it was made"
    )
    most = NUMBERS[0] * numbers + NUMBERS[1], TENSORS[0] * tensors + TENSORS[1]
    try:
        with _Allowance(numbers=most[0], tensors=most[1], complaint=complaint):
            return build()
    except (OverflowError, TypeError, RuntimeError) as error:
        if "overflow" in str(error).lower():  # torch's word for a number that no tensor can have for a size
            raise ModelError(complaint) from error
        raise


def shapes_of(path: Path) -> dict[str, Sequence[int]]:
    """The shapes of the tensors in a safetensors file, from its header alone."""
    with _Meets(path), safe_open(str(path), framework="pt") as reader:
        return {name: reader.get_slice(name).get_shape() for name in reader.keys()}  # noqa: SIM118


def read_weights(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file. Its sizes are compared with its header before memory is given for them."""
    with _Meets(path):
        return load_file(path)


class _Meets:
    """What a library says of a file that it cannot read, as an error of ours."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # Its own class, and for types that torch does not have a bare KeyError or TypeError.
        if isinstance(error, (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError)):
            raise ModelError(
                f"{self._path} cannot be read as safetensors: {error}; copy the model directory again from where it "
                "was made"
            ) from error


class _Allowance(TorchDispatchMode):
    """Sees each tensor before it is made, and ends the building of a model that asks for too much."""

    def __init__(self, *, numbers: int, tensors: int, complaint: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._numbers, self._tensors, self._complaint = numbers, tensors, complaint

    def __torch_dispatch__(
        self, func: Any, types: object, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if func._schema.name in _MAKERS:
            self._tensors -= 1
            self._numbers -= math.prod(args[0])
            if self._numbers < 0 or self._tensors < 0:
                raise ModelError(self._complaint)
        return func(*args, **(kwargs or {}))
