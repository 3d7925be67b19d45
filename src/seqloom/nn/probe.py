"""Recording values inside a model: a layer passes what can be inspected through a named Probe, an identity.

    with listen(model, "decoder.*.cross") as trace:
        model(...)
    trace["decoder.layers.0.cross.weights"]        the values that passed, in order

A layer takes its explicit path (which has attention weights, say) only if the probe `has_listeners`.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from functools import partial

from torch import Tensor, nn

from seqloom.core.errors import UsageError

Trace = dict[str, list[Tensor]]


class Probe(nn.Identity):
    """An identity whose values can be recorded with `listen`."""

    @property
    def has_listeners(self) -> bool:
        return bool(self._forward_hooks)


@contextmanager
def listen(model: nn.Module, *patterns: str) -> Iterator[Trace]:
    """Record the values of all probes that match, or are inside a module that matches; `*` is any part of a name."""
    probes = {name: module for name, module in model.named_modules() if isinstance(module, Probe)}
    chosen: set[str] = set()
    for pattern in patterns:
        found = {name for name in probes if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")}
        if not found:
            raise UsageError(f"no probe matches {pattern}; this model has: {', '.join(probes) or 'none'}")
        chosen |= found
    trace: Trace = {name: [] for name in probes if name in chosen}
    with ExitStack() as attached:
        for name, values in trace.items():
            hook = probes[name].register_forward_hook(partial(_record, values))
            attached.callback(hook.remove)
        yield trace


def _record(values: list[Tensor], _probe: nn.Module, _inputs: tuple[Tensor], value: Tensor) -> None:
    values.append(value)
