"""Merge: a model directory from a base and an adapter, of ours or of PEFT."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from seqloom.core.arguments import as_path
from seqloom.core.errors import ModelError, UsageError
from seqloom.core.files import require_new
from seqloom.interop.peft import add_peft, is_peft, read_peft
from seqloom.interop.published import is_imported
from seqloom.pretrained.record import ConversionRecord
from seqloom.runs.adapters import FOLDER, Base, adapter_tensors, is_adapter, keep_published, read_adapter
from seqloom.runs.loading import find_model, load, merged_weights
from seqloom.runs.model_dir import (
    AGAIN,
    CARD,
    PUBLISHED,
    Card,
    parse_card,
    read_calibration,
    read_card,
    read_part,
    read_settings,
    require_exact_weights,
    save_model,
    stored_tables,
    stored_tokenizers,
)


@dataclass(frozen=True)
class Merged:
    """A model directory that was written."""

    path: Path
    base: Path
    parameters: int
    adapted: int
    """Pairs of matrices that were merged."""
    bytes: int


def merge(adapter: Path | str, out: Path | str, *, base: Path | str | None = None) -> Merged:
    """Write a base and its adapter as a model directory; whole or not at all.

    An adapter directory knows its base, which may lie elsewhere by now; a folder of PEFT may name it.
    """
    adapter, out = as_path(adapter, "adapter"), as_path(out, "out")
    place = None if base is None else as_path(base, "base")
    require_new(out)
    if not adapter.exists():
        raise UsageError(f"{adapter}: adapter directory not found")
    if is_adapter(adapter / FOLDER):
        adapter = adapter / FOLDER
    if is_adapter(adapter):
        home, card, adapted = _merge_own(adapter, out, base=place)
    elif is_peft(adapter):
        home, card, adapted = _merge_peft(adapter, out, base=place)
    elif (adapter / "run.json").is_file() and read_settings(adapter).training.lora is not None:
        raise ModelError(
            f"{adapter} has not finished, so it has no adapter yet; finish it with: seqloom train --resume {adapter}"
        )
    else:
        raise ModelError(f"{adapter} is not an adapter: it has neither adapter.json nor PEFT's adapter_config.json")
    size = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
    return Merged(out, home, card.parameters, adapted, size)


def _merge_own(adapter: Path, out: Path, *, base: Path | None) -> tuple[Path, Card, int]:
    record = read_adapter(adapter)
    place = base or Path(record.base.path)
    if not place.exists():
        raise UsageError(f"the base of {adapter} was not found at {place}; name its place with --base")
    home, config = find_model(place), read_settings(adapter)
    if config.training.lora != record.lora:
        raise ModelError(f"{adapter} is inconsistent: adapter.json and config.yaml differ in LoRA; {AGAIN}")
    Base.of(str(place), home).require(record.base.sha256, of=adapter)  # before the tokenisers of another base are read
    tokenizers, card = stored_tokenizers(home, config), parse_card(read_part(adapter / CARD), adapter / CARD)
    weights = merged_weights(
        config, tokenizers, adapter_tensors(adapter), origin=adapter, base=place, expected=record.base.sha256
    )
    _require_finite(weights, adapter)
    with TemporaryDirectory() as folder:
        published = Path(folder) / PUBLISHED
        keep_published(home, published, config, names=weights)
        save_model(
            out,
            config,
            tokenizers=tokenizers,
            weights=weights,
            card=card,
            calibration=read_calibration(adapter),
            tables=stored_tables(adapter),
            published=published,
        )
    return place, card, len(record.rows)


def _merge_peft(folder: Path, out: Path, *, base: Path | None) -> tuple[Path, Card, int]:
    adapter = read_peft(folder)
    if base is None:
        named = f" (it names {adapter.base[:120]})" if adapter.base else ""
        raise UsageError(f"{folder} is an adapter of PEFT; name its base{named} with --base")
    home = find_model(base)
    of_base = read_card(home)
    require_exact_weights(home, of_base)
    if not is_imported(home):
        raise ModelError(f"{base} was not imported from a published model, to whose matrices adapters of PEFT belong")
    loaded = load(home, device="cpu")
    weights = add_peft(loaded.model, adapter, ConversionRecord.read(home / PUBLISHED))
    _require_finite(weights, folder)
    card = Card(of_base.source, of_base.target, of_base.parameters, {**of_base.trained_on, "adapter": str(folder)})
    save_model(
        out,
        loaded.config,
        tokenizers=loaded.tokenizers,
        weights=weights,
        card=card,
        tables=stored_tables(home),
        published=home / PUBLISHED,
    )
    return base, card, len(adapter.pairs)


def _require_finite(weights: Mapping[str, Tensor], adapter: Path) -> None:
    """Refuse a model that could compute nothing."""
    bad = [name for name, each in weights.items() if each.is_floating_point() and not bool(torch.isfinite(each).all())]
    if bad:
        more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise ModelError(
            f"{adapter} cannot be merged: {bad[0]}{more} would have NaN or infinite numbers; the adapter is damaged"
        )
