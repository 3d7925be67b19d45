"""A student against its teacher: BLEU that it keeps, and the share of the time that it takes to translate.

    python benchmarks/distillation.py TEACHER [TEACHER …] --out STUDENT [--train SOURCE TARGET] [--dev SOURCE TARGET]
                                      [--test SOURCE TARGET] [--language de] [--rounds 9] [--threads 1]
                                      [--set model.width=128 …]

The student is distilled into STUDENT; one that is there already is finished, or measured as it is. By default the text
is Multi30k, English to German (SEQLOOM_DATA names the folder of the data): train, val, test_2016_flickr. BLEU is that
of `multi30k_scores.py`. Both translate the whole test set in turns, each with its own search settings; loading is not
counted. Several teachers decide together, and their time is that of all. The last lines show the share of BLEU that is
kept and claim the ratio of sentences per second; the exit code is 1 if the student is not three times as fast, or keeps
less than 97% of the BLEU.
"""

import argparse
import logging
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from harness.ending import Outcome, measure_and_exit
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, claim
from multi30k_scores import multi30k_bleu
from seqloom.apps.distillation import distill
from seqloom.apps.translator import Translator, open_translator
from seqloom.cli.console import show_events
from seqloom.core.errors import DataError, UsageError
from seqloom.core.files import read_lines

SPEED_GOAL, BLEU_GOAL = 3.0, 0.97
"""Times the speed of the teacher, and the share of its BLEU."""


def multi30k(name: str) -> list[str]:
    folder = os.environ.get("SEQLOOM_DATA")
    if not folder:
        raise UsageError(
            "SEQLOOM_DATA is not set; it names the folder with multi30k/, or give --train, --dev and --test"
        )
    return [str(Path(folder) / "multi30k" / f"{name}.{language}.gz") for language in ("en", "de")]


def timed(translator: Translator, lines: Sequence[str]) -> tuple[float, list[str]]:
    """Seconds to translate all lines, and the translations."""
    began = time.perf_counter()
    texts = [each[0].text for each in translator.search(lines)]
    return time.perf_counter() - began, texts


def measure(given: argparse.Namespace) -> Outcome:
    torch.set_num_threads(given.threads)
    test = given.test or multi30k("test_2016_flickr")
    with show_events(as_json=False) as listener:
        trained = distill(
            given.teachers,
            given.train or multi30k("train"),
            out=given.out,
            dev=given.dev or multi30k("val"),
            overrides=given.set,
            listener=listener,
        )
    assert trained is not None
    torch.set_num_threads(given.threads)
    sources, references = (list(read_lines(Path(name))) for name in test)
    if len(sources) != len(references):
        raise DataError(f"{test[0]} has {len(sources)} lines, but {test[1]} has {len(references)}")
    both = {
        "teacher": open_translator(Path(given.teachers[0]), companions=[Path(each) for each in given.teachers[1:]]),
        "student": open_translator(trained.model),
    }
    seconds: dict[str, list[float]] = {name: [] for name in both}
    texts: dict[str, list[str]] = {}
    for name, translator in both.items():  # once to compile loops and fill caches
        timed(translator, sources[:20])
        say(f"{name}: {translator!r}, beam {translator.config.search.beam}")
    countdown = Countdown("rounds", given.rounds)
    for number in range(given.rounds):
        for name in list(both) if number % 2 else reversed(both):
            taken, texts[name] = timed(both[name], sources)
            seconds[name].append(taken)
        countdown.tick()
    scores = {name: multi30k_bleu(found, references, language=given.language) for name, found in texts.items()}
    print("| | BLEU | seconds for the test set | sentences per second |\n|---|---:|---:|---:|")
    for name in both:
        middle = statistics.median(seconds[name])
        print(f"| {name} | {scores[name].value:.2f} | {middle:.2f} | {len(sources) / middle:.0f} |")
    kept = scores["student"].value / max(scores["teacher"].value, 1e-9)
    print(f"\nBLEU kept {kept:.4f} goal {BLEU_GOAL:g}; {scores['student'].signature}; {given.threads} threads")
    rates = [[len(sources) / each for each in seconds[name]] for name in ("student", "teacher")]
    speed = claim(rates[0], rates[1], goal=SPEED_GOAL, about="sentences per second, student vs teacher")
    return Outcome([speed], is_good=kept >= BLEU_GOAL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("teachers", nargs="+", help="model that the student learns from; several decide together")
    parser.add_argument("--out", type=Path, required=True, help="the run of the student")
    for name in ("train", "dev", "test"):
        parser.add_argument(f"--{name}", nargs=2, metavar=("SOURCE", "TARGET"), help="by default that of Multi30k")
    parser.add_argument("--language", default="de", help="target language")
    parser.add_argument("--rounds", type=int, default=9, help=f"turns of each, at least {FEWEST_PAIRS} for a claim")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--set", nargs="*", default=[], metavar="path=value", help="settings of the student")
    given = parser.parse_args()
    logging.getLogger("sacrebleu").setLevel(logging.ERROR)  # it warns of text that is tokenised, as it should be
    measure_and_exit(lambda _folder: measure(given))


if __name__ == "__main__":
    main()
