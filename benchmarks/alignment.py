"""Speed of word alignment: IBM model 1 compared with nltk, and from files to links with eflomal.

    python benchmarks/alignment.py [--quick] [--threads 2] [--pairs 15] [--lines 29000] [--nltk-lines 1000]

Multi30k German to English (SEQLOOM_DATA names the folder of the data), lower-cased words separated by spaces.
nltk: one direction, fitted on the first lines only, since it takes minutes for all. eflomal: both directions, from text
files to files of links; its model 1, with the number of rounds that it chooses by itself. Where it cannot be installed
(it needs a C compiler) it is left out, and that is said. The last lines claim ratios of sentence pairs per second; the
exit code is 1 if one of them misses its goal.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, all_running
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.core.errors import UsageError
from seqloom.data.corpus import open_corpus
from seqloom.text.marks import JOINER, split_words
from seqloom.text.normalise import Normaliser

FULL_PAIRS = 15
ITERATIONS = 5
NLTK_GOAL, EFLOMAL_GOAL = 20.0, 1.0
SCRIPTS = Path(__file__).resolve().parent / "contestants"
PEERS = {"nltk": ("nltk==3.10.4",), "eflomal": ("eflomal==2.0.0",)}


@dataclass(frozen=True)
class Timed:
    """The rates of one contestant, in sentence pairs per second, one per round."""

    name: str
    version: str
    rates: tuple[float, ...]

    def row(self, what: str) -> str:
        """A row of the table."""
        span = f"{min(self.rates):,.0f} – {max(self.rates):,.0f}"
        return f"| {what} | {self.name} | {self.version} | {statistics.median(self.rates):,.0f} | {span} |"


def write_text(folder: Path, *, lines: int, name: str) -> tuple[list[Path], int]:
    """The first lines of Multi30k as space-separated words; their files and their number."""
    data = os.environ.get("SEQLOOM_DATA")
    if not data or not (Path(data) / "multi30k").is_dir():
        raise UsageError(f"SEQLOOM_DATA={data or ''} has no folder multi30k; set it to the folder with the data sets")
    corpus = open_corpus([Path(data) / "multi30k" / f"train.{language}.gz" for language in ("de", "en")])
    normalise = Normaliser(lowercase=True)
    pairs = [
        [" ".join(split_words(normalise(side))).replace(JOINER, "") for side in (line.source, line.target)]
        for line in islice(corpus, lines)
    ]
    paths = [folder / f"{name}.{language}" for language in ("de", "en")]
    for side, path in enumerate(paths):
        path.write_text("\n".join(pair[side] for pair in pairs) + "\n", encoding="utf-8")
    return paths, len(pairs)


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
    return [
        Timed(each.name, each.facts["version"], tuple(lines / second for second in seconds[each.name]))
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
    print("\n| work | contestant | version | sentence pairs/s | range |\n|---|---|---|---:|---:|")
    print("\n".join(rows))
    print(f"\nMedians of {given.pairs} rounds in turns, {given.threads} threads.")
    return claims


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds and lines: ends within five minutes")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contestant (default 2)")
    parser.add_argument("--lines", type=int, help="lines for eflomal (default: all)")
    parser.add_argument("--nltk-lines", type=int, help="lines for nltk (default 1000)")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    given.lines = given.lines or (10_000 if given.quick else sys.maxsize)
    given.nltk_lines = given.nltk_lines or 1_000
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(compare(given, folder)))


if __name__ == "__main__":
    main()
