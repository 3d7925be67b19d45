"""A recurrent decoder: a stack that reads the target so far, with attention to the source or a context of it.

    inputs     x_t = [E[y_{t−1}]; c; fed_t]                       c and fed where configured
    states     s_t = stack(x_t, s_{t−1})
    attention  c_t = Σ_j softmax_j(score(s_t, h_j)) h_j           if there is attention
    features   f_t = tanh(W [c_t; s_t] + b)                       without one, tanh(W s_t + b)

The context c of the whole source may enter as the state s_0, as an input before the first symbol, or beside every
symbol. Where nothing is fed back, training runs over the whole target at once, and so does attention.
"""

from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from seqloom.core.errors import check_known
from seqloom.nn.attention import Attention, AttentionMemory, Owners, owners_of
from seqloom.nn.embeddings import Embedding
from seqloom.nn.fast.shortlist import Offered
from seqloom.nn.init import xavier_uniform
from seqloom.nn.packing import Packing, pack, packing_of
from seqloom.nn.pointer import PointerMemory
from seqloom.nn.recurrent import Bidirectional, DropoutKind, Masks, SequenceDropout, Stack, StackState, require_causal

Query = Literal["current", "previous"]
"""Which decoder state attends to the memory: s_t or s_{t−1}."""


@dataclass(frozen=True)
class DecoderState:
    """The state of each row: that of every layer, and the place of its sentence in the shared memory."""

    owners: Owners
    layers: StackState
    memory: AttentionMemory | None
    """None without attention."""
    context: Float[Tensor, "sentences context"] | None
    """Read beside every symbol, if configured."""
    carried: Float[Tensor, "rows carried"] | None
    """What the next position needs besides the layers: the output that is the next query (previous query), or the
    features that are fed back (current query with input feeding)."""
    masks: Masks
    """Variational dropout of each row: for the embeddings, between the layers, for the features. Empty without."""
    offered: Offered | None = None
    """The symbols offered to each sentence, where only some are."""
    pointer: PointerMemory | None = None
    """What can be copied from each sentence, for a model that copies."""

    def select(self, rows: Int[Tensor, " picked"]) -> "DecoderState":
        count = len(self.owners.sentence)
        if len(rows) == count and torch.equal(rows, torch.arange(count, device=rows.device)):
            return self
        memory, context, offered, sentences = self.memory, self.context, self.offered, self.owners.sentences
        pointer = self.pointer
        sentence = self.owners.sentence[rows]  # [picked]
        is_kept = torch.zeros(sentences, dtype=torch.bool, device=sentence.device)
        is_kept[sentence] = True
        kept = is_kept.nonzero().flatten()
        if 2 * len(kept) <= sentences:  # drop sentences without rows from the memory
            memory = None if memory is None else memory.select(kept)
            context = None if context is None else context[kept]
            offered = None if offered is None else offered.of_sentences(kept)
            pointer = None if pointer is None else pointer.of_sentences(kept)
            sentence, sentences = (is_kept.cumsum(0) - 1)[sentence], len(kept)
        return DecoderState(
            owners=owners_of(sentence, sentences),
            layers=tuple(tuple(part[rows] for part in layer) for layer in self.layers),
            memory=memory,
            context=context,
            carried=None if self.carried is None else self.carried[rows],
            masks=tuple(mask[rows] for mask in self.masks),
            offered=offered,
            pointer=pointer,
        )


@dataclass(frozen=True)
class Decoded:
    """One position of the decoder: features for the output, attention weights, and the state after it."""

    features: Float[Tensor, "rows features"]
    weights: Float[Tensor, "sentences slots source"] | None
    state: DecoderState


class Decoder(nn.Module):
    """A stack that reads the target, and an attention from its states to the memory.

    `first` turns the context into an input that is read before the first symbol; `reads_context` puts the context
    beside every symbol; `feeds_attention` is input feeding: beside the symbol, the attended context (previous query) or
    the last features (current query).
    """

    def __init__(
        self,
        embedding: Embedding,
        stack: Stack | Bidirectional,
        *,
        attention: Attention | None,
        join: nn.Linear,
        first: nn.Linear | None,
        query: Query,
        reads_context: bool,
        feeds_attention: bool,
        dropout_rate: float,
        dropout_kind: DropoutKind,
    ) -> None:
        super().__init__()
        check_known("query", query, get_args(Query))
        self.embedding = embedding
        self.stack = require_causal(stack, model="a decoder")
        self.attention = attention
        self.join = join
        self.first = first
        self.query = query
        self.reads_context = reads_context
        self.feeds_attention = feeds_attention
        self.dropout = SequenceDropout(dropout_rate, kind=dropout_kind)
        for layer in (join,) if first is None else (join, first):
            xavier_uniform(layer.weight)
            nn.init.zeros_(layer.bias)

    def start(
        self,
        values: Float[Tensor, "batch source memory"],
        lengths: Int[Tensor, " batch"],
        *,
        context: Float[Tensor, "batch context"],
        hints: Float[Tensor, "batch layers width"] | None,
    ) -> DecoderState:
        """The state before the first symbol, one row per sentence; without hints, the empty state."""
        rows, cells = len(lengths), self.stack.cells
        masks: Masks = ()
        if self.dropout.has_masks:
            ends = (self.embedding.weight.shape[1], self.join.out_features)
            embedded, features = (self.dropout.draw(rows, width, like=values) for width in ends)
            masks = (embedded, *self.stack.climb.draw(rows, like=values), features)
        layers = self.stack.begin(values.new_zeros(rows, len(cells), cells[0].width) if hints is None else hints)
        output = layers[-1][0]
        if self.first is not None:
            output, layers = self.stack.step(self.first(context), layers, masks=masks[1:-1])
        carried = None
        if self.query == "previous":
            carried = output
        elif self.feeds_attention:
            carried = values.new_zeros(rows, self.join.out_features)
        return DecoderState(
            owners=owners_of(torch.arange(rows, device=lengths.device), rows),
            layers=layers,
            memory=None if self.attention is None else self.attention.remember(values, lengths),
            context=context if self.reads_context else None,
            carried=carried,
            masks=masks,
        )

    def forward(
        self, previous: Int[Tensor, "batch target"], lengths: Int[Tensor, " batch"], *, start: DecoderState
    ) -> Float[Tensor, "tokens features"]:
        """Features at all real positions, sentence after sentence."""
        packing = packing_of(lengths, previous.shape[1])
        if self.feeds_attention:
            features = pack(self.follow(previous, start)[0], packing)  # [tokens, features]
        else:
            features = self._at_once(previous, lengths, start=start, packing=packing)
        if start.masks:
            return features * start.masks[-1][packing.flat // max(packing.longest, 1)]
        dropped: Tensor = self.dropout(features)
        return dropped

    def _at_once(
        self,
        previous: Int[Tensor, "batch target"],
        lengths: Int[Tensor, " batch"],
        *,
        start: DecoderState,
        packing: Packing,
    ) -> Float[Tensor, "tokens features"]:
        inputs = self.embed(previous, start.masks)  # [batch, target, inputs]
        if start.context is not None:
            inputs = torch.cat([inputs, start.context[:, None].expand(-1, inputs.shape[1], -1)], 2)
        # [batch, target, width]
        states = self.stack.outputs(inputs, start.layers, lengths=lengths, masks=start.masks[1:-1])
        seen = states
        if self.attention is not None:
            assert start.memory is not None
            queries = states
            if start.carried is not None:
                queries = torch.cat([start.carried[:, None], states[:, :-1]], 1)
            contexts, _ = self.attention(queries, start.memory)  # [batch, target, memory]
            seen = torch.cat([contexts, states], 2)  # [batch, target, memory + width]
        features: Tensor = self.join(pack(seen, packing)).tanh()
        return features

    def follow(
        self, previous: Int[Tensor, "batch target"], state: DecoderState
    ) -> tuple[Float[Tensor, "batch target features"], DecoderState]:
        """Step by step: needed where something is fed back, and the plain twin of `forward` elsewhere."""
        features = []
        for embedded in self.embed(previous, state.masks).unbind(1):
            decoded = self.step(embedded, state)
            features.append(decoded.features)
            state = decoded.state
        return torch.stack(features, 1), state

    def embed(self, ids: Int[Tensor, "*shape"], masks: Masks = ()) -> Float[Tensor, "*shape width"]:
        """dropout(E[id])"""
        embedded: Tensor = self.dropout(self.embedding(ids), masks[0] if masks else None)
        return embedded

    def step(self, embedded: Float[Tensor, "rows width"], state: DecoderState) -> Decoded:
        """One position for every row."""
        inputs, attended, weights = [embedded], None, None
        if state.context is not None:
            inputs.append(state.context[state.owners.sentence])
        if self.query == "previous" and state.carried is not None:
            attended, weights = self._attend(state.carried, state)
            if self.feeds_attention and attended is not None:
                inputs.append(attended)
        elif state.carried is not None:
            inputs.append(state.carried)
        output, layers = self.stack.step(torch.cat(inputs, 1), state.layers, masks=state.masks[1:-1])
        if self.query == "current":
            attended, weights = self._attend(output, state)
        features = self.join(output if attended is None else torch.cat([attended, output], 1)).tanh()
        carried = None
        if state.carried is not None:
            carried = output if self.query == "previous" else features
        return Decoded(features, weights, replace(state, layers=layers, carried=carried))

    def _attend(
        self, query: Float[Tensor, "rows width"], state: DecoderState
    ) -> tuple[Float[Tensor, "rows memory"] | None, Float[Tensor, "sentences slots source"] | None]:
        """The attended context of each row and the attention weights; None without attention."""
        if self.attention is None or state.memory is None:
            return None, None
        # [sentences, slots, memory], [sentences, slots, source]
        contexts, weights = self.attention(state.owners.gather(query), state.memory)
        return state.owners.rows_of(contexts), weights
