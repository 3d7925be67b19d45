"""The core of a translator: lines are encoded, searched in batches of similar length, and decoded.

Training measures its dev text with it. What a request may add (constraints, glossaries, tags, alignments, several
models) is in `seqloom.apps.translator`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import nn

from seqloom.core.declaration import StepperOption
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import PAD
from seqloom.metrics.translation import Chrf
from seqloom.models.protocols import TranslationModel
from seqloom.nn.fast.int8 import with_int8
from seqloom.nn.fast.shortlist import Shortlister
from seqloom.runs.loading import LoadedModel
from seqloom.runs.long_lines import Part, join, make_parts
from seqloom.runs.word_attention import words_of
from seqloom.search.candidates import DeadEnd
from seqloom.search.constraints import Constraint
from seqloom.search.decode import decode
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.rerank import most_agreeing, posteriors, without_duplicates
from seqloom.search.settings import SearchConfig
from seqloom.text.tokenizer import Tokenizer

LINES_AT_ONCE = 2_000
"""Lines read, sorted by length and translated together: enough to fill batches, few enough to answer early."""

MAX_SCORE_BYTES = 12 << 20
"""Bytes that the scores of one step may take: what fits into a cache is read again at once, and from 32 MiB on, the C
library requests new memory from the system each time and returns it, which takes longer than filling it."""

MAX_SHORTLIST_BYTES = 32 << 20
"""Bytes that the rows of the output that belong to the shortlists of a batch may take: more would not stay in a cache
from one step to the next."""

SYMBOLS_PER_TRANSLATION = 10
"""Symbols in the shortlist of a sentence, roughly, for each requested translation of a source symbol."""

MAX_SHOWN_CHARACTERS = 80
"""Characters of a phrase or prefix in a message."""

MIN_JUDGED = 5
"""Translations from which on it can be judged whether the model has learned to end its outputs."""


@dataclass(frozen=True)
class PartSearch:
    """Searches for the translations of parts of lines.

    `stepper` gives the model for the parts of a batch, by their places.
    """

    target: Tokenizer
    device: torch.device
    settings: SearchConfig
    sentences_at_once: int
    """The most parts of a batch, whatever their lengths."""
    stepper: Callable[[Sequence[int]], Stepper]

    @torch.inference_mode()
    def __call__(
        self,
        parts: Sequence[Part],
        *,
        constraints: Sequence[Constraint | None] | None = None,
        on_batch: Callable[[Sequence[int]], None] = lambda _places: None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each part, best first; `on_batch` gets the places of the parts that are done."""
        found: list[list[Hypothesis]] = [[] for _ in parts]
        lengths = [len(part.ids) for part in parts]
        tokens = self.settings.tokens_per_batch
        for batch in batches_by_length(lengths, tokens, max_rows=self.sentences_at_once):
            source = source_batch([parts[at].ids for at in batch], self.device)
            bound = None if constraints is None else [constraints[at] for at in batch]
            keys = [parts[at].key for at in batch]
            try:
                searched = decode(
                    self.stepper(batch), source, self.settings, constraints=bound, keys=keys, show=self.show
                )
            except DeadEnd as error:
                raise ModelError(f"line {parts[batch[error.sentence]].number} {error.reason}") from error
            for at, hypotheses in zip(batch, searched, strict=True):
                found[at] = self._chosen(hypotheses)
            on_batch(batch)
        return found

    def _chosen(self, hypotheses: list[Hypothesis]) -> list[Hypothesis]:
        """What is returned, in its order: samples as they were drawn, of a beam those that read differently."""
        settings = self.settings
        if settings.nbest == 1:
            return hypotheses
        texts = [self.target.decode(each.symbols) for each in hypotheses]
        if settings.rerank == "agreement":
            # Samples occur as often as they are probable, so all have the same weight; in an n-best list, their P.
            weights = [1.0] * len(texts) if settings.method == "sample" else posteriors(hypotheses)
            (agreement,) = most_agreeing([texts], _chrf, weights=[weights])
            order = sorted(range(len(texts)), key=lambda at: -agreement.expected[at])
            # The order is no longer that of the scores, so the proof that nothing better exists no longer applies.
            hypotheses = [replace(hypotheses[at], is_complete=False) for at in order]
        if settings.method == "sample":
            return hypotheses
        return without_duplicates(hypotheses, text=lambda each: self.target.decode(each.symbols))

    def show(self, symbols: Sequence[int]) -> str:
        """Symbols as they are written in messages."""
        text = self.target.decode(symbols)
        return repr(text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…")


@dataclass(frozen=True)
class BestTranslations:
    """The best translation of each line."""

    texts: list[str]
    cut: int
    """How many of them ended at the maximum output length."""


def translate_lines(
    loaded: LoadedModel, lines: Sequence[str], *, progress: Callable[[int], None] = lambda _lines: None
) -> BestTranslations:
    """Translate with the search settings of a model; `progress` gets the number of lines that were finished."""
    settings, tokenizers = loaded.search_settings(), loaded.tokenizers
    target, unknown = tokenizers.target, settings.unknown
    model = with_int8(loaded.model) if settings.precision == "int8" else loaded.model
    attention = settings.coverage > 0 or unknown == "copy"
    search = PartSearch(
        target,
        loaded.device,
        settings,
        sentences_at_once(loaded, settings),
        stepper=lambda _batch: model_stepper(model, attention=attention, heads=settings.heads),
    )
    texts: list[str] = []
    cut = 0
    for begin in range(0, len(lines), LINES_AT_ONCE):
        some = lines[begin : begin + LINES_AT_ONCE]
        limit = loaded.config.data.longest
        parts = make_parts(some, tokenizers.source, limit=limit, split=settings.split, first=begin)
        by_line: list[list[int]] = [[] for _ in some]
        for at, part in enumerate(parts):
            by_line[part.line].append(at)
        found = search(parts, on_batch=line_counter(parts, len(some), progress))
        for places in by_line:
            best = [found[at][0] for at in places]
            words = [words_of(parts[at], found[at][0], tokenizers, unknown=unknown) for at in places]
            translations = [
                target.decode(each.symbols) if known is None else known.target
                for each, known in zip(best, words, strict=True)
            ]
            texts.append(join(translations, inside_word=[parts[at].is_inside_word for at in places]).text)
            cut += ended_at_limit(best)
    return BestTranslations(texts, cut)


def line_counter(parts: Sequence[Part], lines: int, progress: Callable[[int], None]) -> Callable[[Sequence[int]], None]:
    """Reports to `progress` how many lines were finished with each batch of parts; blank lines at once."""
    missing = [0] * lines  # parts still to be translated
    for part in parts:
        missing[part.line] += 1
    progress(missing.count(0))

    def on_batch(places: Sequence[int]) -> None:
        for at in places:
            missing[parts[at].line] -= 1
        progress(sum(missing[line] == 0 for line in {parts[at].line for at in places}))

    return on_batch


def model_stepper(
    model: nn.Module, *, attention: bool, heads: str = "mean", shortlist: Shortlister | None = None
) -> Stepper:
    """A model as a search sees it; settings that it cannot follow are refused."""
    options: frozenset[StepperOption] = getattr(model, "stepper_options", frozenset())
    chosen: dict[str, Any] = {"heads": heads, "shortlist": shortlist}
    if "heads" not in options and heads not in ("mean", "max"):
        raise UsageError(
            f"a {type(model).__name__} has one attention, so search.heads={heads} selects none; leave it out"
        )
    if "shortlist" not in options and shortlist is not None:
        raise UsageError(f"a {type(model).__name__} scores all its symbols; set search.shortlist=0")
    translator: Any = model
    stepper: Stepper = translator.stepper(attention=attention, **{name: chosen[name] for name in options})
    return stepper


def sentences_at_once(loaded: LoadedModel, settings: SearchConfig) -> int:
    """The most sentences whose scores are cheap to hold, whatever their lengths."""
    symbols = loaded.tokenizers.target.size
    if settings.shortlist:
        width = cast("TranslationModel", loaded.model).output.weight.shape[1]
        return max(1, MAX_SHORTLIST_BYTES // (4 * width * min(symbols, SYMBOLS_PER_TRANSLATION * settings.shortlist)))
    rows = settings.beam if settings.method == "beam" else settings.nbest
    return max(1, MAX_SCORE_BYTES // (4 * symbols * rows))


def batches_by_length(lengths: Sequence[int], tokens: int, *, max_rows: int | None = None) -> Iterator[list[int]]:
    """Places of items in batches of similar length, rows × longest within `tokens`, longest first."""
    order = sorted(range(len(lengths)), key=lambda at: -lengths[at])
    begin = 0
    while begin < len(order):
        rows = max(1, tokens // max(1, lengths[order[begin]]))
        rows = rows if max_rows is None else min(rows, max_rows)
        yield order[begin : begin + rows]
        begin += rows


def source_batch(sentences: Sequence[list[int]], device: torch.device) -> Source:
    """Sentences, END included, as a batch."""
    ids, lengths = padded(sentences)
    return Source(torch.from_numpy(ids).to(device), torch.from_numpy(lengths).to(device))


def padded(sentences: Sequence[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Ids with padding, [sentences, longest], and the lengths."""
    lengths = np.array([len(ids) for ids in sentences], dtype=np.int64)
    ids = np.full((len(sentences), int(lengths.max(initial=0))), PAD, dtype=np.int64)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = sentence
    return ids, lengths


def ended_at_limit(hypotheses: Sequence[Hypothesis]) -> bool:
    """Whether the search of one of the parts of a line ended at the maximum output length."""
    return any(each.hit_limit or not each.is_finished for each in hypotheses)


def limit_message(cut: int, total: int) -> str:
    """A message if so many of all translations ended at the maximum output length."""
    return f"{cut:,} of {total:,} translations ended at the maximum output length; {limit_advice(cut, total)}"


def limit_advice(cut: int, total: int) -> str:
    """What helps if so many of all translations ended at the maximum output length."""
    if total >= MIN_JUDGED and cut > total / 2:
        return "the model has probably not learned to end its outputs: train it for more steps"
    return "increase search.length_overrun if they are incomplete, train for more steps if they repeat themselves"


def _chrf(candidate: str, reference: str) -> float:
    return Chrf().statistics([candidate], [reference]).value
