"""Text in, text out: a loaded translator with its tokenisers and search."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import UInt8

from seqloom.apps.alignments import Alignment, align_parts
from seqloom.apps.backends import FusedLanguageModel, NetworkBackend, backend_for, why_alone
from seqloom.apps.language_model import load_language_model
from seqloom.apps.request import ConstraintSet, Request, constraint_of, part_constraints
from seqloom.apps.search_settings import device_of, resolved, search_with, settings_for
from seqloom.core.arguments import (
    as_lines,
    as_text,
    as_whole_number,
    require_callable,
)
from seqloom.core.errors import DataError, ModelError, Problem, UsageError, warn
from seqloom.core.symbols import END, UNKNOWN
from seqloom.metrics.calibration import Calibration
from seqloom.runs.config import BuildsModel
from seqloom.runs.languages import split_choice
from seqloom.runs.loading import Loaded, load, load_translator, require_loaded, require_translator
from seqloom.runs.readers import require_reader
from seqloom.runs.translator import (
    LINES_AT_ONCE,
    NO_ATTENTION,
    Part,
    ended_at_limit,
    join,
    limit_message,
    line_counter,
    make_parts,
    mean_log_prob,
    source_batch,
    words_of,
)
from seqloom.search.decode import decode
from seqloom.search.driver import Cancellation
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.search.trace import Recorder, Trace
from seqloom.text.glossary import Glossary
from seqloom.text.normalise import is_blank
from seqloom.text.tags import Tagged, place_tags, take_out
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.translation_memory import MemoryMatch


class PartListener(Protocol):
    """Is called for lines that exceed the model's limit and are translated in parts."""

    def cut(self, line: int, parts: int) -> None:
        """Before the search: the line of this number, counted from 0, has so many parts."""
        ...

    def parts_done(self, done: int, everything: int) -> None:
        """During the search: so many parts of those that are searched together; a short line is one part."""
        ...


@dataclass(frozen=True)
class Translation:
    """One translation of a line. An empty line has the empty translation, and no score."""

    text: str
    score: float | None
    hypotheses: tuple[Hypothesis, ...] = ()
    """What was found for each part of the line; a line has several parts only where it is longer than the limit."""
    source_pieces: tuple[str, ...] = ()
    """The source as the model saw it, END included, where pieces were requested."""
    target_pieces: tuple[str, ...] = ()
    alignment: Alignment | None = None
    """Which words translate which, where that was requested."""
    confidence: float | None = None
    """How good it probably is, from 0 to 1: see `seqloom.metrics.calibration`. None where nothing was searched."""
    is_calibrated: bool = False
    """Whether its confidence is the chrF that such translations reached on dev text, and not just a probability."""
    matches: tuple[MemoryMatch, ...] = ()
    """What a translation memory has for the line, if one was used: the unit of the same text, or similar ones."""

    @property
    def hit_limit(self) -> bool:
        """Whether it may be incomplete because the search of a part ended at the maximum output length."""
        return ended_at_limit(self.hypotheses)


@dataclass(frozen=True)
class Watched:
    """A recorded search: its translations, every candidate, and how symbols are written."""

    translations: tuple[Translation, ...]
    trace: Trace
    pieces: Callable[[int], str]


class Translator:
    """Translates lines of text.

    translator = Translator.load("run/model")
    translator.translate(["Guten Morgen."])
    """

    def __init__(
        self,
        loaded: Loaded,
        companions: Sequence[Loaded] = (),
        *,
        fused: FusedLanguageModel | None = None,
    ) -> None:
        """One model, or several that decide together: the mean of their log-probabilities, renormalised.

        `fused` is a language model of the target vocabulary that is added to them (`fused_language_model`).
        """
        companions = require_loaded(loaded, companions, caller="Translator")
        for each in (loaded, *companions):
            require_translator(each.folder, each.config)
        for companion in companions:
            if companion.tokenizers != loaded.tokenizers:
                raise UsageError(
                    f"{companion.folder} has another vocabulary than {loaded.folder}; models that translate together "
                    f"must share their tokenisers: train the second with data.tokenizers_from={loaded.folder}"
                )
        self.loaded = loaded
        self.config = loaded.config.model_copy(update={"search": loaded.search_settings()})
        self.tokenizers, self.card = loaded.tokenizers, loaded.card
        self.source_language = loaded.card.source
        """None if it is not known."""
        self.longest = loaded.config.data.longest
        """Tokens of a source sentence, END included, up to which it is not split."""
        self._backend = backend_for(loaded, companions, fused)
        self.calibration = None if self._backend.is_several else loaded.calibration
        """What confidences are computed with. Models that decide together have other probabilities than the first."""
        self._members = [each.summary() for each in (loaded, *companions)]

    @staticmethod
    def load(
        folder: Path | str,
        *,
        device: str | None = None,
        model: BuildsModel | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> "Translator":
        """Read a model directory, or that of a run; `model` are the settings of a model from outside the package.

        `source` and `target` choose the languages of a model that knows several, such as "en" and "de".
        """
        return Translator(load_translator(folder, device=device, model=model, source=source, target=target))

    def __repr__(self) -> str:
        return f"Translator({', with '.join(self._members)})"

    @property
    def can_attend(self) -> bool:
        """False if it has no attention, so that neither words can be aligned nor tags placed by their words."""
        return self._backend.can_attend

    def translate(
        self, lines: Iterable[str], *, search: SearchConfig | Mapping[str, Any] | None = None, **changes: Any
    ) -> list[str]:
        """One translation per line, in order; a blank line stays blank.

        `changes` are settings of `SearchConfig` for this call, such as `translate(lines, beam=8)`; a mapping as
        `search` does the same. A SearchConfig replaces all settings of the model.
        """
        settings = search_with(self.loaded.config.search, search, changes, method=self.translate)
        best = [found[0] for found in self.run(as_lines(lines, "translate"), Request(settings))]
        if ended := sum(each.hit_limit for each in best):
            warn(limit_message(ended, len(best)))
        return [each.text for each in best]

    def search(
        self,
        lines: Iterable[str],
        *,
        search: SearchConfig | Mapping[str, Any] | None = None,
        attention: bool = False,
        align: bool = False,
        tags: bool = False,
        constraints: ConstraintSet | Sequence[ConstraintSet | None] | None = None,
        glossary: Glossary | None = None,
        dictionary: Mapping[str, str] | None = None,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: PartListener | None = None,
        **changes: Any,
    ) -> list[list[Translation]]:
        """The best translations of each line, best first: `nbest` of them where the search finds as many.

        Of a beam's translations with the same text, the best is kept; samples are returned as they were drawn. See
        `Request` for the arguments up to `dictionary` (`attention` returns attention and pieces), and `run` for the
        others. `changes` are settings of `SearchConfig`.
        """
        request = Request(
            search_with(self.loaded.config.search, search, changes, method=self.search),
            constraints=constraints,
            glossary=glossary,
            dictionary=dictionary,
            align=align,
            tags=tags,
            pieces=attention,
        )
        given = as_lines(lines, "search")
        first = as_whole_number(first, "first", least=0)
        require_callable(progress, "progress")
        return self.run(given, request, first=first, progress=progress, watch=watch)

    def run(
        self,
        lines: Sequence[str],
        request: Request,
        *,
        first: int = 0,
        progress: Callable[[int], None] = lambda _lines: None,
        watch: PartListener | None = None,
        is_cancelled: Callable[[int], bool] | None = None,
        on_dropped: Callable[[int], None] = lambda _rows: None,
        stop: UInt8[np.ndarray, "1"] | None = None,
    ) -> list[list[Translation]]:
        """Fulfil a request: the best translations of each line, best first.

        Lines of a longer text are numbered from `first`, so that random draws and messages do not depend on how it is
        divided into calls. `progress` gets the number of lines that were finished, `watch` those that are split.

        `is_cancelled` is called with the index in `lines` of each line that is being searched, at each step. A line for
        which it returns True has no translations, and its rows leave the batch before the next step; other lines are
        translated as if it were still there. `on_dropped` gets the number of rows that leave so. A thread that changes
        the answer of `is_cancelled` may set `stop` to 1 afterwards; with it, compiled code can take several steps at
        once, which is quicker, and ends with the step that it is computing.
        """
        settings = self.loaded.search_settings(request.search)
        self._backend.require(request, settings)
        glossary = None if request.glossary is None else request.glossary.read_by(self.tokenizers.source)
        constraints = request.line_constraints(len(lines))
        if glossary is not None or any(each is not None for each in constraints):
            settings = self.with_own_rules(settings)
        bare = [take_out(line) for line in lines] if request.tags else []
        plain = [each.plain for each in bare] if request.tags else lines
        render = _Render(self.tokenizers, settings, request, self.calibration)
        with_attention = self._backend.attention_reader(settings) if render.may_need_attention else None
        if (request.align or request.tags) and not self._backend.can_attend:
            raise UsageError(NO_ATTENTION)
        results: list[list[Translation]] = []
        for begin in range(0, len(plain), LINES_AT_ONCE):
            some = plain[begin : begin + LINES_AT_ONCE]
            parts = self._parts(some, settings, first=first + begin)
            by_line: list[list[int]] = [[] for _ in some]
            for at, part in enumerate(parts):
                by_line[part.line].append(at)
            if watch is not None and settings.split == "long":
                for line, places in enumerate(by_line):
                    if len(places) > 1:
                        watch.cut(begin + line, len(places))
            on_batch = _reporter(parts, len(some), progress, watch)
            by_part = part_constraints(parts, constraints[begin : begin + LINES_AT_ONCE], glossary)
            cancellation = None
            if is_cancelled is not None:
                lines_of_parts = [begin + part.line for part in parts]
                cancellation = Cancellation(is_cancelled, on_dropped, stop).for_batch(lines_of_parts)
            found = self._backend.search(parts, settings, by_part, on_batch=on_batch, cancellation=cancellation)
            is_aligned = [request.align or bool(bare and bare[begin + line].nodes) for line in range(len(some))]
            if with_attention is not None:
                found = with_attention(parts, found, render.needs_attention(by_line, found, is_aligned))
            for line, places in enumerate(by_line):
                is_whole = all(found[at] for at in places)  # a part of a cancelled line has no hypotheses
                lists = [found[at] for at in places]
                whole = render.line([parts[at] for at in places], lists, align=is_aligned[line]) if is_whole else []
                results.append(whole)

        def tagged(translation: Translation, line: Tagged) -> Translation:
            known, normalise = translation.alignment or Alignment.empty(), self.tokenizers.source.normaliser
            spans, links = known.target_spans, known.links
            placed = place_tags(line, translation.text, target_spans=spans, links=links, normalise=normalise)
            return replace(translation, text=placed.text)

        if not request.tags:
            return results
        return [
            [tagged(each, line) for each in found] if line.nodes else found
            for found, line in zip(results, bare, strict=True)
        ]

    def score(self, sources: Iterable[str], targets: Iterable[str], *, first: int = 1) -> list[float | None]:
        """log P(target | source) of each given pair, the end symbol included; None where a side is blank.

        Models that decide together score together. A fitted model gives its score, −inf for a translation that it
        cannot produce. Pairs are numbered from `first` in messages. One with more than `MAX_SCORED_TOKENS` tokens on a
        side is refused: memory grows with the square of its length, and a sum over parts would be another number. So
        is one that a table of positions is too short for.
        """
        sources, targets = as_lines(sources, "score"), as_lines(targets, "score")
        if len(sources) != len(targets):
            raise UsageError(f"got {len(sources)} sources and {len(targets)} targets; give as many of both")
        wanted = [at for at in range(len(sources)) if not (is_blank(sources[at]) or is_blank(targets[at]))]
        encoded = self.tokenizers.source.encode_many([sources[at] for at in wanted])
        parts = [Part(at, sources[at], [*ids, END], key=at) for at, ids in zip(wanted, encoded, strict=True)]
        ids_of_targets = self.tokenizers.target.encode_many([targets[at] for at in wanted])
        problems = [
            Problem(
                f"line {first + part.line} has {count:,} tokens on a side; at most {most:,} can be scored, so split it"
            )
            for part, ids in zip(parts, ids_of_targets, strict=True)
            for count, most in zip((len(part.ids), len(ids) + 1), self._backend.max_tokens, strict=True)
            if count > most
        ]
        if problems:
            raise DataError(problems=problems)
        scores: list[float | None] = [None] * len(sources)
        tokens_per_batch = self.config.search.tokens_per_batch
        found = self._backend.scores(parts, ids_of_targets, tokens_per_batch=tokens_per_batch)
        for at, value in zip(wanted, found, strict=True):
            if math.isnan(value):
                raise ModelError(
                    f"the model gives no number (NaN) for log P of line {first + at}; its weights are not "
                    "finite: train it again with a lower training.learning_rate, or download an imported one again"
                )
            scores[at] = value
        return scores

    def unknown_rate(self, lines: Sequence[str]) -> float:
        """Share of unknown source tokens."""
        encoded = self.tokenizers.source.encode_many(as_lines(lines, "unknown_rate"))
        ids = [id for line in encoded for id in line]
        return ids.count(UNKNOWN) / max(1, len(ids))

    def watch(
        self,
        line: str,
        *,
        search: SearchConfig | Mapping[str, Any] | None = None,
        constraints: ConstraintSet | None = None,
        **changes: Any,
    ) -> Watched:
        """Translate a line by beam search and record every candidate. It must not exceed the model's limit."""
        if not isinstance(self._backend, NetworkBackend):
            kind = self.config.model.kind
            raise UsageError(f"the search of a model of kind {kind} cannot be watched: it does not write step by step")
        settings = search_with(self.loaded.config.search, search, changes, method=self.watch)
        settings = self.with_own_rules(self.loaded.search_settings(settings))
        given = Request(constraints=constraints).line_constraints(1)
        parts = self._parts([as_text(line, "line")], settings)
        if len(parts) != 1:
            raise UsageError(
                f"a search can be watched for one sentence, but this line has {len(parts)} parts of at most "
                f"{self.longest} tokens; give a line that is neither blank nor longer"
            )
        recorder = Recorder()
        render = _Render(self.tokenizers, settings, Request(), self.calibration)
        core = self._backend.part_search(settings, given)
        source = source_batch([parts[0].ids], self.loaded.device)
        with torch.inference_mode():
            (found,) = decode(
                core.stepper([0]),
                source,
                settings,
                constraints=core.bound(parts, source, [constraint_of(given[0], self.tokenizers.target)]),
                recorder=recorder,
                show=core.show,
            )
        if render.may_need_attention:
            needed = render.needs_attention([[0]], [found], [False])
            (found,) = self._backend.attention_reader(settings)(parts, [found], needed)
        return Watched(
            tuple(render.line(parts, [found], align=False)), recorder.traces(1)[0], self.tokenizers.target.piece
        )

    def with_own_rules(self, settings: SearchConfig) -> SearchConfig:
        """A published model is searched by the rules of its library, which have no constraints and record nothing."""
        is_published = "imported" in self.card.trained_on
        return settings.with_own_rules() if is_published and settings.mode == "huggingface" else settings

    def _parts(self, lines: Sequence[str], settings: SearchConfig, *, first: int = 0) -> list[Part]:
        return make_parts(lines, self.tokenizers.source, limit=self.longest, split=settings.split, first=first)


@dataclass(frozen=True)
class _Render:
    """Makes translations of hypotheses."""

    tokenizers: Tokenizers
    settings: SearchConfig
    request: Request
    calibration: Calibration | None

    @property
    def may_need_attention(self) -> bool:
        return self.request.pieces or self.request.align or self.request.tags or self.settings.unknown == "copy"

    def needs_attention(
        self, by_line: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]], is_aligned: Sequence[bool]
    ) -> list[tuple[int, int]]:
        """The hypotheses whose attention is used, by the place of their part, and their rank."""
        is_copied = self.settings.unknown == "copy"
        return [
            (at, rank)
            for places, align in zip(by_line, is_aligned, strict=True)
            for at in places
            for rank, each in enumerate(found[at] if self._returns_all(places) else found[at][:1])
            if align or self.request.pieces or (is_copied and UNKNOWN in each.symbols)
        ]

    def _returns_all(self, parts: Sequence[object]) -> bool:
        """Whether all hypotheses of the parts of a line are returned, not only the best of each."""
        # Samples of the parts are independent, so together they are a sample of the line; ranks cannot be combined so.
        return len(parts) == 1 or self.settings.method == "sample"

    def line(self, parts: Sequence[Part], found: Sequence[list[Hypothesis]], *, align: bool) -> list[Translation]:
        """The translations of a line out of those of its parts: of several parts of a beam, the best of each."""
        if not parts:
            return [Translation("", None, alignment=Alignment.empty() if align else None)]
        ways = list(zip(*found, strict=True)) if self._returns_all(parts) else [tuple(s[0] for s in found)]
        return [self._joined(parts, way, align=align) for way in ways]

    def _joined(self, parts: Sequence[Part], hypotheses: Sequence[Hypothesis], *, align: bool) -> Translation:
        source, target = self.tokenizers.source, self.tokenizers.target
        unknown, dictionary = self.settings.unknown, self.request.dictionary
        words = [
            words_of(part, each, self.tokenizers, unknown=unknown, dictionary=dictionary, align=align)
            for part, each in zip(parts, hypotheses, strict=True)
        ]
        texts = [
            target.decode(each.symbols) if found is None else found.target
            for each, found in zip(hypotheses, words, strict=True)
        ]
        joined = join(texts, inside_word=[part.is_inside_word for part in parts])
        is_shown = self.request.pieces and len(parts) == 1
        log_prob = mean_log_prob(hypotheses)
        confidence = None if log_prob is None else math.exp(min(0.0, log_prob))  # weighted features may be above 0
        if log_prob is not None and self.calibration is not None:
            confidence = self.calibration.confidence(log_prob, is_cut=ended_at_limit(hypotheses))
        return Translation(
            text=joined.text,
            score=sum(each.score for each in hypotheses),
            hypotheses=tuple(hypotheses),
            source_pieces=tuple(source.piece(id) for id in parts[0].ids) if is_shown else (),
            target_pieces=tuple(target.piece(id) for id in hypotheses[0].symbols) if is_shown else (),
            alignment=align_parts([each for each in words if each], joined.starts) if align else None,
            confidence=confidence,
            is_calibrated=self.calibration is not None,
        )


def open_translator(
    folder: Path,
    overrides: Sequence[str] = (),
    *,
    companions: Sequence[Path] = (),
    fuse: tuple[Path, float] | None = None,
) -> Translator:
    """A model with other search settings, languages or another device, and models that decide with it.

    `fuse` names a language model of the target vocabulary that is added, and its weight.
    """
    config = settings_for(folder, overrides)  # before the weights are read
    device = device_of(overrides)
    (source, target), _ = split_choice(overrides)
    for other in companions:
        of_other = resolved(other, [])
        if of_other.purpose == "language model":
            raise UsageError(f"{other} is a language model, and --with takes translators; add it with --fuse {other}")
        if of_other.model.is_fitted:
            raise UsageError(why_alone(other, of_other))
    if config.model.is_fitted and (companions or fuse is not None):
        raise UsageError(why_alone(folder, config))
    loaded = load_translator(folder, device=device, source=source, target=target)
    fused = None if fuse is None else fused_language_model(loaded, *fuse)
    others = [load(other, device=device, source=source, target=target) for other in companions]
    return Translator(replace(loaded, config=config), others, fused=fused)


def fused_language_model(loaded: Loaded, folder: Path, weight: float) -> FusedLanguageModel:
    """The language model in `folder`, for fusion with a translator, whose target vocabulary it must share."""
    language_model = load_language_model(folder, device=str(loaded.device))
    reader = require_reader(language_model)
    if language_model.tokenizers.target != loaded.tokenizers.target:
        raise UsageError(
            f"{folder} has another vocabulary than the target side of {loaded.folder}, so the two cannot be fused; "
            "train a language model with the tokenisers of the translator: seqloom train model.kind=ngram "
            f"--train TEXT --out LM data.tokenizers_from={loaded.folder}"
        )
    return FusedLanguageModel(reader.stepper(), weight)


def _reporter(
    parts: Sequence[Part], lines: int, progress: Callable[[int], None], watch: PartListener | None
) -> Callable[[Sequence[int]], None]:
    """What is called with the places of the parts of each batch."""
    count_lines, done = line_counter(parts, lines, progress), 0

    def on_batch(places: Sequence[int]) -> None:
        nonlocal done
        count_lines(places)
        done += len(places)
        if watch is not None:
            watch.parts_done(done, len(parts))

    return on_batch
