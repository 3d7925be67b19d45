"""GPT-2, Llama and their kin: the same numbers as transformers computes, step by step too, and what is refused."""

import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from seqloom.core.errors import ModelError
from seqloom.core.stepping import Source
from seqloom.core.symbols import END
from seqloom.models.frames import FrameConfig
from seqloom.models.gpt import Gpt, GptConfig
from seqloom.nn.embeddings import Symbols
from seqloom.pretrained.decoder_only import FAMILIES
from seqloom.pretrained.families import Conversion, Family
from seqloom.pretrained.mapping import exported, imported
from seqloom.pretrained.renumbering import Renumbering

SYMBOLS = 61
SIZES: dict[str, Any] = {
    "vocab_size": SYMBOLS,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.12,
    "bos_token_id": 7,
    "eos_token_id": [9, 11],
    "pad_token_id": None,
}
GPT2: dict[str, Any] = {
    "vocab_size": SYMBOLS,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "initializer_range": 0.2,
    "bos_token_id": 60,
    "eos_token_id": 60,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 16}
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT2),
    "llama": ("llama", "LlamaForCausalLM", SIZES),
    "llama, tied, biases, rope of 3.1": (
        "llama",
        "LlamaForCausalLM",
        {**SIZES, "tie_word_embeddings": True, "attention_bias": True, "mlp_bias": True, "rope_parameters": LLAMA3},
    ),
    "mistral": ("mistral", "MistralForCausalLM", {**SIZES, "sliding_window": 5, "head_dim": 12}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**SIZES, "rope_parameters": YARN}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**SIZES, "head_dim": 16, "tie_word_embeddings": True}),
    "hunyuan": (
        "hunyuan_v1_dense",
        "HunYuanDenseV1ForCausalLM",
        {
            **SIZES,
            "head_dim": 12,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 1.0, "alpha": 1000.0},
        },
    ),
}


@dataclass(frozen=True)
class Tensors:
    """The tensors of a folder."""

    held: dict[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.held)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.held[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        return self.held[name].dtype

    def tensor(self, name: str) -> Tensor:
        return self.held[name]


def family(model_type: str) -> Family:
    (found,) = (each for each in FAMILIES if each.model_type == model_type)
    return found


@cache
def theirs(case: str) -> Any:
    """The model of transformers, with random weights."""
    transformers = pytest.importorskip("transformers")
    model_type, architecture, options = CASES[case]
    config = transformers.AutoConfig.for_model(model_type, **options)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        model = getattr(transformers, architecture)(config).eval()
        for name, parameter in model.named_parameters():
            if "norm" in name or "ln_" in name or name.endswith("bias"):
                torch.nn.init.normal_(parameter, mean=float("bias" not in name), std=0.2)
    return model


@dataclass(frozen=True)
class Imported:
    conversion: Conversion
    numbers: Renumbering
    model: Gpt


def saved(case: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """config.json and the tensors of a folder."""
    model = theirs(case)
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items()}
    if model.config.tie_word_embeddings:
        del tensors["lm_head.weight"]
    return model.config.to_dict(), tensors


def ours(case: str, *, dtype: torch.dtype = torch.float64, **changes: Any) -> Imported:
    config, tensors = saved(case)
    chosen = family(CASES[case][0])
    return built(chosen, config, Tensors({chosen.rename(name): each for name, each in tensors.items()}), dtype, changes)


def built(
    family: Family, config: dict[str, Any], stored: Tensors, dtype: torch.dtype, changes: dict[str, Any]
) -> Imported:
    conversion = family.read(config, stored)
    numbers = Renumbering.of(conversion.roles, conversion.symbols)
    assert isinstance(conversion.model, GptConfig)
    (begin,) = conversion.begins_with
    settings = conversion.model.model_copy(
        update={
            "absent": numbers.absent,
            "frame": FrameConfig(target_before=(int(numbers.ours[int(begin)]),)),
            "extra_ends": tuple(int(numbers.ours[each]) for each in conversion.roles.extra_ends),
            **changes,
        }
    )
    count = len(numbers.foreign)
    model = settings.build(Symbols(count, count, is_shared=True), seed=1)
    values = {each.ours: imported(each, stored.tensor, {"target": numbers}) for each in conversion.tensors}
    if conversion.model.tying == "output":
        values["output.weight"] = values["embedding.weight"]
    model.load_state_dict(values)
    return Imported(conversion, numbers, model.to(dtype).eval())


def foreign_log_probs(found: Imported, prefixes: Tensor) -> Tensor:
    """log P of every foreign symbol, of prefixes in foreign ids, by the windows that training reads."""
    ids = torch.from_numpy(found.numbers.ours)[prefixes]
    with torch.no_grad():
        features, _ = found.model(ids, None)
        return found.model.output.log_probs(features)[..., found.numbers.ours]


def expected_log_probs(case: str, prefixes: Tensor, *, dtype: torch.dtype = torch.float64) -> Tensor:
    model = theirs(case).to(dtype)
    try:
        with torch.no_grad():
            return model(input_ids=prefixes).logits.log_softmax(-1)
    finally:
        model.float()


def prefixes(rows: int, length: int) -> Tensor:
    return torch.randint(SYMBOLS, (rows, length), generator=torch.Generator().manual_seed(length))


@pytest.mark.parity
@pytest.mark.parametrize("case", list(CASES))
def test_log_probs_equal_transformers(case: str) -> None:
    """In both types, in one pass and in cached steps; log P of all ends is the sum of theirs."""
    found, given = ours(case), prefixes(3, 37)
    expected = expected_log_probs(case, given)
    tolerance = 1e-10 if case == "gpt2" else 5e-6
    torch.testing.assert_close(foreign_log_probs(found, given), expected, rtol=0, atol=tolerance)
    single = foreign_log_probs(ours(case, dtype=torch.float32), given)
    torch.testing.assert_close(single, expected_log_probs(case, given, dtype=torch.float32), rtol=0, atol=1e-5)
    # Steps: the first symbols at once, the others one by one.
    ids = torch.from_numpy(found.numbers.ours)[given]
    stepper = found.model.stepper()
    state = stepper.read(stepper.start(Source(ids[:, :1], torch.ones(3, dtype=torch.long))), ids[:, :11])
    ends = [found.conversion.roles.end, *found.conversion.roles.extra_ends]
    others = [number for number in range(SYMBOLS) if number not in ends]
    for t in range(11, 37):
        step = stepper.step(state, ids[:, t])
        state, theirs_now = step.state, expected[:, t]
        mine = step.log_probs[:, found.numbers.ours]
        torch.testing.assert_close(mine[:, others], theirs_now[:, others], rtol=0, atol=tolerance)
        torch.testing.assert_close(
            step.log_probs[:, END], theirs_now[:, ends].logsumexp(1), rtol=0, atol=max(tolerance, 1e-9)
        )


@pytest.mark.parity
@pytest.mark.parametrize(
    ("case", "changes"),
    [
        ("gpt2", {"activation": "gelu"}),
        ("gpt2", {"norm_epsilon": 1e-3}),
        ("llama", {"activation": "gelu"}),
        ("mistral", {"attention_window": 6}),
        ("qwen3", {"head_norm": "after"}),
        ("hunyuan", {"head_norm": "before"}),
    ],
)
def test_another_setting_gives_other_numbers(case: str, changes: dict[str, Any]) -> None:
    """The controls: each of these mistakes is larger than what the comparison tolerates."""
    given = prefixes(2, 20)
    apart = foreign_log_probs(ours(case, **changes), given) - expected_log_probs(case, given)
    assert float(apart.abs().max()) > 1e-3


@pytest.mark.parity
def test_rotary_pairs_and_groups_of_heads_are_theirs() -> None:
    """The controls: neighbouring pairs and interleaved groups are other models."""
    given = prefixes(2, 20)
    expected = expected_log_probs("llama", given)
    for order in ("pairs", "groups"):
        config, tensors = saved("llama")
        for name, tensor in tensors.items():
            if "q_proj" in name or (order == "pairs" and "k_proj" in name):
                heads = tensor.unflatten(0, (-1, 8))
                if order == "pairs":
                    changed = heads.unflatten(1, (2, 4)).transpose(1, 2).flatten(1, 2)
                else:
                    changed = heads.unflatten(0, (2, 2)).transpose(0, 1).flatten(0, 1)
                tensors[name] = changed.flatten(0, 1)
        found = built(family("llama"), config, Tensors(tensors), torch.float64, {})
        assert float((foreign_log_probs(found, given) - expected).abs().max()) > 1e-2


@pytest.mark.parity
@pytest.mark.parametrize("case", list(CASES))
def test_every_tensor_is_used_and_comes_back_bit_for_bit(case: str) -> None:
    found = ours(case, dtype=torch.float32)
    _, tensors = saved(case)
    back: dict[str, Tensor] = {}
    values = dict(found.model.state_dict())
    for each in found.conversion.tensors:
        axis = 1 if each.is_transposed else 0
        rows = tuple(tensors[name].shape[axis] for name in each.theirs)
        parts = exported(each, values[each.ours], {"target": found.numbers}, rows)
        back |= dict(zip(each.theirs, parts, strict=True))
    assert back.keys() == tensors.keys()
    assert all(torch.equal(back[name], tensor) for name, tensor in tensors.items())


def named(case: str) -> dict[str, Tensor]:
    """Tables of a folder, as far as they are looked at before the weights are read."""
    table = torch.zeros(SYMBOLS, 32)
    if case == "gpt2":
        return {"transformer.wte.weight": table}
    return {"model.embed_tokens.weight": table, "lm_head.weight": torch.ones(SYMBOLS, 32)}


def test_tying_is_decided_by_the_weights() -> None:
    read = family("llama").read
    for held, expected in (
        ({"lm_head.weight": torch.ones(SYMBOLS, 32)}, "none"),
        ({"lm_head.weight": torch.zeros(SYMBOLS, 32)}, "output"),
        ({}, "output"),
    ):
        tensors = Tensors({"model.embed_tokens.weight": torch.zeros(SYMBOLS, 32), **held})
        model = read({**SIZES, "tie_word_embeddings": True}, tensors).model
        assert isinstance(model, GptConfig)
        assert model.tying == expected
    with pytest.raises(ModelError, match="the weights lack lm_head"):
        read({**SIZES, "tie_word_embeddings": False}, Tensors({"model.embed_tokens.weight": torch.zeros(2, 2)}))


def test_settings_of_earlier_versions_mean_the_same() -> None:
    tensors = Tensors(named("llama"))
    scaling = {name: value for name, value in LLAMA3.items() if name != "rope_theta"}
    before = {**SIZES, "rope_theta": 500_000.0, "rope_scaling": scaling}
    old = {**before, "rope_scaling": {"type": scaling["rope_type"], **scaling}}
    today = {**SIZES, "rope_parameters": LLAMA3}
    models = [family("llama").read(each, tensors).model for each in (before, old, today)]
    assert models[0] == models[1] == models[2]
    assert models[0] != family("llama").read(SIZES, tensors).model


def test_a_symbol_with_two_roles_has_one_row() -> None:
    gpt2 = family("gpt2").read(GPT2, Tensors(named("gpt2")))
    assert (gpt2.roles.pad, gpt2.roles.begin, gpt2.roles.end, gpt2.begins_with) == (None, None, 60, (60,))
    llama = family("llama").read(SIZES, Tensors(named("llama")))
    assert (llama.roles.begin, llama.roles.end, llama.roles.extra_ends, llama.begins_with) == (7, 9, (11,), (7,))
    padded = family("llama").read({**SIZES, "pad_token_id": 9}, Tensors(named("llama")))
    assert padded.roles.pad is None


@pytest.mark.parametrize(
    ("model_type", "changes", "message"),
    [
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "rope_type='longrope', which is not supported"),
        ("llama", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "without alpha"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "odd": 1}}, "rope setting 'odd'"),
        ("llama", {"rope_parameters": {"full_attention": {}}}, "for each kind of layer"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor=0.5"),
        ("llama", {"num_local_experts": 8}, "mixtures of experts are not supported"),
        ("llama", {"hidden_act": "xielu"}, "hidden_act='xielu', which is not supported"),
        ("llama", {"hidden_size": 10**9}, "hidden_size=1000000000, which is not a number from 2 to"),
        ("llama", {"num_hidden_layers": True}, "num_hidden_layers=True, which is not a number"),
        ("llama", {"num_key_value_heads": 3}, "4 heads cannot share 3 heads of keys"),
        ("llama", {"eos_token_id": 61}, "eos_token_id=61, which is not a symbol from 0 to 60"),
        ("qwen2", {"eos_token_id": None}, "names no symbol at which texts end"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window=true, which is not supported"),
        ("qwen3", {"layer_types": ["sliding_attention"]}, "layer_types other than full_attention"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx=true"),
        ("gpt2", {"activation_function": "gelu_10"}, "activation_function='gelu_10', which is not supported"),
        ("gpt2", {"n_head": 5}, "width 32 cannot be shared by 5 heads"),
    ],
)
def test_what_would_change_the_numbers_is_refused(model_type: str, changes: dict[str, Any], message: str) -> None:
    base = GPT2 if model_type == "gpt2" else SIZES
    with pytest.raises(ModelError, match=message) as refused:
        family(model_type).read({**base, **changes}, Tensors(named(model_type)))
    assert "\n" not in str(refused.value)


def test_prefixes_are_added_and_masks_are_ignored() -> None:
    gpt2 = family("gpt2")
    assert gpt2.rename("h.0.attn.c_attn.weight") == "transformer.h.0.attn.c_attn.weight"
    assert gpt2.rename("transformer.wte.weight") == "transformer.wte.weight"
    assert family("llama").rename("layers.0.mlp.up_proj.weight") == "model.layers.0.mlp.up_proj.weight"
    ignored = gpt2.read(GPT2, Tensors(named("gpt2"))).ignored
    assert any(re.fullmatch(each, "transformer.h.11.attn.masked_bias") for each in ignored)
