"""Resuming: what a checkpoint remembers of its circumstances, and what may differ from them when a run goes on."""

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
    "parallel": "kind of ranks",
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
"""Settings that change no weight of the steps made so far; the last two are compared as they are in effect."""

_ALONE = "replicated"
"""The kind of a rank that has the whole model, as a single one has; and of all ranks before there was another."""


def circumstances(
    config: TrainingConfig, *, seed: int, data: str, world: World, device: torch.device
) -> dict[str, Any]:
    """What besides the state of the loop decides how a run goes on; kept in `state.json`."""
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
    """Settings that differ from those of the checkpoint, as [then, now]. The ones of now are used.

    One that there was not yet is taken to have been as it is by default.
    """
    then, given = {**TrainingConfig().model_dump(mode="json"), **saved["training"]}, now["training"]
    return {name: [then[name], given[name]] for name in given if then[name] != given[name]}


def check_circumstances(
    saved: Mapping[str, Any], now: Mapping[str, Any], *, exact: bool, allow_data_change: bool, listener: Listener
) -> None:
    """Refuse what cannot go on as one run, and tell of what goes on with other bits."""
    try:
        _check(saved, now, exact=exact, allow_data_change=allow_data_change, listener=listener)
    except (KeyError, TypeError, AttributeError) as error:
        raise ModelError(
            f"the checkpoint does not tell the circumstances of its run ({error}); remove it to go back to the one "
            "before it"
        ) from error


def _check(
    saved: Mapping[str, Any], now: Mapping[str, Any], *, exact: bool, allow_data_change: bool, listener: Listener
) -> None:
    then, given = saved["training"]["optimiser"], now["training"]["optimiser"]
    if then != given:
        raise ConfigError(
            f"training.optimiser is {given}, but this run was trained with {then}, whose state does not fit; "
            "keep it, or begin a new run with training.start_from"
        )
    if saved["seed"] != now["seed"]:
        raise ConfigError(
            f"seed is {now['seed']}, but this run began with {saved['seed']}, which orders its batches; keep that one"
        )
    if saved["data"] != now["data"]:
        if not allow_data_change:
            raise DataError(
                f"the training data has changed since the checkpoint was written (hash {now['data'][:12]}…, then "
                f"{saved['data'][:12]}…); bring the old data back, or go on with --allow-data-change"
            )
        notice(listener, "the training data has changed since the checkpoint was written; going on as you asked")
    machine = {"parallel": _ALONE, **saved["machine"]}
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
            for name, (old, new) in changed_settings(saved, now).items()
            if name not in _FREE - used
        ]
    if differences and exact:
        raise ConfigError(
            f"this run cannot go on to the same bits: {'; '.join(differences)}. Leave out --exact to go on"
        )
    if differences:
        notice(listener, f"order kept, bits not: {'; '.join(differences)}")
