"""A small task for stacks of recurrent layers: the next character of the phrasebook's sentences.

    J = −1/N Σ_t log P(x_t | x_{<t})        in nats per character, on sentences that were never trained on

What the frequencies of the characters alone give is the floor of a network that has learnt nothing of their order.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom.core.seeds import seed_for
from seqloom.data.phrasebook import sample_sentences
from seqloom.nn.init import seeded, xavier_uniform
from seqloom.nn.recurrent import MakeCell, Stack, cells_of
from seqloom.nn.skips import Skip


@dataclass(frozen=True)
class CharacterText:
    """Characters as ids: a long line to train on, and windows of another to test with."""

    characters: str
    """The alphabet, in the order of the ids."""
    train: Int[Tensor, " length"]
    test: Int[Tensor, "windows steps"]

    def frequency_loss(self) -> float:
        """Nats per character of the test windows, if each were told from how often it occurs in the training line."""
        counts = torch.bincount(self.train, minlength=len(self.characters)).float() + 1
        return float(-(counts / counts.sum()).log()[self.test[:, 1:]].mean())


@dataclass(frozen=True)
class CharacterTraining:
    """What every model gets."""

    width: int = 32
    """Of the embeddings and of each layer."""
    steps: int = 24
    """Characters that the gradient goes back."""
    windows: int = 16
    """In a batch."""
    updates: int = 200
    """Of the weights, by Adam."""
    learning_rate: float = 0.005
    clip_norm: float = 1.0


class CharacterModel(nn.Module):
    """Embeddings, a stack of recurrent layers, and a linear layer that tells the next character."""

    def __init__(self, make: MakeCell, *, characters: int, width: int, layers: int, skip: Skip) -> None:
        super().__init__()
        self.embedding = nn.Embedding(characters, width)
        cells = cells_of(make, width, width=width, layers=layers, skip=skip)
        self.stack = Stack(cells, dropout_rate=0.0, skip=skip)
        self.tell = nn.Linear(width, characters)
        xavier_uniform(self.tell.weight)
        nn.init.zeros_(self.tell.bias)

    def forward(self, windows: Int[Tensor, "windows steps"]) -> Float[Tensor, ""]:
        """Nats per character after the first of each window."""
        hidden, _ = self.stack(self.embedding(windows[:, :-1]))
        return F.cross_entropy(self.tell(hidden).flatten(0, 1), windows[:, 1:].flatten())


def phrasebook_text(language: str = "de", *, sentences: int = 2000, windows: int = 64, seed: int) -> CharacterText:
    """Sentences of the phrasebook as characters. The test is cut into equal windows, what is left over is not used."""
    train = "\n".join(sample_sentences(language, count=sentences, seed=seed, split="train"))
    test = "\n".join(sample_sentences(language, count=windows, seed=seed, split="test"))
    characters = "".join(sorted({*train, *test}))
    number = {character: index for index, character in enumerate(characters)}
    ids = torch.tensor([number[character] for character in test])
    steps = len(ids) // windows
    return CharacterText(
        characters,
        torch.tensor([number[character] for character in train]),
        ids[: windows * steps].view(windows, steps),
    )


def train_characters(
    make: MakeCell,
    text: CharacterText,
    *,
    layers: int,
    skip: Skip,
    training: CharacterTraining,
    seed: int,
    every: int | None = None,
) -> dict[int, float]:
    """Test loss by updates made: after the last one, and after `every` so many. Equal seeds see equal windows."""
    with seeded(seed_for(seed, "character model")):
        model = CharacterModel(make, characters=len(text.characters), width=training.width, layers=layers, skip=skip)
    generator = torch.Generator().manual_seed(seed_for(seed, "character windows"))
    optimiser = torch.optim.Adam(model.parameters(), lr=training.learning_rate)
    offsets = torch.arange(training.steps + 1)
    losses = {}
    for update in range(1, training.updates + 1):
        first = torch.randint(len(text.train) - training.steps, (training.windows, 1), generator=generator)
        optimiser.zero_grad()
        model(text.train[first + offsets]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), training.clip_norm)
        optimiser.step()
        if update == training.updates or (every and update % every == 0):
            losses[update] = _test_loss(model, text)
    return losses


@torch.no_grad()
def _test_loss(model: CharacterModel, text: CharacterText) -> float:
    return float(model(text.test))
