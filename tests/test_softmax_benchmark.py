"""The benchmark of objectives: its contestants learn from the same batches, and its claims are those of its rounds."""

import argparse
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"
sys.path[:0] = [str(BENCHMARKS)]

import softmax  # noqa: E402
import softmax_quality  # noqa: E402
from seqloom.core.errors import UsageError  # noqa: E402

TINY = softmax.Extent(symbols=60, width=4, rows=2, time=3, samples=5)


def test_each_contestant_learns_and_moves_the_rows_it_says() -> None:
    text = softmax.batches(TINY, number=2)
    assert [tuple(batch.shape) for batch in text] == [(2, 4), (2, 4)]
    assert min(int(batch.min()) for batch in text) >= len(softmax.RESERVED)
    contestants = softmax.line_up(TINY, is_quick=False)
    assert len({each.name for each in contestants}) == 7
    for each in contestants:
        before = each.model.embedding.weight.detach().clone()
        first = each.step(text[0])
        each.step(text[0])
        assert np.isfinite(first)
        moved = int((each.model.embedding.weight != before).any(1).sum())
        assert moved > 0
        assert not each.has_row_updates or moved < TINY.symbols
        # Every score of a full softmax has its share in the gradient of the one table.
        assert each.name != softmax.FULL or moved == TINY.symbols
    losses = [contestants[0].step(text[0]) for _ in range(40)]
    assert losses[-1] < losses[0]


def test_rounds_become_a_table_and_claims(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(softmax, "Extent", lambda **given: softmax_extent(**given))
    monkeypatch.setattr(softmax, "keep_freed_memory", lambda: True)
    monkeypatch.setattr(softmax.gc, "collect", lambda: 0)  # all that other tests have imported is gone through there
    given = argparse.Namespace(threads=torch.get_num_threads(), symbols=60, samples=5, quick=True, pairs=7)
    claims = softmax.compare(given)
    assert [each.goal for each in claims] == [5.0, 5.0]
    assert claims[0].about == "sampled softmax training step vs full softmax, 60 symbols"
    out = capsys.readouterr().out
    assert "| full softmax | all rows |" in out
    assert "| NCE | touched rows |" in out


def softmax_extent(*, symbols: int, samples: int) -> object:
    return type(TINY)(symbols=symbols, width=4, rows=2, time=3, samples=samples)


def test_the_comparison_of_quality_says_which_data_it_misses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SEQLOOM_DATA", str(tmp_path))
    with pytest.raises(UsageError, match=r"has no wikitext-2/train\.txt\.gz"):
        softmax_quality.texts()


def test_the_comparison_of_quality_trains_every_objective_alike() -> None:
    settings = softmax_quality.objectives(64)
    assert list(settings)[:3] == [softmax_quality.FULL, *softmax_quality.GOALS]
    assert "task.objective.samples=64" in settings["NCE"]
