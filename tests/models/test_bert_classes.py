"""The classes of texts by BERT: laws of the head, and parity with transformers."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from seqloom.core.errors import ConfigError, ModelError
from seqloom.data.labelled import frame_texts, join_texts
from seqloom.models.bert import Bert, BertConfig, SentenceConfig
from seqloom.nn.embeddings import Symbols
from seqloom.runs.config import RunConfig
from seqloom.training.weights import live_weights

SYMBOLS = 30
SMALL = BertConfig(width=16, heads=2, layers=2, feed_forward=24, longest=24, has_output=False, classes=3)


def built(**changes: object) -> Bert:
    config = SMALL.model_copy(update=changes)
    return config.build(Symbols(SYMBOLS, SYMBOLS, is_shared=True), seed=1).double().eval()


def framed(texts: list[tuple[list[int], ...]]) -> tuple[Tensor, Tensor, Tensor]:
    joined = [join_texts(each, longest=24) for each in texts]
    ids, lengths, segments = map(torch.from_numpy, frame_texts([(each.ids, each.first) for each in joined]))
    return ids, lengths, segments


IDS = st.lists(st.integers(4, SYMBOLS - 1), min_size=1, max_size=8)


@settings(max_examples=10, deadline=None)
@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=4), st.sampled_from(["mean", "cls", "last", "max", "pooler"]))
def test_padding_and_neighbours_change_no_score(pairs: list[tuple[list[int], list[int]]], pooling: str) -> None:
    has_pooler = pooling == "pooler"
    sentence = SentenceConfig(pooling="mean" if has_pooler else pooling)  # type: ignore[arg-type]
    model = built(has_pooler=has_pooler, sentence=sentence)
    with torch.no_grad():
        together = model.class_scores(*framed(pairs))
        assert together.shape == (len(pairs), 3)
        for row, pair in enumerate(pairs):
            alone = model.class_scores(*framed([pair]))
            torch.testing.assert_close(together[row : row + 1], alone, rtol=0, atol=1e-12)


def test_the_second_text_counts_and_its_segment_where_there_are_segments() -> None:
    one, other = framed([([5, 6], [7, 8])]), framed([([5, 6], [7, 9])])
    for segments, reads in ((2, True), (1, False), (0, False)):
        model = built(segments=segments)
        with torch.no_grad():
            scores, changed = model.class_scores(*one), model.class_scores(*other)
            flat = model.class_scores(*one[:2])
        assert not torch.allclose(scores, changed)
        assert torch.equal(scores, flat) != reads


def test_gradients_reach_every_weight_and_dropout_the_head() -> None:
    model = built(has_pooler=True).train()
    scores = model.class_scores(*framed([([5, 6], [7, 8]), ([9], [4])]))
    (scores * torch.arange(6).view(2, 3)).sum().backward()
    assert all(each.grad is not None and bool(each.grad.any()) for each in live_weights(model).values())
    assert not torch.equal(scores, model.class_scores(*framed([([5, 6], [7, 8]), ([9], [4])])))


def test_a_model_without_classes_says_so_and_has_no_head() -> None:
    assert not any(name.startswith("classifier") for name in live_weights(built(classes=0)))
    with pytest.raises(ModelError, match=r"this model has no classes \(model\.classes is 0\)"):
        built(classes=0).class_scores(*framed([([5],)]))
    with pytest.raises(ConfigError, match=r"model\.classes=3, but task\.labels has 2 \('a', 'b'\); leave out model"):
        RunConfig(model=SMALL, task={"kind": "classification", "labels": ("a", "b")})  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="the label 'a' is given 2 times"):
        RunConfig(model=SMALL, task={"kind": "classification", "labels": ("a", "a", "b")})  # type: ignore[arg-type]


PARTS = {
    "self.qkv": [f"attention.self.{name}" for name in ("query", "key", "value")],
    "self.output": ["attention.output.dense"],
    "around_self.norm": ["attention.output.LayerNorm"],
    "feed_forward.inner": ["intermediate.dense"],
    "feed_forward.outer": ["output.dense"],
    "around_feed_forward.norm": ["output.LayerNorm"],
}
"""The parts of a layer: our names and theirs."""


@pytest.mark.parity
def test_scores_equal_those_of_transformers() -> None:
    """The same weights in BertForSequenceClassification, whose head reads the pooler, with pairs and padding."""
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=SYMBOLS,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=24,
        max_position_embeddings=24,
        num_labels=3,
        initializer_range=0.3,
    )
    torch.manual_seed(5)
    theirs = transformers.BertForSequenceClassification(config).double().eval()
    with torch.no_grad():
        for parameter in theirs.parameters():  # norms and biases begin at 1 and 0, where a mistake would not be seen
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours = built(has_pooler=True, epsilon=config.layer_norm_eps)
    _copy(theirs, ours)
    ids, lengths, segments = framed([([5, 6, 7], [8, 9]), ([10], [11, 12, 13, 14]), ([15, 16], [17])])
    mask = torch.arange(ids.shape[1]) < lengths[:, None]
    with torch.no_grad():
        wanted = theirs(ids, attention_mask=mask.long(), token_type_ids=segments).logits
        torch.testing.assert_close(ours.class_scores(ids, lengths, segments), wanted, rtol=0, atol=1e-12)
        # A head on the mean, or without segments, is another one: the comparison would notice.
        assert (ours.class_scores(ids, lengths) - wanted).abs().max() > 1e-3
        ours.pooler = None
        assert (ours.class_scores(ids, lengths, segments) - wanted).abs().max() > 1e-3


def _copy(theirs: torch.nn.Module, ours: Bert) -> None:
    """Their weights under our names; queries, keys and values are one matrix here."""
    state = {name.removeprefix("bert."): tensor for name, tensor in theirs.state_dict().items()}
    weights = {
        "embedding.weight": state["embeddings.word_embeddings.weight"],
        "positions": state["embeddings.position_embeddings.weight"],
        "segments": state["embeddings.token_type_embeddings.weight"],
    }
    for kind in ("weight", "bias"):
        weights |= {
            f"norm.{kind}": state[f"embeddings.LayerNorm.{kind}"],
            f"pooler.{kind}": state[f"pooler.dense.{kind}"],
            f"classifier.{kind}": state[f"classifier.{kind}"],
        }
    live = live_weights(ours)
    for at in range(2):
        for name in (name for name in live if name.startswith(f"layers.{at}.")):
            part, kind = name.removeprefix(f"layers.{at}.").rsplit(".", 1)
            weights[name] = torch.cat([state[f"encoder.layer.{at}.{each}.{kind}"] for each in PARTS[part]])
    assert set(weights) == set(live)
    with torch.no_grad():
        for name, tensor in live.items():
            tensor.copy_(weights[name])
