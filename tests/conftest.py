"""What every test starts from: checked shapes, one thread, a fixed seed, and the real data where there is some."""

import functools
import gc
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import hypothesis
import numpy
import pytest
import torch
from matplotlib.figure import Figure

from checking import check_package

if TYPE_CHECKING:
    from seqloom.runs.train import Trained

# Many processes import the package, those of the workers and those that tests start; it is compiled for the first.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Shapes and types of every function and dataclass of the package are checked at each call; pydantic classes keep
# their own checks. No module is left out. This stands before anything that imports the package.
check_package("seqloom")

# Runners share their cores, so a time limit per example would fail at random; examples are the same in every run.
hypothesis.settings.register_profile("house", max_examples=40, deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("house")
# A law is tried on half of its examples, or on ten; `make test-slow` sets this, and all of them are tried.
IS_THOROUGH = bool(os.environ.get("SEQLOOM_THOROUGH"))

torch.set_num_threads(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Cut the number of examples of each law, once however often it is parametrised."""
    if IS_THOROUGH:
        return
    tests = {item.obj for item in items if isinstance(item, pytest.Function)}
    for law in filter(hypothesis.is_hypothesis_test, tests):
        given = law._hypothesis_internal_use_settings  # there is no public way to a number that a test chose
        fewer = max(min(given.max_examples, 10), given.max_examples // 2)
        law._hypothesis_internal_use_settings = hypothesis.settings(given, max_examples=fewer)


def pytest_collection_finish() -> None:
    """Spare the garbage collector what stays anyway, modules and tests, and let it look for the rest less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(7_000)  # new objects; the usual 700 costs several percent


@pytest.fixture(autouse=True)
def fixed_start() -> None:
    """Each test starts from the same random state and with one thread, whatever ran before it.

    A run with `training.threads=2` leaves two behind, and a process that is then forked would wait for the other.
    """
    if torch.get_num_threads() != 1:
        torch.set_num_threads(1)
    random.seed(0)
    numpy.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def spared_waits() -> Iterator[None]:
    """Spare each tiny run eighty waits for the disk, and the pixels of its learning curve.

    No test cuts the power, and what is written is there for every other process without that wait. Of all learning
    curves the first is drawn whole, and the others up to the last step, which is most of the work.
    """
    drawn: list[bytes] = []

    def save(figure: Figure, picture: Any, **options: Any) -> None:
        if not isinstance(picture, Path) or picture.name != "learning-curve.png":
            save_whole(figure, picture, **options)
        elif drawn:
            picture.write_bytes(drawn[0])
        else:
            save_whole(figure, picture, **options)
            drawn.append(picture.read_bytes())

    save_whole = Figure.savefig
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", save)
        patch.setattr(os, "fsync", os.fstat)  # still an error where there is no such file
        yield


@pytest.fixture(scope="session", autouse=True)
def yaml_read_once() -> Iterator[None]:
    """Compose the nodes of each YAML text once: every run reads the same settings again and again.

    They are the same for the same text, and values are built from them anew each time; a text that is not valid is
    refused anew each time.
    """
    from seqloom.core import config

    load = config._Loader
    compose = functools.lru_cache(maxsize=1024)(lambda text: load(text).get_single_node())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(config, "_Loader", lambda text: SimpleNamespace(get_single_node=lambda: compose(text)))
        yield


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


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """Names of training files and dev files, English and German."""
    from tiny_runs import write_corpus

    return write_corpus(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory, corpus: tuple[list[str], list[str]]) -> "Trained":
    """A tiny translator, trained once: enough steps to have a model directory, not to be good."""
    from seqloom.runs.train import train
    from tiny_runs import TINY

    out = tmp_path_factory.mktemp("runs") / "tiny"
    trained = train(None, TINY, out=out, train=corpus[0], dev=corpus[1])
    assert trained is not None
    return trained
