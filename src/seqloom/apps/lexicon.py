"""A lexicon for a model: which target symbols each of its source symbols may become.

It is fitted once, by IBM model 1 in both directions on the ids of the model's own tokenisers, or made from the word
translations of a saved aligner, and stored in the model directory. A search with `search.shortlist=N` then scores the N
best translations of each source symbol and the most frequent symbols, not the whole vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Int, Int64, Integer
from torch import Tensor

from seqloom.apps.aligner import Aligner
from seqloom.classical.alignment import Bitext, Model1Config, fit_aligner
from seqloom.classical.lexicon import Lexicon, Shortlist
from seqloom.core.archive import is_archive
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.events import Listener, ignore, notice, progress
from seqloom.core.stepping import Source
from seqloom.core.symbols import RESERVED
from seqloom.core.text_files import OnBad
from seqloom.data.corpus import open_corpus
from seqloom.data.store import HEADER, Side, Store
from seqloom.runs.loading import find_model, require_finished, require_trained, require_translator
from seqloom.runs.model_dir import add_file, has_file, read_card, read_settings
from seqloom.text.marks import join_words
from seqloom.text.tokenizer import Tokenizer, Tokenizers

FILE = "lexicon.safetensors"
"""Its name in a model directory."""

MAX_TRANSLATIONS = 200
"""Translations kept of each source symbol: the largest `search.shortlist` that has an effect."""

FREQUENT = 100
"""The most frequent target symbols, which are in every shortlist: articles, punctuation, endings."""

LEAST_PROBABILITY = 1e-4
"""Translations of words that an aligner finds less likely are left out."""

BEFORE = "a"
"""A word before the one that is spelled, because pieces at the start of a line may differ."""

LINES_AT_ONCE = 1_000
"""Lines encoded together."""


@dataclass(frozen=True)
class FittedLexicon:
    """A lexicon that was written, and its size."""

    path: Path
    pairs: int
    """Sentence pairs that it was fitted on."""
    words: int
    """Source symbols that have a translation."""
    entries: int
    """Translations of all of them."""


def fit_lexicon(
    model: Path,
    train: Sequence[Path] = (),
    *,
    aligner: Path | None = None,
    config: Model1Config | None = None,
    encoding: str = "utf-8",
    on_bad: OnBad = "error",
    threads: int = 1,
    listener: Listener = ignore,
) -> FittedLexicon:
    """Fit a lexicon to parallel text and store it in the model directory, replacing an earlier one.

    Without text, the training text of the run that contains the model is used, or an `aligner` that was saved.
    """
    if aligner is not None and train:
        raise UsageError(
            "--aligner cannot be combined with --train: a saved aligner needs no text; leave one of them out"
        )
    if is_archive(model):
        raise UsageError(f"{model} is an archive, which cannot be changed; unpack it first: seqloom unpack {model} DIR")
    require_finished(model)
    folder = find_model(model)
    read_card(folder)
    settings = read_settings(folder)
    require_translator(folder, settings)
    require_trained(folder, settings, what="it scores no vocabulary that a shortlist could shorten")
    tokenizers = Tokenizers.load(folder / "text")
    if aligner is not None:
        saved = Aligner.load(aligner)
        saved.require_languages((settings.data.source, settings.data.target))
        lexicon, pairs = lexicon_of_aligner(saved, tokenizers), int(saved.card.trained_on.get("pairs", 0))
        return _store(folder, lexicon, pairs=pairs)
    if train:
        languages = settings.data.source, settings.data.target
        corpus = open_corpus(train, encoding=encoding, languages=languages, on_bad=on_bad)
        for sentence in corpus.notices:
            notice(listener, sentence)
        sides: tuple[list[list[int]], list[list[int]]] = [], []
        lines = iter(corpus)
        while some := list(islice(lines, LINES_AT_ONCE)):
            texts = [line.source for line in some], [line.target for line in some]
            for side, tokenizer, given in zip(sides, (tokenizers.source, tokenizers.target), texts, strict=True):
                # Reserved symbols, such as the unknown one, translate nothing.
                side += [[id for id in ids if id >= len(RESERVED)] for ids in tokenizer.encode_many(given)]
            progress(listener, "encoding text", len(sides[0]), len(corpus))
        bitext = Bitext.from_sentences(*sides)
    else:
        bitext = _stored(folder, tokenizers)
    config = config or Model1Config()
    report = partial(progress, listener, "learning translations, rounds", total=2 * config.iterations)
    fitted = fit_aligner(bitext, config, threads=threads, progress=report)
    counts = np.bincount(bitext.targets, minlength=tokenizers.target.size)
    # Ranked by t(y ∣ x) alone, lists of the same length contain more used words and fewer rare ones.
    lexicon = Lexicon.from_aligner(fitted, counts, best=MAX_TRANSLATIONS, ranking="forward")
    return _store(folder, lexicon, pairs=bitext.pairs)


def _store(folder: Path, lexicon: Lexicon, *, pairs: int) -> FittedLexicon:
    add_file(folder, FILE, write=lexicon.save)
    words = int(np.count_nonzero(np.diff(lexicon.starts)))
    return FittedLexicon(folder / FILE, pairs=pairs, words=words, entries=len(lexicon.targets))


def lexicon_of_aligner(aligner: Aligner, tokenizers: Tokenizers) -> Lexicon:
    """A lexicon of the pieces of a model from the word translations of an aligner.

        P(b ∣ a) = Σ_x c(x) Σ_y t(y ∣ x) / Σ_x c(x)      x with piece a, y with piece b, c(x) how often x was seen

    Words of an aligner that ignores case are spelled in lower case and with a capital letter.
    """
    table, counts = aligner.fitted.aligner.forward.table, aligner.counts
    sides = zip((aligner.source_words, aligner.target_words), (tokenizers.source, tokenizers.target), strict=True)
    source, target = (_spell(words, tokenizer, is_folded=aligner.fitted.config.lowercase) for words, tokenizer in sides)
    rows = min(table.null, len(counts[0]))
    words = np.repeat(np.arange(rows), np.diff(table.starts[: rows + 1]))
    targets, chances = table.columns[: len(words)], table.probabilities[: len(words)]
    is_kept = chances >= LEAST_PROBABILITY
    words, targets, chances = words[is_kept], targets[is_kept], chances[is_kept]
    size = tokenizers.target.size
    places, ones = source.expand(words)
    more, others = target.expand(targets[places])
    keys, found = np.unique(ones[more].astype(np.int64) * size + others, return_inverse=True)
    weights = np.bincount(found, (chances * counts[0][words])[places][more], minlength=len(keys))
    every, pieces = source.expand(np.arange(len(counts[0])))
    totals = np.bincount(pieces, counts[0][every], minlength=tokenizers.source.size)
    every, pieces = target.expand(np.arange(len(counts[1])))
    seen = np.bincount(pieces, counts[1][every], minlength=size).astype(np.int64)
    # A piece may be in both spellings of a word, but is in no word more than once: the sums stay below 1.
    return Lexicon.from_entries(
        keys // size,
        keys % size,
        weights / np.maximum(totals[keys // size], 1),
        rows=tokenizers.source.size,
        target_counts=seen,
        best=MAX_TRANSLATIONS,
    )


class _Spelling(NamedTuple):
    """The pieces of words: those of word n lie between `starts[n]` and `starts[n + 1]`, each once."""

    starts: Int64[np.ndarray, " borders"]
    pieces: Int64[np.ndarray, " pieces"]

    def expand(
        self, words: Integer[np.ndarray, " words"]
    ) -> tuple[Int64[np.ndarray, " found"], Int64[np.ndarray, " found"]]:
        """All pieces of these words, one after another: the place of the word among them, and the piece."""
        lengths = self.starts[words + 1] - self.starts[words]
        places = np.repeat(np.arange(len(words)), lengths)
        inside = np.arange(len(places)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return places, self.pieces[self.starts[words][places] + inside]


def _spell(words: Sequence[str], tokenizer: Tokenizer, *, is_folded: bool) -> _Spelling:
    """The pieces of each word; reserved ones have none."""
    plain = [join_words([BEFORE, word]) for word in words]
    texts = [
        [text, *([f"{BEFORE} {text[2:].capitalize()}"] if is_folded and text[1:2] == " " else [])] for text in plain
    ]
    encoded = iter(tokenizer.encode_many([text for several in texts for text in several]))
    before = tokenizer.encode(BEFORE)
    sets: list[list[int]] = []
    for number, several in enumerate(texts):
        pieces: set[int] = set()
        for _ in several:
            ids = next(encoded)
            pieces |= set(ids[len(before) :] if ids[: len(before)] == before else ids)
        sets.append(sorted(id for id in pieces if id >= len(RESERVED)) if number >= len(RESERVED) else [])
    lengths = np.array([len(each) for each in sets], np.int64)
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    return _Spelling(starts, np.fromiter(chain.from_iterable(sets), np.int64, count=int(starts[-1])))


def load_lexicon(folder: Path, tokenizers: Tokenizers) -> Lexicon:
    """The lexicon of a model directory that was checked before."""
    if not has_file(folder, FILE):
        raise UsageError(
            f"search.shortlist needs a lexicon, which {folder} does not have; create it with: "
            f"seqloom shortlist {folder} --train SOURCE --train TARGET, or set search.shortlist=0"
        )
    lexicon = Lexicon.load(folder / FILE)
    highest = max(lexicon.targets.max(initial=0), lexicon.frequent.max(initial=0))
    if highest >= tokenizers.target.size or len(lexicon.starts) - 1 > tokenizers.source.size:
        raise ModelError(
            f"{folder / FILE} belongs to another vocabulary: it has target symbol {highest}, but the model has "
            f"{tokenizers.target.size}; create it again with: seqloom shortlist {folder}"
        )
    return lexicon


def shortlist_of(lexicon: Lexicon, translations: int) -> Shortlist:
    """So many translations of each source symbol, and the most frequent symbols."""
    return Shortlist.of(lexicon, translations=translations, frequent=FREQUENT)


def offered_symbols(
    shortlist: Shortlist, source: Source, *, required: Sequence[Collection[int]]
) -> Int[Tensor, "sentences offered"]:
    """The list of each sentence in rising order, −1 after its end; `required` symbols are always in it."""
    lists = []
    for ids, length, more in zip(source.ids.tolist(), source.lengths.tolist(), required, strict=True):
        symbols = shortlist.symbols(ids[:length])
        lists.append(np.union1d(symbols, np.array(sorted(more), np.int64)) if more else symbols)
    table = np.full((len(lists), max(map(len, lists), default=0)), -1, np.int64)
    for row, symbols in enumerate(lists):
        table[row, : len(symbols)] = symbols
    return torch.from_numpy(table).to(source.ids.device)


def _stored(folder: Path, tokenizers: Tokenizers) -> Bitext:
    """The training text of the run that contains a model."""
    run = folder.parent
    if not (run / "data" / "train" / HEADER).is_file():
        raise UsageError(
            f"{folder} is not inside the run that trained it, so its training text was not found; "
            "name text: --train SOURCE --train TARGET"
        )
    if Tokenizers.load(run / "text") != tokenizers:
        raise UsageError(
            f"the text of {run} was encoded with other tokenisers than those of {folder}; "
            "name text: --train SOURCE --train TARGET"
        )
    store = Store.open(run / "data" / "train", verify=True)
    return Bitext(*_flat(store.sources), *_flat(store.targets))


def _flat(side: Side) -> tuple[Integer[np.ndarray, " kept"], Integer[np.ndarray, " borders"]]:
    """All ids but the reserved ones, and where each sentence begins."""
    is_kept = side.ids >= len(RESERVED)
    borders = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_kept, dtype=np.int64)])
    return side.ids[is_kept].astype(np.int32), borders[side.borders(0, len(side.lengths))]
