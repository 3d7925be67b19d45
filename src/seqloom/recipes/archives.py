"""A model as one file, and the way back."""

import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from seqloom.core.archives import extract_archive, is_archive, write_archive
from seqloom.core.errors import UsageError
from seqloom.core.files import require_file, sha256_of
from seqloom.core.places import new_place, require_new
from seqloom.models.transformer import Transformer
from seqloom.nn.int8 import LEAST_WEIGHTS, keep_scales, kept_scales, row_scales
from seqloom.recipes.lexicon import FILE as LEXICON
from seqloom.recipes.load import (
    INT8_FORMAT,
    add_file,
    check_archived,
    find_model,
    has_file,
    listed_files,
    load,
    read_card,
    require_translator,
    save_model,
    stored_weights,
)
from seqloom.search.settings import Precision


@dataclass(frozen=True)
class Packed:
    """An archive that was written, or the folder that came out of one."""

    path: Path
    files: int
    bytes: int
    """The size of the archive."""
    sha256: str
    """Of the archive: the same model gives the same one everywhere."""


def pack(model: Path, out: Path, *, precision: Precision = "float32") -> Packed:
    """Write a model directory, or the model of a finished run, into a zip archive; whole or not at all.

    Its files are checked first, and only those that its manifest lists go in. With the precision int8, large matrices
    are rounded as `search.precision=int8` rounds them, and the archive is searched so unless told otherwise.
    """
    if out.suffix.lower() != ".zip":
        raise UsageError(f"{out}: the name of an archive ends in .zip; write {out.with_name(f'{out.name}.zip')}")
    require_new(out, named_by=None)
    folder = find_model(model)
    if precision == "int8":
        with TemporaryDirectory() as temporary:
            return _write(_rounded(folder, Path(temporary) / "model"), out)
    return _write(folder, out)


def _write(folder: Path, out: Path) -> Packed:
    read_card(folder)
    names = ["manifest.json", *listed_files(folder)]
    need = sum((folder / name).stat().st_size for name in names)
    with new_place(out, named_by=None, need=need) as partial:
        write_archive(partial, {name: folder / name for name in names})
    return Packed(out, len(names), out.stat().st_size, sha256_of(out))


def _rounded(folder: Path, place: Path) -> Path:
    """The same model in another directory, with large matrices in eight bits."""
    loaded = load(folder, device="cpu")
    require_translator(folder, loaded.config)
    if not isinstance(loaded.model, Transformer):
        raise UsageError(
            f"{folder} cannot be packed with --precision int8: it is a {loaded.config.model.kind} model, whose cells "
            "multiply in float32; leave out --precision"
        )
    scales = kept_scales(loaded.model) or row_scales(loaded.model)
    if not scales:
        raise UsageError(
            f"{folder} cannot be packed with --precision int8: no linear layer (attention, feed-forward) has "
            f"{LEAST_WEIGHTS:,} weights or more, the limit for eight bits, and tables of symbols (embeddings, output) "
            "stay as they are; leave out --precision"
        )
    keep_scales(loaded.model, scales)
    weights = stored_weights(loaded.model)
    search = loaded.config.search.model_copy(update={"precision": "int8"})
    config = loaded.config.model_copy(update={"search": search})
    card = replace(loaded.card, format=INT8_FORMAT)
    save_model(place, config, tokenizers=loaded.tokenizers, weights=weights, card=card)
    if has_file(folder, LEXICON):

        def copy(path: Path) -> None:
            shutil.copyfile(folder / LEXICON, path)

        add_file(place, LEXICON, write=copy)
    return place


def unpack(archive: Path, folder: Path) -> Packed:
    """Make a model directory from an archive; whole, with every file checked, or not at all."""
    require_file(archive)
    if not is_archive(archive):
        raise UsageError(f"{archive} is no archive of a model: its name does not end in .zip")
    with new_place(folder, named_by=None) as partial:
        names = extract_archive(archive, partial)
        check_archived(archive, partial, names)
    return Packed(folder, len(names), archive.stat().st_size, sha256_of(archive))
