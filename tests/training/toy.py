"""A small task to train on: a two-layer network that learns a fixed random map from numbers to classes.

Run as a program it trains in a process of its own, which the tests then stop, kill, or start twice over:
`python -m training.toy RUN '{"steps": 9, …}'`.
"""

import errno
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn

from seqloom.core.errors import SeqloomError, exit_code_of
from seqloom.core.events import Event, to_json
from seqloom.nn.dropout import Dropout
from seqloom.training.checkpoint import Disk, LazyTensors
from seqloom.training.distributed import join
from seqloom.training.settings import TrainingConfig
from seqloom.training.task import Loss
from seqloom.training.trainer import Trainer
from seqloom.training.weights import weights_of

WIDTH, CLASSES = 6, 5


class ToyModel(nn.Module):
    """Numbers → hidden → classes, with our dropout, a torch dropout, a tied weight and a counter as a buffer.

    With `rare` there is a parameter that only some batches use, and one that none does.
    """

    def __init__(self, *, seed: int = 3, dropout: float = 0.0, torch_dropout: float = 0.0, rare: bool = False) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.first = nn.Linear(WIDTH, WIDTH)
        self.second = nn.Linear(WIDTH, WIDTH)
        self.output = nn.Linear(WIDTH, CLASSES)
        self.second.weight = self.first.weight
        self.dropout = Dropout(dropout)
        self.torch_dropout = nn.Dropout(torch_dropout)
        self.rare = nn.Parameter(torch.ones(()), requires_grad=rare)
        self.never = nn.Parameter(torch.ones(2, 2), requires_grad=rare)
        self.seen: Tensor
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))
        with torch.no_grad():
            for parameter in (self.first.weight, self.first.bias, self.second.bias, *self.output.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) / 2)

    def layers_by_entry(self) -> list[tuple[nn.Module, str]]:
        """All of them; the first two have a weight in common, so that ranks cannot gather them one by one."""
        return [(layer, "forward") for layer in (self.first, self.second, self.output)]

    def forward(self, values: Tensor) -> Tensor:
        if self.training:
            self.seen += 1
        hidden = self.dropout(torch.tanh(self.first(values)))
        if self.rare.requires_grad and len(values) < ToyTask.rows_per_batch:
            hidden = hidden * self.rare
        logits: Tensor = self.output(self.torch_dropout(torch.tanh(self.second(hidden))))
        return logits


@dataclass(frozen=True)
class ToyBatch:
    rows: Tensor
    values: Tensor
    classes: Tensor


@dataclass
class ToyTask:
    """Batches of unequal size over a fixed set of rows, in another order each epoch."""

    rows: int = 23
    rows_per_batch: int = 4
    poisoned: frozenset[tuple[int, int]] = frozenset()
    """(epoch, index) of batches whose loss is NaN."""
    dtype: torch.dtype = torch.float32
    served: list[tuple[int, int]] = field(default_factory=list)
    """(epoch, index) of every batch that was asked for."""
    on_batch: Callable[[int, int], None] = lambda *_: None
    dev_losses: list[float] = field(default_factory=list)
    """If given, what the validations report, one after the other."""
    data_seed: int = 11

    def __post_init__(self) -> None:
        generator = torch.Generator().manual_seed(self.data_seed)
        values = torch.randn(self.rows, WIDTH, generator=generator)
        self.values = values.to(self.dtype)
        self.classes = (values @ torch.randn(WIDTH, CLASSES, generator=generator)).argmax(-1)

    def batches(self, epoch: int) -> int:
        return -(-self.rows // self.rows_per_batch)

    def batch(self, epoch: int, index: int) -> ToyBatch:
        self.on_batch(epoch, index)
        self.served.append((epoch, index))
        order = torch.randperm(self.rows, generator=torch.Generator().manual_seed(epoch))
        rows = order[index * self.rows_per_batch : (index + 1) * self.rows_per_batch]
        values = self.values[rows]
        return ToyBatch(rows, values * float("nan") if (epoch, index) in self.poisoned else values, self.classes[rows])

    def count(self, batch: ToyBatch) -> int:
        return len(batch.rows)

    def loss(self, model: nn.Module, batch: ToyBatch) -> Loss:
        total = nn.functional.cross_entropy(model(batch.values), batch.classes, reduction="sum")
        return Loss(total, len(batch.rows))

    def validate(self, model: nn.Module) -> Mapping[str, float]:
        assert not model.training
        if self.dev_losses:
            return {"loss": self.dev_losses.pop(0)}
        logits = model(self.values)
        torch.rand(3)  # looking must not change the run
        loss = nn.functional.cross_entropy(logits, self.classes).item()
        return {"loss": loss, "accuracy": (logits.argmax(-1) == self.classes).double().mean().item()}

    def describe(self, batch: ToyBatch) -> str:
        return f"{len(batch.rows)} rows, lines {', '.join(str(row) for row in batch.rows.tolist())}"

    def fingerprint(self) -> str:
        return f"toy-{self.rows}-{self.data_seed}"


def settings(**changes: object) -> TrainingConfig:
    """Short runs: a constant rate, an event, a validation and a checkpoint often."""
    values = {
        "steps": 6,
        "learning_rate": 0.05,
        "schedule": "constant",
        "warmup": 0,
        "log_every": 1,
        "validate_every": 3,
        "save_every": 2,
        "keep": 20,
    }
    return TrainingConfig.model_validate({**values, **changes})


def make_trainer(
    run: Path, *, model: nn.Module | None = None, task: ToyTask | None = None, seed: int = 7, **changes: object
) -> tuple[Trainer[ToyBatch], list[Event]]:
    """A trainer on the toy task, and the list that its events go to."""
    events: list[Event] = []
    trainer = Trainer(
        model or ToyModel(),
        task or ToyTask(),
        settings(**changes),
        run=run,
        seed=seed,
        device=torch.device("cpu"),
        listener=events.append,
    )
    return trainer, events


def weights(trainer: Trainer[ToyBatch]) -> dict[str, Tensor]:
    """A copy of the weights, which the next step will not change."""
    return {name: tensor.clone() for name, tensor in weights_of(trainer.model).items()}


def same_bits(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> bool:
    """Whether two sets of weights are the same bit for bit."""
    bits = ({name: (tensor.dtype, tensor.numpy().tobytes()) for name, tensor in part.items()} for part in (one, other))
    return next(bits) == next(bits)


@dataclass
class FullAt(Disk):
    """A disk that has no room when a checkpoint is written for the n-th time, after the first of its files."""

    at: int
    written: int = 0

    def write_tensors(self, path: Path, tensors: Mapping[str, Tensor] | LazyTensors) -> None:
        if path.name == "model.safetensors":
            self.written += 1
        if path.name == "optim.safetensors" and self.written == self.at:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write_tensors(path, tensors)


def main(run: Path, options: dict[str, object]) -> int:
    """Train in this process. Options that are no settings: how the model is made, and what happens to the run."""
    torch.set_num_threads(1)
    dtype = torch.float64 if options.pop("dtype", "") == "float64" else torch.float32
    rates = {name: float(options.pop(name, 0.0)) for name in ("dropout", "torch_dropout")}  # type: ignore[arg-type]
    rare = bool(options.pop("rare", False))
    resume, kill_at = bool(options.pop("resume", False)), options.pop("kill_at", None)
    poisoned = frozenset(tuple(pair) for pair in options.pop("poisoned", []))  # type: ignore[attr-defined]
    hold_at, order_file = options.pop("hold_at", None), options.pop("order_file", None)
    full_at = int(options.pop("full_at", 0))  # type: ignore[call-overload]
    die_at, raise_at = options.pop("die_at", None), options.pop("raise_at", None)
    # torchrun starts a program again with the same words: it goes on, and what went wrong does so only once.
    is_restarted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    if is_restarted:
        resume, die_at, raise_at = True, None, None
    task = ToyTask(dtype=dtype, poisoned=poisoned)

    def listen(event: Event) -> None:
        sys.stdout.write(to_json(event) + "\n")
        sys.stdout.flush()
        if event.kind == "step" and event["step"] == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def hold(epoch: int, index: int) -> None:
        """Wait in the middle of a step until a file says to go on, so that a test can do something meanwhile."""
        while [epoch, index] == hold_at and not (run / "go").exists():
            time.sleep(0.02)
        if [epoch, index] == die_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if [epoch, index] == raise_at:
            raise SeqloomError(f"batch {index} of epoch {epoch} cannot be had")

    task.on_batch = hold
    with join(torch.device("cpu")) as world:
        trainer = Trainer(
            # Every rank draws weights of its own; those of the first count.
            ToyModel(**rates, rare=rare, seed=3 + world.rank).to(dtype),
            task,
            settings(**options),
            run=run,
            seed=7,
            device=torch.device("cpu"),
            listener=listen,
            world=world,
            disk=FullAt(full_at) if full_at else None,
        )
        try:
            trainer.train(resume=resume)
        except SeqloomError as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            return exit_code_of(error)
        finally:
            if order_file:
                Path(f"{order_file}.{world.rank}").write_text(json.dumps(task.served))
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), json.loads(sys.argv[2])))
