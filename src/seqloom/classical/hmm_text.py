"""A hidden Markov model as a language model: each token is emitted by a hidden state, END among them.

    P(w_t = v ∣ w_1 … w_(t−1)) = Σ_j p_t(j) b_j(v)      p_t(j) = P(z_t = j ∣ w_1 … w_(t−1)), where p_1 = π
    p_(t+1)(j) ∝ Σ_i p_t(i) b_i(w_t) a_ij

Each line is a sequence of its own. States are learned by Baum-Welch from random beginnings; they come out as classes of
words that are used alike. Before counts become probabilities, `smoothing` is added to each (all states and symbols can
then follow, and words that never occurred keep a little), so that EM maximises log P plus the logarithm of that prior.

The cost of a step of EM is tokens × states², and the tables have states × symbols numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import ClassVar, Literal

import numpy as np
from jaxtyping import Float64, Int64, Integer
from pydantic import Field

from seqloom.classical.emissions import CategoricalEmissions, Prior
from seqloom.classical.hmm import HiddenMarkovModel, HmmFit, Observations, improve
from seqloom.core.declaration import ModelSettings, ModelSizes, Pieces, Purpose, Reason, TaskKind, TextFacts
from seqloom.core.errors import DataError, ModelError, UsageError
from seqloom.core.events import Event, Listener, ignore, notice, phase
from seqloom.core.reading import TextReader
from seqloom.core.seeds import seed_for
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.text.tokenizer import EncodedText

MAX_NUMBERS = 1 << 27
"""States × symbols: a gigabyte. EM holds a few such tables."""


class HmmConfig(ModelSettings):
    """A hidden Markov model of the pieces of a text."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "fitting"
    pieces: ClassVar[Pieces] = "word"

    kind: Literal["hmm"] = "hmm"
    """Which model this is."""
    states: int = Field(default=64, ge=1, le=4096)
    """Hidden states. The time of a step grows with their square."""
    iterations: int = Field(default=40, ge=1)
    """Steps of EM, at most."""
    tolerance: float = Field(default=1e-4, ge=0)
    """EM ends when a step gains less than so many nats per token."""
    starts: int = Field(default=1, ge=1, le=1000)
    """Random beginnings, of which the likeliest result is kept."""
    smoothing: float = Field(default=0.02, ge=0, allow_inf_nan=False)
    """What is added to each expected count. With 0, words that the training text lacks are impossible."""
    tokens: int = Field(default=2_000_000, ge=1)
    """Tokens, in whole lines drawn at random, from which EM learns. Of a longer text, all of it is read once at the
    end, so that every word is counted."""

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:
        states = 32 if facts.tokens(pieces) < 20_000 else 64
        reason = Reason(
            ("model.kind", "model.states"),
            f"{states} hidden states: more are a little better, but the time grows with their square",
        )
        return ModelSizes({"states": states}, (reason,))

    def fit(self, text: EncodedText, *, seed: int, listener: Listener = ignore) -> "HmmText":
        """Learn the states by EM."""
        if self.states * text.symbols > MAX_NUMBERS:
            raise UsageError(
                f"model.states={self.states} with {text.symbols:,} symbols need tables of "
                f"{self.states * text.symbols * 8 / 2**30:.1f} GiB each; at most {MAX_NUMBERS // text.symbols:,} "
                "states fit, or lower text.size"
            )
        phase(listener, "compiling the loops of hidden Markov models, on first use")
        borders = np.concatenate([np.zeros(1, np.int64), np.flatnonzero(np.asarray(text.ids) == END) + 1])
        counts = text.counts()
        sample = drawn_lines(text.ids, borders, self.tokens, np.random.default_rng(seed_for(seed, "hmm lines")))
        is_sample = len(sample.values) < len(text.ids)
        if is_sample:
            notice(
                listener,
                f"EM learns from {len(sample.values):,} of {len(text.ids):,} tokens, in whole lines drawn at random "
                f"(model.tokens={self.tokens}); the last step reads them all",
            )
        can_occur = np.ones(text.symbols)
        can_occur[[PAD, BEGIN]] = 0.0
        prior = Prior(self.smoothing, self.smoothing, self.smoothing * can_occur)
        began = monotonic()
        best: HmmFit | None = None
        for start in range(self.starts):

            def report(done: int, log_likelihood: float, start: int = start) -> None:
                values = {"done": start * self.iterations + done + 1, "all": self.starts * self.iterations}
                rate = len(sample.values) * values["done"] / max(1e-9, monotonic() - began)
                listener(Event("progress", {"what": "steps of EM", "by_tenths": True, **values, "tokens/s": rate}))
                if done == 0 or (done + 1) % 10 == 0:
                    loss = -log_likelihood / len(sample.values)
                    listener(Event("epoch", {"epoch": done + 1, "epochs": self.iterations, "loss": loss}))

            found = improve(
                self._beginning(counts, can_occur, np.random.default_rng(seed_for(seed, "hmm start", start))),
                sample,
                iterations=self.iterations,
                tolerance=self.tolerance,
                prior=prior,
                progress=report,
            )
            if best is None or found.history[-1] > best.history[-1]:
                best = found
        assert best is not None
        model = best.model
        if is_sample:  # every word that occurs is counted, in the states that were learned
            model = last_step(model, text.ids, borders, prior=prior, at_once=self.tokens)
        assert isinstance(model.emissions, CategoricalEmissions)
        return HmmText(model, text.vocabulary)

    def _beginning(
        self,
        counts: Int64[np.ndarray, " symbols"],
        can_occur: Float64[np.ndarray, " symbols"],
        generator: np.random.Generator,
    ) -> HiddenMarkovModel:
        """A random model: the frequencies of the text, changed in each state."""
        frequencies = (counts + 1.0) * can_occur
        emissions = frequencies * generator.standard_gamma(1.0, (self.states, len(counts)))
        chain = generator.dirichlet(np.full(self.states, 5.0), self.states + 1)
        return HiddenMarkovModel(chain[0], chain[1:], CategoricalEmissions(emissions / emissions.sum(1, keepdims=True)))

    def restore(self, arrays: Mapping[str, np.ndarray], vocabulary: Sequence[str]) -> "HmmText":
        """The model whose `arrays` these are; refuses damaged ones."""
        missing = {"start", "transitions", "emissions"} - arrays.keys()
        if missing:
            raise ModelError(f"not the arrays of a hidden Markov model: {', '.join(sorted(missing))} missing")
        start, transitions, emissions = (np.array(arrays[name]) for name in ("start", "transitions", "emissions"))
        kinds = [f"{array.dtype} {list(array.shape)}" for array in (start, transitions, emissions)]
        states, symbols = len(start) if start.ndim == 1 else -1, len(vocabulary)
        wanted = [f"float64 {shape}" for shape in ([states], [states, states], [states, symbols])]
        if kinds != wanted:
            raise ModelError(
                f"not the arrays of a hidden Markov model with {symbols:,} symbols: {', '.join(kinds)}; the files "
                "belong to different models"
            )
        try:
            return HmmText(HiddenMarkovModel(start, transitions, CategoricalEmissions(emissions)), vocabulary)
        except UsageError as error:
            raise ModelError(f"not the arrays of a hidden Markov model: {error}; fit it again") from None

    def describe(self, arrays: Mapping[str, np.ndarray]) -> dict[str, str]:
        """The number of states, and how sure the chain is of what follows."""
        transitions = np.asarray(arrays["transitions"])
        with np.errstate(divide="ignore", invalid="ignore"):
            nats = -np.where(transitions > 0, transitions * np.log(transitions), 0).sum(1)
        choices = float(np.exp(nats.mean()))
        return {"States": f"{len(transitions)}, after each of which about {choices:.1f} are likely"}


@dataclass(frozen=True, eq=False)
class HmmText:
    """A fitted model of text."""

    model: HiddenMarkovModel
    vocabulary: Sequence[str]

    def __repr__(self) -> str:
        return f"HmmText({self.model.states} states, {len(self.vocabulary):,} symbols)"

    @property
    def emissions(self) -> Float64[np.ndarray, "states symbols"]:
        """P(symbol ∣ state)."""
        assert isinstance(self.model.emissions, CategoricalEmissions)
        return self.model.emissions.probabilities

    def reader(self) -> TextReader:
        """This model as a reader, which scores texts."""
        from seqloom.classical.steppers import HmmReader  # with torch

        return HmmReader(self)

    def arrays(self) -> dict[str, np.ndarray]:
        """The model without its vocabulary, as arrays for a file."""
        return {"start": self.model.start, "transitions": self.model.transitions, "emissions": self.emissions}

    def log_probs(self, ids: Integer[np.ndarray, " tokens"]) -> Float64[np.ndarray, " tokens"]:
        """log P of each id given its line so far, for lines that each end with END; the first is a new one."""
        if len(ids) and (ids.min() < 0 or ids.max() >= len(self.vocabulary)):
            raise UsageError(
                f"ids run from {ids.min()} to {ids.max()}, but the model has 0 to {len(self.vocabulary) - 1}; encode "
                "the text with the vocabulary of the model"
            )
        ends = np.flatnonzero(ids == END) + 1
        borders = np.unique(np.concatenate([[0], ends, [len(ids)]]))
        return self.model.step_log_probs(Observations(ids.astype(np.int64), borders))

    def perplexity(self, ids: Integer[np.ndarray, " tokens"]) -> float:
        """exp(−mean log P) over all ids, END included."""
        if not len(ids):
            raise DataError("a text without tokens has no perplexity; pass at least one line")
        return float(np.exp(-self.log_probs(ids).mean()))

    def words(self, state: int, count: int = 10) -> list[tuple[str, float]]:
        """The likeliest words of a state, with their probabilities."""
        row = self.emissions[state]
        return [(self.vocabulary[symbol], float(row[symbol])) for symbol in np.argsort(-row, kind="stable")[:count]]

    def tag(self, ids: Integer[np.ndarray, " tokens"]) -> Int64[np.ndarray, " tokens"]:
        """The likeliest states of a line."""
        return self.model.viterbi(np.asarray(ids)).states


def drawn_lines(
    ids: Integer[np.ndarray, " tokens"],
    borders: Int64[np.ndarray, " borders"],
    tokens: int,
    generator: np.random.Generator,
) -> Observations:
    """Lines drawn at random, in the order of the text, with about so many tokens in all; all lines if they fit."""
    if len(ids) <= tokens:
        return Observations(np.asarray(ids, np.int64), borders)
    lengths = np.diff(borders)
    order = generator.permutation(len(lengths))
    taken = int(np.searchsorted(np.cumsum(lengths[order]), tokens, side="right"))
    chosen = np.sort(order[: max(1, taken)])
    parts = [np.asarray(ids[borders[line] : borders[line + 1]], np.int64) for line in chosen]
    return Observations(np.concatenate(parts), np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths[chosen])]))


def last_step(
    model: HiddenMarkovModel,
    ids: Integer[np.ndarray, " tokens"],
    borders: Int64[np.ndarray, " borders"],
    *,
    prior: Prior,
    at_once: int,
) -> HiddenMarkovModel:
    """One step of EM over a text of any size, so many tokens at a time."""
    expectation, begin, last = None, 0, len(borders) - 1
    while begin < last:
        end = max(begin + 1, int(np.searchsorted(borders, borders[begin] + at_once, side="right")) - 1)
        own = borders[begin : end + 1]
        more = model.expected(Observations(np.asarray(ids[own[0] : own[-1]], np.int64), own - own[0]))
        expectation = more if expectation is None else expectation.plus(more)
        begin = end
    assert expectation is not None
    return model.estimated(expectation, prior)
