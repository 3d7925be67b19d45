"""Adapters of PEFT, in and out: transformers and PEFT compute the same with them as with our merged model."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrained.test_round_trip import CASES, made_by_transformers
from seqloom.apps.export import export
from seqloom.apps.importing import import_model
from seqloom.apps.merging import merge
from seqloom.core.config import resolve
from seqloom.core.errors import ModelError
from seqloom.nn.lora import adapted_rows, merge_adapters
from seqloom.runs.adapters import Base, add_adapters, save_adapter
from seqloom.runs.config import RunConfig
from seqloom.runs.loading import load
from seqloom.runs.model_dir import PUBLISHED, save_model
from seqloom.training.weights import live_weights, weights_of

pytestmark = pytest.mark.parity

TARGETS: dict[str, dict[str, Any]] = {
    "marian": {"target_modules": ["q_proj", "v_proj", "fc2"], "rank_pattern": {"fc2": 5}, "alpha_pattern": {"fc2": 3}},
    "t5": {"target_modules": ["q", "wo"], "use_rslora": True},
    "gpt2": {"target_modules": ["c_attn", "c_fc"], "fan_in_fan_out": True},
    "llama": {"target_modules": "all-linear", "modules_to_save": ["lm_head"]},
    "bert": {"target_modules": ["query", "key"], "modules_to_save": ["transform"]},
}
"""What PEFT adapts, by the case of `test_round_trip`."""

PARTS = {"marian": ("query", "value", "outer"), "gpt2": ("query", "value", "inner"), "bert": ("query", "key")}
"""What we adapt: GPT-2 has one matrix for queries, keys and values."""


def opened(case: str, folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    return getattr(transformers, CASES[case][1]).from_pretrained(folder, dtype=torch.float32).eval()


def logits(model: Any) -> Tensor:
    ids = torch.tensor([[7, 8, 9, 10, 2], [11, 12, 7, 13, 2]])
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids[:, :3]} if model.config.is_encoder_decoder else {})}
    with torch.no_grad():
        found: Tensor = model(**inputs)[0]
    return found


def shaken(model: nn.Module) -> None:
    """Weights that matter."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad or name.endswith(".B"):
                parameter.add_(0.2 * torch.randn_like(parameter))


def published(model: Path, folder: Path, case: str) -> Any:
    export(model, "huggingface", out=folder)
    return opened(case, folder)


@pytest.mark.parametrize("case", TARGETS)
def test_an_adapter_of_peft_gives_the_same_numbers_when_merged(case: str, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is installed by `make parity`")
    made_by_transformers(case, tmp_path / "theirs")
    theirs = peft.get_peft_model(opened(case, tmp_path / "theirs"), peft.LoraConfig(r=4, lora_alpha=6, **TARGETS[case]))
    shaken(theirs)
    theirs.save_pretrained(tmp_path / "adapter")
    merged = merge(tmp_path / "adapter", tmp_path / "merged", base=tmp_path / "theirs")
    assert merged.adapted == sum(name.endswith("lora_A.default.weight") for name, _ in theirs.named_parameters())
    ours = published(tmp_path / "merged", tmp_path / "again", case)
    expected = logits(theirs.eval())
    torch.testing.assert_close(logits(ours), expected, rtol=0, atol=1e-5 * float(expected.abs().max()))
    assert (logits(opened(case, tmp_path / "theirs")) - expected).abs().max() > 1e-2


def test_a_table_that_is_used_twice_is_refused(tmp_path: Path) -> None:
    """PEFT gives a copy to the embeddings, and leaves the output as it was."""
    peft = pytest.importorskip("peft", reason="peft is installed by `make parity`")
    made_by_transformers("bert", tmp_path / "theirs")
    config = peft.LoraConfig(r=4, target_modules=["query"], modules_to_save=["word_embeddings"])
    peft.get_peft_model(opened("bert", tmp_path / "theirs"), config).save_pretrained(tmp_path / "adapter")
    with pytest.raises(ModelError, match=r"word_embeddings\.weight, which the base uses twice"):
        merge(tmp_path / "adapter", tmp_path / "merged", base=tmp_path / "theirs")


def adapter_of(base: Path, folder: Path, targets: tuple[str, ...], *, rslora: bool) -> None:
    """An adapter directory with adapters that have learned something, and the model beside it."""
    loaded = load(base)
    lora = {"rank": 3, "alpha": 5.0, "targets": targets, "rslora": rslora}
    values = loaded.config.model_dump(mode="json")
    values["training"] |= {"start_from": str(base), "lora": lora}
    config, model = resolve(RunConfig, defaults=values), loaded.model
    add_adapters(model, config, new=())
    shaken(model)
    tensors = {name: tensor.detach().clone() for name, tensor in live_weights(model).items()}
    rows = adapted_rows(model)
    merge_adapters(model)
    parts: dict[str, Any] = {"tokenizers": loaded.tokenizers, "card": loaded.card, "published": base / PUBLISHED}
    save_model(folder / "model", config, weights=weights_of(model), **parts)
    recorded = Base.of(str(base), base)
    save_adapter(folder / "adapter", tensors, rows=rows, model=folder / "model", config=config, base=recorded)


@pytest.mark.parametrize(("case", "rslora"), [("marian", False), ("gpt2", True), ("bert", False)])
def test_peft_opens_our_adapter_with_the_same_numbers(case: str, rslora: bool, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="peft is installed by `make parity`")
    made_by_transformers(case, tmp_path / "theirs")
    import_model(tmp_path / "theirs", tmp_path / "base")
    adapter_of(tmp_path / "base", tmp_path / "run", PARTS[case], rslora=rslora)
    export(tmp_path / "run", "peft", out=tmp_path / "peft")
    theirs = peft.PeftModel.from_pretrained(opened(case, tmp_path / "theirs"), tmp_path / "peft").eval()
    ours = published(tmp_path / "run" / "model", tmp_path / "again", case)
    expected = logits(ours)
    tolerance = 1e-5 * float(expected.abs().max())
    torch.testing.assert_close(logits(theirs), expected, rtol=0, atol=tolerance)
    # There and back.
    merge(tmp_path / "peft", tmp_path / "back", base=tmp_path / "base")
    found, whole = (weights_of(load(each).model) for each in (tmp_path / "back", tmp_path / "run" / "model"))
    assert all(torch.allclose(found[name], whole[name], rtol=0, atol=1e-6) for name in whole)
    # The control: another alpha is another model.
    for name, module in theirs.named_modules():
        if name.endswith(("q_proj", "c_attn", "query")) and hasattr(module, "scaling"):
            module.scaling["default"] *= 1.01
    assert (logits(theirs) - expected).abs().max() > 5 * tolerance
