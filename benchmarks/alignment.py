"""Speed and quality of word alignment: IBM model 1 compared with nltk and eflomal, the default with eflomal's model 3.

    python benchmarks/alignment.py [--quick] [--threads 2] [--pairs 15] [--lines 29000] [--nltk-lines 1000]
                                   [--hansard-lines 100000]

SEQLOOM_DATA names the folder of the data. Model 1: Multi30k German to English, lower-cased words separated by spaces;
nltk fits one direction on the first lines only, since it takes minutes for all. The default model: Hansards, English to
French, with the sentences of the test half at the end, whose gold links give the alignment error rate. eflomal does
both directions, from text files to files of links, with the number of rounds that it chooses by itself; its error rate
is that of the links that both directions have. Where it cannot be installed (it needs a C compiler) it is left out, and
that is said. The last lines claim ratios of sentence pairs per second; the exit code is 1 if one of them misses its
goal.
"""

import argparse
import gzip
import os
import statistics
import subprocess
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, all_running
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.classical.alignment import score_alignments
from seqloom.core.errors import UsageError
from seqloom.data.corpus import open_corpus
from seqloom.text.formats.pharaoh import GoldLinks, read_gold
from seqloom.text.marks import JOINER, split_words
from seqloom.text.normalise import Normaliser

FULL_PAIRS = 15
ITERATIONS = 5
NLTK_GOAL, EFLOMAL_GOAL, DEFAULT_GOAL = 20.0, 1.0, 0.95
SCRIPTS = Path(__file__).resolve().parent / "contestants"
PEERS = {"nltk": ("nltk==3.10.4",), "eflomal": ("eflomal==2.0.0",)}


@dataclass(frozen=True)
class Timed:
    """The rates of one contestant, in sentence pairs per second, one per round."""

    name: str
    version: str
    rates: tuple[float, ...]
    answers: Mapping[str, Any] = field(default_factory=dict)
    """What it answered to the last command that is not timed by rounds."""

    def row(self, what: str) -> str:
        """A row of the table."""
        span = f"{min(self.rates):,.0f} – {max(self.rates):,.0f}"
        return f"| {what} | {self.name} | {self.version} | {statistics.median(self.rates):,.0f} | {span} |"


def data_folder(name: str) -> Path:
    data = os.environ.get("SEQLOOM_DATA")
    if not data or not (Path(data) / name).is_dir():
        raise UsageError(f"SEQLOOM_DATA={data or ''} has no folder {name}; set it to the folder with the data sets")
    return Path(data) / name


def write_text(folder: Path, *, lines: int, name: str) -> tuple[list[Path], int]:
    """The first lines of Multi30k as space-separated words; their files and their number."""
    corpus = open_corpus([data_folder("multi30k") / f"train.{language}.gz" for language in ("de", "en")])
    normalise = Normaliser(lowercase=True)
    pairs = [
        [" ".join(split_words(normalise(side))).replace(JOINER, "") for side in (line.source, line.target)]
        for line in islice(corpus, lines)
    ]
    paths = [folder / f"{name}.{language}" for language in ("de", "en")]
    for side, path in enumerate(paths):
        path.write_text("\n".join(pair[side] for pair in pairs) + "\n", encoding="utf-8")
    return paths, len(pairs)


def write_hansards(folder: Path, *, lines: int) -> tuple[list[Path], list[GoldLinks]]:
    """The first lines of the Hansards with the test half after them, written alike, and the gold links of that."""
    home = data_folder("hansards")
    paths = [folder / f"hansards.{language}" for language in ("en", "fr")]
    for path in paths:
        with gzip.open(home / f"train.tok{path.suffix}.gz", "rt", encoding="utf-8") as train:
            kept = list(islice(train, lines))
        tested = unicodedata.normalize("NFKD", (home / f"test{path.suffix}").read_text(encoding="utf-8").lower())
        path.write_text("".join(kept) + "".join(mark for mark in tested if not unicodedata.combining(mark)), "utf-8")
    sentences = len((home / "test.en").read_text(encoding="utf-8").splitlines())
    return paths, read_gold(home / "test.wa", sentences).links


def error_rate(gold: Sequence[GoldLinks], *files: Path) -> float:
    """The alignment error rate of the last lines of a file of links, or of the links that all of the files have."""
    found: list[set[tuple[int, int]]] = []
    for number, file in enumerate(files):
        lines = file.read_text(encoding="utf-8").split("\n")[:-1][-len(gold) :]
        links = [{(int(i), int(j)) for i, j in (pair.split("-") for pair in line.split())} for line in lines]
        found = links if number == 0 else [one & other for one, other in zip(found, links, strict=True)]
    return score_alignments(found, gold).error_rate or 0.0


def race(peer: str, command: str, *, text: Sequence[Path], lines: int, given: argparse.Namespace) -> list[Timed]:
    """Seqloom and a peer alternately; each does the whole work once per round."""
    options = ["--text", *text, "--iterations", str(ITERATIONS), "--threads", str(given.threads)]
    peer_script = SCRIPTS / f"alignment_{peer}.py"
    contestants = [
        Contestant("seqloom", [sys.executable, SCRIPTS / "alignment_ours.py", *options], threads=given.threads),
        Contestant(peer, [peer_python(peer, PEERS[peer]), peer_script, *options], threads=given.threads),
    ]
    seconds: dict[str, list[float]] = {each.name: [] for each in contestants}
    with all_running(contestants):
        contestants[0].ask(command)  # compiles, unless that was done before
        countdown = Countdown(f"{peer}, {lines:,} lines: round", given.pairs)
        for _ in range(given.pairs):
            for each in contestants:
                seconds[each.name].append(float(each.ask(command)["seconds"]))
            countdown.tick()
        answers = {"seqloom": contestants[0].ask("pair")} if command == "default" else {}
    return [
        Timed(
            each.name,
            each.facts["version"],
            tuple(lines / second for second in seconds[each.name]),
            answers.get(each.name, {}),
        )
        for each in contestants
    ]


def compare(given: argparse.Namespace, folder: Path) -> list[Claim]:
    """Measure, print the table, claim."""
    claims, rows = [], []
    text, lines = write_text(folder, lines=given.nltk_lines, name="few")
    ours, peer = race("nltk", "fit", text=text, lines=lines, given=given)
    what = f"{ITERATIONS} rounds of EM, one direction, {lines:,} pairs"
    rows += [ours.row(what), peer.row(what)]
    claims.append(claim(ours.rates, peer.rates, goal=NLTK_GOAL, about="IBM model 1 vs nltk"))
    text, lines = write_text(folder, lines=given.lines, name="all")
    what = f"files to links, both directions, {lines:,} pairs"
    try:
        ours, peer = race("eflomal", "links", text=text, lines=lines, given=given)
        rows += [ours.row(what), peer.row(what)]
        claims.append(claim(ours.rates, peer.rates, goal=EFLOMAL_GOAL, about="files to links vs eflomal (model 1)"))
    except subprocess.CalledProcessError as error:
        say(f"eflomal cannot be installed here: {error}")
        rows.append(f"| {what} | eflomal | not measured: it could not be installed | | |")
    text, gold = write_hansards(folder, lines=given.hansard_lines)
    lines, notes = given.hansard_lines + len(gold), []
    what = f"files to links, default models, {lines:,} pairs of the Hansards"
    try:
        ours, peer = race("eflomal", "default", text=text, lines=lines, given=given)
        rows += [ours.row(what), peer.row(f"{what} (its model 3)")]
        claims.append(
            claim(ours.rates, peer.rates, goal=DEFAULT_GOAL, sign="low>", about="default vs eflomal (model 3)")
        )
        both = [text[0].with_suffix(f".eflomal-{side}") for side in ("forward", "backward")]
        rates = error_rate(gold, text[0].with_suffix(".links")), error_rate(gold, *both)
        notes += [
            "AER {:.4f} by ours, {:.4f} by eflomal.".format(*rates),
            f"A saved aligner is loaded in {ours.answers['loading'] * 1e3:,.0f} ms, and then links one new pair in "
            f"{ours.answers['seconds'] * 1e3:.2f} ms.",
        ]
    except subprocess.CalledProcessError:
        rows.append(f"| {what} | eflomal | not measured: it could not be installed | | |")
    print("\n| work | contestant | version | sentence pairs/s | range |\n|---|---|---|---:|---:|")
    print("\n".join(rows))
    print(f"\nMedians of {given.pairs} rounds in turns, {given.threads} threads.", *notes)
    return claims


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and lines: ends within five minutes")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contestant (default 2)")
    parser.add_argument("--lines", type=int, help="lines for eflomal (default: all)")
    parser.add_argument("--nltk-lines", type=int, help="lines for nltk (default 1000)")
    parser.add_argument("--hansard-lines", type=int, help="training lines of the Hansards (default: all 100,000)")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    given.lines = given.lines or (10_000 if given.quick else sys.maxsize)
    given.nltk_lines = given.nltk_lines or 1_000
    given.hansard_lines = given.hansard_lines or (10_000 if given.quick else 100_000)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(compare(given, folder)))


if __name__ == "__main__":
    main()
