"""Speed of phrase-based translation: sentences per second from text to text, and compared with nltk's stack decoder.

    python benchmarks/decode_phrases.py --model run/model [--quick] [--threads 2] [--rounds 9] [--lines 1000]
                                        [--nltk-lines 5]

The model (or SEQLOOM_PHRASES) is one of kind phrases, fitted to Multi30k German to English, whose test set of 2016 is
translated (SEQLOOM_DATA names the folder of the data). nltk gets the same options with the same weighted scores and the
same language model for a few short lines, and as many hypotheses in a stack; it has no orientations and forms no
n-best lists, and needs minutes for what takes a second here. BLEU is lower-cased and Moses-tokenised
(`multi30k_scores.py`). The last line claims the ratio of sentences per second; the exit code is 1 if it misses its
goal, or if fewer than 50 sentences per second were translated.
"""

import argparse
import json
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, all_running
from harness.progress import Countdown
from harness.ratios import FEWEST_PAIRS, Claim, claim
from multi30k_scores import multi30k_bleu
from seqloom.core.errors import UsageError
from seqloom.core.files import read_lines
from seqloom.interop.arpa import write_arpa
from seqloom.runs.loading import LoadedFitted, find_model, load_translator
from seqloom.runs.translator import source_sentence
from seqloom.smt.phrases import PhraseModel

SCRIPTS = Path(__file__).resolve().parent / "contestants"
NLTK = ("nltk==3.10.4",)
NLTK_GOAL = 20.0
RATE_GOAL = 50.0
"""Sentences per second, text to text."""
SMALL_BEAM = 20
"""Hypotheses of a stack where ours is compared with nltk."""


def load_phrases(path: str | None) -> tuple[Path, LoadedFitted]:
    if not path:
        raise UsageError("name a model of kind phrases: --model run/model, or SEQLOOM_PHRASES=run/model")
    loaded = load_translator(Path(path))
    if not isinstance(loaded, LoadedFitted) or not isinstance(loaded.model, PhraseModel):
        raise UsageError(f"{path} is not a model of kind phrases; fit one with seqloom train model.kind=phrases")
    return find_model(Path(path)), loaded


def write_nltk(loaded: LoadedFitted, lines: Sequence[str], folder: Path) -> None:
    """What nltk decodes: the options of each line with weighted scores, and the language model."""
    model, tokenizers = cast("PhraseModel", loaded.model), loaded.tokenizers
    search, target = model.search_with(SMALL_BEAM), tokenizers.target.vocabulary
    sentences = []
    for line in lines:
        sentence = source_sentence(tokenizers.source, line)
        options = model.options_of(sentence)
        scores = search.weighted(options).scores.tolist()
        words = [f"{word}|{place}" for place, word in enumerate(sentence.words)]  # each place has options of its own
        rows = [
            [words[begin:end], [target[word] for word in options.words(number)], scores[number]]
            for number, (begin, end) in enumerate(zip(options.begins.tolist(), options.ends.tolist(), strict=True))
        ]
        sentences.append({"words": words, "options": rows})
    settings = search.stack_settings
    task = {
        "sentences": sentences,
        "beam": SMALL_BEAM,
        "language_model_weight": settings.language_model_weight,
        "distortion_weight": settings.distortion_weight,
        "order": model.language_model.order,
    }
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    write_arpa(model.language_model, folder / "model.arpa")


def compare(given: argparse.Namespace, folder: Path) -> tuple[list[Claim], bool]:
    """Measure, print the table, claim."""
    path, loaded = load_phrases(given.model)
    data = Path(os.environ.get("SEQLOOM_DATA", "")) / "multi30k"
    if not data.is_dir():
        raise UsageError(f"{data} is not a folder; set SEQLOOM_DATA to the folder with the data sets")
    sides = loaded.card.source, loaded.card.target
    lines, references = (list(read_lines(data / f"test_2016_flickr.{side}.gz"))[: given.lines] for side in sides)
    short = sorted(lines, key=len)[len(lines) // 20 :][: given.nltk_lines]  # the shortest take no time
    write_nltk(loaded, short, folder)
    for name, some in (("lines", lines), ("short", short)):
        (folder / name).write_text("".join(f"{line}\n" for line in some), encoding="utf-8")
    own = [sys.executable, SCRIPTS / "decode_phrases_ours.py", "--model", path, "--folder", folder]
    python = Path(given.nltk) if given.nltk else peer_python("nltk", NLTK)
    ours = Contestant("seqloom", [*own, "--beam", str(SMALL_BEAM)], threads=given.threads)
    theirs = Contestant("nltk", [python, SCRIPTS / "decode_phrases_nltk.py", "--folder", folder], threads=given.threads)
    rates: dict[str, list[float]] = {"all": [], "ours": [], "nltk": []}
    with all_running([ours, theirs]):
        ours.ask("all")  # compiles, unless that was done before
        countdown = Countdown("round", given.rounds)
        for _ in range(given.rounds):
            answer = ours.ask("all")
            rates["all"].append(len(lines) / answer["seconds"])
            rates["ours"].append(len(short) / ours.ask("short")["seconds"])
            rates["nltk"].append(len(short) / theirs.ask("short")["seconds"])
            countdown.tick()
        outputs = answer["outputs"]
    bleu = multi30k_bleu(outputs, references, language=sides[1] or "en").value
    print("\n| work | contestant | sentences/s | range |\n|---|---|---:|---:|")
    works = (
        ("all", f"{len(lines):,} lines, text to text, beam {loaded.config.search.beam}", "seqloom"),
        ("ours", f"{len(short)} short lines, beam {SMALL_BEAM}", "seqloom"),
        ("nltk", f"{len(short)} short lines, stacks of {SMALL_BEAM}", f"nltk {theirs.facts['version']}"),
    )
    for name, work, who in works:
        low, high = min(rates[name]), max(rates[name])
        print(f"| {work} | {who} | {statistics.median(rates[name]):,.3g} | {low:,.3g} – {high:,.3g} |")
    rate = statistics.median(rates["all"])
    print(f"\nMedians of {given.rounds} rounds in turns, {given.threads} threads. BLEU {bleu:.2f}.")
    print(f"sentences/s {rate:.1f} (goal: at least {RATE_GOAL:g})")
    about = f"phrases vs nltk's stack decoder, stacks of {SMALL_BEAM}"
    return [claim(rates["ours"], rates["nltk"], goal=NLTK_GOAL, about=about)], rate >= RATE_GOAL


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--model", default=os.environ.get("SEQLOOM_PHRASES"), help="a model of kind phrases")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and lines: ends within five minutes")
    parser.add_argument("--rounds", type=int, help=f"at least {FEWEST_PAIRS} (default 9)")
    parser.add_argument("--lines", type=int, help="lines of the test set (default 1000)")
    parser.add_argument("--nltk-lines", type=int, help="of these, short ones for nltk (default 5)")
    parser.add_argument("--threads", type=int, default=2, help="threads of ours; nltk has one (default 2)")
    parser.add_argument("--nltk", help="an interpreter that has nltk, in place of a new environment")
    given = parser.parse_args()
    given.rounds = given.rounds or (FEWEST_PAIRS if given.quick else 9)
    given.lines = given.lines or (200 if given.quick else 1000)
    given.nltk_lines = given.nltk_lines or (2 if given.quick else 5)
    if given.rounds < FEWEST_PAIRS:
        parser.error(f"--rounds {given.rounds} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(*compare(given, folder)))


if __name__ == "__main__":
    main()
