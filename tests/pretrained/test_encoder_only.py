"""BERT, RoBERTa and XLM-R against transformers: the same weights, the same vectors and probabilities."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from seqloom import Classifier, Encoder, train
from seqloom.core.errors import ModelError
from seqloom.interop.published import write_published
from seqloom.models.bert import Bert, BertConfig, DenseConfig, SentenceConfig
from seqloom.nn.embeddings import Symbols
from seqloom.nn.packing import Pooling
from seqloom.pretrained.encoder_only import FAMILIES
from seqloom.pretrained.families import Conversion, Family
from seqloom.pretrained.mapping import exported, imported
from seqloom.pretrained.renumbering import Renumbering, Roles
from seqloom.pretrained.weights import WeightFiles
from seqloom.training.weights import live_weights, load_weights

SYMBOLS = 50
LENGTHS = torch.tensor([9, 4, 2, 7, 1])
BY_TYPE = {family.model_type: family for family in FAMILIES}
CLASSES = {"bert": "Bert", "roberta": "Roberta", "xlm-roberta": "XLMRoberta"}
ROLES = {
    "bert": Roles(pad=0, begin=11, end=12, unknown=10),
    "roberta": Roles(pad=1, begin=0, end=2, unknown=3),
    "xlm-roberta": Roles(pad=1, begin=0, end=2, unknown=3),
}


@dataclass(frozen=True)
class StateDict:
    """The tensors of a model in memory, as a folder would give them."""

    state: dict[str, Tensor]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.state)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.state[name].shape)

    def dtype(self, name: str) -> torch.dtype:
        return self.state[name].dtype

    def tensor(self, name: str) -> Tensor:
        return self.state[name]


def published(model_type: str, suffix: str = "ForMaskedLM", **changes: Any) -> nn.Module:
    """A model of transformers with random weights, of sizes that do not divide each other."""
    transformers = pytest.importorskip("transformers")
    name = CLASSES[model_type]
    sizes = {
        "vocab_size": SYMBOLS,
        "hidden_size": 24,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 40,
        "max_position_embeddings": 20,
        "initializer_range": 0.3,
        "type_vocab_size": 2 if model_type == "bert" else 1,
    }
    torch.manual_seed(5)
    model = getattr(transformers, name + suffix)(getattr(transformers, name + "Config")(**{**sizes, **changes}))
    with torch.no_grad():
        for tensor in model.parameters():  # norms and biases begin at 1 and 0, where a mistake would not be seen
            tensor.add_(0.1 * torch.randn_like(tensor))
    return model.eval()


def conversion(model: nn.Module, stored: StateDict) -> Conversion:
    family: Family = BY_TYPE[model.config.model_type]
    found = family.read(model.config.to_dict(), stored)
    return replace(found, roles=ROLES[family.model_type])


def stored_tensors(model: nn.Module) -> StateDict:
    rename = BY_TYPE[model.config.model_type].rename
    return StateDict({rename(name): tensor.clone() for name, tensor in model.state_dict().items()})


def converted(
    model: nn.Module, sentence: SentenceConfig | None = None, more: Mapping[str, Tensor] | None = None
) -> tuple[Bert, Renumbering]:
    """Our model with the weights of theirs, and more for its sentences."""
    stored = stored_tensors(model)
    found = conversion(model, stored)
    numbers = Renumbering.of(found.roles, found.symbols)
    assert isinstance(found.model, BertConfig)
    config = found.model.model_copy(update={"sentence": sentence or SentenceConfig()})
    ours = config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1).to(next(model.parameters()).dtype)
    sides = {"source": numbers, "target": numbers}
    weights = {each.ours: imported(each, stored.tensor, sides) for each in found.tensors} | dict(more or {})
    assert set(weights) == set(live_weights(ours))
    with torch.no_grad():
        load_weights(ours, weights, origin="test")
    return ours.eval(), numbers


def batch(numbers: Renumbering) -> tuple[Tensor, Tensor]:
    """Our ids of texts of odd lengths with padding, and theirs between their marks."""
    torch.manual_seed(3)
    longest = int(LENGTHS.max())
    ids = torch.randint(4, SYMBOLS, (len(LENGTHS), longest))
    foreign = torch.tensor(numbers.foreign)
    framed = torch.full((len(LENGTHS), longest + 2), numbers.foreign[0])
    for row, length in enumerate(LENGTHS):
        framed[row, : length + 2] = torch.cat([foreign[1:2], foreign[ids[row, :length]], foreign[2:3]])
    return ids, framed


def mask_of(framed: Tensor) -> Tensor:
    return torch.arange(framed.shape[1]) < LENGTHS[:, None] + 2


def hidden_states(model: nn.Module, framed: Tensor, **more: Tensor) -> Tensor:
    """Of the real tokens, text after text."""
    mask = mask_of(framed)
    with torch.no_grad():
        return model(framed, attention_mask=mask.long(), output_hidden_states=True, **more).hidden_states[-1][mask]


@pytest.mark.parity
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("model_type", ["bert", "roberta", "xlm-roberta"])
def test_vectors_and_probabilities_equal_transformers(model_type: str, dtype: torch.dtype) -> None:
    theirs = published(model_type).to(dtype)
    ours, numbers = converted(theirs)
    ids, framed = batch(numbers)
    mask, tolerance = mask_of(framed), 1e-5 if dtype == torch.float32 else 1e-10
    with torch.no_grad():
        states = ours(ids, LENGTHS)
        log_probs = ours.output.log_probs(ours.masked_features(states))
        expected = theirs(framed, attention_mask=mask.long()).logits[mask].log_softmax(-1)
    torch.testing.assert_close(states, hidden_states(theirs, framed), rtol=0, atol=tolerance)
    foreign = torch.tensor(numbers.foreign)
    torch.testing.assert_close(log_probs, expected[:, foreign], rtol=0, atol=tolerance)


@pytest.mark.parity
def test_segments_and_pooler_equal_transformers() -> None:
    theirs = published("bert", "Model").double()
    ours, numbers = converted(theirs)
    _, framed = batch(numbers)
    mask = mask_of(framed)
    segments = (torch.arange(framed.shape[1]) >= 2).long().expand_as(framed)
    with torch.no_grad():
        expected = theirs(framed, attention_mask=mask.long(), token_type_ids=segments)
        states = ours.read(torch.from_numpy(numbers.ours)[framed], LENGTHS + 2, segments)
        pooled = ours.pooled(states, LENGTHS + 2)
    torch.testing.assert_close(states, expected.last_hidden_state[mask], rtol=0, atol=1e-10)
    torch.testing.assert_close(pooled, expected.pooler_output, rtol=0, atol=1e-10)
    ignored = hidden_states(theirs, framed)  # all tokens in segment 0
    assert (states - ignored).abs().max() > 1e-3


def tanh_gelu(model: Bert) -> None:
    for layer in model.layers:
        layer.feed_forward.activation = "gelu_tanh"


def first_position_row(model: Bert) -> None:
    model.unused_positions -= 1


def no_segment(model: Bert) -> None:
    model.segments = None


def larger_epsilon(model: Bert) -> None:
    model.norm.eps = 1e-5


@pytest.mark.parity
@pytest.mark.parametrize("damage", [tanh_gelu, first_position_row, no_segment, larger_epsilon])
def test_the_comparison_notices(damage: Callable[[Bert], None]) -> None:
    theirs = published("xlm-roberta").double()
    ours, numbers = converted(theirs)
    ids, framed = batch(numbers)
    damage(ours)
    with torch.no_grad():
        difference = ours(ids, LENGTHS) - hidden_states(theirs, framed)
    assert difference.abs().max() > 1e-8


@pytest.mark.parity
@pytest.mark.parametrize("pooling", ["mean", "cls", "last", "max"])
def test_sentence_vectors_equal_pooled_states(pooling: Pooling) -> None:
    theirs = published("bert", "Model").double()
    dense = nn.Linear(24, 10).double()
    settings = SentenceConfig(pooling=pooling, dense=(DenseConfig(width=10),), normalise=True)
    more = {f"sentence.dense.0.{name}": part for name, part in dense.state_dict().items()}
    ours, numbers = converted(theirs, settings, more)
    ids, framed = batch(numbers)
    mask = mask_of(framed)
    with torch.no_grad():
        states = theirs(framed, attention_mask=mask.long()).last_hidden_state
        pooled = {
            "mean": (states * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True),
            "cls": states[:, 0],
            "last": states[torch.arange(len(states)), LENGTHS + 1],
            "max": states.masked_fill(~mask[:, :, None], -1e9).amax(1),
        }[pooling]
        expected = F.normalize(dense(pooled).tanh(), dim=1)
        torch.testing.assert_close(ours.sentence_vectors(ids, LENGTHS), expected, rtol=0, atol=1e-10)


@pytest.mark.parity
@pytest.mark.parametrize("model_type", ["bert", "xlm-roberta"])
def test_an_export_is_bitwise_the_import(model_type: str) -> None:
    theirs = published(model_type)
    ours, numbers = converted(theirs)
    stored, weights = stored_tensors(theirs), live_weights(ours)
    sides = {"source": numbers, "target": numbers}
    back: dict[str, Tensor] = {}
    for each in conversion(theirs, stored).tensors:
        rows = tuple(stored.shape(name)[0] for name in each.theirs)
        back.update(zip(each.theirs, exported(each, weights[each.ours].detach(), sides, rows), strict=True))
    tied = {name for name in stored.names if ".decoder." in name or name.endswith("position_ids")}
    assert set(back) == set(stored.names) - tied
    assert all(torch.equal(back[name], stored.tensor(name)) for name in back)


# --- folders ---------------------------------------------------------------------------------------------------------

WORDS = ["[PAD]", "a", "b", "c", "[MASK]", "old", "man", "##s", "read", "dog", "[UNK]", "[CLS]", "[SEP]", ",", "."]
TEXTS = ["Old men read.", "the dogs, a dog", "", "a b c", "dog " * 30]


def write_json(path: Path, values: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(values))


def sentence_folder(path: Path, *, is_old: bool) -> tuple[nn.Module, nn.Linear]:
    """A folder of sentence-transformers in its layout of today or of 2020, with what it is made of."""
    model = published("bert", "Model")
    dense = nn.Linear(24, 10)
    home = path / "0_Transformer" if is_old else path
    home.mkdir(parents=True, exist_ok=True)
    (home / "vocab.txt").write_text("\n".join([*WORDS, *(f"word{number}" for number in range(len(WORDS), SYMBOLS))]))
    layer = path / "2_Dense"
    layer.mkdir()
    linear = {f"linear.{name}": part for name, part in dense.state_dict().items()}
    if is_old:
        # Old files have other names of norms, the prefix of a model with a head, and a buffer.
        state = {
            f"bert.{name}".replace("LayerNorm.weight", "LayerNorm.gamma"): part
            for name, part in model.state_dict().items()
        }
        state = {name.replace("LayerNorm.bias", "LayerNorm.beta"): part for name, part in state.items()}
        state["bert.embeddings.position_ids"] = torch.arange(20)[None]
        model.config.architectures = ["BertModel"]
        write_json(home / "config.json", model.config.to_dict())
        torch.save(state, home / "pytorch_model.bin", _use_new_zipfile_serialization=False)
        torch.save(linear, layer / "pytorch_model.bin")
        write_json(home / "sentence_bert_config.json", {"max_seq_length": 16, "do_lower_case": True})
        pooling = {f"pooling_mode_{name}": name == "mean_tokens" for name in ("cls_token", "mean_tokens", "max_tokens")}
        names = [f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Dense", "Normalize")]
    else:
        model.save_pretrained(home)
        save_file(linear, layer / "model.safetensors")
        write_json(home / "tokenizer_config.json", {"model_max_length": 16, "do_lower_case": True})
        write_json(home / "sentence_bert_config.json", {"transformer_task": "feature-extraction"})
        pooling = {"embedding_dimension": 24, "pooling_mode": "mean", "include_prompt": True}
        modules = ("transformer.Transformer", "pooling.Pooling", "dense.Dense", "normalize.Normalize")
        names = [f"sentence_transformers.base.modules.{name}" for name in modules]
    write_json(path / "1_Pooling" / "config.json", pooling)
    activation = "torch.nn.modules.activation.Tanh"
    write_json(
        layer / "config.json", {"in_features": 24, "out_features": 10, "bias": True, "activation_function": activation}
    )
    places = ["0_Transformer" if is_old else "", "1_Pooling", "2_Dense", "3_Normalize"]
    pairs = enumerate(zip(places, names, strict=True))
    write_json(
        path / "modules.json",
        [{"idx": at, "name": str(at), "path": place, "type": name} for at, (place, name) in pairs],
    )
    return model, dense


@pytest.mark.parity
@pytest.mark.parametrize("is_old", [True, False])
@pytest.mark.filterwarnings("ignore:1 of 5 lines")
def test_a_folder_of_sentence_transformers_gives_the_same_vectors(tmp_path: Path, is_old: bool) -> None:
    transformers = pytest.importorskip("transformers")
    theirs, dense = sentence_folder(tmp_path / "folder", is_old=is_old)
    home = tmp_path / "folder" / ("0_Transformer" if is_old else "")
    tokenizer = transformers.BertTokenizer(str(home / "vocab.txt"), do_lower_case=True)
    read = tokenizer(TEXTS, padding=True, truncation=True, max_length=16, return_tensors="pt")
    mask = read["attention_mask"][:, :, None]
    with torch.no_grad():
        states = theirs(**read).last_hidden_state
        expected = F.normalize(dense((states * mask).sum(1) / mask.sum(1)).tanh(), dim=1)
    encoder = Encoder.load(tmp_path / "folder")
    assert (encoder.width, encoder.max_tokens) == (10, 14)
    np.testing.assert_allclose(encoder.encode(TEXTS), expected.numpy(), rtol=0, atol=1e-5)
    # Exported again: a folder that gives the same vectors, with the same numbers bit by bit.
    back = tmp_path / "back"
    back.mkdir()
    write_published(back, encoder.loaded.folder)
    np.testing.assert_array_equal(Encoder.load(back).encode(TEXTS), encoder.encode(TEXTS))
    for part in (home.relative_to(tmp_path / "folder"), "2_Dense"):
        first, second = (WeightFiles.open(folder / part) for folder in (tmp_path / "folder", back))
        assert set(first.names) == set(second.names)
        assert all(torch.equal(first.tensor(name), second.tensor(name)) for name in first.names)


@pytest.mark.parity
@pytest.mark.filterwarnings("ignore")
def test_pooling_equals_sentence_transformers(tmp_path: Path) -> None:
    theirs = pytest.importorskip("sentence_transformers")
    sentence_folder(tmp_path, is_old=False)
    modules = json.loads((tmp_path / "modules.json").read_text())
    for each, name in zip(modules, ("Transformer", "Pooling", "Dense", "Normalize"), strict=True):
        each["type"] = f"sentence_transformers.models.{name}"  # a name that all versions know
    write_json(tmp_path / "modules.json", modules)
    names: dict[Pooling, str] = {"mean": "mean", "cls": "cls", "max": "max", "last": "lasttoken"}
    found = {pooling: Encoder.load(tmp_path, pooling=pooling).encode(TEXTS) for pooling in names}
    for pooling, name in names.items():
        settings = {"embedding_dimension": 24, "pooling_mode": name, "include_prompt": True}
        write_json(tmp_path / "1_Pooling" / "config.json", settings)
        expected = theirs.SentenceTransformer(str(tmp_path), device="cpu").encode(TEXTS)
        np.testing.assert_allclose(Encoder.load(tmp_path).encode(TEXTS), expected, rtol=0, atol=1e-5)
        for other, vectors in found.items():  # the setting of the folder, and the argument; another pooling differs
            gap = np.abs(vectors - expected).max()
            assert gap <= 1e-5 if other == pooling else gap > 1e-3, (pooling, other)


@pytest.mark.parity
def test_a_published_folder_is_the_start_of_a_classifier(tmp_path: Path) -> None:
    sentence_folder(tmp_path / "folder", is_old=False)
    table = tmp_path / "train.tsv"
    table.write_text("".join(f"{TEXTS[0]} {'AB'[n % 2]} {n}\t{'ab'[n % 2]}\n" for n in range(20)), encoding="utf-8")
    start = f"training.start_from={tmp_path / 'folder'}"
    words = ["task.kind=classification", start, "training.steps=1", "training.learning_rate=1e-12"]
    trained = train(None, words, out=tmp_path / "run", train=[str(table)])
    assert trained is not None
    classifier, encoder = Classifier.load(trained.model), Encoder.load(tmp_path / "folder")
    after, before = (live_weights(each.loaded.model) for each in (classifier, encoder))
    assert set(after) - set(before) == {"classifier.weight", "classifier.bias"}
    assert set(before) - set(after) == {"sentence.dense.0.weight", "sentence.dense.0.bias"}
    for name in set(after) & set(before):
        torch.testing.assert_close(after[name], before[name], rtol=0, atol=1e-9)
    assert (classifier.config.text.kind, classifier.longest, classifier.labels) == ("published", 16, ("a", "b"))
    assert classifier.classify(["ABC"])[0].probabilities == classifier.classify(["abc"])[0].probabilities
    assert not (trained.model / "pretrained").exists()  # an export would have no head


@pytest.mark.parity
def test_parts_that_are_not_known_are_refused(tmp_path: Path) -> None:
    sentence_folder(tmp_path, is_old=False)
    known = json.loads((tmp_path / "modules.json").read_text())
    for changed, message in (
        ([*known[:2], {"type": "sentence_transformers.models.LSTM", "path": "2_LSTM"}], "the parts .*LSTM; supported"),
        ([known[0], {**known[1], "path": "../1_Pooling"}], "not a plain name of a folder"),
        ([known[0], {**known[1], "path": "/etc"}], "not a plain name of a folder"),
        (known[:1], "the parts Transformer; supported"),
        ({"parts": known}, "not a list of 1 to 20 parts"),
    ):
        write_json(tmp_path / "modules.json", changed)
        with pytest.raises(ModelError, match=message):
            Encoder.load(tmp_path)
    write_json(tmp_path / "modules.json", known)
    write_json(tmp_path / "1_Pooling" / "config.json", {"pooling_mode": "weightedmean"})
    with pytest.raises(
        ModelError, match="names the pooling weightedmean; supported is one of cls, mean, max, lasttoken"
    ):
        Encoder.load(tmp_path)
