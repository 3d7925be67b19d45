"""Files of `torch.save`, read as data: where each tensor of a state dict lies. Nothing in them is ever run.

    zip (torch 1.6 and later)   NAME/data.pkl: the state dict; NAME/data/KEY: a storage each, not compressed
    old                         five pickles: magic number, version, system, state dict, keys of the storages;
                                then for each key the number of elements (int64) and the elements

A pickle is a program for a stack machine that may call any function of Python. That of a state dict needs fewer than
thirty instructions and three functions. `pickletools` lists the instructions without executing them; those few are
followed here with values that only describe tensors, and anything else is refused. Counts, offsets and strides are
compared with the storages, and those with the file, before memory is given for anything.
"""

import math
import pickletools
import re
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from seqloom.core.errors import ModelError
from seqloom.core.terminal import visible

MAX_TENSORS = 20_000
"""Tensors of a file; models of two billion parameters have some hundreds."""
MAX_AXES = 8
MAX_NAME_LENGTH = 500
"""Characters of the name of a tensor."""
MAX_PICKLE_BYTES = 1 << 24
"""A thousand tensors take a quarter of a million bytes."""
MAX_INSTRUCTIONS = 400_000
"""Of a pickle, which has about twenty for each tensor."""
_MAX_ITEM = 1 << 16
"""Bytes of a string or number in a pickle."""
_MAX_DEPTH = 64
"""Collections that are open at a time; a state dict has four."""
_MAX_DIRECTORY_BYTES = 1 << 24
"""Of the directory of a zip archive: some hundred bytes for each storage."""

_TYPES = {
    "DoubleStorage": torch.float64, "FloatStorage": torch.float32, "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16, "LongStorage": torch.int64, "IntStorage": torch.int32,
    "ShortStorage": torch.int16, "CharStorage": torch.int8, "ByteStorage": torch.uint8, "BoolStorage": torch.bool,
}  # fmt: skip

_DICT, _TENSOR, _PARAMETER = (
    "collections.OrderedDict",
    "torch._utils._rebuild_tensor_v2",
    "torch._utils._rebuild_parameter",
)
_UNSUPPORTED = re.compile(
    r"torch\.(?:storage\.)?\w*Storage|torch\._utils\._rebuild_\w+|torch\.q?u?int\w+|torch\.\w*float\w*"
)
"""What describes tensors of other kinds: quantised, sparse, of eight bits."""

_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor lies in a file."""

    file: Path
    start: int
    """Byte at which its first element lies."""
    dtype: torch.dtype
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """Elements from one index of an axis to the next, all zero or more."""

    @property
    def span(self) -> int:
        """Elements from its first to its last one in the file."""
        if not all(self.shape):
            return 0
        return 1 + sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))


class RefusedError(Exception):
    """Why a file is not read, as the rest of a sentence that begins with its name."""


def pickled_tensors(path: Path) -> dict[str, TensorPlace]:
    """The tensors of a `pytorch_model.bin` by name. A ModelError says what is wrong with it."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            beginning = file.read(4)
            file.seek(0)
            if beginning == b"PK\x03\x04":
                return _read_zip(path, file, size)
            if beginning[:1] == b"\x80":
                return _read_old(path, file, size)
    except RefusedError as error:
        raise ModelError(f"{path} {visible(str(error))}") from error
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from error
    raise ModelError(f"{path} is not a file of torch.save: it begins with {beginning!r}; download it again")


# --- the two layouts -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Storage:
    """Elements one after another that tensors are views of."""

    key: str
    dtype: torch.dtype
    elements: int

    @property
    def bytes(self) -> int:
        return self.elements * self.dtype.itemsize


@dataclass(frozen=True)
class _View:
    """A tensor as its pickle describes it."""

    storage: _Storage
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def at(self, path: Path, storage_start: int) -> TensorPlace:
        dtype = self.storage.dtype
        return TensorPlace(path, storage_start + self.offset * dtype.itemsize, dtype, self.shape, self.strides)


def _read_zip(path: Path, file: BinaryIO, size: int) -> dict[str, TensorPlace]:
    members, end = _members(path, file, size)
    pickles = [name for name in members if name.count("/") == 1 and name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise RefusedError(f"is not a file of torch.save: it has {len(pickles)} members named data.pkl in place of one")
    prefix = pickles[0].removesuffix("data.pkl")
    if outside := [name for name in members if not name.startswith(prefix) or ".." in name.split("/")]:
        raise RefusedError(f"is refused: its member {outside[0][:60]!r} lies outside of {prefix[:60]!r}")

    def place(name: str, *, length: int) -> int:
        """Where the content of a member of this length begins."""
        member = members.get(prefix + name)
        if member is None:
            raise RefusedError(f"is damaged: it has no {name[:60]}")
        if member.file_size != length:
            raise RefusedError(f"is damaged: {name[:60]} has {member.file_size:,} bytes, not {length:,}")
        file.seek(member.header_offset)
        header = file.read(_LOCAL_HEADER.size)
        if len(header) < _LOCAL_HEADER.size or not header.startswith(b"PK\x03\x04"):
            raise RefusedError(f"is damaged: {name[:60]} is not where its directory says")
        *_, name_length, extra_length = _LOCAL_HEADER.unpack(header)
        start = member.header_offset + _LOCAL_HEADER.size + name_length + extra_length
        if file.read(name_length) != (prefix + name).encode() or start + length > end:
            raise RefusedError(f"is damaged: {name[:60]} is not where its directory says")
        return int(start)

    if (order := members.get(f"{prefix}byteorder")) is not None:
        file.seek(place("byteorder", length=order.file_size))
        if (found := file.read(min(order.file_size, 16))) != b"little":
            raise RefusedError(f"is not supported: its byte order is {found!r}; save it on a little-endian machine")
    length = members[pickles[0]].file_size
    views = _tensors(_Pickle(file, place("data.pkl", length=length), length).value())
    storages = {view.storage.key: view.storage for view in views.values()}
    starts = {key: place(f"data/{key}", length=storage.bytes) for key, storage in storages.items()}
    return {name: view.at(path, starts[view.storage.key]) for name, view in views.items()}


_END = struct.Struct("<4s4H2IH")
"""The end record of a zip archive: its mark, two disk numbers, members here and in all, size and start of its
directory, length of the comment."""
_END_64 = struct.Struct("<4sQ2H2I4Q")
"""The same for large archives: mark, own length, versions, disks, members here and in all, size and start."""
_LOCATOR_64 = struct.Struct("<4sIQI")
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")


def _members(path: Path, file: BinaryIO, size: int) -> tuple[dict[str, zipfile.ZipInfo], int]:
    """The members of an archive by name, and where its directory begins."""
    file.seek(max(0, size - _END.size - _LOCATOR_64.size))
    tail = file.read()
    if len(tail) < _END.size or not tail[-_END.size :].startswith(b"PK\x05\x06"):
        raise RefusedError("is truncated: it does not end like a zip archive; download it again")
    directory, comment = _END.unpack(tail[-_END.size :])[5::2]
    if tail.startswith(b"PK\x06\x07"):  # a large one
        file.seek(min(_LOCATOR_64.unpack(tail[: _LOCATOR_64.size])[2], size))
        record = file.read(_END_64.size)
        if len(record) < _END_64.size or not record.startswith(b"PK\x06\x06"):
            raise RefusedError("is damaged: the end record of its zip archive is missing")
        directory = _END_64.unpack(record)[8]
    if comment or directory > min(size, _MAX_DIRECTORY_BYTES):
        raise RefusedError(f"is damaged: the directory of its zip archive would have {directory:,} bytes")
    try:
        with zipfile.ZipFile(path) as archive:
            listed, end = archive.infolist(), archive.start_dir
    except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError, struct.error, OSError) as error:
        raise RefusedError(f"is not a valid zip archive: {str(error)[:100]}") from error
    for member in listed:
        name = member.orig_filename[:60]
        if member.compress_type != zipfile.ZIP_STORED or member.file_size != member.compress_size:
            raise RefusedError(f"is refused: its member {name!r} is compressed, which torch.save never does")
        if member.flag_bits & 1:
            raise RefusedError(f"is refused: its member {name!r} is encrypted")
    members = {member.orig_filename: member for member in listed}
    if len(members) < len(listed):
        raise RefusedError("is refused: two members of its zip archive have the same name")
    return members, end


def _read_old(path: Path, file: BinaryIO, size: int) -> dict[str, TensorPlace]:
    at = 0
    parts = []
    for _ in range(5):
        part = _Pickle(file, at, size - at)
        parts.append(part.value())
        at = part.position
        if len(parts) == 1 and parts[0] != _MAGIC:
            raise RefusedError("is a pickle, but not one of torch.save; only weights are read")
    _, version, system, state, keys = parts
    if version != _VERSION:
        raise RefusedError(f"is not supported: it has version {_shown(version)} of the layout, not {_VERSION}")
    if not isinstance(system, dict) or system.get("little_endian") is not True:
        raise RefusedError("is not supported: it was not written on a little-endian machine")
    views = _tensors(state)
    storages = {view.storage.key: view.storage for view in views.values()}
    if not isinstance(keys, list) or not all(type(key) is str for key in keys) or len(set(keys)) < len(keys):
        raise RefusedError("is damaged: the list of its storages is invalid")
    if unknown := [key for key in keys if key not in storages]:
        raise RefusedError(f"is damaged: no tensor belongs to its storage {unknown[0][:40]!r}")
    if missing := set(storages) - set(keys):
        raise RefusedError(f"is damaged: {len(missing):,} of its {len(storages):,} storages are missing")
    starts = {}
    for key in keys:
        storage = storages[key]
        file.seek(at)
        count = file.read(8)
        if int.from_bytes(count, "little", signed=True) != storage.elements or at + 8 + storage.bytes > size:
            raise RefusedError(
                f"is truncated or damaged: a storage of {storage.elements:,} elements is not complete at byte {at:,}"
            )
        starts[key] = at + 8
        at += 8 + storage.bytes
    if at != size:
        raise RefusedError(f"is damaged: it has {size - at:,} bytes after its last storage")
    return {name: view.at(path, starts[view.storage.key]) for name, view in views.items()}


def _tensors(state: Any) -> Mapping[str, _View]:
    """The tensors of a state dict, if it holds nothing else."""
    if not isinstance(state, dict):
        raise RefusedError(f"does not hold a state dict but {_described(state)}")
    if len(state) > MAX_TENSORS:
        raise RefusedError(f"is refused: it holds {len(state):,} tensors; at most {MAX_TENSORS:,} are allowed")
    storages: dict[str, _Storage] = {}
    for name, view in state.items():
        if not is_tensor_name(name):
            raise RefusedError(f"is refused: {_shown(name)} is not the name of a tensor")
        if not isinstance(view, _View):
            raise RefusedError(f"holds {_described(view)} under the name {name[:60]!r}; only tensors are read")
        if storages.setdefault(view.storage.key, view.storage) != view.storage:
            raise RefusedError(f"is damaged: the storage of {name[:60]!r} is described in two ways")
    return state


def is_tensor_name(name: Any) -> bool:
    """Whether a name can be shown and stored."""
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME_LENGTH and name.isprintable()


# --- the machine -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Function:
    """A function or type that a pickle names."""

    name: str


_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"),
    *("BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
}
_SHORT_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Pickle:
    """One pickle in a file, followed on a stack of our own. It offers what `pickletools.genops` reads from."""

    def __init__(self, file: BinaryIO, start: int, length: int) -> None:
        self.position = start
        self._file, self._end = file, start + length
        self._last = start + min(length, MAX_PICKLE_BYTES)
        self._stack: list[Any] = []
        self._marks: list[int] = []
        """How high the stack was at each open MARK."""
        self._memo: dict[int, Any] = {}
        file.seek(start)

    def read(self, count: int) -> bytes:
        if count > _MAX_ITEM:
            raise RefusedError(f"is refused: its description has an item of {count:,} bytes")
        return self._checked(self._file.read(count), count)

    def readline(self) -> bytes:
        line = self._file.readline(_MAX_ITEM)
        return self._checked(line, len(line))

    def _checked(self, found: bytes, count: int) -> bytes:
        self.position += count
        if len(found) < count or self.position > self._last:
            what = "is truncated: it ends" if self._last == self._end else f"is refused: {MAX_PICKLE_BYTES:,} bytes end"
            raise RefusedError(f"{what} within the description of its tensors")
        return found

    def value(self) -> Any:
        """What the pickle describes."""
        try:
            for count, (instruction, argument, _) in enumerate(pickletools.genops(self)):  # type: ignore[arg-type]
                if count > MAX_INSTRUCTIONS:
                    raise RefusedError(f"is refused: its description has more than {MAX_INSTRUCTIONS:,} instructions")
                if instruction.name == "STOP":
                    break
                self._follow(instruction.name, argument)
        except (ValueError, OverflowError, struct.error) as error:  # of pickletools
            raise RefusedError(f"is damaged: the description of its tensors is invalid ({str(error)[:100]})") from error
        if self._marks or len(self._stack) != 1:
            raise RefusedError("is damaged: the description of its tensors ends too early")
        return self._stack[0]

    def _follow(self, instruction: str, argument: Any) -> None:
        stack = self._stack
        match instruction:
            case "PROTO" | "FRAME":
                pass
            case _ if instruction in _LITERALS:
                stack.append(argument)
            case _ if instruction in _CONSTANTS:
                stack.append(_CONSTANTS[instruction])
            case _ if instruction in _SHORT_TUPLES:
                stack.append(tuple(self._pop(_SHORT_TUPLES[instruction])))
            case "EMPTY_DICT":
                stack.append({})
            case "EMPTY_LIST":
                stack.append([])
            case "MARK":
                if len(self._marks) == _MAX_DEPTH:
                    raise RefusedError(f"is refused: its description is nested more than {_MAX_DEPTH} deep")
                self._marks.append(len(stack))
            case "TUPLE":
                stack.append(tuple(self._pop_to_mark()))
            case "APPEND" | "APPENDS":
                items = self._pop(1) if instruction == "APPEND" else self._pop_to_mark()
                self._top(list).extend(items)
            case "SETITEM" | "SETITEMS":
                items = self._pop(2) if instruction == "SETITEM" else self._pop_to_mark()
                self._set(items)
            case "BINPUT" | "LONG_BINPUT" | "MEMOIZE":
                self._memo[len(self._memo) if argument is None else argument] = self._top(object)
            case "BINGET" | "LONG_BINGET":
                if argument not in self._memo:
                    raise RefusedError(f"is damaged: its description uses value {argument}, which it does not have")
                stack.append(self._memo[argument])
            case "GLOBAL" | "STACK_GLOBAL" | "INST":
                parts = self._pop(2) if instruction == "STACK_GLOBAL" else str(argument).split(" ", 1)
                if not all(type(part) is str for part in parts):
                    raise RefusedError("is damaged: a function in the description of its tensors has no name")
                stack.append(_known(".".join(parts)))
            case "BINPERSID":
                stack.append(_storage(*self._pop(1)))
            case "REDUCE":
                stack.append(_called(*self._pop(2)))
            case "BUILD":  # sets the attribute `_metadata` of a state dict: versions of modules
                self._pop(1)
                self._top(dict)
            case _:
                raise RefusedError(
                    f"is refused: its description has the instruction {instruction}, which weights do not need"
                )

    def _pop(self, count: int) -> list[Any]:
        least = self._marks[-1] if self._marks else 0
        if len(self._stack) - count < least:
            raise RefusedError("is damaged: an instruction in the description of its tensors lacks its values")
        items = self._stack[len(self._stack) - count :]
        del self._stack[len(self._stack) - count :]
        return items

    def _pop_to_mark(self) -> list[Any]:
        if not self._marks:
            raise RefusedError("is damaged: an instruction in the description of its tensors lacks its values")
        items = self._pop(len(self._stack) - self._marks[-1])
        self._marks.pop()
        return items

    def _top(self, kind: type) -> Any:
        if len(self._stack) <= (self._marks[-1] if self._marks else 0) or not isinstance(self._stack[-1], kind):
            raise RefusedError("is damaged: an instruction in the description of its tensors lacks its values")
        return self._stack[-1]

    def _set(self, items: list[Any]) -> None:
        target = self._top(dict)
        if len(items) % 2:
            raise RefusedError("is damaged: a name in the description of its tensors has no value")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) not in (str, int):  # hashing a tuple of tuples could take forever
                raise RefusedError(f"is refused: {_described(key)} is not the name of a tensor")
            target[key] = value


def _known(name: str) -> _Function:
    """A function by its name, if weights need it. Only its name is used."""
    if name in (_DICT, _TENSOR, _PARAMETER) or name.removeprefix("torch.") in _TYPES:
        return _Function(name)
    if _UNSUPPORTED.fullmatch(name):
        raise RefusedError(f"holds tensors of an unsupported type ({name}): quantised and sparse weights are not read")
    raise RefusedError(f"contains {_shown(name)}, which is code; it was not run")


def _called(function: Any, arguments: Any) -> Any:
    """What a call describes."""
    name = function.name if isinstance(function, _Function) else None
    if name == _DICT and arguments == ():
        return {}
    if name == _TENSOR and isinstance(arguments, tuple) and len(arguments) in (6, 7):
        return _view(*arguments[:4])
    if name == _PARAMETER and isinstance(arguments, tuple) and len(arguments) == 3 and isinstance(arguments[0], _View):
        return arguments[0]
    raise RefusedError(f"is refused: it calls {name or _described(function)} with unexpected arguments")


def _storage(identity: Any) -> _Storage:
    match identity:
        case ("storage", _Function(name), str(key), str(), int(elements)) if name.removeprefix("torch.") in _TYPES:
            pass
        case ("storage", _Function(name), str(key), str(), int(elements), None) if (
            name.removeprefix("torch.") in _TYPES
        ):
            pass
        case _:
            raise RefusedError("is refused: one of its storages is not described as torch does")
    if not 0 <= elements < 1 << 48 or not 0 < len(key) <= 40:
        raise RefusedError(f"is damaged: one of its storages has the invalid number of {_shown(elements)} elements")
    return _Storage(key, _TYPES[name.removeprefix("torch.")], elements)


def _view(storage: Any, offset: Any, shape: Any, strides: Any) -> _View:
    if not isinstance(storage, _Storage) or not isinstance(shape, tuple) or not isinstance(strides, tuple):
        raise RefusedError("is refused: one of its tensors is not described as torch does")
    if len(shape) != len(strides) or len(shape) > MAX_AXES:
        raise RefusedError(f"is damaged: a tensor has {len(shape)} sizes and {len(strides)} strides")
    if not all(type(number) is int and 0 <= number < 1 << 48 for number in (offset, *shape, *strides)):
        raise RefusedError(f"is damaged: a tensor has the invalid shape {_shown(shape)} or strides {_shown(strides)}")
    view = _View(storage, offset, shape, strides)
    # A tensor may repeat elements of its storage by a stride of 0, but never has more of them than the storage.
    end = offset + view.at(Path(), 0).span
    if end > storage.elements or math.prod(shape) > storage.elements:
        raise RefusedError(
            f"is damaged: a tensor of shape {_shown(shape)} at {offset:,} needs more than the {storage.elements:,} "
            "elements of its storage"
        )
    return view


def _described(value: Any) -> str:
    return f"a value of type {type(value).__name__.strip('_')}"


def _shown(value: Any) -> str:
    """A string, a number or some numbers in a message: never what a pickle may have nested without end."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_shown, value[:MAX_AXES]))}]" if all(type(each) is int for each in value) else "[…]"
    if type(value) is int:
        return str(value) if abs(value) < 1 << 64 else "an absurd number"
    return str(value)[:60] if isinstance(value, str) else _described(value)
