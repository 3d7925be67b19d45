"""What the tests of bad files share: small texts, models that have learnt nothing, and commands on files of bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cli.calling import Called, call
from seqloom.core.config import resolve
from seqloom.core.events import Event
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.transformer import TransformerConfig
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import build_model
from seqloom.runs.model_dir import Card, save_model
from seqloom.runs.prepare import choose_config, prepare_run
from seqloom.text.tokenizer import Tokenizers
from seqloom.text.tokenizer_training import train_tokenizer
from seqloom.training.weights import weights_of

COUNT = 12
ENGLISH = [f"The dog is in house {n} and the cat of the man was not with it." for n in range(COUNT)]
GERMAN = [f"Der Hund ist in Haus {n} und die Katze von dem Mann war nicht bei ihm." for n in range(COUNT)]

TRANSLATOR = (
    "model.width=8",
    "model.heads=2",
    "model.feed_forward=8",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "search.beam=1",
    "search.length_factor=0.02",
    "search.length_constant=2",
    "text.size=300",
    "data.source=en",
    "data.target=de",
)
LANGUAGE_MODEL = ("model.kind=rnn_lm", "model.width=8", "model.layers=1", "text.size=300")


def as_bytes(lines: Sequence[str]) -> bytes:
    """Lines as a file holds them."""
    return "".join(f"{line}\n" for line in lines).encode()


def write_model(folder: Path, settings: Sequence[str]) -> Path:
    """A model of the small texts with fresh weights."""
    config = resolve(RunConfig, overrides=settings)
    tokenizer = train_tokenizer([*ENGLISH, *GERMAN], config.text)
    tokenizers = Tokenizers(tokenizer, tokenizer)
    assert isinstance(config.model, TransformerConfig | RnnLmConfig)
    weights = weights_of(build_model(config.model, tokenizers, seed=1))
    card = Card(config.data.source, config.data.target, parameters=1)
    save_model(folder, config, tokenizers=tokenizers, weights=weights, card=card)
    return folder


@dataclass(frozen=True)
class Bench:
    """A folder for files, and models that are ready."""

    folder: Path
    translator: Path
    language_model: Path

    def write(self, files: Mapping[str, bytes]) -> None:
        for name, content in files.items():
            (self.folder / name).write_bytes(content)

    def call(self, *words: object) -> Called:
        """A command whose words MODEL and LM stand for the models, and that finds files in the folder."""
        models = {"MODEL": self.translator, "LM": self.language_model}
        return call(*(self._placed(models.get(str(word), word)) for word in words))

    def _placed(self, word: object) -> object:
        path = self.folder / str(word)
        is_name = "." in str(word) and "=" not in str(word) and "," not in str(word)
        return path if is_name and not str(word).startswith(("-", "/")) else word

    def train(self, *words: object) -> Called:
        return self.call("train", *words, "--out", self.folder / "run", *TRANSLATOR[:5])


@dataclass(frozen=True)
class Prepared:
    """What was said while a run was prepared, and what became of the text."""

    said: tuple[str, ...]
    events: tuple[Event, ...]

    def has(self, *parts: str) -> bool:
        """Whether one sentence holds all of these."""
        return any(all(part in sentence for part in parts) for sentence in self.said)

    def encoded(self, name: str = "train") -> Mapping[str, Any]:
        (found,) = (event.values for event in self.events if event.kind == "encoded" and event["name"] == name)
        return found

    @property
    def overview(self) -> Mapping[str, Any]:
        (found,) = (event.values for event in self.events if event.kind == "overview")
        return found


def prepare(folder: Path, source: Sequence[str] | bytes, target: Sequence[str] | bytes, *overrides: str) -> Prepared:
    """All that training does before the first step, with dev files that nothing is wrong with."""
    events: list[Event] = []
    names: dict[str, list[str]] = {"train": [], "dev": []}
    for split, sides in (("train", (source, target)), ("dev", (ENGLISH, GERMAN))):
        for language, side in zip(("en", "de"), sides, strict=True):
            path = folder / f"{split}.{language}"
            path.write_bytes(side if isinstance(side, bytes) else as_bytes(side))
            names[split].append(str(path))
    settings = [*TRANSLATOR[:5], "text.size=300", *overrides]
    config = choose_config(None, settings, train=names["train"], dev=names["dev"], listener=events.append)
    prepare_run(folder / "run", config, listener=events.append)
    said = tuple(str(event["message"]) for event in events if event.kind == "notice")
    return Prepared(said, tuple(events))
