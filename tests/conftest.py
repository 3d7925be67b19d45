"""What every test starts from: checked shapes, one thread, a fixed seed, and the real data where there is some."""

import os
import random
from pathlib import Path

import hypothesis
import numpy
import pytest
import torch
from jaxtyping import install_import_hook

# Shapes and types of every function and dataclass of the package are checked at each call. The hook works on modules
# as they are imported, so it stands before anything here may import the package. It covers all of them: pydantic
# classes keep their own checks (the hook touches dataclasses and functions only), and an argument annotated with a
# plain Protocol is let through, since only a runtime-checkable one could be checked.
install_import_hook("seqloom", "beartype.beartype")

# Runners share their cores, so a time limit per example would fail at random; examples are the same in every run.
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("house")

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    """Each test starts from the same random state, whatever ran before it."""
    random.seed(0)
    numpy.random.seed(0)  # noqa: NPY002 - only for other libraries: the package takes generators
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
