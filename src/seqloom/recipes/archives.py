"""A model as one file, and the way back."""

from dataclasses import dataclass
from pathlib import Path

from seqloom.core.archives import extract_archive, is_archive, write_archive
from seqloom.core.errors import UsageError
from seqloom.core.files import require_file, sha256_of
from seqloom.core.places import new_place, require_new
from seqloom.recipes.load import check_archived, find_model, listed_files, read_card


@dataclass(frozen=True)
class Packed:
    """An archive that was written, or the folder that came out of one."""

    path: Path
    files: int
    bytes: int
    """The size of the archive."""
    sha256: str
    """Of the archive: the same model gives the same one everywhere."""


def pack(model: Path, out: Path) -> Packed:
    """Write a model directory, or the model of a finished run, into a zip archive; whole or not at all.

    Its files are checked first, and only those that its manifest lists go in.
    """
    if out.suffix.lower() != ".zip":
        raise UsageError(f"{out}: the name of an archive ends in .zip; write {out.with_name(f'{out.name}.zip')}")
    require_new(out, named_by=None)
    folder = find_model(model)
    read_card(folder)
    names = ["manifest.json", *listed_files(folder)]
    need = sum((folder / name).stat().st_size for name in names)
    with new_place(out, named_by=None, need=need) as partial:
        write_archive(partial, {name: folder / name for name in names})
    return Packed(out, len(names), out.stat().st_size, sha256_of(out))


def unpack(archive: Path, folder: Path) -> Packed:
    """Make a model directory from an archive; whole, with every file checked, or not at all."""
    require_file(archive)
    if not is_archive(archive):
        raise UsageError(f"{archive} is no archive of a model: its name does not end in .zip")
    with new_place(folder, named_by=None) as partial:
        names = extract_archive(archive, partial)
        check_archived(archive, partial, names)
    return Packed(folder, len(names), archive.stat().st_size, sha256_of(archive))
