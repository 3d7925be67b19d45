"""Files: they are what was written, and writing and reading a model changes nothing."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from seqloom.core.arrays import map_safetensors
from seqloom.core.errors import ModelError
from seqloom.core.files import check_manifest, sha256_of
from seqloom.runs.loading import Loaded, LoadedModel, load, load_fitted
from seqloom.runs.model_dir import read_card, read_weights, save_fitted, save_model, stored_weights
from seqloom.selfcheck.promises import CheckResult, Figure, counted, judged

WEIGHTS = "model.safetensors"

Outputs = Callable[[Loaded], Sequence[object]]
"""What a model makes of the lines, to the last bit: compared by =="""


def check_files(folder: Path) -> CheckResult:
    """Every file has the size and SHA-256 that the manifest lists. A folder without a readable manifest is an error."""
    try:
        read_card(folder)
    except ModelError:
        damage = _damage(folder)
        if not damage:
            raise
        others = f" (and {len(damage) - 1:,} more)" if len(damage) > 1 else ""
        return judged(False, f"{damage[0]}{others}", figures={"damaged": len(damage)}, worst="; ".join(damage[:3]))
    listed = _listed(folder)
    there = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    strangers = sorted(there - set(listed) - {"manifest.json"})
    sentence = f"{counted(len(listed), 'file')} as the manifest says, by SHA-256"
    if strangers:
        sentence += f"; {counted(len(strangers), 'file')} that it does not list, such as {strangers[0]}"
    return judged(True, sentence, figures={"files": len(listed), "damaged": 0, "not_listed": len(strangers)})


def _listed(folder: Path) -> dict[str, object]:
    manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    return dict(manifest["files"])


def _damage(folder: Path) -> list[str]:
    try:
        return check_manifest(folder, _listed(folder))
    except (OSError, ValueError, KeyError, TypeError):  # no readable manifest
        return []


def check_saved(loaded: Loaded, outputs: Outputs) -> CheckResult:
    """Write the model, read it, write it again: the same numbers as in its folder, the same bytes, the same outputs."""
    with TemporaryDirectory(prefix="seqloom-selfcheck-") as place:
        first, second = Path(place) / "first", Path(place) / "second"
        _save(loaded, first)
        again = load(first, device=str(loaded.device)) if isinstance(loaded, LoadedModel) else load_fitted(first)
        _save(again, second)
        compare = _changed_weights if isinstance(loaded, LoadedModel) else _changed_numbers
        changed = compare(loaded.folder, first)
        rewritten = [name for name in _names(first) if sha256_of(first / name) != sha256_of(second / name)]
        changed += [f"text/{name}" for name in _changed_text(loaded.folder, first)]
        before, after = outputs(loaded), outputs(again)
    differing = sum(one != other for one, other in zip(before, after, strict=True))
    figures: dict[str, Figure] = {
        "outputs": len(before),
        "outputs_that_differ": differing,
        "changed": len(changed),
        "rewritten": len(rewritten),
    }
    if changed or rewritten:
        where = ", ".join([*changed, *rewritten][:3])
        return judged(False, f"writing and reading the model changed {where}", figures=figures, worst=where)
    worst = None
    if differing:
        at = next(at for at, one in enumerate(before) if one != after[at])
        worst = f"before: {before[at]!s:.200}; after: {after[at]!s:.200}"
    sentence = f"written, read and written again: the same bytes; {counted(len(before), 'output')} "
    sentence += f"of which {differing:,} differ" if differing else "the same to the last bit"
    return judged(not differing, sentence, figures=figures, worst=worst)


def _save(loaded: Loaded, folder: Path) -> None:
    if isinstance(loaded, LoadedModel):
        save_model(
            folder,
            loaded.config,
            tokenizers=loaded.tokenizers,
            weights=stored_weights(loaded.model),
            card=loaded.card,
        )
    else:
        save_fitted(folder, loaded.config, tokenizers=loaded.tokenizers, arrays=loaded.model.arrays(), card=loaded.card)


def _names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _changed_weights(folder: Path, copy: Path) -> list[str]:
    """The same of weights, which may have been imported in another floating-point type than that of the model."""
    before, after = (read_weights(each / WEIGHTS) for each in (folder, copy))
    return sorted(
        name
        for name in {*before, *after}
        if name not in before
        or name not in after
        or _bits(before[name].to(after[name].dtype).numpy()) != _bits(after[name].numpy())
    )


def _changed_numbers(folder: Path, copy: Path) -> list[str]:
    """Weights, or arrays of a fitted model, that are not those of the folder to the last bit."""
    if sha256_of(folder / WEIGHTS) == sha256_of(copy / WEIGHTS):
        return []
    # The order in a file of another version may be another; what counts are the numbers.
    before, after = (map_safetensors(each / WEIGHTS) for each in (folder, copy))
    return sorted(
        name
        for name in {*before, *after}
        if name not in before or name not in after or _bits(before[name]) != _bits(after[name])
    )


def _bits(array: np.ndarray) -> tuple[str, tuple[int, ...], bytes]:
    return str(array.dtype), array.shape, array.tobytes()


def _changed_text(folder: Path, copy: Path) -> list[str]:
    names = {*_names(folder / "text"), *_names(copy / "text")}
    places = [(folder / "text" / name, copy / "text" / name) for name in sorted(names)]
    return [
        one.name
        for one, other in places
        if not (one.is_file() and other.is_file()) or sha256_of(one) != sha256_of(other)
    ]
