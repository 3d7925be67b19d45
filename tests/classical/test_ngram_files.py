"""N-gram models in files: mapped arrays answer as those in memory do, and damaged files are told."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from classical.test_ngram import HELD_OUT, TEXT
from seqloom.classical.ngram import NGramConfig
from seqloom.core.arrays import map_safetensors
from seqloom.core.errors import ModelError


def test_a_mapped_model_answers_as_the_one_in_memory(tmp_path: Path) -> None:
    config = NGramConfig(order=4)
    model = config.fit(TEXT)
    save_file(model.arrays(), tmp_path / "model.safetensors")
    mapped = config.restore(map_safetensors(tmp_path / "model.safetensors"), TEXT.vocabulary)
    assert not mapped.trie.nodes.flags.writeable
    assert mapped.log_probs(HELD_OUT).tobytes() == model.log_probs(HELD_OUT).tobytes()
    contexts = [[1], [4, 5], [7, 8, 9]]
    assert mapped.distribution(contexts).tobytes() == model.distribution(contexts).tobytes()


def test_arrays_of_all_kinds_are_mapped(tmp_path: Path) -> None:
    arrays = {
        kind: np.arange(6).reshape(2, 3).astype(kind)
        for kind in ("float64", "float32", "float16", "int64", "int32", "int16", "int8", "uint8", "uint32", "bool")
    } | {"none": np.empty((0, 4), np.float32), "one": np.array(2.5)}
    save_file(arrays, tmp_path / "arrays.safetensors", metadata={"a": "b"})
    mapped = map_safetensors(tmp_path / "arrays.safetensors")
    assert mapped.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(mapped[name], array)
        assert mapped[name].dtype == array.dtype


def test_damaged_files_are_told(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file({"a": np.arange(100)}, path)
    whole = path.read_bytes()
    header = b'{"a":{"dtype":"I64","shape":[100],"data_offsets":[0,801]}}'
    cases = {
        whole[:5]: "its header would have",
        whole[:-8]: "array 'a' of shape \\[100\\] lies at bytes 0 to 800",
        whole.replace(b'"I64"', b'"I65"'): "array 'a' is described as",
        whole.replace(b"{", b"x", 1): "its header is not JSON",
        len(header).to_bytes(8, "little") + header + bytes(801): "lies at bytes 0 to 801",
        (2).to_bytes(8, "little") + b"[]": "its header is not an object",
    }
    for content, message in cases.items():
        path.write_bytes(content)
        with pytest.raises(ModelError, match=message):
            map_safetensors(path)


def test_arrays_of_another_model_are_refused() -> None:
    config = NGramConfig(order=2)
    arrays = config.fit(TEXT).arrays()
    with pytest.raises(ModelError, match="does not fit a vocabulary of 5; the files belong to different models"):
        config.restore(arrays, TEXT.vocabulary[:5])
    with pytest.raises(ModelError, match="not the arrays of an n-gram model: slots missing"):
        config.restore({name: array for name, array in arrays.items() if name != "slots"}, TEXT.vocabulary)


@pytest.mark.parametrize(
    ("name", "place", "value", "message"),
    [
        ("nodes", (9, 0), 10**6, "words out of range"),
        ("nodes", (9, 0), -5, "words out of range"),
        ("nodes", (9, 3), -1, "children out of range"),
        ("nodes", (-1, 3), 10**6, "children out of range"),
        ("nodes", (9, 1), 0x7FC00000, "probabilities out of range"),
        ("nodes", (9, 2), 0x7F800000, "back-off weights out of range"),
        ("slots", 3, 10**9, "slots out of range"),
        ("slots", slice(None), 7, "slots out of range"),
        ("borders", 1, -3, "borders"),
        ("borders", 0, 3, "borders"),
    ],
)
def test_numbers_that_would_lead_the_loops_astray_are_refused(
    name: str, place: object, value: int, message: str
) -> None:
    config = NGramConfig(order=2)
    arrays = {key: np.array(array) for key, array in config.fit(TEXT).arrays().items()}
    config.restore(arrays, TEXT.vocabulary)
    arrays[name][place] = value  # type: ignore[index]
    with pytest.raises(ModelError, match=message):
        config.restore(arrays, TEXT.vocabulary)


def test_arrays_of_other_kinds_are_refused() -> None:
    config = NGramConfig(order=2)
    arrays = config.fit(TEXT).arrays()
    for name, array in (
        ("slots", np.zeros(0, np.int64)),
        ("slots", arrays["slots"].astype(np.float64)),
        ("borders", np.zeros(0, np.int64)),
        ("nodes", arrays["nodes"].astype(np.float32)),
    ):
        with pytest.raises(ModelError, match="not the arrays of an n-gram model"):
            config.restore({**arrays, name: array}, TEXT.vocabulary)
