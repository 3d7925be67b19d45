"""The promises of an encoder: files, saving, and vectors that depend on their own line only."""

import warnings
from collections.abc import Sequence
from functools import partial
from typing import cast

import numpy as np
from jaxtyping import Float32

from seqloom.apps.encoder import Encoder
from seqloom.core.errors import SeqloomWarning
from seqloom.runs.loading import Loaded, LoadedModel
from seqloom.selfcheck.files import check_saved
from seqloom.selfcheck.lines import CheckLines
from seqloom.selfcheck.promises import (
    TIE,
    Check,
    CheckResult,
    Figure,
    checks_of,
    counted,
    judged,
    shown,
    within,
)

TOKENS_PER_BATCH = 256
"""Tokens that are read together: some lines of different lengths."""


class EncoderChecks:
    """An encoder and the lines it is checked with; one of them is longer than the model reads."""

    def __init__(self, loaded: LoadedModel, lines: CheckLines) -> None:
        self.loaded, self.encoder = loaded, Encoder(loaded)
        self.lines = lines.with_hard_ones(self.encoder.tokenizer, limit=self.encoder.max_tokens)

    def checks(self) -> list[Check]:
        """All checks, in the order in which they are reported."""
        return checks_of(
            {
                "saved": partial(check_saved, self.loaded, self._outputs),
                "lines": partial(check_vectors, self.encoder, self.lines),
                "batch": partial(check_neighbours, self.encoder, self.lines),
            },
            reason="an encoder writes no text",
        )

    def _outputs(self, loaded: Loaded) -> list[object]:
        return list(map(tuple, encode(Encoder(cast("LoadedModel", loaded)), self.lines).tolist()))


def encode(encoder: Encoder, lines: Sequence[str]) -> Float32[np.ndarray, "lines width"]:
    """The vectors of lines, without the warning about those that are too long."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SeqloomWarning)
        return encoder.encode(lines, tokens_per_batch=TOKENS_PER_BATCH)


def check_vectors(encoder: Encoder, lines: Sequence[str]) -> CheckResult:
    """N lines in, N vectors out, in the order of the lines."""
    vectors, turned = encode(encoder, lines), encode(encoder, lines[::-1])[::-1]
    off = float(np.abs(vectors - turned).max())
    sentence = f"{counted(len(lines), 'line')} in, {len(vectors):,} vectors out; in reverse order {within(off)}"
    figures: dict[str, Figure] = {"in": len(lines), "out": len(vectors), "largest_difference": off}
    return judged(len(vectors) == len(lines) and off <= TIE, sentence, figures=figures)


def check_neighbours(encoder: Encoder, lines: Sequence[str]) -> CheckResult:
    """A line has the same vector alone and among others."""
    together = encode(encoder, lines)
    alone = np.concatenate([encode(encoder, [line]) for line in lines])
    apart = np.abs(together - alone).max(1)
    at = int(apart.argmax())
    off = float(apart[at])
    sentence = f"vectors of {counted(len(lines), 'line')} alone and side by side, {within(off)}"
    worst = f"{shown(lines[at])}: a number of its vector differs by {off:.1e}"
    return judged(off <= TIE, sentence, figures={"lines": len(lines), "largest_difference": off}, worst=worst)
