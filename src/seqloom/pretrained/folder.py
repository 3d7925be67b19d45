"""A folder as it is published: config.json, weights, tokeniser files. Nothing in it is ever run or written to."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from seqloom.core.errors import ModelError
from seqloom.core.files import read_json

MAX_CONFIG_BYTES = 4 << 20
"""Bytes of a settings file."""

MAX_KEPT_BYTES = 200 << 20
"""Bytes of all small files that a model keeps, tokenisers among them."""

MODULES = "modules.json"
"""The list of parts of a sentence encoder, which are in folders of their own."""

KEPT_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "target_vocab.json",
    "vocab.txt",
    "merges.txt",
    "source.spm",
    "target.spm",
    "spiece.model",
    "sentencepiece.bpe.model",
    MODULES,
    "sentence_bert_config.json",
    "sentence_roberta_config.json",
    "sentence_xlm-roberta_config.json",
    "config_sentence_transformers.json",
)
"""Files besides the weights that an export writes again."""


@dataclass(frozen=True)
class PublishedFolder:
    """The settings files of a folder."""

    path: Path
    config: Mapping[str, Any]
    generation: Mapping[str, Any]
    """generation_config.json; empty if there is none."""
    tokenizer: Mapping[str, Any]
    """tokenizer_config.json; empty if there is none."""

    @staticmethod
    def open(path: Path) -> "PublishedFolder":
        """Read the settings of a folder; what asks for foreign code is refused."""
        found = {name: _optional(path / f"{name}.json") for name in ("generation_config", "tokenizer_config")}
        config = read_settings_file(path / "config.json")
        for name, values in {"config": config, **found}.items():
            if "auto_map" in values:
                raise ModelError(
                    f"{path / name}.json has auto_map: this model needs code that its publisher wrote, which is not run"
                )
        if "quantization_config" in config:
            raise ModelError(
                f"{path} holds quantised weights, which are not supported; use the original weights, and "
                "search.precision=int8"
            )
        return PublishedFolder(path, config, found["generation_config"], found["tokenizer_config"])

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The languages that it translates between, as its tokeniser or its own name says; None if neither does."""
        named = (self.tokenizer.get("source_lang"), self.tokenizer.get("target_lang"))
        source, target = (each if isinstance(each, str) and 0 < len(each) <= 20 else None for each in named)
        origin = self.config.get("_name_or_path")
        for text in (self.path.resolve().name, origin if isinstance(origin, str) else ""):
            match = re.search(r"opus-mt(?:-tc[-\w]*?)?-([a-z]{2,3})[-_]([a-z]{2,3})(?![a-z])", text)
            if match and not (source and target):
                source, target = match.groups()
        return source, target


def is_published(folder: Path) -> bool:
    """Whether a folder holds a model in the layout of the Hugging Face hub."""
    path = folder / "config.json"
    if (folder / "model.json").exists():
        return False
    if not path.is_file():
        return (folder / MODULES).is_file()
    try:
        found = read_json(path, largest=MAX_CONFIG_BYTES)
    except (OSError, ValueError):
        return True  # which `open` explains
    return not isinstance(found, dict) or "model_type" in found or "architectures" in found


def read_settings_file(path: Path, *, largest: int = MAX_CONFIG_BYTES) -> dict[str, Any]:
    """The table in a JSON file of at most so many bytes."""
    if path.exists() and not path.is_file():  # reading from a pipe would not end
        raise ModelError(f"{path} is not a file; download the folder again")
    try:
        found = read_json(path, largest=largest)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}; download the folder again") from error
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON: {error}; download the folder again") from error
    if not isinstance(found, dict):
        raise ModelError(f"{path} is not a table of settings; download the folder again")
    return found


def _optional(path: Path) -> dict[str, Any]:
    return read_settings_file(path) if path.is_file() else {}


def kept_files(folder: Path, parts: Sequence[str] = ()) -> dict[str, Path]:
    """The small files that an import keeps, by name; those of the parts of a sentence encoder by part and name."""
    names = [*KEPT_FILES, *(f"{part}/{name}" for part in parts for name in KEPT_FILES)]
    found = {name: folder / name for name in names if (folder / name).is_file()}
    if (size := sum(path.stat().st_size for path in found.values())) > MAX_KEPT_BYTES:
        raise ModelError(f"{folder} has {size:,} bytes of tokeniser files; the limit is {MAX_KEPT_BYTES:,}")
    return found


def version_of(folder: Path) -> Hashable:
    """Changes when a file of the folder does."""
    parts = folder.glob("*/*") if (folder / MODULES).is_file() else ()
    files = sorted(path for path in (*folder.iterdir(), *parts) if path.is_file())
    return tuple((str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in files)
