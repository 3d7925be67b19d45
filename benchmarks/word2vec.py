"""word2vec beside gensim: words per second, and what the vectors are worth.

    python benchmarks/word2vec.py [--quick] [--threads 2] [--pairs 7] [--seeds 3] [--epochs 5]

Both files of text8-like joined (SEQLOOM_DATA names the folder of the data): width 100, window 5, 5 negatives, words
that come 5 times or more, subsampling 1e-3, rate 0.025. Ours and gensim learn in turns, each with as many threads. The
vectors of the first seeds are measured on WordSim-353 and the Google analogies by the same code; pairs and questions
with words that have no vector are left out. `--quick` takes one epoch, measures speed alone and says so.

The last lines claim ratios: of words per second (all words of the text times the epochs), and of quality, where ours
may be lower by 0.01 or by one point. The exit code is 1 if one of them misses its goal.
"""

import argparse
import gzip
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.peers import peer_python
from harness.processes import Contestant, ContestantError, all_running, exit_on_termination
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.apps.vectors import evaluate_vectors
from seqloom.core.errors import SeqloomError, UsageError
from seqloom.interop.word2vec_format import read_vectors

GOAL = 1.5
GENSIM = ("gensim==4.4.0",)
SCRIPTS = Path(__file__).resolve().parent / "contestants"
ARCHITECTURES = {"skipgram": "skip-gram", "cbow": "CBOW"}
MAY_MISS = {"WordSim-353": 0.01, "analogies": 0.01}
"""How much lower ours may be: in correlation, and in the share of right answers."""


@dataclass
class Measured:
    """What one contestant did, round by round."""

    name: str
    version: str = ""
    rates: list[float] = field(default_factory=list)
    whole: list[float] = field(default_factory=list)
    """Words per second when the vocabulary and the encoding count too."""
    quality: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in MAY_MISS})

    def row(self, what: str) -> str:
        """A row of the table."""
        span = f"{min(self.rates):,.0f} – {max(self.rates):,.0f}"
        scores = [f"{statistics.mean(values):.4f}" if values else "" for values in self.quality.values()]
        rates = [f"{statistics.median(each):,.0f}" for each in (self.rates, self.whole)]
        return (
            f"| {what} | {self.name} | {self.version} | {rates[0]} | {span} | {rates[1]} | {scores[0]} | {scores[1]} |"
        )


def data_folder(name: str) -> Path:
    data = os.environ.get("SEQLOOM_DATA")
    if not data or not (Path(data) / name).is_dir():
        raise UsageError(f"SEQLOOM_DATA={data or ''} has no folder {name}; set it to the folder with the data sets")
    return Path(data) / name


def write_text(path: Path) -> None:
    """Both files, one after the other."""
    parts = [
        gzip.decompress((data_folder("text8-like") / f"{name}.txt.gz").read_bytes()) for name in ("wiki", "novels")
    ]
    path.write_bytes(b" ".join(parts))


def measure_quality(vectors: Path) -> dict[str, float]:
    """Both measures of a file of vectors."""
    files = data_folder("word-similarity")
    found = evaluate_vectors(
        read_vectors(vectors, binary=True),
        similarity=files / "wordsim353.tsv",
        analogies=files / "questions-words.txt",
    )
    assert found.similarity is not None
    assert found.analogies is not None
    return {"WordSim-353": found.similarity.spearman, "analogies": found.analogies.total.accuracy}


def race(architecture: str, *, text: Path, given: argparse.Namespace) -> tuple[Measured, Measured]:
    """Ours and gensim in turns, each learning once a round."""
    programs: dict[str, Sequence[str | Path]] = {
        "seqloom": [sys.executable, SCRIPTS / "word2vec_ours.py"],
        "gensim": [peer_python("gensim", GENSIM), SCRIPTS / "word2vec_gensim.py"],
    }
    contestants, outs = [], {}
    for name, program in programs.items():
        outs[name] = text.with_name(f"{architecture}-{name}.bin")
        options: list[str | Path] = ["--text", text, "--architecture", architecture, "--epochs", str(given.epochs)]
        options += ["--threads", str(given.threads), "--out", outs[name]]
        contestants.append(Contestant(name, [*program, *options], threads=given.threads))
    measured = {name: Measured(name) for name in programs}
    with all_running(contestants):
        countdown = Countdown(f"{ARCHITECTURES[architecture]}: round", given.pairs)
        for seed in range(1, given.pairs + 1):
            for each in contestants:
                answer, record = each.ask(f"fit {seed}"), measured[each.name]
                words = given.epochs * int(each.facts["words"])
                record.version = str(each.facts["version"])
                record.rates.append(words / float(answer["seconds"]))
                record.whole.append(words / float(answer["whole"]))
            if seed <= given.seeds:
                for name, record in measured.items():
                    for measure, value in measure_quality(outs[name]).items():
                        record.quality[measure].append(value)
            countdown.tick()
    return measured["seqloom"], measured["gensim"]


def claim_quality(ours: Sequence[float], peer: Sequence[float], *, may_miss: float, about: str) -> Claim:
    """(ours + what may be missing) / gensim's, from the means over seeds; the extremes of the seeds in brackets."""
    single = sorted((one + may_miss) / other for one, other in zip(ours, peer, strict=True))
    ratio = (statistics.mean(ours) + may_miss) / statistics.mean(peer)
    return Claim(ratio, single[0], single[-1], 1.0, about)


def compare(given: argparse.Namespace, folder: Path) -> list[Claim]:
    """Measure, print the table, claim."""
    text = folder / "text.txt"
    write_text(text)
    rows, claims = [], []
    for architecture, title in ARCHITECTURES.items():
        ours, peer = race(architecture, text=text, given=given)
        rows += [ours.row(title), peer.row(title)]
        claims.append(claim(ours.rates, peer.rates, goal=GOAL, about=f"{title} words/s vs gensim"))
        for measure, may_miss in MAY_MISS.items():
            if ours.quality[measure]:
                about = f"{title} {measure} plus {may_miss:g} vs gensim's, {given.seeds} seeds"
                quality = (ours.quality[measure], peer.quality[measure])
                claims.append(claim_quality(*quality, may_miss=may_miss, about=about))
    heads = ("work", "contestant", "version", "words/s", "range", "with vocabulary", "WordSim-353", "analogies")
    print("\n| " + " | ".join(heads) + " |\n|---|---|---|---:|---:|---:|---:|---:|")
    print("\n".join(rows))
    print(f"\nMedians of {given.pairs} rounds in turns, {given.threads} threads, {given.epochs} epochs.")
    print(f"Quality: means of {given.seeds} seeds." if given.seeds else "Quality takes whole runs: not measured here.")
    return claims


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="one epoch, speed alone: ends within five minutes")
    parser.add_argument("--pairs", type=int, default=FEWEST_PAIRS, help=f"rounds (default {FEWEST_PAIRS})")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contestant (default 2)")
    parser.add_argument("--seeds", type=int, default=3, help="seeds whose vectors are measured (default 3)")
    parser.add_argument("--epochs", type=int, default=5, help="how often the text is gone through (default 5)")
    given = parser.parse_args()
    if given.quick:
        given.epochs, given.seeds = 1, 0
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    exit_on_termination()
    try:
        with tempfile.TemporaryDirectory() as folder:
            claims = compare(given, Path(folder))
    except (SeqloomError, ContestantError) as error:
        say(str(error))
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    print()
    for each in claims:
        print(each)
    sys.exit(0 if all(each.is_reached for each in claims) else 1)


if __name__ == "__main__":
    main()
