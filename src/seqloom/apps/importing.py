"""A published model as a model directory: `seqloom import`."""

import time
from dataclasses import dataclass
from pathlib import Path

from seqloom.core.declaration import Purpose
from seqloom.core.errors import UsageError
from seqloom.core.events import Event, Listener, ignore
from seqloom.core.files import require_new
from seqloom.models.frames import FrameConfig
from seqloom.pretrained.folder import is_published
from seqloom.runs.importing import import_published
from seqloom.runs.model_dir import read_card
from seqloom.text.tokenizer import Tokenizers


@dataclass(frozen=True)
class ImportedModel:
    """A model directory that was written."""

    path: Path
    model_type: str
    """The family, as the folder names it."""
    purpose: Purpose
    kind: str
    """The kind of our model."""
    parameters: int
    dtypes: tuple[str, ...]
    """Types of the stored numbers."""
    source: str | None
    target: str | None
    languages: tuple[str, ...]
    """The languages of a model of several."""
    vocabularies: tuple[int, ...]
    """Symbols that it reads and writes; one number if these are the same."""
    longest: int
    """Tokens of a text up to which it is used as a whole."""
    bytes: int


def import_model(published: Path, out: Path, *, listener: Listener = ignore) -> ImportedModel:
    """Write a folder in the layout of the Hugging Face hub as a model directory; whole or not at all."""
    require_new(out)
    if not published.is_dir():
        raise UsageError(f"{published}: folder not found; download one with config.json and weights first")
    if not is_published(published):
        is_ours = (published / "model.json").is_file() or (published / "model" / "model.json").is_file()
        remedy = "it is a model of Seqloom already" if is_ours else "config.json with a model_type is missing"
        raise UsageError(f"{published} is not a folder of the Hugging Face hub: {remedy}")
    config = import_published(published, out, progress=_Remaining(listener))
    card, tokenizers = read_card(out), Tokenizers.load(out / "text")
    facts = card.trained_on["imported"]
    frame = getattr(config.model, "frame", FrameConfig())
    sizes = (tokenizers.source.size, tokenizers.target.size)
    return ImportedModel(
        path=out,
        model_type=facts["model_type"],
        purpose=config.purpose,
        kind=config.model.kind,
        parameters=card.parameters,
        dtypes=tuple(facts["dtypes"]),
        source=card.source,
        target=card.target,
        languages=tuple(frame.languages),
        vocabularies=sizes if sizes[0] != sizes[1] else sizes[:1],
        longest=config.data.longest,
        bytes=sum(file.stat().st_size for file in out.rglob("*") if file.is_file()),
    )


class _Remaining:
    """Reports how many numbers were written, and the time that the rest will take."""

    def __init__(self, listener: Listener) -> None:
        self._listener, self._began = listener, time.monotonic()

    def __call__(self, done: int, everything: int) -> None:
        left = (time.monotonic() - self._began) * (everything - done) / max(1, done)
        self._listener(Event("progress", {"what": "parameters", "done": done, "all": everything, "left": left}))
