"""Looking inside: what passes is recorded, listeners go away, and a wrong name says which names there are."""

import pytest
import torch
from torch import nn

from seqloom.core.errors import UsageError
from seqloom.nn.probe import Probe, listen


class Inner(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = Probe()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.weights(2 * x)
        return y


def model_of() -> nn.Sequential:
    return nn.Sequential(Inner(), Inner())


def heard(model: nn.Module) -> list[bool]:
    return [module.has_listeners for module in model.modules() if isinstance(module, Probe)]


def test_listening_records_what_passes_in_order_and_changes_nothing() -> None:
    model, x = model_of(), torch.ones(1)
    with listen(model, "1.weights") as trace:
        assert heard(model) == [False, True]
        assert model(x).item() == 4
        model(3 * x)
    assert [value.item() for value in trace["1.weights"]] == [4, 12]
    assert list(trace) == ["1.weights"]
    model(x)
    assert len(trace["1.weights"]) == 2


@pytest.mark.parametrize(
    ("patterns", "names"),
    [(("*",), {"0.weights", "1.weights"}), (("0",), {"0.weights"}), (("0", "1.w*"), {"0.weights", "1.weights"})],
)
def test_a_pattern_names_probes_or_the_part_around_them(patterns: tuple[str, ...], names: set[str]) -> None:
    with listen(model_of(), *patterns) as trace:
        assert set(trace) == names


def test_listeners_are_removed_on_an_exception_too() -> None:
    model = model_of()
    with pytest.raises(ZeroDivisionError), listen(model, "*"):
        raise ZeroDivisionError
    assert heard(model) == [False, False]


def test_listeners_within_listeners_do_not_disturb_each_other() -> None:
    model, x = model_of(), torch.ones(1)
    with listen(model, "*") as outer:
        with listen(model, "0.*") as inner:
            model(x)
        assert heard(model) == [True, True]
        model(x)
    assert len(outer["0.weights"]) == 2
    assert len(inner["0.weights"]) == 1


@pytest.mark.parametrize("patterns", [("weight",), ("*", "weight")])
def test_an_unknown_pattern_names_the_probes_there_are(patterns: tuple[str, ...]) -> None:
    with (
        pytest.raises(UsageError, match=r"no probe matches weight; this model has: 0\.weights, 1\.weights"),
        listen(model_of(), *patterns),
    ):
        pass
    with pytest.raises(UsageError, match="this model has: none"), listen(nn.Linear(1, 1), "*"):
        pass
