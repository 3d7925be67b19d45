"""Zero-config: what is chosen, in which order settings hold, and that reasons are given."""

from itertools import pairwise
from pathlib import Path

import pytest

from seqloom.core.config import resolve
from seqloom.core.errors import ConfigError
from seqloom.core.events import Event
from seqloom.recipes.config import RunConfig
from seqloom.recipes.prepare import choose_config
from seqloom.recipes.sizing import DataFacts, choose_sizes

Corpus = tuple[list[str], list[str]]


def facts(pairs: int) -> DataFacts:
    return DataFacts(pairs, source_characters=60.0, target_characters=65.0, are_unspaced=False)


def test_more_data_never_gets_a_smaller_model_or_stronger_dropout() -> None:
    sizes = [choose_sizes(facts(pairs)).defaults for pairs in (500, 5_000, 50_000, 10**6, 10**7)]
    for before, after in pairwise(sizes):
        assert before["model"]["width"] <= after["model"]["width"]
        assert before["text"]["size"] <= after["text"]["size"]
        assert before["model"]["dropout_rate"] >= after["model"]["dropout_rate"]


@pytest.mark.parametrize("pairs", [20, 500, 5_000, 29_000, 300_000, 10**6, 10**8])
def test_every_size_is_a_valid_config_and_its_reasons_name_its_numbers(pairs: int) -> None:
    sizing = choose_sizes(facts(pairs))
    config = resolve(RunConfig, defaults=sizing.defaults)
    text = " ".join(sizing.reasons_in(config))
    assert f"{pairs:,} pairs" in text
    assert f"{config.training.steps:,} steps" in text
    assert f"width {config.model.width}" in text


def test_the_file_beats_the_chosen_size_and_an_override_beats_the_file(tmp_path: Path, corpus: Corpus) -> None:
    file = tmp_path / "run.yaml"
    file.write_text("model: {width: 32, heads: 2}\ntraining: {steps: 11}\n")
    events: list[Event] = []
    config = choose_config(file, ["training.steps=12"], train=corpus[0], dev=corpus[1], listener=events.append)
    assert (config.model.width, config.training.steps, config.model.dropout_rate) == (32, 12, 0.3)
    assert (config.data.source, config.data.target) == ("en", "de")
    assert config.data.train == tuple(corpus[0])
    (sizing,) = [event for event in events if event.kind == "sizing"]
    text = " ".join(sizing["reasons"])
    assert "dropout 0.3" in text
    assert "of width" not in text, "what the user chose needs no reason"


def test_tables_that_cannot_be_one_are_refused_with_the_ways_out() -> None:
    with pytest.raises(ConfigError, match=r"text\.shared is false; set text\.shared=true.*model\.tying=output"):
        resolve(RunConfig, overrides=["text.shared=false"])


def test_a_wrong_setting_is_refused_before_the_files_are_opened() -> None:
    with pytest.raises(ConfigError, match=r"model\.widht.*width"):
        choose_config(None, ["model.widht=3"], train=["no-such.en", "no-such.de"], dev=[], listener=lambda _: None)
