"""Vectors of sentences, from an encoder such as BERT: for retrieval, clustering and mining.

    encoder = Encoder.load("all-MiniLM-L6-v2")
    vectors = encoder.encode(["A man reads.", "Ein Mann liest."])      # [lines, width], float32
    vectors @ vectors.T                                                # cosines, if the model has normalised vectors

Lines are read in order of length, so that batches hold little padding, and padding costs nothing outside attention.
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
from seqloom.models.protocols import SentenceModel
from seqloom.nn.fast.int8 import with_int8
from seqloom.runs.loading import LoadedModel, in_words, load, require_loaded

Precision = Literal["float32", "int8"]

FRAME = 2
"""Symbols that a model reads around each text."""

TOKENS_PER_BATCH = 1024
"""Tokens that are read together: enough for the products, few enough for the processor's cache."""

LinesDone = Callable[[int, int], None]
"""Gets the lines read so far, and all of them."""


def ignore_lines(_done: int, _all: int) -> None:
    """Report nothing."""


class Encoder:
    """Gives each line of text a vector.

    encoder = Encoder.load("model")
    encoder.encode(["The old man reads a book."])[0]
    """

    def __init__(self, loaded: LoadedModel, *, precision: Precision = "float32") -> None:
        """`precision` int8 multiplies large matrices in eight bits: faster on most CPUs, and a little less exact."""
        require_loaded(loaded, [], caller="Encoder")
        require_choice(precision, "precision", get_args(Precision))
        if loaded.config.purpose != "encoder":
            raise UsageError(by_origin(f"{loaded.folder} is not an encoder: {in_words(loaded.config)}"))
        self.loaded = loaded
        self.config, self.card, self.tokenizer = loaded.config, loaded.card, loaded.tokenizers.target
        model = with_int8(loaded.model) if precision == "int8" else loaded.model.eval()
        self._model = cast("SentenceModel", model)
        self.width, self.max_tokens = self._model.sentence_width, self._model.max_tokens

    def __repr__(self) -> str:
        return f"Encoder({self.loaded.summary()})"

    @staticmethod
    def load(folder: Path | str, *, device: str | None = None, precision: Precision = "float32") -> "Encoder":
        """Read a model directory or the folder of a published encoder."""
        return Encoder(load(folder, device=device), precision=precision)

    def encode(
        self,
        lines: Iterable[str],
        *,
        prompt: str | None = None,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: LinesDone = ignore_lines,
    ) -> Float32[np.ndarray, "lines width"]:
        """The vector of each line.

        `prompt` is read before each line in place of that of the model. A line of more than `max_tokens` tokens is read
        up to there, and a SeqloomWarning counts such lines.
        """
        require_callable(progress, "progress")
        return self.encode_ids(
            self.ids(as_lines(lines, "lines"), prompt=prompt), tokens_per_batch=tokens_per_batch, progress=progress
        )

    def ids(self, lines: Sequence[str], *, prompt: str | None = None) -> list[list[int]]:
        """The ids of lines with their prompt, without BEGIN and END."""
        before = self._model.prompt if prompt is None else as_text(prompt, "prompt")
        texts = [before + line for line in lines]
        return self.tokenizer.encode_many([text.lower() for text in texts] if self._model.is_lowercase else texts)

    def encode_ids(
        self,
        texts: Sequence[Sequence[int]],
        *,
        tokens_per_batch: int = TOKENS_PER_BATCH,
        progress: LinesDone = ignore_lines,
    ) -> Float32[np.ndarray, "lines width"]:
        """The vectors of texts that are given by their ids."""
        at_once = as_whole_number(tokens_per_batch, "tokens_per_batch", least=1)
        lengths = np.fromiter((len(ids) for ids in texts), np.int64, count=len(texts))
        kept = np.minimum(lengths, self.max_tokens)
        if (cut := lengths - kept).any():
            warn(
                f"{int((cut > 0).sum()):,} of {len(texts):,} lines are longer than the {self.max_tokens} tokens that "
                f"this model reads; {int(cut.sum()):,} of {int(lengths.sum()):,} tokens were not read. Split the lines"
            )
        vectors = np.empty((len(texts), self.width), np.float32)
        done = 0
        for places in _batches(kept, at_once):
            padded = np.zeros((len(places), int(kept[places].max())), np.int64)
            for row, place in enumerate(places):
                padded[row, : kept[place]] = texts[place][: kept[place]]
            with torch.inference_mode():
                ids, counts = (torch.from_numpy(each).to(self.loaded.device) for each in (padded, kept[places]))
                vectors[places] = self._model.sentence_vectors(ids, counts).float().cpu().numpy()
            done += len(places)
            progress(done, len(texts))
        if not np.isfinite(vectors).all():
            folder = by_origin(str(self.loaded.folder))
            raise ModelError(f"{folder} gives vectors with NaN or infinite numbers; its weights are damaged")
        return vectors


def _batches(lengths: Int64[np.ndarray, " lines"], tokens: int) -> Iterator[Int64[np.ndarray, " some"]]:
    """Places of lines of similar length, longest first: rows × the longest of them within so many tokens."""
    order = np.argsort(-lengths, kind="stable")
    begin = 0
    while begin < len(order):
        rows = max(1, tokens // (FRAME + int(lengths[order[begin]])))
        yield order[begin : begin + rows]
        begin += rows
