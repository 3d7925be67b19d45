"""Vectors of sentences, from an encoder such as BERT: for retrieval, clustering and mining.

    encoder = Encoder.load("all-MiniLM-L6-v2")
    vectors = encoder.encode(["A man reads.", "Ein Mann liest."])      # [lines, width], float32
    vectors @ vectors.T                                                # cosines, if the model has normalised vectors

Translators and language models with `sentence_reading` give vectors too: the mean of their states. Lines are read in
order of length, so that batches hold little padding, and padding costs nothing outside attention.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import torch
from jaxtyping import Float32, Int64

from seqloom.core.archive import by_origin
from seqloom.core.arguments import as_lines, as_text, as_whole_number, require_callable, require_choice
from seqloom.core.errors import ModelError, UsageError, warn
from seqloom.metrics.retrieval import unit_vectors
from seqloom.models.protocols import SentenceModel
from seqloom.nn.fast.int8 import with_int8
from seqloom.nn.packing import Pooling
from seqloom.runs.loading import LoadedModel, in_words, load, require_loaded
from seqloom.tasks.classification import batches_by_length

Precision = Literal["float32", "int8"]

FRAME = 2
"""Symbols that a model reads around each text, at most."""

TOKENS_PER_BATCH = 1024
"""Tokens that are read together: enough for the products, few enough for the processor's cache."""

LINES_AT_ONCE = 20_000
"""Lines that are split into tokens and sorted together."""

LinesDone = Callable[[int, int], None]
"""Gets the lines read so far, and all of them."""


def ignore_lines(_done: int, _all: int) -> None:
    """Report nothing."""


class Encoder:
    """Gives each line of text a vector.

    encoder = Encoder.load("model")
    encoder.encode(["The old man reads a book."])[0]
    """

    def __init__(
        self, loaded: LoadedModel, *, precision: Precision = "float32", pooling: Pooling | None = None
    ) -> None:
        """`precision` int8 multiplies large matrices in eight bits: faster on most CPUs, and a little less exact.

        `pooling` makes one vector of those of the tokens in another way than the model does by itself.
        """
        require_loaded(loaded, [], caller="Encoder")
        require_choice(precision, "precision", get_args(Precision))
        if pooling is not None:
            require_choice(pooling, "pooling", get_args(Pooling))
        reading = loaded.config.model.sentence_reading
        if reading is None:
            raise UsageError(by_origin(f"{loaded.folder} does not give vectors of texts: {in_words(loaded.config)}"))
        self.loaded, self.pooling = loaded, pooling
        self.config, self.card, self.tokenizer = loaded.config, loaded.card, loaded.tokenizers.source
        model = with_int8(loaded.model) if precision == "int8" else loaded.model.eval()
        self._model, self._reading = cast("SentenceModel", model), reading
        self.width = reading.width
        self.max_tokens = loaded.config.data.longest if reading.longest is None else reading.longest

    def __repr__(self) -> str:
        return f"Encoder({self.loaded.summary()})"

    @staticmethod
    def load(
        folder: Path | str,
        *,
        device: str | None = None,
        precision: Precision = "float32",
        pooling: Pooling | None = None,
        source: str | None = None,
        target: str | None = None,
    ) -> "Encoder":
        """Read a model directory or the folder of a published model.

        `source` and `target` choose the languages of a translator that knows several.
        """
        return Encoder(load(folder, device=device, source=source, target=target), precision=precision, pooling=pooling)

    def encode(
        self,
        lines: Iterable[str],
        *,
        prompt: str | None = None,
        normalise: bool = False,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: LinesDone = ignore_lines,
    ) -> Float32[np.ndarray, "lines width"]:
        """The vector of each line, scaled to length 1 with `normalise`, or if the model says so.

        `prompt` is read before each line in place of that of the model. A line of more than `max_tokens` tokens is read
        up to there, and a SeqloomWarning counts such lines. A blank line has the vector of a text without tokens.
        """
        given = as_lines(lines, "lines")
        blocks = self.encode_blocks(
            given, prompt=prompt, normalise=normalise, tokens_per_batch=tokens_per_batch, progress=progress
        )
        return np.concatenate([np.empty((0, self.width), np.float32), *blocks])

    def encode_blocks(
        self,
        lines: Sequence[str],
        *,
        prompt: str | None = None,
        normalise: bool = False,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: LinesDone = ignore_lines,
    ) -> Iterator[Float32[np.ndarray, "some width"]]:
        """The same in blocks of lines, so that not all vectors are in memory."""
        require_callable(progress, "progress")
        at_once, counts = as_whole_number(tokens_per_batch, "tokens_per_batch", least=1), np.zeros(3, np.int64)
        for begin in range(0, len(lines), LINES_AT_ONCE):
            texts = self.ids(lines[begin : begin + LINES_AT_ONCE], prompt=prompt)
            lengths = _lengths(texts)
            cut = lengths - np.minimum(lengths, self.max_tokens)
            counts += [np.count_nonzero(cut), cut.sum(), lengths.sum()]

            def on_lines(done: int, _all: int, before: int = begin) -> None:
                progress(before + done, len(lines))

            vectors = self._vectors(texts, at_once, on_lines)
            yield unit_vectors(vectors) if normalise else vectors
        self._report_cut(counts, len(lines))

    def ids(self, lines: Sequence[str], *, prompt: str | None = None) -> list[list[int]]:
        """The ids of lines with their prompt, without BEGIN and END."""
        before = self._reading.prompt if prompt is None else as_text(prompt, "prompt")
        texts = [before + line for line in lines]
        return self.tokenizer.encode_many([text.lower() for text in texts] if self._reading.lowercase else texts)

    def encode_ids(
        self, texts: Sequence[Sequence[int]], *, tokens_per_batch: int = TOKENS_PER_BATCH
    ) -> Float32[np.ndarray, "lines width"]:
        """The vectors of texts that are given by their ids."""
        at_once = as_whole_number(tokens_per_batch, "tokens_per_batch", least=1)
        lengths = _lengths(texts)
        cut = lengths - np.minimum(lengths, self.max_tokens)
        self._report_cut(np.array([np.count_nonzero(cut), cut.sum(), lengths.sum()]), len(texts))
        return self._vectors(texts, at_once, ignore_lines)

    def _vectors(
        self, texts: Sequence[Sequence[int]], tokens_per_batch: int, progress: LinesDone
    ) -> Float32[np.ndarray, "lines width"]:
        kept = np.minimum(_lengths(texts), self.max_tokens)
        vectors = np.empty((len(texts), self.width), np.float32)
        done = 0
        for places in batches_by_length(kept + FRAME, tokens=tokens_per_batch):
            padded = np.zeros((len(places), int(kept[places].max())), np.int64)
            for row, place in enumerate(places):
                padded[row, : kept[place]] = texts[place][: kept[place]]
            with torch.inference_mode():
                ids, counts = (torch.from_numpy(each).to(self.loaded.device) for each in (padded, kept[places]))
                found = self._model.sentence_vectors(ids, counts, pooling=self.pooling)
                vectors[places] = found.float().cpu().numpy()
            done += len(places)
            progress(done, len(texts))
        if not np.isfinite(vectors).all():
            folder = by_origin(str(self.loaded.folder))
            raise ModelError(f"{folder} gives vectors with NaN or infinite numbers; its weights are damaged")
        return vectors

    def _report_cut(self, counts: Int64[np.ndarray, " 3"], lines: int) -> None:
        cut_lines, cut_tokens, tokens = counts.tolist()
        if cut_lines:
            warn(
                f"{cut_lines:,} of {lines:,} lines are longer than the {self.max_tokens} tokens that this model reads; "
                f"{cut_tokens:,} of {tokens:,} tokens were not read. Split the lines"
            )


def _lengths(texts: Sequence[Sequence[int]]) -> Int64[np.ndarray, " lines"]:
    return np.fromiter((len(ids) for ids in texts), np.int64, count=len(texts))
