"""Importing a published model takes little memory beyond its largest table, whatever its size."""

import gc
import json
import pickle
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from published_folders import sentencepiece_model
from seqloom.data.phrasebook import sample_pairs
from seqloom.pretrained.weights import write_safetensors
from seqloom.runs.importing import import_published

needs_proc = pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="Linux counts the peak of memory")

LANGUAGES_AND_UNUSED = 108
"""Rows of M2M100 after those of vocab.json."""


@dataclass(frozen=True)
class Shape:
    """Of a model in the form of M2M100."""

    symbols: int
    width: int
    inner: int
    layers: int

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        yield "model.shared.weight", (self.symbols, self.width)
        for side in ("encoder", "decoder"):
            norms = ["model.{side}.layer_norm"]
            matrices: dict[str, tuple[int, int]] = {}
            for place in (f"model.{{side}}.layers.{number}" for number in range(self.layers)):
                for attention in ("self_attn", "encoder_attn")[: 1 if side == "encoder" else 2]:
                    for part in ("q_proj", "k_proj", "v_proj", "out_proj"):
                        matrices[f"{place}.{attention}.{part}"] = self.width, self.width
                    norms.append(f"{place}.{attention}_layer_norm")
                matrices |= {f"{place}.fc1": (self.inner, self.width), f"{place}.fc2": (self.width, self.inner)}
                norms.append(f"{place}.final_layer_norm")
            for name, shape in matrices.items():
                yield f"{name.format(side=side)}.weight", shape
                yield f"{name.format(side=side)}.bias", shape[:1]
            for name in norms:
                yield f"{name.format(side=side)}.weight", (self.width,)
                yield f"{name.format(side=side)}.bias", (self.width,)

    @property
    def parameters(self) -> int:
        return sum(torch.Size(shape).numel() for _, shape in self.tensors())

    def write_settings(self, folder: Path) -> None:
        """All files but the weights."""
        lines = [pair.source for pair in sample_pairs("en", "de", count=200, seed=2, split="train")]
        (folder / "sentencepiece.bpe.model").write_bytes(sentencepiece_model(lines))
        tokens = ["<s>", "<pad>", "</s>", "<unk>"]
        tokens += [f"▁unused{number}" for number in range(self.symbols - LANGUAGES_AND_UNUSED - len(tokens))]
        (folder / "vocab.json").write_text(json.dumps({token: id for id, token in enumerate(tokens)}), encoding="utf-8")
        sides = {"layers": self.layers, "attention_heads": 16, "ffn_dim": self.inner}
        config = {
            "model_type": "m2m_100",
            "architectures": ["M2M100ForConditionalGeneration"],
            "vocab_size": self.symbols,
            "d_model": self.width,
            **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
            "activation_function": "relu",
            "scale_embedding": True,
            "max_position_embeddings": 1024,
            **dict.fromkeys(("eos_token_id", "decoder_start_token_id"), 2),
            "bos_token_id": 0,
            "pad_token_id": 1,
        }
        (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")

    def write_safetensors(self, path: Path) -> None:
        """Random float32, a tensor at a time."""
        write_safetensors(
            path,
            [
                (name, shape, torch.float32, lambda shape=shape: torch.randn(shape) / 30)
                for name, shape in self.tensors()
            ],
        )

    def write_pickled(self, path: Path) -> None:
        """Random float16 in the layout of torch.save, a tensor at a time; the table under three names, as there."""
        with zipfile.ZipFile(path, "w") as file:
            state = b"\x80\x02}"
            for key, (name, shape) in enumerate(self.tensors()):
                tied = [name, "model.encoder.embed_tokens.weight", "lm_head.weight"][: 3 if key == 0 else 1]
                for each in tied:
                    state += _written(each) + _tensor(str(key), shape) + b"s"
                with file.open(f"model/data/{key}", "w", force_zip64=True) as data:
                    data.write((torch.randn(shape) / 30).half().numpy().tobytes())
            file.writestr("model/data.pkl", state + b".")


def _written(value: object) -> bytes:
    """The instructions that push a value."""
    return pickle.dumps(value, 2)[2:-1]


def _tensor(key: str, shape: tuple[int, ...]) -> bytes:
    """The instructions that push a contiguous float16 tensor."""
    elements = torch.Size(shape).numel()
    storage = b"(" + _written("storage") + b"ctorch\nHalfStorage\n" + _written(key) + _written("cpu")
    strides = torch.empty(shape, device="meta").stride()
    arguments = b"(" + storage + _written(elements) + b"tQ" + _written(0) + _written(shape) + _written(strides)
    return b"ctorch._utils\n_rebuild_tensor_v2\n" + arguments + b"\x89ccollections\nOrderedDict\n)RtR"


def peak() -> int:
    """The most memory that this process has held, in bytes; `ru_maxrss` would also count that of its parent."""
    found = re.search(r"VmHWM:\s*(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


@needs_proc
def test_an_import_holds_a_tensor_at_a_time(opus: Path, tmp_path: Path) -> None:
    shape = Shape(symbols=1_000, width=512, inner=2048, layers=2)
    folder = tmp_path / "m2m100"
    folder.mkdir()
    shape.write_settings(folder)
    shape.write_safetensors(folder / "model.safetensors")
    import_published(opus, tmp_path / "first")  # what is loaded once is not counted
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak is what is held now
    before = peak()
    import_published(folder, tmp_path / "model")
    assert peak() - before < 0.3 * 4 * shape.parameters
    shutil.rmtree(tmp_path / "model")


@needs_proc
@pytest.mark.slow
@pytest.mark.parametrize("form", ["float32 safetensors", "float16 pytorch_model.bin"])
def test_importing_600_million_parameters_peaks_below_one_and_a_half_times_their_size(
    form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = Shape(symbols=256_206, width=1024, inner=4096, layers=12)
    assert 600e6 < shape.parameters < 650e6
    folder, out = tmp_path / "nllb", tmp_path / "model"
    folder.mkdir()
    try:
        shape.write_settings(folder)
        if "safetensors" in form:
            shape.write_safetensors(folder / "model.safetensors")
        else:
            shape.write_pickled(folder / "pytorch_model.bin")
        code = (
            "import sys; from pathlib import Path; from seqloom.runs.importing import import_published; "
            "import_published(Path(sys.argv[1]), Path(sys.argv[2])); print(Path('/proc/self/status').read_text())"
        )
        done = subprocess.run([sys.executable, "-c", code, folder, out], check=True, text=True, stdout=subprocess.PIPE)
        found = re.search(r"VmHWM:\s*(\d+) kB", done.stdout)
        assert found is not None
        ratio = int(found[1]) * 1024 / (4 * shape.parameters)
        with capsys.disabled():
            sys.stdout.write(f"{form}, {shape.parameters:,} parameters: peak {ratio:.2f} × their float32 size\n")
        assert ratio < 1.5
    finally:  # pytest keeps its folders
        shutil.rmtree(tmp_path)
