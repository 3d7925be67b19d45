"""Which way the steps of a decoder go: by compiled loops or by products."""

import pytest

from seqloom.nn.fast import beam_attention


def use_loops(monkeypatch: pytest.MonkeyPatch, *, fewest: int) -> None:
    """From so many rows on."""
    monkeypatch.setattr(beam_attention, "MIN_ROWS", fewest)
