"""A recurrent cell from outside is stacked, trained and analysed as one of the package, and joins it by a few words."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor, nn

from seqloom.apps.translator import Translator
from seqloom.models.rnn_lm import RnnLmConfig
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.nn.bptt.truncation import Truncation, step_jacobian
from seqloom.nn.cells.cell import Cell
from seqloom.nn.embeddings import Symbols
from seqloom.nn.jacobians import gradient_by_lag, jacobians_along, state_spectra
from seqloom.nn.recurrent import Bidirectional, MakeCell, Stack
from seqloom.runs.train import train
from tiny_runs import TINY

EXACT = {"rtol": 1e-12, "atol": 1e-12}


@pytest.fixture
def unit(example: Callable[[str], ModuleType]) -> MakeCell:
    make: MakeCell = example("minimal_gated_unit").MinimalGatedUnit
    return make


def loop(cell: Cell, inputs: Tensor) -> Tensor:
    """Hidden states at every position, by the formula itself."""
    forget, candidate = cell.get_submodule("forget"), cell.get_submodule("candidate")
    hidden, found = inputs.new_zeros(len(inputs), cell.width), []
    for x in inputs.unbind(1):
        f = torch.sigmoid(forget(torch.cat([x, hidden], 1)))
        hidden = (1 - f) * hidden + f * torch.tanh(candidate(torch.cat([x, f * hidden], 1)))
        found.append(hidden)
    return torch.stack(found, 1)


def test_the_page_shows_the_whole_example(example: Callable[[str], ModuleType]) -> None:
    code = Path(str(example("minimal_gated_unit").__file__)).read_text(encoding="utf-8")
    page = Path(__file__).parents[2] / "docs" / "extending.md"
    assert f"```python\n{code}```" in page.read_text(encoding="utf-8")


def test_a_stack_equals_a_plain_loop_with_all_gradients(unit: MakeCell) -> None:
    cells = [unit(3, 5).double(), unit(5, 5).double()]
    stack = Stack(cells, dropout_rate=0.0)
    inputs = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True)
    lengths, leaves = torch.tensor([6, 2, 4, 1]), [inputs, *stack.parameters()]
    real = (torch.arange(6) < lengths[:, None])[:, :, None]
    expected = loop(cells[1], loop(cells[0], inputs)) * real
    outputs, final = stack(inputs, lengths=lengths)
    torch.testing.assert_close(outputs * real, expected, **EXACT)
    torch.testing.assert_close(final[1][0], expected[torch.arange(4), lengths - 1], **EXACT)
    weights = torch.randn_like(expected)
    found, right = (torch.autograd.grad((each * weights * real).sum(), leaves) for each in (outputs, expected))
    torch.testing.assert_close(found, right, **EXACT)
    cut, _ = stack(inputs, lengths=lengths, truncation=Truncation("chunked", window=2))
    torch.testing.assert_close(cut * real, expected, **EXACT)
    other = torch.autograd.grad((cut * weights * real).sum(), leaves)
    assert any(not torch.allclose(a, b) for a, b in zip(other, right, strict=True))
    both = Bidirectional([unit(3, 5)], [unit(3, 5)], dropout_rate=0.0)
    assert both(inputs.float(), lengths).shape == (4, 6, 10)


def test_its_jacobian_equals_finite_differences(unit: MakeCell) -> None:
    cell = unit(3, 5).double()
    x, hidden = torch.randn(3, dtype=torch.float64), torch.randn(1, 5, dtype=torch.float64)
    jacobian = step_jacobian(cell, cell.project(x), (hidden,))
    unit_steps = 1e-6 * torch.eye(5, dtype=torch.float64)
    columns = [(cell(x[None], (hidden + e,))[0] - cell(x[None], (hidden - e,))[0])[0] / 2e-6 for e in unit_steps]
    torch.testing.assert_close(jacobian, torch.stack(columns, 1), rtol=1e-6, atol=1e-8)
    inputs = torch.randn(1, 4, 3, dtype=torch.float64)
    assert jacobians_along(cell, inputs[0], (hidden,)).shape == (4, 5, 5)
    assert len(gradient_by_lag(cell, inputs, (hidden,), gradient=torch.randn_like(hidden))) == 5


def test_models_take_it_as_an_argument(unit: MakeCell) -> None:
    symbols = Symbols(9, 9, is_shared=True)
    model = RnnLmConfig(width=8, layers=2).build(symbols, seed=1, make_cell=unit)
    assert [type(cell).__name__ for cell in model.layers.cells] == ["MinimalGatedUnit"] * 2
    features, _ = model(torch.randint(4, 9, (2, 5)))
    features.sum().backward()
    assert all(weight.grad is not None for weight in model.layers.cells[0].parameters())
    assert state_spectra(model) == {}
    both = Seq2SeqConfig(width=8, embedding_width=8).build(symbols, seed=1, make_cell=unit)
    assert sum(type(cell).__name__ == "MinimalGatedUnit" for cell in both.modules()) == 6


def test_it_trains_by_the_normal_way(unit: MakeCell, tmp_path: Path, corpus: tuple[list[str], list[str]]) -> None:
    @dataclass(frozen=True)
    class Gated:
        width: int = 8

        def build(self, symbols: Symbols, *, seed: int) -> nn.Module:
            return Seq2SeqConfig(width=self.width).build(symbols, seed=seed, make_cell=unit)

    trained = train(None, TINY, out=tmp_path / "run", train=corpus[0], dev=corpus[1], model=Gated())
    assert trained is not None
    assert len(Translator.load(trained.model, model=Gated()).translate(["Hello."])) == 1


def test_it_joins_the_package_by_a_few_words(contribute: Callable[..., str]) -> None:
    script = """
from seqloom.core.errors import ConfigError
from seqloom.models.seq2seq import Seq2SeqConfig
from seqloom.nn.cells.minimal_gated_unit import MinimalGatedUnit
from seqloom.nn.embeddings import Symbols
model = Seq2SeqConfig(cell="mgu", width=8).build(Symbols(9, 9, is_shared=True), seed=1)
print(sum(isinstance(each, MinimalGatedUnit) for each in model.modules()))
try:
    Seq2SeqConfig(cell="mgu", forget_bias=2.0)
except ConfigError as error:
    print("model.cell is mgu" in str(error))
"""
    place = "src/seqloom/nn/cells/minimal_gated_unit.py"
    assert contribute("minimal_gated_unit", section="A recurrent cell", place=place, script=script) == "6\nTrue\n"
