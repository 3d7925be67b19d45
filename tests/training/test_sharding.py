"""What cannot be shared by ranks is refused with a sentence, and what one process does not share it says."""

import threading
from pathlib import Path

import pytest
import torch
from torch import nn

from seqloom.core.errors import ConfigError
from seqloom.training.distributed import World
from seqloom.training.fsdp import Sharded, require_shardable, separate_layers
from training.toy import ToyModel, ToyTask, make_trainer, same_bits, settings, weights

TWO = World(rank=0, size=2)


def test_sharding_over_one_process_trains_as_usual_with_a_notice(tmp_path: Path) -> None:
    trainer, events = make_trainer(tmp_path / "shared", parallel="sharded")
    trainer.train()
    plain, _ = make_trainer(tmp_path / "plain")
    plain.train()
    assert same_bits(weights(trainer), weights(plain))
    assert events[0]["message"] == ("training.parallel=sharded: a single process holds the whole model")


def test_a_device_that_cannot_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"is for devices cpu and cuda, but this is mps; set training\.parallel="):
        require_shardable(ToyModel(), World(rank=0, size=2, device=torch.device("mps")))


def test_weights_of_two_types_are_refused() -> None:
    model = ToyModel()
    model.output.double()
    with pytest.raises(ConfigError, match=r"but these are torch\.float32, torch\.float64; set training"):
        require_shardable(model, TWO)


def test_weights_that_do_not_stand_in_one_piece_are_refused() -> None:
    model = ToyModel()
    model.output.weight = nn.Parameter(torch.ones(6, 5).t())
    with pytest.raises(ConfigError, match=r"output\.weight is not contiguous"):
        require_shardable(model, TWO)


def test_layers_that_share_a_weight_are_not_gathered_one_by_one() -> None:
    model = ToyModel()
    assert separate_layers(model) == [(model.output, "forward")]
    model.second.weight = nn.Parameter(model.first.weight.detach().clone())
    assert [layer for layer, _ in separate_layers(model)] == [model.first, model.second, model.output]


def test_a_model_that_cannot_be_copied_is_refused() -> None:
    model = ToyModel()
    model.lock = threading.Lock()  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"ToyModel cannot be copied \(cannot pickle .*; set training\.parallel=repl"):
        Sharded(model, ToyTask(), settings(), world=TWO).share()


def test_a_run_that_has_moved_rows_one_by_one_is_refused() -> None:
    sharded = Sharded(ToyModel(), ToyTask(), settings(), world=TWO)
    with pytest.raises(ConfigError, match=r"updated single rows of output\.weight .* training\.parallel=replicated"):
        sharded.restore_optimiser({"output.weight/step": torch.zeros(5)})
