"""Models of frames: parity with torch's layers, what padding changes, lengths, and learning to read."""

from typing import Any

import numpy as np
import pytest
import torch

from seqloom.core.declaration import FrameFacts
from seqloom.core.errors import ConfigError
from seqloom.data.frames import finished, stroke_frames
from seqloom.data.handwriting import FONT, draw_style, write
from seqloom.models.ctc import CtcConfig
from seqloom.nn.ctc import ctc_loss
from seqloom.nn.embeddings import Symbols
from seqloom.search.ctc import greedy_ctc_search, greedy_labellings
from seqloom.tasks.transcription import pad_frames

SYMBOLS = Symbols(9, 9, is_shared=True)


def config(**settings: Any) -> CtcConfig:
    return CtcConfig(**{"features": 5, "width": 8, "dropout_rate": 0.0, **settings})


def test_scores_are_those_of_a_stacked_lstm_of_torch() -> None:
    ours = config(stride=3, layers=2).build(SYMBOLS, seed=1).double().eval()
    theirs = torch.nn.LSTM(15, 8, 2, bidirectional=True, batch_first=True, dtype=torch.float64)
    layers = ours.encoder.layers
    for number in range(2):
        for end, cell in (("", layers.rightward[number]), ("_reverse", layers.leftward[number])):
            for name, part in (("ih", cell.from_input), ("hh", cell.from_state)):
                for kind in ("weight", "bias"):
                    own = getattr(part, kind, None)
                    their = getattr(theirs, f"{kind}_{name}_l{number}{end}")
                    their.data.copy_(torch.zeros_like(their) if own is None else own.data)
    frames = torch.randn(2, 10, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    scores, lengths = ours.frame_scores(frames, torch.tensor([10, 10]))

    def expected(shift: int) -> torch.Tensor:
        filled = torch.nn.functional.pad(frames, (0, 0, shift, 2 - shift)).view(2, 4, 15)
        return ours.output(theirs(filled)[0])

    assert lengths.tolist() == [4, 4]
    torch.testing.assert_close(scores, expected(0), rtol=0, atol=1e-10)
    assert (scores - expected(1)).abs().max() > 1e-3


@pytest.mark.parametrize("stride", [1, 3])
@pytest.mark.parametrize(
    "chosen",
    [
        {"cell": "lstm"},
        {"cell": "gru", "bidirectional": False},
        {"subsampling": "convolution", "cell": "rnn"},
        {"subsampling": "planes", "channels": 3},
        {"encoder": "transformer", "heads": 2, "feed_forward": 16},
    ],
)
def test_neighbours_and_padding_change_nothing(chosen: dict[str, Any], stride: int) -> None:
    lengths, settings = [1, 7, 12, 6], config(stride=stride, **chosen)
    model = settings.build(SYMBOLS, seed=3).double().eval()
    frames = torch.randn(len(lengths), max(lengths) + 2, 5, dtype=torch.float64)  # padding holds any numbers
    scores, shorter = model.frame_scores(frames, torch.tensor(lengths))
    assert shorter.tolist() == [settings.frames_left(length) for length in lengths]
    for row, length in enumerate(lengths):
        alone, count = model.frame_scores(frames[row : row + 1, :length], torch.tensor([length]))
        torch.testing.assert_close(scores[row, : int(count)], alone[0], rtol=0, atol=1e-10)
    fast = greedy_labellings(scores, shorter)
    assert fast == [found.symbols for found in greedy_ctc_search(scores, shorter)]


def test_sizes_follow_the_frames_of_a_symbol() -> None:
    facts = FrameFacts(samples=1_000, frames=200_000, symbols=8_000, features=40, least_per_symbol=9.0)
    assert config().sizes_for_frames(facts).settings["stride"] == 3
    dense = FrameFacts(samples=1_000, frames=200_000, symbols=20_000, features=40, least_per_symbol=2.2)
    assert config().sizes_for_frames(dense).settings["stride"] == 2
    with pytest.raises(ConfigError, match="heads"):
        config(encoder="transformer", width=10, heads=4)


def test_handwriting_of_a_style_that_was_not_seen_is_read() -> None:
    """A tiny model learns three letters from some styles, in a few seconds."""
    random, letters = np.random.default_rng(1), "lox"

    def samples(styles: range, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        texts = random.integers(0, 3, (count, 3))
        written = [
            write("".join(letters[each] for each in text), draw_style(styles[place % len(styles)]), random)
            for place, text in enumerate(texts)
        ]
        frames = [finished(stroke_frames(each, spacing=0.2), "strokes") for each in written]
        return *pad_frames(frames), torch.from_numpy(texts) + 4

    model = CtcConfig(features=4, width=24, layers=1, stride=2, dropout_rate=0.0).build(SYMBOLS, seed=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    frames, lengths, targets = samples(range(20), 120)
    counts = torch.full((120,), 3)
    for step in range(60):
        some = torch.arange(step % 3, 120, 3)
        scores, left = model.frame_scores(frames[some], lengths[some])
        loss = ctc_loss(scores, left, targets=targets[some], target_lengths=counts[some])
        optimiser.zero_grad()
        (loss.total / loss.count).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
    frames, lengths, targets = samples(range(100, 120), 60)
    found = greedy_labellings(*model.eval().frame_scores(frames, lengths))
    assert sum(one == tuple(other) for one, other in zip(found, targets.tolist(), strict=True)) >= 48


def test_every_glyph_can_be_written() -> None:
    random = np.random.default_rng(1)
    for letter in FONT:
        frames = stroke_frames(write(letter, draw_style(3), random), spacing=0.1)
        assert len(frames) >= 2
        assert np.isfinite(frames).all()
