"""Looking inside: a layer passes what can be inspected through a named Probe, an identity without listeners.

    with listen(model, "decoder.*.cross") as trace:
        model(...)
    trace["decoder.layers.0.cross.weights"]        the values that passed, in order

A layer takes its explicit path (which has attention weights, say) only if the probe `has_listeners`.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from seqloom.core.errors import UsageError

Trace = dict[str, list[Tensor]]


class Probe(nn.Module):
    """An identity that calls its listeners with every value."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[Tensor], None]] = []

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def forward(self, value: Tensor) -> Tensor:
        for listener in self._listeners:
            listener(value)
        return value


@contextmanager
def listen(model: nn.Module, *patterns: str) -> Iterator[Trace]:
    """Record the values of all probes that match, or are inside a module that matches; `*` is any part of a name."""
    probes = {name: module for name, module in model.named_modules() if isinstance(module, Probe)}
    for pattern in patterns:
        if not any(_matches(name, pattern) for name in probes):
            raise UsageError(f"no probe matches {pattern}; this model has: {', '.join(probes) or 'none'}")
    chosen = {name: probe for name, probe in probes.items() if any(_matches(name, each) for each in patterns)}
    trace: Trace = {name: [] for name in chosen}
    attached: list[tuple[Probe, Callable[[Tensor], None]]] = []
    for name, probe in chosen.items():
        keep = trace[name].append
        probe._listeners.append(keep)
        attached.append((probe, keep))
    try:
        yield trace
    finally:
        for probe, keep in attached:
            probe._listeners.remove(keep)


def _matches(name: str, pattern: str) -> bool:
    return fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
