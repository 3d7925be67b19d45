"""The public Python interface: one family of errors, settings as keywords, values that print in one line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import seqloom
from seqloom import LanguageModel, SearchConfig, Translator, WordVectors
from seqloom.core.errors import ConfigError, UsageError
from system.small_models import write_small_model, write_small_ngram


def test_every_wrong_call_raises_an_error_of_the_package(tmp_path: Path) -> None:
    program = Path(__file__).with_name("wrong_calls.py")
    tests = str(Path(__file__).parent.parent)
    path = os.pathsep.join([tests, *sys.path])
    done = subprocess.run(
        [sys.executable, program, tmp_path],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    found = json.loads(done.stdout)
    assert found["others"] == {}
    assert found["calls"] > 200
    assert not (tmp_path / "out").exists()


def test_settings_of_a_search_are_given_as_keywords_as_a_mapping_or_as_a_whole(tmp_path: Path) -> None:
    translator = Translator.load(str(write_small_model(tmp_path / "model")))
    lines = ["a cat sees a dog", "the bird sleeps"]
    own = translator.config.search.model_dump()
    whole = translator.search(lines, search=SearchConfig(**{**own, "beam": 3, "nbest": 3}))
    assert [len(found) for found in whole] == [3, 3]
    assert translator.search(lines, beam=3, nbest=3) == whole
    assert translator.search(lines, search={"beam": 3}, nbest=3) == whole
    assert translator.translate(lines, beam=3, nbest=3) == [found[0].text for found in whole]
    with pytest.raises(ConfigError, match="translate has no setting 'beem'; did you mean beam"):
        translator.translate(lines, beem=3)
    with pytest.raises(ConfigError, match="search has no setting 'glosary'; did you mean glossary"):
        translator.search(lines, glosary=None)
    with pytest.raises(ConfigError, match="beam: 0 is too small; give 1 or more"):
        translator.translate(lines, search={"beam": 0})
    with pytest.raises(UsageError, match=r"search\.top_k=3 has no effect without search\.method=sample"):
        translator.translate(lines, top_k=3)


def test_a_language_model_takes_settings_as_keywords(tmp_path: Path) -> None:
    model = LanguageModel.load(write_small_ngram(tmp_path / "ngram"))
    own = model.config.search.model_dump()
    greedy = model.generate("the", search=SearchConfig(**{**own, "temperature": 0.0}))
    assert model.generate("the", temperature=0.0) == greedy == model.generate("the", search={"temperature": 0.0})
    with pytest.raises(UsageError, match="the number of texts is given with count"):
        model.generate("the", nbest=2)
    with pytest.raises(UsageError, match="no effect on a language model"):
        model.generate("the", shortlist=3)


def test_what_is_loaded_prints_as_one_line(tmp_path: Path) -> None:
    folder, ngram = write_small_model(tmp_path / "model"), write_small_ngram(tmp_path / "ngram")
    loaded = seqloom.load(folder)
    about = f"transformer en → en, {loaded.card.parameters:,} parameters, {folder}"
    assert repr(loaded) == f"LoadedModel({about})"
    assert repr(Translator(loaded)) == f"Translator({about})"
    assert repr(Translator(loaded, [loaded])) == f"Translator({about}, with {about})"
    fitted = seqloom.load(ngram)
    about = f"ngram, {fitted.card.parameters:,} parameters, {ngram}"
    assert repr(fitted) == f"LoadedFitted({about})"
    assert repr(LanguageModel.load(ngram)) == f"LanguageModel({about})"
    vectors = WordVectors(("a", "b"), np.eye(2, dtype=np.float32), np.zeros(2, np.int64))
    assert repr(vectors) == "WordVectors(2 words of width 2)"
