"""Masked language modelling: the summed losses of tokens that are hidden, predicted from all others.

    loss = −Σ_{t hidden} log P(w_t | w̃_0 … w̃_{n+1})        w̃ is what is read: `data.corrupt.TokenMasking`

The loss covers all hidden tokens, however they are read, and the output is computed for these alone. A sample is a
span of the text between BEGIN and END: a window that continues over the ends of lines, each of which is an END, or a
line. What is hidden in it is a pure function of (seed, epoch, first token of the span).

With `task.next_sentence` a sample holds two segments, BEGIN A END B END. B follows A in half of the samples, and comes
from another place of the text in the others (Devlin et al., 2019):

    loss = Σ_samples (−Σ_{t hidden} log P(w_t) − h log P(B follows A))        h hidden tokens in the sample

so that the mean over hidden tokens is the sum of both losses, whatever samples a batch is made of.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Int64, Integer
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.errors import DataError, UsageError
from seqloom.core.symbols import BEGIN, END
from seqloom.data.batches import BatchPlan
from seqloom.data.corrupt import TokenMasking, generator_for
from seqloom.data.plain_text import Stream
from seqloom.data.windows import RandomWindows
from seqloom.metrics.perplexity import perplexity
from seqloom.nn.outputs import Output
from seqloom.nn.packing import pack, packing_of
from seqloom.tasks.settings import MaskedLanguageModellingConfig
from seqloom.text.tokenizer import Tokenizer
from seqloom.training.task import Loss

MASK_MARK = "<hidden token>"
"""The mask symbol of models that are trained here. It has a space in it: no text becomes one."""

MASK_NAMES = ("[MASK]", "<mask>")
"""The mask symbols of published models: BERT, and RoBERTa and XLM-R."""

DEV_SEED = 0
"""The seed of what is hidden in held-out text: the same for all runs, so that their figures compare."""

FRAME, PAIR_FRAME = 2, 3
"""Symbols around the tokens of a window, and around those of two segments."""

MAX_SCORED_TOKENS = 512
"""Hidden tokens of held-out text that are scored at a time, over all symbols."""


def mask_symbol(tokenizer: Tokenizer) -> int:
    """The mask symbol of a tokeniser, by its known names."""
    published = tokenizer.published
    names: tuple[str, ...] = (MASK_MARK,) if published is None else MASK_NAMES
    known = tokenizer.vocabulary if published is None else published.tokens
    for name in names:
        if name in known:
            return known.index(name)
    raise UsageError(
        f"the tokeniser ({tokenizer.kind}, {tokenizer.size:,} pieces) has no mask symbol, which hides tokens: none of "
        f"its pieces is {' or '.join(names)}; leave out data.tokenizers_from, or start from an encoder that has one"
    )


class MaskedModel(Protocol):
    """What an encoder must offer to be trained on hidden tokens."""

    @property
    def output(self) -> Output:
        """Scores over the symbols; it reads `masked_features`."""
        ...

    def read(
        self,
        ids: Int[Tensor, "batch time"],
        lengths: Int[Tensor, " batch"],
        segments: Int[Tensor, "batch time"] | None = None,
    ) -> Float[Tensor, "tokens width"]:
        """Vectors of all tokens, text after text; texts contain BEGIN and END."""
        ...

    def masked_features(self, states: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """What `output` scores, of the vectors of hidden tokens."""
        ...

    def pair_scores(
        self, states: Float[Tensor, "tokens width"], lengths: Int[Tensor, " batch"]
    ) -> Float[Tensor, "batch 2"]:
        """Scores of pairs of segments: that the second follows the first, and that it does not."""
        ...


@dataclass(frozen=True)
class MaskedBatch:
    """Samples as they are read, padded, with the tokens that are to be predicted."""

    ids: Int[Tensor, "batch time"]
    """With BEGIN and END, and with the mask symbol or another one in place of most hidden tokens."""
    lengths: Int[Tensor, " batch"]
    places: Int[Tensor, " hidden"]
    """Of the hidden tokens among all tokens of the batch, sample after sample."""
    labels: Int[Tensor, " hidden"]
    hidden: Int[Tensor, " batch"]
    """Hidden tokens of each sample."""
    segments: Int[Tensor, "batch time"] | None
    """0 for the tokens of the first segment, its END included, 1 for those of the second."""
    is_unrelated: Int[Tensor, " batch"] | None
    """0 if the second segment follows the first, else 1."""
    starts: Int64[np.ndarray, " batch"]
    """The first token of each sample in the text."""

    @property
    def count(self) -> int:
        """Predicted tokens."""
        return len(self.labels)


@dataclass(frozen=True, eq=False)
class Spans:
    """Parts of a text: tokens begin … end − 1 of each."""

    begins: Int64[np.ndarray, " spans"]
    ends: Int64[np.ndarray, " spans"]

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def lengths(self) -> Int64[np.ndarray, " spans"]:
        """Tokens of each."""
        lengths: Int64[np.ndarray, " spans"] = self.ends - self.begins
        return lengths

    def take(self, some: Integer[np.ndarray, " some"] | Bool[np.ndarray, " spans"] | slice) -> "Spans":
        """Some of them, in this order."""
        return Spans(self.begins[some], self.ends[some])


def line_spans(text: Stream, longest: int, *, first: int = 0) -> Spans:
    """The lines with words, without their END; one of more than `longest` tokens in equal parts, up to a token.

    The words of a line begin with its token number `first`.
    """
    words = text.lengths.astype(np.int64) - 1 - first
    parts = -(-words // longest)
    line = np.repeat(np.arange(len(words)), parts)
    part = np.arange(len(line)) - np.repeat(np.cumsum(parts) - parts, parts)
    begins, ends = (text.offsets[line] + first + words[line] * each // parts[line] for each in (part, part + 1))
    return Spans(begins, ends)


def window_spans(tokens: int, length: int) -> Spans:
    """Windows one after another; the last one may be shorter."""
    begins = np.arange(0, tokens, length, dtype=np.int64)
    return Spans(begins, np.minimum(begins + length, tokens))


class MaskedLanguageModellingTask:
    """A training text and a held-out text on one device, read in windows or line by line."""

    def __init__(
        self,
        train: Stream,
        dev: Stream,
        *,
        config: MaskedLanguageModellingConfig,
        mask: int,
        seed: int,
        device: torch.device,
    ) -> None:
        self.train, self.dev = train, dev
        self.config, self.seed, self.device = config, seed, device
        self.masking = TokenMasking(
            mask,
            train.symbols,
            rate=config.hidden_rate,
            mask_rate=config.mask_rate,
            random_rate=config.random_rate,
        )
        inside = config.length - (PAIR_FRAME if config.next_sentence else FRAME)
        self.windows: RandomWindows | None = None
        if config.windows == "packed":
            rows = max(1, config.tokens_per_batch // config.length)
            self.windows = RandomWindows(train.tokens, rows=rows, length=inside, seed=seed)
            self.dev_spans = window_spans(dev.tokens, inside)
        else:
            self.lines, self.dev_spans = line_spans(train, inside), line_spans(dev, inside)
            if not len(self.lines):
                raise DataError("the training text has no line with words")
            lengths = self.lines.lengths + FRAME
            self.plan = BatchPlan(lengths, lengths, tokens_per_batch=config.tokens_per_batch, seed=seed)
        self.pairs = self.dev_pairs = None
        if config.next_sentence:
            self.pairs, self.dev_pairs = SegmentPairs(train), SegmentPairs(dev)
        before = np.cumsum(self.dev_spans.lengths) - self.dev_spans.lengths
        self.validation_spans = self.dev_spans.take(before < (config.dev_tokens or dev.tokens))
        if not any(batch.count for batch in self.dev_batches(self.validation_spans)):
            raise DataError(
                f"none of the {int(self.validation_spans.lengths.sum()):,} tokens that a validation reads is hidden at "
                f"task.hidden_rate={config.hidden_rate:g}; give a longer --dev file"
            )

    def batches(self, epoch: int) -> int:
        return len(self.plan.batches(epoch)) if self.windows is None else self.windows.batches(epoch)

    def batch(self, epoch: int, index: int) -> MaskedBatch:
        if self.windows is None:
            spans = self.lines.take(self.plan.batch(epoch, index))
        else:
            places = self.windows.batch(epoch, index)
            spans = Spans(places.starts, places.starts + places.length)
        return self._collate(self.train, spans, pairs=self.pairs, seed=self.seed, epoch=epoch)

    def count(self, batch: MaskedBatch) -> int:
        return batch.count

    def loss(self, model: nn.Module, batch: MaskedBatch) -> Loss:
        reader = cast("MaskedModel", model)
        states = reader.read(batch.ids, batch.lengths, batch.segments)  # [tokens, width]
        features = reader.masked_features(states.index_select(0, batch.places))  # [hidden, width]
        total = reader.output.cross_entropy(features, batch.labels)
        if batch.is_unrelated is not None:
            scores = reader.pair_scores(states, batch.lengths)  # [batch, 2]
            total = total + (batch.hidden * F.cross_entropy(scores, batch.is_unrelated, reduction="none")).sum()
        return Loss(total, batch.count)

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        """Cross-entropy and perplexity of the hidden tokens of held-out text, and the share that is found.

        With pairs of segments, also the share of them that is judged rightly; their loss is not part of `loss`.
        """
        return self.measure(model, self.validation_spans).figures()

    def dev_loss(self, model: nn.Module) -> float:
        """Cross-entropy of the hidden tokens of the whole held-out text."""
        found = self.measure(model)
        return found.cross_entropy / found.count

    @torch.no_grad()
    def measure(self, model: nn.Module, spans: Spans | None = None) -> "HiddenTokenFigures":
        """What the model finds of hidden tokens in held-out text, the same ones in every call."""
        reader = cast("MaskedModel", model)
        cross_entropy, found, count, judged, pairs = 0.0, 0, 0, 0, 0
        masked_found = masked = 0
        for batch in self.dev_batches(self.dev_spans if spans is None else spans):
            states = reader.read(batch.ids, batch.lengths, batch.segments)  # [tokens, width]
            features = reader.masked_features(states.index_select(0, batch.places))  # [hidden, width]
            tokens = pack(batch.ids, packing_of(batch.lengths, batch.ids.shape[1]))  # [tokens]
            is_masked = tokens.index_select(0, batch.places) == self.masking.mask  # [hidden]
            masked += int(is_masked.sum())
            for some in range(0, batch.count, MAX_SCORED_TOKENS):
                labels = batch.labels[some : some + MAX_SCORED_TOKENS]
                scores = reader.output.log_probs(features[some : some + MAX_SCORED_TOKENS])  # [some, symbols]
                cross_entropy -= float(scores.gather(1, labels[:, None]).double().sum())
                is_found = scores.argmax(1) == labels  # [some]
                found += int(is_found.sum())
                masked_found += int((is_found & is_masked[some : some + MAX_SCORED_TOKENS]).sum())
            count += batch.count
            if batch.is_unrelated is not None:
                judged += int((reader.pair_scores(states, batch.lengths).argmax(1) == batch.is_unrelated).sum())
                pairs += len(batch.lengths)
        return HiddenTokenFigures(cross_entropy, found, count, masked_found, masked, judged, pairs)

    def dev_batches(self, spans: Spans) -> Iterator[MaskedBatch]:
        """Spans of the held-out text in their order, with what is hidden in them."""
        lengths = spans.lengths
        begin = 0
        while begin < len(spans):
            rows = max(1, self.config.tokens_per_batch // self.config.length)
            # Windows are equally long but for the last one, which is then read by itself, without padding.
            if self.windows is not None:
                rows = min(rows, int((lengths[begin : begin + rows] == lengths[begin]).sum()))
            some = spans.take(slice(begin, begin + rows))
            yield self._collate(self.dev, some, pairs=self.dev_pairs, seed=DEV_SEED, epoch=0)
            begin += rows

    def signature(self, count: int) -> str:
        """How the figures of held-out text were counted, to be printed with them."""
        config = self.config
        shares = f"mask:{config.mask_rate:g}|random:{config.random_rate:g}"
        pairs = "|pairs:yes" if config.next_sentence else ""
        return (
            f"unit:token|count:{count}|hidden:{config.hidden_rate:g}|{shares}|windows:{config.windows}|"
            f"length:{config.length}{pairs}|seed:{DEV_SEED}"
        )

    def describe(self, batch: MaskedBatch) -> str:
        lines = [str(self.train.line_of(int(start))) for start in batch.starts[:5]]
        more = " …" if len(batch.starts) > len(lines) else ""
        rows, length = batch.ids.shape
        sizes = f"{rows} windows of up to {length} tokens, {batch.count} of them hidden"
        return f"{sizes}, from lines {', '.join(lines)}{more}"

    def fingerprint(self) -> str:
        return self.train.fingerprint()

    def _collate(
        self, text: Stream, spans: Spans, *, pairs: "SegmentPairs | None", seed: int, epoch: int
    ) -> MaskedBatch:
        """These spans of a text as a batch, with what is hidden in each in this epoch."""
        rows, hidden, labels, segments, unrelated = [], [], [], [], []
        for begin, end in zip(spans.begins.tolist(), spans.ends.tolist(), strict=True):
            generator = generator_for(seed, epoch, begin)
            if pairs is None:
                framed = np.concatenate([[BEGIN], text.ids[begin:end], [END]])
            else:
                first, second, is_unrelated = pairs.draw(begin, end, generator)
                framed = np.concatenate([[BEGIN], first, [END], second, [END]])
                segments.append((np.arange(len(framed)) > len(first) + 1).astype(np.int64))
                unrelated.append(is_unrelated)
            masked = self.masking(framed, generator)
            rows.append(masked.read)
            hidden.append(masked.places)
            labels.append(framed[masked.places].astype(np.int64))
        lengths = np.array([len(row) for row in rows], np.int64)
        offsets = np.cumsum(lengths) - lengths
        places = [offset + each for offset, each in zip(offsets.tolist(), hidden, strict=True)]

        def tensor(array: Integer[np.ndarray, "*shape"]) -> Tensor:
            return torch.from_numpy(array).to(self.device)

        return MaskedBatch(
            ids=tensor(_padded(rows, lengths)),
            lengths=tensor(lengths),
            places=tensor(np.concatenate(places)),
            labels=tensor(np.concatenate(labels)),
            hidden=tensor(np.array([len(each) for each in hidden], np.int64)),
            segments=None if pairs is None else tensor(_padded(segments, lengths)),
            is_unrelated=None if pairs is None else tensor(np.array(unrelated, np.int64)),
            starts=spans.begins,
        )


def _padded(
    rows: list[Integer[np.ndarray, " tokens"]], lengths: Int64[np.ndarray, " batch"]
) -> Int64[np.ndarray, "batch time"]:
    padded = np.zeros((len(rows), int(lengths.max())), np.int64)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return padded


@dataclass(frozen=True)
class HiddenTokenFigures:
    """What a model finds of the hidden tokens of a text."""

    cross_entropy: float
    """−Σ log P."""
    found: int
    """Tokens that the model finds likeliest of all."""
    count: int
    """Hidden tokens."""
    masked_found: int = 0
    """Those found among the tokens that are read as the mask symbol. Others can be found by copying what is read."""
    masked: int = 0
    judged: int = 0
    """Pairs of segments that are judged rightly."""
    pairs: int = 0

    @property
    def accuracy(self) -> float:
        """The share of hidden tokens that are found."""
        return self.found / self.count

    @property
    def perplexity(self) -> float:
        """Per hidden token."""
        return perplexity(self.cross_entropy, self.count).value

    def figures(self) -> dict[str, float]:
        """By name, for a validation."""
        pairs = {"pair_accuracy": self.judged / self.pairs} if self.pairs else {}
        masked = {"masked_accuracy": self.masked_found / self.masked} if self.masked else {}
        loss = self.cross_entropy / self.count
        return {"loss": loss, "perplexity": self.perplexity, "hidden_accuracy": self.accuracy, **masked, **pairs}


class SegmentPairs:
    """Two segments of a span, the second of which may be replaced by another part of the text.

    The second segment begins where a line does, if the span has such a place, and so does the other part: where it
    begins must not tell whether it follows.
    """

    def __init__(self, text: Stream) -> None:
        self.ids = text.ids
        self.begins = text.offsets[:-1][text.lengths > 1]
        """The first token of each line with words."""

    def draw(
        self, begin: int, end: int, generator: np.random.Generator
    ) -> tuple[Integer[np.ndarray, " first"], Integer[np.ndarray, " second"], bool]:
        """Both segments, without the ends of lines around them, and whether the second does not follow the first."""
        choice, place, coin = generator.random(3).tolist()
        is_unrelated = coin < 0.5
        leading = int(np.argmax(self.ids[begin:end] != END))  # ends of lines before the first word
        after, before = np.searchsorted(self.begins, [begin + leading + 1, end]).tolist()
        if after < before:  # lines that begin inside of the span
            line = after + int(choice * (before - after))
            split = other = int(self.begins[line])
            if is_unrelated:
                step = 1 + int(place * (len(self.begins) - 1))  # not the line itself, if there is another one
                other = int(self.begins[(line + step) % len(self.begins)])
        else:
            split = other = (begin + end) // 2
            if is_unrelated:
                other = int(place * max(1, len(self.ids) - (end - split)))
        size = end - split
        return without_ends(self.ids[begin:split]), without_ends(self.ids[other : other + size]), is_unrelated


def without_ends(ids: Integer[np.ndarray, " tokens"]) -> Integer[np.ndarray, " left"]:
    """A part of a text without the ENDs before its first word and after its last."""
    words = np.flatnonzero(ids != END)
    return ids[words[0] : words[-1] + 1] if len(words) else ids[:0]
