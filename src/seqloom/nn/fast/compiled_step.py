"""Steps of a Transformer decoder in one call: the layers, the output, its softmax and the beams as compiled loops.

A step of one sentence is about fifty small products, norms and attentions. Called one by one, they spend more time on
the calls than on the arithmetic, and the products of a few rows run at a third of the processor's speed. Here a model
is packed once (`nn.fast.packed`), and a step is one call that computes what the layers compute, on one thread:

    norm before   x ← x + f(norm(x))             norm after   x ← norm(x + f(x))

for f = self-attention, attention to the memory, feed-forward, then log softmax(W x + b). A row of the result depends on
nothing but its own row of x and its own keys and values, to the last bit.

A beam search needs Python only when one of its candidates ends. Until then, `CompiledStep.beams` takes step after step
by itself: the best symbols of each row, the best candidates of each sentence, which then are its rows.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from seqloom.core.jit import compiled
from seqloom.core.stepping import NEVER_STOPPED
from seqloom.core.symbols import END
from seqloom.nn.blocks import RMSNorm
from seqloom.nn.fast.beam_attention import (
    NO_BIASES,
    BeamCache,
    Biases,
    EncoderMemory,
    Lineage,
    attend_to_history,
    attend_to_memory,
)
from seqloom.nn.fast.decoder_plan import (
    DecoderModules,
    FusedNorm,
    activate,
    activation_number,
    add_and_normalise,
    can_be_planned,
    heads_width,
    multiply_by,
    normalise,
    products_of,
    score_scale,
)
from seqloom.nn.fast.packed import PANEL, PackedProducts, can_be_packed, product
from seqloom.nn.fast.selection import best_columns, log_softmax_rows, merge
from seqloom.nn.fast.shortlist import Offered, score_offered

Array = Any
"""numba infers types and shapes. Arrays are flat."""


@dataclass(frozen=True)
class InputTables:
    """x = factor · table[symbol] + positions[t], and its norm, if there is one."""

    table: Array
    factor: np.float32
    positions: Array
    count: int
    """How many positions there are."""
    norm: Array
    """[weight and bias, width]; no row if there is no norm."""
    biases: Biases
    """Relative positions of self-attention."""

    @staticmethod
    def of(
        table: Float[Tensor, "symbols width"],
        *,
        factor: float,
        positions: Float[Tensor, "positions width"],
        norm: nn.LayerNorm | None = None,
        biases: Float[Tensor, "heads distances"] | None = None,
    ) -> "InputTables":
        """The tables are flat for the loops."""
        rows = [] if norm is None else [norm.weight.detach().numpy(), norm.bias.detach().numpy()]
        return InputTables(
            table.view(-1).numpy(),
            np.float32(factor),
            positions.view(-1).numpy(),
            len(positions),
            np.array(rows, np.float32).reshape(len(rows), table.shape[1]),
            NO_BIASES if biases is None else (biases * math.log2(math.e)).contiguous().numpy(),
        )


class BeamsRun(NamedTuple):
    """What the steps of `CompiledStep.beams` gave: their candidates [steps, sentences, candidates], best first."""

    values: Array
    """log P of a candidate; −∞ where a sentence has no more of them."""
    rows: Array
    """The row that it continues."""
    symbols: Array
    log_probs: Array
    """log P of its symbol alone."""
    owners: Array
    """The sentence of each row of the last step."""
    ancestors: Array
    """The paths of the rows of the last step, which has its slots."""
    not_a_number: int
    """The first row whose log-probabilities were not numbers in the last step, or −1."""


@dataclass(frozen=True)
class CompiledStep:
    """The weights of a decoder and its output, packed for the loops below."""

    products: PackedProducts
    """Those of each layer, then the output."""
    norms: Array
    """[norms, weight and bias, width]"""
    epsilon: np.float32
    has_mean: bool
    """Whether they subtract the mean."""
    scale: np.float32
    """The factor of scores, times log₂ e."""
    is_before: bool
    activation: np.int64
    symbols: int

    @staticmethod
    def of(layers: Sequence[DecoderModules], last: nn.Module, output: nn.Module) -> "CompiledStep | None":
        """The packed decoder, if these layers, the norm after them and the output can be packed."""
        if not can_be_planned(layers, last):
            return None
        linears = [*(linear for layer in layers for linear in products_of(layer)), output]
        packable = [linear for linear in linears if can_be_packed(linear)]
        inner, width = layers[0].feed_forward.inner.weight.shape
        sizes = (width, inner, heads_width(layers[0]))
        if any(size % PANEL for size in sizes) or len(packable) < len(linears):
            return None
        norms = [
            FusedNorm.of(bypass.norm)
            for layer in layers
            for bypass in (layer.around_self, layer.around_cross, layer.around_feed_forward)
        ]
        if isinstance(last, nn.LayerNorm | RMSNorm):
            norms.append(FusedNorm.of(last))
        return CompiledStep(
            products=PackedProducts.of(packable),
            norms=np.stack([[each.weight, each.bias] for each in norms]),
            epsilon=norms[0].epsilon,
            has_mean=norms[0].has_mean,
            scale=score_scale(layers[0]),
            is_before=layers[0].around_self.place == "before",
            activation=activation_number(layers[0].feed_forward),
            symbols=len(packable[-1].weight),
        )

    @cached_property
    def int8_parts(self) -> tuple[bool, bool]:
        """Whether layers are in eight bits, and whether the output is; shortlists read it as it is."""
        is_int8 = self.products.table[:, 0]
        return bool(is_int8[:-1].any()), bool(is_int8[-1])

    def scores(self, features: Float[Tensor, "rows width"]) -> Float[Tensor, "rows symbols"]:
        """W x + b of the output, by threads. It is not in eight bits."""
        scores = torch.empty(len(features), self.symbols, dtype=torch.float32)
        number = len(self.products.table) - 1
        if len(features):
            self.products.multiply_by_threads(number, features.reshape(-1).numpy(), scores.view(-1).numpy())
        return scores

    def log_probs(
        self,
        inputs: InputTables,
        last: Int[Tensor, " rows"],
        cache: BeamCache,
        lineage: Lineage,
        memory: EncoderMemory,
        offered: Offered | None,
    ) -> Float[Tensor, "rows symbols"]:
        """log P of every symbol, or of those offered, after the last symbol of each row.

        The ancestors of the rows have their slots of this position.
        """
        columns = self.symbols if offered is None else offered.symbols.shape[1]
        log_probs = torch.empty(len(last), columns, dtype=torch.float32)
        rows = (np.zeros(len(last)), lineage.owners.numpy(), lineage.ancestors.contiguous().numpy())
        results = [END, 0, _NONE_FORBIDDEN, False, log_probs.numpy(), *_candidates(0, 0, 0), NEVER_STOPPED]
        self._run(inputs, last, cache, memory, offered, rows, results)
        return log_probs

    def beams(
        self,
        inputs: InputTables,
        last: Int[Tensor, " rows"],
        cache: BeamCache,
        lineage: Lineage,
        memory: EncoderMemory,
        offered: Offered | None,
        *,
        totals: Array,
        beam: int,
        end: int,
        steps: int,
        stop: UInt8[np.ndarray, "1"],
        candidates: int,
        never: Sequence[int],
        renormalises: bool,
    ) -> BeamsRun:
        """So many steps of beam searches, fewer if a candidate ends, a beam is not full or `stop` is set.

        It takes at least one. The rows have `totals` for log P so far; those of a sentence are side by side. Their
        ancestors end before this position. `cache` has room for the steps, and a slot for each row of a full beam.
        A step has `candidates`, of which the first `beam` continue. Symbols in `never` have −∞, before or after
        probabilities sum to one.
        """
        owners = lineage.owners.numpy()
        sentences = int((owners[1:] != owners[:-1]).sum()) + 1
        values, found_rows, symbols, log_probs = found = _candidates(steps, sentences, candidates)
        rows = (totals, owners, lineage.ancestors.contiguous().numpy())
        done, row, owners, ancestors = self._run(
            inputs,
            last,
            cache,
            memory,
            offered,
            rows,
            [end, beam, np.array(never, np.int64), renormalises, _NO_TABLE, *found, stop],
        )
        tables = (values[:done], found_rows[:done], symbols[:done], log_probs[:done])
        return BeamsRun(*tables, owners, ancestors, row)

    def _run(
        self,
        inputs: InputTables,
        last: Tensor,
        cache: BeamCache,
        memory: EncoderMemory,
        offered: Offered | None,
        rows: tuple[Array, Array, Array],
        results: list[Any],
    ) -> tuple[int, int, Array, Array]:
        """`rows` are totals, sentences and ancestors, `results` the last arguments of the loops."""
        kept, read, products = cache.flat, memory.flat, self.products
        arguments = [
            last.numpy(),
            *rows,
            inputs.table,
            inputs.factor,
            inputs.positions,
            inputs.norm,
            products.table,
            self.norms,
            products.floats,
            products.int8,
            kept.keys,
            kept.values,
            kept.shape,
            read.keys,
            read.values,
            read.lengths,
            read.shape,
            self.scale,
            inputs.biases,
            self.epsilon,
            self.has_mean,
            self.is_before,
            self.activation,
            *(_NO_LIST if offered is None else offered.arrays),
            self.symbols,
            *results,
        ]
        done, row, owners, ancestors = _run(*arguments)
        cache.written = ancestors.shape[1]
        return done, row, owners, ancestors


_NO_TABLE = np.empty((0, 0), np.float32)
_NONE_FORBIDDEN = np.empty(0, np.int64)
_NO_LIST = (np.empty(0, np.float32), np.empty((0, 0), np.int64), np.empty((0, 0), np.float32))
"""The arrays of a shortlist where there is none."""


def _candidates(*shape: int) -> tuple[Array, Array, Array, Array]:
    """Tables of values, rows, symbols and log-probabilities."""
    return np.empty(shape), np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(shape)


@compiled()
def _embed(last: Array, table: Array, factor: Any, positions: Array, position: Any, out: Array) -> None:
    """factor · table[symbol] + positions[position] of each row, rounded twice as torch rounds it."""
    width = np.uint64(out.shape[0] // last.shape[0])
    place = np.uint64(position) * width
    for r in range(last.shape[0]):
        at, target = np.uint64(last[r]) * width, np.uint64(r) * width
        for k in range(width):
            out[target + k] = table[at + k] * factor + positions[place + k]


@compiled()
def _forbid(scores: Array, stride: Any, owners: Array, listed: Array, never: Array) -> None:
    """−∞ for symbols that are never written."""
    for r in range(owners.shape[0]):
        for symbol in never:
            if not listed.shape[0]:
                if symbol < stride:
                    scores[r * stride + symbol] = -np.inf
            else:
                for c in range(stride):
                    if listed[owners[r], c] == symbol:
                        scores[r * stride + c] = -np.inf


@compiled()
def _run(
    last: Array,
    totals: Array,
    owners: Array,
    ancestors: Array,
    table: Array,
    factor: Any,
    positions: Array,
    input_norm: Array,
    products: Array,
    norms: Array,
    floats: Array,
    int8: Array,
    keys: Array,
    values: Array,
    shape: Any,
    memory_keys: Array,
    memory_values: Array,
    lengths: Array,
    memory_shape: Any,
    scale: Any,
    biases: Array,
    epsilon: Any,
    has_mean: Any,
    is_before: Any,
    activation: Any,
    weight: Array,
    listed: Array,
    bias: Array,
    symbols: Any,
    end: Any,
    kept: Any,
    never: Array,
    renormalises: Any,
    log_probs: Array,
    found: Array,
    found_rows: Array,
    found_symbols: Array,
    found_log_probs: Array,
    stop: Array,
) -> Any:
    """The log-probabilities of a step, if there is room for them; else steps until a candidate ends or `stop` is set.

    Returns the number of steps, the first row with a NaN, and of the last step the rows' sentences and paths.
    """
    steps, sentences, best = found.shape
    has_table = log_probs.shape[0] > 0
    width, inner, heads_width = norms.shape[2], products[4, 5], products[2, 5]
    layers = norms.shape[0] // 3
    each = (products.shape[0] - 1) // layers  # products of a layer; the last of all is the output
    columns, stride = symbols, products[each * layers, 5]
    if listed.shape[0]:
        columns = stride = listed.shape[1]
    places, step = np.empty((sentences, best), np.int64), 0
    while True:
        # Each row at its place: its slot among the rows of its sentence.
        rows, position = owners.shape[0], ancestors.shape[1]
        sizes = np.zeros(sentences, np.int64)
        if has_table:
            position -= 1
        else:
            paths, sentence = np.empty((rows, position + 1), np.int64), 0
            for r in range(rows):
                if r > 0 and owners[r] != owners[r - 1]:
                    sentence += 1
                for p in range(position):
                    paths[r, p] = ancestors[r, p]
                paths[r, position] = sizes[sentence]
                sizes[sentence] += 1
            ancestors = paths
        # The layers.
        x, features = np.empty(rows * width, np.float32), np.empty(rows * width, np.float32)
        joined, mixed = np.empty(3 * rows * heads_width, np.float32), np.empty(rows * heads_width, np.float32)
        branch, active = np.empty(rows * width, np.float32), np.empty(rows * inner, np.float32)
        gate = np.empty(rows * inner if each > 6 else 0, np.float32)
        _embed(last, table, factor, positions, position, x)
        if input_norm.shape[0]:
            normalise(x, input_norm[0], input_norm[1], x, epsilon, has_mean)
        normed = features if is_before else x
        if is_before:
            normalise(x, norms[0, 0], norms[0, 1], normed, epsilon, has_mean)
        for layer in range(layers):
            first = each * layer
            for part in range(3):
                product(normed, rows, first + 2 * part, products, floats, int8, active if part == 2 else joined)
                if part == 0:
                    attend_to_history(
                        joined, keys[layer], values[layer], owners, ancestors, shape, scale, biases, mixed
                    )
                elif part == 1:
                    attend_to_memory(
                        joined, memory_keys[layer], memory_values[layer], owners, lengths, memory_shape, scale, mixed
                    )
                elif gate.shape[0]:
                    product(normed, rows, first + 6, products, floats, int8, gate)
                    activate(gate, activation)
                    multiply_by(active, gate)
                else:
                    activate(active, activation)
                product(active if part == 2 else mixed, rows, first + 2 * part + 1, products, floats, int8, branch)
                norm = 3 * layer + part + is_before
                add_and_normalise(x, branch, norms[norm, 0], norms[norm, 1], normed, epsilon, has_mean)
        # The output.
        scores = np.empty(rows * stride, np.float32)
        if listed.shape[0]:
            score_offered(normed, weight, listed, bias, owners, scores.reshape(rows, stride))
        else:
            product(normed, rows, each * layers, products, floats, int8, scores)
        if renormalises:
            _forbid(scores, stride, owners, listed, never)
        log_softmax_rows(scores, rows, columns)
        if never.shape[0] and not renormalises:
            _forbid(scores, stride, owners, listed, never)
        if has_table:
            for r in range(rows):
                for c in range(columns):
                    log_probs[r, c] = scores[r * stride + c]
            return 1, -1, owners, ancestors
        # The best symbols of each row and the best candidates of each sentence.
        top, top_symbols = np.empty((rows, best), np.float32), np.empty((rows, best), np.int64)
        row = best_columns(scores, stride, top, top_symbols)
        if row >= 0:
            return step + 1, row, owners, ancestors
        merge(top, totals, sizes, found[step], found_rows[step], places)
        is_quiet = step + 1 < steps and stop[0] == 0
        for s in range(sentences):
            for b in range(best):
                row, place = found_rows[step, s, b], places[s, b]
                symbol = top_symbols[row, place]
                found_symbols[step, s, b] = listed[owners[row], symbol] if listed.shape[0] else symbol
                found_log_probs[step, s, b] = top[row, place]
                if b < kept and (found[step, s, b] == -np.inf or found_symbols[step, s, b] == end):
                    is_quiet = False
        step += 1
        if not is_quiet:
            return step, -1, owners, ancestors
        # Nothing ends: the candidates are the next rows.
        rows = sentences * kept
        last, totals, next_owners = np.empty(rows, np.int64), np.empty(rows), np.empty(rows, np.int64)
        paths = np.empty((rows, position + 1), np.int64)
        for r in range(rows):
            s, b = r // kept, r % kept
            row = found_rows[step - 1, s, b]
            last[r], totals[r], next_owners[r] = found_symbols[step - 1, s, b], found[step - 1, s, b], owners[row]
            for p in range(position + 1):
                paths[r, p] = ancestors[row, p]
        owners, ancestors = next_owners, paths
