"""Checkpoints: written whole or not at all, verified when read, never pickled.

A run folder holds `checkpoints/step-N/`, each with four files (a fifth, `memory.safetensors`, where the task carries a
state from batch to batch) and their manifest, and beside them the one-line files `latest` and `best` that name one of
these folders. A process may die between any two calls to the disk: what is then found is the old checkpoint or the new
one, and leftovers with "partial" in their names.
"""

import hashlib
import json
import math
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from seqloom.core.errors import ModelError, SeqloomError, TrainingError
from seqloom.core.events import Listener, notice
from seqloom.core.files import (
    check_manifest,
    directory_manifest,
    fsync,
    partial_name,
    sha256_of,
    why_unwritten,
    write_atomically,
)

# Lazy tensors, and a safetensors file that is written as they are made.
#
# safetensors writes all tensors at once. A rank that gathers a model from shards has memory for one of them: the file
# is laid out beforehand, from names, types and shapes. The bytes are the same.

_NAMES = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int32: "I32",
    torch.float32: "F32",
    torch.float64: "F64",
    torch.int64: "I64",
}
"""The names of types in a file, in the order of the format; tensors of the last type come first."""

_RANKS = {dtype: rank for rank, dtype in enumerate(_NAMES)}
_ALIGNMENT = 8


@dataclass(frozen=True)
class TensorSpec:
    """Type and shape of a tensor that is made later."""

    dtype: torch.dtype
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


class LazyTensors:
    """Tensors by name in the order of their file, each made once, when it is iterated over.

    Where ranks make them together, all must iterate over all: `finish` makes those that are left.
    """

    def __init__(self, specs: Mapping[str, TensorSpec], make: Callable[[str], Tensor | None]) -> None:
        """`make` returns None on a rank that contributes to a tensor without receiving it."""
        order = sorted(specs, key=lambda name: (-_RANKS[specs[name].dtype], name))
        self.specs = {name: specs[name] for name in order}
        self._make = make
        self._left = iter(order)

    @property
    def nbytes(self) -> int:
        """Of all of them."""
        return sum(spec.nbytes for spec in self.specs.values())

    def __iter__(self) -> Iterator[tuple[str, Tensor | None]]:
        for name in self._left:
            yield name, self._make(name)

    def finish(self) -> None:
        """Make the rest, and drop it."""
        for _ in self:
            pass


def write_safetensors(file: BinaryIO, tensors: LazyTensors) -> None:
    """Write a safetensors file with one tensor in memory at a time."""
    entries, offset = {}, 0
    for name, spec in tensors.specs.items():
        end = offset + spec.nbytes
        entries[name] = {"dtype": _NAMES[spec.dtype], "shape": list(spec.shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries, ensure_ascii=False, separators=(",", ":")).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    file.write(len(header).to_bytes(8, "little") + header)
    for name, tensor in tensors:
        assert tensor is not None, "only the rank that receives the tensors writes them"
        spec = tensors.specs[name]
        assert (tensor.dtype, tuple(tensor.shape)) == (spec.dtype, spec.shape), f"{name} differs from its specification"
        file.write(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)


class Disk:
    """The calls that change the disk. What is written is on it when a call returns, not in a cache.

    The write protocol uses nothing else, so that a test can make any of them fail.
    """

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free

    def make_folder(self, folder: Path) -> None:
        folder.mkdir()

    def write_tensors(self, path: Path, tensors: Mapping[str, Tensor] | LazyTensors) -> None:
        if isinstance(tensors, LazyTensors):
            with path.open("xb") as file:
                write_safetensors(file, tensors)
        else:
            save_file(dict(tensors), path)
        fsync(path)

    def write_text(self, path: Path, text: str) -> None:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        fsync(folder)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def replace_text(self, path: Path, text: str) -> None:
        write_atomically(path, text)

    def remove_folder(self, folder: Path) -> None:
        shutil.rmtree(folder)


FORMAT = 1
"""Version of the folder's layout; a newer one is refused."""

_MODEL, _OPTIMISER, _GENERATORS, _STATE = "model.safetensors", "optim.safetensors", "rng.safetensors", "state.json"
_MEMORY, _MANIFEST = "memory.safetensors", "manifest.json"
_FOLDER = re.compile(r"step-([0-9]{1,18})")


ShardedState = tuple[LazyTensors, LazyTensors]
"""Weights and optimiser state that are sharded over ranks, and gathered as they are written, in this order."""


@dataclass(frozen=True)
class Checkpoint:
    """Everything a run needs to resume after a step as if it had never stopped."""

    step: int
    weights: Mapping[str, Tensor]
    optimiser: Mapping[str, Tensor]
    generators: Mapping[str, Tensor]
    state: Mapping[str, Any]
    """Plain JSON values."""
    memory: Mapping[str, Tensor] = field(default_factory=dict)
    """The state that the task carries from batch to batch, if any."""


class NewerFormatError(ModelError):
    """A checkpoint of a later version: not damaged, so no reason to fall back to an older one."""


# --- writing ---------------------------------------------------------------------------------------------------------


def write_checkpoint(
    run: Path, checkpoint: Checkpoint, *, is_best: bool, disk: Disk, sharded: ShardedState | None = None
) -> Path:
    """Write a checkpoint and point `latest` (and `best`) at it. A failure leaves what was there before, and no part.

    `sharded` replaces the weights and optimiser state of the checkpoint.
    """
    folder = checkpoint_folder(run, checkpoint.step)
    partial = partial_name(folder, is_hidden=False)
    parts = (checkpoint.weights, checkpoint.optimiser, checkpoint.generators, checkpoint.memory)
    tensor_bytes = sum(tensor.nbytes for part in parts for tensor in part.values())
    need = round(1.2 * (tensor_bytes + sum(part.nbytes for part in sharded or ())))  # a fifth for everything else
    weights, optimiser = sharded or (checkpoint.weights, checkpoint.optimiser)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # 1. A folder under another name, on the same file system, if there is room for it.
        if need > (free := disk.free_bytes(folder.parent)):
            raise TrainingError(f"it needs {need:,} bytes and {free:,} bytes are free")
        disk.make_folder(partial)
        # 2. The four files, or five.
        disk.write_tensors(partial / _MODEL, weights)
        disk.write_tensors(partial / _OPTIMISER, optimiser)
        disk.write_tensors(partial / _GENERATORS, checkpoint.generators)
        disk.write_text(partial / _STATE, json.dumps(checkpoint.state, indent=1, allow_nan=False))
        if checkpoint.memory:
            disk.write_tensors(partial / _MEMORY, checkpoint.memory)
        # 3. The manifest, last of all: a folder without one is not a checkpoint.
        manifest = {"format": FORMAT, "step": checkpoint.step, "files": directory_manifest(partial)}
        disk.write_text(partial / _MANIFEST, json.dumps(manifest, indent=1))
        disk.sync_folder(partial)
        # 4. Its name. A folder of that name is damaged, or of steps that a resume went back over.
        discard(folder, disk=disk)
        disk.rename(partial, folder)
        disk.sync_folder(folder.parent)
        # 5. The pointers.
        point(run, "latest", checkpoint.step, disk=disk)
        if is_best:
            point(run, "best", checkpoint.step, disk=disk)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if not isinstance(error, (OSError, SafetensorError, SeqloomError)):  # a second SIGINT
            raise
        reason = why_unwritten(error, folder.parent, need=need)
        raise TrainingError(f"{folder.name} could not be written into {folder.parent}: {reason}") from error
    return folder


def point(run: Path, name: str, step: int, *, disk: Disk) -> None:
    """Make the pointer `latest` or `best` name a step."""
    disk.replace_text(_pointer(run, name), f"step-{step}\n")


def prune(run: Path, *, up_to: int, keep: int, average: int, save_every: int, disk: Disk) -> None:
    """Remove old checkpoints, except the last `keep`, those that will be averaged, and what the pointers name.

    Steps after `up_to` are damaged ones that a resume went back over: they are not counted, and stay as they are until
    they are reached and written again.
    """
    steps = [step for step in checkpoint_steps(run) if step <= up_to]
    kept = {*steps[-keep:], pointed_step(run, "latest"), pointed_step(run, "best")}
    if average:
        kept |= set(regular_steps(steps, save_every=save_every)[-average:])
    for step in steps:
        if step not in kept:
            discard(checkpoint_folder(run, step), disk=disk)


def discard(folder: Path, *, disk: Disk) -> None:
    """Remove a checkpoint. It loses its name first, so that no half-removed folder is ever taken for one."""
    if folder.exists():
        aside = partial_name(folder, is_hidden=False)
        disk.rename(folder, aside)
        disk.remove_folder(aside)


# --- finding ---------------------------------------------------------------------------------------------------------


def checkpoint_folder(run: Path, step: int) -> Path:
    """Where the checkpoint of a step lies."""
    return run / "checkpoints" / f"step-{step}"


def checkpoint_steps(run: Path) -> list[int]:
    """The steps that have a checkpoint folder, damaged or not, in order."""
    names = (_FOLDER.fullmatch(path.name) for path in (run / "checkpoints").glob("step-*"))
    return sorted(int(name.group(1)) for name in names if name)


def regular_steps(steps: list[int], *, save_every: int) -> list[int]:
    """Those steps that were saved by schedule, and the last.

    Checkpoints that a signal or a best dev loss caused are left out: whether a run was interrupted must not change what
    is averaged.
    """
    return [step for step in steps if step % save_every == 0 or step == steps[-1]]


def pointed_step(run: Path, name: str) -> int | None:
    """The step that the pointer `latest` or `best` names; None where there is no such pointer or it cannot be read."""
    try:
        found = _FOLDER.fullmatch(_pointer(run, name).read_text(encoding="utf-8").strip())
    except (OSError, UnicodeDecodeError):
        return None
    return int(found.group(1)) if found else None


def repair_pointers(run: Path, *, latest: int, best: int | None, disk: Disk) -> None:
    """Make the pointers agree with the checkpoint that is resumed, where a crash came between them."""
    if pointed_step(run, "latest") != latest:
        point(run, "latest", latest, disk=disk)
    named = pointed_step(run, "best")
    if best is not None and checkpoint_folder(run, best).exists():
        if named != best:
            point(run, "best", best, disk=disk)
    elif named is not None and (named > latest or not checkpoint_folder(run, named).exists()):
        _pointer(run, "best").unlink()


def final_folders(run: Path, *, average: int, save_every: int, listener: Listener) -> list[Path]:
    """The checkpoints whose mean is the final model: the last `average` regular ones, or else the best alone.

    A damaged one is left out with a notice; without a best one that can be read, the newest takes its place.
    """
    latest = pointed_step(run, "latest")
    steps = [step for step in checkpoint_steps(run) if latest is None or step <= latest]
    sound = []
    for step in steps:
        try:
            verify_checkpoint(checkpoint_folder(run, step))
        except ModelError as error:
            notice(listener, f"left out a damaged checkpoint: {error}")
        else:
            sound.append(step)
    if not sound:
        raise ModelError(f"{run / 'checkpoints'} holds no checkpoint that can be read. {_remedy(run)}")
    best = pointed_step(run, "best")
    if average:
        chosen = regular_steps(sound, save_every=save_every)[-average:]
    else:
        chosen = [best] if best in sound else sound[-1:]
    return [checkpoint_folder(run, step) for step in chosen]


def _pointer(run: Path, name: str) -> Path:
    return run / "checkpoints" / name


# --- reading ---------------------------------------------------------------------------------------------------------


def newest_checkpoint(run: Path, *, listener: Listener, strict: bool = False) -> Checkpoint | None:
    """The newest checkpoint that is whole; None where there is none at all.

    Damaged ones are named in one notice, or `strict` refuses to fall back from them. If all are damaged, that is an
    error, not a new start.
    """
    damages = []
    for step in reversed(checkpoint_steps(run)):
        try:
            checkpoint = read_checkpoint(checkpoint_folder(run, step))
        except NewerFormatError:
            raise
        except ModelError as error:
            damages.append(str(error))
            continue
        if damages and strict:
            raise ModelError(
                f"DAMAGED CHECKPOINT: {'; '.join(damages)}. Step {step} is undamaged: leave out --strict to use it"
            )
        if damages:
            skipped = "; ".join(damages)
            notice(listener, f"DAMAGED CHECKPOINT: falling back to step {step} ({skipped})", step=step)
        return checkpoint
    if damages:
        raise ModelError(f"no checkpoint of this run can be read: {'; '.join(damages)}. {_remedy(run)}")
    return None


def _remedy(run: Path) -> str:
    model = run / "model"
    from_it = f", from its model: training.start_from={model}" if (model / "model.json").is_file() else ""
    return f"Restore one from a copy, or start a new run in another folder{from_it}"


def read_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint after comparing every file with the manifest; a ModelError says what is damaged."""
    step = verify_checkpoint(folder)
    try:
        return Checkpoint(
            step=step,
            weights=load_file(folder / _MODEL),
            optimiser=load_file(folder / _OPTIMISER),
            generators=load_file(folder / _GENERATORS),
            state=dict(json.loads((folder / _STATE).read_text(encoding="utf-8"))),
            memory=load_file(folder / _MEMORY) if (folder / _MEMORY).exists() else {},
        )
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        raise ModelError(f"{folder} cannot be read: {error}") from error


def copy_weights(folder: Path, path: Path) -> dict[str, Any]:
    """Copy the weights of a checkpoint to `path`; the state of the run at that step.

    The run may be training: a ModelError says that the checkpoint was removed since, or is damaged. The copy is
    compared with the manifest. A copy that cannot be written is a SeqloomError: another checkpoint would not help.
    """
    _, files = _read_manifest(folder)
    try:
        with path.open("wb") as copy:
            copy.writelines(_blocks(folder / _MODEL))
    except OSError as error:
        reason = why_unwritten(error, path.parent, need=None)
        raise SeqloomError(
            f"no temporary copy of {folder} can be written into {path.parent}: {reason}; make room there, or name "
            "another folder for temporary files with the environment variable TMPDIR"
        ) from error
    try:
        written = (folder / _STATE).read_bytes()
        state = dict(json.loads(written))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ModelError(f"{folder} cannot be read: {error}") from error
    if files.get(_MODEL) != {"size": path.stat().st_size, "sha256": sha256_of(path)}:
        raise ModelError(f"{folder}: {_MODEL} differs from what was written")
    if files.get(_STATE) != {"size": len(written), "sha256": hashlib.sha256(written).hexdigest()}:
        raise ModelError(f"{folder}: {_STATE} differs from what was written")
    return state


def _blocks(path: Path) -> Iterator[bytes]:
    """What a file of a checkpoint holds, piece by piece. A disk that cannot be read is not one that is full."""
    try:
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                yield block
    except OSError as error:
        raise ModelError(f"{path.parent} cannot be read: {error}") from error


def verify_checkpoint(folder: Path) -> int:
    """The step of a checkpoint whose files are all as they were written; otherwise a ModelError that names one."""
    step, files = _read_manifest(folder)
    # The fifth file is optional, but must be in the manifest where it exists.
    wanted = {_MODEL, _OPTIMISER, _GENERATORS, _STATE} | ({_MEMORY} if (folder / _MEMORY).exists() else set())
    missing = wanted - files.keys()
    problems = [f"{name}: not in the manifest" for name in sorted(missing)] or check_manifest(folder, files)
    if problems:
        raise ModelError(f"{folder}: {'; '.join(problems)}")
    return step


def _read_manifest(folder: Path) -> tuple[int, dict[str, Any]]:
    """Step and files of a checkpoint, as its manifest gives them."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
        number, step, files = int(manifest["format"]), int(manifest["step"]), dict(manifest["files"])
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
        raise ModelError(f"{folder} has no readable {_MANIFEST} ({error})") from error
    if number > FORMAT:
        raise NewerFormatError(
            f"{folder} has format {number} and this version reads up to {FORMAT}; update seqloom to open it"
        )
    if folder.name != f"step-{step}":
        raise ModelError(f"{folder} holds the manifest of step {step}")
    return step, files
