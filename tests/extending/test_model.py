"""A translation model from outside trains, loads and translates, and joins the package by one word of the union."""

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import pytest
import torch
from torch import Tensor, nn

import seqloom
from laws.stepping import check_stepper_laws
from seqloom.core.declaration import ModelSettings, Purpose, TaskKind
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.nn.embeddings import Symbols
from seqloom.runs.model_dir import read_settings
from tiny_runs import TINY, TINY_LM

OVERRIDES = [each for each in TINY if not each.startswith("model.")]


@pytest.fixture
def tiny(example: Callable[[str], ModuleType]) -> ModuleType:
    return example("tiny_translator")


def test_the_page_shows_the_whole_example(tiny: ModuleType) -> None:
    code = Path(str(tiny.__file__)).read_text(encoding="utf-8")
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    assert f"```python\n{code}```" in page.read_text(encoding="utf-8")


def test_it_obeys_the_laws_of_stepping(tiny: ModuleType) -> None:
    model = tiny.TinyTranslatorConfig(width=8).build(Symbols(20, 17, is_shared=False), seed=1).double()

    def teacher_forced(source: Source, prefix: Tensor) -> Tensor:
        lengths = torch.full((len(prefix),), prefix.shape[1])
        log_probs: Tensor = model.output.log_probs(model(source, prefix, lengths))
        return log_probs.view(*prefix.shape, -1)

    check_stepper_laws(model.stepper, 20, target_symbols=17, teacher_forced=teacher_forced)


def test_it_trains_loads_and_translates(tiny: ModuleType, tmp_path: Path, corpus: tuple[list[str], list[str]]) -> None:
    settings = tiny.TinyTranslatorConfig(width=8)
    run = tmp_path / "run"
    trained = seqloom.train(None, OVERRIDES, out=run, train=corpus[0], dev=corpus[1], model=settings)
    assert trained is not None
    assert trained.use == "translator"
    loaded = seqloom.load(trained.model, model=settings)
    assert type(loaded.model).__name__ == "TinyTranslator"
    assert len(seqloom.Translator.load(trained.model, model=settings).translate(["Hello.", "Good morning."])) == 2
    assert read_settings(trained.model).model.settings == {"kind": "tiny", "width": 8}


def test_its_loss_ignores_padding(tiny: ModuleType) -> None:
    model = tiny.TinyTranslatorConfig(width=8).build(Symbols(20, 17, is_shared=False), seed=1)
    source = Source(torch.tensor([[5, 6, END], [7, END, 0]]), torch.tensor([3, 2]))
    previous, lengths = torch.tensor([[1, 4, 5], [1, 6, 0]]), torch.tensor([3, 2])
    alone = model(Source(source.ids[1:, :2], source.lengths[1:]), previous[1:, :2], lengths[1:])
    torch.testing.assert_close(model(source, previous, lengths)[3:], alone)


def test_a_language_model_from_outside_declares_its_task(tmp_path: Path, corpus: tuple[list[str], list[str]]) -> None:
    class OwnLanguageModel(ModelSettings):
        purpose: ClassVar[Purpose] = "language model"
        task_kind: ClassVar[TaskKind] = "language_modelling"
        kind: str = "own"

        def build(self, symbols: Symbols, *, seed: int) -> nn.Module:
            return RnnLmConfig(width=8).build(symbols, seed=seed)

    settings = OwnLanguageModel()
    overrides = [each for each in TINY_LM if not each.startswith("model.")]
    trained = seqloom.train(None, overrides, out=tmp_path / "run", train=corpus[0][:1], model=settings)
    assert trained is not None
    assert trained.use == "language model"
    assert read_settings(trained.model).task.kind == "language_modelling"
    assert seqloom.LanguageModel(seqloom.load(trained.model, model=settings)).score(["Hello."])[0].tokens > 0


def test_it_joins_the_package_by_one_word(contribute: Callable[..., str], corpus: tuple[list[str], list[str]]) -> None:
    files = [
        word
        for flag, names in zip(("--train", "--dev"), corpus, strict=True)
        for name in names
        for word in (flag, name)
    ]
    command = [
        "train",
        "--out",
        "run",
        *files,
        "--dev",
        corpus[1][0],
        "--dev",
        corpus[1][1],
        "model.kind=tiny",
        *OVERRIDES,
    ]
    script = f"""
import seqloom
from seqloom.cli.main import execute
assert execute({command!r}) == 0
loaded = seqloom.load("run")
print(type(loaded.model).__name__, loaded.config.model.width, len(seqloom.Translator(loaded).translate(["Hello."])))
"""
    place = "src/seqloom/models/tiny_translator.py"
    said = contribute("tiny_translator", section="A model", place=place, script=script)
    assert said.splitlines()[-1] == "TinyTranslator 64 1"
