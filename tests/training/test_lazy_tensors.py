"""A safetensors file that is written tensor by tensor is the one that the library writes at once."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from seqloom.training.checkpoint import LazyTensors, TensorSpec, write_safetensors

TENSORS = {
    "b.weight": torch.arange(6.0).view(2, 3),
    "a.weight": torch.arange(4, dtype=torch.float64),
    "step": torch.tensor(7.0),
    "ßeen": torch.tensor(3),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "other half": torch.ones(5, dtype=torch.float16),
    "mask": torch.tensor([True, False, True]),
    "none": torch.zeros(0, 4),
    "bytes": torch.arange(5, dtype=torch.uint8),
    "signed": torch.arange(5, dtype=torch.int8),
    "short": torch.arange(5, dtype=torch.int16),
    "int": torch.arange(3, dtype=torch.int32),
}


def specs(tensors: dict[str, Tensor]) -> dict[str, TensorSpec]:
    return {name: TensorSpec(tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}


def test_the_bytes_are_those_of_the_library(tmp_path: Path) -> None:
    save_file(TENSORS, tmp_path / "theirs")
    lazy = LazyTensors(specs(TENSORS), TENSORS.__getitem__)
    assert lazy.nbytes == sum(tensor.nbytes for tensor in TENSORS.values())
    with (tmp_path / "ours").open("wb") as file:
        write_safetensors(file, lazy)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()


def test_each_tensor_is_made_once_and_the_rest_on_request() -> None:
    made: list[str] = []

    def make(name: str) -> Tensor:
        made.append(name)
        return TENSORS[name]

    lazy = LazyTensors(specs(TENSORS), make)
    next(iter(lazy))
    assert len(made) == 1
    lazy.finish()
    lazy.finish()
    assert sorted(made) == sorted(TENSORS)


def test_a_tensor_that_is_not_as_announced_is_our_own_mistake(tmp_path: Path) -> None:
    announced = {**specs(TENSORS), "step": TensorSpec(torch.float32, (1,))}
    with (
        (tmp_path / "ours").open("wb") as file,
        pytest.raises(AssertionError, match="step differs from its specification"),
    ):
        write_safetensors(file, LazyTensors(announced, TENSORS.__getitem__))
