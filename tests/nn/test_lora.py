"""LoRA: the second path equals the merged matrix, the base stays as it is, and both equal PEFT's."""

import math
from copy import deepcopy
from typing import Any

import hypothesis
import pytest
import torch
from hypothesis import strategies
from torch import Tensor, nn

from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source
from seqloom.core.symbols import BEGIN
from seqloom.models.transformer import Transformer, TransformerConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.lora import LoraLinear, adapt, adapted_rows, merge_adapters
from seqloom.nn.multihead import SelfAttention
from seqloom.nn.packing import packing_of
from seqloom.training.weights import live_weights

SYMBOLS, WIDTH = 23, 16
TIE = 1e-4


def translator(seed: int = 1, **changes: Any) -> Transformer:
    sizes = {"width": WIDTH, "heads": 2, "encoder_layers": 2, "decoder_layers": 1, "feed_forward": 12}
    config = TransformerConfig.model_validate({**sizes, "dropout_rate": 0.0, **changes})
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=seed)


def adapted(
    model: nn.Module, *, targets: tuple[str, ...] = ("query", "value"), rank: int = 3, dropout: float = 0.0
) -> None:
    """Adapters that have learned something: B is not zero."""
    adapt(model, rank=rank, scale=2.0, dropout=dropout, targets=targets)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".B"):
                parameter.normal_(std=0.3)


def batch(seed: int, rows: int = 3) -> tuple[Source, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (2, rows), generator=generator)
    ids = torch.randint(4, SYMBOLS, (2, rows, 7), generator=generator)
    previous = torch.cat([torch.full((rows, 1), BEGIN), ids[1, :, :-1]], 1)[:, : int(lengths[1].max())]
    return Source(ids[0, :, : int(lengths[0].max())], lengths[0]), previous, lengths[1]


@hypothesis.given(
    seed=strategies.integers(0, 99),
    rank=strategies.integers(1, 5),
    targets=strategies.sampled_from([("query", "value"), ("all",), ("decoder.*", "key"), ("output", "*ner")]),
)
def test_merging_changes_no_token_but_ties(seed: int, rank: int, targets: tuple[str, ...]) -> None:
    model = translator(seed)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    adapted(model, targets=targets, rank=rank)
    inputs = batch(seed)
    apart = model.train().output(model(*inputs))  # [tokens, symbols]
    in_use = model.eval().output(model(*inputs))
    merge_adapters(model)
    merged = model.output(model(*inputs))
    assert torch.equal(in_use, merged)
    torch.testing.assert_close(apart, merged, rtol=0, atol=1e-4)
    best, second = apart.topk(2).values.unbind(-1)
    is_decided = best - second > TIE
    assert torch.equal(apart.argmax(-1)[is_decided], merged.argmax(-1)[is_decided])
    assert set(model.state_dict()) == set(before)
    assert not all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_step_changes_adapters_alone_and_the_state_holds_no_others() -> None:
    model = translator()
    plain = model(*batch(3))
    adapt(model, rank=2, scale=1.0, dropout=0.0, targets=("query", "value"))
    assert torch.equal(model(*batch(3)), plain)  # B = 0
    assert set(live_weights(model)) == {f"{name}.{side}" for name in adapted_rows(model) for side in "AB"}
    assert len(adapted_rows(model)) == 2 * 2 + 2 + 2  # of each self-attention, and of the cross-attention
    frozen = {name: each.clone() for name, each in model.named_parameters() if not each.requires_grad}
    optimiser = torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=1.0)
    for _ in range(2):
        optimiser.zero_grad()
        model.output.cross_entropy(model(*batch(3)), torch.full((int(batch(3)[2].sum()),), 5)).backward()
        optimiser.step()
    trained = {name for name, each in live_weights(model).items() if each.grad is not None and each.grad.any()}
    assert trained == set(live_weights(model))
    assert all(torch.equal(tensor, model.get_parameter(name)) for name, tensor in frozen.items())


def test_adapters_begin_as_peft_begins_them() -> None:
    model = nn.Sequential(nn.Linear(64, 8))
    adapt(model, rank=50, scale=1.0, dropout=0.0, targets=("all",))
    weights = live_weights(model)
    assert not weights["0.lora.whole.B"].any()
    first = weights["0.lora.whole.A"].detach()
    assert first.abs().max() <= 1 / math.sqrt(64)
    assert first.std().item() == pytest.approx(1 / math.sqrt(3 * 64), rel=0.05)


def test_dropout_is_for_the_input_of_the_adapters() -> None:
    layer = nn.Sequential(nn.Linear(4, 4, bias=False))
    adapted(layer, targets=("all",), rank=4, dropout=0.5)
    linear = layer[0]
    assert isinstance(linear, LoraLinear)
    x = torch.randn(500, 4)
    added = (linear(x) - x @ linear.base.t()).detach()
    whole = x @ linear.adapters[0].product().t().detach()
    assert not torch.allclose(added, whole, atol=0.1)
    assert torch.allclose(added.mean(0), whole.mean(0), atol=4 * float(added.std()) / math.sqrt(500))
    with pytest.raises(ConfigError, match=r"the matrix of an adapted layer is read without its input; set .*dropout=0"):
        _ = linear.weight
    linear.eval()
    torch.testing.assert_close(linear(x), x @ (linear.base + linear.adapters[0].product()).t())


def test_targets_that_match_nothing_are_refused_with_those_that_exist() -> None:
    known = (
        r"there are: query, key, value, output, inner, outer \(such as encoder\.layers\.0\.self\.qkv\.query\), and all"
    )
    with pytest.raises(ConfigError, match=f"targets=qeury matches no linear layer of this model; {known}"):
        adapt(translator(), rank=2, scale=1.0, dropout=0.0, targets=("query", "qeury"))


class TheirAttention(nn.Module):
    """Queries, keys and values by matrices of their own."""

    def __init__(self, ours: SelfAttention) -> None:
        super().__init__()
        parts = [nn.Linear(WIDTH, WIDTH) for _ in range(3)]
        for part, weight, bias in zip(parts, ours.qkv.weight.chunk(3), ours.qkv.bias.chunk(3), strict=True):
            part.load_state_dict({"weight": weight, "bias": bias})
        self.q_proj, self.k_proj, self.v_proj = parts
        self.output = deepcopy(ours.output)

    def forward(self, x: Tensor) -> Tensor:
        parts = [part(x).view(1, len(x), 2, -1).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj)]
        mixed = nn.functional.scaled_dot_product_attention(*parts)
        joined: Tensor = self.output(mixed.transpose(1, 2).reshape(len(x), -1))
        return joined


@pytest.mark.parity
@pytest.mark.parametrize("rslora", [False, True])
def test_output_and_gradients_equal_peft(rslora: bool) -> None:
    peft = pytest.importorskip("peft", reason="peft is installed by `make parity`")
    ours = SelfAttention(WIDTH, 2).double()
    their_base = TheirAttention(ours).double()
    config = peft.LoraConfig(r=4, lora_alpha=6, target_modules=["q_proj", "v_proj"], use_rslora=rslora)
    theirs = peft.get_peft_model(their_base, config)
    model = nn.ModuleDict({"attention": ours})
    adapt(model, rank=4, scale=6 / (2 if rslora else 4), dropout=0.0, targets=("query", "value"))
    qkv = ours.qkv
    assert isinstance(qkv, LoraLinear)
    pairs = {"q_proj": "query", "v_proj": "value"}

    def run(pairs: dict[str, str]) -> tuple[Tensor, Tensor, list[tuple[Tensor, Tensor]]]:
        """Both outputs, and both gradients of each matrix, with the weights of ours in theirs."""
        layers = {name: getattr(theirs.base_model.model, name) for name in pairs}
        with torch.no_grad():
            for name, part in pairs.items():
                qkv.lora[part].B.normal_()
                layers[name].lora_A.default.weight.copy_(qkv.lora[part].A)
                layers[name].lora_B.default.weight.copy_(qkv.lora[part].B)
        x = torch.randn(7, WIDTH, dtype=torch.float64)
        packing = packing_of(torch.tensor([7]), 7)
        results = ours(x, packing, mask=None, is_causal=False), theirs(x)
        for each, module in zip(results, (model, theirs), strict=True):
            module.zero_grad()
            each.square().sum().backward()
        gradients = []
        for name, part in pairs.items():
            for side in "AB":
                layer = getattr(layers[name], f"lora_{side}").default.weight
                gradients.append((getattr(qkv.lora[part], side).grad, layer.grad))
        return *results, gradients

    out, expected, gradients = run(pairs)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-12)
    for gradient, their_gradient in gradients:
        torch.testing.assert_close(gradient, their_gradient, rtol=0, atol=1e-10)
    assert len(gradients) == 4
    # The control: pairs of other parts give something else, and so does another alpha.
    out, expected, _ = run({"q_proj": "value", "v_proj": "query"})
    assert (out - expected).abs().max() > 1e-3
    for each in qkv.adapters:
        each.scale *= 1.01
    out, expected, _ = run(pairs)
    assert (out - expected).abs().max() > 1e-4
