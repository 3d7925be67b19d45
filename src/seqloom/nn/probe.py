"""Looking inside: a layer passes what may be looked at through a named Probe, an identity until somebody listens.

    with listen(model, "decoder.*.cross.weights") as trace:
        model(...)
    trace["decoder.0.cross.weights"]        the values that passed, in order

A layer asks `is_heard` and takes its explicit path (attention weights, say) only when somebody does.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase

from torch import Tensor, nn

from seqloom.core.errors import UsageError

Trace = dict[str, list[Tensor]]


class Probe(nn.Module):
    """An identity that tells its listeners what passes."""

    def __init__(self) -> None:
        super().__init__()
        self._listeners: list[Callable[[Tensor], None]] = []

    @property
    def is_heard(self) -> bool:
        return bool(self._listeners)

    def forward(self, value: Tensor) -> Tensor:
        for listener in self._listeners:
            listener(value)
        return value


@contextmanager
def listen(model: nn.Module, *patterns: str) -> Iterator[Trace]:
    """Record what passes the probes whose names match; `*` stands for any part of a name."""
    probes = {name: module for name, module in model.named_modules() if isinstance(module, Probe)}
    chosen = {name: probe for name, probe in probes.items() if any(fnmatchcase(name, each) for each in patterns)}
    if not chosen:
        raise UsageError(f"no probe matches {', '.join(patterns)}; this model has: {', '.join(probes) or 'none'}")
    trace: Trace = defaultdict(list)
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
