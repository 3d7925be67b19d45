"""Every task of the package beside the figure that it is to reach, with the commands that a user would type.

    python benchmarks/tasks.py PART [PART …] [--seeds 1 2 3] [--keep FOLDER] [--quick] [--json FILE]

SEQLOOM_DATA names the folder of the data. Each part makes plain files of it (harness/task_files.py), trains and
measures by the program, with no settings but `model.kind` and those that the part is about, and prints a table of
figures and bars. Where a data set has a test part, that is measured; otherwise its dev part, and training holds out
lines of its own.

    ewt-hmm, afribooms-hmm   UPOS by counting: the most frequent tag of each word, and an HMM
    ewt                      UPOS, FEATS and LEMMA of EWT's dev set: LSTM in two directions
    ewt-one-way, ewt-crf, ewt-transformer   the same: LSTM in one direction, in two with a CRF, Transformer
    afribooms                UPOS of AfriBooms' test set: LSTM in two directions
    trec, sst2               labels of questions (ten folds), and of reviews
    probes                   linear probes on the vectors that `seqloom embed` takes from a translator (of Multi30k,
                             English to German; or --translator MODEL) and from word vectors (text8-like)
    fsdd-known, fsdd-left-out   strings of 3 to 7 digits: of speakers of the training set, and of each one left out
    fsdd-letters             the digits spelled in letters, with and without a language model of letters
    handwriting              captions in styles of writers that were not trained on
    etth1                    96 and 192 steps; 1, 4, 16 and 64 steps ahead, direct and recursive; bands of 90 %
    sine, airline            a noisy sine and monthly passengers, beside the last value
    cmudict                  letters to phones without stress, the best of the given answers
    scan-simple, scan-length, scan-jump   commands to actions
    scitldr                  summaries of abstracts, ROUGE-1 with the best of the given ones
    parses                   EWT's dependency trees as brackets, beside a right-branching tree
    replies                  turns of Shakespeare: the true context beside a shuffled one, and distinct-2
    captions                 scenes whose combinations of shape, colour and place were not trained on, in English;
    captions-fr, captions-de, captions-zh   the same in other languages

A bar is reached by the mean over the seeds; a limit of minutes by each of them. Seeds are 1, 2 and 3 where the spread
belongs to the figure, else 1. `--quick` tries every step on a little data, and claims nothing. `--keep` leaves files
and runs in a folder and continues there: a finished run is not trained again. The exit code is 1 if a bar is missed.
"""

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from harness import task_files
from harness.commands import answer, data_lines, seqloom, train, write_lines
from harness.processes import exit_on_termination
from harness.progress import duration, say
from harness.task_files import SPEAKERS, TEST_INDICES, TEST_STRINGS, TRAIN_INDICES, TRAIN_STRINGS, Files, Table
from seqloom.core.errors import SeqloomError
from seqloom.metrics.brackets import Parse, right_branching

Figures = Mapping[str, float]
"""What one seed gave, by name, in the order of the table."""

EVERY_SEED, ONE_SEED = (1, 2, 3), (1,)
QUICK = ("training.steps=40", "training.validate_every=20", "training.save_every=20", "training.warmup=10")
"""Settings of `--quick` alone."""


@dataclass(frozen=True)
class Bar:
    """What a figure has to reach: at least `low`, at most `high`, below `below`; `each` of the seeds, or their mean."""

    low: float | None = None
    high: float | None = None
    below: float | None = None
    each: bool = False

    def is_reached(self, values: Sequence[float]) -> bool:
        """Whether the values of the seeds reach it."""
        judged = values if self.each else [statistics.mean(values)]
        return all(
            (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.below is None or value < self.below)
            for value in judged
        )

    def __str__(self) -> str:
        limits = (("at least", self.low), ("at most", self.high), ("below", self.below))
        return ", ".join(f"{words} {value:g}" for words, value in limits if value is not None)


@dataclass(frozen=True)
class Trial:
    """Where and how a seed of a part is measured."""

    folder: Path
    seed: int
    quick: bool
    translator: Path | None = None

    def some(self, count: int, everything: int | None = None) -> int | None:
        """A number for `--quick`, and that of a real run."""
        return count if self.quick else everything

    def train(self, name: str, *arguments: str | Path, is_seeded: bool = True) -> Path:
        """A model of this seed, or of all seeds; its run is called `name`."""
        seed = self.seed if is_seeded else 1
        settings = [f"seed={seed}", *(QUICK if self.quick else ())]
        return train(self.folder / (f"{name}-{seed}" if is_seeded else name), *arguments, *settings)


@dataclass(frozen=True)
class Part:
    """How a seed is measured, and the bars of some of its figures."""

    measure: Callable[[Trial], Figures]
    bars: Mapping[str, Bar] = field(default_factory=dict)
    seeds: Sequence[int] = EVERY_SEED


def score(scores: Iterable[Mapping[str, Any]], name: str) -> float:
    """The value of a score in the JSON of a command."""
    found = {each["name"]: float(each["value"]) for each in scores}
    return found[name]


def minutes(model: Path) -> float:
    """How long a model was trained, in all of its sessions."""
    return float(answer("info", model)["trained_on"]["seconds"]) / 60


# --- tagging ----------------------------------------------------------------------------------------------------------

TAGGERS: Mapping[str, Sequence[str]] = {
    "two-way LSTM": (),
    "one-way LSTM": ("model.directions=1",),
    "two-way LSTM, CRF": ("model.output=crf",),
    "Transformer": ("model.encoder=transformer",),
}


def ewt(trial: Trial) -> Files:
    """EWT's training set, and its dev set as test."""
    return Files(
        *(
            task_files.treebank(
                trial.folder / f"{part}.conllu",
                f"ud-english-ewt/en_ewt-ud-{part}.conllu.gz",
                sentences=trial.some(300),
            )
            for part in ("train", "dev")
        )
    )


def afribooms(trial: Trial, part: str) -> Path:
    """A part of AfriBooms."""
    stored = f"ud-afrikaans-afribooms/af_afribooms-ud-{part}.conllu.gz"
    return task_files.treebank(trial.folder / f"{part}.conllu", stored, sentences=trial.some(100))


def counted(trial: Trial, files: Files) -> Figures:
    """UPOS of taggers that only count: every run measures them on its dev text before it trains, here for one step."""
    settings = ["model.kind=tagger", "training.steps=1", "task.columns=[upos]", "seed=1"]
    run = trial.folder / "counted"
    train(run, *settings, "--train", files.train, "--dev", files.test)
    found = json.loads((run / "data" / "counted.json").read_text(encoding="utf-8"))["upos"]
    return {"UPOS, most frequent tag": found["majority"], "UPOS, HMM": found["hmm"]}


def tagged(trial: Trial, name: str, files: Sequence[str | Path], test: Path) -> Figures:
    """The accuracy of a tagger by column, and how long it was trained."""
    model = trial.train("tagger", "model.kind=tagger", *TAGGERS[name], *files)
    scores = answer("tag", model, "--reference", test)["scores"]
    columns = {
        f"{column}, {name}": score(scores, f"{column.lower()} accuracy") for column in ("UPOS", "FEATS", "LEMMA")
    }
    return {**columns, f"minutes, {name}": minutes(model)}


def tag_ewt(trial: Trial, name: str) -> Figures:
    files = ewt(trial)
    return tagged(trial, name, ["--train", files.train], files.test)


def tag_afribooms(trial: Trial) -> Figures:
    given, dev, test = (afribooms(trial, part) for part in ("train", "dev", "test"))
    return tagged(trial, "two-way LSTM", ["--train", given, "--dev", dev], test)


# --- classifying ------------------------------------------------------------------------------------------------------

CLASSIFIER = ("task.kind=classification",)


def accuracy(model: Path, test: Path) -> float:
    """Percent of right labels."""
    return score(answer("classify", model, "--reference", test)["scores"], "accuracy")


def trec(trial: Trial) -> Figures:
    folds = question_folds(trial)
    found = [
        accuracy(trial.train(f"trec-{fold}", *CLASSIFIER, "--train", files.train), files.test)
        for fold, files in enumerate(folds)
    ]
    return {"accuracy, ten folds": statistics.mean(found), "the worst fold": min(found), "the best fold": max(found)}


def question_folds(trial: Trial) -> list[Files]:
    """TREC in ten parts, drawn by the seed; two of them with `--quick`."""
    folds = trial.some(2, task_files.FOLDS) or 0
    return task_files.question_folds(trial.folder, seed=trial.seed, folds=folds, lines=trial.some(600))


def sst2(trial: Trial) -> Figures:
    files = task_files.sentiments(trial.folder, lines=trial.some(600))
    return {"accuracy": accuracy(trial.train("sst2", *CLASSIFIER, "--train", files.train), files.test)}


def probes(trial: Trial) -> Figures:
    questions, sentiments = question_folds(trial)[0], task_files.sentiments(trial.folder, lines=trial.some(600))
    found = {}
    for name, model in (("translator", english_translator(trial)), ("word vectors", word_vectors(trial))):
        found[f"TREC, {name} (one fold)"] = probe(model, questions)
        found[f"SST-2, {name}"] = probe(model, sentiments)
    return found


def english_translator(trial: Trial) -> Path:
    """A translator from English, of Multi30k."""
    if trial.translator is not None:
        return trial.translator
    sides = list[str | Path]()
    for option, part in (("--train", "train"), ("--dev", "val")):
        for code in ("en", "de"):
            lines = data_lines(f"multi30k/{part}.{code}.gz")[: trial.some(300)]
            sides += [option, write_lines(trial.folder / f"{part}.{code}", lines)]
    return trial.train("translator", *sides, is_seeded=False)


def word_vectors(trial: Trial) -> Path:
    """Word vectors of both files of text8-like."""
    words = [data_lines(f"text8-like/{name}.txt.gz")[0] for name in ("wiki", "novels")]
    text = write_lines(trial.folder / "text8.txt", (each[: trial.some(200_000)] for each in words))
    run = trial.folder / "vectors"
    return train(run, "model.kind=word2vec", "--train", text, "seed=1")


def probe(model: Path, files: Files) -> float:
    """The accuracy of a logistic regression on the vectors of the texts."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.preprocessing import StandardScaler

    vectors, labels = [], []
    for path in (files.train, files.test):
        lines = [line.split(" ", 1) for line in path.read_text(encoding="utf-8").splitlines()]
        texts = write_lines(path.with_suffix(".texts"), (text for _, text in lines))
        out = path.with_suffix(".npy")
        seqloom("embed", model, texts, "--out", out)
        vectors.append(np.load(out))
        labels.append([label for label, _ in lines])
    scaler = StandardScaler().fit(vectors[0])
    regression = LogisticRegression(C=0.1, max_iter=2000).fit(scaler.transform(vectors[0]), labels[0])
    return 100 * float(regression.score(scaler.transform(vectors[1]), labels[1]))


# --- frames to text ---------------------------------------------------------------------------------------------------


def error_rate(model: Path, table: Path, *options: str | Path, name: str = "WER") -> float:
    """WER or CER in percent."""
    return score(answer("transcribe", model, "--reference", table, *options)["scores"], name)


def digit_table(
    trial: Trial, name: str, speakers: Iterable[str], indices: Sequence[int], *, spelled: bool = False
) -> Path:
    """Strings of digits to train on or, of a name that ends so, to test."""
    count = trial.some(5, TEST_STRINGS) if name.endswith("test") else trial.some(25, TRAIN_STRINGS)
    sounds = task_files.recordings()
    return task_files.digit_strings(
        trial.folder, sounds, name=name, speakers=speakers, indices=indices, count=count or 0, spelled=spelled
    )


def known_speakers(trial: Trial) -> Figures:
    given = digit_table(trial, "known.train", SPEAKERS, TRAIN_INDICES)
    test = digit_table(trial, "known.test", SPEAKERS, TEST_INDICES)
    model = trial.train("known", "model.kind=ctc", "--train", given)
    return {"WER, known speakers": error_rate(model, test), "minutes": minutes(model)}


def left_out(trial: Trial) -> Figures:
    found = {}
    for speaker in SPEAKERS[: trial.some(1)]:
        given = digit_table(trial, f"{speaker}.train", [each for each in SPEAKERS if each != speaker], TRAIN_INDICES)
        test = digit_table(trial, f"{speaker}.test", [speaker], range(50))
        model = trial.train(f"without-{speaker}", "model.kind=ctc", "--train", given)
        found[f"WER, {speaker} left out"] = error_rate(model, test)
    return {**found, "WER, one speaker left out, mean": statistics.mean(found.values())}


def spelled_digits(trial: Trial) -> Figures:
    given = digit_table(trial, "spelled.train", SPEAKERS, TRAIN_INDICES, spelled=True)
    test = digit_table(trial, "spelled.test", SPEAKERS, TEST_INDICES, spelled=True)
    model = trial.train("spelled", "model.kind=ctc", "--train", given)
    transcripts = [line.split("\t")[1] for line in given.read_text(encoding="utf-8").splitlines()]
    text = write_lines(trial.folder / "spelled.txt", transcripts)
    letters = train(trial.folder / "letters", "model.kind=ngram", "text.kind=char", "--train", text)
    alone, fused = error_rate(model, test), error_rate(model, test, "--language-model", letters)
    return {
        "WER": alone,
        "WER, beam of 16": error_rate(model, test, "--beam", "16"),
        "WER, with a language model": fused,
        "the same, less that without it": fused - alone,
    }


def handwriting(trial: Trial) -> Figures:
    files = task_files.handwritten(trial.folder, train=trial.some(100, 3000) or 0, test=trial.some(10, 300) or 0)
    model = trial.train("handwriting", "model.kind=ctc", "--train", files.train)
    return {name: error_rate(model, files.test, name=name[:3]) for name in ("CER, unseen styles", "WER, unseen styles")}


def captions(trial: Trial, language: str) -> Figures:
    """How often the captions of scenes are right whose combinations no training image shows."""
    files = task_files.scenes(trial.folder, language=language, images=trial.some(200))
    model = trial.train(f"captions-{language}", "task.kind=captioning", "--train", files.train)
    found = answer("caption", model, "--reference", files.test)["scores"]
    names = {"exact match": "exact match", "BLEU": "BLEU", "chrF": "chrF2"}
    return {**{name: score(found, stored) for name, stored in names.items()}, "minutes": minutes(model)}


# --- forecasting ------------------------------------------------------------------------------------------------------


def backtest(trial: Trial, name: str, table: Table, *settings: str) -> Any:
    """A forecaster, and what its backtest on the last rows gives."""
    dev = [] if table.dev is None else ["--dev", table.dev]
    model = trial.train(name, "model.kind=forecaster", *settings, "--train", table.train, *dev)
    return answer("forecast", model, table.whole, "--backtest", "--last", str(table.tested))


AHEAD = (1, 4, 16, 64)


def etth1(trial: Trial) -> Figures:
    table, found = task_files.transformer_readings(trial.folder), dict[str, float]()
    for horizon in (96, 192):
        direct = backtest(trial, f"direct-{horizon}", table, f"model.horizon={horizon}")
        found[f"MSE, {horizon} steps"] = direct["mse"]
        found[f"values within the 90 % bands, {horizon} steps"] = 100 * direct["covered"]
        found |= {f"MSE, {horizon} steps, {rule}": value for rule, value in direct["rules"].items()}
        if horizon == 96:
            found |= {f"MSE at step {step}, direct": direct["by_step"]["mse"][step - 1] for step in AHEAD}
    recursive = backtest(trial, "recursive", table, "model.horizon=96", "model.strategy=recursive")
    return found | {f"MSE at step {step}, recursive": recursive["by_step"]["mse"][step - 1] for step in AHEAD}


def one_series(trial: Trial, make: Callable[[Path], Table]) -> Figures:
    measured = backtest(trial, "series", make(trial.folder))
    return {
        f"MSE, {measured['horizon']} steps": measured["mse"],
        **{f"MSE, {rule}": value for rule, value in measured["rules"].items()},
        SHARE: measured["mse"] / measured["rules"]["last value"],
    }


SHARE = "MSE as a share of that of the last value"


# --- text to text -----------------------------------------------------------------------------------------------------


def evaluated(model: Path, table: Path, *metrics: str, out: Path | None = None) -> list[Mapping[str, Any]]:
    """The scores of the outputs of a model, which `out` keeps."""
    options = [part for metric in metrics for part in ("--metric", metric)]
    found = answer("evaluate", model, "--source", table, *options, *(() if out is None else ("--out", out)))
    scores: list[Mapping[str, Any]] = found["systems"][0]["scores"]
    return scores


def cmudict(trial: Trial) -> Figures:
    files = task_files.pronunciations(trial.folder, words=trial.some(1000))
    model = trial.train("phones", "--train", files.train)
    scores = evaluated(model, files.test, "per", "exact-match")
    return {
        "PER": score(scores, "PER"),
        "WER": 100 - score(scores, "exact match"),
        "minutes": minutes(model),
    }


def scan(trial: Trial, split: str) -> Figures:
    files = task_files.commands_to_actions(trial.folder, split, lines=trial.some(500))
    model = trial.train(split, "--train", files.train)
    found = score(evaluated(model, files.test, "exact-match"), "exact match")
    return {"exact match": found, "minutes": minutes(model)}


def parses(trial: Trial) -> Figures:
    stored = "ud-english-ewt/en_ewt-ud"
    given, test = (
        task_files.trees(trial.folder / f"{part}.tsv", f"{stored}-{part}.conllu.gz", sentences=trial.some(sentences))
        for part, sentences in (("train", 500), ("dev", 30))
    )
    words = ("text.kind=word", "text.segmentation=spaces", "search.brackets=true")  # which search.brackets needs
    model = trial.train("parser", *words, "--train", given.path)
    out = trial.folder / f"parses-{trial.seed}.txt"
    ours = score(evaluated(model, test.path, "bracket-f1", out=out), "bracket F1")
    sources, references = zip(
        *(line.split("\t") for line in test.path.read_text(encoding="utf-8").splitlines()), strict=True
    )
    outputs = out.read_text(encoding="utf-8").splitlines()
    is_whole = [
        parse is not None and list(parse.words) == source.split()
        for parse, source in zip(map(Parse.of, outputs), sources, strict=True)
    ]
    right = write_lines(trial.folder / "right.txt", (right_branching(source.split()) for source in sources))
    gold = write_lines(trial.folder / "gold.txt", references)
    scored = answer("evaluate", "--hypothesis", right, "--reference", gold, "--metric", "bracket-f1")
    branching = score(scored["systems"][0]["scores"], "bracket F1")
    return {
        "sentences": test.count,
        "non-projective sentences left out of training": given.non_projective,
        "non-projective sentences left out of the test": test.non_projective,
        "outputs that are well formed with the words of the source, %": 100 * statistics.mean(is_whole),
        "bracket F1": ours,
        "bracket F1, right-branching": branching,
        "bracket F1 above right-branching": ours - branching,
    }


# --- summaries, replies, captions -------------------------------------------------------------------------------------


def scitldr(trial: Trial) -> Figures:
    files = task_files.abstracts(trial.folder, papers=trial.some(100))
    model = trial.train("summaries", "task.kind=summarisation", "--train", files.train)
    scores = answer("summarise", model, "--reference", files.test)["scores"]
    return {name: score(scores, name) for name in ("ROUGE-1", "ROUGE-2", "ROUGE-L")}


SHUFFLES = 10_000
"""Random signs of the differences, from which the p-value is counted."""


def replies(trial: Trial) -> Figures:
    files = task_files.play(trial.folder, turns=trial.some(400))
    model = trial.train("replies", "data.unit=turn", "--train", files.train)
    turns = task_files.turns_of(files.test)
    contexts, spoken = turns[:-1], turns[1:]
    others = list(contexts)
    random.Random(1).shuffle(others)
    scored = {}
    for name, given in (("true", contexts), ("shuffled", others)):
        table = write_lines(trial.folder / f"{name}.tsv", map("\t".join, zip(given, spoken, strict=True)))
        scored[name] = np.array([float(line) for line in seqloom("score", model, table).split()])
    gains = scored["true"] - scored["shuffled"]
    source = write_lines(trial.folder / "contexts.txt", contexts)
    out = trial.folder / f"replies-{trial.seed}.txt"
    seqloom("translate", model, source, "--out", out)
    ours, theirs = (distinct(path, out) for path in (out, write_lines(trial.folder / "spoken.txt", spoken)))
    return {
        "turns": len(spoken),
        "log P of a reply, true context less shuffled": float(gains.mean()),
        "p of the difference": sign_p_value(gains),
        "distinct-2": ours,
        "distinct-2, the author": theirs,
        "distinct-2 as a share of the author's": ours / theirs,
    }


def distinct(path: Path, other: Path) -> float:
    """distinct-2 of the lines of a file."""
    scored = answer("evaluate", "--hypothesis", path, "--reference", other, "--metric", "distinct-2")
    return score(scored["systems"][0]["scores"], "distinct-2")


def sign_p_value(differences: np.ndarray, *, seed: int = 1) -> float:
    """How often random signs of the differences have a mean as high: a paired test of one side."""
    signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(SHUFFLES, len(differences)))
    as_high = np.count_nonzero(signs @ differences >= differences.sum())
    return float((as_high + 1) / (SHUFFLES + 1))


FIRST = "two-way LSTM"

PARTS: Mapping[str, Part] = {
    "ewt-hmm": Part(lambda trial: counted(trial, ewt(trial)), {"UPOS, HMM": Bar(low=92.4)}, ONE_SEED),
    "ewt": Part(
        lambda trial: tag_ewt(trial, FIRST),
        {
            f"UPOS, {FIRST}": Bar(low=94.6),
            f"FEATS, {FIRST}": Bar(low=94),
            f"LEMMA, {FIRST}": Bar(low=95),
            f"minutes, {FIRST}": Bar(high=15, each=True),
        },
    ),
    "ewt-one-way": Part(lambda trial: tag_ewt(trial, "one-way LSTM")),
    "ewt-crf": Part(lambda trial: tag_ewt(trial, "two-way LSTM, CRF")),
    "ewt-transformer": Part(lambda trial: tag_ewt(trial, "Transformer")),
    "afribooms-hmm": Part(
        lambda trial: counted(trial, Files(afribooms(trial, "train"), afribooms(trial, "test"))), seeds=ONE_SEED
    ),
    "afribooms": Part(tag_afribooms, {f"UPOS, {FIRST}": Bar(low=96.5)}),
    "trec": Part(trec, {"accuracy, ten folds": Bar(low=88)}),
    "sst2": Part(sst2, {"accuracy": Bar(low=81)}),
    "probes": Part(probes, seeds=ONE_SEED),
    "fsdd-known": Part(known_speakers, {"WER, known speakers": Bar(high=2)}),
    "fsdd-left-out": Part(left_out, {"WER, one speaker left out, mean": Bar(high=20)}),
    "fsdd-letters": Part(spelled_digits, {"the same, less that without it": Bar(below=0)}),
    "handwriting": Part(handwriting, {"CER, unseen styles": Bar(high=5)}),
    "etth1": Part(
        etth1,
        {
            "MSE, 96 steps": Bar(high=0.385),
            "MSE, 192 steps": Bar(high=0.42),
            "values within the 90 % bands, 96 steps": Bar(low=85, high=95),
            "values within the 90 % bands, 192 steps": Bar(low=85, high=95),
        },
        ONE_SEED,
    ),
    "sine": Part(lambda trial: one_series(trial, task_files.noisy_sine), {SHARE: Bar(below=1)}, ONE_SEED),
    "airline": Part(lambda trial: one_series(trial, task_files.airline), {SHARE: Bar(below=1)}, ONE_SEED),
    "cmudict": Part(cmudict, {"PER": Bar(high=7), "WER": Bar(high=29), "minutes": Bar(high=60, each=True)}, ONE_SEED),
    "scan-simple": Part(lambda trial: scan(trial, "simple"), {"exact match": Bar(low=99.5)}),
    "scan-length": Part(lambda trial: scan(trial, "length")),
    "scan-jump": Part(lambda trial: scan(trial, "addprim_jump")),
    "scitldr": Part(scitldr, {"ROUGE-1": Bar(low=36)}, ONE_SEED),
    "parses": Part(
        parses,
        {
            "outputs that are well formed with the words of the source, %": Bar(low=100),
            "bracket F1 above right-branching": Bar(low=20),
        },
        ONE_SEED,
    ),
    "captions": Part(lambda trial: captions(trial, "en"), {"exact match": Bar(low=95)}, ONE_SEED),
    **{
        f"captions-{code}": Part(lambda trial, code=code: captions(trial, code), {"exact match": Bar(low=95)}, ONE_SEED)  # type: ignore[misc]
        for code in ("fr", "de", "zh")
    },
    "replies": Part(
        replies,
        {"p of the difference": Bar(below=0.01), "distinct-2 as a share of the author's": Bar(low=0.5)},
        ONE_SEED,
    ),
}


# --- the table --------------------------------------------------------------------------------------------------------


def row(part: str, what: str, values: Sequence[float], bar: Bar | None, *, quick: bool) -> str:
    """A row of the table: the mean over the seeds, their range, the bar, and whether it is reached."""
    span = f"{min(values):.4g} – {max(values):.4g}" if len(values) > 1 else ""
    verdict = "" if bar is None or quick else "reached" if bar.is_reached(values) else "MISSED"
    return f"| {part} | {what} | {statistics.mean(values):.4g} | {span} | {bar or ''} | {verdict} |"


def measured(name: str, given: argparse.Namespace, folder: Path) -> dict[str, list[float]]:
    """The figures of a part, seed by seed."""
    part, found = PARTS[name], dict[str, list[float]]()
    for seed in given.seeds or (ONE_SEED if given.quick else part.seeds):
        began = time.monotonic()
        for what, value in part.measure(Trial(folder, seed, given.quick, given.translator)).items():
            found.setdefault(what, []).append(float(value))
        say(f"{name}, seed {seed}: {duration(time.monotonic() - began)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=PARTS, metavar="PART", help=", ".join(PARTS))
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds, by default those of the part")
    parser.add_argument("--quick", action="store_true", help="a little data, no claims")
    parser.add_argument("--keep", type=Path, help="a folder for files and runs")
    parser.add_argument("--translator", type=Path, help="a translator from English, for the part probes")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    given = parser.parse_args()
    exit_on_termination()
    record: dict[str, object] = {}
    is_reached = True
    print("| part | figure | mean | seeds | bar | |\n|---|---|---:|---:|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.parts:
            folder = ((given.keep or Path(temporary)) / name).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            try:
                found = measured(name, given, folder)
            except (SeqloomError, subprocess.CalledProcessError) as error:
                say(str(error))
                sys.exit(2)
            except KeyboardInterrupt:
                sys.exit(130)
            bars = PARTS[name].bars
            assert bars.keys() <= found.keys(), bars.keys() - found.keys()
            for what, values in found.items():
                print(row(name, what, values, bars.get(what), quick=given.quick), flush=True)
            is_reached &= all(bar.is_reached(found[what]) for what, bar in bars.items())
            record[name] = {"figures": found, "bars": {what: str(bar) for what, bar in bars.items()}}
    if given.json is not None:
        given.json.write_text(json.dumps({"is_quick": given.quick, "parts": record}, indent=2) + "\n", encoding="utf-8")
    sys.exit(0 if is_reached or given.quick else 1)


if __name__ == "__main__":
    main()
