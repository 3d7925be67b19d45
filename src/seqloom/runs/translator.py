"""The core of a translator: lines are cut into parts, searched in batches of similar length, decoded and joined.

Training measures its dev text with it. What a request may add (constraints, glossaries, tags, alignments, several
models) is in `seqloom.apps.translator`.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn

from seqloom.core.declaration import StepperOption
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.stepping import Source, Stepper
from seqloom.core.symbols import BEGIN, END, PAD, UNKNOWN
from seqloom.metrics.translation import Chrf
from seqloom.models.protocols import AttendsInOnePass, TranslationModel
from seqloom.nn.dropout import evaluating
from seqloom.nn.fast.int8 import with_int8
from seqloom.nn.fast.shortlist import Shortlister
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.search.candidates import DeadEnd
from seqloom.search.constraints import All, Brackets, Constraint
from seqloom.search.decode import decode
from seqloom.search.driver import Cancellation
from seqloom.search.ensemble import Ensemble
from seqloom.search.greedy import forced_search
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.rerank import most_agreeing, posteriors, without_duplicates
from seqloom.search.settings import SearchConfig, Split, Unknown
from seqloom.smt.pairs import SentenceSearch, SourceSentence, hard_attention
from seqloom.text.marks import UNSPACED
from seqloom.text.normalise import collapse_spaces, is_blank
from seqloom.text.sentences import clause_borders, pieces, sentence_borders
from seqloom.text.tokenizer import Tokenizer, Tokenizers, word_cutter
from seqloom.text.words import Span, decoded_spans, piece_spans, word_spans

LINES_AT_ONCE = 2_000
"""Lines read, sorted by length and translated together: enough to fill batches, few enough to answer early."""

PARTS_AT_ONCE = 100
"""Parts that a fitted model searches before the next progress is reported."""

MAX_SCORE_BYTES = 20 << 20
"""Bytes that the scores of one step may take: what fits into a cache is read again at once, and from 32 MiB on, the C
library requests new memory from the system each time and returns it, which takes longer than filling it."""

MAX_SHORTLIST_BYTES = 32 << 20
"""Bytes that the rows of the output that belong to the shortlists of a batch may take: more would not stay in a cache
from one step to the next."""

SYMBOLS_PER_TRANSLATION = 10
"""Symbols in the shortlist of a sentence, roughly, for each requested translation of a source symbol."""

MAX_ATTENTION_PAIRS = 1 << 17
"""Pairs of a target and a source position, padding included, whose attention one pass computes: additive attention has
a hidden layer for each of them, half a kilobyte to four. A longer hypothesis is read step by step."""

MAX_SHOWN_CHARACTERS = 80
"""Characters of a phrase or prefix in a message."""

NO_ATTENTION = (
    "this search returns no attention, so words cannot be aligned; use a model with attention, or align both texts "
    "with: seqloom align"
)

MIN_JUDGED = 5
"""Translations from which on it can be judged whether the model has learned to end its outputs."""


# --- parts: a line that exceeds the model's limit is split, translated in parts and joined again ----------------------
#
# sentences    every sentence end is a border
# clauses      a sentence that is too long is split at commas and colons, as many clauses to a part as fit
# words        a clause that is too long is split at spaces, likewise
# characters   only a word that is too long by itself is broken

_is_unspaced = re.compile(f"[{UNSPACED}]").match
# Thai and its neighbours have no space between words, but one between sentences.
_is_tight = re.compile(
    r"[\u2e80-\u312f\u31a0-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uff9f\U00020000-\U0003ffff]"
).match


@dataclass(frozen=True)
class Part:
    """A line, or a part of a line that is too long for the model."""

    line: int
    text: str
    ids: list[int]
    """Its source symbols, END included."""
    key: int
    """Seeds its random draws, so that they do not depend on what is translated with it."""
    is_inside_word: bool = False
    """Whether it continues the last word of the part before it."""

    @property
    def number(self) -> int:
        """The number of its line in the whole text, counted from 1."""
        return self.key // KEYS_PER_LINE + 1

    @property
    def is_first(self) -> bool:
        """Whether its line begins with it."""
        return self.key % KEYS_PER_LINE == 0


KEYS_PER_LINE = 2**32
"""Keys for the parts of one line: more than it can have."""


def make_parts(
    lines: Sequence[str], tokenizer: Tokenizer, *, limit: int, split: Split = "long", first: int = 0
) -> list[Part]:
    """The parts of all lines that are not blank, at most `limit` symbols each, END included.

    Lines are numbered from `first` in keys and messages.
    """
    visible = [number for number, line in enumerate(lines) if not is_blank(line)]
    encoded = tokenizer.encode_many([lines[number] for number in visible])
    parts: list[Part] = []
    for number, ids in zip(visible, encoded, strict=True):
        text, key = lines[number], (first + number) * KEYS_PER_LINE
        found: list[tuple[str, bool]] = []
        if len(ids) >= limit or split == "sentences":
            cut_up = cut(collapse_spaces(text), lambda piece: len(tokenizer.encode(piece)) < limit)
            found = [(piece, is_inside_word) for piece, is_inside_word in cut_up if not is_blank(piece)]
        if len(found) <= 1:
            parts.append(Part(number, text, [*ids, END], key))
            continue
        for at, (piece, is_inside_word) in enumerate(found):
            parts.append(Part(number, piece, [*tokenizer.encode(piece), END], key + at, is_inside_word))
    return parts


def cut(text: str, fits: Callable[[str], bool]) -> list[tuple[str, bool]]:
    """The sentences of a text, and finer pieces of those that do not fit; each with whether it begins inside a word."""
    return [
        piece
        for sentence in pieces(text, sentence_borders(text))
        for piece in _finer(sentence, fits, [clause_borders, _space_borders, _letter_borders])
    ]


def _finer(
    text: str, fits: Callable[[str], bool], ways: Sequence[Callable[[str], list[int]]]
) -> Iterator[tuple[str, bool]]:
    """As few pieces as fit, cut at the borders of the first way; those that do not fit are cut the next one."""
    if fits(text) or not ways:
        yield text, False
        return
    borders = [*ways[0](text), len(text)]
    begin = done = 0
    while done < len(borders):
        done = _farthest(lambda end: fits(text[begin : borders[end]]), done, len(borders))  # noqa: B023 - used at once
        piece = text[begin : borders[done - 1]]
        # A script without spaces between words has no words to break.
        is_inside_word = ways[0] is _letter_borders and begin > 0
        is_inside_word = is_inside_word and not _is_unspaced(text[begin - 1]) and not _is_unspaced(text[begin])
        for at, (finer, is_broken) in enumerate(_finer(piece.strip(), fits, ways[1:])):
            yield finer, is_inside_word if at == 0 else is_broken
        begin = borders[done - 1]


def _farthest(fits: Callable[[int], bool], first: int, end: int) -> int:
    """How many borders are passed at most: the first in any case, then as many as fit.

    Found by steps that double and then halve, so that a line of a million words is not measured a million times.
    """
    last, step = first, 1  # the last border that is passed
    while last + step < end and fits(last + step):
        last, step = last + step, 2 * step
    while step > 1:
        step //= 2
        if last + step < end and fits(last + step):
            last += step
    return last + 1


def _space_borders(text: str) -> list[int]:
    return [match.end() for match in re.finditer(r"\s+", text)]


def _letter_borders(text: str) -> list[int]:
    """Before each character that does not belong to the one before it."""
    return [
        at
        for at in range(1, len(text))
        if unicodedata.category(text[at])[0] != "M" and "\u200d" not in text[at - 1 : at + 1]
    ]


@dataclass(frozen=True)
class Joined:
    """Joined texts, and where each of them begins."""

    text: str
    starts: tuple[int, ...]


def join(texts: Sequence[str], *, inside_word: Sequence[bool]) -> Joined:
    """Translations of the parts of a line as one line: with spaces between them where their script has any.

    `inside_word` says of each part whether it continues a word.
    """
    whole, starts = "", []
    for text, is_continued in zip(texts, inside_word, strict=True):
        is_touching = is_continued or not whole or not text or _is_tight(whole[-1]) or _is_tight(text[0])
        whole += "" if is_touching else " "
        starts.append(len(whole))
        whole += text
    return Joined(whole, tuple(starts))


# --- words: the attention of words to words, and what replaces an unknown word ----------------------------------------


@dataclass(frozen=True, eq=False)
class WordAttention:
    """The attention of the words of a translation to source words, for one part of a line.

        W = T A S      A[t, s]  attention of target symbol t to source symbol s
                       S[s, i]  the share of symbol s that lies in source word i
                       T[j, t]  the share of target word j that symbol t makes up

    The end symbols of both sides belong to no word.
    """

    source: str
    """The part as the model read it."""
    target: str
    source_spans: tuple[Span, ...]
    target_spans: tuple[Span, ...]
    weights: Float64[np.ndarray, "target source"]

    def links(self) -> list[tuple[int, int]]:
        """Each target word with the source word that has most of its attention; without attention there is no link."""
        if not self.weights.size:
            return []
        best = self.weights.argmax(axis=1)
        return [(int(i), j) for j, i in enumerate(best) if self.weights[j, i] > 0]


def words_of(
    part: Part,
    hypothesis: Hypothesis,
    tokenizers: Tokenizers,
    *,
    unknown: Unknown,
    dictionary: Mapping[str, str] | None = None,
    align: bool = False,
) -> WordAttention | None:
    """The words of a translation after unknown ones were replaced; None if it has none and words are not aligned."""
    is_replaced = unknown == "copy" and UNKNOWN in hypothesis.symbols
    if not (align or is_replaced):
        return None
    found = attention_of(part, hypothesis, tokenizers)
    return (
        replace_unknown(hypothesis.symbols, found, tokenizers.target, dictionary=dictionary) if is_replaced else found
    )


def attention_of(part: Part, hypothesis: Hypothesis, tokenizers: Tokenizers) -> WordAttention:
    """The attention of words from that of the symbols of a hypothesis."""
    if hypothesis.attention is None:
        raise UsageError(NO_ATTENTION)
    return word_attention(part.text, hypothesis.symbols, hypothesis.attention.double().cpu().numpy(), tokenizers)


def word_attention(
    text: str, symbols: Sequence[int], attention: Float64[np.ndarray, "steps source"], tokenizers: Tokenizers
) -> WordAttention:
    """From pieces to words. Rows and columns after those of the symbols belong to END."""
    source, target = tokenizers.source.normaliser(text), tokenizers.target.decode(symbols)
    source_spans, target_spans = word_spans(source), word_spans(target)
    to_source = _overlaps(piece_spans(tokenizers.source, source), source_spans)  # [source pieces, source words]
    to_target = _overlaps(decoded_spans(tokenizers.target, symbols), target_spans)  # [target pieces, target words]
    weights = _shares(to_target.T) @ attention[: len(symbols), : len(to_source)] @ _shares(to_source)
    return WordAttention(source, target, tuple(source_spans), tuple(target_spans), weights)


def _overlaps(ones: Sequence[Span], others: Sequence[Span]) -> Float64[np.ndarray, "ones others"]:
    """How many characters spans have in common."""
    one, other = (np.array(spans, np.float64).reshape(-1, 2) for spans in (ones, others))
    common = np.minimum(one[:, None, 1], other[None, :, 1]) - np.maximum(one[:, None, 0], other[None, :, 0])
    overlaps: Float64[np.ndarray, "ones others"] = np.clip(common, 0, None)
    return overlaps


def _shares(amounts: Float64[np.ndarray, "rows columns"]) -> Float64[np.ndarray, "rows columns"]:
    """Rows that add up to 1, or to 0 where there is nothing."""
    sums = amounts.sum(axis=1, keepdims=True)
    return amounts / np.where(sums > 0, sums, 1.0)


def replace_unknown(
    symbols: Sequence[int], found: WordAttention, tokenizer: Tokenizer, *, dictionary: Mapping[str, str] | None = None
) -> WordAttention:
    """Replace each word that contains an unknown symbol by the translation of the source word with most attention.

    Without a translation in the `dictionary` it becomes that source word; a word without attention stays. Words are
    replaced as a whole: what a character model spells around an unknown character is not worth keeping.
    """
    unknown = [span for span, id in zip(decoded_spans(tokenizer, symbols), symbols, strict=True) if id == UNKNOWN]
    # The sign of the unknown counts as punctuation, which would split the word around it.
    letters = list(found.target)
    for begin, end in unknown:
        letters[begin:end] = ["x" if letter != " " else " " for letter in letters[begin:end]]
    replaced = [
        (start, stop)
        for start, stop in word_spans("".join(letters))
        if any(max(start, begin) < min(stop, end) for begin, end in unknown)
    ]
    text, done = "", 0
    spans: list[Span] = []
    rows: list[np.ndarray] = []
    groups = {
        (first, last): [j for j, (begin, end) in enumerate(found.target_spans) if first <= begin and end <= last]
        for first, last in replaced
    }
    taken = {j for inside in groups.values() for j in inside}
    plain = {found.target_spans[j]: [j] for j in range(len(found.target_spans)) if j not in taken}
    for (begin, end), inside in sorted({**groups, **plain}.items()):
        weights = found.weights[inside].sum(axis=0)
        word = found.target[begin:end]
        if (begin, end) in groups and weights.size and weights.max() > 0:
            attended = found.source[slice(*found.source_spans[int(weights.argmax())])]
            known = dictionary or {}
            word = known.get(attended, known.get(attended.lower(), attended)) or word
        text += found.target[done:begin]
        spans.append((len(text), len(text) + len(word)))
        text += word
        rows.append(weights)
        done = end
    weights = np.stack(rows) if rows else found.weights
    return replace(found, target=text + found.target[done:], target_spans=tuple(spans), weights=weights)


# --- search -----------------------------------------------------------------------------------------------------------


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
        cancellation: Cancellation | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each part, best first; `on_batch` gets the places of the parts that are done.

        `cancellation` knows parts by their places; one that is cancelled has no hypotheses.
        """
        found: list[list[Hypothesis]] = [[] for _ in parts]
        lengths = [len(part.ids) for part in parts]
        tokens = self.settings.tokens_per_batch
        for together in batches_by_length(lengths, tokens, max_rows=self.sentences_at_once):
            batch = together
            if cancellation is not None:
                batch = [at for at in together if not cancellation.is_cancelled(at)]
                if not batch:
                    on_batch(together)
                    continue
            source = source_batch([parts[at].ids for at in batch], self.device)
            given = None if constraints is None else [constraints[at] for at in batch]
            bound = self.bound([parts[at] for at in batch], source, given)
            keys = [parts[at].key for at in batch]
            try:
                searched = decode(
                    self.stepper(batch),
                    source,
                    self.settings,
                    constraints=bound,
                    keys=keys,
                    show=self.show,
                    cancellation=None if cancellation is None else cancellation.for_batch(batch),
                )
            except DeadEnd as error:
                raise ModelError(f"line {parts[batch[error.sentence]].number} {error.reason}") from error
            for at, hypotheses in zip(batch, searched, strict=True):
                # Comparing candidates takes a while, so this is asked once more before it.
                is_late = cancellation is not None and self.settings.rerank != "none" and cancellation.is_cancelled(at)
                found[at] = [] if is_late or not hypotheses else _chosen(hypotheses, self.settings, self.target)
            on_batch(together)
        return found

    def bound(
        self, parts: Sequence[Part], source: Source, given: Sequence[Constraint | None] | None
    ) -> Sequence[Constraint | None] | None:
        """The given constraints on the parts of a batch, with those that `search.brackets` adds."""
        if not self.settings.brackets:
            return given
        opening, closing = self._brackets
        found: list[Constraint] = []
        limits, others = self.settings.hard_limits(source), given or [None] * len(parts)
        for part, limit, other in zip(parts, limits, others, strict=True):
            words = tuple(part.ids[:-1])
            if wrong := [self.target.piece(word) for word in words if word in opening | closing]:
                raise DataError(
                    f"line {part.number} has {wrong[0]!r} among its words, which search.brackets takes for a bracket "
                    "of the parse; write it in another way, such as -LRB- and -RRB-"
                )
            parse = Brackets(words, opening, closing, END, limit - 1)
            found.append(parse if other is None else All((other, parse)))
        return found

    @cached_property
    def _brackets(self) -> tuple[frozenset[int], frozenset[int]]:
        """The symbols that open and close a bracket; a label may follow the first: `(NP`."""
        if not self.target.config.has_joint_words:
            raise UsageError(
                "search.brackets=true needs a model with a joint vocabulary of whole words: text.kind=word, "
                "text.segmentation=spaces and text.shared=true; leave it out"
            )
        pieces = list(enumerate(self.target.vocabulary))
        opening = frozenset(symbol for symbol, piece in pieces if piece.startswith("("))
        closing = frozenset(symbol for symbol, piece in pieces if piece == ")")
        if not opening or not closing:
            raise UsageError(
                "search.brackets=true, but the vocabulary of the model has no words ( and ); it is for models that "
                "were trained on parses such as ( ( the cat ) sat )"
            )
        return opening, closing

    def show(self, symbols: Sequence[int]) -> str:
        """Symbols as they are written in messages."""
        text = self.target.decode(symbols)
        return repr(text if len(text) <= MAX_SHOWN_CHARACTERS else f"{text[:MAX_SHOWN_CHARACTERS]}…")


def _chosen(hypotheses: list[Hypothesis], settings: SearchConfig, target: Tokenizer) -> list[Hypothesis]:
    """What is returned, in its order: samples as they were drawn, of a beam those that read differently."""
    if settings.nbest == 1:
        return hypotheses
    texts = [target.decode(each.symbols) for each in hypotheses]
    if settings.rerank == "agreement":
        # Samples occur as often as they are probable, so all have the same weight; in an n-best list, their P.
        weights = [1.0] * len(texts) if settings.method == "sample" else posteriors(hypotheses)

        def chrf(candidate: str, reference: str) -> float:
            return Chrf().statistics([candidate], [reference]).value

        (agreement,) = most_agreeing([texts], chrf, weights=[weights])
        order = sorted(range(len(texts)), key=lambda at: -agreement.expected[at])
        # The order is no longer that of the scores, so the proof that nothing better exists no longer applies.
        hypotheses = [replace(hypotheses[at], is_complete=False) for at in order]
    if settings.method == "sample":
        return hypotheses
    return without_duplicates(hypotheses, text=lambda each: target.decode(each.symbols))


@dataclass(frozen=True)
class FittedSearch:
    """Searches for the translations of parts of lines with a fitted model, which has a search of its own."""

    model: SentenceSearch
    tokenizers: Tokenizers
    settings: SearchConfig

    def __call__(
        self,
        parts: Sequence[Part],
        *,
        on_batch: Callable[[Sequence[int]], None] = lambda _places: None,
        cancellation: Cancellation | None = None,
    ) -> list[list[Hypothesis]]:
        """The same as of a `PartSearch`."""
        # A part may have nothing that is visible to the tokeniser.
        found = [[] if len(part.ids) > 1 else [_NOTHING] for part in parts]
        wanted = [at for at, part in enumerate(parts) if len(part.ids) > 1]
        if len(wanted) < len(parts):
            on_batch([at for at in range(len(parts)) if found[at]])
        for begin in range(0, len(wanted), PARTS_AT_ONCE):
            places = wanted[begin : begin + PARTS_AT_ONCE]
            searched = self.model.search(
                [source_sentence(self.tokenizers.source, parts[at].text) for at in places],
                self.settings,
                threads=torch.get_num_threads(),
                is_cancelled=None if cancellation is None else cancellation.for_batch(places).is_cancelled,
            )
            for at, hypotheses in zip(places, searched, strict=True):
                found[at] = _chosen(hypotheses, self.settings, self.tokenizers.target) if hypotheses else []
            on_batch(places)
        return found


_NOTHING = Hypothesis((), True, 0.0, {}, (0.0,), hard_attention((), 0))
"""The translation of a part without words."""


def source_sentence(tokenizer: Tokenizer, text: str) -> SourceSentence:
    """A text for a fitted translator, whose tokeniser is of kind word."""
    cut = word_cutter(tokenizer.config.segmentation)
    return SourceSentence(tokenizer.encode(text), cut(tokenizer.normaliser(text)))


@dataclass(frozen=True)
class AttentionReader:
    """Adds their attention to hypotheses, in a pass over each of them after the search, which is faster without it.

    The models read the source and all symbols of a hypothesis at once, in their own precision: a search in int8 has
    the attention of the weights that were rounded. That of several models is its mean, as in an `Ensemble`.
    """

    models: Sequence[nn.Module]
    device: torch.device
    settings: SearchConfig

    def __post_init__(self) -> None:
        if self.settings.heads not in ("mean", "max"):
            self._stepper()  # refuses heads that a model does not have, before anything is searched

    @torch.inference_mode()
    def __call__(
        self,
        parts: Sequence[Part],
        found: Sequence[Sequence[Hypothesis]],
        needed: Iterable[tuple[int, int]],
    ) -> list[list[Hypothesis]]:
        """The hypotheses of each part, some of them with attention: `needed` has the places of their parts, and ranks.

        Those that have it already, because the search needed it, are left as they are.
        """
        read = [list(hypotheses) for hypotheses in found]
        is_missing = {(at, rank): read[at][rank].attention is None for at, rank in needed}
        chosen = [
            (at, rank) for (at, rank), is_left in is_missing.items() if is_left and read[at][rank].token_log_probs
        ]
        lengths = [max(len(parts[at].ids), len(read[at][rank].token_log_probs)) for at, rank in chosen]
        for batch in batches_by_length(lengths, self.settings.tokens_per_batch):
            rows = max(1, MAX_ATTENTION_PAIRS // lengths[batch[0]] ** 2)
            for begin in range(0, len(batch), rows):
                places = [chosen[number] for number in batch[begin : begin + rows]]
                sources = [parts[at].ids for at, _ in places]
                hypotheses = [read[at][rank] for at, rank in places]
                for (at, rank), attention in zip(places, self._attention(sources, hypotheses), strict=True):
                    read[at][rank] = replace(read[at][rank], attention=attention)
        return read

    def _attention(
        self, sources: Sequence[list[int]], hypotheses: Sequence[Hypothesis]
    ) -> list[Float[Tensor, "steps source"] | None]:
        """The attention of hypotheses to their sources."""
        source, symbols = source_batch(sources, self.device), [each.symbols for each in hypotheses]
        steps = [len(each.token_log_probs) for each in hypotheses]  # an end counts, if it was reached
        models = [model for model in self.models if isinstance(model, AttendsInOnePass)]
        if len(models) < len(self.models) or source.ids.shape[1] * max(steps) > MAX_ATTENTION_PAIRS:
            forced = forced_search(self._stepper(), source, symbols, settings=SearchConfig())
            return [
                None if each.attention is None else each.attention[:count]
                for each, count in zip(forced, steps, strict=True)
            ]
        read = [[BEGIN, *each][:count] for each, count in zip(symbols, steps, strict=True)]
        previous, lengths = (torch.from_numpy(table).to(self.device) for table in padded(read))
        weights = []
        for model in models:
            options: dict[str, Any] = {"heads": self.settings.heads} if "heads" in stepper_options(model) else {}
            with evaluating(model):
                own = model.teacher_forced_attention(source, previous, lengths, **options)  # [batch, target, source]
            if own is not None:
                weights.append(own)
        if not weights:
            return [None] * len(steps)
        mean = weights[0] if len(weights) == 1 else torch.stack(weights).mean(0)
        # Copies: a part of a table would keep all of it in memory, the other heads included.
        return [mean[row, :count, : len(sources[row])].clone() for row, count in enumerate(steps)]

    def _stepper(self) -> Stepper:
        """The models as a search sees them that returns its attention."""
        steppers = [model_stepper(model, attention=True, heads=self.settings.heads) for model in self.models]
        return steppers[0] if len(steppers) == 1 else Ensemble(steppers)


@dataclass(frozen=True)
class BestTranslations:
    """The best translation of each line."""

    texts: list[str]
    log_probs: list[float | None]
    """The mean log-probability of the tokens of each; None for a blank line."""
    is_cut: list[bool]
    """Which of them ended at the maximum output length."""


def translate_lines(
    loaded: Loaded, lines: Sequence[str], *, progress: Callable[[int], None] = lambda _lines: None
) -> BestTranslations:
    """Translate with the search settings of a model; `progress` gets the number of lines that were finished."""
    settings, tokenizers = loaded.search_settings(), loaded.tokenizers
    target, unknown = tokenizers.target, settings.unknown
    search: PartSearch | FittedSearch
    with_attention = None
    if isinstance(loaded, LoadedModel):
        model = with_int8(loaded.model) if settings.precision == "int8" else loaded.model
        stepper = model_stepper(model, attention=settings.coverage > 0, heads=settings.heads)
        at_once = sentences_at_once(loaded, settings)
        search = PartSearch(target, loaded.device, settings, at_once, stepper=lambda _batch: stepper)
        with_attention = AttentionReader([loaded.model], loaded.device, settings) if unknown == "copy" else None
    else:
        search = FittedSearch(loaded.model, tokenizers, settings)
    texts: list[str] = []
    log_probs: list[float | None] = []
    is_cut: list[bool] = []
    for begin in range(0, len(lines), LINES_AT_ONCE):
        some = lines[begin : begin + LINES_AT_ONCE]
        limit = loaded.config.data.longest
        parts = make_parts(some, tokenizers.source, limit=limit, split=settings.split, first=begin)
        by_line: list[list[int]] = [[] for _ in some]
        for at, part in enumerate(parts):
            by_line[part.line].append(at)
        found = search(parts, on_batch=line_counter(parts, len(some), progress))
        if with_attention is not None:
            found = with_attention(
                parts, found, [(at, 0) for at in range(len(parts)) if UNKNOWN in found[at][0].symbols]
            )
        for places in by_line:
            best = [found[at][0] for at in places]
            words = [words_of(parts[at], found[at][0], tokenizers, unknown=unknown) for at in places]
            translations = [
                target.decode(each.symbols) if known is None else known.target
                for each, known in zip(best, words, strict=True)
            ]
            texts.append(join(translations, inside_word=[parts[at].is_inside_word for at in places]).text)
            log_probs.append(mean_log_prob(best))
            is_cut.append(ended_at_limit(best))
    return BestTranslations(texts, log_probs, is_cut)


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


def stepper_options(model: object) -> frozenset[StepperOption]:
    """The options of the stepper of a model."""
    options: frozenset[StepperOption] = getattr(model, "stepper_options", frozenset())
    return options


def model_stepper(
    model: nn.Module, *, attention: bool, heads: str = "mean", shortlist: Shortlister | None = None
) -> Stepper:
    """A model as a search sees it; settings that it cannot follow are refused."""
    options = stepper_options(model)
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


def mean_log_prob(hypotheses: Sequence[Hypothesis]) -> float | None:
    """The mean log-probability of the tokens of all parts of a line; None where no tokens are known."""
    found = [value for each in hypotheses for value in each.token_log_probs]
    return sum(found) / len(found) if found else None


def limit_message(cut: int, total: int) -> str:
    """A message if so many of all translations ended at the maximum output length."""
    return f"{cut:,} of {total:,} translations ended at the maximum output length; {limit_advice(cut, total)}"


def limit_advice(cut: int, total: int) -> str:
    """What helps if so many of all translations ended at the maximum output length."""
    if total >= MIN_JUDGED and cut > total / 2:
        return "the model has probably not learned to end its outputs: train it for more steps"
    return (
        "increase search.length_overrun (search.length_constant unless search.mode=seqloom) if they are incomplete, "
        "train for more steps if they repeat themselves"
    )
