"""Sentence pairs of a translation run: opened, split, encoded, trained on, and measured by BLEU and chrF.

run/data/train/     the training pairs as ids, memory-mapped
run/data/dev/       the held-out pairs, their reference lines in references.txt, and for fitted models sources.txt
run/data/files.json the training files that were read, if others were skipped
"""

import json
import string
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int32, Int64

from seqloom.classical.alignment import Bitext
from seqloom.core.declaration import DataFacts, Reason, SentenceReading
from seqloom.core.errors import DataError
from seqloom.core.events import Event, Listener, Value, notice
from seqloom.core.files import read_json, write_atomically
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.data.batches import PairSampling
from seqloom.data.corpus import Lines, ParallelCorpus, hold_out, hold_out_end, hold_out_pairs, open_corpus, sample_lines
from seqloom.data.corpus_files import language_of, languages_from, parts_of
from seqloom.data.encoding import PairEncoder, encode_corpus
from seqloom.data.overview import LOPSIDED_RATIO, Overview, look_over
from seqloom.data.plain_text import TextCorpus
from seqloom.data.store import Side, Store, read_stored_lines
from seqloom.metrics.calibration import Calibration, fit_calibration
from seqloom.metrics.scoring import Bootstrap
from seqloom.metrics.translation import dev_names_for, line_scores, score_named
from seqloom.runs.back_translation import MIXED, PAIRS, open_monolingual, write_pairs
from seqloom.runs.config import RunConfig
from seqloom.runs.detection import sample_sides
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import Sizing, choose_contrastive_sizes, choose_fitted_pair_sizes, choose_sizes, facts_of
from seqloom.runs.translator import BestTranslations, limit_message, source_sentence, translate_lines
from seqloom.search.settings import OutputLimit
from seqloom.smt.pairs import EncodedPairs
from seqloom.tasks.contrastive import ContrastiveTask
from seqloom.tasks.settings import ContrastiveConfig, TranslationConfig
from seqloom.tasks.translation import DevSet, TranslationTask
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.marks import BYTE_PIECES, JOINER, SPACE, capitalised, is_unspaced, uncapitalised
from seqloom.text.scripts import SAMPLED_LINES, Sample, doubts_of_pair
from seqloom.text.subword_sampling import subword_sampler
from seqloom.text.symbols import piece_of, split_symbols
from seqloom.text.tokenizer import SIDES, FlatIds, Tokenizer, Tokenizers, symbols_notice, word_cutter
from seqloom.text.tokenizer_training import train_tokenizers, with_words

# Remarks on an encoded training text: what repeats, what is lopsided, what the vocabulary lacks.

MANY_LETTERS = 0.4
"""The share of single letters among subwords above which a text is spelled rather than split into subwords."""

MANY_UNFAMILIAR = 0.2
"""The share of a text that a vocabulary may lack before it is reported."""

UNUSABLE_UNKNOWN_SHARE = 0.99
"""The share of unknown tokens on a side above which nothing can be learned from it."""


def overview_of(store: Store, tokenizers: Tokenizers) -> Overview:
    """The overview of a store that was made with these tokenisers."""
    unfamiliar = unfamiliar_ids(tokenizers.source), unfamiliar_ids(tokenizers.target)
    letters = letter_ids(tokenizers.source), letter_ids(tokenizers.target)
    return look_over(store, is_shared=tokenizers.is_shared, unfamiliar=unfamiliar, letters=letters)


def letter_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of subwords that are single letters, with or without a space before them; none where that is usual.

    Chinese characters and the like do not count as letters, nor does a vocabulary that could not be larger.
    """
    if tokenizer.kind not in ("bpe", "unigram") or tokenizer.size < tokenizer.config.size:
        return []
    pieces = ((id, piece.removeprefix(SPACE)) for id, piece in enumerate(tokenizer.vocabulary))
    return [id for id, piece in pieces if len(piece) == 1 and piece.isalpha() and not is_unspaced(piece)]


def spelling_remarks(found: Overview, name: str, tokenizers: Tokenizers) -> list[str]:
    """A sentence for each side that is spelled nearly letter by letter."""
    said = []
    sides = zip(("source", "target"), found.letters, found.tokens, (tokenizers.source, tokenizers.target), strict=True)
    for side, share, tokens, tokenizer in sides:
        if share > MANY_LETTERS:
            single = sum(len(piece.removeprefix(SPACE)) == 1 for piece in tokenizer.vocabulary)
            said.append(
                f"{name}: the {side} is spelled nearly letter by letter: {share:.0%} of its {tokens:,} tokens are "
                f"single letters, because {single:,} of the {tokenizer.size:,} pieces are single characters, which "
                f"leaves little room for longer ones; raise text.size (now {tokenizer.config.size})"
            )
    return said


def unfamiliar_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids that stand for what a vocabulary does not have: unknown, and bytes unless it hardly has anything else."""
    bytes_ = {*BYTE_PIECES} if tokenizer.size > len(RESERVED) + 2 * len(BYTE_PIECES) else set()
    return [UNKNOWN, *(id for id, piece in enumerate(tokenizer.vocabulary) if piece in bytes_)]


def remarks_on(found: Overview, name: str, *, borrowed: str | None = None) -> list[str]:
    """A sentence on what repeats and what is lopsided, and one for each side that is hardly known.

    `borrowed` is the setting that names tokenisers which were not learned from this text.
    """
    remedy = "try text.kind=bpe, or a larger text.size"
    if borrowed is not None:
        remedy = f"leave out {borrowed}, to learn a tokeniser from this text"
    counts = (
        (found.repeated, "repeat an earlier pair", "duplicates"),
        (found.copied or 0, "have the same text on both sides", "copies"),
        (found.lopsided, f"have a side with more than {LOPSIDED_RATIO} times its usual share of the pieces", "ratios"),
    )
    parts = [f"{count:,} {what}" for count, what, _ in counts if count]
    repairs = [repair for count, _, repair in counts if count]
    said = []
    if parts:
        said.append(
            f"{name}: of {found.pairs:,} pairs {', '.join(parts)}; they are kept (counted in pieces of the "
            f"vocabulary; seqloom doctor judges the text itself, and --fix {','.join(repairs)} drops what it finds)"
        )
    for side, share in zip(("source", "target"), found.unfamiliar, strict=True):
        if share > MANY_UNFAMILIAR:
            said.append(
                f"{name}: {share:.0%} of the {side} is unknown to the vocabulary, so little can be learned from it; "
                f"{remedy}"
            )
    return said


Split = Literal["sources", "pairs"]
"""Whether all pairs of a source are held out together, or single pairs, as in runs of earlier versions."""

MAX_SCORED_LINES = 2_000
"""Dev sentences translated with the full search at the end of a run."""

MARKS = f"{string.punctuation}…–—‘’“”„«»¿¡。、，！？：；（）"
"""Marks that a translator which copies words can write, whether or not they are in its training text."""

SOURCES = "sources.txt"
"""The source line of each dev example, in the data folder of a run whose model is fitted."""

TEACHER = "teacher"
"""The folder of a run that learns from other models: the pairs that they have made, and in teacher.json who they are
and how they were made."""

FILES = "files.json"
"""Which training files were read, in the data folder of a run."""

MAX_TURN_PASSES = 30
"""Passes over a dialogue. Little of a reply follows from what was said before it; with more, it is learned by heart."""

PHRASES_BELOW = 30_000
"""Pairs below which phrases translate better than a network: on Multi30k, both are equal with about as many."""

BACK_TRANSLATION_FALLS = 3
"""Validations in a row with a lower score after which training on synthetic pairs ends."""

EXAMPLES = tuple(DataFacts(pairs, 20.0 + pairs % 7, 30.0, are_unspaced=False) for pairs in (100, 30_000, 10**8))
"""Corpora of very different sizes, which show the settings that depend on the corpus."""


def size_pairs(config: RunConfig, files: Sequence[Path], *, formats: Sequence[Format] = FORMATS) -> Sizing:
    """Sizes for the pairs in these files, and the languages that the names of the files give."""
    found = languages_from(files, formats) if config.data.unit != "turn" else _language_of_turns(config, files)
    found = found or (None, None)
    languages = (config.data.source or found[0], config.data.target or found[1])
    data, formats = config.data, config.data.training_formats(formats)
    corpus = open_corpus(files, encoding=data.encoding, languages=languages, on_bad=data.on_bad_utf8, formats=formats)
    _held_out(config, len(corpus))
    facts = facts_of(corpus, languages)
    chosen = {side: code for side, code in zip(("source", "target"), languages, strict=True) if code is not None}
    if data.unit == "turn":  # which may have been recognised
        chosen["unit"] = data.unit
    reasons: tuple[Reason, ...] = ()
    if data.monolingual:
        if facts.pairs < PHRASES_BELOW and not facts.are_unspaced and data.back_translation == "beam":
            chosen["reverse"] = "phrases"
            reasons = (Reason(("data.reverse",), "phrases as the reverse model, which learn more from few pairs"),)
        synthetic = len(open_monolingual(data.model_copy(update={"target": languages[1]}), formats=formats))
        facts = replace(facts, pairs=facts.pairs + synthetic)
    sizing = sizes_for(config, facts)
    defaults = {**sizing.defaults, "data": {**sizing.defaults.get("data", {}), **chosen}}
    return replace(sizing, defaults=defaults, reasons=(*sizing.reasons, *reasons))


def _language_of_turns(config: RunConfig, files: Sequence[Path]) -> tuple[str | None, str | None]:
    """The language of both sides: that of a setting, or of the names of the files."""
    named = {language_of(file) for file in files}
    language = config.data.target or config.data.source or (named.pop() if len(named) == 1 else None)
    return language, language


def sizes_for(config: RunConfig, facts: DataFacts) -> Sizing:
    """Sizes for such a corpus, given the settings that were set."""
    model, text, training = config.model, config.text, config.training
    if model.is_fitted:
        return choose_fitted_pair_sizes(facts, model)
    steps = training.steps if "steps" in training.model_fields_set else None
    if isinstance(config.task, ContrastiveConfig):
        return choose_contrastive_sizes(facts, model, steps=steps, is_started=training.start_from is not None)
    return choose_sizes(
        facts,
        model,
        steps=steps,
        pieces=text.kind if "kind" in text.model_fields_set else None,
        vocabulary=text.size if "size" in text.model_fields_set else None,
        is_started=training.start_from is not None,
        is_joint="shared" in text.model_fields_set and text.shared,
        has_symbols=bool(config.data.symbols),
        passes=MAX_TURN_PASSES if config.data.unit == "turn" else None,
    )


def open_pairs(
    config: RunConfig, *, split: Split = "sources", formats: Sequence[Format] = FORMATS, listener: Listener
) -> "PairText":
    """Open and check the text of a run. Without dev files, a part of the training text is held out."""
    formats = config.data.training_formats(formats)
    train = _open(config, config.data.train, formats=formats, listener=listener)
    fingerprints = {"train": train.fingerprint()}
    is_whole = len(train.parts) == len(parts_of([Path(name) for name in config.data.train], formats))
    files = None if is_whole else tuple(str(path) for part in train.parts for path in part)
    monolingual = None
    if config.data.monolingual:
        monolingual = open_monolingual(config.data, formats=formats)
        fingerprints["monolingual"] = monolingual.fingerprint()
        for sentence in monolingual.notices:
            notice(listener, sentence)
    languages = {"source": config.data.source, "target": config.data.target}
    if config.data.unit == "turn":
        turns = "1 turn" if config.data.history == 1 else f"up to {config.data.history} turns"
        notice(
            listener,
            f"data.unit=turn: {len(train):,} replies, each to the {turns} before it; names of speakers are left out",
        )
    if missing := [side for side, language in languages.items() if language is None]:
        which = "languages are" if len(missing) == 2 else f"{missing[0]} language is"
        example = "data.target=en" if config.data.unit == "turn" else "data.source=de data.target=en"
        notice(
            listener,
            f"the {which} unknown: {', '.join(config.data.train[:2])} do not name them. Without them BLEU finds words "
            "between spaces, which is wrong for Chinese, Japanese or Thai, text in a wrong language is not reported, "
            f"and the model cannot check the languages of catalogues. Give them, as in: {example}",
        )
    if config.data.dev:
        dev = _open(config, config.data.dev, formats=formats, listener=listener)
        fingerprints["dev"] = dev.fingerprint()
        return PairText(train, dev, fingerprints, files, monolingual)
    if config.data.unit == "turn":
        held = hold_out_end(train, _held_out(config, len(train)))
        notice(listener, f"no dev files: the last {len(held.held):,} of {len(train):,} replies are held out")
        return PairText(held.rest, held.held, fingerprints, files, monolingual)
    hold = hold_out if split == "sources" else hold_out_pairs
    held = hold(train, _held_out(config, len(train)), seed=config.seed)
    shared = ", none of whose sources is in the training text"
    if held.sources is None:
        shared = "; the training text may have the same sources, so their scores may be too good"
    elif held.shared_targets:
        shared = f"; {held.shared_targets:,} of their targets are also in the training text, under other sources"
    kept = f"{len(held.held):,} of {len(train):,} pairs are held out for validation"
    notice(listener, f"no dev files: {kept}{shared}")
    return PairText(held.rest, held.held, fingerprints, files, monolingual)


@dataclass(frozen=True)
class PairText:
    """The sentence pairs of a run, as text."""

    train: Lines
    dev: Lines
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""
    files: tuple[str, ...] | None
    """The training files that are read, if others were skipped."""
    monolingual: TextCorpus | None = None
    """Text of the target language for back-translation."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"pairs": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split both sides into pieces."""
        pairs = len(self.train)
        # Words and characters are counted in all of the text; subword pieces are the same from a part of it.
        if {config.text.side(side).kind for side in SIDES} <= {"bpe", "unigram"}:
            pairs = min(pairs, config.data.learn_pieces_from // 2)
        if pairs < len(self.train):
            notice(listener, f"pieces are learned from about {pairs:,} of {len(self.train):,} pairs")
        sources = (line.source for line in sample_lines(self.train, pairs, seed=config.seed))
        targets = (line.target for line in sample_lines(self.train, pairs, seed=config.seed))
        if self.monolingual is not None:
            targets = (line for lines in (targets, (line.text for line in self.monolingual)) for line in lines)
            # The source side counts as often as if all of the text had a translation.
            copies = 1 + len(self.monolingual) // max(1, len(self.train))
            sources = (line.source for _ in range(copies) for line in sample_lines(self.train, pairs, seed=config.seed))
        marks: list[str] = []
        if config.data.symbols:
            symbols = {symbol for line in self.train for symbol in split_symbols(line.source)[1]}
            marks = [piece_of(symbol) for symbol in sorted(symbols)]
            if not marks:
                shown = ", ".join(map(str, config.data.symbols))
                raise DataError(f"the columns of data.symbols=[{shown}] are empty in all training pairs; leave it out")
            sources = (split_symbols(line)[0] for line in sources)
        tokenizers = train_tokenizers(sources, targets, config.text, source_marks=marks, listener=listener)
        return complete_words(tokenizers, config.model.extra_pairs()) if config.model.is_fitted else tokenizers

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store the pairs as ids below `run`/data, and report what was dropped or looks odd."""
        if self.monolingual is not None:
            write_pairs(run / "data" / PAIRS, train=self.train, dev=self.dev)
        for name, lines in (("train", self.train), ("dev", self.dev)):

            def progress(done: int, everything: int, name: str = name) -> None:
                listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

            encoder = _pair_encoder(config, tokenizers)
            report = encode_corpus(
                lines,
                encoder,
                run / "data" / name,
                symbols=max(tokenizers.source.size, tokenizers.target.size),
                workers=config.data.workers,
                progress=progress,
            )
            for sentence in report.sentences():
                notice(listener, f"{name}: {sentence}")
            if config.data.symbols and (unknown := symbols_notice(tokenizers.source, (each.source for each in lines))):
                notice(listener, f"{name}: {unknown}")
            counts: dict[str, Value] = {
                "name": name,
                "read": report.read,
                "kept": report.kept,
                "source_tokens": report.source.tokens,
                "target_tokens": report.target.tokens,
                "source_unknown": report.source.unknown_rate,
                "target_unknown": report.target.unknown_rate,
            }
            listener(Event("encoded", counts))
        found = overview_of(Store.open(run / "data" / "train"), tokenizers)
        listener(Event("overview", {"name": "train", **asdict(found)}))
        names = {"training.start_from": config.training.start_from, "data.tokenizers_from": config.data.tokenizers_from}
        borrowed = next((f"{setting}={value}" for setting, value in names.items() if value is not None), None)
        if config.data.tokenizers_from is not None and max(found.unfamiliar) > UNUSABLE_UNKNOWN_SHARE:
            raise DataError(
                f"data.tokenizers_from={config.data.tokenizers_from} does not fit the training text: "
                f"{found.unfamiliar[0]:.1%} of the source and {found.unfamiliar[1]:.1%} of the target are unknown to "
                "it; name a model or a vocabulary of this text, or leave it out"
            )
        for sentence in (*remarks_on(found, "train", borrowed=borrowed), *spelling_remarks(found, "train", tokenizers)):
            notice(listener, sentence)
        store = Store.open(run / "data" / "dev")
        kept = {store.line(index) for index in range(len(store))}
        references = "".join(f"{line.target}\n" for line in self.dev if line.number in kept)
        write_atomically(run / "data" / "references.txt", references)
        if config.model.is_fitted:  # which may copy words that the vocabulary lacks
            sources = "".join(f"{line.source}\n" for line in self.dev if line.number in kept)
            write_atomically(run / "data" / SOURCES, sources)
        if self.files is not None:
            write_atomically(run / "data" / FILES, json.dumps(self.files) + "\n")


@dataclass(frozen=True)
class PairData:
    """The sentence pairs of a run, encoded: what a translation model is trained and measured on."""

    tokenizers: Tokenizers
    train: Store
    dev: Store
    references: list[str]
    """The target line of each dev example, as text."""
    files: tuple[str, ...] | None
    """The training files that were read, if others were skipped."""
    sources: list[str] | None = None
    """The source line of each dev example, as text; None for models that are trained in steps, which read ids."""

    @staticmethod
    def load(run: Path, config: RunConfig) -> "PairData":
        """What `PairText.encode` stored. A DataError names a file that is missing or damaged."""
        is_mixed = bool(config.data.monolingual) and (run / "data" / MIXED).is_dir()
        names = (MIXED if is_mixed else "train", "dev")
        train, dev = (Store.open(run / "data" / name, verify=True) for name in names)
        references = read_stored_lines(run / "data" / "references.txt", len(dev))
        sources = read_stored_lines(run / "data" / SOURCES, len(dev)) if config.model.is_fitted else None
        try:
            files = read_json(run / "data" / FILES)
        except (OSError, ValueError):  # it is for the model card only
            files = None
        files = tuple(map(str, files)) if isinstance(files, list) else None
        return PairData(Tokenizers.load(run / "text"), train, dev, references, files, sources)

    def dev_sources(self, count: int | None = None) -> list[str]:
        """The source lines of the first dev examples, as text: where ids alone are stored, what they spell."""
        if self.sources is not None:
            return self.sources[:count]
        places = range(len(self.dev))[:count]
        return [self.tokenizers.source.decode(self.dev.sources[at][:-1].tolist()) for at in places]

    def encoded(self) -> EncodedPairs:
        """The pairs in the form that a model is fitted to."""
        assert self.sources is not None
        return EncodedPairs(
            train=bitext_of(self.train),
            dev=bitext_of(self.dev),
            tokenizers=self.tokenizers,
            dev_sentences=[source_sentence(self.tokenizers.source, line) for line in self.sources],
            dev_references=self.references,
        )

    def task(
        self,
        config: RunConfig,
        *,
        device: torch.device,
        listener: Listener,  # noqa: ARG002
    ) -> TranslationTask | ContrastiveTask:
        """What the model is trained for."""
        if isinstance(config.task, ContrastiveConfig):
            return self._contrastive_task(config, device=device)
        assert isinstance(config.task, TranslationConfig)
        sampling, rate = None, config.task.subword_sampling
        if rate:
            source, target = (subword_sampler(each, rate) for each in (self.tokenizers.source, self.tokenizers.target))
            sampling = PairSampling(source, target, config.seed, config.data.longest)
        return TranslationTask(
            self.train,
            DevSet(
                self.dev,
                self.references,
                self.tokenizers.target,
                config.data.target,
                sources=self.dev_sources(),
                metrics=config.evaluation.metrics,
            ),
            config=config.task,
            tokens_per_batch=config.data.tokens_per_batch,
            seed=config.seed,
            device=device,
            falls=BACK_TRANSLATION_FALLS if config.data.monolingual else 0,
            sampling=sampling,
        )

    def _contrastive_task(self, config: RunConfig, *, device: torch.device) -> ContrastiveTask:
        assert isinstance(config.task, ContrastiveConfig)
        return ContrastiveTask(self.train, self.dev, config=config.task, seed=config.seed, device=device)

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {
            "files": list(self.files or config.data.train),
            **({"monolingual": list(config.data.monolingual)} if config.data.monolingual else {}),
            **({"distilled": teacher} if (teacher := read_teacher(Path(config.data.train[0]).parent)) else {}),
            "pairs": len(self.train),
            "data": self.train.fingerprint(),
            "output_limit": asdict(OutputLimit.covering(self.train.source_lengths, self.train.target_lengths)),
            "tokenizers": [self.tokenizers.source.fingerprint, self.tokenizers.target.fingerprint],
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return sample_sides(self.train, self.tokenizers)

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """Translate the dev text with the full search; its scores, and what its confidences are computed with.

        Of an encoder of sentences, the shares of dev pairs that are found first among all, in both directions.
        """
        if isinstance(loaded.config.task, ContrastiveConfig):
            return self._measure_vectors(loaded, listener=listener)
        config, count = loaded.config, min(MAX_SCORED_LINES, len(self.dev))
        sources, done = self.dev_sources(count), 0

        def progress(lines: int) -> None:
            nonlocal done
            done += lines
            listener(Event("progress", {"what": "translating dev text", "done": done, "all": count}))

        best = translate_lines(loaded, sources, progress=progress)
        if cut := sum(best.is_cut):
            notice(listener, f"dev text: {limit_message(cut, count)}")
        lowercase = config.evaluation.lowercase or self.tokenizers.target.config.lowercase
        references = self.references[:count]
        scores = score_named(
            config.evaluation.metrics or dev_names_for(self.references, self.dev_sources()),
            best.texts,
            references=references,
            sources=sources,
            language=config.data.target,
            lowercase=lowercase,
            bootstrap=Bootstrap(seed=config.seed, resamples=config.evaluation.resamples),
        )
        listener(Event("scores", {"data": "dev", "lines": count, "scores": [asdict(each) for each in scores]}))
        return DevResult(scores, count, fit_confidence(best, references, lowercase=lowercase))

    def _measure_vectors(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        config = loaded.config
        task = self._contrastive_task(config, device=loaded.device)
        scores = task.found_first(
            task.dev_vectors(loaded.model),
            languages=(config.data.source, config.data.target),
            bootstrap=Bootstrap(seed=config.seed, resamples=config.evaluation.resamples),
        )
        listener(Event("scores", {"data": "dev", "lines": task.dev_pairs, "scores": [asdict(each) for each in scores]}))
        return DevResult(scores, task.dev_pairs)


def _pair_encoder(config: RunConfig, tokenizers: Tokenizers) -> PairEncoder:
    """How lines become ids; an encoder of sentences reads them in training as it does in use."""
    reading = config.model.sentence_reading if isinstance(config.task, ContrastiveConfig) else None
    if reading is None:
        return PairEncoder(tokenizers.source.encode_flat, tokenizers.target.encode_flat, config.data.longest)
    longest = config.data.longest if reading.longest is None else min(config.data.longest, reading.longest + 1)  # END
    encode = partial(_encode_sentences, tokenizers.target, reading)
    return PairEncoder(encode, encode, longest)


def _encode_sentences(tokenizer: Tokenizer, reading: SentenceReading, lines: list[str]) -> FlatIds:
    texts = [reading.prompt + line for line in lines]
    return tokenizer.encode_flat([text.lower() for text in texts] if reading.lowercase else texts)


def read_teacher(folder: Path) -> dict[str, Any] | None:
    """Who has made the pairs of a folder `teacher`, and how; None of any other folder."""
    try:
        found = read_json(folder / f"{TEACHER}.json")
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def bitext_of(store: Store) -> Bitext:
    """The pairs of a store, END left out."""

    def without_end(side: Side) -> tuple[Int32[np.ndarray, " tokens"], Int64[np.ndarray, " borders"]]:
        ends = np.cumsum(side.lengths, dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends - np.arange(1, len(ends) + 1)])
        return np.delete(side.ids, ends - 1).astype(np.int32), starts

    return Bitext(*without_end(store.sources), *without_end(store.targets))


def complete_words(tokenizers: Tokenizers, pairs: Sequence[tuple[str, str]]) -> Tokenizers:
    """Vocabularies of words with those of given pairs; the target side also has what a translator may need to write.

    Any word may begin a sentence or stop doing so, so each has a capital and a small first letter. Marks can be copied
    with the sign where they touch their neighbours, as far as the source has them or they are common.
    """
    source, target = tokenizers.source, tokenizers.target
    cut = word_cutter(target.config.segmentation)
    sources, targets = (
        [cut(tokenizer.normaliser(text)) for text in texts]
        for tokenizer, texts in zip((source, target), zip(*pairs, strict=True) if pairs else ((), ()), strict=True)
    )
    source = with_words(source, chain.from_iterable(sources))
    marks = [piece for piece in source.vocabulary[len(RESERVED) :] if not any(map(str.isalnum, piece))]
    if target.config.segmentation != "spaces":
        marks += [f"{before}{mark}{after}" for mark in MARKS for before in ("", JOINER) for after in ("", JOINER)]
    target = with_words(target, chain(chain.from_iterable(targets), marks))
    if not target.config.lowercase:
        words = target.vocabulary[len(RESERVED) :]
        target = with_words(target, chain.from_iterable((capitalised(word), uncapitalised(word)) for word in words))
    if tokenizers.is_shared:
        source = target = with_words(target, source.vocabulary[len(RESERVED) :])
    return Tokenizers(source, target)


def fit_confidence(best: BestTranslations, references: Sequence[str], *, lowercase: bool) -> Calibration | None:
    """What the confidence of translations is computed with, learned from these; None of too few.

    Blank lines are left out, and those that were cut at the maximum length, whose confidence does not depend on their
    probability.
    """
    reached = line_scores(best.texts, references, lowercase=lowercase)
    known = [
        (log_prob, value)
        for log_prob, is_cut, value in zip(best.log_probs, best.is_cut, reached, strict=True)
        if log_prob is not None and not is_cut
    ]
    return fit_calibration([log_prob for log_prob, _ in known], [value for _, value in known])


def _open(config: RunConfig, names: Sequence[str], *, formats: Sequence[Format], listener: Listener) -> ParallelCorpus:
    """A corpus, with notices of what is unusual in it."""
    languages = config.data.source, config.data.target
    paths, data = [Path(name) for name in names], config.data
    corpus = open_corpus(paths, encoding=data.encoding, languages=languages, on_bad=data.on_bad_utf8, formats=formats)
    first = list(islice(corpus, SAMPLED_LINES)) if any(languages) else []
    samples = Sample(line.source for line in first), Sample(line.target for line in first)
    for sentence in (*corpus.notices, *(f"{paths[0]}: {doubt}" for doubt in doubts_of_pair(*samples, languages))):
        notice(listener, sentence)
    return corpus


def _held_out(config: RunConfig, pairs: int) -> int:
    """Training pairs that are held out for validation: none where there are dev files."""
    if config.data.dev:
        return 0
    count = min(config.data.held_out, pairs // 10)
    if count == 0:
        few = "1 pair is" if pairs == 1 else f"{pairs} pairs are"
        raise DataError(f"{few} too few to hold some out for validation; give --dev files")
    return count


def kept_dev_lines(given: Path, loaded: Loaded, *, most: int) -> list[tuple[str, str]]:
    """The first dev pairs of the run that a model is from, where the run has kept them; otherwise none.

    References are as they were given. Of the sources of a model that is trained in steps, ids alone are kept, so they
    are as its tokeniser spells them.
    """
    for run in (given, loaded.folder.parent):
        try:
            store = Store.open(run / "data" / "dev")
            references = read_stored_lines(run / "data" / "references.txt", len(store))
            if loaded.config.model.is_fitted:
                return list(zip(read_stored_lines(run / "data" / SOURCES, len(store))[:most], references, strict=False))
        except (OSError, DataError):
            continue
        decode = loaded.tokenizers.source.decode
        return [(decode(store.sources[at][:-1].tolist()), references[at]) for at in range(min(most, len(store)))]
    return []
