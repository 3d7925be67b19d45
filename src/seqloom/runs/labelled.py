"""Labelled texts for classifiers: opened, split, encoded, trained on and measured.

run/data/train/     the training texts as ids with their classes, memory-mapped
run/data/dev/       the held-out texts likewise
run/data/counted.json  how well classifiers that only count do on them

The labels are found when sizes are chosen, and are part of the settings (`task.labels`). Without dev files, examples
drawn by the seed are held out. Before training, the most frequent label and naive Bayes (`classical.bayes`) are fitted
and measured: a classifier that is trained for minutes has to beat what is counted in seconds.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import torch

from seqloom.classical.bayes import NaiveBayes, majority_label, words_of
from seqloom.core.declaration import LabelledFacts, TextFacts
from seqloom.core.errors import DataError, Problem, Problems, UsageError
from seqloom.core.events import Event, Listener, notice, phase
from seqloom.core.files import read_json, write_atomically
from seqloom.core.seeds import seed_for
from seqloom.data.labelled import (
    LabelledCorpus,
    LabelledLines,
    LabelledStore,
    encode_labelled,
    has_many_labels,
    hold_out,
)
from seqloom.metrics.classification import score_labels
from seqloom.metrics.confidence import fit_temperature, reliability, softmax_at
from seqloom.metrics.scoring import Bootstrap
from seqloom.runs.config import RunConfig
from seqloom.runs.detection import sample_text
from seqloom.runs.loading import Loaded
from seqloom.runs.model_dir import DevResult
from seqloom.runs.sizing import SAMPLED_LINES, Sizing, choose_labelled_sizes
from seqloom.runs.tagging import merge_width, open_vectors, rows_of
from seqloom.runs.tagging import words_of as vector_words
from seqloom.runs.twins import TwinScores, beside, report_unbeaten, twins_text
from seqloom.tasks.classification import ClassificationTask, TextExamples
from seqloom.tasks.settings import ClassificationConfig
from seqloom.text.formats.readers import FORMATS
from seqloom.text.formats.segments import Format
from seqloom.text.normalise import collapse_spaces
from seqloom.text.tokenizer import Tokenizers, word_cutter
from seqloom.text.tokenizer_training import train_tokenizer, with_words

MANY_EXAMPLES = 2_000
"""From so many examples a twentieth is held out, else a tenth: enough to choose by, and training needs the rest."""

MAX_COUNTED_EXAMPLES = 200_000
"""Training examples, the first ones, from which naive Bayes is counted, in seconds."""


def size_labelled(
    config: RunConfig,
    files: Sequence[Path],
    *,
    formats: Sequence[Format] = FORMATS,  # noqa: ARG001
) -> Sizing:
    """Sizes for the labelled texts in these files, and their labels."""
    task = _task(config)
    corpus = _open(config, tuple(map(str, files)), known=task.labels)
    if config.data.label_column is not None and not corpus.has_table:
        raise UsageError(
            f"data.label_column={config.data.label_column} is for tables, but {corpus.readings[0]}; leave it out"
        )
    _held_out(config, len(corpus))
    labels = task.labels or tuple(corpus.labels)
    if len(labels) < 2:
        path, line = corpus.place(next(iter(corpus)).number)
        message = f"{labels[0]!r} is the only label of {len(corpus):,} examples; a classifier needs two or more"
        raise DataError(problems=[Problem(message, str(path), line)])
    if not task.labels:
        _require_two_examples(corpus)
    sizing = sizes_for(config, facts_of(corpus, config, classes=len(labels)))
    if (vectors := open_vectors(config)) is not None:
        sizing = replace(sizing, defaults=merge_width(sizing.defaults, config, width=vectors.width))
    is_paired = corpus.texts == 2
    if "is_paired" in task.model_fields_set and task.is_paired != is_paired:
        raise UsageError(
            f"task.is_paired={'true' if task.is_paired else 'false'}, but {files[0]} has {corpus.texts} "
            f"text{'s' if is_paired else ''} in a line; leave out task.is_paired"
        )
    defaults = sizing.defaults
    return replace(
        sizing,
        defaults={
            **defaults,
            "data": {} if corpus.label_column is None else {"label_column": corpus.label_column},
            "model": {**defaults["model"], **config.model.classifier_settings(len(labels), texts=corpus.texts)},
            "task": {**defaults["task"], "labels": list(labels), "is_paired": is_paired},
        },
    )


def _require_two_examples(corpus: LabelledCorpus) -> None:
    """Refuse labels with one example: nothing can be learned of it and measured as well."""
    once = {label for label, count in corpus.labels.items() if count == 1}
    if not once:
        return
    problems = Problems()
    for line in corpus:
        if line.label in once:
            path, number = corpus.place(line.number)
            problems.add(f"the only example of the label {line.label!r}; a label needs two or more", path, number)
    try:
        problems.require_none()
    except DataError as error:
        remedy = "Give more of them or remove these lines; to train all the same, name all labels: task.labels=[…]"
        raise DataError(problems=[*error.problems, Problem(remedy)], more=error.more) from None


def sizes_for(config: RunConfig, facts: LabelledFacts) -> Sizing:
    """Sizes for such labelled text, given the settings that were set."""
    training = config.training
    steps = training.steps if "steps" in training.model_fields_set else None
    is_started = training.start_from is not None
    return choose_labelled_sizes(facts, config.model, pieces=config.text.kind, steps=steps, is_started=is_started)


def facts_of(corpus: LabelledCorpus, config: RunConfig, *, classes: int) -> LabelledFacts:
    """Look at the first examples of a corpus."""
    examples, cut = list(islice(corpus, SAMPLED_LINES)), word_cutter(config.text.segmentation)
    texts = [text for line in examples for text in line.texts]
    share = len(corpus) / max(1, len(examples))
    characters, words = sum(map(len, texts)), sum(len(cut(collapse_spaces(text))) for text in texts)
    return LabelledFacts(
        TextFacts(len(corpus), characters=round(characters * share), words=round(words * share)),
        classes=classes,
        longest=max((sum(map(len, line.texts)) for line in examples), default=0),
    )


def open_labelled(
    config: RunConfig,
    *,
    formats: Sequence[Format] = FORMATS,  # noqa: ARG001
    listener: Listener,
) -> "LabelledText":
    """Open and check the labelled texts of a run. Without dev files, some of the training text are held out."""
    task = _task(config)
    train = _open(config, config.data.train, known=task.labels)
    for sentence in (*train.readings, *train.notices):
        notice(listener, sentence)
    counts = sorted(train.labels.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{label} {count:,}" for label, count in counts[:10]) + (", …" if len(counts) > 10 else "")
    notice(listener, f"{len(train):,} examples of {len(counts):,} classes: {shown}")
    if has_many_labels(train.labels):
        once = sum(count == 1 for _, count in counts)
        notice(
            listener,
            f"{len(counts):,} classes are many for {len(train):,} examples, {once:,} of them have one example: "
            "make sure that these are the labels",
        )
    _require_texts(train, config.data.train, texts=1 + task.is_paired)
    fingerprints = {"train": train.fingerprint()}
    if config.data.dev:
        dev = _open(config, config.data.dev, known=task.labels)
        for sentence in (*dev.readings, *dev.notices):
            notice(listener, sentence)
        _require_texts(dev, config.data.dev, texts=train.texts)
        return LabelledText(train, dev, {**fingerprints, "dev": dev.fingerprint()})
    rest, held = hold_out(train, _held_out(config, len(train)), seed=seed_for(config.seed, "held-out examples"))
    notice(listener, f"no dev files: {len(held):,} of {len(train):,} examples are held out for validation")
    return LabelledText(rest, held, fingerprints)


def _task(config: RunConfig) -> ClassificationConfig:
    assert isinstance(config.task, ClassificationConfig)
    return config.task


def _open(config: RunConfig, names: Sequence[str], *, known: Sequence[str]) -> LabelledCorpus:
    data = config.data
    return LabelledCorpus(
        [Path(name) for name in names],
        encoding=data.encoding,
        on_bad=data.on_bad_utf8,
        column=data.label_column,
        known=known,
    )


def _require_texts(corpus: LabelledCorpus, names: Sequence[str], *, texts: int) -> None:
    if corpus.texts != texts:
        message = f"{corpus.texts} text{'s' if corpus.texts > 1 else ''} in a line, but the model reads {texts}"
        raise DataError(problems=[Problem(message, names[0], 1)])


def _held_out(config: RunConfig, examples: int) -> int:
    """Examples that are held out for validation: none where there are dev files."""
    if config.data.dev:
        return 0
    share = examples // 10 if examples < MANY_EXAMPLES else max(MANY_EXAMPLES // 10, examples // 20)
    count = min(config.data.held_out, share)
    if count == 0:
        few = "1 example is" if examples == 1 else f"{examples} examples are"
        raise DataError(f"{few} too few to hold some out for validation; give a --dev file")
    return count


@dataclass(frozen=True)
class LabelledText:
    """The labelled texts of a run."""

    train: LabelledLines
    dev: LabelledLines
    fingerprints: Mapping[str, str]
    """Hashes, by which a resume notices changed files."""

    @property
    def size(self) -> Mapping[str, int]:
        return {"lines": len(self.train)}

    def learn_tokenizers(self, config: RunConfig, *, listener: Listener) -> Tokenizers:
        """Learn how to split the training texts into pieces."""
        texts = chain.from_iterable(line.texts for line in self.train)
        tokenizer = train_tokenizer(texts, config.text, listener=listener)
        if (vectors := open_vectors(config)) is not None:
            known, tokenizer = (
                tokenizer.size,
                with_words(tokenizer, (config.text.normaliser(word) for word in vector_words(vectors))),
            )
            added = tokenizer.size - known
            notice(listener, f"{added:,} words are known from model.vectors alone, beside {known:,} others")
        return Tokenizers(tokenizer, tokenizer)

    def encode(self, run: Path, config: RunConfig, *, tokenizers: Tokenizers, listener: Listener) -> None:
        """Store the texts as ids below `run`/data, and report what was cut."""
        tokenizer, reading = tokenizers.target, config.model.classifier_input
        longest = reading.longest or config.data.longest

        def encode(texts: list[str]) -> list[list[int]]:
            return tokenizer.encode_many([text.lower() for text in texts] if reading.lowercase else texts)

        for name, lines in (("train", self.train), ("dev", self.dev)):

            def progress(done: int, everything: int, name: str = name) -> None:
                listener(Event("progress", {"what": f"encoding {name} text", "done": done, "all": everything}))

            report = encode_labelled(
                lines,
                encode,
                run / "data" / name,
                symbols=tokenizer.size,
                labels=_task(config).labels,
                longest=longest,
                progress=progress,
            )
            unknown = report.unknown / max(1, report.tokens)
            listener(
                Event("encoded", {"name": name, "lines": report.lines, "tokens": report.tokens, "unknown": unknown})
            )
            if report.cut_lines:
                notice(
                    listener,
                    f"{name}: {report.cut_lines:,} of {report.lines:,} examples are longer than the {longest} symbols "
                    f"that the model reads; {report.cut_tokens:,} tokens at their ends are not read",
                )
        counted = measure_counting(self.train, self.dev, listener=listener)
        write_atomically(run / "data" / "counted.json", json.dumps(counted, indent=2) + "\n")
        notice(listener, f"dev scores by counting: {twins_text(counted)}")


def measure_counting(train: LabelledLines, dev: LabelledLines, *, listener: Listener) -> dict[str, dict[str, float]]:
    """Accuracy and macro-F1 of dev texts, in percent, by the most frequent label and by naive Bayes over n-grams."""
    phase(listener, "counting n-grams, to compare with")
    labels = [line.label for line in train]
    expected = [line.label for line in dev]
    bayes = NaiveBayes.fit(
        (words_of(line.texts) for line in islice(train, MAX_COUNTED_EXAMPLES)), labels[:MAX_COUNTED_EXAMPLES]
    )
    found = {
        "most frequent label": [majority_label(labels)] * len(expected),
        "n-gram Bayes": bayes.classify(words_of(line.texts) for line in dev),
    }
    if len(labels) > MAX_COUNTED_EXAMPLES:
        notice(listener, f"n-gram Bayes is counted from the first {MAX_COUNTED_EXAMPLES:,} of {len(labels):,} examples")
    scores = {name: score_labels(given, expected) for name, given in found.items()}
    return {metric: {name: each[at].value for name, each in scores.items()} for at, metric in enumerate(METRICS)}


METRICS = ("accuracy", "macro-F1")
"""What is measured of a classifier, in the order of `score_labels`."""


@dataclass(frozen=True)
class LabelledData:
    """The labelled texts of a run, encoded: what a classifier learns from."""

    tokenizers: Tokenizers
    train: LabelledStore
    dev: LabelledStore
    counted: TwinScores

    @staticmethod
    def load(run: Path, config: RunConfig) -> "LabelledData":
        """What `LabelledText.encode` stored. A DataError names a file that is missing or damaged."""
        classes = len(_task(config).labels)
        train, dev = (
            LabelledStore.open(run / "data" / name, classes=classes, verify=True) for name in ("train", "dev")
        )
        try:
            counted = read_json(run / "data" / "counted.json")
        except FileNotFoundError:  # a run of an earlier version
            counted = {}
        except (OSError, ValueError) as error:
            raise DataError(f"{run / 'data' / 'counted.json'} cannot be read: {error}") from error
        return LabelledData(Tokenizers.load(run / "text"), train, dev, counted)

    def task(self, config: RunConfig, *, device: torch.device, listener: Listener) -> ClassificationTask:  # noqa: ARG002
        """What the model is trained for."""
        task, (train, dev) = _task(config), (TextExamples(store) for store in (self.train, self.dev))
        return ClassificationTask(
            train,
            dev,
            config=task,
            per_batch=task.tokens_per_batch,
            seed=config.seed,
            device=device,
            vectors=rows_of(config, self.tokenizers.target),
            mixes_lengths=config.model.classifier_input.mixes_lengths,
        )

    def card_values(self, config: RunConfig) -> dict[str, Any]:
        """The training data, for the model card."""
        return {
            "files": list(config.data.train),
            "lines": len(self.train),
            "tokens": len(self.train.ids),
            "data": self.train.fingerprint(),
            "tokenizers": [self.tokenizers.target.fingerprint],
            "counted": self.counted,
        }

    def sample_texts(self) -> Sequence[Iterable[str]]:
        return [sample_text(self.train.ids, self.tokenizers.target)]

    def measure(self, loaded: Loaded, *, listener: Listener) -> DevResult:
        """Accuracy and macro-F1 of the dev text; beside them those of counting."""
        task = self.task(loaded.config, device=loaded.device, listener=listener)
        return measure_dev(task, loaded, twins=self.counted, listener=listener)


def measure_dev(task: ClassificationTask, loaded: Loaded, *, twins: TwinScores, listener: Listener) -> DevResult:
    """Accuracy and macro-F1 of the dev data of a classifier, followed by those of its twins."""
    config = loaded.config
    labels, scores = task.config.labels, task.dev_scores(loaded.model)
    found = [labels[number] for number in scores.argmax(1).tolist()]
    bootstrap = Bootstrap(seed=config.seed, resamples=config.evaluation.resamples)
    measured = score_labels(found, task.dev_labels(), bootstrap=bootstrap)
    shown = beside(measured, twins)
    listener(Event("scores", {"data": "dev", "lines": len(found), "scores": [asdict(each) for each in shown]}))
    what = "images" if config.model.reads_images else "text"
    remedy = f"train for more steps, give more labelled {what}, or start from a trained model (training.start_from)"
    report_unbeaten(shown, remedy=remedy, listener=listener)
    temperature = fit_temperature(scores.numpy(), task.dev.labels)
    confidence = reliability(softmax_at(scores.numpy(), temperature), task.dev.labels)
    before = reliability(softmax_at(scores.numpy(), 1.0), task.dev.labels)
    notice(
        listener,
        f"confidence: temperature {temperature:.2f}, with an expected calibration error of {confidence.error:.3f} on "
        f"the held-out part ({before.error:.3f} without)",
    )
    return DevResult(shown, len(found), learned={"temperature": temperature, "calibration_error": confidence.error})
