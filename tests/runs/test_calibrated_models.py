"""A model is calibrated when its training ends, and the calibration goes wherever the model goes."""

import json
import shutil
from pathlib import Path

from cli.calling import call
from cli.conftest import write_pairs
from seqloom.apps.export import pack
from seqloom.apps.translator import Translator
from seqloom.core.config import resolve
from seqloom.core.events import ignore
from seqloom.metrics.calibration import Calibration
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.model_dir import save_model
from seqloom.runs.translation import PairData, open_pairs
from seqloom.training.weights import weights_of

GOLDEN = Path(__file__).parents[1] / "golden" / "models" / "transformer"


def test_the_end_of_training_gives_the_calibration_that_evaluate_gives(tmp_path: Path) -> None:
    train, dev = write_pairs(tmp_path, "train", 40), write_pairs(tmp_path, "dev", 140)
    loaded = load(GOLDEN)
    assert loaded.calibration is None
    data = {"train": [str(path) for path in train], "dev": [str(path) for path in dev], "workers": 1}
    config = resolve(
        RunConfig,
        file=GOLDEN / "config.yaml",
        overrides=[f"data.{name}={json.dumps(each)}" for name, each in data.items()],
    )
    loaded.tokenizers.save(tmp_path / "text")
    open_pairs(config, listener=ignore).encode(tmp_path, config, tokenizers=loaded.tokenizers, listener=ignore)
    measured = PairData.load(tmp_path, loaded.config).measure(loaded, listener=ignore)
    assert measured.calibration is not None

    other = shutil.copytree(GOLDEN, tmp_path / "other")
    called = call("evaluate", other, "--source", dev[0], "--reference", dev[1], "--calibrate", "--json")
    assert called.code == 0, called.err
    assert Calibration.from_json(called.records[0]["calibration"]) == measured.calibration

    folder, weights = tmp_path / "model", weights_of(loaded.model)
    saved = {"tokenizers": loaded.tokenizers, "weights": weights, "card": loaded.card}
    save_model(folder, loaded.config, **saved, calibration=measured.calibration)  # type: ignore[arg-type]
    pack(folder, tmp_path / "model.zip")
    for place in (folder, tmp_path / "model.zip"):
        assert Translator.load(place).calibration == measured.calibration
    # Models that decide together have other probabilities.
    both = Translator(load(folder), [load(GOLDEN)])
    assert both.calibration is None
    assert not both.search(["The dog sleeps."])[0][0].is_calibrated
