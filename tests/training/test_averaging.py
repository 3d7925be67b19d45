"""Averaging weights, and taking them out of a model and back."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from seqloom.core.errors import ModelError, UsageError
from seqloom.core.events import ignore
from seqloom.training.checkpoint import checkpoint_folder, final_folders, read_checkpoint
from seqloom.training.weights import average_weights, load_weights, weights_of
from training.toy import ToyModel, make_trainer, same_bits


def write(folder: Path, name: str, **tensors: Tensor) -> Path:
    save_file(tensors, folder / name)
    return folder / name


def test_the_mean_is_taken_in_float64_and_given_in_the_type_of_the_weights(tmp_path: Path) -> None:
    values = [torch.tensor([1e8, 1.0]), torch.tensor([1.0, 2.0]), torch.tensor([-1e8, 6.0])]
    paths = [write(tmp_path, f"{n}.safetensors", w=value, n=torch.tensor(n)) for n, value in enumerate(values)]
    mean = average_weights(paths)
    assert mean["w"].dtype == torch.float32
    torch.testing.assert_close(mean["w"], torch.tensor([1 / 3, 3.0]), rtol=1e-7, atol=0)
    # In float32 the sum of the first elements would have lost the 1.
    assert sum(value[0] for value in values[:2]) + values[2][0] == 0
    assert mean["n"].item() == 2


def test_the_mean_of_one_is_itself(tmp_path: Path) -> None:
    path = write(tmp_path, "model.safetensors", w=torch.randn(100))
    assert torch.equal(average_weights([tmp_path])["w"], average_weights([path])["w"])
    assert torch.equal(average_weights([path, path, path])["w"], average_weights([path])["w"])


def test_weights_that_do_not_match_are_named(tmp_path: Path) -> None:
    one = write(tmp_path, "a.safetensors", w=torch.zeros(2, 3), u=torch.zeros(1))
    other = write(tmp_path, "b.safetensors", w=torch.zeros(2, 4), v=torch.zeros(1))
    with pytest.raises(ModelError) as caught:
        average_weights([one, other])
    for part in ("a.safetensors", "b.safetensors", "1 missing (u)", "1 unknown (v)", "w is 2 × 4 in place of 2 × 3"):
        assert part in str(caught.value)


def test_no_path_and_no_safetensors_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="at least one model"):
        average_weights([])
    (tmp_path / "x.safetensors").write_bytes(b"pickle")
    with pytest.raises(ModelError, match=r"x\.safetensors cannot be read"):
        average_weights([tmp_path / "x.safetensors"])


def test_tied_weights_are_written_once_and_stay_tied(tmp_path: Path) -> None:
    weights = weights_of(ToyModel(seed=1))
    assert "first.weight" in weights
    assert "second.weight" not in weights
    save_file(weights, tmp_path / "model.safetensors")
    model = ToyModel(seed=2)
    load_weights(model, average_weights([tmp_path]), origin="here")
    assert model.second.weight is model.first.weight
    assert same_bits(weights_of(model), weights)


def test_weights_that_share_one_storage_are_written_apart(tmp_path: Path) -> None:
    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            storage = torch.arange(6.0)
            self.a, self.b = nn.Parameter(storage[:2]), nn.Parameter(storage[2:])

    save_file(weights_of(Flat()), tmp_path / "model.safetensors")
    assert average_weights([tmp_path])["b"].tolist() == [2, 3, 4, 5]


def test_weights_of_another_model_are_refused_with_the_remedy() -> None:
    with pytest.raises(ModelError, match=r"weights in run/model do not fit this model: .*Use the config and the vocab"):
        load_weights(ToyModel(), {"w": torch.zeros(1)}, origin="run/model")


def test_the_final_model_is_the_best_checkpoint_or_the_mean_of_the_last_regular_ones(tmp_path: Path) -> None:
    trainer, _ = make_trainer(tmp_path, steps=7, save_every=2, validate_every=3)
    trainer.train()
    best = checkpoint_folder(tmp_path, trainer.progress.best.step or 0)
    assert final_folders(tmp_path, average=0, save_every=2, listener=ignore) == [best]
    assert same_bits(average_weights([best]), read_checkpoint(best).weights)
    # Step 3 has a checkpoint because it was best then; it is not a regular one.
    regular = [checkpoint_folder(tmp_path, step) for step in (2, 4, 6, 7)]
    assert final_folders(tmp_path, average=4, save_every=2, listener=ignore) == regular
    assert checkpoint_folder(tmp_path, 3).exists()
