"""The attention decoder over frames: laws of stepping, what padding changes, and its loss."""

from dataclasses import dataclass

import pytest
import torch
from jaxtyping import Int
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.stepping import Source, State, Step
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.listener import Listener, ListenerConfig, ListenerStepper
from seqloom.nn.embeddings import Symbols
from seqloom.tasks.transcription import frame_search

SYMBOLS = 9


def listener(**settings: object) -> Listener:
    values = {"features": 5, "width": 6, "layers": 1, "stride": 2, "heads": 2, "feed_forward": 12, **settings}
    return ListenerConfig.model_validate(values).build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=4).double()


TABLE = torch.randn(SYMBOLS, 6, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
"""Six frames of five features for each id, so that a source of ids stands for frames."""


@dataclass
class OfIds:
    """Listens to the frames of a source."""

    model: Listener
    begin = BEGIN
    end = END

    def start(self, source: Source) -> State:
        frames = TABLE[source.ids].flatten(1, 2)  # [batch, 6 · source, 5]
        return ListenerStepper(self.model, self.model.remember(frames, 6 * source.lengths)).start(source)

    def step(self, state: State, last: Int[Tensor, " rows"]) -> Step:
        return ListenerStepper(self.model, self.model.remember(TABLE[:1, :], torch.tensor([6]))).step(state, last)


@pytest.mark.parametrize("settings", [{"decoder_layers": 2}, {"encoder": "transformer", "subsampling": "planes"}])
def test_stepping_laws(settings: dict[str, object]) -> None:
    model = listener(**settings).eval()

    def forward(source: Source, prefix: Tensor) -> Tensor:
        memory = model.remember(TABLE[source.ids].flatten(1, 2), 6 * source.lengths)
        steps = prefix.shape[1]
        features = model(memory, prefix, torch.full_like(source.lengths, steps))
        return model.output.log_probs(features).unflatten(0, (len(prefix), steps))

    check_stepper_laws(lambda: OfIds(model), SYMBOLS, target_symbols=SYMBOLS, teacher_forced=forward)


def test_neither_padding_nor_neighbours_change_a_step_and_reserved_symbols_are_never_written() -> None:
    model, lengths = listener().eval(), torch.tensor([12, 5, 9])
    frames = torch.randn(3, 14, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    stepper, source = frame_search(model, model.remember(frames, lengths))
    begins = torch.full((3,), BEGIN)
    together = stepper.step(stepper.start(source), begins).log_probs
    assert bool((together[:, [PAD, BEGIN]] == -torch.inf).all())
    torch.testing.assert_close(together.logsumexp(1), torch.zeros(3, dtype=torch.float64), rtol=0, atol=1e-12)
    for row, length in enumerate(lengths.tolist()):
        stepper, source = frame_search(model, model.remember(frames[row : row + 1, :length], lengths[row : row + 1]))
        alone = stepper.step(stepper.start(source), begins[:1]).log_probs
        torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)
