"""Our tagger by counting beside TnT of nltk: both fit the training set of EWT and tag the words of its dev set.

    python benchmarks/tagging.py [--quick] [--pairs 15]

SEQLOOM_DATA names the folder of the data. Both are second-order hidden Markov models (Brants, 2000), in one thread each
and measured in turns; a new tagger is fitted in every round, since that of nltk remembers the words that it has tagged.
nltk has two kinds, of which one tells capitalised words from others in its states. Ours is to be 20 times as fast as
the faster one, and at least as accurate as the better one. Rates are words per second; no file is read meanwhile.
"""

import argparse
import json
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.commands import data_file
from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, ContestantError, all_running
from harness.progress import Countdown
from harness.ratios import FEWEST_PAIRS, claim
from seqloom.classical.tagger import read_conllu

FULL_PAIRS = 15
GOAL = 20.0
SCRIPTS = Path(__file__).resolve().parent / "contestants"
PEER = ("nltk==3.10.4",)
PARTS = ("fit", "tag")


@dataclass(frozen=True)
class Timed:
    """The rates of a contestant in words per second, one per round, by what it did; and its accuracy in percent."""

    name: str
    version: str
    rates: dict[str, list[float]]
    accuracy: float

    def row(self) -> str:
        """A row of the table."""
        shown = " | ".join(
            f"{statistics.median(self.rates[part]):,.0f} ({min(self.rates[part]):,.0f} – {max(self.rates[part]):,.0f})"
            for part in PARTS
        )
        return f"| {self.name} | {self.version} | {shown} | {self.accuracy:.2f} |"


def race(data: Path, words: dict[str, int], *, pairs: int) -> list[Timed]:
    """Fit and tag with each of them, in turns; ours is the first. The first round of each is not counted."""
    peer = [peer_python("nltk", PEER), SCRIPTS / "tagging_nltk.py", "--data", data]
    contestants = [
        Contestant("seqloom", [sys.executable, SCRIPTS / "tagging_ours.py", "--data", data], threads=1),
        Contestant("nltk, TnT", peer, threads=1),
        Contestant("nltk, TnT with capitals", [*peer, "--capitals"], threads=1),
    ]
    rates = [{part: list[float]() for part in PARTS} for _ in contestants]
    with all_running(contestants):
        right = [each.ask("run")["right"] for each in contestants]
        countdown = Countdown("round", pairs)
        for _ in range(pairs):
            for place, contestant in enumerate(contestants):
                found = contestant.ask("run")
                if found["right"] != right[place]:
                    raise ContestantError(f"{contestant.name}: {found['right']} right words, then {right[place]}")
                for part in PARTS:
                    rates[place][part].append(words[part] / found[part])
            countdown.tick()
    return [
        Timed(contestant.name, str(contestant.facts["version"]), rates[place], 100 * right[place] / words["tag"])
        for place, contestant in enumerate(contestants)
    ]


def is_as_accurate(ours: Timed, peers: Sequence[Timed]) -> bool:
    """Whether none of the peers is more accurate."""
    return all(ours.accuracy >= each.accuracy for each in peers)


def compare(folder: Path, *, pairs: int) -> Outcome:
    """Measure, print the table, claim."""
    sentences = {
        part: list(read_conllu(data_file(f"ud-english-ewt/en_ewt-ud-{part}.conllu.gz"))) for part in ("train", "dev")
    }
    data = folder / "sentences.json"
    data.write_text(json.dumps(sentences), encoding="utf-8")
    words = {part: sum(map(len, sentences[name])) for part, name in zip(PARTS, ("train", "dev"), strict=True)}
    ours, *peers = race(data, words, pairs=pairs)
    print("| tagger | version | words fitted/s (range) | words tagged/s (range) | UPOS accuracy |")
    print("|---|---|---:|---:|---:|")
    print("\n".join(each.row() for each in (ours, *peers)))
    print(f"\n{words['fit']:,} words fitted, {words['tag']:,} tagged; medians of {pairs} rounds in turns, one thread.")
    claims = []
    for part, verb in zip(PARTS, ("fitting", "tagging"), strict=True):
        fastest = max(peers, key=lambda each: statistics.median(each.rates[part]))
        claims.append(claim(ours.rates[part], fastest.rates[part], goal=GOAL, about=f"{verb} words vs {fastest.name}"))
    is_good = is_as_accurate(ours, peers)
    print(f"\naccuracy: {'not less' if is_good else 'LESS'} than that of nltk")
    return Outcome(claims, is_good=is_good)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    given = parser.parse_args()
    pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    if pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    measure_and_exit(lambda folder: compare(folder, pairs=pairs))


if __name__ == "__main__":
    main()
