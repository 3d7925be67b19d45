"""Every family there and back: made by transformers, imported, exported, opened by transformers."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from published_folders import sentencepiece_model, write_sentence_folder
from seqloom.apps.export import export
from seqloom.apps.importing import import_model
from seqloom.core.errors import ModelError
from seqloom.data.phrasebook import sample_pairs
from seqloom.interop.published import write_published
from seqloom.pretrained.convert import FAMILIES
from seqloom.pretrained.weights import WeightFiles
from seqloom.runs.model_dir import PUBLISHED

SYMBOLS = 320
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>", "__en__", "__de__", "en_XX", "de_DE")
TWO_STACKS = {
    "d_model": 24,
    **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in (("layers", 2), ("ffn_dim", 20))},
    **{f"{side}_attention_heads": 4 for side in ("encoder", "decoder")},
    "max_position_embeddings": 40,
    "vocab_size": SYMBOLS,
    "pad_token_id": 1,
    "eos_token_id": 2,
    "bos_token_id": 0,
}
T5 = {"d_model": 24, "d_kv": 5, "d_ff": 20, "num_layers": 2, "num_heads": 4, "vocab_size": SYMBOLS}
DECODER = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "vocab_size": SYMBOLS,
    "max_position_embeddings": 64,
    "pad_token_id": None,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
ENCODER = {
    "hidden_size": 24,
    "intermediate_size": 20,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": SYMBOLS,
    "max_position_embeddings": 40,
    "pad_token_id": 1,
}
CASES: dict[str, tuple[str, str, dict[str, Any], torch.dtype]] = {
    "marian": ("marian", "MarianMTModel", {**TWO_STACKS, "decoder_start_token_id": 1}, torch.float32),
    "marian-untied": (
        "marian",
        "MarianMTModel",
        {**TWO_STACKS, "decoder_start_token_id": 1, "tie_word_embeddings": False},
        torch.float16,
    ),
    "m2m100": (
        "m2m_100",
        "M2M100ForConditionalGeneration",
        {**TWO_STACKS, "decoder_start_token_id": 2},
        torch.bfloat16,
    ),
    "mbart": ("mbart", "MBartForConditionalGeneration", {**TWO_STACKS, "decoder_start_token_id": 2}, torch.float32),
    "pegasus": (
        "pegasus",
        "PegasusForConditionalGeneration",
        {**TWO_STACKS, "decoder_start_token_id": 1},
        torch.float16,
    ),
    "t5": ("t5", "T5ForConditionalGeneration", T5, torch.bfloat16),
    "mt5": ("mt5", "MT5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu"}, torch.float32),
    "gpt2": (
        "gpt2",
        "GPT2LMHeadModel",
        {
            "n_embd": 24,
            "n_layer": 2,
            "n_head": 4,
            "n_positions": 40,
            "vocab_size": SYMBOLS,
            "eos_token_id": 2,
            "bos_token_id": 2,
        },
        torch.float32,
    ),
    "llama": ("llama", "LlamaForCausalLM", DECODER, torch.bfloat16),
    "mistral": ("mistral", "MistralForCausalLM", {**DECODER, "sliding_window": 9}, torch.float16),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**DECODER, "tie_word_embeddings": True}, torch.bfloat16),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", DECODER, torch.float32),
    "hunyuan": ("hunyuan_v1_dense", "HunYuanDenseV1ForCausalLM", DECODER, torch.bfloat16),
    "bert": ("bert", "BertForMaskedLM", {**ENCODER, "pad_token_id": 0}, torch.float32),
    "roberta": ("roberta", "RobertaModel", ENCODER, torch.float16),
    "xlm-roberta": ("xlm-roberta", "XLMRobertaForMaskedLM", ENCODER, torch.bfloat16),
}


def test_every_family_is_here() -> None:
    assert {model_type for model_type, *_ in CASES.values()} == {family.model_type for family in FAMILIES}


def filling(count: int) -> list[str]:
    """So many words, so that each row of the weights has one."""
    return [f"word{number}" for number in range(count)]


def write_tokenizer_files(folder: Path, model_type: str) -> None:
    """A tokeniser of the kind that the family has, with at most so many symbols as there are rows."""
    pairs = sample_pairs("en", "de", count=200, seed=2, split="train")
    if model_type == "marian":
        model = sentencepiece_model([pair.source for pair in pairs])
        for side in ("source", "target"):
            (folder / f"{side}.spm").write_bytes(model)
        vocabulary = {piece: number for number, piece in enumerate([*SPECIAL[:4], *filling(SYMBOLS - 4)])}
        (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
        return
    if model_type == "bert":
        words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh", *(f"##{letter}" for letter in "abcdefgh")]
        words += filling(SYMBOLS - len(words))
        (folder / "vocab.txt").write_text("".join(f"{word}\n" for word in words), encoding="utf-8")
        return
    names = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    fast = Tokenizer(models.BPE({name: number for number, name in enumerate(names)}, []))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    fast.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    fast.save(str(folder / "tokenizer.json"))


def made_by_transformers(case: str, folder: Path) -> Any:
    transformers = pytest.importorskip("transformers")
    model_type, architecture, options, dtype = CASES[case]
    torch.manual_seed(1)
    model = getattr(transformers, architecture)(transformers.AutoConfig.for_model(model_type, **options)).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # norms and biases too
            if parameter.requires_grad:
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.to(dtype).save_pretrained(folder)
    write_tokenizer_files(folder, model_type)
    return model


def require_same_tensors(folder: Path, other: Path, dtype: torch.dtype) -> None:
    before, after = WeightFiles.open(folder), WeightFiles.open(other)
    assert set(after.names) == set(before.names)
    for name in before.names:
        assert after.dtype(name) == before.dtype(name) == dtype, name
        assert torch.equal(after.tensor(name), before.tensor(name)), name


@pytest.mark.parity
@pytest.mark.parametrize("case", CASES)
def test_tensors_come_back_bit_by_bit(case: str, tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model = made_by_transformers(case, tmp_path / "theirs")
    model_type, architecture, _, dtype = CASES[case]
    found = import_model(tmp_path / "theirs", tmp_path / "ours")
    assert found.model_type == model_type
    export(tmp_path / "ours", "huggingface", out=tmp_path / "again")

    require_same_tensors(tmp_path / "theirs", tmp_path / "again", dtype)
    assert (tmp_path / "again" / "config.json").read_bytes() == (tmp_path / "theirs" / "config.json").read_bytes()

    opened, report = getattr(transformers, architecture).from_pretrained(
        tmp_path / "again", output_loading_info=True, dtype=dtype
    )
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    state = opened.state_dict()
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    ids = torch.tensor([[7, 8, 9, 10, 2]])
    inputs = {"input_ids": ids, **({"decoder_input_ids": ids[:, :3]} if opened.config.is_encoder_decoder else {})}
    with torch.no_grad():
        assert torch.equal(opened.eval()(**inputs)[0], model(**inputs)[0])


def test_parts_of_a_sentence_encoder_come_back(tmp_path: Path) -> None:
    folder = write_sentence_folder(tmp_path / "theirs")
    import_model(folder, tmp_path / "ours")
    export(tmp_path / "ours", "huggingface", out=tmp_path / "again")
    for part in ("", "2_Dense"):
        require_same_tensors(folder / part, tmp_path / "again" / part, torch.float32)
    small, again = (
        {path.relative_to(place) for pattern in ("*.json", "*.txt") for path in place.rglob(pattern)}
        for place in (folder, tmp_path / "again")
    )
    assert again == small


def test_a_record_that_does_not_fit_is_refused(opus: Path, tmp_path: Path) -> None:
    """The control: what is recorded decides what is written."""
    import_model(opus, tmp_path / "ours")
    path = tmp_path / "ours" / PUBLISHED / "conversion.json"
    written = path.read_text(encoding="utf-8")
    for number, (change, message) in enumerate(
        (
            (('"rows":[32,32,32]', '"rows":[32,32,31]'), "does not fit its record"),
            (
                ('"theirs":["model.shared.weight"]', '"theirs":["../model.shared.weight"]'),
                "is not the record of an import",
            ),
            (
                ('"ours":"encoder.embedding.weight"', '"ours":"encoder.embeddings"'),
                "the model has no tensor encoder.embeddings",
            ),
            (('"reserved":[', '"reserved":[0,'), "is not the record of an import"),
            (("{", "["), "is not the record of an import"),
        )
    ):
        assert change[0] in written
        path.write_text(written.replace(*change, 1), encoding="utf-8")
        out = tmp_path / f"out-{number}"
        out.mkdir()
        with pytest.raises(ModelError, match=message):
            write_published(out, tmp_path / "ours")
