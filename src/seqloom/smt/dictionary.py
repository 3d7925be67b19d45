"""Translation by a dictionary, as people did it first: phrase by phrase, with rules for the order of words.

A dictionary is a file of tab-separated values. Its lines have

    source      a word or phrase
    target      its translation; empty where it is left out
    class       optional, may be empty: noun, verb, …, for rules of order (`seqloom.smt.rules`)
    score       optional: how much the translation counts among those of the same source; without one, the first
                translation counts 1, the second 1/2, the third 1/3, …

Lines that begin with # are comments. Without a file, one is induced from sentence pairs by word alignment.

A sentence is read from left to right. At each place the longest phrase of the dictionary is taken, as it is written or
else in lower case; a word that has none is looked up by its stem, and copied if that is unknown too. Rules reorder the
phrases, the translations are joined, and a sentence that began with a capital begins with one again.

    score = Σ log P(translation ∣ phrase) + discounts for words that were found in lower case, by their stem, or not
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Int32, Int64
from pydantic import Field

from seqloom.classical.alignment import AlignmentModelConfig, Bitext, Model1Config, fit_aligner, rounds
from seqloom.core.config import parse_yaml, write_value
from seqloom.core.declaration import ModelSettings, Pieces, TaskKind
from seqloom.core.errors import ConfigError, ModelError, Problems
from seqloom.core.events import Listener, ignore, notice, progress
from seqloom.core.files import read_lines, require_file, write_atomically
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.casing import Casing
from seqloom.smt.pairs import EncodedPairs, SourceSentence, hard_attention
from seqloom.smt.rules import Phrase, Rule, read_rules, reorder
from seqloom.text.marks import capitalised
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizer, Tokenizers, word_cutter

# --- the file ---------------------------------------------------------------------------------------------------------


class DictionaryEntry(NamedTuple):
    """A translation of a word or phrase."""

    source: str
    target: str
    """Empty where the source is left out of translations."""
    category: str = ""
    """Its class; empty if it has none."""
    score: float | None = None
    """How much it counts among the translations of the source; None: by its place among them."""


@dataclass(frozen=True)
class Dictionary:
    """The entries of a dictionary, in their order."""

    entries: tuple[DictionaryEntry, ...]

    @staticmethod
    def read(path: Path | str) -> "Dictionary":
        """Read a file of tab-separated values. A DataError names the lines that are wrong."""
        path, entries, problems = Path(path), list[DictionaryEntry](), Problems()
        require_file(path)
        for number, line in enumerate(read_lines(path), start=1):
            if is_blank(line) or (line.startswith("#") and not line.startswith("#\t")):
                continue
            entry = _entry(line)
            if isinstance(entry, str):
                problems.add(entry, path, number)
            else:
                entries.append(entry)
        problems.require_none()
        if not entries:
            problems.add("no entries; a line is a word, a tab and its translation", path, 1)
            problems.require_none()
        return Dictionary(tuple(entries))

    def write(self, path: Path | str) -> None:
        """Write the file that `read` reads."""
        rows = ((*each[:3], "" if each.score is None else f"{each.score:.6g}") for each in self.entries)
        write_atomically(Path(path), "".join("\t".join(row).rstrip("\t" if row[1] else "") + "\n" for row in rows))

    @property
    def classes(self) -> list[str]:
        """All classes, sorted."""
        return sorted({each.category for each in self.entries} - {""})

    def pairs(self) -> list[tuple[str, str]]:
        """Sources and targets."""
        return [(each.source, each.target) for each in self.entries]


def _entry(line: str) -> DictionaryEntry | str:
    """The entry of a line, or what is wrong with it."""
    source, *rest = (column.strip() for column in line.split("\t"))
    if not rest:
        return f"no tab in {line[:60]!r}; a line is a word, a tab and its translation"
    if not source:
        return f"no word before the tab in {line[:60]!r}"
    if len(rest) > 3:
        return f"{len(rest) + 1} columns; there are at most 4: word, translation, class and score"
    target, category, score = (*rest, "", "")[:3]
    try:
        value = float(score) if score else None
    except ValueError:
        value = math.nan
    if value is not None and not 0 < value < math.inf:
        return f"the score {score!r} is not a number above 0"
    return DictionaryEntry(source, target, category, value)


# --- induction from sentence pairs ------------------------------------------------------------------------------------


class Translated(NamedTuple):
    """A translation of a phrase in the words of both vocabularies."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    category: str
    score: float


MIN_PROBABILITY = 0.05
"""The least t(y ∣ x) of a translation that is induced."""


def induce(
    bitext: Bitext,
    tokenizers: Tokenizers,
    *,
    translations: int,
    alignment: AlignmentModelConfig,
    threads: int = 1,
    report: Callable[[int], None] = lambda _done: None,
) -> list[Translated]:
    """Translations y of each word x with the highest t(y ∣ x) of a model of word alignment, the best first.

    Words are counted as they are usually written inside sentences. A word is translated by a word, a mark by a mark:
    model 1 finds that anything which is in nearly every sentence explains the full stop. A mark that both languages
    have comes first among its translations: commas that the target language leaves out are not full stops.
    """
    source, target = tokenizers.source, tokenizers.target
    cased = Bitext(
        _cased(bitext.sources, bitext.source_starts, source),
        bitext.source_starts,
        _cased(bitext.targets, bitext.target_starts, target),
        bitext.target_starts,
    )
    table = fit_aligner(cased, alignment, threads=threads, progress=report).forward.table
    is_source_word, is_target_word = (
        np.array([any(map(str.isalnum, piece)) for piece in tokenizer.vocabulary]) for tokenizer in (source, target)
    )
    entries: list[Translated] = []
    for word in np.unique(cased.sources).tolist():
        columns, probabilities = table.row(word)
        is_like = (is_target_word[columns] == is_source_word[word]) & (columns >= len(RESERVED))
        columns, probabilities = columns[is_like], probabilities[is_like]
        if not is_source_word[word] and len(columns):
            is_same = np.array([target.piece(at) == source.piece(word) for at in columns.tolist()])
            probabilities = np.where(is_same, probabilities.max(), probabilities)
            columns = columns[(order := np.argsort(~is_same, kind="stable"))]
            probabilities = probabilities[order]
        order = np.argsort(-probabilities, kind="stable")[:translations]
        if word >= len(RESERVED):
            entries += [
                Translated((source.piece(word),), (target.piece(int(columns[at])),), "", float(probabilities[at]))
                for at in order
                if at == order[0] or probabilities[at] >= MIN_PROBABILITY
            ]
    return [entry for entry in entries if entry.score > 0]


def _cased(
    ids: Int32[np.ndarray, " tokens"], starts: Int64[np.ndarray, " borders"], tokenizer: Tokenizer
) -> Int32[np.ndarray, " tokens"]:
    """All words as they are usually written inside sentences."""
    found: np.ndarray = Casing.learn(ids, starts, tokenizer.vocabulary).usual[ids]
    return found


# --- looking up words -------------------------------------------------------------------------------------------------

How = Literal["phrase", "word", "lower case", "stem", "copied"]
"""By what a part of a sentence was translated."""

HOWS: tuple[How, ...] = ("phrase", "word", "lower case", "stem", "copied")

DISCOUNTS: Mapping[How, float] = {
    "lower case": math.log(0.9),
    "stem": math.log(0.5),
    "copied": math.log(0.1),
}
"""What a translation costs that was not found as it is written."""

SPARE_CHOICES = 10
"""Choices for each output of an n-best list, because several may give the same words."""

MIN_STEM, MAX_ENDING = 4, 3
"""Letters that words of one stem share at the beginning, and letters that may follow in each of them."""

NEIGHBOURS = 5
"""Words after each word of the sorted dictionary with which it is compared to learn endings."""


class Option(NamedTuple):
    """A translation that may be chosen."""

    words: tuple[str, ...]
    log_prob: float


class Unit(NamedTuple):
    """A part of a sentence that is translated as a whole: the words from `begin` to `end`."""

    begin: int
    end: int
    how: How
    options: tuple[Option, ...]
    """Best first."""
    category: str


class Lookup:
    """Finds the phrases of a dictionary in sentences."""

    def __init__(self, entries: Iterable[Translated], *, is_word: Callable[[str], bool]) -> None:
        """`is_word` says whether a target word can be written; only those are guessed."""
        found: dict[tuple[str, ...], list[Translated]] = {}
        for entry in entries:
            found.setdefault(entry.source, []).append(entry)
        self._options = {source: _options(each) for source, each in found.items()}
        self._categories = {source: max(each, key=lambda entry: entry.score).category for source, each in found.items()}
        self._written: dict[tuple[str, ...], tuple[str, ...]] = {}
        """How a phrase in lower case is written in the dictionary."""
        for source in found:
            self._written.setdefault(tuple(map(str.lower, source)), source)
        self._longest = max(map(len, found), default=0)
        self._is_word = is_word

    def units(self, words: Sequence[str]) -> list[Unit]:
        """A sentence in parts: the longest phrase that begins at the first word, the longest one after it, ….

        Of phrases of the same length, the one that is written so counts, then one in lower case.
        """
        units: list[Unit] = []
        at = 0
        while at < len(words):
            units.append(self._unit(words, at))
            at = units[-1].end
        return units

    def _unit(self, words: Sequence[str], begin: int) -> Unit:
        for end in range(min(len(words), begin + self._longest), begin, -1):
            written = tuple(words[begin:end])
            lower = tuple(map(str.lower, written))
            for source in (written, lower, self._written.get(lower, ())):
                if source in self._options:
                    how: How = "phrase" if end - begin > 1 else "word" if source == written else "lower case"
                    return Unit(begin, end, how, self._options[source], self._categories[source])
        word = words[begin]
        if stem := self._by_stem(word.lower()):
            relative, options = stem
            return Unit(begin, begin + 1, "stem", options, self._categories[relative])
        return Unit(begin, begin + 1, "copied", (Option((word,), 0.0),), "")

    def _by_stem(self, word: str) -> tuple[tuple[str, ...], tuple[Option, ...]] | None:
        """A known word with the longest beginning in common, and its translations with other endings."""
        if not word.isalpha():
            return None
        for length in range(len(word), max(MIN_STEM, len(word) - MAX_ENDING) - 1, -1):
            if relatives := self._stems.get(word[:length]):
                changes = [(self._endings.get((each[0].lower()[length:], word[length:])), each) for each in relatives]
                endings, relative = next((each for each in changes if each[0]), changes[0])
                options = tuple(
                    option._replace(words=self._with_ending(option.words, endings or ()))
                    for option in self._options[relative]
                )
                return relative, options
        return None

    def _with_ending(self, words: tuple[str, ...], endings: Sequence[tuple[str, str]]) -> tuple[str, ...]:
        """The last word with the likeliest ending that gives a word which is known."""
        for old, new in endings:
            if words and words[-1].endswith(old):
                changed = words[-1][: len(words[-1]) - len(old)] + new
                if self._is_word(changed):
                    return (*words[:-1], changed)
        return words

    @cached_property
    def _stems(self) -> dict[str, list[tuple[str, ...]]]:
        """The single words that have this beginning, and few letters after it; shorter ones first."""
        stems: dict[str, list[tuple[str, ...]]] = {}
        for source in sorted(self._options, key=lambda each: (len(each[0]), each)):
            word = source[0].lower()
            if len(source) == 1 and word.isalpha():
                for length in range(max(MIN_STEM, len(word) - MAX_ENDING), len(word) + 1):
                    stems.setdefault(word[:length], []).append(source)
        return stems

    @cached_property
    def _endings(self) -> dict[tuple[str, str], list[tuple[str, str]]]:
        """How the ending of a translation changes with that of a word, by falling number of words that show it.

        Hund, Hunde → dog, dogs and Tisch, Tische → table, tables show that "" → "e" becomes "" → "s".
        """
        best = {
            source[0].lower(): options[0].words[0].lower()
            for source, options in self._options.items()
            if len(source) == 1 and source[0].isalpha() and len(options[0].words) == 1
        }
        counts: dict[tuple[str, str], Counter[tuple[str, str]]] = {}
        words = sorted(best)
        for at, word in enumerate(words):
            for other in words[at + 1 : at + 1 + NEIGHBOURS]:
                sources, targets = _endings_of(word, other), _endings_of(best[word], best[other])
                if sources and targets:
                    counts.setdefault(sources, Counter())[targets] += 1
                    counts.setdefault(sources[::-1], Counter())[targets[::-1]] += 1
        return {
            change: [each for each, count in sorted(found.items(), key=lambda each: (-each[1], each[0])) if count > 1]
            for change, found in counts.items()
        }


def _endings_of(word: str, other: str) -> tuple[str, str] | None:
    """The endings of two words with the same stem; None of others."""
    length = next(
        (at for at, (a, b) in enumerate(zip(word, other, strict=False)) if a != b), min(len(word), len(other))
    )
    if length < min(MIN_STEM, len(word), len(other)) or max(len(word), len(other)) - length > MAX_ENDING or length < 2:
        return None
    return word[length:], other[length:]


def _options(entries: Sequence[Translated]) -> tuple[Option, ...]:
    """The translations of one source, best first, with log P of each."""
    total = math.fsum(each.score for each in entries)
    ordered = sorted(entries, key=lambda each: -each.score)  # stable: of equal ones, the first
    scores: dict[tuple[str, ...], float] = {}
    for each in ordered:
        scores[each.target] = scores.get(each.target, 0.0) + each.score
    ranked = sorted(scores.items(), key=lambda each: -each[1])
    return tuple(Option(words, math.log(score / total)) for words, score in ranked)


# --- translation ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DictionaryTranslator:
    """A dictionary with rules, fitted to vocabularies."""

    entries: tuple[Translated, ...]
    rules: tuple[Rule, ...]
    tokenizers: Tokenizers
    coverage: Mapping[How, int]
    """Words of the dev text by how they are translated."""

    @cached_property
    def lookup(self) -> Lookup:
        """Finds its phrases in sentences."""
        target = self.tokenizers.target
        return Lookup(self.entries, is_word=lambda word: target.id_of(word) is not None)

    def arrays(self) -> dict[str, np.ndarray]:
        """The entries in ids of both vocabularies, classes and rules as text, and what was counted."""
        sources, targets = self.tokenizers.source, self.tokenizers.target
        classes = sorted({each.category for each in self.entries})
        numbers = {category: number for number, category in enumerate(classes)}
        rules = [{"from": list(rule.patterns), "to": [place + 1 for place in rule.order]} for rule in self.rules]
        return {
            **_flat("source", [[sources.id_of(word) for word in each.source] for each in self.entries]),
            **_flat("target", [[targets.id_of(word) for word in each.target] for each in self.entries]),
            "scores": np.array([each.score for each in self.entries], np.float64),
            "classes": np.array([numbers[each.category] for each in self.entries], np.int32),
            "texts": np.frombuffer(write_value({"classes": classes, "rules": rules}).encode(), np.uint8),
            "coverage": np.array([self.coverage.get(how, 0) for how in HOWS], np.int64),
        }

    def search(
        self,
        sentences: Sequence[SourceSentence],
        settings: SearchConfig,
        *,
        threads: int = 1,  # noqa: ARG002 - a sentence takes less time than a thread needs to begin
        is_cancelled: Callable[[int], bool] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best translations of each sentence: the `beam` best translations of each phrase are combined."""
        return [
            [] if is_cancelled is not None and is_cancelled(number) else self._best(sentence.words, settings)
            for number, sentence in enumerate(sentences)
        ]

    def _best(self, words: Sequence[str], settings: SearchConfig) -> list[Hypothesis]:
        units = self._ordered(words)
        values = [[option.log_prob for option in unit.options[: settings.beam]] for unit in units]
        found: dict[tuple[int, ...], Hypothesis] = {}
        for choice in islice(best_choices(values), settings.nbest * SPARE_CHOICES):
            each = self._hypothesis(words, units, choice)
            found.setdefault(each.symbols, each)
            if len(found) == settings.nbest:
                break
        return sorted(found.values(), key=lambda each: -each.score)  # equal up to rounding before

    def _ordered(self, words: Sequence[str]) -> list[Unit]:
        """The parts of a sentence in the order of its translation."""
        units = self.lookup.units(words)
        phrases = [Phrase(tuple(words[unit.begin : unit.end]), unit.category) for unit in units]
        return [units[at] for at in reorder(phrases, self.rules)]

    def _hypothesis(self, words: Sequence[str], units: Sequence[Unit], choice: Sequence[int]) -> Hypothesis:
        symbols: list[int] = []
        links: list[range] = []
        shares: list[float] = []
        terms = dict.fromkeys(("translations", *DISCOUNTS), 0.0)
        end = 0.0
        for unit, chosen in zip(units, choice, strict=True):
            option, discount = unit.options[chosen], DISCOUNTS.get(unit.how, 0.0)
            terms["translations"] += option.log_prob
            if unit.how in terms:
                terms[unit.how] += discount
            symbols += map(self._symbol, option.words)
            links += [range(unit.begin, unit.end)] * len(option.words)
            value = option.log_prob + discount
            shares += [value / max(1, len(option.words))] * len(option.words)
            end += 0.0 if option.words else value
        if (first := self._first_word(symbols)) is not None and _is_capital(words):
            symbols[first] = self._capital(symbols[first])
        return Hypothesis(
            symbols=tuple(symbols),
            is_finished=True,
            score=math.fsum(terms.values()),
            terms=terms,
            token_log_probs=(*shares, end),
            attention=hard_attention(links, len(words)),
        )

    def score(self, sentences: Sequence[SourceSentence], targets: Sequence[Sequence[int]]) -> list[float]:
        """The highest score of a choice of translations that gives each target; −inf if none does."""
        return [self._score(sentence.words, target) for sentence, target in zip(sentences, targets, strict=True)]

    def _score(self, words: Sequence[str], target: Sequence[int]) -> float:
        first = self._first_word(target) if _is_capital(words) else None
        best = {0: 0.0}  # the highest score after so many target words
        for unit in self._ordered(words):
            after: dict[int, float] = {}
            for option in unit.options:
                symbols = list(map(self._symbol, option.words))
                for begin, value in best.items():
                    end = begin + len(symbols)
                    written = [self._capital(id) if begin + at == first else id for at, id in enumerate(symbols)]
                    if list(target[begin:end]) == written:
                        reached = value + option.log_prob + DISCOUNTS.get(unit.how, 0.0)
                        after[end] = max(after.get(end, -math.inf), reached)
            best = after
        return best.get(len(target), -math.inf)

    def _symbol(self, word: str) -> int:
        found = self.tokenizers.target.id_of(word)
        return UNKNOWN if found is None or found < len(RESERVED) else found

    def _first_word(self, symbols: Sequence[int]) -> int | None:
        """The place of the first symbol that is not a mark; one that is unknown may be a word."""
        pieces = map(self.tokenizers.target.piece, symbols)
        return next((at for at, piece in enumerate(pieces) if any(map(str.isalnum, piece))), None)

    def _capital(self, symbol: int) -> int:
        """The same word with a capital, if there is one."""
        if symbol == UNKNOWN:
            return UNKNOWN
        found = self.tokenizers.target.id_of(capitalised(self.tokenizers.target.piece(symbol)))
        return symbol if found is None else found


def _is_capital(words: Sequence[str]) -> bool:
    """Whether the first word of a sentence begins with a capital."""
    first = next((word for word in words if any(map(str.isalnum, word))), "")
    return first[:1].isupper()


def best_choices(values: Sequence[Sequence[float]]) -> Iterator[tuple[int, ...]]:
    """Choices of one value of each list, by falling sum; each list is sorted, the highest first.

    A choice follows from the one in which its last place above 0 is one lower, so each comes once.
    """
    start = (0,) * len(values)
    waiting = [(-math.fsum(each[0] for each in values), start, 0)]
    while waiting:
        _, choice, last = heapq.heappop(waiting)
        yield choice
        for at in range(last, len(values)):
            if choice[at] + 1 < len(values[at]):
                more = (*choice[:at], choice[at] + 1, *choice[at + 1 :])
                total = math.fsum(each[place] for each, place in zip(values, more, strict=True))
                heapq.heappush(waiting, (-total, more, at))


def _flat(name: str, rows: Sequence[Sequence[int | None]]) -> dict[str, np.ndarray]:
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(row) for row in rows], dtype=np.int64)])
    return {f"{name}.ids": np.array(list(chain.from_iterable(rows)), np.int32), f"{name}.starts": starts}


# --- settings ---------------------------------------------------------------------------------------------------------


class DictionaryConfig(ModelSettings):
    """A dictionary with rules: given as a file, or induced from the training pairs."""

    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"
    search_defaults: ClassVar[Mapping[str, str]] = {"unknown": "copy"}

    kind: Literal["dictionary"] = "dictionary"
    file: str | None = None
    """A dictionary: a word or phrase, a tab, its translation, and optionally tabs with its class and a score. The first
    of several translations of a word counts most, unless they have scores."""
    induced: bool | None = None
    """Whether words that the file lacks get translations that are learned from the training pairs. By default they do
    only without a file."""
    rules: str | None = None
    """Rules that reorder neighbouring phrases by their classes: a YAML list of `from` and `to`."""
    translations: int = Field(default=10, ge=1, le=1_000)
    """Translations of a word that are induced at most."""
    alignment: AlignmentModelConfig = Model1Config()
    """The model of word alignment that finds them; hmm takes longer and finds better ones."""

    @property
    def has_attention(self) -> bool:
        return True

    @property
    def is_induced(self) -> bool:
        """Whether translations are learned from the training pairs."""
        return self.file is None if self.induced is None else self.induced

    def check_files(self) -> None:
        """Read the dictionary and the rules."""
        if self.file is None and not self.is_induced:
            raise ConfigError("model.induced=false leaves no translations without model.file; give one of them")
        self._rules(self._given())

    def extra_pairs(self) -> list[tuple[str, str]]:
        """The entries of the file."""
        return self._given().pairs()

    def _given(self) -> Dictionary:
        return Dictionary(()) if self.file is None else Dictionary.read(self.file)

    def _rules(self, given: Dictionary) -> tuple[Rule, ...]:
        origin = "an induced dictionary" if self.file is None else self.file
        return () if self.rules is None else read_rules(Path(self.rules), given.classes, origin=origin)

    def fit_pairs(
        self,
        pairs: EncodedPairs,
        *,
        seed: int,  # noqa: ARG002 - nothing here is random
        listener: Listener = ignore,
    ) -> DictionaryTranslator:
        """Read the dictionary, and induce translations of the words that it lacks."""
        given = self._given()
        entries = _in_words(given, pairs.tokenizers, listener=listener)
        if self.is_induced:
            known = {each.source for each in entries}
            induced = induce(
                pairs.train,
                pairs.tokenizers,
                translations=self.translations,
                alignment=self.alignment,
                threads=torch.get_num_threads(),
                report=partial(progress, listener, "aligning words, rounds", total=rounds(self.alignment)),
            )
            entries += [each for each in induced if each.source not in known]
        model = DictionaryTranslator(tuple(entries), self._rules(given), pairs.tokenizers, {})
        coverage = Counter[How]()
        for sentence in pairs.dev_sentences:
            for unit in model.lookup.units(sentence.words):
                coverage[unit.how] += sum(any(map(str.isalnum, word)) for word in sentence.words[unit.begin : unit.end])
        sources = len({each.source for each in entries})
        notice(
            listener,
            f"dictionary of {sources:,} words and phrases with {len(entries):,} translations; of "
            f"{coverage.total():,} words of dev text, {_shares(coverage)}",
        )
        return DictionaryTranslator(model.entries, model.rules, pairs.tokenizers, coverage)

    def restore_pairs(self, arrays: Mapping[str, np.ndarray], tokenizers: Tokenizers) -> DictionaryTranslator:
        """The model whose `arrays` these are. Those that do not fit each other or the vocabularies are refused."""
        names = {f"{side}.{what}" for side in ("source", "target") for what in ("ids", "starts")}
        if missing := (names | {"scores", "classes", "texts", "coverage"}) - arrays.keys():
            raise ModelError(f"not the arrays of a dictionary: {', '.join(sorted(missing))} missing")
        sources = _rows(arrays, "source", tokenizers.source)
        targets = _rows(arrays, "target", tokenizers.target)
        numbers, scores = arrays["classes"].tolist(), arrays["scores"].tolist()
        try:
            texts, _ = parse_yaml(arrays["texts"].tobytes().decode("utf-8"), lambda line: f"line {line} of its texts")
            rules = tuple(Rule(tuple(each["from"]), tuple(to - 1 for to in each["to"])) for each in texts["rules"])
            entries = tuple(
                Translated(source, target, texts["classes"][number], float(score))
                for source, target, number, score in zip(sources, targets, numbers, scores, strict=True)
            )
            coverage = dict(zip(HOWS, arrays["coverage"].tolist(), strict=True))
        except (ConfigError, ValueError, TypeError, KeyError, IndexError) as error:
            raise ModelError(f"not the arrays of a dictionary: {error}") from error
        is_order = all(sorted(rule.order) == list(range(len(rule.patterns))) for rule in rules)
        if not is_order or not all(0 < each.score < math.inf and each.source for each in entries):
            raise ModelError("not the arrays of a dictionary: a score, a rule or a source is out of range")
        return DictionaryTranslator(entries, rules, tokenizers, coverage)

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """Its size, and how the words of dev text are translated."""
        coverage = dict(zip(HOWS, arrays["coverage"].tolist(), strict=True))
        return {
            "Entries": f"{len(arrays['scores']):,} translations",
            "Coverage": f"{sum(coverage.values()):,} words of dev text: {_shares(coverage)}",
        }


def _shares(coverage: Mapping[How, int]) -> str:
    """How words are translated, in words."""
    total = max(1, sum(coverage.values()))
    names = {how: f"by {how}" if how != "copied" else "copied" for how in HOWS}
    return ", ".join(f"{coverage.get(how, 0) / total:.1%} {names[how]}" for how in HOWS)


def _in_words(given: Dictionary, tokenizers: Tokenizers, *, listener: Listener) -> list[Translated]:
    """Entries in the words of both vocabularies; those with a word that a vocabulary lacks are counted and left out."""
    source, target = tokenizers.source, tokenizers.target
    cut = word_cutter(target.config.segmentation)
    found: list[Translated] = []
    seen = Counter[tuple[str, ...]]()
    for entry in given.entries:
        words, translation = tuple(cut(source.normaliser(entry.source))), tuple(cut(target.normaliser(entry.target)))
        seen[words] += 1
        score = 1 / seen[words] if entry.score is None else entry.score
        if all(map(source.id_of, words)) and all(map(target.id_of, translation)):
            found.append(Translated(words, translation, entry.category, score))
    if lost := len(given.entries) - len(found):
        notice(listener, f"{lost:,} entries of the dictionary have words that the vocabularies lack; they are left out")
    return found


def _rows(arrays: Mapping[str, np.ndarray], side: str, tokenizer: Tokenizer) -> list[tuple[str, ...]]:
    """Rows of ids as words."""
    ids, starts = arrays[f"{side}.ids"], arrays[f"{side}.starts"]
    kinds = [(array.ndim, array.dtype.kind) for array in (ids, starts)]
    is_whole = kinds == [(1, "i")] * 2 and len(starts) > 0 and starts[0] == 0 and starts[-1] == len(ids)
    if (
        not is_whole
        or (starts[1:] < starts[:-1]).any()
        or (len(ids) and not 0 <= ids.min() <= ids.max() < tokenizer.size)
    ):
        raise ModelError(f"not the arrays of a dictionary: the ids of the {side} are out of range")
    vocabulary, flat, borders = tokenizer.vocabulary, ids.tolist(), starts.tolist()
    return [tuple(vocabulary[id] for id in flat[begin:end]) for begin, end in pairwise(borders)]
