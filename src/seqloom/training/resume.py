"""Resuming: the circumstances that a checkpoint records, and which of them may differ when a run is resumed."""

import platform
from collections.abc import Mapping
from typing import Any

import numpy
import torch

from seqloom.core.errors import ConfigError, DataError, ModelError
from seqloom.core.events import Listener, notice
from seqloom.training.distributed import World
from seqloom.training.settings import TrainingConfig
from seqloom.version import __version__

_LABELS = {
    "ranks": "number of ranks",
    "parallel": "kind of parallelism",
    "threads": "number of threads",
    "device": "device",
    "is_deterministic": "deterministic algorithms",
    "seqloom": "version of seqloom",
    "torch": "version of torch",
    "numpy": "version of numpy",
    "python": "version of Python",
}
"""What must be the same for the same bits, besides config and data."""

_FREE = frozenset(
    {"steps", "validate_every", "save_every", "keep", "patience", "average", "bad_steps", "log_every", "start_from"}
    | {"threads", "parallel"}
)
"""Settings that change no weight of the steps made so far; the effective values of the last two are compared."""

_ALONE = "replicated"
"""The parallelism of a single rank, and of runs of versions that knew no other."""


def circumstances(
    config: TrainingConfig, *, seed: int, data: str, world: World, device: torch.device
) -> dict[str, Any]:
    """What determines the next steps besides the state of the loop; stored in `state.json`."""
    return {
        "training": config.model_dump(mode="json"),
        "seed": seed,
        "data": data,
        "machine": {
            "ranks": world.size,
            "parallel": config.parallel if world.size > 1 else _ALONE,
            "threads": torch.get_num_threads(),
            "device": device.type,
            "is_deterministic": torch.are_deterministic_algorithms_enabled(),
            "seqloom": __version__,
            "torch": torch.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
    }


def changed_settings(saved: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Settings that differ from those of the checkpoint, as [then, now]; the current ones are used.

    A setting that is newer than the checkpoint is taken to have had its default.
    """
    then, given = {**TrainingConfig().model_dump(mode="json"), **saved["training"]}, now["training"]
    return {name: [then[name], given[name]] for name in given if then[name] != given[name]}


def check_circumstances(
    saved: Mapping[str, Any], now: Mapping[str, Any], *, exact: bool, allow_data_change: bool, listener: Listener
) -> None:
    """Refuse what cannot continue as the same run, and report what continues with other bits."""
    try:
        then, seed, data = saved["training"]["optimiser"], saved["seed"], str(saved["data"])
        machine, changed = {"parallel": _ALONE, **saved["machine"]}, changed_settings(saved, now)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"the checkpoint lacks the circumstances of its run ({error}); remove it to resume from the one before it"
        ) from error
    given = now["training"]["optimiser"]
    if then != given:
        raise ConfigError(
            f"training.optimiser is {given}, but this run was trained with {then}, whose state does not fit; "
            "keep it, or start a new run with training.start_from"
        )
    if seed != now["seed"]:
        raise ConfigError(f"seed is {now['seed']}, but this run began with {seed}, which orders its batches; keep it")
    if data != now["data"]:
        if not allow_data_change:
            raise DataError(
                f"the training data has changed since the checkpoint was written (hash {now['data'][:12]}…, then "
                f"{data[:12]}…); restore the old data, or use --allow-data-change"
            )
        notice(
            listener,
            "the training data has changed since the checkpoint was written; continuing because of --allow-data-change",
        )
    differences = [
        f"{label} was {machine.get(name)} and is {now['machine'][name]}"
        for name, label in _LABELS.items()
        if machine.get(name) != now["machine"][name]
    ]
    if exact:
        # The rate of a cosine depends on the last step, that of a plateau on every validation.
        used = {"cosine": {"steps"}, "plateau": {"validate_every"}}.get(now["training"]["schedule"], set())
        differences += [
            f"training.{name} was {old} and is {new}"
            for name, (old, new) in changed.items()
            if name not in _FREE - used
        ]
    if differences and exact:
        raise ConfigError(
            f"this run cannot be resumed with bit-identical results: {'; '.join(differences)}. Leave out --exact to "
            "resume"
        )
    if differences:
        notice(
            listener,
            f"resuming with the same data order, but results will not be bit-identical: {'; '.join(differences)}",
        )
