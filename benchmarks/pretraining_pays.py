"""What pre-training is worth: parts with a figure each, its interval over the seeds, and its goal.

    python benchmarks/pretraining_pays.py [--part bert|denoising|lora] [--seeds 3] [--quick] [--keep FOLDER]
                                          [--base MODEL] [--json FILE]

SEQLOOM_DATA names the folder of the data. All parts use the commands of the package, with settings that the package
chooses itself unless the part names them. What is pre-trained is trained once; the seeds are of what follows.

    bert        A BERT of 4 layers and width 256 (examples/bert.yaml) is pre-trained for at most 90 minutes on the
                English texts of the data folder, lower-cased: WikiText-2, six novels, EWT, Hansards, captions,
                Tatoeba, abstracts, and the training texts of TREC and SST-2 without their labels, three times. It is
                adapted to 1, 10 and 100 % of the labels of TREC (500 drawn lines are the test) and SST-2 (tested on
                its dev set); part of the labels is held out for validation. The seed draws the labels. Beside it a
                classifier that begins at random, with sizes chosen for the labels. Goal: at 10 % of the labels 4
                points of accuracy more, as the mean of both tasks, with an interval above 0.
    denoising   Multi30k, German to English: 1,000 pairs (the first lines) alone, and after denoising of both single
                sides (29,000 lines each, not paired), with the 1,014 dev pairs. Goal: 3 BLEU more on test_2016_flickr,
                as the mean over the seeds.
    lora        A translator of Multi30k, English to German (examples/multi30k-en-de.yaml, or --base), learns 2,000
                pairs of the phrasebook, which the seed draws: with all of its weights, and with LoRA of at most 10 % as
                many numbers. BLEU on 1,000 test sentences of the phrasebook. Goal: LoRA has 70 % of what all weights
                gain.

`--quick` tries all steps on a little text; its figures mean nothing, and no goal is claimed. `--keep` leaves the runs
in a folder, and continues there: a run that is finished is not trained again. `--base` is a translator from English
to German that part lora adapts, in place of one that it trains. `--json` writes all figures to a file.
The exit code is 1 if a goal is missed.
"""

import argparse
import json
import math
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from safetensors import safe_open

from harness.commands import data_lines, seqloom, train, write_lines
from harness.processes import exit_on_termination
from harness.progress import duration, say
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.data.phrasebook import sample_pairs

STUDENT = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262)
"""97.5 % points of Student's t with 1 … 9 degrees of freedom."""

Figures = Mapping[str, float]
"""What one seed gave, by name, in the order of the table."""


@dataclass(frozen=True)
class Verdict:
    """The figure of a part over all seeds."""

    what: str
    value: float
    interval: tuple[float, float] | None
    """95 % of the mean over the seeds; None of one seed."""
    goal: float

    @property
    def is_reached(self) -> bool:
        return self.value >= self.goal and (self.interval is None or self.interval[0] > 0)


@dataclass(frozen=True)
class Part:
    """One claim: how a seed is measured in a folder, and what is made of all of them."""

    measure: Callable[[Path, int, bool], Figures]
    """Of a folder, a seed, and whether it is only tried. A model `base` in the folder is used as it is."""
    judge: Callable[[Sequence[Figures]], Verdict]


def mean_gain(figures: Sequence[Figures], without: str, with_: str, *, what: str, goal: float) -> Verdict:
    """The mean over the seeds of what one way has more than another."""
    return mean_of([each[with_] - each[without] for each in figures], what=what, goal=goal)


def mean_of(values: Sequence[float], *, what: str, goal: float) -> Verdict:
    """The mean of a figure over the seeds."""
    mean, interval = statistics.mean(values), None
    if 1 < len(values) <= len(STUDENT) + 1:
        half = STUDENT[len(values) - 2] * statistics.stdev(values) / len(values) ** 0.5
        interval = (mean - half, mean + half)
    return Verdict(what, mean, interval, goal)


# --- commands ---------------------------------------------------------------------------------------------------------


def bleu(model: Path, source: Path, reference: Path) -> float:
    """BLEU of the translations of a file, by `seqloom evaluate`."""
    found = json.loads(seqloom("evaluate", model, "--source", source, "--reference", reference, "--json"))
    return next(float(each["value"]) for each in found["systems"][0]["scores"] if each["name"] == "BLEU")


def multi30k(folder: Path, name: str, *, lines: int | None = None, file: str | None = None) -> list[Path]:
    """The German and the English side of a part of Multi30k, or of its first lines, as files in a folder."""
    return [
        write_lines(folder / f"{file or name}.{language}", data_lines(f"multi30k/{name}.{language}.gz")[:lines])
        for language in ("de", "en")
    ]


# --- the parts --------------------------------------------------------------------------------------------------------

QUICK = (
    *("training.steps=60", "training.validate_every=30", "training.save_every=30", "training.warmup=20"),
    *("training.average=2", "model.width=32", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1"),
    *("model.feed_forward=64", "text.size=1000"),
)

LONE_WIDTH = ("model.width=32", "model.heads=2", "model.layers=1", "model.feed_forward=64")
QUICK_BERT = (*QUICK[:4], "training.average=2", *LONE_WIDTH, "text.size=1000")

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
TASKS = ("TREC", "SST-2")
SHARES = (0.01, 0.1, 1.0)
CLAIMED_SHARE = 0.1
TREC_TEST = 500
TASK_TEXT_COPIES = 3
"""The unlabelled texts of the tasks are few, and nearest to what is to be learned."""
NOVEL_WORDS = 40
"""Words of a line of the novels, which are stored as one."""
DEV_EVERY = 300
"""One of so many lines is held out from pre-training."""


@dataclass(frozen=True)
class Labelled:
    """A task of classification: lines `label text`, lower-cased."""

    train: list[str]
    test: list[str]


def labelled(task: str) -> Labelled:
    """The data of a task."""
    folder = "sentence-classification"
    if task == "SST-2":
        train, test = (data_lines(f"{folder}/stsa.binary.{name}.gz") for name in ("train", "dev"))
    else:
        lines = data_lines(f"{folder}/TREC.train.all")
        lines = [line for line in lines if line.strip()]
        order = list(range(len(lines)))
        random.Random(1).shuffle(order)
        drawn = set(order[:TREC_TEST])
        train = [line for number, line in enumerate(lines) if number not in drawn]
        test = [lines[number] for number in sorted(drawn)]
    return Labelled(*([line.lower() for line in part if line.strip()] for part in (train, test)))


def some_labels(lines: Sequence[str], share: float, *, seed: int) -> list[str]:
    """A share of labelled lines, drawn by the seed, with two or more of each label."""
    drawn = random.Random(seed).sample(lines, len(lines))
    count, by_label = round(share * len(lines)), dict[str, list[str]]()
    for line in drawn:
        by_label.setdefault(line.split()[0], []).append(line)
    first = dict.fromkeys(line for group in by_label.values() for line in group[:2])
    return [*first, *(line for line in drawn if line not in first)][: max(count, len(first))]


def english_text() -> list[str]:
    """The English of the data folder, lower-cased, line by line: for training without labels."""
    wiki = [line for line in data_lines("wikitext-2/train.txt.gz") if not line.strip().startswith("=")]
    joined = ((" @-@ ", "-"), (" @,@ ", ","), (" @.@ ", "."))  # as WikiText-2 writes them
    for apart, together in joined:
        wiki = [line.replace(apart, together) for line in wiki]
    novels = data_lines("text8-like/novels.txt.gz")[0].split()
    web = [line for line in data_lines("ud-english-ewt/en_ewt-ud-train.conllu.gz") if line.startswith("# text = ")]
    papers = [json.loads(line)["source"] for line in data_lines("scitldr/train.jsonl.gz") if line]
    tatoeba = {line.split("\t")[0] for line in data_lines("tatoeba-cmn-eng/cmn.txt.gz")}
    tasks = [[line.split(" ", 1)[1] for line in labelled(task).train] for task in TASKS]
    lines = [
        *wiki,
        *(" ".join(novels[start : start + NOVEL_WORDS]) for start in range(0, len(novels), NOVEL_WORDS)),
        *(line.removeprefix("# text = ") for line in web),
        *data_lines("hansards/train.tok.en.gz"),
        *data_lines("multi30k/train.en.gz"),
        *sorted(tatoeba),
        *(sentence for sentences in papers for sentence in sentences),
        *(line for texts in tasks for line in TASK_TEXT_COPIES * texts),
    ]
    return [line.strip().lower() for line in lines if line.strip()]


def accuracy(model: Path, test: Path) -> float:
    """Percent of right labels, by `seqloom classify`."""
    found = json.loads(seqloom("classify", model, "--reference", test, "--json"))
    return next(float(each["value"]) for each in found["scores"] if each["name"] == "accuracy")


def with_labels(task: str, share: float, *, is_pretrained: bool) -> str:
    """The name of a figure."""
    return f"{task}, {share:.0%} of the labels, {'pre-trained' if is_pretrained else 'from scratch'}"


def bert(folder: Path, seed: int, quick: bool) -> Figures:
    """Accuracy of classifiers of some of the labels, from random weights and from a pre-trained BERT."""
    if not (folder / "pretrained" / "run.json").is_file():
        text = english_text()[: 3000 if quick else None]
        write_lines(folder / "dev.txt", text[::DEV_EVERY])
        write_lines(folder / "train.txt", (line for number, line in enumerate(text) if number % DEV_EVERY))
    files = ["--train", folder / "train.txt", "--dev", folder / "dev.txt"]
    trunk = train(folder / "pretrained", EXAMPLES / "bert.yaml", *files, *(QUICK_BERT if quick else ()))
    found: dict[str, float] = {}
    for task in TASKS:
        data = labelled(task)
        test = write_lines(folder / f"{task}.test.txt", data.test[: 50 if quick else None])
        for share in SHARES:
            labels = some_labels(data.train[: 1000 if quick else None], share, seed=seed)
            name = f"{task}-{share:g}-{seed}"
            given = write_lines(folder / f"{name}.txt", labels)
            common = ["task.kind=classification", f"seed={seed}", "--train", given, *(QUICK_BERT[:4] if quick else ())]
            scratch = train(folder / f"scratch-{name}", "model.kind=bert", *common)
            adapted = train(folder / f"adapted-{name}", f"training.start_from={trunk}", *common)
            for model, is_pretrained in ((scratch, False), (adapted, True)):
                found[with_labels(task, share, is_pretrained=is_pretrained)] = accuracy(model, test)
    return found


def judge_bert(found: Sequence[Figures]) -> Verdict:
    """The mean gain of both tasks with few labels."""
    gains = [
        statistics.mean(
            each[with_labels(task, CLAIMED_SHARE, is_pretrained=True)]
            - each[with_labels(task, CLAIMED_SHARE, is_pretrained=False)]
            for task in TASKS
        )
        for each in found
    ]
    return mean_of(gains, what=f"gain of accuracy by pre-training with {CLAIMED_SHARE:.0%} of the labels", goal=4.0)


PAIRS_ALONE, AFTER_DENOISING = "1,000 pairs", "1,000 pairs after denoising"


DENOISING = ("task.tokens_per_batch=2048", "training.steps=5000", "training.patience=0")
"""Small batches: some 14 passes over the text, three quarters of an hour on one core."""


def denoising(folder: Path, seed: int, quick: bool) -> Figures:
    """BLEU of a translator of 1,000 pairs, from random weights and from a model that has restored both sides."""
    few, more, tested = (100, 600, 20) if quick else (1000, None, None)
    pairs = multi30k(folder, "train", lines=few, file="pairs")
    texts, dev = multi30k(folder, "train", lines=more, file="text"), multi30k(folder, "val", lines=tested)
    source, reference = multi30k(folder, "test_2016_flickr", lines=tested)
    settings = [f"seed={seed}", *(QUICK if quick else ())]
    files = ["--train", pairs[0], "--train", pairs[1], "--dev", dev[0], "--dev", dev[1]]
    alone = train(folder / f"alone-{seed}", *files, *settings)
    plain = ["--train", texts[0], "--train", texts[1]]
    trunk = train(folder / "trunk", "task.kind=denoising", *plain, *DENOISING, *(QUICK if quick else ()))
    adapted = train(folder / f"adapted-{seed}", *files, f"training.start_from={trunk}", *settings)
    return {
        PAIRS_ALONE: bleu(alone, source, reference),
        AFTER_DENOISING: bleu(adapted, source, reference),
    }


BASE, ALL_WEIGHTS, LORA, NUMBERS = "before", "all weights", "LoRA", "numbers of LoRA, % of the weights"
MAX_NUMBERS = 10.0
LORA_SETTINGS = ("training.lora.rank=11", "training.lora.targets=[all]")
ADAPTING_STEPS = "training.steps=1000"
"""For both ways: some thirty passes over 2,000 pairs, after which neither gains."""


def lora(folder: Path, seed: int, quick: bool) -> Figures:
    """BLEU on the phrasebook of a Multi30k translator: as it is, adapted with all weights, and by LoRA."""
    base = folder / "base"
    if not base.is_symlink():
        lines, tested = (600, 20) if quick else (None, None)
        texts, dev = multi30k(folder, "train", lines=lines), multi30k(folder, "val", lines=tested)
        sides = ["--train", texts[1], "--train", texts[0], "--dev", dev[1], "--dev", dev[0]]
        base = train(folder / "base", EXAMPLES / "multi30k-en-de.yaml", *sides, *(QUICK if quick else ()))
    counts = {"train": 200 if quick else 2000, "dev": 20 if quick else 500, "test": 20 if quick else 1000}
    paths: dict[str, list[Path]] = {}
    for split, count in counts.items():
        pairs = sample_pairs("en", "de", count=count, seed=seed, split=split)  # type: ignore[arg-type]
        paths[split] = [
            write_lines(folder / f"{split}-{seed}.{language}", (getattr(pair, side) for pair in pairs))
            for language, side in (("en", "source"), ("de", "target"))
        ]
    common = [f"training.start_from={base}", f"seed={seed}", *(QUICK[:4] if quick else (ADAPTING_STEPS,))]
    for split in ("train", "dev"):
        common += [f"--{split}", *map(str, paths[split][:1]), f"--{split}", str(paths[split][1])]
    every = train(folder / f"all-{seed}", *common)
    few = train(folder / f"lora-{seed}", *common, *LORA_SETTINGS)
    learned, whole = (count_numbers(where) for where in (folder / f"lora-{seed}" / "adapter", base))
    if 100 * learned / whole > MAX_NUMBERS and not quick:
        raise UsageError(f"LoRA has more than {MAX_NUMBERS:g} % as many numbers as the model; choose a lower rank")
    return {
        BASE: bleu(base, *paths["test"]),
        ALL_WEIGHTS: bleu(every, *paths["test"]),
        LORA: bleu(few, *paths["test"]),
        NUMBERS: 100 * learned / whole,
    }


def count_numbers(folder: Path) -> int:
    """Numbers in the weights of a model or an adapter."""
    total = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, framework="np") as weights:
            total += sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return total


def judge_lora(found: Sequence[Figures]) -> Verdict:
    """The share of the gain that LoRA has."""
    shares = [(each[LORA] - each[BASE]) / (each[ALL_WEIGHTS] - each[BASE]) for each in found]
    return mean_of(shares, what="share of the gain of all weights that LoRA has", goal=0.7)


PARTS: Mapping[str, Part] = {
    "bert": Part(bert, judge_bert),
    "denoising": Part(
        denoising,
        lambda found: mean_gain(found, PAIRS_ALONE, AFTER_DENOISING, what="gain of BLEU by denoising", goal=3.0),
    ),
    "lora": Part(lora, judge_lora),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="one part only")
    parser.add_argument("--seeds", type=int, default=3, help="number of seeds, from 1 on")
    parser.add_argument("--quick", action="store_true", help="a little text, no goals")
    parser.add_argument("--keep", type=Path, help="a folder for the runs")
    parser.add_argument("--base", type=Path, help="a translator from English to German for part lora")
    parser.add_argument("--json", type=Path, help="a file for all figures")
    given = parser.parse_args()
    exit_on_termination()
    record: dict[str, object] = {}
    verdicts: list[Verdict] = []
    print("| part | seed | figure | value |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as temporary:
        for name in [given.part] if given.part else PARTS:
            folder = (given.keep or Path(temporary)) / name
            folder.mkdir(parents=True, exist_ok=True)
            if name == "lora" and given.base is not None and not (folder / "base").is_symlink():
                (folder / "base").symlink_to(given.base.resolve())
            found: list[Figures] = []
            for seed in range(1, given.seeds + 1):
                began = time.monotonic()
                try:
                    found.append(PARTS[name].measure(folder, seed, given.quick))
                except (SeqloomError, subprocess.CalledProcessError) as error:
                    say(str(error))
                    sys.exit(2)
                for what, value in found[-1].items():
                    print(f"| {name} | {seed} | {what} | {value:.2f} |", flush=True)
                say(f"{name}, seed {seed}: {duration(time.monotonic() - began)}")
            verdict = PARTS[name].judge(found)
            verdicts.append(verdict)
            low, high = verdict.interval or (verdict.value, verdict.value)
            print(f"| {name} | mean | {verdict.what} | {verdict.value:.2f} [{low:.2f}, {high:.2f}] |", flush=True)
            record[name] = {"seeds": found, "verdict": asdict(verdict), "is_quick": given.quick}
    if given.json is not None:
        given.json.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    if given.quick:
        return
    print()
    for verdict in verdicts:
        print(f"{verdict.what}: at least {verdict.goal:g}: {'reached' if verdict.is_reached else 'MISSED'}")
    sys.exit(0 if all(verdict.is_reached for verdict in verdicts) else 1)


if __name__ == "__main__":
    main()
