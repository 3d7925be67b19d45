"""What every test starts from: checked shapes, one thread, a fixed seed, and the real data where there is some."""

import os
import random
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import hypothesis
import numpy
import pytest
import torch
from jaxtyping import install_import_hook


def _make_protocols_checkable() -> None:
    """Let `isinstance` answer for every Protocol of the package: the type check refuses one for which it cannot."""
    meta: Any = type(Protocol)
    plain = meta.__init__

    def initialise(cls: Any, *args: Any, **kwargs: Any) -> None:
        plain(cls, *args, **kwargs)
        if cls.__module__.startswith("seqloom.") and cls.__dict__.get("_is_protocol", False):
            runtime_checkable(cls)

    meta.__init__ = initialise


# Shapes and types of every function and dataclass of the package are checked at each call; pydantic classes keep
# their own checks. No module is left out. The hook works on modules as they are imported, so it stands before
# anything that imports the package.
_make_protocols_checkable()
install_import_hook("seqloom", "beartype.beartype")

# Runners share their cores, so a time limit per example would fail at random; examples are the same in every run.
hypothesis.settings.register_profile("house", max_examples=40, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("house")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Each test starts from the same random state, whatever ran before it."""
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder of public corpora that `SEQLOOM_DATA` names; tests that need it are skipped without."""
    name = os.environ.get("SEQLOOM_DATA", "")
    if not name:
        pytest.skip("SEQLOOM_DATA is not set: it names the folder with the public corpora (multi30k/, wikitext-2/ …)")
    folder = Path(name)
    if not folder.is_dir():
        pytest.skip(f"SEQLOOM_DATA={name} is no folder")
    return folder
