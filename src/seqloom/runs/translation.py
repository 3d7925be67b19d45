"""Translation as a line of work: pairs of lines in, BLEU and chrF (or exact match) of the dev text out.

run/data/train/     the training pairs as ids, memory-mapped
run/data/dev/       the held-out pairs, and their reference lines in references.txt
run/data/files.json the training files that were read, if others were skipped
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from seqloom.core.errors import DataError, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import read_json, read_lines, write_atomically
from seqloom.core.sizing import DataFacts
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.data.corpus import (
    HeldOut,
    Lines,
    ParallelCorpus,
    hold_out,
    hold_out_pairs,
    languages_from,
    open_corpus,
    parts_of,
)
from seqloom.data.encoding import Encoder, Report, encode_corpus
from seqloom.data.overview import LOPSIDED, Overview, look_over
from seqloom.data.sampling import sample_lines
from seqloom.data.store import Store
from seqloom.metrics.translation import Bootstrap, Score, dev_metrics_for, score
from seqloom.runs.config import RunConfig
from seqloom.runs.language_check import doubts_of_lines
from seqloom.runs.loading import LoadedModel
from seqloom.runs.pipeline import Choice, clear_stored
from seqloom.runs.sizing import Sizing, choose_sizes, facts_of, settled
from seqloom.runs.translator import limit_message, translate_lines
from seqloom.search.settings import OutputLimit
from seqloom.tasks.translation import DevSet, TranslationConfig, TranslationTask
from seqloom.text.marks import BYTE_PIECES, SPACE, is_unspaced
from seqloom.text.tokenizer import Tokenizer, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers
from seqloom.training.progress import Outcome

# What is said of a training text once it is encoded: what repeats, what is lopsided, what the vocabulary lacks.

MANY_LETTERS = 0.4
"""The share of single letters among subwords from which on a text is spelled rather than cut into pieces of words."""

MANY_UNFAMILIAR = 0.2
"""The share of a text that a vocabulary may lack before it is told."""

NOTHING_FAMILIAR = 0.99
"""The share of a side that is unknown from which on nothing can be learned from it."""


def overview_of(store: Store, tokenizers: Tokenizers) -> Overview:
    """The overview of a store that was made with these tokenisers."""
    unfamiliar = unfamiliar_ids(tokenizers.source), unfamiliar_ids(tokenizers.target)
    letters = letter_ids(tokenizers.source), letter_ids(tokenizers.target)
    return look_over(store, is_shared=tokenizers.is_shared, unfamiliar=unfamiliar, letters=letters)


def letter_ids(tokenizer: Tokenizer) -> list[int]:
    """The ids of subwords that are single letters, with or without a space before them; none where that is usual.

    Chinese characters and the like are no letters here, and a vocabulary that could not be larger is not blamed.
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
    way_out = "try text.kind=bpe, or a larger text.size"
    if borrowed is not None:
        way_out = f"leave out {borrowed}, to learn a tokeniser from this text"
    counts = (
        (found.repeated, "repeat an earlier pair", "duplicates"),
        (found.copied or 0, "have the same text on both sides", "copies"),
        (found.lopsided, f"have a side with more than {LOPSIDED} times its usual share of the pieces", "ratios"),
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
                f"{name}: {share:.0%} of the {side} is unknown to the vocabulary, so little can be learnt from it; "
                f"{way_out}"
            )
    return said


Split = Literal["sources", "pairs"]
"""Whether all pairs of a source are held out together, or pairs one by one, as runs of earlier versions have it."""

SCORED_LINES = 2_000
"""Dev sentences translated with the full search at the end of a run."""


FILES = "files.json"
"""Which training files were read, in the data folder of a run."""


@dataclass(frozen=True)
class Corpora:
    """The text of a run."""

    train: Lines
    dev: Lines
    fingerprints: Mapping[str, str]
    files: tuple[str, ...] | None
    """The training files that are read, if others were skipped."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"pairs": len(self.train)}


@dataclass(frozen=True)
class Prepared:
    """What was made of the text."""

    tokenizers: Tokenizers
    train: Store
    dev: Store
    references: list[str]
    files: tuple[str, ...] | None
    """The training files that were read, if others were skipped."""


@dataclass(frozen=True)
class TranslationWork:
    """Models that translate. See `TrainedWork` for what each method is for."""

    files: str = "--train SOURCE --train TARGET (or one .tsv, .tmx, .po, .xlf or .jsonl)"
    fixed: tuple[str, ...] = ()
    split: Split = "sources"
    """What is held out where there are no dev files."""

    # --- text ---------------------------------------------------------------------------------------------------------

    def settled(self, first: RunConfig) -> Mapping[str, Any]:
        texts = (DataFacts(pairs, 20.0 + pairs % 7, 30.0, are_unspaced=False) for pairs in (100, 30_000, 10**8))
        return settled(_sizing(first, facts, steps=None) for facts in texts)

    def choose(self, first: RunConfig, files: Sequence[Path], *, steps: int | None) -> Choice:
        found = languages_from(files)
        given = first.data.source, first.data.target
        languages = (given[0] or (found[0] if found else None), given[1] or (found[1] if found else None))
        corpus = open_corpus(files, encoding=first.data.encoding, languages=languages, on_bad=first.data.on_bad_utf8)
        _held_out(first, len(corpus))
        sizing = _sizing(first, facts_of(corpus, languages), steps=steps)
        named = zip(("source", "target"), languages, strict=True)
        return Choice(sizing, {name: language for name, language in named if language is not None})

    def open_text(self, config: RunConfig, *, listener: Listener) -> Corpora:
        train = _open(config, config.data.train, listener=listener)
        fingerprints = {"train": train.fingerprint()}
        is_whole = len(train.parts) == len(parts_of([Path(name) for name in config.data.train]))
        files = None if is_whole else tuple(str(path) for part in train.parts for path in part)
        if unknown := _unknown_languages(config):
            notice(listener, unknown)
        if config.data.dev:
            dev = _open(config, config.data.dev, listener=listener)
            fingerprints["dev"] = dev.fingerprint()
            return Corpora(train, dev, fingerprints, files)
        hold = hold_out if self.split == "sources" else hold_out_pairs
        split = hold(train, _held_out(config, len(train)), seed=config.seed)
        notice(listener, f"no dev files: {_of_split(split, len(train))}")
        return Corpora(split.rest, split.held, fingerprints, files)

    def learn_tokenizers(self, config: RunConfig, text: Corpora, *, listener: Listener) -> Tokenizers:
        pairs = len(text.train)
        # Whole words and characters are counted in all of the text; pieces of words are the same from a part of it.
        if config.text.kind in {"bpe", "unigram"}:
            pairs = min(pairs, config.data.learn_pieces_from // 2)
        if pairs < len(text.train):
            notice(listener, f"pieces are learned from about {pairs:,} of {len(text.train):,} pairs")
        sources = (line.source for line in sample_lines(text.train, pairs, seed=config.seed))
        targets = (line.target for line in sample_lines(text.train, pairs, seed=config.seed))
        return train_tokenizers(sources, targets, config.text, listener=listener)

    def encode(
        self, run: Path, config: RunConfig, *, text: Corpora, tokenizers: Tokenizers, listener: Listener
    ) -> None:
        for name, lines in (("train", text.train), ("dev", text.dev)):
            clear_stored(run, name)

            def tell(done: int, everything: int, name: str = name) -> None:
                listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

            encoder = Encoder(tokenizers.source.encode_flat, tokenizers.target.encode_flat, config.data.longest)
            report = encode_corpus(
                lines,
                encoder,
                run / "data" / name,
                symbols=max(tokenizers.source.size, tokenizers.target.size),
                workers=config.data.workers,
                progress=tell,
            )
            for sentence in report.sentences():
                notice(listener, f"{name}: {sentence}")
            listener(Event("encoded", _summary(name, report)))
        found = overview_of(Store.open(run / "data" / "train"), tokenizers)
        listener(Event("overview", {"name": "train", **asdict(found)}))
        names = {"training.start_from": config.training.start_from, "data.tokenizers_from": config.data.tokenizers_from}
        borrowed = next((f"{setting}={value}" for setting, value in names.items() if value is not None), None)
        if config.data.tokenizers_from is not None and max(found.unfamiliar) > NOTHING_FAMILIAR:
            raise DataError(
                f"data.tokenizers_from={config.data.tokenizers_from} knows next to nothing of the training text: "
                f"{found.unfamiliar[0]:.1%} of the source and {found.unfamiliar[1]:.1%} of the target are unknown to "
                "it; name a model or a vocabulary of this text, or leave it out"
            )
        for sentence in (*remarks_on(found, "train", borrowed=borrowed), *spelling_remarks(found, "train", tokenizers)):
            notice(listener, sentence)
        _write_references(run, text.dev)
        (run / "data" / FILES).unlink(missing_ok=True)
        if text.files is not None:
            write_atomically(run / "data" / FILES, json.dumps(text.files) + "\n")

    def open_prepared(self, run: Path) -> Prepared:
        train, dev = (Store.open(run / "data" / name, verify=True) for name in ("train", "dev"))
        return Prepared(
            tokenizers=Tokenizers.load(run / "text"),
            train=train,
            dev=dev,
            references=_read_references(run / "data" / "references.txt", dev),
            files=_read_files(run / "data" / FILES),
        )

    # --- training -----------------------------------------------------------------------------------------------------

    def require_model(self, model: nn.Module) -> None:
        missing = [name for name in ("output", "stepper") if not hasattr(model, name)]
        if missing:
            raise UsageError(
                f"{type(model).__name__} cannot be trained as a translator: it has no {' and no '.join(missing)}; "
                "see TranslationModel in seqloom/tasks/translation.py for what a model offers"
            )

    def task(
        self,
        config: RunConfig,
        prepared: Prepared,
        *,
        device: torch.device,
        listener: Listener,  # noqa: ARG002
    ) -> TranslationTask:
        assert isinstance(config.task, TranslationConfig)
        dev = DevSet(prepared.dev, prepared.references, prepared.tokenizers.target, config.data.target)
        return TranslationTask(
            prepared.train,
            dev,
            config=config.task,
            tokens_per_batch=config.data.tokens_per_batch,
            seed=config.seed,
            device=device,
        )

    def languages(self, config: RunConfig) -> tuple[str | None, str | None]:
        return config.data.source, config.data.target

    def trained_on(self, config: RunConfig, prepared: Prepared, *, outcome: Outcome) -> dict[str, Any]:
        return {
            "files": list(prepared.files or config.data.train),
            "pairs": len(prepared.train),
            "data": prepared.train.fingerprint(),
            "output_limit": asdict(OutputLimit.covering(prepared.train.source_lengths, prepared.train.target_lengths)),
            "tokenizers": [prepared.tokenizers.source.fingerprint, prepared.tokenizers.target.fingerprint],
            "steps": outcome.step,
            "target_tokens": outcome.tokens,
            "seconds": round(outcome.seconds, 1),
            "best_dev_loss": outcome.best_loss,
        }

    def measure(self, loaded: LoadedModel, prepared: Prepared, *, listener: Listener) -> tuple[Score, ...]:
        config, count = loaded.config, self.scored_lines(prepared)
        sources = [prepared.tokenizers.source.decode(prepared.dev.source(at)[:-1].tolist()) for at in range(count)]
        done = 0

        def tell(lines: int) -> None:
            nonlocal done
            done += lines
            listener(Event("progress", {"what": "translating dev text", "done": done, "all": count}))

        best = translate_lines(loaded, sources, progress=tell)
        if best.cut:
            notice(listener, f"dev text: {limit_message(best.cut, count)}")
        bootstrap = Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        references = prepared.references[:count]
        metrics = dev_metrics_for(
            config.data.target,
            lowercase=config.evaluation.lowercase or config.text.lowercase,
            references=prepared.references,
        )
        scores = tuple(score(metric, best.texts, references=references, bootstrap=bootstrap) for metric in metrics)
        listener(Event("scores", {"data": "dev", "lines": count, "scores": [asdict(each) for each in scores]}))
        return scores

    def scored_lines(self, prepared: Prepared) -> int:
        return min(SCORED_LINES, len(prepared.dev))


def _sizing(first: RunConfig, facts: DataFacts, *, steps: int | None) -> Sizing:
    """Sizes for a text, given what was asked for."""
    model, text = first.model, first.text
    return choose_sizes(
        facts,
        model,
        steps=steps,
        pieces=text.kind if "kind" in text.model_fields_set else None,
        vocabulary=text.size if "size" in text.model_fields_set else None,
    )


def _open(config: RunConfig, names: Sequence[str], *, listener: Listener) -> ParallelCorpus:
    """A corpus, with a word on what is odd about it."""
    languages = config.data.source, config.data.target
    paths, data = [Path(name) for name in names], config.data
    corpus = open_corpus(paths, encoding=data.encoding, languages=languages, on_bad=data.on_bad_utf8)
    for sentence in (*corpus.notices, *(f"{paths[0]}: {doubt}" for doubt in doubts_of_lines(corpus, languages))):
        notice(listener, sentence)
    return corpus


def _unknown_languages(config: RunConfig) -> str | None:
    """What is lost without the languages, where neither settings nor file names give them."""
    given = {"source": config.data.source, "target": config.data.target}
    missing = [side for side, language in given.items() if language is None]
    if not missing:
        return None
    settings = " ".join(f"data.{side}={example}" for side, example in (("source", "de"), ("target", "en")))
    which = "languages are" if len(missing) == 2 else f"{missing[0]} language is"
    return (
        f"the {which} unknown: {', '.join(config.data.train[:2])} do not name them. Without them BLEU finds words "
        "between spaces, which is wrong for Chinese, Japanese or Thai, text in a wrong language is not reported, and "
        f"the model cannot check the languages of catalogues. Give them, as in: {settings}"
    )


def _held_out(config: RunConfig, pairs: int) -> int:
    """Training pairs that are held out for validation: none where there are dev files."""
    if config.data.dev:
        return 0
    count = min(config.data.held_out, pairs // 10)
    if count == 0:
        few = "1 pair is" if pairs == 1 else f"{pairs} pairs are"
        raise DataError(f"{few} too few to hold some out for validation; give --dev files")
    return count


def _of_split(split: HeldOut, pairs: int) -> str:
    """What was held out, and what it shares with the rest."""
    said = f"{len(split.held):,} of {pairs:,} pairs are held out for validation"
    if split.sources is None:
        return f"{said}; the training text may have the same sources, so their scores may be too good"
    if split.shared_targets:
        return f"{said}; {split.shared_targets:,} of their targets are also in the training text, under other sources"
    return f"{said}, none of whose sources is in the training text"


def _write_references(run: Path, dev: Lines) -> None:
    """The target line of each dev example, as it was before it was cut into pieces."""
    store = Store.open(run / "data" / "dev")
    wanted = {store.line(index) for index in range(len(store))}
    text = "".join(f"{line.target}\n" for line in dev if line.number in wanted)
    write_atomically(run / "data" / "references.txt", text)


def _read_files(path: Path) -> tuple[str, ...] | None:
    """The files of a run that skipped some; None if it skipped none, or does not say."""
    try:
        found = read_json(path)
    except (OSError, ValueError):  # a record for the card alone: nothing is trained otherwise without it
        return None
    return tuple(map(str, found)) if isinstance(found, list) else None


def _read_references(path: Path, dev: Store) -> list[str]:
    try:
        references = list(read_lines(path))
    except (UsageError, DataError) as error:
        raise DataError(f"{path} cannot be read ({error})") from error
    if len(references) != len(dev):
        raise DataError(f"{path} is damaged: it has {len(references):,} lines, not {len(dev):,}")
    return references


def _summary(name: str, report: Report) -> dict[str, Any]:
    return {
        "name": name,
        "read": report.read,
        "kept": report.kept,
        "source_tokens": report.source.tokens,
        "target_tokens": report.target.tokens,
        "source_unknown": report.source.unknown_rate,
        "target_unknown": report.target.unknown_rate,
    }
