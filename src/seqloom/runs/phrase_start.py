"""Phrases from two texts without a parallel line (Lample et al., 2018; Artetxe et al., 2018).

    words     x̂ = argmax_x Σ_j ln P(x_j ∣ y_j) + λ ln P(x)        P(x_j ∣ y_j) by the dictionary, P(x) an n-gram model
    phrases   lines y with translations x̂ are pairs, from which phrases x → y are counted; these translate the text of
              the other language, which gives pairs for phrases y → x; and so on, in rounds

Translations are always the source side of the pairs: what a translator writes was counted in genuine text. A word
translator alone has no order but that of the source, and no context but the n-gram model; phrases learn both from what
it got right. Where the dictionary shows that its languages spell many words alike, words that look alike count as
translations, too. The translations of the last round are the first sources of an unsupervised model.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
from jaxtyping import Int32, Int64

from seqloom.classical.alignment import Bitext
from seqloom.classical.ngram import NGram, NGramConfig
from seqloom.core.events import Listener, ignore, phase, progress_counter
from seqloom.core.symbols import END, RESERVED, UNKNOWN
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import Card
from seqloom.runs.translation import complete_words
from seqloom.runs.translator import translate_lines
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.settings import SearchConfig
from seqloom.smt.casing import Casing
from seqloom.smt.dev_tuning import TuningConfig
from seqloom.smt.look_alikes import are_related, look_alikes
from seqloom.smt.options import ORIENTATIONS, OptionSearch, SentenceOptions
from seqloom.smt.pairs import EncodedPairs, SentenceSearch, SourceSentence
from seqloom.smt.phrases import PhrasesConfig
from seqloom.smt.stack import StackSettings
from seqloom.text.tokenizer import EncodedText, TextConfig, Tokenizer, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers

MAX_LINES = 100_000
"""Lines of each text from which phrases are counted, at most; all lines are translated in the end."""

MAX_WORDS = 200_000
"""Words of each language, at most."""

BEAM = 30
"""Hypotheses of each number of translated words. More of them cost time and are hardly better."""

ORDER = 4
"""Words in the longest n-grams of the language model of a word translator."""

WORD_WEIGHTS = {"language_model": 0.5, "distortion": 0.8, "translation": 1.0}
"""Weights of a word translator, chosen by hand: without pairs there is nothing to tune them on."""

WORD_DISTORTION_LIMIT = 4

FALLBACKS = 5
"""Translations of a word that only the dictionary knows."""

JUDGED_WORDS = 1_000
"""Words, the most frequent ones, whose translations decide whether spelling counts."""

MAX_LOOK_ALIKES = 20_000
"""Words of each language that are compared, the most frequent ones."""

LOOK_ALIKE_SHARE = 0.4
"""Probability of words that look alike, beside translations of the dictionary."""

PHRASES = PhrasesConfig(tuning=TuningConfig(rounds=0))


class Translations(Protocol):
    """The translations of a word, best first, with their shares."""

    def candidates(self, word: str) -> Sequence[tuple[str, float]]: ...


@dataclass(frozen=True)
class WithLookAlikes:
    """The translations of a dictionary, and words of the other language that look alike."""

    own: Translations
    alike: Mapping[str, Mapping[str, float]]

    def candidates(self, word: str) -> Sequence[tuple[str, float]]:
        own, alike = self.own.candidates(word), self.alike.get(word)
        if not alike:
            return own
        share = LOOK_ALIKE_SHARE if own else 1.0
        mixed = {other: (1 - share) * value for other, value in own}
        total = math.fsum(alike.values())
        for other, value in alike.items():
            mixed[other] = mixed.get(other, 0.0) + share * value / total
        return sorted(mixed.items(), key=lambda each: -each[1])


def with_look_alikes(
    ways: tuple[Translations, Translations], words: tuple[Sequence[str], Sequence[str]], *, seed: int
) -> tuple[Translations, Translations]:
    """Both ways with words that look alike, if the dictionary says that this means something; words by frequency."""
    best = [(word, found[0][0]) for word in words[0][:JUDGED_WORDS] if (found := ways[0].candidates(word))]
    if not are_related(best, seed=seed):
        return ways
    there = look_alikes(words[0][:MAX_LOOK_ALIKES], words[1][:MAX_LOOK_ALIKES])
    back: dict[str, dict[str, float]] = {}
    for word, others in there.items():
        for other, value in others.items():
            back.setdefault(other, {})[word] = value
    return WithLookAlikes(ways[0], there), WithLookAlikes(ways[1], back)


def translate_both(
    texts: tuple[Sequence[str], Sequence[str]],
    ways: tuple[Translations, Translations],
    config: RunConfig,
    *,
    rounds: int,
    listener: Listener = ignore,
) -> tuple[list[str], list[str]]:
    """The lines of two texts in the other language, by phrases that were counted in so many rounds.

    `ways` translate words of the first language into the second, and back.
    """
    some = [_spread(lines, MAX_LINES) for lines in texts]
    vocabularies = [_words_of(lines, config) for lines in some]
    words = tuple(each.vocabulary[len(RESERVED) :] for each in vocabularies)
    ways = with_look_alikes(ways, (words[0], words[1]), seed=config.seed)
    names, everything = _names(config), dict[int, list[str]]()

    def translate(model: SentenceSearch, tokenizers: Tokenizers, side: int, lines: Sequence[str]) -> list[str]:
        settings = config.model_copy(update={"model": PHRASES, "search": SearchConfig(beam=BEAM, unknown="copy")})
        loaded = Loaded(Path(), settings, tokenizers, model, Card(None, None, 0))
        count = progress_counter(listener, f"translating the {names[side]} text", len(lines))
        return translate_lines(loaded, lines, progress=count).texts

    phase(listener, f"phrases from two texts: {names[1]} → {names[0]} word by word")
    tokenizers = complete_words(Tokenizers(vocabularies[1], vocabularies[0]), [])
    found = [[], translate(WordTranslator.learn(some[0], tokenizers, ways[1]), tokenizers, 1, some[1])]
    for number in range(1, rounds + 1):
        for side in (0, 1):
            phase(listener, f"phrases from two texts: {names[side]} → {names[1 - side]}, round {number} of {rounds}")
            pairs = list(zip(found[1 - side], some[1 - side], strict=True))
            # Words that were copied are words of the source, too.
            tokenizers = complete_words(Tokenizers(vocabularies[side], vocabularies[1 - side]), pairs)
            bitext = _bitext(tokenizers, pairs)
            entries = _bitext(tokenizers, _missing(tokenizers.source, bitext, ways[side]))
            model = PHRASES.fit_pairs(EncodedPairs(bitext, bitext, tokenizers, entries=entries), seed=config.seed)
            found[side] = translate(model, tokenizers, side, some[side])
            if number == rounds and len(texts[side]) > len(some[side]):
                everything[side] = translate(model, tokenizers, side, texts[side])
    return everything.get(0, found[0]), everything.get(1, found[1])


def _missing(source: Tokenizer, pairs: Bitext, way: Translations) -> list[tuple[str, str]]:
    """The dictionary's translations of words that the translations of the other text never used."""
    is_used = np.bincount(pairs.sources, minlength=source.size) > 0
    unused = [source.vocabulary[number] for number in np.flatnonzero(~is_used).tolist() if number >= len(RESERVED)]
    return [(word, translation) for word in unused for translation, _ in way.candidates(word)[:FALLBACKS]]


@dataclass(frozen=True, eq=False)
class WordTranslator:
    """Translates word by word, with a dictionary and an n-gram model of the text of the other language."""

    tokenizers: Tokenizers
    translations: Translations
    casing: Casing
    """Of the target side."""
    language_model: NGram

    @staticmethod
    def learn(text: Sequence[str], tokenizers: Tokenizers, translations: Translations) -> "WordTranslator":
        """Count the n-grams of a text of the target language."""
        ids, starts = _flat(tokenizers.target, text)
        casing = Casing.learn(ids, starts, tokenizers.target.vocabulary)
        ended = np.insert(casing.fold(ids, starts), starts[1:], END)
        model = NGramConfig(order=ORDER).fit(EncodedText(ended, tokenizers.target.vocabulary))
        return WordTranslator(tokenizers, translations, casing, model)

    def search(
        self,
        sentences: Sequence[SourceSentence],
        settings: SearchConfig,
        *,
        threads: int = 1,
        is_cancelled: Callable[[int], bool] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best translations of each sentence."""
        weights = np.array([*WORD_WEIGHTS.values(), *(0.0 for _ in ORIENTATIONS)])
        limits = StackSettings(settings.beam, settings.beam, distortion_limit=WORD_DISTORTION_LIMIT)
        search = OptionSearch(self.language_model, tuple(WORD_WEIGHTS)[2:], weights, limits)
        options = [self.options_of(sentence) for sentence in sentences]
        return search.hypotheses(options, self.casing, nbest=settings.nbest, threads=threads, is_cancelled=is_cancelled)

    def options_of(self, sentence: SourceSentence) -> SentenceOptions:
        """The translations of each word that the vocabulary has, else the word itself."""
        places, targets, features = list[int](), list[int](), list[float]()
        for place, word in enumerate(sentence.words):
            found = {self._usual(written): share for written, share in self.translations.candidates(word)}
            found.pop(UNKNOWN, None)
            found = found or {self._usual(word): 1.0}  # marks and names are often the same in both languages
            total = math.fsum(found.values())
            places += [place] * len(found)
            targets += list(found)
            features += [math.log(share / total) for share in found.values()]
        begins = np.array(places, np.int32)
        count = len(targets)
        return SentenceOptions(
            len(sentence.words),
            begins,
            begins + np.int32(1),
            np.arange(count + 1, dtype=np.int64),
            np.array(targets, np.int32),
            np.ones(count, np.uint8),
            np.array(features).reshape(-1, 1),
            np.zeros((count, len(ORIENTATIONS))),
        )

    def _usual(self, word: str) -> int:
        """The id of a word as it is written inside sentences; UNKNOWN, which is copied, if the vocabulary lacks it."""
        return int(self.casing.usual[self.casing.numbers.get(word, UNKNOWN)])


def _names(config: RunConfig) -> tuple[str, str]:
    return config.data.source or "first", config.data.target or "second"


def _spread(lines: Sequence[str], most: int) -> list[str]:
    """At most so many lines, evenly spaced."""
    places = np.linspace(0, max(0, len(lines) - 1), min(len(lines), most)).astype(int)
    return [lines[place] for place in places.tolist()]


def _words_of(lines: Sequence[str], config: RunConfig) -> Tokenizer:
    """The words of a text as a vocabulary."""
    settings = TextConfig(kind="word", size=MAX_WORDS, shared=False, lowercase=config.text.lowercase)
    return train_tokenizers(iter(lines), iter(lines), settings).target


def _flat(
    tokenizer: Tokenizer, lines: Sequence[str]
) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " borders"]]:
    """The ids of lines one after another, without END, and where each begins."""
    found = tokenizer.encode_flat(list(lines))
    return found.ids.astype(np.int32), np.concatenate([np.zeros(1, np.int64), np.cumsum(found.lengths)])


def _bitext(tokenizers: Tokenizers, pairs: Sequence[tuple[str, str]]) -> Bitext:
    return Bitext(
        *_flat(tokenizers.source, [one for one, _ in pairs]), *_flat(tokenizers.target, [y for _, y in pairs])
    )
