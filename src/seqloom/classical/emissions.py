"""What the states of a hidden Markov model emit: symbols, or vectors.

    categorical   b_j(x) = p_jx                        a row of probabilities for each state
    Gaussian      b_j(x) = N(x; μ_j, Σ_j)              Σ_j diagonal or full

The states see an observation as a row of weights b_j(x). The rows of symbols are those of the transposed table, so
that weights are looked up; a vector has a row of its own, computed with logarithms and divided by its highest number.
Posteriors are added up row by row in the same manner; `totals` are the sums of them that `estimated` turns into new
emissions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from jaxtyping import Float64, Int64, Integer

from seqloom.core.errors import DataError, UsageError
from seqloom.core.jit import compiled

LANES = 4
"""States are padded to a multiple of this, so that loops need no remainder."""
FLUSH = 1e-150
"""Scaled probabilities below this count as zero."""
CONTRACT = ("contract",)

Array = Any
"""numba infers types and shapes."""


class Weights(NamedTuple):
    """What states give to observations: step t has row `rows[numbers[t]]`, times exp `shifts[t]` if not None."""

    rows: Float64[np.ndarray, "rows padded"]
    numbers: Integer[np.ndarray, " steps"]
    shifts: Float64[np.ndarray, " steps"] | None


@dataclass(frozen=True, eq=False)
class Prior:
    """What is added to expected counts before they become probabilities, and the lowest variances.

    Adding α to a count is a Dirichlet prior with parameter α + 1; with it, EM maximises log P(x) + Σ α log p.
    """

    starts: float = 0.0
    transitions: float = 0.0
    emissions: float | Float64[np.ndarray, " symbols"] = 0.0
    """For each symbol, or the same for all."""
    floors: Float64[np.ndarray, " features"] = field(default_factory=lambda: np.zeros(1))
    """The lowest variance of each feature."""


@dataclass(frozen=True, eq=False)
class CategoricalEmissions:
    """Each state emits one of so many symbols, which are numbered from 0."""

    probabilities: Float64[np.ndarray, "states symbols"]

    observations_at_once: ClassVar[int] = 1 << 62
    """All, since the weights are the table itself, however long the sequences are."""

    def __post_init__(self) -> None:
        require_rows("emission probabilities", self.probabilities)

    @property
    def states(self) -> int:
        return len(self.probabilities)

    def joined(self, sequences: Sequence[np.ndarray]) -> Int64[np.ndarray, " steps"]:
        """All observations in one array; refuses those that no state knows."""
        arrays = [np.asarray(sequence) for sequence in sequences]
        symbols = self.probabilities.shape[1]
        for number, array in enumerate(arrays):
            if array.ndim != 1 or (len(array) and array.dtype.kind not in "iu"):
                raise DataError(
                    f"sequence {number} has type {array.dtype} and shape {list(array.shape)}; categorical observations "
                    "are whole numbers in one row: number the symbols from 0"
                )
            if len(array) and not 0 <= int(array.min()) <= int(array.max()) < symbols:
                raise DataError(
                    f"sequence {number} has symbols from {array.min()} to {array.max()}, but the model has 0 to "
                    f"{symbols - 1}"
                )
        return np.concatenate([np.empty(0, np.int64), *(array for array in arrays if len(array))]).astype(
            np.int64, copy=False
        )

    def weights(self, values: Integer[np.ndarray, " steps"]) -> Weights:
        return Weights(padded(np.ascontiguousarray(self.probabilities.T)), values, None)

    def log_weights(self, values: Integer[np.ndarray, " steps"]) -> Weights:
        return Weights(padded(logarithms(self.probabilities.T), filling=-np.inf), values, None)

    def totals(
        self,
        values: Integer[np.ndarray, " steps"],  # noqa: ARG002
        posteriors: Float64[np.ndarray, "symbols states"],
    ) -> tuple[np.ndarray, ...]:
        """How often each state is expected to emit each symbol."""
        return (posteriors.T,)

    def estimated(self, totals: Sequence[np.ndarray], prior: Prior) -> "CategoricalEmissions":
        """The likeliest emissions for these sums."""
        return CategoricalEmissions(shares(totals[0] + prior.emissions, self.probabilities))

    def log_prior(self, prior: Prior) -> float:
        return log_dirichlet(self.probabilities, prior.emissions)

    def draw(self, state: int, generator: np.random.Generator) -> int:
        return int(generator.choice(self.probabilities.shape[1], p=self.probabilities[state]))


@dataclass(frozen=True, eq=False)
class GaussianEmissions:
    """Each state emits a vector: N(μ_j, Σ_j), where Σ_j is a matrix, or the row of its diagonal."""

    means: Float64[np.ndarray, "states features"]
    covariances: Float64[np.ndarray, "states features"] | Float64[np.ndarray, "states features features"]

    observations_at_once: ClassVar[int] = 1 << 16
    """Whole sequences of about so many, since their densities are kept while they are used."""

    def __post_init__(self) -> None:
        states, features = self.means.shape
        shape = self.covariances.shape
        if shape not in ((states, features), (states, features, features)):
            raise UsageError(
                f"covariances have shape {list(shape)}, but {states} states with {features} features need "
                f"{[states, features]} (diagonal) or {[states, features, features]} (full)"
            )
        if self.is_full:
            lowest = float(np.linalg.eigvalsh(self.covariances).min())
        else:
            lowest = float(self.covariances.min())
        if not lowest > 0 or not np.isfinite(self.means).all():
            raise UsageError(f"the lowest variance is {lowest:g}; variances are positive, and means are finite")

    @property
    def is_full(self) -> bool:
        """Whether covariances are matrices."""
        return self.covariances.ndim == 3

    @property
    def states(self) -> int:
        return len(self.means)

    def joined(self, sequences: Sequence[np.ndarray]) -> Float64[np.ndarray, "steps features"]:
        """All observations in one array; refuses those that no state can emit."""
        return joined_vectors(sequences, features=self.means.shape[1])

    def weights(self, values: Float64[np.ndarray, "steps features"]) -> Weights:
        rows, numbers, _ = self.log_weights(values)
        shifts = rows.max(1)
        rows -= shifts[:, None]  # the best state has weight 1: densities themselves may all be too small for a number
        return Weights(np.exp(rows, out=rows), numbers, shifts)

    def log_weights(self, values: Float64[np.ndarray, "steps features"]) -> Weights:
        features = values.shape[1]
        rows = np.full((len(values), padded_size(self.states)), -np.inf)
        if self.is_full:
            factors = np.linalg.inv(np.linalg.cholesky(self.covariances))
            log_determinants = -2 * np.log(np.diagonal(factors, axis1=1, axis2=2)).sum(1)
            constants = -0.5 * (features * np.log(2 * np.pi) + log_determinants)
            full_densities(values, self.means, factors, constants, rows)
        else:
            constants = -0.5 * (features * np.log(2 * np.pi) + np.log(self.covariances).sum(1))
            diagonal_densities(values, self.means, 1 / self.covariances, constants, rows)
        return Weights(rows, np.arange(len(values)), None)

    def totals(
        self, values: Float64[np.ndarray, "steps features"], posteriors: Float64[np.ndarray, "steps states"]
    ) -> tuple[np.ndarray, ...]:
        """Σ γ, Σ γ d and Σ γ d dᵀ, where d = x − μ with the old means: sums of squares lose few digits."""
        counts, sums, squares = np.zeros(self.states), np.zeros_like(self.means), np.zeros_like(self.covariances)
        if self.is_full:
            add_full(values, self.means, posteriors, counts, sums, squares)
            squares += np.tril(squares, -1).transpose(0, 2, 1)
        else:
            add_diagonal(values, self.means, posteriors, counts, sums, squares)
        return counts, sums, squares

    def estimated(self, totals: Sequence[np.ndarray], prior: Prior) -> "GaussianEmissions":
        """The likeliest emissions for these sums; a state that emits nothing keeps what it had.

        No variance falls below its floor. Where Σ ⪰ diag(floor) is required, cutting the eigenvalues of the scaled
        matrix is the best choice, so that the likelihood still cannot fall.
        """
        counts, sums, squares = totals
        is_used = counts > 0
        count = np.where(is_used, counts, 1.0)[:, None]
        shift = sums / count
        if not self.is_full:
            variances = np.maximum(squares / count - shift**2, prior.floors)
            found = np.where(is_used[:, None], variances, self.covariances)
        else:
            matrices = squares / count[..., None] - shift[:, :, None] * shift[:, None, :]
            scale = np.sqrt(np.where(prior.floors > 0, prior.floors, 1.0))
            outer = scale[:, None] * scale[None, :]
            values, vectors = np.linalg.eigh(matrices / outer)
            if (values < 1.0).any() and (prior.floors > 0).any():
                raised = np.maximum(values, 1.0)
                cut = (vectors * raised[:, None, :]) @ vectors.transpose(0, 2, 1) * outer
                matrices = np.where((values.min(1) < 1.0)[:, None, None], cut, matrices)
            found = np.where(is_used[:, None, None], matrices, self.covariances)
        return GaussianEmissions(np.where(is_used[:, None], self.means + shift, self.means), found)

    def log_prior(self, prior: Prior) -> float:  # noqa: ARG002
        return 0.0

    def draw(self, state: int, generator: np.random.Generator) -> Float64[np.ndarray, " features"]:
        covariance = self.covariances[state] if self.is_full else np.diag(self.covariances[state])
        return generator.multivariate_normal(self.means[state], covariance)


Emissions = CategoricalEmissions | GaussianEmissions


# --- densities --------------------------------------------------------------------------------------------------------


@compiled(fast=CONTRACT)
def diagonal_densities(values: Array, means: Array, precisions: Array, constants: Array, result: Array) -> None:
    """log N(x_t; μ_j, diag σ_j²) for all steps and states."""
    for t in range(len(values)):
        for j in range(len(means)):
            total = 0.0
            for d in range(values.shape[1]):
                distance = values[t, d] - means[j, d]
                total += distance * distance * precisions[j, d]
            result[t, j] = constants[j] - 0.5 * total


@compiled(fast=CONTRACT)
def full_densities(values: Array, means: Array, factors: Array, constants: Array, result: Array) -> None:
    """log N(x_t; μ_j, Σ_j), where `factors` are the inverses of the Cholesky factors of Σ_j: |L⁻¹ (x − μ)|²."""
    for t in range(len(values)):
        for j in range(len(means)):
            total = 0.0
            for d in range(values.shape[1]):
                part = 0.0
                for e in range(d + 1):
                    part += factors[j, d, e] * (values[t, e] - means[j, e])
                total += part * part
            result[t, j] = constants[j] - 0.5 * total


@compiled(fast=CONTRACT)
def add_diagonal(values: Array, means: Array, posteriors: Array, counts: Array, sums: Array, squares: Array) -> None:
    """Add γ, γ d and γ d² of all steps to those of each state, where d = x − μ."""
    for t in range(len(values)):
        for j in range(len(means)):
            share = posteriors[t, j]
            counts[j] += share
            for d in range(values.shape[1]):
                distance = values[t, d] - means[j, d]
                sums[j, d] += share * distance
                squares[j, d] += share * distance * distance


@compiled(fast=CONTRACT)
def add_full(values: Array, means: Array, posteriors: Array, counts: Array, sums: Array, squares: Array) -> None:
    """The same with γ d dᵀ, its lower triangle alone."""
    for t in range(len(values)):
        for j in range(len(means)):
            share = posteriors[t, j]
            counts[j] += share
            for d in range(values.shape[1]):
                weighted = share * (values[t, d] - means[j, d])
                sums[j, d] += weighted
                for e in range(d + 1):
                    squares[j, d, e] += weighted * (values[t, e] - means[j, e])


# --- small parts ------------------------------------------------------------------------------------------------------


def padded_size(states: int) -> int:
    """The states with those that pad them."""
    return -(-states // LANES) * LANES


def padded(rows: Float64[np.ndarray, "rows states"], filling: float = 0.0) -> Float64[np.ndarray, "rows padded"]:
    """Rows with columns for the states that pad them."""
    states = rows.shape[1]
    result = np.full((len(rows), padded_size(states)), filling)
    result[:, :states] = rows
    return result


def logarithms(values: np.ndarray) -> np.ndarray:
    """Natural logarithms, −∞ for 0."""
    with np.errstate(divide="ignore"):
        result: np.ndarray = np.log(values)
    return result


def shares(
    counts: Float64[np.ndarray, "rows columns"], before: Float64[np.ndarray, "rows columns"]
) -> Float64[np.ndarray, "rows columns"]:
    """Counts as probabilities; a row without any is as it was before."""
    totals = counts.sum(1, keepdims=True)
    result = np.where(totals > 0, counts / np.where(totals > 0, totals, 1.0), before)
    result[result < FLUSH] = 0.0
    return result


def log_dirichlet(probabilities: np.ndarray, counts: float | np.ndarray) -> float:
    """Σ α log p, where 0 log 0 is 0."""
    if not np.any(counts):
        return 0.0
    with np.errstate(divide="ignore", invalid="ignore"):
        return float(
            np.where(np.broadcast_to(counts, probabilities.shape) > 0, counts * np.log(probabilities), 0).sum()
        )


def require_rows(what: str, rows: Float64[np.ndarray, "rows columns"]) -> None:
    """Refuse rows that are not probabilities."""
    wrong = ~(np.isfinite(rows).all(1) & (rows >= 0).all(1) & (np.abs(rows.sum(1) - 1) < 1e-6))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise UsageError(
            f"row {row} of the {what} is not a distribution: it sums to {rows[row].sum():g}, its lowest value is "
            f"{rows[row].min():g}"
        )


def joined_vectors(
    sequences: Sequence[np.ndarray], *, features: int | None = None
) -> Float64[np.ndarray, "steps features"]:
    """The vectors of all sequences in one array."""
    arrays = [np.asarray(sequence) for sequence in sequences]
    wanted = features
    for number, array in enumerate(arrays):
        wanted = array.shape[1] if wanted is None and array.ndim == 2 else wanted
        if array.ndim != 2 or array.dtype.kind not in "fiu" or array.shape[1] != wanted:
            raise DataError(
                f"sequence {number} has type {array.dtype} and shape {list(array.shape)}; Gaussian observations are "
                f"numbers of shape [steps, {'features' if wanted is None else wanted}]"
            )
        if not np.isfinite(array).all():
            step = int(np.flatnonzero(~np.isfinite(array).all(1))[0])
            raise DataError(f"sequence {number} has a number that is not finite at step {step}; leave it out")
    if not arrays:
        return np.empty((0, wanted or 0))
    return np.concatenate(arrays).astype(np.float64, copy=False)
