"""Row updates: the dense step for touched rows, nothing for the others, through the whole trainer."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from seqloom.core.errors import ConfigError, TrainingError
from seqloom.core.events import Event
from seqloom.nn.embeddings import Embedding
from seqloom.nn.objectives import AliasSampler, SampledSoftmax, noise_distribution
from seqloom.nn.outputs import Output
from seqloom.training.distributed import World
from seqloom.training.optimisers import (
    clip_by_norm,
    clip_by_value,
    global_norm,
    gradients,
    make_optimiser,
    optimiser_tensors,
    restore_optimiser,
    trained,
)
from seqloom.training.sparse_updates import choose_row_gradients, gradient_values, set_row_gradients
from seqloom.training.task import Loss
from seqloom.training.trainer import Trainer
from training.toy import same_bits, settings

SYMBOLS, WIDTH = 12, 4
OPTIMISERS = [
    {"optimiser": "adamw", "weight_decay": 0.1},
    {"optimiser": "adam", "weight_decay": 0.1},
    {"optimiser": "sgd", "weight_decay": 0.1, "momentum": 0.9},
    {"optimiser": "sgd"},
]


class TinyModel(nn.Module):
    """Embedding → linear → output, tied or not: the least that has two tables."""

    def __init__(self, *, is_tied: bool = False, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.embedding = Embedding(SYMBOLS, WIDTH)
        self.linear = nn.Linear(WIDTH, WIDTH)
        weight = self.embedding.weight if is_tied else nn.Parameter(torch.randn(SYMBOLS, WIDTH))
        self.output = Output(weight, has_bias=True)
        self.to(dtype)

    def loss(self, ids: Tensor, labels: Tensor) -> Tensor:
        rows, biases = self.output.picked(labels)
        assert biases is not None
        return ((torch.tanh(self.linear(self.embedding(ids))) * rows).sum(1) + biases - 1).pow(2).sum()


def batch(seed: int) -> tuple[Tensor, Tensor]:
    """Four tokens and labels, some twice, out of the first ten symbols."""
    drawn = torch.randint(1, 10, (2, 4), generator=torch.Generator().manual_seed(seed))
    return drawn[0], drawn[1]


def take_steps(model: TinyModel, *, is_sparse: bool, steps: int = 1, **changes: object) -> torch.optim.Optimizer:
    """Steps of two accumulated batches each, clipped."""
    set_row_gradients(model, is_sparse)
    optimiser = make_optimiser(model, settings(**changes))
    for step in range(steps):
        optimiser.zero_grad()
        for part in range(2):
            model.loss(*batch(10 * step + part)).backward()
        values = gradients(model.parameters())
        clip_by_norm(values, 0.5, norm=global_norm(values).item())
        optimiser.step()
    return optimiser


def touched(model: TinyModel, *, step: int = 0) -> dict[str, Tensor]:
    """Which rows of each table two batches touch."""
    found = {
        name: torch.zeros(SYMBOLS, dtype=torch.bool) for name in ("embedding.weight", "output.weight", "output.bias")
    }
    for part in range(2):
        ids, labels = batch(10 * step + part)
        found["embedding.weight"][ids] = True
        found["output.weight"][labels] = found["output.bias"][labels] = True
    if model.output.weight is model.embedding.weight:
        found["embedding.weight"] |= found.pop("output.weight")
    return found


@pytest.mark.parametrize("changes", OPTIMISERS)
@pytest.mark.parametrize("is_tied", [False, True])
def test_a_sparse_step_is_the_dense_step_with_untouched_rows_frozen(is_tied: bool, changes: dict[str, object]) -> None:
    start, dense, sparse = (TinyModel(is_tied=is_tied) for _ in range(3))
    take_steps(dense, is_sparse=False, **changes)
    take_steps(sparse, is_sparse=True, **changes)
    rows, before, wanted = touched(start), dict(start.named_parameters()), dict(dense.named_parameters())
    for name, parameter in sparse.named_parameters():
        expected = wanted[name].detach().clone()
        if name in rows:
            expected[~rows[name]] = before[name].detach()[~rows[name]]
            assert not bool(rows[name].all()), "the case should leave some rows alone"
        torch.testing.assert_close(parameter.detach(), expected, rtol=0, atol=1e-12)


def test_the_twin_notices_rows_that_move_untouched() -> None:
    start, dense = TinyModel(), TinyModel()
    take_steps(dense, is_sparse=False, optimiser="adamw", weight_decay=0.1)
    quiet = ~touched(start)["output.weight"]
    assert (dense.output.weight - start.output.weight)[quiet].abs().max() > 1e-4


class Holder(nn.Module):
    """A module of one table."""

    def __init__(self, table: Tensor) -> None:
        super().__init__()
        self.table = nn.Parameter(table.clone())


def feed(model: Holder, optimiser: torch.optim.Optimizer, rows: list[int], values: Tensor, *, is_sparse: bool) -> None:
    """A step with these gradients of these rows."""
    sparse = torch.sparse_coo_tensor(torch.tensor([rows]), values, model.table.shape, check_invariants=True)
    model.table.grad = sparse if is_sparse else sparse.to_dense()
    optimiser.step()


@pytest.mark.parametrize("changes", OPTIMISERS)
def test_rows_that_are_touched_at_every_step_move_as_the_dense_optimiser_moves_them(changes: dict[str, object]) -> None:
    start = torch.randn(6, 3, dtype=torch.float64)
    sparse, dense = Holder(start), Holder(start[:2])
    optimisers = [make_optimiser(model, settings(**changes)) for model in (sparse, dense)]
    for _ in range(8):
        values = torch.randn(2, 3, dtype=torch.float64)
        feed(sparse, optimisers[0], [0, 1], values, is_sparse=True)
        feed(dense, optimisers[1], [0, 1], values, is_sparse=False)
    torch.testing.assert_close(sparse.table[:2].detach(), dense.table.detach(), rtol=0, atol=1e-12)
    assert torch.equal(sparse.table[2:].detach(), start[2:])


def way_of_a_rare_row(every: int, *, is_sparse: bool, changes: dict[str, object]) -> float:
    """How far a row has gone that every so often has the same gradient, while another has it at each step."""
    model = Holder(torch.zeros(2, 1, dtype=torch.float64))
    optimiser = make_optimiser(model, settings(**{**changes, "weight_decay": 0.0, "learning_rate": 1e-3}))
    for step in range(20 * every):
        rows = [0, 1] if step % every == 0 else [0]
        feed(model, optimiser, rows, torch.full((len(rows), 1), 0.5, dtype=torch.float64), is_sparse=is_sparse)
    return model.table[1].item()


@pytest.mark.parametrize("changes", OPTIMISERS[:3])
@pytest.mark.parametrize("every", [2, 5, 20])
def test_a_rare_row_goes_about_as_far_as_the_dense_optimiser_would_take_it(
    every: int, changes: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, theirs = (way_of_a_rare_row(every, is_sparse=is_sparse, changes=changes) for is_sparse in (True, False))
    assert ours == pytest.approx(theirs, rel=0.2)
    # The control: without what follows from momentum it falls far behind.
    monkeypatch.setattr(
        "seqloom.training.sparse_updates._drift", lambda _ratio, _gaps, table: torch.ones_like(table[:1])
    )
    assert way_of_a_rare_row(every, is_sparse=True, changes=changes) != pytest.approx(theirs, rel=0.35)


@pytest.mark.parametrize("changes", OPTIMISERS[:3])
def test_what_is_remembered_of_a_row_is_what_the_dense_optimiser_remembers(changes: dict[str, object]) -> None:
    changes = {**changes, "weight_decay": 0.0}
    sparse, dense = (Holder(torch.zeros(4, 2, dtype=torch.float64)) for _ in range(2))
    optimisers = [make_optimiser(model, settings(**changes)) for model in (sparse, dense)]
    for rows in ([0, 3], [3], [1, 3], [3, 2], [0, 1, 2, 3]):
        values = torch.randn(len(rows), 2, dtype=torch.float64)
        feed(sparse, optimisers[0], rows, values, is_sparse=True)
        feed(dense, optimisers[1], rows, values, is_sparse=False)
    pairs = zip(optimisers, (sparse, dense), strict=True)
    ours, theirs = (optimiser_tensors(optimiser, trained(model)) for optimiser, model in pairs)
    for part in set(theirs) - {"table/step"}:
        torch.testing.assert_close(ours[part], theirs[part], rtol=0, atol=1e-12)
    assert ours["table/step"].tolist() == [5.0] * 4


def test_the_norm_counts_the_sum_of_a_row_that_comes_up_twice() -> None:
    parameter = nn.Parameter(torch.zeros(5, 2))
    parameter.grad = torch.sparse_coo_tensor(
        torch.tensor([[1, 4, 1]]), torch.tensor([[3.0, 0], [0, 1], [-3, 2]]), (5, 2)
    )
    (values,) = gradients([parameter])
    assert global_norm([values]).item() == pytest.approx(5**0.5)  # (0, 2) and (0, 1)
    clip_by_norm([values], 1.0, norm=5**0.5)
    torch.testing.assert_close(parameter.grad.to_dense().norm(), torch.tensor(1.0))
    clip_by_value(gradients([parameter]), 0.5)
    assert parameter.grad.to_dense()[[1, 4], 1].tolist() == pytest.approx([0.5, 1 / 5**0.5])
    assert gradient_values(nn.Parameter(torch.zeros(2))) is None


@pytest.mark.parametrize("changes", OPTIMISERS[:3])
def test_what_the_optimiser_remembers_of_rows_is_restored_to_the_bit(changes: dict[str, object]) -> None:
    model = TinyModel(dtype=torch.float32)
    optimiser = take_steps(model, is_sparse=True, steps=2, **changes)
    tensors = {name: tensor.clone() for name, tensor in optimiser_tensors(optimiser, trained(model)).items()}
    second = make_optimiser(model, settings(**changes))
    restore_optimiser(second, trained(model), tensors)
    again = optimiser_tensors(second, trained(model))
    assert again.keys() == tensors.keys()
    assert all(torch.equal(again[name], tensors[name]) for name in tensors)
    if changes["optimiser"] != "sgd":
        assert tensors["embedding.weight/step"].shape == (SYMBOLS,)
        assert tensors["linear.weight/step"].shape == ()


@pytest.mark.parametrize("first", ["dense", "rows"])
def test_a_table_may_change_between_dense_and_sparse_gradients(first: str) -> None:
    # A run that goes on with other settings: the clock of the first half stays, and every touched row moves on.
    model = TinyModel()
    config = settings(optimiser="adamw")
    optimiser = make_optimiser(model, config)
    for step, is_sparse in enumerate([first == "rows", first != "rows"]):
        before = model.output.weight.detach().clone()
        set_row_gradients(model, is_sparse)
        optimiser.zero_grad()
        model.loss(*batch(step)).backward()
        optimiser.step()
        assert bool((model.output.weight != before)[batch(step)[1]].all())
    clock = optimiser.state[model.output.weight]["step"]
    assert clock.shape == ((SYMBOLS,) if first == "rows" else ())


# --- through the trainer ---------------------------------------------------------------------------------------------


@dataclass
class DrawingTask:
    """Random pairs of symbols under a sampled softmax; batch (0, `poisoned`) has no finite loss."""

    touches_rows: bool = True
    poisoned: int = -1
    rows: int = 4

    def __post_init__(self) -> None:
        self.objective = SampledSoftmax(AliasSampler(noise_distribution(np.ones(SYMBOLS), power=1.0)), 2)

    def batches(self, epoch: int) -> int:
        return 8

    def batch(self, epoch: int, index: int) -> tuple[int, Tensor, Tensor]:
        ids, labels = batch(100 * epoch + index)
        return index + 100 * epoch, ids, labels

    def count(self, batch: tuple[int, Tensor, Tensor]) -> int:
        return len(batch[1])

    def loss(self, model: nn.Module, batch: tuple[int, Tensor, Tensor]) -> Loss:
        assert isinstance(model, TinyModel)
        number, ids, labels = batch
        features = torch.tanh(model.linear(model.embedding(ids)))
        generator = torch.Generator().manual_seed(number)
        total = self.objective(features, labels, model.output, generator=generator)
        return Loss(total * float("nan") if number == self.poisoned else total, len(ids))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        assert isinstance(model, TinyModel)
        ids, labels = batch(999)
        return {"loss": float(model.output.cross_entropy(torch.tanh(model.linear(model.embedding(ids))), labels) / 4)}

    def describe(self, batch: tuple[int, Tensor, Tensor]) -> str:
        return f"number {batch[0]}"

    def fingerprint(self) -> str:
        return "drawing"


class PreparingTask(DrawingTask):
    """The same, from the noise on."""

    def prepare(self, model: nn.Module) -> None:
        assert isinstance(model, TinyModel)
        self.objective.prepare(model.output)


def make(run: Path, task: DrawingTask, **changes: object) -> tuple[Trainer[tuple[int, Tensor, Tensor]], list[Event]]:
    events: list[Event] = []
    config = settings(**{"clip_norm": 0.5, "batches_per_step": 2, "optimiser": "adamw", **changes})
    model = TinyModel(is_tied=True, dtype=torch.float32)
    trainer = Trainer(model, task, config, run=run, seed=7, device=torch.device("cpu"), listener=events.append)
    return trainer, events


def test_a_run_with_row_updates_resumes_to_the_same_bits(tmp_path: Path) -> None:
    whole, _ = make(tmp_path / "whole", DrawingTask(), steps=6)
    assert all(module.row_gradients for module in (whole.model.embedding, whole.model.output))  # type: ignore[union-attr]
    whole.train()
    half, _ = make(tmp_path / "parts", DrawingTask(), steps=4)
    half.train()
    rest, _ = make(tmp_path / "parts", DrawingTask(), steps=6)
    rest.train(resume=True)
    assert same_bits(dict(rest.model.state_dict()), dict(whole.model.state_dict()))
    assert whole.strategy.optimiser.state[whole.model.embedding.weight]["step"].shape == (SYMBOLS,)  # type: ignore[union-attr, index]


def test_a_task_prepares_a_fresh_model_but_not_a_resumed_one(tmp_path: Path) -> None:
    plain, _ = make(tmp_path / "plain", DrawingTask(), steps=2)
    prepared, _ = make(tmp_path / "prepared", PreparingTask(), steps=2)
    plain.train()
    prepared.train()
    low = torch.tensor(SYMBOLS).float().log()  # twelve symbols, seen alike
    for trainer, begin in ((plain, 0.0), (prepared, -float(low))):
        assert isinstance(trainer.model, TinyModel)
        assert trainer.model.output.bias is not None
        assert trainer.model.output.bias.mean().item() == pytest.approx(begin, abs=0.2)
    again, _ = make(tmp_path / "plain", PreparingTask(), steps=3)
    again.train(resume=True)
    assert isinstance(again.model, TinyModel)
    assert again.model.output.bias is not None
    assert again.model.output.bias.mean().item() == pytest.approx(0, abs=0.3)


def test_a_bad_step_moves_no_row_and_names_its_batch(tmp_path: Path) -> None:
    good, _ = make(tmp_path / "good", DrawingTask(), steps=1)
    good.train()
    bad, events = make(tmp_path / "bad", DrawingTask(poisoned=2), steps=2)
    bad.train()
    assert same_bits(dict(bad.model.state_dict()), dict(good.model.state_dict()))
    (told,) = [event for event in events if event.kind == "bad_step"]
    assert "batch 2 (number 2)" in str(told["where"])
    assert "non-finite gradients: embedding.weight" in str(told["where"])
    with pytest.raises(TrainingError, match="number 2"):
        make(tmp_path / "worse", DrawingTask(poisoned=2), steps=2, bad_steps=1)[0].train()


@pytest.mark.parametrize(
    ("touches_rows", "updates", "ranks", "expected"),
    [
        (True, "auto", 1, True),
        (False, "auto", 1, False),
        (False, "rows", 1, True),
        (True, "dense", 1, False),
        (True, "auto", 2, False),
        (True, "dense", 2, False),
    ],
)
def test_rows_are_chosen_where_they_help(touches_rows: bool, updates: str, ranks: int, expected: bool) -> None:
    events: list[Event] = []
    model, task = TinyModel(), DrawingTask(touches_rows=touches_rows)
    chosen = choose_row_gradients(
        model,
        task,
        updates=updates,
        world=World(size=ranks),
        listener=events.append,  # type: ignore[arg-type]
    )
    assert chosen == expected == model.embedding.row_gradients == model.output.row_gradients
    told = ["2 ranks average whole gradients, so each step moves all rows of the tables"]
    assert [event["message"] for event in events] == (told if (ranks, updates) == (2, "auto") else [])


def test_requested_row_updates_are_refused_on_several_ranks() -> None:
    with pytest.raises(ConfigError, match=r"training\.table_updates=rows cannot be shared by 2 ranks"):
        choose_row_gradients(TinyModel(), object(), updates="rows", world=World(size=2), listener=lambda _: None)
