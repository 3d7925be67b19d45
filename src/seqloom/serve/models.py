"""The models of a server: their names, what they are for, and which of them translate a pair of languages.

The table is made when the server starts. A request names a model or languages, which are looked up in it; nothing that
a client sends becomes part of a path.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from seqloom.apps.language_model import is_arpa
from seqloom.core.declaration import Purpose
from seqloom.core.errors import UsageError
from seqloom.runs.languages import LanguageChoice, frame_of, with_languages
from seqloom.runs.loading import find_model, in_words
from seqloom.runs.model_dir import read_calibration, read_card, read_settings
from seqloom.text.languages import TWO_LETTERS, find_language, is_known_language, language_name
from seqloom.text.tokenizer import Tokenizers

MAX_STEPS = 2
"""Models that translate one after the other: a pair without a model of its own goes through one other language."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_NAMED = re.compile(r"(?P<name>[^=/]+)=(?P<path>.+)", re.DOTALL)


@dataclass(frozen=True)
class ServedModel:
    """One model that a server offers."""

    name: str
    path: Path
    """As it was given: a model directory, a run or an archive."""
    purpose: Purpose
    source: str | None = None
    """Code of the source language, of two letters where the language has one; of a translator only."""
    target: str | None = None
    created: int = 0
    """Seconds since 1970."""
    scores: tuple[str, ...] = ()
    """Its scores on dev text, such as `BLEU 40.7`."""
    review_below: float = 0.0
    """Confidence below which a translation should be reviewed, by its calibration."""
    languages: tuple[str, ...] = ()
    """Settings that choose its languages, for a model that knows several."""
    normalise: Callable[[str], str] = field(default=str, compare=False, repr=False)
    """What it does to a source line before it splits it into tokens."""


@dataclass(frozen=True)
class ServedModels:
    """All models of a server, in the order in which they were given."""

    models: tuple[ServedModel, ...]
    by_name: Mapping[str, ServedModel] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {model.name: model for model in self.models})
        if len(self.by_name) != len(self.models):
            names = [model.name for model in self.models]
            twice = next(name for name in names if names.count(name) > 1)
            raise UsageError(f"two models have the name {twice!r}; name one of them yourself: OTHER=MODEL")

    @property
    def translators(self) -> tuple[ServedModel, ...]:
        """Those that translate."""
        return tuple(model for model in self.models if model.purpose == "translator")

    @cached_property
    def pairs(self) -> dict[tuple[str, str], tuple[ServedModel, ...]]:
        """The models for each pair of languages, one after the other; of two for a pair, the first that was given."""
        direct: dict[tuple[str, str], tuple[ServedModel, ...]] = {}
        for model in self.translators:
            if model.source and model.target:
                direct.setdefault((model.source, model.target), (model,))
        through = {
            (source, target): (*first, *second)
            for (source, pivot), first in direct.items()
            for (other, target), second in direct.items()
            if pivot == other and source != target
        }
        return {**through, **direct}

    @cached_property
    def languages(self) -> dict[str, tuple[str, ...]]:
        """Each language that is translated from or into, with those that it can be translated into."""
        codes = sorted({code for pair in self.pairs for code in pair})
        return {code: tuple(sorted(target for source, target in self.pairs if source == code)) for code in codes}

    def steps(self, source: str, target: str) -> tuple[ServedModel, ...]:
        """The models that translate a pair, one after the other; empty if there are none."""
        return self.pairs.get((source, target), ())


def code_of(code: str) -> str:
    """A language code in the form of the table: `de` for `de-AT`, `DE` and `deu`; an unknown one in lower case."""
    if is_known_language(code):
        return find_language(code).code
    first = re.split(r"[-_.@]", code, maxsplit=1)[0].lower()
    return TWO_LETTERS.get(first, first)


def name_of_language(code: str) -> str:
    """The English name of a language."""
    return language_name(code)


def read_models(words: Sequence[str]) -> ServedModels:
    """The models that are given as MODEL or NAME=MODEL. Their settings and cards are read, not their weights."""
    if not words:
        raise UsageError("no model is given; name one or more: seqloom serve run/model")
    return ServedModels(tuple(_read_model(word) for word in words))


def _read_model(word: str) -> ServedModel:
    named = None if Path(word).exists() else _NAMED.fullmatch(word)
    path = Path(named["path"] if named else word)
    name = named["name"] if named else _name_from(path)
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} cannot be the name of a model; use up to 64 letters, digits, - and _, without dots: NAME={path}"
        )
    if is_arpa(path):
        if not path.is_file():
            raise UsageError(f"{path}: model not found")
        return ServedModel(name, path, "language model", created=int(path.stat().st_mtime))
    folder = find_model(path)
    card, config = read_card(folder), read_settings(folder)
    created = int((folder / "model.json").stat().st_mtime)
    scores = tuple(f"{score.name} {score.value:.1f}" for score in card.measured)
    if config.purpose in (
        "aligner",
        "classifier",
        "tagger",
        "denoiser",
        "forecaster",
        "transcriber",
        "summariser",
        "captioner",
    ):
        raise UsageError(f"{path} cannot be served: {in_words(config)}")
    if config.purpose != "translator":
        return ServedModel(name, path, config.purpose, target=card.target and code_of(card.target), created=created)
    source, target = card.source, card.target
    choice, parts = LanguageChoice(), re.split(r"[-_]", name)
    is_pair, frame = len(parts) == 2 and all(map(is_known_language, parts)), frame_of(config)
    if frame is not None and frame.scheme != "none" and is_pair:
        choice = LanguageChoice(*parts)
        data = with_languages(config, choice).data
        source, target = data.source, data.target
    if not (source and target):
        # The name may say what the card does not.
        if not is_pair:
            raise UsageError(
                f"the languages of {path} are not known, since its card does not name them; give them as its name, "
                f"such as en-de={path}"
            )
        source, target = parts
    named_pair = [code_of(part) for part in re.split(r"[-_]", name) if is_known_language(part)]
    if len(named_pair) == 2 and named_pair != [code_of(source), code_of(target)]:
        raise UsageError(
            f"{path} translates from {source} to {target}, but its name is {name}; give it another: NAME={path}"
        )
    calibration = read_calibration(folder)
    return ServedModel(
        name,
        path,
        config.purpose,
        code_of(source),
        code_of(target),
        created,
        scores,
        languages=tuple(choice.overrides()),
        review_below=0.0 if calibration is None else calibration.review_below,
        normalise=Tokenizers.load(folder / "text").source.normaliser,
    )


def _name_from(path: Path) -> str:
    """The name of a model that was given without one: that of its run or folder."""
    parts = [part for part in path.resolve().parts if part not in ("model", path.anchor)] or ["model"]
    return (
        re.sub(r"[^A-Za-z0-9_-]+", "-", parts[-1].removesuffix(".zip").removesuffix(".gz").removesuffix(".arpa")).strip(
            "-_"
        )
        or "model"
    )
