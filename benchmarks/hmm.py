"""Hidden Markov models: Baum-Welch and Viterbi beside hmmlearn, on sequences drawn from a model.

    python benchmarks/hmm.py [--quick] [--pairs 15] [--observations 200000] [--steps 3]

Both begin from the same random parameters, with one thread. hmmlearn has two implementations, with logarithms and with
scaling: both are tried first, and the faster one for each work is compared. The two systems must agree on log P of the
data after the steps, and on that of the best paths. Rates are observations per second, those of every step of EM
counted.
"""

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.ending import Outcome, measure_and_exit
from harness.peers import peer_python
from harness.processes import Contestant, ContestantError, all_running
from harness.progress import Countdown, say
from harness.ratios import FEWEST_PAIRS, Claim, claim
from seqloom.classical.emissions import CategoricalEmissions, Emissions, GaussianEmissions
from seqloom.classical.hmm import HiddenMarkovModel

FULL_PAIRS = 15
GOAL = 1.5
SAME = 1e-8
"""How far the two may differ in log P, as a share."""
SCRIPTS = Path(__file__).resolve().parent / "contestants"
PEER = ("hmmlearn==0.3.3",)
IMPLEMENTATIONS = ("log", "scaling")


@dataclass(frozen=True)
class Work:
    """A model and what it emits."""

    name: str
    states: int
    symbols: int = 0
    features: int = 0


WORKS = (
    Work("categorical, 8 states, 100 symbols", 8, symbols=100),
    Work("categorical, 24 states, 1000 symbols", 24, symbols=1000),
    Work("Gaussian, 8 states, 4 features", 8, features=4),
)


def draw_model(work: Work, generator: np.random.Generator) -> HiddenMarkovModel:
    """Random parameters; each state lasts for some steps."""
    states = work.states
    transitions = 0.5 * np.eye(states) + 0.5 * generator.dirichlet(np.ones(states), states)
    if work.symbols:
        emissions: Emissions = CategoricalEmissions(generator.dirichlet(np.full(work.symbols, 0.2) + 0.01, states))
    else:
        means = 2 * generator.normal(size=(states, work.features))
        emissions = GaussianEmissions(means, generator.uniform(0.5, 2, (states, work.features)))
    return HiddenMarkovModel(generator.dirichlet(np.ones(states)), transitions, emissions)


def write_data(path: Path, work: Work, *, observations: int) -> int:
    """Sequences of unequal lengths drawn from one model, and another model to begin from; how many observations."""
    generator = np.random.default_rng(1)
    truth, first = draw_model(work, generator), draw_model(work, generator)
    lengths = generator.integers(20, 400, size=max(1, observations // 210))
    drawn = [truth.sample(int(length), generator)[0] for length in lengths]
    arrays = {"start": first.start, "transitions": first.transitions, "lengths": lengths}
    if isinstance(first.emissions, CategoricalEmissions):
        arrays["probabilities"] = first.emissions.probabilities
    else:
        arrays |= {"means": first.emissions.means, "variances": first.emissions.covariances}
    np.savez(path, values=np.concatenate(drawn), **arrays)
    return int(lengths.sum())


@dataclass(frozen=True)
class Timed:
    """The rates of one contestant, in observations per second, one per round."""

    name: str
    version: str
    rates: tuple[float, ...]

    def row(self, what: str) -> str:
        """A row of the table."""
        span = f"{min(self.rates):,.0f} – {max(self.rates):,.0f}"
        return f"| {what} | {self.name} | {self.version} | {statistics.median(self.rates):,.0f} | {span} |"


def race(work: Work, data: Path, *, observations: int, steps: int, pairs: int) -> tuple[list[str], list[Claim]]:
    """EM and Viterbi of both, in turns."""
    options: list[str | Path] = ["--data", data, "--steps", str(steps)]
    ours = Contestant("seqloom", [sys.executable, SCRIPTS / "hmm_ours.py", *options], threads=1)
    peer = Contestant("hmmlearn", [peer_python("hmmlearn", PEER), SCRIPTS / "hmm_hmmlearn.py", *options], threads=1)
    rates: dict[str, tuple[list[float], list[float]]] = {"em": ([], []), "viterbi": ([], [])}
    names = {}
    with all_running([ours, peer]):
        for what in rates:
            own = ours.ask(what)
            tried = {name: peer.ask(f"{what}:{name}") for name in IMPLEMENTATIONS}
            require_agreement(what, [own["value"], *(each["value"] for each in tried.values())])
            names[what] = min(tried, key=lambda name: float(tried[name]["seconds"]))
        countdown = Countdown(f"{work.name}: round", pairs)
        for _ in range(pairs):
            for what, (own_rates, peer_rates) in rates.items():
                times = observations * (steps if what == "em" else 1)
                own_rates.append(times / float(ours.ask(what)["seconds"]))
                peer_rates.append(times / float(peer.ask(f"{what}:{names[what]}")["seconds"]))
            countdown.tick()
    rows, claims = [], []
    for what, (own_rates, peer_rates) in rates.items():
        label = f"{'Baum-Welch' if what == 'em' else 'Viterbi'}, {work.name}"
        rows.append(Timed("seqloom", str(ours.facts["version"]), tuple(own_rates)).row(label))
        rows.append(Timed(f"hmmlearn ({names[what]})", str(peer.facts["version"]), tuple(peer_rates)).row(label))
        claims.append(claim(own_rates, peer_rates, goal=GOAL, about=f"{label} vs hmmlearn"))
    return rows, claims


def require_agreement(what: str, values: Sequence[float]) -> None:
    """Refuse results that differ."""
    if max(values) - min(values) > SAME * abs(values[0]):
        raise ContestantError(f"the contestants disagree on log P after {what}: {list(values)}")


def compare(given: argparse.Namespace, folder: Path) -> list[Claim]:
    """Measure, print the table, claim."""
    rows, claims = [], []
    for number, work in enumerate(WORKS):
        say(f"drawing {given.observations:,} observations: {work.name}")
        data = folder / f"{number}.npz"
        observations = write_data(data, work, observations=given.observations)
        more = race(work, data, observations=observations, steps=given.steps, pairs=given.pairs)
        rows += more[0]
        claims += more[1]
    print("\n| work | contestant | version | observations/s | range |\n|---|---|---|---:|---:|")
    print("\n".join(rows))
    print(f"\nMedians of {given.pairs} rounds in turns, one thread each.")
    return claims


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds: ends within five minutes")
    parser.add_argument("--pairs", type=int, help=f"rounds, at least {FEWEST_PAIRS} (default {FULL_PAIRS})")
    parser.add_argument("--observations", type=int, help="observations of each data set (default 200000)")
    parser.add_argument("--steps", type=int, default=3, help="steps of EM (default 3)")
    given = parser.parse_args()
    given.pairs = given.pairs or (FEWEST_PAIRS if given.quick else FULL_PAIRS)
    given.observations = given.observations or (50_000 if given.quick else 200_000)
    if given.pairs < FEWEST_PAIRS:
        parser.error(f"--pairs {given.pairs} is too few for an interval; give {FEWEST_PAIRS} or more")
    return given


def main() -> None:
    given = read_arguments()
    measure_and_exit(lambda folder: Outcome(compare(given, folder)))


if __name__ == "__main__":
    main()
