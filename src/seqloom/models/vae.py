"""The variational autoencoder of sentences (Bowman et al., 2016).

    encode    μ, log σ² = W [h_n]                   h_n: the last state of a recurrent network that reads w_1 … w_n END
    draw      z = μ + σ ⊙ ε,  ε ~ N(0, 1)           so that gradients reach μ and σ
    decode    h_0 = tanh(V z);  h_t = stack([E[w_{t−1}]; z], h_{t−1})
    output    P(w_t | w_1 … w_{t−1}, z) = softmax(O h_t + b)

    log P(w) ≥ E_q log P(w | z) − KL(q(z | w) ∥ N(0, 1))
    KL = ½ Σ_d (μ_d² + σ_d² − log σ_d² − 1)

z is one point for the whole sentence. Texts along the straight line between two points change step by step.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from pydantic import Field
from torch import Tensor, nn

from seqloom.core.declaration import ModelSizes, Pieces, Purpose, TaskKind, TextFacts
from seqloom.core.errors import UsageError
from seqloom.core.reading import Context, TextIds, TokensDone
from seqloom.core.seeds import seed_for
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.cell_options import CellOptions
from seqloom.nn.dropout import Dropout, evaluating, reseed
from seqloom.nn.embeddings import Embedding, Symbols
from seqloom.nn.init import linear, seeded
from seqloom.nn.outputs import Output
from seqloom.nn.packing import pack, packing_of
from seqloom.nn.recurrent import Stack, StackState, cells_of

BOUND_SAMPLES = 16
"""Draws of z behind the bound of a line's probability."""

ROWS_AT_ONCE = 128
"""Lines whose probability is estimated together."""


class VaeConfig(CellOptions):
    """A variational autoencoder of sentences: a language model with one latent vector for each sentence."""

    purpose: ClassVar[Purpose] = "language model"
    task_kind: ClassVar[TaskKind] = "variational_language_modelling"

    kind: Literal["vae"] = "vae"
    """Names this model in a config file."""
    width: int = Field(256, ge=1, le=100_000)
    """Size of the hidden states of both networks."""
    embedding_width: int | None = Field(None, ge=1, le=100_000)
    """Size of each symbol's vector; by default that of the hidden states."""
    latent: int = Field(32, ge=1, le=10_000)
    """Size of z."""
    layers: int = Field(1, ge=1, le=1_000)
    """Recurrent layers of each network, one above the other."""
    dropout_rate: float = Field(0.2, ge=0, lt=1)
    """Share of numbers dropped from embeddings, between layers and from the features, in training."""

    def check(self) -> None:
        """Raise if some settings contradict each other."""
        super().check()
        read = self._embedding_width
        self.check_reset("variational autoencoder", (read, *[self.width] * (self.layers - 1)), width=self.width)

    @property
    def _embedding_width(self) -> int:
        return self.embedding_width or self.width

    def sizes_for_text(self, facts: TextFacts, pieces: Pieces) -> ModelSizes:
        return self.text_sizes(facts.tokens(pieces))

    def build(self, symbols: Symbols, *, seed: int) -> "Vae":
        """A model of the target side's symbols with fresh weights drawn from `seed`."""
        self.check()
        read, make = self._embedding_width, self.make_cell()
        with seeded(seed):
            embedding = Embedding(symbols.target, read)
            stacks = [
                Stack(
                    cells_of(make, entering, width=self.width, layers=self.layers, skip="none"),
                    dropout_rate=self.dropout_rate,
                    skip="none",
                )
                for entering in (read, read + self.latent)
            ]
            model = Vae(
                embedding,
                *stacks,
                latent=self.latent,
                output=Output(Embedding(symbols.target, self.width).weight, has_bias=True),
                dropout_rate=self.dropout_rate,
            )
        reseed(model, seed)
        return model


class Posterior(NamedTuple):
    """q(z ∣ w) of some sentences: independent Gaussians."""

    mean: Float[Tensor, "batch latent"]
    log_variance: Float[Tensor, "batch latent"]

    def draw(self, noise: Float[Tensor, "batch latent"]) -> Float[Tensor, "batch latent"]:
        """z = μ + σ ⊙ ε"""
        return self.mean + (0.5 * self.log_variance).exp() * noise

    def divergence(self) -> Float[Tensor, "batch latent"]:
        """KL(q ∥ N(0, 1)) by dimension."""
        return 0.5 * (self.mean.square() + self.log_variance.exp() - self.log_variance - 1)

    def log_density(self, z: Float[Tensor, "batch latent"]) -> Float[Tensor, " batch"]:
        """log q(z ∣ w)"""
        squares = (z - self.mean).square() / self.log_variance.exp()
        return -0.5 * (squares + self.log_variance + math.log(2 * math.pi)).sum(1)


class Vae(nn.Module):
    """Encoder, latent vector and decoder; `forward` reads whole sentences, `stepper` is decoding from given z."""

    def __init__(
        self,
        embedding: Embedding,
        encoder: Stack,
        decoder: Stack,
        *,
        latent: int,
        output: Output,
        dropout_rate: float,
    ) -> None:
        super().__init__()
        width = encoder.cells[0].width
        self.latent = latent
        self.embedding = embedding
        self.encoder, self.decoder = encoder, decoder
        self.to_posterior = linear(width, 2 * latent)
        self.to_state = linear(latent, len(decoder.cells) * width)
        self.output = output
        self.dropout = Dropout(dropout_rate)

    def forward(
        self,
        ids: Int[Tensor, "batch time"],
        read: Int[Tensor, "batch time_and_one"],
        lengths: Int[Tensor, " batch"],
        noise: Float[Tensor, "batch latent"],
    ) -> tuple[Float[Tensor, "tokens width"], Posterior]:
        """Features of w_1 … END of each sentence, packed, and q(z ∣ w).

        `ids` are sentences without BEGIN and END; `read` is what the decoder reads, from BEGIN on, in which words may
        have been dropped.
        """
        posterior = self.posterior(ids, lengths)
        z = posterior.draw(noise)
        features = self.decode(read, z)  # [batch, time + 1, width]
        return pack(features, packing_of(lengths + 1, read.shape[1])), posterior

    def posterior(self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]) -> Posterior:
        """q(z ∣ w) of sentences, which are read to their END."""
        ended = torch.cat([ids, ids.new_full((len(ids), 1), PAD)], 1)
        ended = ended.scatter(1, lengths[:, None], END)
        hidden, _ = self.encoder(self.dropout(self.embedding(ended)), None)  # [batch, time + 1, width]
        last = hidden[torch.arange(len(ids), device=ids.device), lengths]  # [batch, width]
        return Posterior(*self.to_posterior(last).chunk(2, dim=1))

    def decode(
        self, read: Int[Tensor, "batch time"], z: Float[Tensor, "batch latent"]
    ) -> Float[Tensor, "batch time width"]:
        """Features of the symbol after each position, given z."""
        entering = torch.cat([self.dropout(self.embedding(read)), z[:, None].expand(-1, read.shape[1], -1)], 2)
        hidden, _ = self.decoder(entering, self.start(z))
        features: Tensor = self.dropout(hidden)
        return features

    def start(self, z: Float[Tensor, "rows latent"]) -> StackState:
        """The state before the first symbol."""
        hints = torch.tanh(self.to_state(z)).view(len(z), len(self.decoder.cells), -1)
        return self.decoder.begin(hints)

    def step(
        self, last: Int[Tensor, " rows"], z: Float[Tensor, "rows latent"], state: StackState
    ) -> tuple[Float[Tensor, "rows width"], StackState]:
        """One position."""
        entering = torch.cat([self.embedding(last), z], 1)
        return self.decoder.step(entering, state)

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """The layers that ranks may gather one by one, and the method by which a loss enters them."""
        return [(cell, "run") for stack in (self.encoder, self.decoder) for cell in stack.cells]

    def prior(self, rows: int, *, seed: int) -> Float[Tensor, "rows latent"]:
        """Draws of z from N(0, 1); row r depends on the seed and on r alone."""
        drawn = [
            np.random.default_rng(seed_for(seed, "latent", row)).standard_normal(self.latent) for row in range(rows)
        ]
        return torch.from_numpy(np.stack(drawn)).to(self.embedding.weight)

    def points_of(
        self, ids: Int[Tensor, "batch time"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch latent"]:
        """The mean of q(z ∣ w) of given texts."""
        with evaluating(self):
            return self.posterior(ids, lengths).mean

    def stepper(self, z: Float[Tensor, "rows latent"] | None = None) -> "VaeStepper":
        """This model for the search, from given points, a row each; without any, from the mean of the prior."""
        return VaeStepper(self, z)

    def reader(self) -> "VaeReader":
        """This model as texts are measured with it."""
        return VaeReader(self)


@dataclass(frozen=True)
class VaeState:
    """The point of each row and the states of all layers."""

    z: Float[Tensor, "rows latent"]
    layers: StackState

    def select(self, rows: Int[Tensor, " picked"]) -> "VaeState":
        layers = tuple(tuple(part.index_select(0, rows) for part in layer) for layer in self.layers)
        return VaeState(self.z.index_select(0, rows), layers)


class VaeStepper:
    """Decodes from points of the latent space. A source only determines the number of rows."""

    begin = BEGIN
    end = END

    def __init__(self, model: Vae, z: Float[Tensor, "rows latent"] | None) -> None:
        self.model, self.z = model, z

    def start(self, source: Source) -> VaeState:
        rows = len(source.lengths)
        z = self.model.embedding.weight.new_zeros(rows, self.model.latent) if self.z is None else self.z
        if len(z) != rows:
            raise UsageError(f"{len(z)} points of the latent space were given for {rows} rows")
        with torch.no_grad():
            return VaeState(z, self.model.start(z))

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, VaeState)
        with evaluating(self.model):
            features, layers = self.model.step(last, state.z, state.layers)
            return Step(self.model.output.log_probs(features), VaeState(state.z, layers))


class VaeReader:
    """Measures lines by a lower bound of their log-probability (Burda et al., 2016).

        log P(w) ≥ log (1/k) Σ_k P(w ∣ z_k) N(z_k; 0, 1) / q(z_k ∣ w),   z_k ~ q(z ∣ w)

    The tokens have their log-probabilities given the mean of q; the end of each line has the rest of the bound. The
    draws of a line depend on its symbols alone.
    """

    context: Context = "line"
    has_blank_lines = False
    is_bound = True

    def __init__(self, model: Vae) -> None:
        self.model = model

    def stepper(self) -> VaeStepper:
        return self.model.stepper()

    @torch.inference_mode()
    def log_probs(self, text: TextIds, *, context: Context, progress: TokensDone) -> Float64[np.ndarray, " tokens"]:
        if context == "text":
            raise UsageError("a variational autoencoder reads each line by itself; leave out --context text")
        found, offsets = np.empty(len(text.ids)), text.offsets
        order = np.argsort(-text.lengths, kind="stable")
        with evaluating(self.model):
            for begin in range(0, len(order), ROWS_AT_ONCE):
                lines = order[begin : begin + ROWS_AT_ONCE]
                rows = [text.ids[offsets[line] : offsets[line + 1]] for line in lines]  # END included
                for line, values in zip(lines, self._bounds(rows), strict=True):
                    found[offsets[line] : offsets[line + 1]] = values
                    progress(len(values))
        return found

    def _bounds(self, rows: list[np.ndarray]) -> list[np.ndarray]:
        """log P of the tokens of each line, which add up to its bound."""
        model, device = self.model, self.model.embedding.weight.device
        lengths = torch.tensor([len(row) - 1 for row in rows], device=device)
        labels = torch.full((len(rows), max(map(len, rows))), PAD, dtype=torch.int64)
        for at, row in enumerate(rows):
            labels[at, : len(row)] = torch.from_numpy(row)
        labels = labels.to(device)
        read = torch.cat([labels.new_full((len(rows), 1), BEGIN), labels[:, :-1]], 1)
        ids = labels[:, :-1] if labels.shape[1] > 1 else labels.new_full((len(rows), 1), PAD)
        posterior = model.posterior(ids, lengths)
        packing = packing_of(lengths + 1, labels.shape[1])

        def tokens(z: Tensor) -> Tensor:
            features = pack(model.decode(read, z), packing)
            return model.output.log_probs(features).gather(1, pack(labels, packing)[:, None]).squeeze(1).double()

        owners = torch.repeat_interleave(torch.arange(len(rows), device=device), lengths + 1)
        noise = torch.stack([_noise_of(row, model.latent) for row in rows]).to(posterior.mean)  # [lines, draws, latent]
        weights = []
        for draw in range(BOUND_SAMPLES):
            z = posterior.draw(noise[:, draw])
            log_prior = -0.5 * (z.square() + math.log(2 * math.pi)).sum(1)
            sums = torch.zeros(len(rows), dtype=torch.float64, device=device).index_add_(0, owners, tokens(z))
            weights.append(sums + (log_prior - posterior.log_density(z)).double())
        bounds = torch.logsumexp(torch.stack(weights), 0) - math.log(BOUND_SAMPLES)  # [lines]
        at_mean = tokens(posterior.mean)
        rest = bounds - torch.zeros_like(bounds).index_add_(0, owners, at_mean)
        ends = torch.cumsum(lengths + 1, 0) - 1
        at_mean[ends] += rest
        return [part.cpu().numpy() for part in at_mean.split((lengths + 1).tolist())]


def _noise_of(row: np.ndarray, latent: int) -> Tensor:
    """Draws for a line, keyed by its symbols."""
    generator = np.random.default_rng(seed_for(1, "bound", *row.tolist()))
    return torch.from_numpy(generator.standard_normal((BOUND_SAMPLES, latent)))
