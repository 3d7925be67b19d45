"""Tagged sentences for taggers: opened, split, encoded, trained on and measured.

run/data/train/      the training sentences as ids with their tags, memory-mapped
run/data/dev/        the held-out sentences likewise
run/data/dev.txt     the held-out words with their tags as they are written, a word in each line
run/data/counted.json  how well taggers that only count do on them

The columns and their tags are found when sizes are chosen, and are part of the settings (`task.columns`, `task.tags`,
`task.schemes`). Without dev files, sentences drawn by the seed are held out. Before training, the most frequent tag of
each word and a hidden Markov model (`classical.tagger`) are fitted and measured: a tagger that is trained for minutes
has to beat what is counted in seconds.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from seqloom.classical.tagger import HmmTagger, MajorityTagger
from seqloom.classical.vectors import WordVectors
from seqloom.core.declaration import TaggedFacts
from seqloom.core.errors import DataError, Problem, UsageError
from seqloom.core.events import Event, Listener, notice, phase, progress
from seqloom.core.files import read_json, write_atomically
from seqloom.core.seeds import seed_for
from seqloom.data.tokens import (
    MAX_TAGS,
    SCRIPTED,
    TaggedSentence,
    TokenCorpus,
    TokenStore,
    encode_tagged,
    hold_out,
    is_empty,
    is_filled,
    tags_in,
    value_columns,
    values_of,
)
from seqloom.metrics.scoring import Bootstrap, CorpusScore
from seqloom.metrics.tagging import score_spans, score_tags
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import Loaded, find_model, load_any
from seqloom.runs.model_dir import DevResult, read_settings
from seqloom.runs.sizing import Sizing, choose_tagged_sizes
from seqloom.runs.twins import beside, report_unbeaten, twins_text
from seqloom.tasks.classification import WordRows
from seqloom.tasks.settings import TaggingConfig
from seqloom.tasks.tagging import TaggingTask
from seqloom.text.edit_scripts import apply_script
from seqloom.text.formats.conllu import TokenFile, TokenLayout
from seqloom.text.marks import JOINER
from seqloom.text.tokenizer import ALL_CHARACTERS, TextConfig, Tokenizer, Tokenizers, WordPieces
from seqloom.text.tokenizer_training import train_tokenizer, with_words
from seqloom.text.vocabulary import Vocabulary

MAX_HMM_TAGS = 100
"""Tags of a column up to which a hidden Markov model is fitted, in seconds: its table has all triples."""

MIN_LETTERS = 2
"""Different words that have a letter before it is known: the others teach what unknown letters are."""

SHOWN_TAGS = 5
"""Tags of the dev text without a place in the model that a notice shows."""

Columns = Mapping[str, Sequence[Sequence[str]]]
"""The values of each column, sentence by sentence."""


# --- sizes ------------------------------------------------------------------------------------------------------------


def size_tagged(config: RunConfig, files: Sequence[Path], *, listener: Listener) -> Sizing:
    """Sizes for the tagged sentences in these files, their columns and their tags."""
    _require_text(config)
    task, corpus = _started(config), TokenCorpus(files)
    train, _ = _split(config, corpus)
    columns = task.columns or _filled(corpus, train, listener=listener)
    for column in columns:
        _require_tags(corpus, train, column)
    found = {column: tags_in(train, column) for column in columns}
    tags = {column: list(task.tags.get(column) or each.tags) for column, each in found.items()}
    for column, each in tags.items():
        if len(each) > MAX_TAGS:
            raise DataError(
                f"{files[0]}: column {column} has {len(each):,} different values, more than {MAX_TAGS:,}; leave it out "
                f"with task.columns={json.dumps([name for name in columns if name != column])}"
            )
    words = sum(len(each.forms) for each in train)
    facts = TaggedFacts(len(train), words, tuple(map(len, tags.values())))
    sizing = sizes_for(config, facts)
    schemes = {column: each.scheme for column, each in found.items() if each.scheme is not None}
    if task.tags:
        schemes = dict(task.schemes)
    defaults = sizing.defaults
    if (vectors := open_vectors(config)) is not None:
        defaults = merge_width(defaults, config, width=vectors.width)
    return replace(
        sizing,
        defaults={
            **defaults,
            "task": {**defaults["task"], "columns": list(columns), "tags": tags, "schemes": schemes},
        },
    )


def sizes_for(config: RunConfig, facts: TaggedFacts) -> Sizing:
    """Sizes for such tagged text, given the settings that were set."""
    training = config.training
    steps = training.steps if "steps" in training.model_fields_set else None
    return choose_tagged_sizes(facts, config.model, steps=steps, is_started=training.start_from is not None)


def _task(config: RunConfig) -> TaggingConfig:
    assert isinstance(config.task, TaggingConfig)
    return config.task


def _started(config: RunConfig) -> TaggingConfig:
    """The task of a run, with the columns and tags of the tagger that it starts from."""
    task, name = _task(config), config.training.start_from
    start = None if name is None else read_settings(find_model(Path(name))).task
    if not isinstance(start, TaggingConfig) or task.tags or task.columns:
        return task
    return task.model_copy(update={"columns": start.columns, "tags": start.tags, "schemes": start.schemes})


def _require_text(config: RunConfig) -> None:
    """Refuse settings of text that tagged files do not have: their words are given."""
    if config.text.kind != "word":
        raise UsageError(f"text.kind={config.text.kind}, but a tagger reads whole words; leave out text.kind")
    if config.data.encoding.lower().replace("_", "-") not in ("utf-8", "utf8"):
        raise UsageError(f"data.encoding={config.data.encoding}, but tagged files are read as UTF-8; convert them")
    if config.data.tokenizers_from is not None:
        raise UsageError(
            f"data.tokenizers_from={config.data.tokenizers_from} cannot be used by a tagger, which learns words and "
            "letters from its text; name another tagger with training.start_from"
        )


def _filled(corpus: TokenCorpus, train: Sequence[TaggedSentence], *, listener: Listener) -> tuple[str, ...]:
    """The columns with different values; the others are reported."""
    columns = value_columns(corpus.layout)
    filled = tuple(column for column in columns if is_filled(train, column))
    if not filled:
        _require_tags(corpus, train, columns[0])
    if left := [column for column in columns if column not in filled]:
        notice(listener, f"not learned, because all words have the same value there: {', '.join(left)}")
    return filled


def _require_tags(corpus: TokenCorpus, train: Sequence[TaggedSentence], column: str) -> None:
    """Refuse a column that a file does not have, or that has only one tag."""
    known = value_columns(corpus.layout)
    if column not in known:
        raise UsageError(
            f"task.columns has {column!r}, but the columns with tags are {', '.join(known)} ({corpus.layout.seen})"
        )
    if is_filled(train, column):
        return
    path, line = corpus.place(train[0].number)
    words = sum(len(each.forms) for each in train)
    if is_empty(train, column):
        message = f"column {column} is empty (_) in all {words:,} words; a tagger needs two different tags or more"
    else:
        only = train[0].values[column][0]
        message = f"{only!r} is the only tag in column {column} of {words:,} words; a tagger needs two or more"
    raise DataError(problems=[Problem(message, str(path), line)])


# --- files ------------------------------------------------------------------------------------------------------------


def open_tagged(config: RunConfig, *, listener: Listener) -> "TaggedText":
    """Open and check the tagged sentences of a run. Without dev files, some of the training text are held out."""
    task, corpus = _task(config), TokenCorpus([Path(name) for name in config.data.train])
    notice(listener, f"{len(corpus):,} sentences, {corpus.words:,} words ({corpus.layout.seen})")
    for column in task.columns:
        shown = ", ".join(task.tags[column][:10]) + (", …" if len(task.tags[column]) > 10 else "")
        what = "edit scripts" if column == SCRIPTED else f"tags ({task.schemes.get(column, 'no spans')})"
        notice(listener, f"column {column}: {len(task.tags[column]):,} {what}: {shown}")
    train, held = _split(config, corpus)
    fingerprints = {"train": corpus.fingerprint()}
    if config.data.dev:
        dev = TokenCorpus([Path(name) for name in config.data.dev], layout=corpus.layout)
        return TaggedText(train, dev.sentences, {**fingerprints, "dev": dev.fingerprint()})
    notice(listener, f"no dev files: {len(held):,} of {len(corpus):,} sentences are held out for validation")
    return TaggedText(train, held, fingerprints)


def _split(config: RunConfig, corpus: TokenCorpus) -> tuple[Sequence[TaggedSentence], Sequence[TaggedSentence]]:
    """Training sentences, and those that are held out where there are no dev files."""
    if config.data.dev:
        return corpus.sentences, ()
    count = min(config.data.held_out, len(corpus) // 10)
    if count == 0:
        few = "1 sentence is" if len(corpus) == 1 else f"{len(corpus)} sentences are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev file")
    return hold_out(corpus, count, seed=seed_for(config.seed, "held-out sentences"))


@dataclass(frozen=True)
class TaggedText:
    """The tagged sentences of a run."""

    train: Sequence[TaggedSentence]
    dev: Sequence[TaggedSentence]
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"lines": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """The letters of the training text (source side) and its words (target side)."""
        counts = Counter(form for sentence in self.train for form in sentence.forms)
        spelling = TextConfig(kind="char", size=ALL_CHARACTERS, minimum_count=MIN_LETTERS)
        letters = train_tokenizer([*counts, *counts] if len(counts) < MIN_LETTERS else counts, spelling)
        normal: Counter[str] = Counter()
        for form, count in counts.items():
            normal[config.text.normaliser(form)] += count
        del normal[""]  # a word of invisible characters
        known = Vocabulary.from_counts(normal, size=config.text.size, minimum_count=config.text.minimum_count)
        words = Tokenizer(config.text, WordPieces(known, segmentation=config.text.segmentation))
        if (vectors := open_vectors(config)) is not None:
            words = with_words(words, (config.text.normaliser(word) for word in words_of(vectors)))
            added = words.size - known.size
            notice(listener, f"{added:,} words are known from model.vectors alone, beside {len(known.tokens):,} others")
        return Tokenizers(letters, words)

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store the sentences below `run`/data, report unknown tags, and measure what counting alone achieves."""
        task = _task(config)
        for name, sentences in (("train", self.train), ("dev", self.dev)):

            def shown(done: int, everything: int, name: str = name) -> None:
                progress(listener, f"encoding {name} text", done, everything)

            report = encode_tagged(
                sentences, run / "data" / name, tokenizers=tokenizers, tags=_tags(task), progress=shown
            )
            unknown = report.unknown / max(1, report.words)
            counts = {"lines": report.sentences, "tokens": report.words, "unknown": unknown}
            listener(Event("encoded", {"name": name, **counts}))
            for column, untagged in report.untagged.items():
                if untagged:
                    notice(listener, f"{name}: {_untagged(column, untagged, words=report.words)}")
        columns = {column: [each.values[column] for each in self.dev] for column in task.columns}
        write_values(run / "data" / "dev.txt", [each.forms for each in self.dev], columns)
        counted = measure_counting(self.train, self.dev, task, listener=listener)
        write_atomically(run / "data" / "counted.json", json.dumps(counted, indent=2) + "\n")
        notice(listener, f"dev scores by counting: {twins_text(twins_of(counted))}")


def _tags(task: TaggingConfig) -> dict[str, tuple[str, ...]]:
    return {column: task.tags[column] for column in task.columns}


def _untagged(column: str, values: Counter[str], *, words: int) -> str:
    """How many words have a tag that the model does not know."""
    what = "edit scripts of lemmas" if column == SCRIPTED else "tags"
    shown = ", ".join(f"{value!r}" for value, _ in values.most_common(SHOWN_TAGS))
    more = ", …" if len(values) > SHOWN_TAGS else ""
    count = values.total()
    return (
        f"{count:,} of {words:,} words ({count / words:.2%}) have {what} in column {column} that are not among those "
        f"of the model, and count as wrong: {shown}{more}"
    )


# --- counting ---------------------------------------------------------------------------------------------------------


def measure_counting(
    train: Sequence[TaggedSentence], dev: Sequence[TaggedSentence], task: TaggingConfig, *, listener: Listener
) -> dict[str, dict[str, float]]:
    """The dev accuracy, in percent, of the most frequent tag of each word and of a hidden Markov model, by column.

    Of columns with spans, their F1 as well, as `COLUMN span F1`.
    """
    phase(listener, "counting tags, to compare with")
    measured: dict[str, dict[str, float]] = {}
    for column in task.columns:
        expected = [each.values[column] for each in dev]
        found = {
            name: [written(column, each.forms, tagger.tag(each.forms)) for each in dev]
            for name, tagger in count_tags(train, column, task).items()
        }
        measured[column] = {name: score_tags(tags, expected).value for name, tags in found.items()}
        if column in task.schemes:
            spans = {name: score_spans(tags, expected).value for name, tags in found.items()}
            measured[f"{column} span F1"] = spans
    return measured


def count_tags(
    train: Sequence[TaggedSentence], column: str, task: TaggingConfig
) -> dict[str, MajorityTagger | HmmTagger]:
    """Taggers of a column that only count: `majority`, and `hmm` if there are not too many tags."""
    pairs = [list(zip(each.forms, values_of(each, column), strict=True)) for each in train]
    taggers: dict[str, MajorityTagger | HmmTagger] = {"majority": MajorityTagger.fit(pairs)}
    if len(task.tags[column]) <= MAX_HMM_TAGS:
        taggers["hmm"] = HmmTagger.fit(pairs)
    return taggers


TWIN_NAMES = {"majority": "most frequent tag", "hmm": "HMM"}


def twins_of(counted: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """What `measure_counting` gave, by the names of scores."""
    return {
        key if key.endswith(" span F1") else f"{key} accuracy": {
            TWIN_NAMES[name]: each for name, each in values.items()
        }
        for key, values in counted.items()
    }


# --- values -----------------------------------------------------------------------------------------------------------


def written(column: str, forms: Sequence[str], tags: Sequence[str]) -> list[str]:
    """Tags as a file has them: lemmas in place of edit scripts."""
    return list(map(apply_script, tags, forms)) if column == SCRIPTED else list(tags)


def write_values(path: Path, forms: Sequence[Sequence[str]], columns: Columns) -> None:
    """Write words and their values, separated by tabs, with a blank line after each sentence."""
    lines = []
    for place, words in enumerate(forms):
        lines += ["\t".join(row) for row in zip(words, *(each[place] for each in columns.values()), strict=True)]
        lines.append("")
    write_atomically(path, "\n".join([*lines, ""]))


def read_values(path: Path, columns: Sequence[str]) -> tuple[list[tuple[str, ...]], dict[str, list[tuple[str, ...]]]]:
    """What `write_values` has written."""
    names = ("form", *map(str, range(2, len(columns) + 2)))
    sentences = [each for each in TokenFile(path, layout=TokenLayout(names)) if each.words]
    values = {
        column: [each.column(name) for each in sentences] for column, name in zip(columns, names[1:], strict=True)
    }
    return [each.forms for each in sentences], values


def score_columns(
    found: Columns, expected: Columns, *, schemes: Mapping[str, str], bootstrap: Bootstrap | None = None
) -> tuple[CorpusScore, ...]:
    """The accuracy of each column, and the F1 of its spans if it has some."""
    scores = []
    for column, values in expected.items():
        score = score_tags(found[column], values, bootstrap=bootstrap)
        scores.append(replace(score, name=f"{column} accuracy"))
        if column in schemes:
            spans = score_spans(found[column], values, bootstrap=bootstrap)
            scores.append(replace(spans, name=f"{column} span F1"))
    return tuple(scores)


# --- word vectors -----------------------------------------------------------------------------------------------------


def open_vectors(config: RunConfig) -> WordVectors | None:
    """The word vectors that model.vectors names."""
    name = getattr(config.model, "vectors", None)
    if name is None:
        return None
    loaded = load_any(name)
    if loaded.config.purpose != "word vectors":
        raise UsageError(f"model.vectors={name} is a {loaded.config.purpose}; train vectors with model.kind=word2vec")
    return cast("WordVectors", loaded.model)


def merge_width(defaults: dict[str, Any], config: RunConfig, *, width: int) -> dict[str, Any]:
    """Defaults with rows of words as wide as the vectors that model.vectors names."""
    given = config.model.model_dump(include={"vectors", "word_width"})
    if "word_width" in config.model.model_fields_set and given["word_width"] != width:
        raise UsageError(
            f"model.word_width={given['word_width']}, but the vectors of model.vectors={given['vectors']} have "
            f"{width} numbers; leave out model.word_width"
        )
    return {**defaults, "model": {**defaults["model"], "word_width": width}}


def words_of(vectors: WordVectors) -> dict[str, int]:
    """The row of each word; signs that join marks to their neighbours are no part of it."""
    rows: dict[str, int] = {}
    for row, word in enumerate(vectors.words):
        if bare := word.strip(JOINER):
            rows.setdefault(bare, row)
    return rows


def rows_of(config: RunConfig, words: Tokenizer) -> WordRows | None:
    """The vectors that model.vectors names, for the words of a vocabulary."""
    vectors = open_vectors(config)
    if vectors is None:
        return None
    known = {words.normaliser(word): row for word, row in reversed(words_of(vectors).items())}
    bare = (word.strip(JOINER) for word in words.vocabulary)
    places = [(number, known[word]) for number, word in enumerate(bare) if word in known]
    at, of = np.array(places, np.int64).reshape(-1, 2).T
    return WordRows(at, vectors.vectors[of])


# --- stored data ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaggedData:
    """The tagged sentences of a run, encoded: what a tagger learns from."""

    tokenizers: Tokenizers
    train: TokenStore
    dev: TokenStore
    dev_file: Path
    counted: Mapping[str, Mapping[str, float]]

    @staticmethod
    def load(run: Path, config: RunConfig) -> "TaggedData":
        """What `TaggedText.encode` stored. A DataError names a file that is missing or damaged."""
        tokenizers, folder = Tokenizers.load(run / "text"), run / "data"
        sizes, letters = [len(each) for each in _tags(_task(config)).values()], tokenizers.source.size
        train, dev = (
            TokenStore.open(folder / name, tags=sizes, letters=letters, verify=True) for name in ("train", "dev")
        )
        try:
            counted = read_json(folder / "counted.json")
        except (OSError, ValueError) as error:
            raise DataError(f"{folder / 'counted.json'} cannot be read: {error}") from error
        if not (folder / "dev.txt").is_file():
            raise DataError(f"{folder / 'dev.txt'} is missing")
        return TaggedData(tokenizers, train, dev, folder / "dev.txt", counted)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> TaggingTask:  # noqa: ARG002
        """What the model is trained for."""
        words = self.tokenizers.target
        rows = rows_of(config, words)
        return TaggingTask(
            self.train, self.dev, config=_task(config), words=words.size, seed=config.seed, device=device, vectors=rows
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {
            "files": list(config.data.train),
            "lines": len(self.train),
            "tokens": len(self.train.forms),
            "data": self.train.fingerprint(),
            "tokenizers": self.tokenizers.fingerprints,
            "counted": self.counted,
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        """Words of the training text, without their order."""
        return [list(self.tokenizers.target.vocabulary[4:])]

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """The accuracy of each column of the dev text, and F1 of spans; beside it that of counting."""
        config, task = loaded.config, _task(loaded.config)
        numbers = self.task(config, device=loaded.device, listener=listener).dev_tags(loaded.model)
        forms, expected = read_values(self.dev_file, task.columns)
        cuts = np.cumsum(self.dev.lengths)[:-1]
        found = {}
        for place, column in enumerate(task.columns):
            names = task.tags[column]
            tags = [[names[number] for number in each] for each in np.split(numbers[:, place], cuts)]
            found[column] = [written(column, *pair) for pair in zip(forms, tags, strict=True)]
        bootstrap = Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
        scores = score_columns(found, expected, schemes=task.schemes, bootstrap=bootstrap)
        shown = beside(scores, twins_of(self.counted))
        listener(Event("scores", {"data": "dev", "lines": len(forms), "scores": [asdict(each) for each in shown]}))
        report_unbeaten(shown, remedy="train for more steps, or give more tagged text", listener=listener)
        return DevResult(shown, len(forms))
