"""Hidden Markov models by hmmlearn, as `hmm_ours.py`; a command names the implementation too: em:log, em:scaling."""

import argparse
import logging
import time
from pathlib import Path
from typing import Any

import hmmlearn
import numpy as np
from hmmlearn.hmm import CategoricalHMM, GaussianHMM
from serving import Line


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    given = parser.parse_args()
    logging.disable(logging.CRITICAL)  # that a step gained little
    line, data = Line(), dict(np.load(given.data))
    values, lengths = data["values"], data["lengths"]
    values = values[:, None] if values.ndim == 1 else values
    line.say({"version": hmmlearn.__version__})
    for name, _ in line.commands():
        work, implementation = name.split(":")
        model = begin_model(data, given.steps, implementation)
        begin = time.perf_counter()
        if work == "em":
            model.fit(values, lengths)
            value = model.monitor_.history[-1]
        else:
            value = model.decode(values, lengths)[0]
        line.say({"seconds": time.perf_counter() - begin, "value": float(value)})


def begin_model(data: dict[str, np.ndarray], steps: int, implementation: str) -> Any:
    """The given model, to be improved by so many steps, without priors."""
    states = len(data["start"])
    options: dict[str, Any] = {"n_iter": steps, "tol": -np.inf, "init_params": "", "implementation": implementation}
    if "probabilities" in data:
        model = CategoricalHMM(states, n_features=data["probabilities"].shape[1], **options)
        model.emissionprob_ = data["probabilities"].copy()
    else:
        model = GaussianHMM(
            states, covariance_type="diag", covars_prior=0.0, covars_weight=0.0, min_covar=0.0, **options
        )
        model.n_features = data["means"].shape[1]
        model.means_, model.covars_ = data["means"].copy(), data["variances"].copy()
    model.startprob_, model.transmat_ = data["start"].copy(), data["transitions"].copy()
    return model


if __name__ == "__main__":
    main()
