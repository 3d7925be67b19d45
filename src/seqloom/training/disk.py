"""The disk as the write protocol sees it: a few calls, so that a test can let any one of them fail."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from safetensors.torch import save_file
from torch import Tensor

from seqloom.core.files import fsync_directory, write_atomically
from seqloom.training.arriving import Arriving, write_safetensors


class Disk(Protocol):
    """The calls that change the disk. A test hands in one that fails, or dies, at the n-th of them."""

    def free_bytes(self, folder: Path) -> int: ...

    def make_folder(self, folder: Path) -> None: ...

    def write_tensors(self, path: Path, tensors: Mapping[str, Tensor]) -> None: ...

    def write_arriving(self, path: Path, tensors: Arriving) -> None: ...

    def write_text(self, path: Path, text: str) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...

    def rename(self, source: Path, target: Path) -> None: ...

    def replace_text(self, path: Path, text: str) -> None: ...

    def remove_folder(self, folder: Path) -> None: ...


class RealDisk:
    """The disk of this machine. What is written is on it when the call returns, not in a cache."""

    def free_bytes(self, folder: Path) -> int:
        return shutil.disk_usage(folder).free

    def make_folder(self, folder: Path) -> None:
        folder.mkdir()

    def write_tensors(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        save_file(dict(tensors), path)
        with path.open("rb+") as file:
            os.fsync(file.fileno())

    def write_arriving(self, path: Path, tensors: Arriving) -> None:
        with path.open("xb") as file:
            write_safetensors(file, tensors)
            file.flush()
            os.fsync(file.fileno())

    def write_text(self, path: Path, text: str) -> None:
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())

    def sync_folder(self, folder: Path) -> None:
        fsync_directory(folder)

    def rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def replace_text(self, path: Path, text: str) -> None:
        write_atomically(path, text)

    def remove_folder(self, folder: Path) -> None:
        shutil.rmtree(folder)
