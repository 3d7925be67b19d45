"""Two texts that are not translations of each other: opened, split, encoded, trained on, and measured.

run/data/source/       lines of the first language as targets, their translations by phrases or words as sources
run/data/target/       the same for the second language
run/data/words.tsv     words of the second language and their translations by the dictionary
run/data/*_dev/        held-out lines likewise, and as text in *_dev.txt
run/data/dev/          dev pairs, if there are some, and their reference lines in references.txt
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64, Int64

from seqloom.core.declaration import DataFacts, Reason
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.events import Event, Listener, notice
from seqloom.core.files import read_lines, write_atomically
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import RESERVED, UNKNOWN
from seqloom.data.corpus import Block, Line, ParallelCorpus, open_corpus, text_blocks
from seqloom.data.corpus_files import languages_from
from seqloom.data.encoding import PairEncoder, encode_corpus
from seqloom.data.plain_text import TextCorpus
from seqloom.data.store import Store, read_stored_lines
from seqloom.metrics.scoring import CorpusScore, score
from seqloom.metrics.translation import Chrf
from seqloom.models.frames import FrameConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.detection import sample_text
from seqloom.runs.loading import LoadedModel
from seqloom.runs.model_dir import DevResult
from seqloom.runs.phrase_start import translate_both
from seqloom.runs.sizing import Sizing, choose_sizes, text_facts
from seqloom.runs.translation import PairData
from seqloom.search.settings import OutputLimit
from seqloom.smt.dictionary import Dictionary
from seqloom.tasks.settings import UnsupervisedConfig
from seqloom.tasks.translation import DevSet
from seqloom.tasks.unsupervised import MonolingualText, UnsupervisedTask
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.marks import join_words, split_words
from seqloom.text.normalise import is_blank
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers

SIDES = ("source", "target")

WORDS = "words.tsv"

BLANK_MARK = "<blanked word>"
"""The piece in place of words that the noise blanks."""

MIN_KNOWN_SHARE = 0.1
"""The share of words that a dictionary must know at least, below which it can hardly belong to a text."""


def marks_of(config: RunConfig) -> tuple[str, ...]:
    """Pieces that are no text: the languages, and the blank."""
    return (*(f"<language {code}>" for code in _languages(config)), BLANK_MARK)


def _languages(config: RunConfig) -> tuple[str, str]:
    source, target = config.data.source, config.data.target
    if source is None or target is None or source == target:
        raise UsageError(
            f"the languages of the two texts are {source or 'unknown'} and {target or 'unknown'}; name the files by "
            "them (--train TEXT.de --train TEXT.en), or give data.source=de data.target=en"
        )
    return source, target


def require_two(config: RunConfig, names: Sequence[str]) -> None:
    """Refuse anything but two texts, and settings with which a model cannot learn from them."""
    if len(names) != 2:
        raise UsageError(
            f"task.kind=unsupervised learns from two texts, one of each language, and {len(names)} are given; give "
            "--train TEXT.de --train TEXT.en"
        )
    paths = [Path(name) for name in names]
    is_same = paths[0] == paths[1] or (all(path.exists() for path in paths) and paths[0].samefile(paths[1]))
    if is_same:
        raise UsageError(f"{names[0]} is given as both texts; give a text of each language")
    if not config.text.is_joint:
        given = "text.shared=false" if not config.text.shared else "text.source and text.target"
        raise UsageError(f"task.kind=unsupervised needs one vocabulary for both languages; leave out {given}")
    assert isinstance(config.task, UnsupervisedConfig)
    if config.task.dictionary is not None:
        Dictionary.read(Path(config.task.dictionary))  # to refuse what cannot be read


def size_two_texts(config: RunConfig, files: Sequence[Path], *, formats: Sequence[Format] = FORMATS) -> Sizing:
    """Sizes for two texts, the languages that their names give, and the symbols of these languages."""
    require_two(config, [str(path) for path in files])
    found = languages_from(files, formats) or (None, None)
    named = {side: getattr(config.data, side) or code for side, code in zip(SIDES, found, strict=True)}
    config = config.model_copy(update={"data": config.data.model_copy(update=named)})
    texts = [_open(config, side, name=str(path), formats=formats) for side, path in enumerate(files)]
    facts = [text_facts(text, segmentation=config.text.segmentation) for text in texts]
    lines = max(len(text) for text in texts)
    pair_facts = DataFacts(
        lines,
        source_characters=facts[0].characters / len(texts[0]),
        target_characters=facts[1].characters / len(texts[1]),
        are_unspaced=False,
        source_words=facts[0].words / len(texts[0]),
        target_words=facts[1].words / len(texts[1]),
    )
    sizing = sizes_for(config, pair_facts)
    return replace(sizing, defaults={**sizing.defaults, "data": {**sizing.defaults["data"], **named}})


def sizes_for(config: RunConfig, facts: DataFacts) -> Sizing:
    """Sizes for so many lines of each language, given the settings that were set."""
    text, training = config.text, config.training
    steps = training.steps if "steps" in training.model_fields_set else None
    sizing = choose_sizes(
        facts,
        config.model,
        steps=steps,
        pieces=text.kind if "kind" in text.model_fields_set else None,
        vocabulary=text.size if "size" in text.model_fields_set else None,
    )
    defaults, steps = sizing.defaults, sizing.defaults["training"]["steps"]
    start, mix = steps // 10, 3 * (steps // 10)
    task = {"kind": "unsupervised", "start_steps": start, "mix_steps": mix}
    model, source, target = defaults["model"], config.data.source, config.data.target
    if source is not None and target is not None:
        # Marks are the first pieces after the reserved ones.
        first = len(RESERVED)
        languages = {source: first, target: first + 1}
        frame = FrameConfig(target_before=(), scheme="before", languages=languages, source=source, target=target)
        model = {**model, "frame": frame.model_dump(mode="json"), "absent": [first, first + 1, first + 2]}
    summary = sizing.summary.replace(" pairs", " lines of a language", 1)
    reason = f"{start:,} steps from the dictionary, then back-translation takes over within {mix:,}"
    return Sizing(
        {**defaults, "model": model, "task": task},
        summary,
        (*sizing.reasons, Reason(("task.start_steps", "task.mix_steps"), reason)),
    )


def _open(config: RunConfig, side: int, *, name: str, formats: Sequence[Format]) -> TextCorpus:
    data = config.data
    language = (data.source, data.target)[side]
    corpus = TextCorpus(
        [Path(name)], encoding=data.encoding, unit="line", on_bad=data.on_bad_utf8, language=language, formats=formats
    )
    corpus.require_text()
    return corpus


# --- words by a dictionary --------------------------------------------------------------------------------------------


Candidates = tuple[tuple[str, float], ...]
"""Translations of a word, best first, with their shares, which add up to 1."""


@dataclass(frozen=True)
class Substitution:
    """A line word by word in another language: as it is written, else in lower case, else as it is."""

    words: Mapping[str, Candidates]

    @staticmethod
    def both_ways(dictionary: Dictionary) -> tuple["Substitution", "Substitution"]:
        """From the first language to the second, and back, with the scores of the same entries."""
        tables: tuple[dict[str, dict[str, float]], ...] = ({}, {})
        places: dict[str, int] = {}
        for entry in dictionary.entries:
            places[entry.source] = places.get(entry.source, 0) + 1
            value = 1 / places[entry.source] if entry.score is None else entry.score
            if entry.target:
                tables[0].setdefault(entry.source, {}).setdefault(entry.target, value)
                tables[1].setdefault(entry.target, {}).setdefault(entry.source, value)
        first, second = (Substitution({word: _shares(found) for word, found in table.items()}) for table in tables)
        return first, second

    def candidates(self, word: str) -> Candidates:
        """The translations of a word; none if it is unknown."""
        lower = word.lower()
        if word in self.words or lower == word:
            return self.words.get(word, ())
        return tuple((found[:1].upper() + found[1:], share) for found, share in self.words.get(lower, ()))

    def __call__(self, line: str, generator: np.random.Generator | None = None) -> str:
        """The line with the best translation of each word, or with one that is drawn by its share."""
        words = split_words(line)
        heights = np.zeros(len(words)) if generator is None else generator.random(len(words))
        return join_words([self._drawn(word, height) for word, height in zip(words, heights.tolist(), strict=True)])

    def _drawn(self, word: str, height: float) -> str:
        candidates = self.candidates(word)
        for found, share in candidates:
            if height < share:
                return found
            height -= share
        return candidates[-1][0] if candidates else word

    def known_share(self, lines: Sequence[str]) -> float:
        """The share of words with letters that have a translation."""
        words = [word for line in lines for word in split_words(line) if any(map(str.isalpha, word))]
        return sum(bool(self.candidates(word)) for word in words) / max(1, len(words))


def _shares(scores: Mapping[str, float]) -> Candidates:
    total = sum(scores.values())
    return tuple((word, scores[word] / total) for word in sorted(scores, key=lambda word: -scores[word]))


@dataclass(frozen=True)
class SubstitutedLines:
    """Some lines of a text as targets, with what takes the place of their translations as sources."""

    text: TextCorpus
    numbers: frozenset[int]
    is_rest: bool
    substitute: Substitution | None
    """None copies the lines."""
    seed: int
    """Of the translations that are drawn for the words of each line."""
    translations: Mapping[int, str] | None = None
    """The translation of each line by its number, instead of its words."""

    def __len__(self) -> int:
        return len(self.text) - len(self.numbers) if self.is_rest else len(self.numbers)

    def __iter__(self) -> Iterator[Line]:
        for line in self.text:
            if (line.number in self.numbers) != self.is_rest:
                source = line.text
                if self.translations is not None:
                    source = self.translations[line.number]
                elif self.substitute is not None:
                    generator = np.random.default_rng(seed_for(self.seed, "substitution", line.number))
                    source = self.substitute(line.text, generator)
                yield Line(line.number, 0, line.text if is_blank(source) else source, line.text)

    def blocks(self) -> Iterator[Block]:
        return text_blocks(self)


# --- the texts of a run -----------------------------------------------------------------------------------------------


def open_two_texts(config: RunConfig, *, formats: Sequence[Format] = FORMATS, listener: Listener) -> "TwoTexts":
    """Open and check the texts of a run, the dictionary, and dev pairs if there are some."""
    require_two(config, config.data.train)
    _languages(config)
    texts = [_open(config, side, name=name, formats=formats) for side, name in enumerate(config.data.train)]
    for sentence in (sentence for text in texts for sentence in text.notices):
        notice(listener, sentence)
    if texts[0].fingerprint() == texts[1].fingerprint():
        raise DataError(
            f"{' and '.join(config.data.train)} hold the same text; give a text of each language, which need not be "
            "translations of each other"
        )
    fingerprints = {side: text.fingerprint() for side, text in zip(SIDES, texts, strict=True)}
    held = [_held_out(config, text, side) for side, text in enumerate(texts)]
    counts = " and ".join(f"{len(numbers):,} of {len(text):,}" for numbers, text in zip(held, texts, strict=True))
    notice(listener, f"held out for translation there and back: {counts} lines")
    assert isinstance(config.task, UnsupervisedConfig)
    ways: Sequence[Substitution | None] = (None, None)
    if config.task.dictionary is not None:
        path = Path(config.task.dictionary)
        ways = Substitution.both_ways(Dictionary.read(path))
        fingerprints["dictionary"] = str(hash_of(ways))
        for name, text, way in zip(config.data.train, texts, ways, strict=True):
            assert way is not None
            share = way.known_share([line.text for _, line in zip(range(2000), text, strict=False)])
            notice(listener, f"{path} has translations for {share:.0%} of the words of {name}")
            if share < MIN_KNOWN_SHARE:
                problem = f"translates {share:.1%} of the words of {name}; is it a dictionary of these languages, in "
                raise DataError(problems=[Problem(f"{problem}the direction of the two texts?", str(path))])
    else:
        notice(listener, "no task.dictionary: only pieces that both languages share give the model a start")
    first, second = (
        _Split(text, numbers, way, seed_for(config.seed, "dictionary", side))
        for side, (text, numbers, way) in enumerate(zip(texts, held, ways, strict=True))
    )
    pairs = None
    if config.data.dev:
        languages = config.data.source, config.data.target
        pairs = open_corpus(
            [Path(name) for name in config.data.dev],
            encoding=config.data.encoding,
            languages=languages,
            on_bad=config.data.on_bad_utf8,
            formats=formats,
        )
        fingerprints["dev"] = pairs.fingerprint()
    return TwoTexts((first, second), pairs, fingerprints)


def hash_of(ways: Sequence[Substitution | None]) -> int:
    """A number that changes with what the dictionary translates."""
    words = sorted(f"{one}\t{found}" for way in ways if way is not None for one, found in way.words.items())
    return seed_for(0, "\n".join(words))


def _held_out(config: RunConfig, text: TextCorpus, side: int) -> frozenset[int]:
    numbers = [line.number for line in text if not is_blank(line.text)]
    count = min(config.data.held_out, len(numbers) // 10)
    if count == 0:
        raise DataError(
            problems=[Problem(f"{len(numbers)} lines are too few to hold some out for validation", str(text.paths[0]))]
        )
    chosen = np.random.default_rng(seed_for(config.seed, "held out", side)).choice(len(numbers), count, replace=False)
    return frozenset(numbers[place] for place in chosen)


@dataclass(frozen=True)
class _Split:
    """A text with the numbers of its held-out lines, and the dictionary of its language."""

    text: TextCorpus
    held_out: frozenset[int]
    substitute: Substitution | None
    seed: int

    def lines(self, *, is_dev: bool) -> SubstitutedLines:
        return SubstitutedLines(self.text, self.held_out, not is_dev, self.substitute, self.seed)


@dataclass(frozen=True)
class TwoTexts:
    """The texts of a run."""

    texts: tuple[_Split, _Split]
    pairs: ParallelCorpus | None
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {f"{side}_lines": len(text.lines(is_dev=False)) for side, text in zip(SIDES, self.texts, strict=True)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn one set of pieces for both languages."""
        sources, targets = ((line.target for line in text.lines(is_dev=False)) for text in self.texts)
        return train_tokenizers(sources, targets, config.text, marks=marks_of(config), listener=listener)

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store the texts as ids below `run`/data, and report what was dropped."""
        tokenizer, data = tokenizers.target, run / "data"
        _require_symbols(config, tokenizers)
        encoder = PairEncoder(tokenizer.encode_flat, tokenizer.encode_flat, config.data.longest)

        def store(lines: SubstitutedLines | ParallelCorpus, name: str) -> Store:
            def progress(done: int, everything: int) -> None:
                listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

            workers = config.data.workers
            report = encode_corpus(
                lines, encoder, data / name, symbols=tokenizer.size, workers=workers, progress=progress
            )
            for sentence in report.sentences():
                notice(listener, f"{name}: {sentence.replace('pairs', 'lines')}")
            side = report.target
            listener(
                Event(
                    "encoded", {"name": name, "lines": report.kept, "tokens": side.tokens, "unknown": side.unknown_rate}
                )
            )
            return Store.open(data / name)

        def write_lines(lines: SubstitutedLines | ParallelCorpus, stored: Store, name: str) -> None:
            kept = {stored.line(index) for index in range(len(stored))}
            write_atomically(data / name, "".join(f"{line.target}\n" for line in lines if line.number in kept))

        for side, text, lines in zip(SIDES, self.texts, self._with_sources(config, listener=listener), strict=True):
            store(lines, side)
            held = text.lines(is_dev=True)
            write_lines(held, store(held, f"{side}_dev"), f"{side}_dev.txt")
        way = self.texts[1].substitute
        words = {} if way is None else way.words
        rows = (f"{one}\t{other}\t{share:.6g}\n" for one, found in words.items() for other, share in found)
        write_atomically(data / WORDS, "".join(rows))
        if self.pairs is not None:
            write_lines(self.pairs, store(self.pairs, "dev"), "references.txt")

    def _with_sources(self, config: RunConfig, *, listener: Listener) -> list[SubstitutedLines]:
        """The training lines of both texts with what the model reads at first."""
        assert isinstance(config.task, UnsupervisedConfig)
        lines = [text.lines(is_dev=False) for text in self.texts]
        first, second = (text.substitute for text in self.texts)
        if config.task.start == "words" or first is None or second is None:
            return lines
        numbered = [{line.number: line.target for line in some} for some in lines]
        texts = list(numbered[0].values()), list(numbered[1].values())
        found = translate_both(texts, (first, second), config, rounds=config.task.start_rounds, listener=listener)
        return [
            replace(some, translations=dict(zip(own, translated, strict=True)))
            for some, own, translated in zip(lines, numbered, found, strict=True)
        ]


def _require_symbols(config: RunConfig, tokenizers: Tokenizers) -> None:
    """Refuse pieces, or a model to start from, that have no symbols of the two languages."""
    frame, ids = (
        getattr(config.model, "frame", FrameConfig()),
        [tokenizers.target.id_of(mark) for mark in marks_of(config)],
    )
    if frame.scheme != "before" or [frame.languages.get(code) for code in _languages(config)] != ids[:2]:
        names = {"training.start_from": config.training.start_from, "data.tokenizers_from": config.data.tokenizers_from}
        given = [f"{setting}={value}" for setting, value in names.items() if value is not None]
        languages = " and ".join(_languages(config))
        raise UsageError(
            f"{' and '.join(given) or 'model.frame'} gives no symbols of the languages {languages}; leave it out, or "
            "name a model that was trained with task.kind=unsupervised on these languages"
        )


@dataclass(frozen=True)
class TwoTextData:
    """The texts of a run, encoded."""

    tokenizers: Tokenizers
    texts: tuple[MonolingualText, MonolingualText]
    pairs: Store | None
    references: list[str]
    words: list[tuple[str, str, float]]
    """Words of the second language, their translations by the dictionary, and the share of each."""

    @staticmethod
    def load(run: Path, config: RunConfig) -> "TwoTextData":
        """What `TwoTexts.encode` stored. A DataError names a file that is missing or damaged."""
        data, texts = run / "data", []
        for side in SIDES:
            train, dev = (Store.open(data / name, verify=True) for name in (side, f"{side}_dev"))
            texts.append(MonolingualText(train, dev, read_stored_lines(data / f"{side}_dev.txt", len(dev))))
        pairs = Store.open(data / "dev", verify=True) if config.data.dev else None
        references = [] if pairs is None else read_stored_lines(data / "references.txt", len(pairs))
        try:
            rows = [line.split("\t") for line in read_lines(data / WORDS)]
            words = [(one, other, float(share)) for one, other, share in rows]
        except (UsageError, DataError, ValueError) as error:
            raise DataError(f"{data / WORDS} cannot be read ({error})") from error
        return TwoTextData(Tokenizers.load(run / "text"), (texts[0], texts[1]), pairs, references, words)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> UnsupervisedTask:  # noqa: ARG002
        """What the model is trained for."""
        assert isinstance(config.task, UnsupervisedConfig)
        frame = getattr(config.model, "frame", None)
        assert isinstance(frame, FrameConfig)
        tokenizer = self.tokenizers.target
        pairs = None
        if self.pairs is not None:
            pairs = DevSet(self.pairs, self.references, tokenizer, config.data.target)
        return UnsupervisedTask(
            self.texts,
            pairs=pairs,
            twins=self._twins(),
            config=config.task,
            tokenizer=tokenizer,
            blank=tokenizer.id_of(BLANK_MARK) or UNKNOWN,
            frame=frame,
            languages=_languages(config),
            tokens_per_batch=config.data.tokens_per_batch,
            batches_per_step=config.training.batches_per_step,
            seed=config.seed,
            device=device,
        )

    def _twins(self) -> tuple[Int64[np.ndarray, "words 2"], Float64[np.ndarray, " words"]]:
        """Words of the dictionary that are one symbol each, those of the first language first; and their shares."""
        encode = self.tokenizers.target.encode_many
        second, first = encode([row[0] for row in self.words]), encode([row[1] for row in self.words])
        found = [
            ((*one, *other), share)
            for one, other, (_, _, share) in zip(first, second, self.words, strict=True)
            if len(one) == len(other) == 1 and one != other and UNKNOWN not in (*one, *other)
        ]
        pairs = np.array([pair for pair, _ in found], dtype=np.int64).reshape(-1, 2)
        return pairs, np.array([share for _, share in found], dtype=np.float64)

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        first, second = (text.train for text in self.texts)
        # The lines of the second language with their words in the first: about as long as pairs.
        limit = OutputLimit.covering(second.source_lengths, second.target_lengths)
        return {
            "files": list(config.data.train),
            "lines": len(first) + len(second),
            "source_lines": len(first),
            "target_lines": len(second),
            "data": f"{first.fingerprint()} {second.fingerprint()}",
            "output_limit": asdict(limit),
            "tokenizers": [self.tokenizers.source.fingerprint, self.tokenizers.target.fingerprint],
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return [sample_text(text.train.targets.ids, self.tokenizers.target) for text in self.texts]

    def measure(self, loaded: LoadedModel, *, listener: Listener) -> DevResult:
        """Scores of dev pairs with the full search; without any, the round-trip chrF of held-out lines."""
        if self.pairs is not None:
            return PairData(self.tokenizers, self.pairs, self.pairs, self.references, None).measure(
                loaded, listener=listener
            )
        task = self.task(loaded.config, device=loaded.device, listener=listener)
        lines = sum(min(task.config.dev_lines, len(text.dev)) for text in self.texts)
        usual = score(Chrf(lowercase=loaded.config.text.lowercase), ["a"], references=["a"])
        signature = f"{usual.signature}|round trip|copies:lost"
        scores = (CorpusScore(f"round-trip {usual.name}", task.round_trip(loaded.model), signature),)
        listener(Event("scores", {"data": "dev", "lines": lines, "scores": [asdict(each) for each in scores]}))
        return DevResult(scores, lines)
