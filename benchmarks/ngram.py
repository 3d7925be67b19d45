"""N-gram models: estimated beside nltk, asked beside KenLM, on WikiText-2.

    python benchmarks/ngram.py [--quick] [--pairs 15] [--order 5] [--lines 36718] [--nltk-lines 4000]

SEQLOOM_DATA names the folder of the data. nltk: Kneser-Ney from sentences of words, on the first lines only; it counts
when fitted and leaves the smoothing to each question, ours does both. KenLM: the same ARPA file, which ours estimated
from the training text, and the test text as questions, one thread each. Its Python module takes strings; ours is asked
with ids and with strings. Both must give the text the same probability. Where KenLM cannot be installed (it needs a
C++ compiler and cmake) it is left out, and that is said. Rates are words per second, the ends of lines counted.
"""

import argparse
import os
import statistics
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, ContestantError, all_running
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.classical.ngram import NGramConfig
from seqloom.core.errors import UsageError
from seqloom.core.files import read_lines
from seqloom.core.symbols import END, RESERVED
from seqloom.interop.arpa import write_arpa
from seqloom.text.tokenizer import EncodedText

FULL_PAIRS = 15
NLTK_GOAL, IDS_GOAL, LINES_GOAL = 50.0, 0.5, 0.25
SAME = 1e-6
"""How far the two may differ in log P of the whole text, as a share."""
SCRIPTS = Path(__file__).resolve().parent / "contestants"
PEERS = {"nltk": ("nltk==3.10.4",), "kenlm": ("kenlm==0.3.0",)}
UNKNOWN_WORD = "(unknown)"
"""How <unk> of the data is written, which programs take for a word that is not in their vocabulary."""


@dataclass(frozen=True)
class Timed:
    """The rates of one contestant, in words per second, one per round."""

    name: str
    version: str
    rates: tuple[float, ...]

    def row(self, what: str) -> str:
        """A row of the table."""
        span = f"{min(self.rates):,.0f} – {max(self.rates):,.0f}"
        return f"| {what} | {self.name} | {self.version} | {statistics.median(self.rates):,.0f} | {span} |"


def write_text(folder: Path, name: str, *, lines: int) -> tuple[Path, int]:
    """The first lines of a part of WikiText-2; their file and how many words they have, ends of lines counted."""
    data = os.environ.get("SEQLOOM_DATA")
    if not data or not (Path(data) / "wikitext-2").is_dir():
        raise UsageError(f"SEQLOOM_DATA={data or ''} has no folder wikitext-2; set it to the folder with the data sets")
    text = read_lines(Path(data) / "wikitext-2" / f"{name}.txt.gz")
    kept = [line.strip().replace(RESERVED[3], UNKNOWN_WORD) for line in islice(text, lines)]
    path = folder / f"{name}-{lines}.txt"
    path.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    return path, sum(len(line.split()) + 1 for line in kept)


def estimate(text: Path, arpa: Path, *, order: int) -> None:
    """Our model of a text as an ARPA file."""
    lines = text.read_text(encoding="utf-8").split("\n")[:-1]
    counts = Counter(word for line in lines for word in line.split())
    numbers = {word: number for number, word in enumerate([*RESERVED, *counts])}
    ids = [number for line in lines for number in [*(numbers[word] for word in line.split()), END]]
    write_arpa(NGramConfig(order=order).fit(EncodedText(np.array(ids, np.int32), list(numbers))), arpa)


def race(
    contestants: Sequence[Contestant], commands: Sequence[str], *, words: int, pairs: int, what: str
) -> dict[str, Timed]:
    """Each contestant's commands in turns, by name and command."""
    rates: dict[str, list[float]] = {}
    with all_running(contestants):
        for warm in (True, *[False] * pairs):
            for each, command in zip(contestants, commands, strict=True):
                for name in command.split():
                    seconds = float(each.ask(name)["seconds"])
                    if not warm:
                        rates.setdefault(f"{each.name} {name}", []).append(words / seconds)
            if warm:
                countdown = Countdown(f"{what}: round", pairs)
            else:
                countdown.tick()
        _require_agreement(contestants)
    versions = {each.name: str(each.facts["version"]) for each in contestants}
    return {key: Timed(key.split()[0], versions[key.split()[0]], tuple(found)) for key, found in rates.items()}


def _require_agreement(contestants: Sequence[Contestant]) -> None:
    totals = [each.facts["total"] for each in contestants if each.facts.get("total")]
    if totals and max(totals) - min(totals) > SAME * abs(totals[0]):
        raise ContestantError(f"the contestants disagree on log P of the text: {totals}")


def beside_nltk(given: argparse.Namespace, folder: Path) -> tuple[list[str], list[Claim]]:
    """Estimation."""
    text, words = write_text(folder, "train", lines=given.nltk_lines)
    options: list[str | Path] = ["--text", text, "--order", str(given.order)]
    contestants = [
        Contestant("seqloom", [sys.executable, SCRIPTS / "ngram_ours.py", *options], threads=1),
        Contestant("nltk", [peer_python("nltk", PEERS["nltk"]), SCRIPTS / "ngram_nltk.py", *options], threads=1),
    ]
    found = race(contestants, ["fit", "fit"], words=words, pairs=given.pairs, what=f"nltk, {words:,} words")
    ours, peer = found["seqloom fit"], found["nltk fit"]
    what = f"{given.order}-gram Kneser-Ney estimated, {words:,} words"
    about = f"{given.order}-gram estimation vs nltk"
    return [ours.row(what), peer.row(what)], [claim(ours.rates, peer.rates, goal=NLTK_GOAL, about=about)]


def beside_kenlm(given: argparse.Namespace, folder: Path) -> tuple[list[str], list[Claim]]:
    """Questions."""
    python = peer_python("kenlm", PEERS["kenlm"])
    train, _ = write_text(folder, "train", lines=given.lines)
    test, words = write_text(folder, "test", lines=sys.maxsize)
    arpa = folder / "model.arpa"
    say(f"estimating a {given.order}-gram model and writing it as an ARPA file")
    estimate(train, arpa, order=given.order)
    options: list[str | Path] = ["--text", test, "--model", arpa]
    ours = [sys.executable, SCRIPTS / "ngram_ours.py", *options, "--order", str(given.order)]
    contestants = [
        Contestant("seqloom", ours, threads=1),
        Contestant("kenlm", [python, SCRIPTS / "ngram_kenlm.py", *options], threads=1),
    ]
    found = race(contestants, ["ids lines", "score"], words=words, pairs=given.pairs, what=f"KenLM, {words:,} words")
    ids, lines, peer = found["seqloom ids"], found["seqloom lines"], found["kenlm score"]
    what = f"{given.order}-gram questions"
    rows = [ids.row(f"{what} as ids"), lines.row(f"{what} as strings"), peer.row(f"{what} as strings")]
    return rows, [
        claim(ids.rates, peer.rates, goal=IDS_GOAL, about=f"{what} from ids vs kenlm"),
        claim(lines.rates, peer.rates, goal=LINES_GOAL, about=f"{what} from strings vs kenlm"),
    ]


def compare(given: argparse.Namespace, folder: Path) -> list[Claim]:
    """Measure, print the table, claim."""
    rows, claims = beside_nltk(given, folder)
    try:
        more_rows, more_claims = beside_kenlm(given, folder)
        rows, claims = rows + more_rows, claims + more_claims
    except subprocess.CalledProcessError as error:
        say(f"KenLM cannot be installed here: {error}")
        rows.append("| questions | kenlm | not measured: it could not be installed | | |")
    print("\n| work | contestant | version | words/s | range |\n|---|---|---|---:|---:|")
    print("\n".join(rows))
    print(f"\nMedians of {given.pairs} rounds in turns, one thread each.")
    return claims


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: ends within five minutes")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--order", type=int, default=5, help="words looked at together (default 5)")
    parser.add_argument("--lines", type=int, default=sys.maxsize, help="lines of the model for KenLM (default: all)")
    parser.add_argument("--nltk-lines", type=int, help="lines for nltk (default 4000)")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    given.nltk_lines = given.nltk_lines or (2_000 if given.quick else 4_000)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(compare(given, folder)))


if __name__ == "__main__":
    main()
