"""How a published model became one of ours, kept in its directory: an export goes back by it, also after fine-tuning.

conversion.json   which of their tensors each of ours is made of, and which foreign id each of our symbols has
unused/           tensors that we do not use, as they were: heads, masks, tables that are computed
"""

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqloom.core.config import Config
from seqloom.core.errors import ModelError
from seqloom.core.files import write_atomically
from seqloom.core.symbols import RESERVED
from seqloom.pretrained.families import MAX_SYMBOLS, Conversion
from seqloom.pretrained.mapping import NamedTensors, Side, StoredTensors, TensorMap, exported
from seqloom.pretrained.renumbering import NONE, Renumbering
from seqloom.pretrained.weights import SAFETENSORS, WeightFiles, WrittenTensor, write_safetensors

RECORD = "conversion.json"
UNUSED = "unused"

Name = Annotated[str, Field(min_length=1, max_length=500)]
PublishedName = Annotated[str, Field(pattern=r"^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63}/)?[^/]{1,500}$")]
"""As in the file; of a file in a folder below, after that folder and a slash."""


class RecordedTensor(Config):
    """A `TensorMap`, and the lengths of their parts along our first axis."""

    ours: Name
    theirs: tuple[PublishedName, ...]
    rows: tuple[Annotated[int, Field(ge=0)], ...]
    is_transposed: bool = False
    vocabulary: Literal["source", "target"] | None = None
    is_flat: bool = False

    @property
    def map(self) -> TensorMap:
        return TensorMap(self.ours, self.theirs, self.is_transposed, self.vocabulary, self.is_flat)


class RecordedSymbols(Config):
    """A renumbering: the foreign ids of our reserved symbols; the others follow in their own order."""

    reserved: tuple[Annotated[int, Field(ge=NONE, lt=MAX_SYMBOLS)], ...]
    symbols: int = Field(ge=1, le=MAX_SYMBOLS)

    @model_validator(mode="after")
    def _are_symbols(self) -> "RecordedSymbols":
        present = [number for number in self.reserved if number != NONE]
        if len(self.reserved) != len(RESERVED) or len(set(present)) < len(present) or max(present) >= self.symbols:
            raise ValueError(f"reserved symbols {list(self.reserved)} of {self.symbols:,}")
        return self

    @property
    def renumbering(self) -> Renumbering:
        taken = set(self.reserved)
        return Renumbering((*self.reserved, *(number for number in range(self.symbols) if number not in taken)))


class ConversionRecord(Config):
    """Everything that leads back to the published tensors."""

    format: Literal[1] = 1
    model_type: Name
    source: RecordedSymbols
    target: RecordedSymbols
    tensors: tuple[RecordedTensor, ...]
    copies: dict[PublishedName, PublishedName]
    """Tensors that the folder holds under a second name."""

    @staticmethod
    def of(
        conversion: Conversion, stored: NamedTensors, numbers: Mapping[Side, Renumbering], *, model_type: str
    ) -> "ConversionRecord":
        """The record of a conversion of these tensors."""
        recorded = tuple(_recorded(each, stored) for each in conversion.tensors)
        used = sorted({name for each in conversion.tensors for name in each.theirs})
        copies: dict[str, str] = {}
        for name in set(stored.names).difference(used):
            same = next((other for other in used if _are_equal(stored, name, other)), None)
            copies |= {} if same is None else {stored.original(name): stored.original(same)}
        sides = {side: _symbols(numbers[side]) for side in ("source", "target")}
        return ConversionRecord(
            model_type=model_type, source=sides["source"], target=sides["target"], tensors=recorded, copies=copies
        )

    @staticmethod
    def read(folder: Path) -> "ConversionRecord":
        """From the folder in which `write` put it."""
        path = folder / RECORD
        try:
            return ConversionRecord.model_validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(f"{path} is not the record of an import: {reason}; import the model again") from error

    def write(self, folder: Path, stored: NamedTensors) -> None:
        """Into an existing folder, with the tensors that we do not use."""
        write_atomically(folder / RECORD, self.model_dump_json(exclude_defaults=True) + "\n")
        used = {name for each in self.tensors for name in each.theirs}
        originals = {stored.original(name): name for name in stored.names}
        unused = [
            (original, *_as_stored(stored, name)[1:])
            for original, name in originals.items()
            if original not in used and original not in self.copies
        ]
        if unused:
            (folder / UNUSED).mkdir()
            write_safetensors(folder / UNUSED / SAFETENSORS, unused)

    def write_part(self, folder: Path, names: Collection[str], *, ours: StoredTensors, kept: Path) -> None:
        """Into an existing folder, for a model that has only these of our tensors; others stay as `ours` has them.

        `kept` is the folder of this record.
        """
        lost = {name for each in self.tensors if each.ours not in names for name in each.theirs}
        lost |= {name for name, same in self.copies.items() if same in lost}
        left = ConversionRecord(
            model_type=self.model_type,
            source=self.source,
            target=self.target,
            tensors=tuple(each for each in self.tensors if each.ours in names),
            copies={name: same for name, same in self.copies.items() if name not in lost},
        )
        write_atomically(folder / RECORD, left.model_dump_json(exclude_defaults=True) + "\n")
        used = {name for each in left.tensors for name in each.theirs}
        unused = [each for each in self.published(ours, kept) if each[0] not in used and each[0] not in left.copies]
        if unused:
            (folder / UNUSED).mkdir()
            write_safetensors(folder / UNUSED / SAFETENSORS, unused)

    def published(self, ours: StoredTensors, folder: Path) -> Iterator[WrittenTensor]:
        """Their tensors from `ours`, in the types of ours, and those that `write` kept in the folder."""
        numbers: dict[Side, Renumbering] = {"source": self.source.renumbering, "target": self.target.renumbering}
        by_name = {name: (each, at) for each in self.tensors for at, name in enumerate(each.theirs)}
        for name, (each, at) in by_name.items():
            yield self._part(name, each, at, ours=ours, numbers=numbers)
        for name, same in self.copies.items():
            if same not in by_name:
                raise ModelError(f"{folder / RECORD} names a copy of {same}, which is unknown; import the model again")
            each, at = by_name[same]
            yield self._part(name, each, at, ours=ours, numbers=numbers)
        if (folder / UNUSED).is_dir():
            kept = WeightFiles.open(folder / UNUSED)
            yield from (_as_stored(kept, name) for name in kept.names if name not in by_name | self.copies)

    def _part(
        self,
        name: str,
        each: RecordedTensor,
        at: int,
        *,
        ours: StoredTensors,
        numbers: Mapping[Side, Renumbering],
    ) -> WrittenTensor:
        if each.ours not in ours.names:
            raise ModelError(f"the model has no tensor {each.ours}, of which {name} was made; import it again")
        shape = ours.shape(each.ours)
        known = None if each.vocabulary is None else numbers[each.vocabulary]
        rows = shape[0] if known is None else len(known.ours)
        if sum(each.rows) != rows or (known is not None and shape[0] != len(known.foreign)):
            raise ModelError(f"{each.ours} has the shape {list(shape)}, which does not fit its record; import it again")
        part = (each.rows[at], *shape[1:])
        if each.is_transposed:
            part = part[::-1]
        if each.is_flat:
            part = (1, *part)

        def make() -> Tensor:
            return exported(each.map, ours.tensor(each.ours), numbers, each.rows)[at]

        return name, part, ours.dtype(each.ours), make


def _recorded(each: TensorMap, stored: NamedTensors) -> RecordedTensor:
    axis = 1 if each.is_transposed or each.is_flat else 0
    return RecordedTensor(
        ours=each.ours,
        theirs=tuple(map(stored.original, each.theirs)),
        rows=tuple(stored.shape(name)[axis] for name in each.theirs),
        is_transposed=each.is_transposed,
        vocabulary=each.rows,
        is_flat=each.is_flat,
    )


def _symbols(numbers: Renumbering) -> RecordedSymbols:
    reserved = numbers.foreign[: len(RESERVED)]
    found = RecordedSymbols(reserved=reserved, symbols=len(numbers.ours))
    assert found.renumbering == numbers
    return found


def _are_equal(stored: StoredTensors, name: str, other: str) -> bool:
    if stored.shape(name) != stored.shape(other) or stored.dtype(name) != stored.dtype(other):
        return False
    return torch.equal(stored.tensor(name), stored.tensor(other))


def _as_stored(stored: StoredTensors, name: str) -> WrittenTensor:
    return name, stored.shape(name), stored.dtype(name), lambda: stored.tensor(name)
