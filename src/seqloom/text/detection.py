"""In which of some languages a text is written: by its script, and among languages of one script by its characters.

    share(s)    = letters of script s in the text, weighted                    Greek letters: Greek
    e_l(w)      = log((1 − ε) p_l(w) / max_k p_k(w) + ε)                       evidence of a word, at most −log ε
    P(l ∣ s)    ∝ exp(λ Σ_w e_l(w))                                            among the languages written in s
    known(l)    = σ(γ min(n, N) (fit_l − usual_l + δ))                         whether it is any of them at all
    confidence  = Σ_s share(s) P(l ∣ s) known(l)

p_l(w) is that of a character n-gram model (`character_models`) which sees each word by itself, so a single word is
judged by the same statistics as one inside a sentence. fit_l is the mean log p of the n characters, usual_l that of
the text from which the model was learned. The sum of all confidences is at most 1; it is 0 for a text without letters,
or in a script that none of the languages uses. Tags, placeholders, addresses and code are left out.
"""

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool, Float64, Int64, UInt32
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from seqloom.core.errors import ModelError
from seqloom.core.files import write_atomically
from seqloom.text.character_models import BITS, ORDER, CharacterModel, encode, interpolate, ngram_places
from seqloom.text.marks import UNSPACED
from seqloom.text.scripts import main_scripts, script_of, scripts_of, usual_scripts
from seqloom.text.tags import blank_out

# --- tables ----------------------------------------------------------------------------------------------------------

FORMAT = 1
"""The number of the stored form; another one is refused, not guessed at."""

MAX_NGRAMS = 24_000
"""N-grams kept of a language, the most frequent ones: 192 kB."""

MAX_LANGUAGES = 1_000
"""Languages of a file of tables."""


@dataclass(frozen=True, eq=False)
class LanguageTable:
    """The character model of a language, and its scripts. Without n-grams only the scripts are known."""

    ngrams: UInt32[np.ndarray, " ngrams"]
    """Keys of n-grams (`CharacterModel.counts`), in rising order."""
    counts: UInt32[np.ndarray, " ngrams"]
    characters: int
    """Characters that were counted, those not kept included."""
    usual_fit: float
    """The mean log p of a character of the text itself, with its own counts subtracted."""
    scripts: tuple[str, ...]
    """Unicode names of the scripts that the language is written in."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LanguageTable) and (
            self._description() == other._description()
            and np.array_equal(self.ngrams, other.ngrams)
            and np.array_equal(self.counts, other.counts)
        )

    __hash__ = None  # type: ignore[assignment]

    def _description(self) -> dict[str, Any]:
        return {"characters": self.characters, "usual_fit": self.usual_fit, "scripts": list(self.scripts)}


def learn_table(lines: Iterable[str]) -> LanguageTable:
    """Learn a table from some text in a language. All of it is kept in memory: a million characters are plenty."""
    words = [word for line in lines for word in _words(line)]
    if not words:
        return script_table("")
    words_and_end = [*words, ""]  # each word ends where the next line begins
    model = CharacterModel()
    model.learn(words_and_end)
    codes, _ = encode(words_and_end)
    is_letter = codes != ord("\n")
    is_judged = is_letter | np.roll(is_letter, 1)  # the end of each word too
    usual_fit = float(model.log_probs(codes, own=np.ones(len(codes), np.int64))[is_judged].mean())
    # The n-grams that end there, and those that are the context of a first letter: the rest is never looked up.
    is_context = np.roll(is_letter, -1) & ~is_letter
    used = [keys[is_judged | is_context if order < ORDER - 1 else is_judged] for order, keys in enumerate(_keys(codes))]
    ngrams, counts, characters = model.counts()
    is_used = np.isin(ngrams, np.concatenate(used))
    return _table(ngrams[is_used], counts[is_used], characters, usual_fit, main_scripts(scripts_of("".join(words))))


def _keys(codes: UInt32[np.ndarray, " codes"]) -> Iterator[UInt32[np.ndarray, " codes"]]:
    """The key of the n-gram that ends at each position, for n = 1 … ORDER."""
    return ((places | order << BITS).astype(np.uint32) for order, places in enumerate(ngram_places(codes)))


def script_table(language: str) -> LanguageTable:
    """A table for a language of which no text is known: only its script."""
    none = np.zeros(0, np.uint32)
    return LanguageTable(none, none, 0, 0.0, usual_scripts(language))


def join_tables(tables: Sequence[LanguageTable]) -> LanguageTable:
    """One table of several of the same language, from texts of different kinds."""
    known = [table for table in tables if len(table.ngrams)] or list(tables)[:1]
    if len(known) == 1:
        return known[0]
    ngrams, places = np.unique(np.concatenate([table.ngrams for table in known]), return_inverse=True)
    counts = np.zeros(len(ngrams), np.uint64)
    np.add.at(counts, places, np.concatenate([table.counts for table in known]))
    sizes = [table.characters for table in known]
    fit = sum(table.usual_fit * size for table, size in zip(known, sizes, strict=True)) / max(1, sum(sizes))
    scripts = tuple(dict.fromkeys(script for table in known for script in table.scripts))
    return _table(ngrams, np.minimum(counts, 2**32 - 1).astype(np.uint32), sum(sizes), fit, scripts)


def _table(
    ngrams: UInt32[np.ndarray, " all"],
    counts: UInt32[np.ndarray, " all"],
    characters: int,
    usual_fit: float,
    scripts: tuple[str, ...],
) -> LanguageTable:
    """A table of the most frequent of these n-grams; of equally frequent ones, those with the lowest keys."""
    kept = np.sort(np.argsort(-counts.astype(np.int64), kind="stable")[:MAX_NGRAMS])
    return LanguageTable(ngrams[kept], counts[kept], characters, usual_fit, scripts)


def save_tables(tables: Mapping[str, LanguageTable], path: Path) -> None:
    """Write tables by the codes of their languages; the same tables give the same bytes."""
    arrays = {}
    for language, table in sorted(tables.items()):
        arrays[f"{language}/ngrams"] = np.ascontiguousarray(table.ngrams)
        arrays[f"{language}/counts"] = np.ascontiguousarray(table.counts)
    described = {language: table._description() for language, table in sorted(tables.items())}
    header = {"format": FORMAT, "order": ORDER, "bits": BITS, "languages": described}
    write_atomically(path, save(arrays, {"languages": json.dumps(header)}))


def read_tables(path: Path) -> dict[str, LanguageTable]:
    """Read what `save_tables` wrote; a missing, damaged or foreign file is a ModelError that names it."""
    try:
        with safe_open(path, framework="numpy") as file:
            header = json.loads((file.metadata() or {})["languages"])
            if header["format"] != FORMAT or (header["order"], header["bits"]) != (ORDER, BITS):
                raise ModelError(f"{path} has tables of format {header['format']}, and this version reads {FORMAT}")
            if len(header["languages"]) > MAX_LANGUAGES:
                raise ModelError(f"{path} has {len(header['languages']):,} languages, more than {MAX_LANGUAGES:,}")
            return {
                language: _restored(file.get_tensor(f"{language}/ngrams"), file.get_tensor(f"{language}/counts"), known)
                for language, known in header["languages"].items()
            }
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    # For types that numpy does not have, the library raises a bare TypeError or AttributeError.
    except (SafetensorError, KeyError, TypeError, ValueError, AttributeError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise ModelError(f"{path} is damaged or holds no tables of languages ({reason[:200]})") from error


def _restored(ngrams: np.ndarray, counts: np.ndarray, known: Mapping[str, Any]) -> LanguageTable:
    characters, usual_fit, scripts = known["characters"], known["usual_fit"], known["scripts"]
    is_whole = (
        ngrams.dtype == counts.dtype == np.uint32
        and ngrams.ndim == counts.ndim == 1
        and len(ngrams) == len(counts) <= MAX_NGRAMS
        and bool((ngrams[1:] > ngrams[:-1]).all())
        and type(characters) is int
        and 0 <= characters < 2**53
        and isinstance(usual_fit, float)
        and -100 <= usual_fit <= 0
        and isinstance(scripts, list)
        and all(isinstance(script, str) for script in scripts)
    )
    if not is_whole:
        raise ValueError(f"the table of {len(ngrams):,} n-grams is invalid")
    return LanguageTable(ngrams, counts, characters, usual_fit, tuple(scripts))


# --- words -----------------------------------------------------------------------------------------------------------

MAX_CODES = 1_500
"""Characters by which a text is judged, with the ORDER − 1 line ends before each word: some 200 words."""

_WINDOWS = (2_000, 20_000)
"""How many characters are searched for words: more only if the first ones have hardly any."""

_MIN_CODES = 50

# ASCII only: `请看https://example.org` goes on after the address. A token with a digit, @, _ or \ is no word either.
_CODE = re.compile(r"(?:https?|ftp)://[!-~]++|www\.[!-~]++|(?<![!-~])[!-~]*?[0-9_@\\][!-~]*+")
_PARTS = re.compile(rf"[{UNSPACED}]|[^{UNSPACED}]++")


class _Signs(dict[int, int]):
    """What each character becomes: letters, the marks on them and apostrophes stay, anything else is a space."""

    def __missing__(self, code: int) -> int:
        self[code] = code if unicodedata.category(chr(code))[0] in "LM" else ord(" ")
        return self[code]


_SIGNS = _Signs({ord("'"): ord("'"), ord("’"): ord("'")})


def _words(line: str) -> list[str]:
    """The words of a line without tags, placeholders, addresses and code; these last if there is nothing else."""
    plain = blank_out(line)
    return _letters(_CODE.sub(" ", plain)) or _letters(plain)


def _letters(text: str) -> list[str]:
    words = (word.strip("'") for word in unicodedata.normalize("NFKC", text).translate(_SIGNS).split())
    # Where no spaces separate words, each character is one.
    parts = (part for word in words for part in ((word,) if word.isascii() else _PARTS.findall(word)))
    return [part for part in parts if any(map(script_of, part))]


def _words_to_judge(text: str) -> list[str]:
    """The first words of a text."""
    words: list[str] = []
    for window in _WINDOWS:
        words, left = [], MAX_CODES
        for word in _words(text[:window]):
            words.append(word[:left])
            left -= len(word) + ORDER - 1
            if left <= 0:
                return words
        if MAX_CODES - left >= _MIN_CODES or len(text) <= window:
            break
    return words


# --- detection -------------------------------------------------------------------------------------------------------

EPSILON, TEMPERATURE = 0.01, 0.8
"""ε and λ: a name counts only so much, and words that follow each other are not independent."""

MAX_LOSS, FIT_WEIGHT, FIT_CHARACTERS = 2.0, 0.25, 20
"""δ, γ and N: a language loses about 1 nat per character on text of another kind, text in another language 2.5."""

MIN_KNOWN = 0.01
"""Minimum of known(l): a model learned from little text may know few words of its own language."""

_LETTER_WEIGHTS = {"LATIN": 1 / 3, "HAN": 3.0, "KANA": 3.0, "HANGUL": 3.0}
"""Names and brands in Latin letters occur in text of all scripts; and scripts with few letters per word."""


@dataclass(frozen=True)
class Guess:
    """A language that a text may be in."""

    language: str
    """Its code, as the tables name it."""
    confidence: float
    """Between 0 and 1; 0 if the text has no letters of its scripts."""


class Detector:
    """Finds the language of a text among those of its tables. It is immutable, so threads can share it."""

    def __init__(self, tables: Mapping[str, LanguageTable]) -> None:
        self.languages = tuple(sorted(tables))
        self._tables = tuple(tables[language] for language in self.languages)
        none = [np.zeros(0, np.uint32)]
        self._ngrams = np.unique(np.concatenate(none + [table.ngrams for table in self._tables]))
        # The last row is that of unseen n-grams.
        self._counts = np.zeros((len(self._ngrams) + 1, len(self._tables)), np.float32)
        for column, table in enumerate(self._tables):
            self._counts[np.searchsorted(self._ngrams, table.ngrams), column] = table.counts
        self._characters = np.array([table.characters for table in self._tables], np.float64)
        self._usual = np.array([table.usual_fit for table in self._tables], np.float64)
        self._is_known = np.array([len(table.ngrams) > 0 for table in self._tables], bool)

    def detect(self, text: str) -> list[Guess]:
        """All languages with their confidences, best first; by their codes where these are equal."""
        confidences = np.zeros(len(self.languages))
        words = _words_to_judge(text)
        letters = scripts_of("".join(words))
        weights = {script: count * _LETTER_WEIGHTS.get(script, 1.0) for script, count in sorted(letters.items())}
        if weights and self.languages:
            log_probs, lengths = self._judge(words)
            scripts = [set(map(script_of, word)) for word in words]
            for script, weight in weights.items():
                members = [at for at, table in enumerate(self._tables) if script in table.scripts]
                if not members:
                    continue
                theirs = {each for at in members for each in self._tables[at].scripts}
                is_theirs = np.array([not theirs.isdisjoint(each) for each in scripts], bool)
                found = self._choose(log_probs[is_theirs][:, members], lengths[is_theirs], np.array(members))
                confidences[members] += weight / sum(weights.values()) * found
        guesses = [Guess(*each) for each in zip(self.languages, np.minimum(confidences, 1.0).tolist(), strict=True)]
        return sorted(guesses, key=lambda guess: (-guess.confidence, guess.language))

    def _judge(self, words: list[str]) -> tuple[Float64[np.ndarray, "words languages"], Int64[np.ndarray, " words"]]:
        """log p of each word with its end in each language, and the number of characters."""
        codes, starts = encode([*words, ""])
        log_probs = interpolate(map(self._seen, _keys(codes)), np.tile(self._characters, (len(codes), 1)))
        begins, ends = starts[:-1] + ORDER - 1, starts[1:] + 1
        borders = np.stack([begins, ends], axis=1).reshape(-1)
        return np.add.reduceat(log_probs, borders, axis=0)[::2], ends - begins

    def _seen(self, keys: UInt32[np.ndarray, " codes"]) -> Float64[np.ndarray, "codes languages"]:
        """The counts of n-grams in each language."""
        if not len(self._ngrams):
            return np.zeros((len(keys), len(self.languages)))
        rows = np.minimum(np.searchsorted(self._ngrams, keys), len(self._ngrams) - 1)
        return self._counts[np.where(self._ngrams[rows] == keys, rows, len(self._ngrams))].astype(np.float64)

    def _choose(
        self,
        log_probs: Float64[np.ndarray, "words members"],
        lengths: Int64[np.ndarray, " words"],
        members: Int64[np.ndarray, " members"],
    ) -> Float64[np.ndarray, " members"]:
        """P(l ∣ s) known(l) of the languages of one script."""
        is_known: Bool[np.ndarray, " members"] = self._is_known[members]
        worst = self._usual[members] - MAX_LOSS
        if not is_known.all():
            # Of some languages only the script is known: they are the answer where the others fit badly.
            usual_worst = worst[is_known].mean() if is_known.any() else 0.0
            log_probs = np.where(is_known, log_probs, usual_worst * lengths[:, None])
            worst = np.where(is_known, worst, usual_worst)
        ratios = np.exp(log_probs - log_probs.max(axis=1, keepdims=True))
        evidence = TEMPERATURE * np.log((1 - EPSILON) * ratios + EPSILON).sum(axis=0)
        posterior = np.exp(evidence - evidence.max())
        characters = int(lengths.sum())
        fit = log_probs.sum(axis=0) / characters
        odds = FIT_WEIGHT * min(characters, FIT_CHARACTERS) * (fit - worst)
        known = np.maximum(MIN_KNOWN, 1 / (1 + np.exp(-odds)))
        confidence: Float64[np.ndarray, " members"] = posterior / posterior.sum() * known
        return confidence
