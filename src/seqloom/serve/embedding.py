"""What a worker does with word vectors and encoders: the vector of a text.

v(text) = mean of v(word) over the words of the text that have a vector

The vector of one word is that of the model, not scaled to length 1. With character n-grams every word that is long
enough has a vector. A text without such a word is refused: a vector of zeros would have no direction. An encoder reads
the text as a whole (`seqloom.apps.encoder`).
"""

import base64
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float32

from seqloom.apps.encoder import Encoder
from seqloom.apps.search_settings import device_of
from seqloom.apps.vectors import open_vectors
from seqloom.classical.vectors import WordVectors
from seqloom.core.errors import UsageError
from seqloom.runs.loading import load_any
from seqloom.serve.groups import Emit, GroupCancellation, Groups
from seqloom.text.tokenizer import Tokenizer, word_cutter

MAX_SHOWN_CHARACTERS = 40


class VectorActions:
    """Embeds texts with the vectors of their words."""

    def __init__(self, vectors: WordVectors, tokenizer: Tokenizer | None = None) -> None:
        """Without a tokeniser, words are what is between spaces."""
        self._vectors, self._tokenizer = vectors, tokenizer
        symbols = range(len(vectors)) if vectors.symbols is None else vectors.symbols.tolist()
        self._rows = {int(symbol): row for row, symbol in enumerate(symbols)}

    def embed(
        self, groups: Groups, _options: Mapping[str, Any], _cancellation: GroupCancellation, _emit: Emit
    ) -> list[list[Any]]:
        """The vector of each text (JSON: a string, or a list of ids) as float32 in base64, and its number of words."""
        return [[self._record(json.loads(text)) for text in group] for group in groups]

    def _record(self, text: str | list[int]) -> dict[str, Any]:
        words = self._words(text) if isinstance(text, str) else self._known(text)
        found = [vector for word in words if (vector := self._vector(word)) is not None]
        if not found:
            shown = text if len(text) <= MAX_SHOWN_CHARACTERS else text[:MAX_SHOWN_CHARACTERS]
            raise UsageError(f"no word of the input {shown!r} has a vector in this model; leave it out")
        return _answer(np.stack(found).mean(0, dtype=np.float32), tokens=len(words))

    def _words(self, text: str) -> list[str]:
        if self._tokenizer is None:
            return text.split()
        if self._tokenizer.kind != "word":
            return self._tokenizer.pieces(text)
        # Not by the vocabulary, which has no word for those that are unknown but may have n-grams.
        return word_cutter(self._tokenizer.config.segmentation)(self._tokenizer.normaliser(text))

    def _known(self, ids: Sequence[int]) -> list[str]:
        unknown = [symbol for symbol in ids if symbol not in self._rows]
        if unknown:
            raise UsageError(f"the input has the id {str(unknown[0])[:20]}, which has no vector in this model")
        return [self._vectors.words[self._rows[symbol]] for symbol in ids]

    def _vector(self, word: str) -> Float32[np.ndarray, " width"] | None:
        if word not in self._vectors and self._vectors.subwords is None:
            return None
        try:
            return self._vectors.vector(word)
        except UsageError:  # it is too short to have n-grams
            return None


class EncoderActions:
    """Embeds texts with an encoder."""

    def __init__(self, encoder: Encoder) -> None:
        self._encoder = encoder

    def embed(
        self, groups: Groups, _options: Mapping[str, Any], _cancellation: GroupCancellation, _emit: Emit
    ) -> list[list[Any]]:
        """The same as `VectorActions.embed`. A text that is too long is refused, since it would be read in part."""
        ids = [self._ids(json.loads(text)) for group in groups for text in group]
        pairs = zip(self._encoder.encode_ids(ids), ids, strict=True)
        answers = iter([_answer(vector, tokens=len(each)) for vector, each in pairs])
        return [[next(answers) for _ in group] for group in groups]

    def _ids(self, text: str | list[int]) -> list[int]:
        encoder = self._encoder
        (ids,) = encoder.ids([text]) if isinstance(text, str) else [text]
        unknown = [symbol for symbol in ids if not 0 <= symbol < encoder.tokenizer.size]
        if unknown:
            raise UsageError(f"the input has the id {str(unknown[0])[:20]}, which this model does not have")
        if len(ids) > encoder.max_tokens:
            raise UsageError(f"the input has {len(ids):,} tokens; this model reads {encoder.max_tokens:,}: split it")
        return ids


def _answer(vector: Float32[np.ndarray, " width"], *, tokens: int) -> dict[str, Any]:
    data = base64.b64encode(vector.astype("<f4").tobytes()).decode("ascii")
    return {"vector": data, "tokens": tokens}


def open_encoder_actions(path: Path, overrides: Sequence[str] = ()) -> EncoderActions:
    """Open an encoder and run it once."""
    encoder = Encoder.load(path, device=device_of(overrides))
    encoder.encode(["Hello, world!"])
    return EncoderActions(encoder)


def open_vector_actions(path: Path) -> VectorActions:
    """Open the vectors of a model directory or a run, or a file of vectors."""
    if path.is_dir() or path.suffix == ".zip":
        loaded = load_any(path)
        assert isinstance(loaded.model, WordVectors)
        return VectorActions(loaded.model, loaded.tokenizers.target)
    return VectorActions(open_vectors(path))
