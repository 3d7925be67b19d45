"""The languages of a model: those that it was trained on, or those that are chosen for a model of several.

A choice travels with the settings of a search, as `model.frame.source=en` and `model.frame.target=de`.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from seqloom.core.errors import UsageError
from seqloom.models.frames import FrameConfig
from seqloom.runs.config import RunConfig
from seqloom.text.languages import choose_code, find_language, is_known_language

_SOURCE, _TARGET = "model.frame.source=", "model.frame.target="


class LanguageChoice(NamedTuple):
    """What a user chose with --from and --to; None where nothing was chosen."""

    source: str | None = None
    target: str | None = None

    def overrides(self) -> list[str]:
        """The choice as settings."""
        pairs = ((_SOURCE, self.source), (_TARGET, self.target))
        return [name + language for name, language in pairs if language is not None]


def split_choice(overrides: Iterable[str]) -> tuple[LanguageChoice, list[str]]:
    """The languages among some settings, and the other settings."""
    choice, others = LanguageChoice(), []
    for override in overrides:
        if override.startswith(_SOURCE):
            choice = choice._replace(source=override.removeprefix(_SOURCE))
        elif override.startswith(_TARGET):
            choice = choice._replace(target=override.removeprefix(_TARGET))
        else:
            others.append(override)
    return choice, others


def with_languages(config: RunConfig, choice: LanguageChoice) -> RunConfig:
    """The settings of a model for these languages. A model of one pair refuses others."""
    if choice == LanguageChoice():
        return config
    frame = frame_of(config)
    known = config.data.source, config.data.target
    if frame is None or frame.scheme == "none":
        if config.purpose == "translator":
            _require_pair(choice, known, ("source", "target"))
        updated = config.model
    else:
        if frame.scheme == "named_in_source":
            _require_pair(choice, known, ("source",))
        updated = config.model.model_copy(update={"frame": frame.chosen(*choice)})
    pair = [_short(given) if given else before for given, before in zip(choice, known, strict=True)]
    data = config.data.model_copy(update={"source": pair[0], "target": pair[1]})
    return config.model_copy(update={"model": updated, "data": data})


def frame_of(config: RunConfig) -> FrameConfig | None:
    """What a model reads around its texts, if it was published by others."""
    frame = getattr(config.model, "frame", None)
    return frame if isinstance(frame, FrameConfig) else None


def _require_pair(choice: LanguageChoice, known: Sequence[str | None], sides: Sequence[str]) -> None:
    """Refuse languages that contradict those of a model."""
    for side, flag, given, own in zip(LanguageChoice._fields, ("--from", "--to"), choice, known, strict=True):
        if side not in sides or not given or not own:
            continue
        try:
            choose_code(given, [own])
        except UsageError:
            raise UsageError(
                f"{flag} {given}: this model translates from {known[0] or '?'} to {known[1] or '?'} only; leave out "
                f"{flag}, or use a model of several languages"
            ) from None


def _short(language: str) -> str:
    """A code of two letters where the language has one."""
    return find_language(language).code if is_known_language(language) else language
