"""Hidden Markov models by ours. Answers {"seconds": …, "value": …}.

em        steps of Baum-Welch from the given model; the value is log P(x) before the last of them
viterbi   the best path of every sequence; the value is log P of all of them
"""

import argparse
import time
from pathlib import Path

import numpy as np
from serving import Line

from seqloom.classical.emissions import CategoricalEmissions, GaussianEmissions
from seqloom.classical.hmm import HiddenMarkovModel, improve
from seqloom.version import __version__


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    given = parser.parse_args()
    line, data = Line(), np.load(given.data)
    sequences = np.split(data["values"], np.cumsum(data["lengths"])[:-1])
    if "probabilities" in data:
        emissions: CategoricalEmissions | GaussianEmissions = CategoricalEmissions(data["probabilities"])
    else:
        emissions = GaussianEmissions(data["means"], data["variances"])
    model = HiddenMarkovModel(data["start"], data["transitions"], emissions)
    line.say({"version": __version__})
    for name, _ in line.commands():
        begin = time.perf_counter()
        if name == "em":
            value = improve(model, sequences, iterations=given.steps, tolerance=None).history[-1]
        else:
            value = sum(path.log_prob for path in model.viterbi_all(sequences))
        line.say({"seconds": time.perf_counter() - begin, "value": value})


if __name__ == "__main__":
    main()
