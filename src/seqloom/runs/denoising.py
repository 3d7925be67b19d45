"""What a denoising run adds to one on plain text: the symbols of its languages, its sizes, and a translator's start.

Texts of several languages are told apart by the names of their files (`news.de`, `news.en`). Each language then has a
symbol, with which its lines begin (`tasks.denoising`), and a part of its own text is held out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from seqloom.core.declaration import DataFacts, Reason, TextFacts
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.symbols import END, RESERVED
from seqloom.data.corpus_files import language_of
from seqloom.data.plain_text import Encode, TextCorpus, TextLine
from seqloom.models.frames import FrameConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.sizing import Sizing, choose_sizes
from seqloom.tasks.denoising import marks_of_noise, noise_of
from seqloom.tasks.settings import DenoisingConfig, QuestionAnswerConfig
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer, Tokenizers

DROPOUT_RATE = 0.1
"""Light dropout: the noise is new in every epoch, so a text is hardly learned by heart."""


# --- sizes ------------------------------------------------------------------------------------------------------------


def sizes_for(config: RunConfig, facts: TextFacts) -> Sizing:
    """Sizes for such a text, given the settings that were set: those of a translator with as many pairs."""
    text, training, lines = config.text, config.training, max(1, facts.lines)
    characters, words = facts.characters / lines, facts.words / lines
    sizing = choose_sizes(
        DataFacts(lines, characters, characters, are_unspaced=False, source_words=words, target_words=words),
        config.model,
        steps=training.steps if "steps" in training.model_fields_set else None,
        pieces=text.kind if "kind" in text.model_fields_set else None,
        vocabulary=text.size if "size" in text.model_fields_set else None,
    )
    defaults, tokens = sizing.defaults, sizing.defaults["data"]["tokens_per_batch"]
    model = {**defaults["model"], "dropout_rate": DROPOUT_RATE}
    others = [
        reason for reason in sizing.reasons if not {"data.tokens_per_batch", "model.dropout_rate"} & {*reason.paths}
    ]
    return Sizing(
        {**defaults, "data": {}, "model": model, "task": {"kind": "denoising", "tokens_per_batch": tokens}},
        sizing.summary.replace(" pairs", " lines", 1).replace(" on the longer side", ""),
        (
            *others,
            Reason(("model.dropout_rate",), f"dropout {DROPOUT_RATE:g}: the noise is new in every epoch"),
            Reason(("task.tokens_per_batch",), f"batches of {tokens:,} tokens"),
        ),
    )


# --- languages --------------------------------------------------------------------------------------------------------


def with_languages(sizing: Sizing, config: RunConfig, corpus: TextCorpus) -> Sizing:
    """The same sizes with symbols of the languages of a text, if it has several and the model can read them."""
    codes = _codes(config, corpus)
    languages = list(dict.fromkeys(code for code in codes if code is not None))
    if len(languages) < 2 or not isinstance(getattr(config.model, "frame", None), FrameConfig):
        return sizing
    if None in codes:
        raise UsageError(
            f"the language of {corpus.paths[codes.index(None)]} is unknown, and other texts are in "
            f"{' and '.join(languages)}; name all files by their languages, as in news.de and news.en"
        )
    # Marks are the first pieces after the reserved ones.
    symbols = {code: number for number, code in enumerate(languages, start=len(RESERVED))}
    frame = FrameConfig(target_before=(), scheme="before", languages=symbols, source=languages[0], target=languages[-1])
    model = {**sizing.defaults["model"], "frame": frame.model_dump(mode="json")}
    return replace(sizing, defaults={**sizing.defaults, "model": model})


def _codes(config: RunConfig, corpus: TextCorpus) -> list[str | None]:
    """The language of each file."""
    return [config.data.target or language_of(path) for path in corpus.paths]


def languages_of(config: RunConfig) -> dict[str, int]:
    """The languages of a run with their symbols; none in text of one language."""
    frame = getattr(config.model, "frame", None)
    # Published models of several languages read other symbols around their texts as well.
    if not isinstance(frame, FrameConfig) or frame.scheme != "before" or frame.target_before:
        return {}
    return dict(sorted(frame.languages.items(), key=lambda item: item[1]))


def marks_of(config: RunConfig) -> tuple[str, ...]:
    """Pieces that are no text: the languages, and what the noise needs."""
    assert isinstance(config.task, DenoisingConfig)
    return (*(f"<language {code}>" for code in languages_of(config)), *marks_of_noise(config.task))


def line_beginnings(config: RunConfig, corpus: TextCorpus) -> list[list[int]]:
    """The ids that the lines of each file begin with."""
    symbols = languages_of(config)
    if not symbols:
        return [[] for _ in corpus.paths]
    for path, code in zip(corpus.paths, codes := _codes(config, corpus), strict=True):
        if code not in symbols:
            raise UsageError(
                f"{path} is in {code or 'an unknown language'}, and the model has symbols of {', '.join(symbols)}; "
                "name the file by one of these languages, or train a new model on all texts"
            )
    return [[symbols[code]] for code in codes if code is not None]


def require_symbols(config: RunConfig, tokenizers: Tokenizers) -> None:
    """Refuse tokenisers that lack what the task needs: one vocabulary, symbols of the noise and of the languages."""
    assert isinstance(config.task, DenoisingConfig)
    tokenizer = tokenizers.target
    if not tokenizers.is_shared:
        raise UsageError(
            "task.kind=denoising reads and writes the same text, and source and target have different vocabularies; "
            "start from a model with one, or train a new one"
        )
    noise_of(config.task, tokenizer)
    for code, symbol in languages_of(config).items():
        if tokenizer.piece(symbol) != f"<language {code}>":
            raise UsageError(
                f"the tokeniser ({tokenizer.kind}, {tokenizer.size:,} pieces) has no symbol of the language {code}; "
                "leave out data.tokenizers_from"
            )


# --- lines ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FileEnds:
    """The ends of the files of a text, or all before them: so each language has its part of the held-out lines."""

    text: TextCorpus
    held_out: int
    """Lines of all ends, which are shared out in proportion to the lines of the files."""
    is_end: bool

    @property
    def _borders(self) -> list[int]:
        """Lines of each file before its end."""
        sizes = np.array(self.text.sizes)
        ends = np.diff(np.round(np.cumsum(sizes) * self.held_out / sizes.sum()), prepend=0)
        return [int(border) for border in sizes - ends]

    def __len__(self) -> int:
        return self.held_out if self.is_end else len(self.text) - self.held_out

    def __iter__(self) -> Iterator[TextLine]:
        borders, seen = self._borders, [0] * len(self.text.sizes)
        for line in self.text:
            if (seen[line.file] >= borders[line.file]) == self.is_end:
                yield line
            seen[line.file] += 1


def require_answers(config: RunConfig, corpus: TextCorpus) -> None:
    """Refuse lines that are not a question and its answer, if the noise needs them."""
    if not has_answers(config):
        return
    problems = [
        Problem(f"expected a question, a tab and its answer, found {line.text[:40]!r}", corpus.place(line.number))
        for line in corpus
        if not is_blank(line.text) and [is_blank(part) for part in line.text.split("\t")] != [False, False]
    ]
    if problems:
        raise DataError(problems=problems[:5], more=max(0, len(problems) - 5))


def has_answers(config: RunConfig) -> bool:
    """Whether a line is a question and its answer."""
    return isinstance(config.task, DenoisingConfig) and isinstance(config.task.noise, QuestionAnswerConfig)


def encoder_for(config: RunConfig, tokenizer: Tokenizer) -> Encode:
    """How lines become ids: those of a question and of its answer have an END between them."""
    if not has_answers(config):
        return tokenizer.encode_many

    def encode(texts: list[str]) -> list[list[int]]:
        sides = [text.partition("\t") for text in texts]
        questions, answers = (tokenizer.encode_many([side[at] for side in sides]) for at in (0, 2))
        return [[*one, END, *other] if one or other else [] for one, other in zip(questions, answers, strict=True)]

    return encode


# --- a translator's start ---------------------------------------------------------------------------------------------


def translator_settings(start: RunConfig, defaults: Mapping[str, Any], *, origin: str) -> dict[str, Any]:
    """Settings of a translator that starts from the model of a denoising run, where they differ from those there.

    `defaults` are those that were chosen for the pairs: their languages, and the dropout that suits so many.
    """
    known, marks = languages_of(start), marks_of(start)
    found: dict[str, Any] = {}
    if "dropout_rate" in defaults.get("model", {}):
        found["dropout_rate"] = defaults["model"]["dropout_rate"]
    if start.text.kind != "published" and "absent" in type(start.model).model_fields:
        found["absent"] = list(range(len(RESERVED), len(RESERVED) + len(marks)))
    if known:
        sides: Sequence[str | None] = [defaults.get("data", {}).get(side) for side in ("source", "target")]
        frame = getattr(start.model, "frame", None)
        assert isinstance(frame, FrameConfig)
        try:
            found["frame"] = frame.chosen(*sides).model_dump(mode="json")
        except UsageError as error:
            raise UsageError(
                f"training.start_from={origin} was trained on texts in {', '.join(known)}, but the pairs are in "
                f"{' and '.join(side or 'an unknown language' for side in sides)}; give the right ones, as in "
                "data.source=de, or set model.frame.scheme=none to do without the symbols of languages"
            ) from error
    return found
