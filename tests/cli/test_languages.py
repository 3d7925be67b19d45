"""`--from` and `--to`: a model of several languages, and one of a single pair."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from cli.calling import call
from cli.conftest import Tiny
from seqloom.apps.translator import Translator
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.symbols import BEGIN
from seqloom.models.frames import FrameConfig
from seqloom.runs.config import BuildsModel
from seqloom.runs.loading import build_model, load
from seqloom.runs.model_dir import save_model
from seqloom.serve.models import read_models
from seqloom.training.weights import weights_of

LANGUAGES = {"eng_Latn": 7, "deu_Latn": 8, "fra_Latn": 9, "zho_Hans": 10, "zho_Hant": 11}


@pytest.fixture(scope="module")
def several(tiny: Tiny, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model, which reads a symbol of each language before its texts."""
    folder: Path = tmp_path_factory.mktemp("several") / "model"
    loaded = load(tiny.run)
    frame = FrameConfig(target_before=(BEGIN,), scheme="before", languages=LANGUAGES)
    model = loaded.config.model.model_copy(update={"frame": frame})
    data = loaded.config.data.model_copy(update={"source": None, "target": None})
    config = loaded.config.model_copy(update={"model": model, "data": data})
    save_model(
        folder,
        config,
        tokenizers=loaded.tokenizers,
        weights=weights_of(loaded.model),
        card=replace(loaded.card, source=None, target=None),
    )
    return folder


@pytest.mark.slow
def test_languages_are_chosen_by_every_command(several: Path, tiny: Tiny) -> None:
    text, reference = tiny.dev
    chosen = ["--from", "en", "--to", "German"]
    found = call("translate", several, text, *chosen, "--json")
    assert found.code == 0
    assert call("translate", several, text, *chosen, "--json", "--jobs", 2).out == found.out
    assert call("translate", several, text, "--from", "en", "--to", "fr", "--json").out != found.out
    scores = call("score", several, text, reference, *chosen)
    assert scores.code == 0
    assert call("score", several, text, reference, "--from", "fr", "--to", "de").out != scores.out
    assert call("evaluate", several, "--source", text, "--reference", reference, *chosen).code == 0
    assert call("selfcheck", several, *chosen, "--count", 2).code == 0
    assert "choose one with --to" in call("selfcheck", several).err


def test_pairs_beyond_the_table_of_positions_are_named(several: Path) -> None:
    """The symbols of languages take positions, too."""
    loaded = load(several, source="en", target="de")
    changes = {"positions": "learned", "is_bounded": True, "longest": 12}
    settings = loaded.config.model.model_copy(update=changes)
    assert isinstance(settings, BuildsModel)
    model = build_model(settings, loaded.tokenizers, seed=1)
    config = loaded.config.model_copy(update={"model": settings})
    translator = Translator(replace(loaded, config=config, model=model))
    encode = translator.tokenizers.source.encode
    line = next(text for text in ("a " * n for n in range(1, 12)) if len(encode(text)) >= 10)
    assert len(encode(line)) == 10
    assert translator.score([line, "a"], ["a", line])[0] is not None
    with pytest.raises(DataError, match="line 2 has 12 tokens on a side; at most 11 can be scored"):
        translator.score(["a", f"{line} a"], ["a", "a"])
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with pytest.raises(ModelError, match=r"NaN.* for log P of line 1"):
        translator.score(["a"], ["a"])


def test_from_python(several: Path) -> None:
    translator = Translator.load(several, source="en", target="zh-TW")
    frame = translator.config.model.frame  # type: ignore[union-attr]
    assert (frame.source, frame.target) == ("eng_Latn", "zho_Hant")
    assert (translator.card.source, translator.card.target) == ("en", "zh")
    again = Translator.load(several, source="eng_Latn", target="zho_Hant")
    found = [each.search(["Good morning."], length_constant=9) for each in (translator, again)]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "this model knows 5 languages; choose one with --to"),
        (
            ["--from", "en", "--to", "deuu"],
            "--to deuu: this model does not know the language 'deuu'; nearest: deu_Latn",
        ),
        (["--from", "en", "--to", " "], "--to is blank"),
    ],
)
def test_an_unknown_language_is_a_usage_error(several: Path, tiny: Tiny, words: list[str], message: str) -> None:
    called = call("translate", several, tiny.dev[0], *words)
    assert called.code == 2
    assert message in called.err.replace("\n", " ")


def test_a_model_of_one_pair_takes_its_own_languages_only(tiny: Tiny) -> None:
    text = tiny.dev[0]
    plain = call("translate", tiny.run, text)
    assert call("translate", tiny.run, text, "--from", "eng", "--to", "de").out == plain.out
    called = call("translate", tiny.run, text, "--to", "fr")
    assert called.code == 2
    assert "--to fr: this model translates from en to de only" in called.err.replace("\n", " ")


def test_a_server_takes_the_pair_from_the_name(several: Path) -> None:
    (model,) = read_models([f"en-de={several}"]).models
    assert (model.source, model.target) == ("en", "de")
    assert model.languages == ("model.frame.source=en", "model.frame.target=de")
    with pytest.raises(UsageError, match="give them as its name, such as en-de="):
        read_models([f"all={several}"])
    with pytest.raises(UsageError, match="--to it: this model does not know the language"):
        read_models([f"en-it={several}"])
