"""Searches over the frames of a CTC model: the best path, and the best labelling by prefix beam search.

A path gives each of T frames a symbol or the blank ∅; its labelling is what is left after equal neighbours are merged
and blanks removed (`nn/ctc.py`). A labelling y is as probable as all of its paths, and may be fused with a language
model of the output (Hannun et al., 2014):

    score(y) = log P(y ∣ x) + λ log P_lm(y, end) + reward · |y|          λ = `weight`; |y| does not count the end

Prefix beam search keeps the best prefixes of labellings. What is known of a prefix is the probability of its paths so
far, those that end in a blank apart from those that end in its last symbol, because only after a blank can that symbol
come again:

    blank_t(y)   = (blank_t−1(y) + symbol_t−1(y)) P_t(∅)
    enter_t(y c) = blank_t−1(y) P_t(c)                                   if c is the last symbol of y
                   (blank_t−1(y) + symbol_t−1(y)) P_t(c)                 otherwise
    symbol_t(y)  = symbol_t−1(y) P_t(last symbol of y) + enter_t(y)

With a beam of one this is not `greedy_ctc_search`. That takes the best path, so the symbol c that is best in its frame;
the beam compares the prefix with c with the prefix that stays, which has two symbols in the frame to stay by.

Hypotheses are scored by all of their paths, those that the beam had dropped included, so a score does not depend on the
beam. The paths of a labelling that was not kept are among those that were dropped, whose probability is D. That proves
`is_complete` of each hypothesis with

    score > log D + max(0, reward) · T                                   since log P_lm ≤ 0

and of all, if nothing was dropped. `token_log_probs` are those of the chain rule: P(y_k ∣ x, y_<k) is the probability
of all labellings that begin with y_1 … y_k among those that begin with y_<k.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int, Int64
from torch import Tensor

from seqloom.core.errors import ConfigError, ModelError, UsageError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.search.hypothesis import Hypothesis
from seqloom.search.scores import score_of

Array = np.ndarray

ROUNDING = 1e-9
"""How far a score must exceed the bound that proves it, since both are rounded sums."""


@dataclass(frozen=True)
class CtcLanguageModel:
    """A language model beside a CTC model: what reads the output so far, and the weight λ of its log-probabilities.

    Both have the same symbols. The language model never sees the blank, and its begin and end are never part of an
    output. `source` is what its rows start from, one for each sequence of frames, for a stepper that looks at one.
    """

    stepper: Stepper
    weight: float = 0.2
    source: Source | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise ConfigError(
                f"the weight {self.weight} of the language model is out of range; give 0 (without it) or more, "
                "such as 0.2"
            )


def greedy_ctc_search(
    log_probs: Float[Tensor, "batch time symbols"], lengths: Int[Tensor, " batch"], *, blank: int = PAD
) -> list[Hypothesis]:
    """The labelling of the best path of each sequence. Of equal symbols the lowest is taken.

    Rows are made to sum to one, so logits will do. The score is that of the labelling with all of its paths.
    """
    frames = _normalised(log_probs, lengths, blank)
    found = []
    for own in frames:
        path = own.argmax(1)  # [time]
        is_first = np.append(True, path[1:] != path[:-1])
        symbols = tuple(path[is_first & (path != blank)].tolist())
        found.append(_hypothesis(own, symbols, extra={}, blank=blank, bound=math.inf))
    return found


def greedy_labellings(
    scores: Float[Tensor, "batch time symbols"], lengths: Int[Tensor, " batch"], *, blank: int = PAD
) -> list[tuple[int, ...]]:
    """What `greedy_ctc_search` finds, without its scores, which take most of its time."""
    paths = scores.argmax(2)  # [batch, time]
    is_kept = paths != blank
    is_kept[:, 1:] &= paths[:, 1:] != paths[:, :-1]
    is_kept &= torch.arange(paths.shape[1], device=paths.device) < lengths[:, None]
    return [tuple(path[kept].tolist()) for path, kept in zip(paths.cpu(), is_kept.cpu(), strict=True)]


@torch.inference_mode()
def ctc_beam_search(
    log_probs: Float[Tensor, "batch time symbols"],
    lengths: Int[Tensor, " batch"],
    *,
    blank: int = PAD,
    beam: int = 16,
    nbest: int = 1,
    language_model: CtcLanguageModel | None = None,
    reward: float = 0.0,
) -> list[list[Hypothesis]]:
    """The best labellings of each sequence, best first, by a search that keeps `beam` prefixes at each frame.

    Rows are made to sum to one, so logits will do. Of equal candidates the shorter one, then the one of the better
    prefix, then the one with the lower symbol is kept.
    """
    if not 1 <= nbest <= beam:
        raise UsageError(f"nbest={nbest} and beam={beam}: give 1 or more, and a beam of nbest or more")
    frames = _normalised(log_probs, lengths, blank)
    if not frames:
        return []
    symbols = log_probs.shape[2]
    if language_model is not None and language_model.weight == 0:
        language_model = None  # 0 · −∞ is NaN, but a language model of no weight has nothing to forbid
    reader = None if language_model is None else _Reader(language_model, len(frames), symbols, device=log_probs.device)
    never = [blank] if reader is None else [blank, reader.stepper.begin, reader.stepper.end]
    prefixes = _Prefixes(len(frames))
    beams = _Beams.start(len(frames), beam)
    results: list[list[Hypothesis]] = [[] for _ in frames]
    order = np.arange(len(frames))  # the sequence of each live row
    for t in range(max(map(len, frames))):
        now = np.stack([frames[number][t] for number in order])  # [live, symbols]
        ahead = None if reader is None else reader.ahead(beams.prefix)  # [live, beam, symbols]
        beams = _advance(beams, now, prefixes, ahead=ahead, blank=blank, never=never, reward=reward)
        if reader is not None:
            reader.follow(beams, prefixes)
        is_over = np.array([len(frames[number]) == t + 1 for number in order])
        for row in np.flatnonzero(is_over).tolist():
            number = int(order[row])
            results[number] = _finished(
                frames[number], beams, row, prefixes, reader=reader, blank=blank, reward=reward
            )[:nbest]
        order, beams = order[~is_over], beams.select(~is_over)
    return results


# --- the beam --------------------------------------------------------------------------------------------------------

NO_PREFIX = -1
"""In a place of a beam that has no prefix yet."""


class _Prefixes:
    """The prefixes of all sequences as a tree. A prefix has one number, however often a beam drops it and finds it."""

    def __init__(self, sequences: int) -> None:
        self.parent = [NO_PREFIX] * sequences  # the empty prefix of each sequence
        self.last = [NO_PREFIX] * sequences
        self._known: dict[tuple[int, int], int] = {}

    def extended(self, prefix: int, symbol: int) -> int:
        """The number of a prefix with one symbol more."""
        number = self._known.setdefault((prefix, symbol), len(self.parent))
        if number == len(self.parent):
            self.parent.append(prefix)
            self.last.append(symbol)
        return number

    def symbols(self, prefix: int) -> tuple[int, ...]:
        """All symbols of a prefix."""
        found: list[int] = []
        while self.parent[prefix] != NO_PREFIX:
            found.append(self.last[prefix])
            prefix = self.parent[prefix]
        return tuple(reversed(found))


class _Beams(NamedTuple):
    """The prefixes of each live sequence, best first. Places without a prefix come last and have the probability 0."""

    prefix: Int64[Array, "live beam"]
    parent: Int64[Array, "live beam"]
    """The prefix without its last symbol; NO_PREFIX for the empty one."""
    last: Int64[Array, "live beam"]
    """Its last symbol; NO_PREFIX for the empty one."""
    blank: Float64[Array, "live beam"]
    """log P of its paths that end in a blank."""
    symbol: Float64[Array, "live beam"]
    """log P of its paths that end in its last symbol."""
    extra: Float64[Array, "live beam"]
    """What the language model and the reward add to its score."""
    dropped: Float64[Array, " live"]
    """log P of all paths that were dropped."""

    @staticmethod
    def start(sequences: int, beam: int) -> "_Beams":
        """One empty prefix for each sequence, numbered as the sequence is, before the first frame."""
        prefix = np.full((sequences, beam), NO_PREFIX)
        prefix[:, 0] = np.arange(sequences)
        nothing = np.full((sequences, beam), -math.inf)
        blank = np.where(prefix >= 0, 0.0, -math.inf)
        none = np.full_like(prefix, NO_PREFIX)
        return _Beams(prefix, none, none, blank, nothing, np.zeros_like(blank), np.full(sequences, -math.inf))

    def select(self, rows: Bool[Array, " live"]) -> "_Beams":
        """The beams of these rows."""
        return _Beams(*(part[rows] for part in self))


def _advance(
    beams: _Beams,
    now: Float64[Array, "live symbols"],
    prefixes: _Prefixes,
    *,
    ahead: Float64[Array, "live beam symbols"] | None,
    blank: int,
    never: Sequence[int],
    reward: float,
) -> _Beams:
    """The beams after one more frame. `ahead` is λ log P_lm of each symbol after each prefix."""
    live, beam = beams.prefix.shape
    symbols = now.shape[1]
    rows = np.arange(live)[:, None]
    is_empty = beams.last == NO_PREFIX
    last = np.where(is_empty, blank, beams.last)

    either = np.logaddexp(beams.blank, beams.symbol)
    own = now[rows, last]  # log P of the last symbol of each prefix
    stays_blank = either + now[:, blank, None]
    stays_symbol = beams.symbol + own
    enters = either[:, :, None] + now[:, None, :]  # [live, beam, symbols]
    enters[rows, np.arange(beam), last] = beams.blank + own
    enters[:, :, never] = -math.inf

    # Where a prefix and its parent are both in the beam, the paths that enter it come from the parent.
    row, child, parent = np.nonzero(
        (beams.parent[:, :, None] == beams.prefix[:, None, :]) & (beams.parent >= 0)[:, :, None]
    )
    known = (row, parent, beams.last[row, child])
    stays_symbol[row, child] = np.logaddexp(stays_symbol[row, child], enters[known])
    enters[known] = -math.inf

    adds = np.broadcast_to(beams.extra[:, :, None] + reward, enters.shape)
    if ahead is not None:
        adds = adds + ahead
    masses = np.concatenate([np.logaddexp(stays_blank, stays_symbol), enters.reshape(live, -1)], 1)
    extra = np.concatenate([beams.extra, adds.reshape(live, -1)], 1)  # [live, beam + beam · symbols] each
    values = masses + extra
    chosen = _best(values, beam)  # [live, beam]

    is_dropped = values > -math.inf  # what the language model forbids is impossible, not dropped
    np.put_along_axis(is_dropped, chosen, False, axis=1)
    lost = _log_sum(np.where(is_dropped, masses, -math.inf))

    stays = chosen < beam
    place = np.where(stays, chosen, (chosen - beam) // symbols)  # of the prefix that stays or is extended
    symbol = (chosen - beam) % symbols  # where it is extended
    is_possible = np.take_along_axis(values, chosen, 1) > -math.inf
    before = beams.prefix[rows, place]
    prefix = np.where(stays, before, NO_PREFIX)
    for r, b in zip(*np.nonzero(~stays & is_possible), strict=True):
        prefix[r, b] = prefixes.extended(int(before[r, b]), int(symbol[r, b]))

    def kept(if_it_stays: Array, otherwise: Array, impossible: float | int) -> Array:
        return np.where(is_possible, np.where(stays, if_it_stays[rows, place], otherwise), impossible)

    return _Beams(
        prefix=np.where(is_possible, prefix, NO_PREFIX),
        parent=kept(beams.parent, before, NO_PREFIX),
        last=kept(beams.last, symbol, NO_PREFIX),
        blank=kept(stays_blank, np.full(before.shape, -math.inf), -math.inf),
        symbol=kept(stays_symbol, np.take_along_axis(masses, chosen, 1), -math.inf),
        extra=kept(beams.extra, np.take_along_axis(extra, chosen, 1), 0.0),
        dropped=np.logaddexp(beams.dropped, lost),
    )


def _best(values: Float64[Array, "live candidates"], count: int) -> Int64[Array, "live count"]:
    """The best candidates of each row, best first, and of equal ones the first."""
    edge = np.partition(values, -count, axis=1)[:, -count, None]  # the least value that is taken
    is_above, is_equal = values > edge, values == edge
    left = count - is_above.sum(1, keepdims=True)
    is_taken = is_above | (is_equal & (is_equal.cumsum(1) <= left))
    taken = np.nonzero(is_taken)[1].reshape(len(values), count)
    order = np.argsort(-np.take_along_axis(values, taken, 1), axis=1, kind="stable")
    return np.take_along_axis(taken, order, 1)


# --- symbol by symbol -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CtcState:
    """The prefix of each row: log P of its paths up to each frame, from none to all."""

    sample: Int[Tensor, " rows"]
    blank: Float[Tensor, "rows time_and_one"]
    """log blank_t(y): those that end in a blank."""
    symbol: Float[Tensor, "rows time_and_one"]
    """log symbol_t(y): those that end in its last symbol."""
    last: Int[Tensor, " rows"]
    begins: Float[Tensor, " rows"]
    """log P(a labelling begins with y)."""
    is_new: bool
    """Whether begin has not been read yet."""

    def select(self, rows: Int[Tensor, " picked"]) -> "CtcState":
        sample, blank, symbol = self.sample[rows], self.blank[rows], self.symbol[rows]
        return CtcState(sample, blank, symbol, self.last[rows], self.begins[rows], self.is_new)


class CtcStepper:
    """The frames of a CTC model as any search sees a model, so that it can be a member of an ensemble.

        P(begins with y c) = Σ_t enter_t(y c)
        P(c ∣ y)           = P(begins with y c) / P(begins with y)
        P(end ∣ y)         = (blank_T(y) + symbol_T(y)) / P(begins with y)

    These sum to one. The log-probability of a finished output is log P(y ∣ x). Padding of the frames may hold anything.
    """

    begin = BEGIN
    end = END

    def __init__(
        self, scores: Float[Tensor, "batch time symbols"], lengths: Int[Tensor, " batch"], *, blank: int = PAD
    ) -> None:
        """`scores` are those before the softmax. Neither begin nor end is a symbol of the frames: they are left out."""
        frames = scores.double().index_fill(2, torch.tensor([BEGIN, END], device=scores.device), -math.inf)
        frames = frames.log_softmax(2)
        is_real = torch.arange(frames.shape[1], device=lengths.device) < lengths[:, None]
        # Frames of padding are blank, which changes no labelling.
        nothing = torch.where(torch.arange(frames.shape[2], device=frames.device) == blank, 0.0, -math.inf).double()
        self.frames = torch.where(is_real[:, :, None], frames, nothing)
        self.blank, self.dtype = blank, scores.dtype

    def start(self, source: Source) -> CtcState:
        samples = len(self.frames)
        if len(source.lengths) != samples:
            raise UsageError(f"{len(source.lengths)} rows for {samples} samples; give one for each")
        zero = self.frames.new_zeros(samples)
        blank = torch.cat([zero[:, None], self.frames[:, :, self.blank].cumsum(1)], 1)  # [samples, time + 1]
        last = torch.full_like(source.lengths, self.blank)
        symbol = torch.full_like(blank, -math.inf)
        return CtcState(torch.arange(samples, device=zero.device), blank, symbol, last, zero, True)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        assert isinstance(state, CtcState)
        frames = self.frames[state.sample]  # [rows, time, symbols]
        if state.is_new:
            state = replace(state, is_new=False)
        else:
            state = self._extended(state, last, frames)
        before = torch.logaddexp(state.blank, state.symbol)[
            :, :-1
        ]  # [rows, time]: the paths that any symbol may extend
        enters = (before[:, :, None] + frames).logsumexp(1)  # [rows, symbols]
        again = state.blank[:, :-1] + self._own(state.last, frames)
        enters = enters.scatter(1, state.last[:, None], again.logsumexp(1, keepdim=True))
        enters[:, self.blank] = -math.inf
        enters[:, self.end] = torch.logaddexp(state.blank[:, -1], state.symbol[:, -1])
        begins = state.begins.masked_fill(state.begins == -math.inf, 0.0)  # a row that is impossible stays at −∞
        return Step((enters - begins[:, None]).to(self.dtype), state)

    @staticmethod
    def _own(last: Int[Tensor, " rows"], frames: Float[Tensor, "rows time symbols"]) -> Float[Tensor, "rows time"]:
        """log P of the last symbol of each row in each frame."""
        return frames.gather(2, last[:, None, None].expand(-1, frames.shape[1], 1))[:, :, 0]

    def _extended(
        self, state: CtcState, last: Int[Tensor, " rows"], frames: Float[Tensor, "rows time symbols"]
    ) -> CtcState:
        """The state of the prefixes with one symbol more: the recursion above, for all frames."""
        own = self._own(last, frames)
        either = torch.logaddexp(state.blank, state.symbol)
        before = torch.where((last == state.last)[:, None], state.blank, either)[:, :-1]
        enters = before + own  # [rows, time]
        blanks = frames[:, :, self.blank]
        in_blank = in_symbol = torch.full_like(state.begins, -math.inf)
        blank, symbol = [in_blank], [in_symbol]
        for t in range(frames.shape[1]):
            in_blank, in_symbol = (
                torch.logaddexp(in_blank, in_symbol) + blanks[:, t],
                torch.logaddexp(in_symbol + own[:, t], enters[:, t]),
            )
            blank.append(in_blank)
            symbol.append(in_symbol)
        return CtcState(state.sample, torch.stack(blank, 1), torch.stack(symbol, 1), last, enters.logsumexp(1), False)


# --- a language model beside it --------------------------------------------------------------------------------------


class _Row(NamedTuple):
    """Where a prefix stands in the language model: a row of a state that has read all of its symbols."""

    state: State
    row: int
    rows: int
    """How many rows the state has."""


class _Reader:
    """A language model that reads prefixes of different lengths, which come in any order.

    States can be neither joined nor stepped twice. A prefix is therefore a row of the state in which it was read, and
    its extensions are read from a selection of these rows: one step for each such state, of all sequences together.
    """

    def __init__(self, model: CtcLanguageModel, sequences: int, symbols: int, *, device: torch.device) -> None:
        self.stepper, self.weight, self.symbols = model.stepper, model.weight, symbols
        source = model.source
        if source is None:
            ends = torch.full((sequences, 1), self.stepper.end, device=device)
            source = Source(ends, torch.ones(sequences, dtype=torch.long, device=device))
        if len(source.lengths) != sequences:
            raise UsageError(
                f"got {len(source.lengths)} sources of the language model for {sequences} sequences of frames; "
                "each needs one"
            )
        self.device = source.lengths.device
        for name, symbol in (("begin", self.stepper.begin), ("end", self.stepper.end)):
            if symbol >= symbols:
                raise self._other_symbols(f"its {name} symbol is {symbol}")
        self._rows: dict[int, _Row] = {}
        self._ahead: dict[int, Float64[Array, " symbols"]] = {}
        begins = torch.full((sequences,), self.stepper.begin, device=self.device)
        self._keep(range(sequences), self.stepper.step(self.stepper.start(source), begins))

    def ahead(self, prefix: Int64[Array, "live beam"]) -> Float64[Array, "live beam symbols"]:
        """λ log P_lm of each symbol after each prefix; 0 in places without one."""
        nothing = np.zeros(self.symbols)
        return np.stack([[self._ahead.get(number, nothing) for number in row] for row in prefix.tolist()])

    def end(self, prefix: int) -> float:
        """λ log P_lm of the end after a prefix."""
        return float(self._ahead[prefix][self.stepper.end])

    def follow(self, beams: _Beams, prefixes: _Prefixes) -> None:
        """Read the prefixes that are new in the beams, and forget those that are not in them."""
        live = {int(number) for number in beams.prefix.ravel() if number != NO_PREFIX}
        by_state: dict[int, list[int]] = {}
        for number in sorted(live - self._rows.keys()):
            by_state.setdefault(id(self._rows[prefixes.parent[number]].state), []).append(number)
        for numbers in by_state.values():
            parents = [self._rows[prefixes.parent[number]] for number in numbers]
            rows, last = [parent.row for parent in parents], [prefixes.last[number] for number in numbers]
            if rows == list(range(parents[0].rows)):
                # A selection of all rows may be the state itself, which others still need: one row twice makes it new.
                rows, last = [*rows, rows[0]], [*last, last[0]]
            state = parents[0].state.select(torch.tensor(rows, device=self.device))
            self._keep(numbers, self.stepper.step(state, torch.tensor(last, device=self.device)))
        for number in self._rows.keys() - live:
            del self._rows[number], self._ahead[number]

    def _keep(self, numbers: Sequence[int], step: Step) -> None:
        """Remember the first rows of a step as those of these prefixes."""
        log_probs = step.log_probs.double()
        if step.symbols is not None:  # symbols that are not offered are impossible
            if step.symbols.numel() and int(step.symbols.max()) >= self.symbols:
                raise self._other_symbols(f"it offers symbol {int(step.symbols.max())}")
            offered = step.symbols.expand(len(log_probs), -1)
            nothing = log_probs.new_full((len(log_probs), self.symbols), -math.inf)
            log_probs = nothing.scatter_reduce(1, offered, log_probs, "amax")
        elif log_probs.shape[1] != self.symbols:
            raise self._other_symbols(f"it has {log_probs.shape[1]} symbols")
        if bool(log_probs.isnan().any()):
            raise ModelError("the language model gives log-probabilities that are not numbers (NaN)")
        table = self.weight * log_probs.cpu().numpy()  # [rows, symbols]
        for row, number in enumerate(numbers):
            self._rows[number] = _Row(step.state, row, len(table))
            self._ahead[number] = table[row]

    def _other_symbols(self, what: str) -> ModelError:
        return ModelError(
            f"the language model must have the {self.symbols} symbols of the frames, but {what}; take one that was "
            "trained with the same tokenizer"
        )


# --- scores ----------------------------------------------------------------------------------------------------------


def _finished(
    frames: Float64[Array, "time symbols"],
    beams: _Beams,
    row: int,
    prefixes: _Prefixes,
    *,
    reader: _Reader | None,
    blank: int,
    reward: float,
) -> list[Hypothesis]:
    """The prefixes of a row after its last frame as hypotheses, best first."""
    bound = float(beams.dropped[row]) + max(0.0, reward) * len(frames)
    found = []
    for number, added in zip(beams.prefix[row].tolist(), beams.extra[row].tolist(), strict=True):
        if number == NO_PREFIX:
            continue
        symbols, extra = prefixes.symbols(number), {}
        if reader is not None:
            extra["language_model"] = added - reward * len(symbols) + reader.end(number)
        if reward:
            extra["reward"] = reward * len(symbols)
        if math.inf in (abs(value) for value in extra.values()):
            continue  # the output cannot end here
        found.append(_hypothesis(frames, symbols, extra=extra, blank=blank, bound=bound))
    if not found:
        raise ModelError(
            f"no output of {len(frames)} frames is possible: the language model forbids all that the beam kept; use a "
            "wider beam or a language model that gives every symbol some probability"
        )
    return sorted(found, key=lambda hypothesis: -hypothesis.score)


def _hypothesis(
    frames: Float64[Array, "time symbols"],
    symbols: tuple[int, ...],
    *,
    extra: dict[str, float],
    blank: int,
    bound: float,
) -> Hypothesis:
    """A labelling with its score by parts. No labelling that is not known has a better score than `bound`."""
    begins, whole = _prefix_log_probs(frames, symbols, blank)
    tokens = tuple(np.diff([0.0, *begins, whole]).tolist())
    terms = {"log_prob": whole, **extra}
    score = score_of(terms)
    return Hypothesis(symbols, True, score, terms, tokens, is_complete=score > bound + ROUNDING or bound == -math.inf)


def _prefix_log_probs(
    frames: Float64[Array, "time symbols"], symbols: Sequence[int], blank: int
) -> tuple[list[float], float]:
    """log P(labelling begins with y_1 … y_k) for each k, and log P(y): the recursion above for each prefix of one y.

    P(begins with y_1 … y_k) = Σ_t enter_t(y_1 … y_k), since each such labelling enters that prefix once.
    """
    y = np.array(symbols, np.int64)
    own, blanks = frames[:, y], frames[:, blank]  # [time, length], [time]
    is_repeat = np.append(False, y[1:] == y[:-1])[: len(y)]
    in_blank = np.full(len(y) + 1, -math.inf)  # of the prefixes of 0 … |y| symbols
    in_blank[0] = 0.0
    in_symbol = np.full(len(y) + 1, -math.inf)
    begins = np.full(len(y), -math.inf)
    for t in range(len(frames)):
        either = np.logaddexp(in_blank, in_symbol)
        enters = np.where(is_repeat, in_blank[:-1], either[:-1]) + own[t]
        begins = np.logaddexp(begins, enters)
        in_symbol[1:] = np.logaddexp(in_symbol[1:] + own[t], enters)
        in_blank = either + blanks[t]
    return begins.tolist(), float(np.logaddexp(in_blank[-1], in_symbol[-1]))


def _log_sum(values: Float64[Array, "rows terms"]) -> Float64[Array, " rows"]:
    """log Σ exp(value) of each row; −∞ where all are."""
    highest = values.max(1)
    shift = np.where(highest == -math.inf, 0.0, highest)
    with np.errstate(divide="ignore"):
        total: Float64[Array, " rows"] = np.log(np.exp(values - shift[:, None]).sum(1)) + shift
    return total


def _normalised(
    log_probs: Float[Tensor, "batch time symbols"], lengths: Int[Tensor, " batch"], blank: int
) -> list[Float64[Array, "_ symbols"]]:
    """The frames of each sequence, without padding, each of which sums to one in double precision."""
    _, time, symbols = log_probs.shape
    if not 0 <= blank < symbols:
        raise UsageError(f"blank={blank} is not one of {symbols} symbols")
    found = []
    for number, length in enumerate(lengths.tolist()):
        if not 1 <= length <= time:
            raise UsageError(f"sequence {number} has {length} of {time} frames; give 1 to {time}")
        frames = log_probs[number, :length].detach().double().log_softmax(1)
        is_wrong = frames.isnan().any(1)  # also where nothing is possible
        if bool(is_wrong.any()):
            raise ModelError(
                f"frame {int(is_wrong.nonzero()[0])} of sequence {number} has no probabilities: some are not numbers "
                "(NaN), or all are 0"
            )
        found.append(frames.cpu().numpy())
    return found
