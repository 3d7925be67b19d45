"""`seqloom demo`, on a smaller corpus than the real one."""

from pathlib import Path
from unittest import mock

import pytest

from cli.calling import call
from seqloom.recipes import demo as recipe
from seqloom.recipes.train import Trained
from seqloom.training.progress import Outcome


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recipe, "TRAIN_PAIRS", 300)
    monkeypatch.setattr(recipe, "DEV_PAIRS", 5)
    monkeypatch.setattr(recipe, "TEST_PAIRS", 12)
    settings = {
        "text.size=": 300,
        "model.width=": 16,
        "model.feed_forward=": 16,
        "model.encoder_layers=": 1,
        "model.decoder_layers=": 1,
    }
    others = [each for each in recipe.SETTINGS if not each.startswith(tuple(settings))]
    short = ["search.length_factor=1.0", "search.beam=1", "evaluation.resamples=40"]
    monkeypatch.setattr(recipe, "SETTINGS", (*others, *(f"{name}{value}" for name, value in settings.items()), *short))


@pytest.mark.usefixtures("small")
def test_the_demo_ends_with_scores_samples_and_the_next_commands(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    called = call("demo", "--out", out, "--steps", 2)
    assert called.code == 0, called.err
    assert called.out.count("BLEU") == 2
    assert called.out.count("\n  = ") == 10
    for part in (f"seqloom translate {out / 'model'}", "seqloom evaluate", "seqloom info", "seqloom train"):
        assert part in called.out
    refused = call("demo", "--out", out)
    assert refused.code == 2
    assert f"{out} exists already" in refused.err
    assert "--force" in refused.err


def test_force_removes_an_older_run_first(tmp_path: Path) -> None:
    out = tmp_path / "demo"
    out.mkdir()
    (out / "run.json").touch()
    outcome = Outcome("steps", "done", step=2, best_loss=None, best_step=None, tokens=9, seconds=1.0, skipped=0)
    result = recipe.DemoResult(Trained(out, out / "model", outcome, ()), (), (), ())
    with mock.patch.object(recipe, "demo", return_value=result):
        called = call("demo", "--out", out, "--force", "--json")
    assert not out.exists()
    assert called.records[0]["trained"]["outcome"]["step"] == 2


def test_force_removes_nothing_but_a_run(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    called = call("demo", "--out", tmp_path, "--force")
    assert called.code == 2
    assert f"{tmp_path} is no run of Seqloom" in called.err
    assert (tmp_path / "thesis.tex").exists()
