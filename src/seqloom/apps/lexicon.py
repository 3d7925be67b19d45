"""A lexicon for a model: which target symbols each of its source symbols may become.

It is fitted once, by IBM model 1 in both directions on the ids of the model's own tokenisers, and stored in the model
directory. A search with `search.shortlist=N` then scores the N best translations of each source symbol and the most
frequent symbols, not the whole vocabulary.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Integer
from torch import Tensor

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
from seqloom.text.tokenizer import Tokenizers

FILE = "lexicon.safetensors"
"""Its name in a model directory."""

MAX_TRANSLATIONS = 200
"""Translations kept of each source symbol: the largest `search.shortlist` that has an effect."""

FREQUENT = 100
"""The most frequent target symbols, which are in every shortlist: articles, punctuation, endings."""

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
    config: Model1Config | None = None,
    encoding: str = "utf-8",
    on_bad: OnBad = "error",
    threads: int = 1,
    listener: Listener = ignore,
) -> FittedLexicon:
    """Fit a lexicon to parallel text and store it in the model directory, replacing an earlier one.

    Without text, the training text of the run that contains the model is used.
    """
    if is_archive(model):
        raise UsageError(f"{model} is an archive, which cannot be changed; unpack it first: seqloom unpack {model} DIR")
    require_finished(model)
    folder = find_model(model)
    read_card(folder)
    settings = read_settings(folder)
    require_translator(folder, settings)
    require_trained(folder, settings, what="it scores no vocabulary that a shortlist could shorten")
    tokenizers = Tokenizers.load(folder / "text")
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
    aligner = fit_aligner(bitext, config, threads=threads, progress=report)
    counts = np.bincount(bitext.targets, minlength=tokenizers.target.size)
    # Ranked by t(y ∣ x) alone, lists of the same length contain more used words and fewer rare ones.
    lexicon = Lexicon.from_aligner(aligner, counts, best=MAX_TRANSLATIONS, ranking="forward")
    add_file(folder, FILE, write=lexicon.save)
    words = int(np.count_nonzero(np.diff(lexicon.starts)))
    return FittedLexicon(folder / FILE, pairs=bitext.pairs, words=words, entries=len(lexicon.targets))


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
