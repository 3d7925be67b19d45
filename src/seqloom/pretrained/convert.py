"""From a published folder to the parts of a model of ours: settings, tokenisers and tensors, one after another."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.pretrained.decoder_only import FAMILIES as DECODERS
from seqloom.pretrained.encoder_decoder import FAMILIES as ENCODER_DECODERS
from seqloom.pretrained.encoder_only import FAMILIES as ENCODERS
from seqloom.pretrained.encoder_only import SentenceModules
from seqloom.pretrained.families import Conversion, Family
from seqloom.pretrained.folder import PublishedFolder
from seqloom.pretrained.generation import search_settings
from seqloom.pretrained.mapping import NamedTensors, Side, StoredTensors, TensorMap, imported, imported_shape
from seqloom.pretrained.renumbering import Renumbering
from seqloom.pretrained.t5 import FAMILIES as T5
from seqloom.pretrained.tokenizers import ForeignText, read_tokenizers
from seqloom.pretrained.weights import WeightFiles

FAMILIES: Sequence[Family] = (*ENCODER_DECODERS, *T5, *ENCODERS, *DECODERS)
"""Every family that is read. A new one is a file here and a word in this list."""

MAX_FRAME = 2
"""Symbols around a source: a language, for example."""

FINE_TUNING_RATE = 2.5e-4
"""The learning rate that fine-tuning divides by five: 5e-5 is what published models are usually adapted with."""


def family_of(config: Mapping[str, Any]) -> Family:
    """The family of a config.json."""
    named = config.get("model_type")
    for family in FAMILIES:
        if family.model_type == named:
            classes = config.get("architectures") or family.architectures[:1]
            if not isinstance(classes, list | tuple) or not set(map(str, classes)) & set(family.architectures):
                raise ModelError(
                    f"config.json names the architecture {str(classes)[:60]}, and of {named} these are read: "
                    f"{', '.join(family.architectures)}"
                )
            return family
    known = ", ".join(family.model_type for family in FAMILIES)
    raise ModelError(f"config.json has model_type={str(named)[:40]!r}, which is not supported; known: {known}")


@dataclass(frozen=True)
class ConvertedTensor:
    """A tensor of ours that is made when it is written."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    make: Callable[[], Tensor]


@dataclass(frozen=True)
class PublishedModel:
    """A published model in our terms."""

    folder: PublishedFolder
    family: Family
    conversion: Conversion
    text: ForeignText
    settings: Mapping[str, Any]
    """The settings of a run, as far as the folder decides them."""
    stored: NamedTensors
    parts: tuple[str, ...] = ()
    """Folders of the parts of a sentence encoder."""

    @staticmethod
    def open(path: Path) -> "PublishedModel":
        """Read everything but the weights themselves."""
        modules = SentenceModules.read(path)
        home = path if modules is None else modules.transformer
        folder = PublishedFolder.open(home)
        family = family_of(folder.config)
        stored: NamedTensors = Renamed(WeightFiles.open(home), family.rename)
        conversion = family.read(folder.config, stored)
        if modules is not None:
            conversion, stored = modules.extend(conversion, stored, root=path)
        text = read_tokenizers(
            home,
            model_type=family.model_type,
            config=folder.config,
            roles=conversion.roles if family.roles is None else family.roles(home, conversion.roles),
            symbols=conversion.symbols,
            source_symbols=conversion.source_symbols,
        )
        parts = () if modules is None else modules.names
        found = PublishedModel(folder, family, conversion, text, _settings(folder, conversion, text), stored, parts)
        found.check_names()
        return found

    @property
    def numbers(self) -> dict[Side, Renumbering]:
        return {"source": self.text.source, "target": self.text.target}

    def tensors(self, wanted: Mapping[str, tuple[int, ...]]) -> Iterator[ConvertedTensor]:
        """Our tensors, which must be those that are `wanted`, by their shapes; none is read before it is made."""
        maps = {each.ours: each for each in self.conversion.tensors}
        if set(maps) != set(wanted):
            differing = sorted(set(maps) ^ set(wanted))
            raise ModelError(f"{self.folder.path} cannot be converted: no counterpart for {_some(differing)}")
        for name, shape in wanted.items():
            self._check(maps[name], shape)
            yield ConvertedTensor(name, shape, self.stored.dtype(maps[name].theirs[0]), self._maker(maps[name]))

    def check_names(self) -> None:
        """Refuse weights that lack a tensor, or hold one that is not known: before the model is built."""
        path, used = self.folder.path, {name for each in self.conversion.tensors for name in each.theirs}
        if missing := sorted(used - set(self.stored.names)):
            raise ModelError(f"the weights in {path} lack {_some(missing)}; download the folder again")
        ignored = [re.compile(pattern) for pattern in self.conversion.ignored]
        unknown = [
            name for name in self.stored.names if name not in used and not any(each.fullmatch(name) for each in ignored)
        ]
        if unknown:
            raise ModelError(
                f"the weights in {path} hold {_some(unknown)}, which a model of type {self.family.model_type} does not "
                "have; it may be of another architecture"
            )

    def _check(self, map: TensorMap, shape: tuple[int, ...]) -> None:
        """Refuse tensors of other shapes or types before any is read."""
        named = _some(map.theirs)
        if imported_shape(map, self.stored.shape, self.numbers) != shape:
            found = " and ".join(str(self.stored.shape(name)) for name in map.theirs)
            raise ModelError(
                f"{named} in {self.folder.path}: shape {found} in the file, but the settings need {shape} in all; the "
                "weights belong to another config.json"
            )
        types = {self.stored.dtype(name) for name in map.theirs}
        if len(types) > 1 or not all(each.is_floating_point for each in types):
            found = ", ".join(sorted(str(each).removeprefix("torch.") for each in types))
            raise ModelError(
                f"{named} in {self.folder.path}: type {found}; weights of one floating-point type are needed"
            )

    def _maker(self, map: TensorMap) -> Callable[[], Tensor]:
        return lambda: imported(map, self.stored.tensor, self.numbers)


@dataclass(frozen=True)
class Renamed:
    """Stored tensors under today's names."""

    stored: StoredTensors
    rename: Callable[[str], str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._originals)

    @cached_property
    def _originals(self) -> dict[str, str]:
        found: dict[str, str] = {}
        for name in self.stored.names:
            if (other := found.setdefault(self.rename(name), name)) != name:
                raise ModelError(f"the weights hold one tensor under two names, {other} and {name}")
        return found

    def original(self, name: str) -> str:
        return self._originals[name]

    def shape(self, name: str) -> tuple[int, ...]:
        return self.stored.shape(self._originals[name])

    def dtype(self, name: str) -> torch.dtype:
        return self.stored.dtype(self._originals[name])

    def tensor(self, name: str) -> Tensor:
        return self.stored.tensor(self._originals[name])


def _settings(folder: PublishedFolder, conversion: Conversion, text: ForeignText) -> dict[str, Any]:
    ours = text.target.ours
    model = conversion.model.model_dump(mode="json")
    if conversion.model.purpose == "encoder":  # which reads BEGIN X END and writes nothing
        data = {"longest": max(2, (conversion.max_positions or 0) - MAX_FRAME)}
        return {"text": text.tokenizers.target.config.model_dump(mode="json"), "data": data, "model": model}
    source, target = folder.languages
    model["absent"] = list(text.target.absent)
    model["frame"] = _frame(folder, conversion, text)
    if "extra_ends" in model:
        model["extra_ends"] = [int(ours[number]) for number in _extra_ends(folder, conversion)]
    longest = conversion.max_positions
    search = search_settings(
        folder.generation,
        folder.config,
        renumber=lambda number: int(ours[number]),
        begins=max(1, len(conversion.begins_with)),
        positions=longest,
    )
    return {
        "text": {**text.tokenizers.target.config.model_dump(mode="json"), "shared": text.tokenizers.is_shared},
        "data": {
            "source": source,
            "target": target,
            **({} if longest is None else {"longest": max(2, longest - MAX_FRAME)}),
        },
        "model": model,
        "search": search,
        "training": {"learning_rate": FINE_TUNING_RATE},
    }


def _extra_ends(folder: PublishedFolder, conversion: Conversion) -> list[int]:
    """Foreign symbols that end a text, besides the first: generation_config.json may name more than config.json."""
    named = folder.generation.get("eos_token_id")
    more = named if isinstance(named, list) else [named]
    known = [number for number in more if type(number) is int and 0 <= number < conversion.symbols]
    return list(dict.fromkeys(each for each in (*conversion.roles.extra_ends, *known) if each != conversion.roles.end))


def _frame(folder: PublishedFolder, conversion: Conversion, text: ForeignText) -> dict[str, Any]:
    """What is read around texts, by our ids."""
    begin = [int(text.target.ours[each]) for each in conversion.begins_with if each != "language"]
    scheme = conversion.language_scheme
    if scheme == "none" and text.languages:
        scheme = "named_in_source"
    if scheme == "before" and folder.tokenizer.get("legacy_behaviour") is True:
        scheme = "after"
    if scheme == "none" and conversion.instructions:
        encode = text.tokenizers.source.encode
        instructions = {pair: encode(words.strip()) for pair, words in conversion.instructions.items()}
        return {"target_before": begin, "scheme": "instructions", "instructions": instructions}
    if scheme == "none":
        return {"target_before": begin}
    chosen = [each if each in text.languages else None for each in folder.languages]
    return {
        "target_before": begin,
        "scheme": scheme,
        "languages": dict(text.languages),
        "source": chosen[0],
        "target": chosen[1],
    }


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"
