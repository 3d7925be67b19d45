"""What the engine can be asked for, and what it says of directories that are none: no library is needed for that."""

import json
from pathlib import Path

import pytest

from seqloom.core.errors import ModelError, UsageError
from seqloom.interop.ctranslate2 import unique_tokens
from seqloom.interop.ctranslate2_engine import DESCRIPTION, Asked, Description, asked_of, read_description
from seqloom.search.settings import SearchConfig

WHOLE = Description(
    source="de",
    target="en",
    quantization="none",
    positions=1025,
    longest=256,
    search={"beam": 4},
    version="0.1.0",
    files={},
)


@pytest.mark.parametrize(
    ("kind", "alpha", "power"), [("none", 0.6, 0.0), ("mean", 0.6, 1.0), ("power", 0.7, 0.7), ("gnmt", 0.0, 0.0)]
)
def test_each_formula_that_it_has_is_followed(kind: str, alpha: float, power: float) -> None:
    settings = SearchConfig.model_validate({"length_normalisation": kind, "alpha": alpha})
    assert asked_of(settings) == Asked(power, min_length=0, has_cut_last=True)


def test_a_formula_that_it_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match=r"gnmt with search\.alpha=0\.6 is not supported by CTranslate2.*mean"):
        asked_of(SearchConfig())


def test_settings_that_it_does_not_follow_are_refused_by_name() -> None:
    with pytest.raises(UsageError, match=r"search\.coverage=0\.2 is not supported by CTranslate2"):
        asked_of(SearchConfig(length_normalisation="none", coverage=0.2))


def test_its_own_mode_is_followed_with_its_own_penalty() -> None:
    assert asked_of(SearchConfig(mode="ctranslate2")) == Asked(1.0, min_length=1, has_cut_last=False)
    assert asked_of(SearchConfig(mode="ctranslate2", peer_length_penalty=0.2)).power == 0.2
    with pytest.raises(UsageError, match=r"search\.mode=marian is not supported by CTranslate2"):
        asked_of(SearchConfig(mode="marian"))
    with pytest.raises(UsageError, match=r"search\.peer_length_penalty=0\.2 is not supported by CTranslate2"):
        asked_of(SearchConfig(length_normalisation="none", peer_length_penalty=0.2))


def test_tokens_name_one_id_each() -> None:
    tokens = unique_tokens(["<pad>", "<s>", "</s>", "<unk>", "a", "</s>", "</s>"])
    assert tokens[:5] == ["<pad>", "<s>", "</s>", "<unk>", "a"]
    assert len(set(tokens)) == 7
    assert all(token.startswith("</s>") for token in tokens[5:])


def test_a_description_comes_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / DESCRIPTION).write_text(WHOLE.to_json(), encoding="utf-8")
    assert read_description(tmp_path) == WHOLE


def test_a_directory_that_was_not_exported_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"has no seqloom\.json; create one with: seqloom export MODEL"):
        read_description(tmp_path)
    with pytest.raises(UsageError, match=r"none: directory not found"):
        read_description(tmp_path / "none")


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"format": 2}, "has format 2, and this version reads up to 1"),
        ({"format": "one"}, "cannot be read"),
        (
            {"files": {"model.bin": {"size": 1, "sha256": "0"}}},
            r"is damaged: model\.bin: missing; export the model again",
        ),
        ({"files": 3}, "cannot be read"),
    ],
)
def test_a_damaged_description_is_a_model_error(change: dict[str, object], part: str, tmp_path: Path) -> None:
    values = {**json.loads(WHOLE.to_json()), **change}
    (tmp_path / DESCRIPTION).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match=part):
        read_description(tmp_path)


def test_a_description_that_lacks_a_part_is_a_model_error(tmp_path: Path) -> None:
    values = {name: value for name, value in json.loads(WHOLE.to_json()).items() if name != "longest"}
    (tmp_path / DESCRIPTION).write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(ModelError, match="KeyError"):
        read_description(tmp_path)
