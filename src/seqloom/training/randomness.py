"""The global random generators, for models from outside that draw from them; the house itself never does.

Their states go into each checkpoint as tensors, one row per rank, because a pickled state could carry code.
"""

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy
import torch
from torch import Tensor

from seqloom.core.seeds import seed_for

_NONE = float("nan")
"""Stands for "no second Gaussian in store", which no drawn number can be."""


def seed_generators(seed: int, rank: int) -> None:
    """Start the global generators of this process from the seed of the run."""
    torch.manual_seed(seed_for(seed, "torch", rank))
    random.seed(seed_for(seed, "python", rank))
    numpy.random.seed(seed_for(seed, "numpy", rank) % 2**32)


def generator_states(device: torch.device) -> dict[str, Tensor]:
    """The states of torch's, Python's and NumPy's global generators."""
    version, words, python_gauss = random.getstate()
    _, keys, position, has_gauss, numpy_gauss = numpy.random.get_state(legacy=True)
    states = {
        "torch": torch.get_rng_state(),
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([_NONE if python_gauss is None else python_gauss], dtype=torch.float64),
        "numpy": torch.tensor([*map(int, keys), int(position), int(has_gauss)], dtype=torch.int64),
        "numpy_gauss": torch.tensor([numpy_gauss], dtype=torch.float64),
    }
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_generators(states: Mapping[str, Tensor], device: torch.device) -> None:
    """Put the global generators back to where `generator_states` found them."""
    torch.set_rng_state(states["torch"])
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].item()
    random.setstate((version, tuple(words), None if gauss != gauss else gauss))
    *keys, position, has_gauss = states["numpy"].tolist()
    words_of_numpy = numpy.array(keys, dtype=numpy.uint32)
    numpy.random.set_state(("MT19937", words_of_numpy, position, has_gauss, states["numpy_gauss"].item()))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)


@contextmanager
def generators_kept(device: torch.device) -> Iterator[None]:
    """Leave the global generators as they were, whatever draws from them inside: looking must not change a run."""
    states = generator_states(device)
    try:
        yield
    finally:
        restore_generators(states, device)
