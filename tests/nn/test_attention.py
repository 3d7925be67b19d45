"""Attention: weights, padding, formulas, and rows that share a memory."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some

from seqloom.core.errors import ConfigError
from seqloom.nn.attention import AdditiveScore, Attention, AttentionScore, BilinearScore, DotScore, owners_of
from seqloom.nn.probe import listen

WIDTH, BATCH, QUERIES, SOURCE = 4, 3, 5, 6
LENGTHS = torch.tensor([6, 2, 4])
SCORES = {"dot": DotScore, "bilinear": BilinearScore, "additive": AdditiveScore}


def attention_of(kind: str) -> Attention:
    return Attention(SCORES[kind](WIDTH, WIDTH)).double()


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


@pytest.mark.parametrize("kind", SCORES)
def test_weights_sum_to_one_and_are_zero_on_padding(kind: str) -> None:
    attention = attention_of(kind)
    memory = attention.remember(random(BATCH, SOURCE, WIDTH), LENGTHS)
    _, weights = attention(random(BATCH, QUERIES, WIDTH), memory)
    torch.testing.assert_close(weights.sum(2), torch.ones(BATCH, QUERIES, dtype=torch.float64), rtol=0, atol=1e-12)
    padding = torch.arange(SOURCE) >= LENGTHS[:, None]
    assert not weights.masked_select(padding[:, None]).any()
    assert (weights.masked_select(~padding[:, None]) > 0).all()


@pytest.mark.parametrize("kind", SCORES)
def test_padding_changes_no_context(kind: str) -> None:
    attention = attention_of(kind)
    values, queries = random(BATCH, SOURCE, WIDTH), random(BATCH, QUERIES, WIDTH)
    padding = (torch.arange(SOURCE) >= LENGTHS[:, None])[:, :, None]
    clean, _ = attention(queries, attention.remember(values, LENGTHS))
    dirty, _ = attention(queries, attention.remember(values.masked_fill(padding, 99.0), LENGTHS))
    torch.testing.assert_close(clean, dirty, rtol=0, atol=1e-12)
    seen, _ = attention(queries, attention.remember(values, torch.full_like(LENGTHS, SOURCE)))
    assert not torch.allclose(clean, seen, atol=1e-3)


@pytest.mark.parametrize("kind", SCORES)
def test_all_queries_at_once_equal_one_by_one(kind: str) -> None:
    attention = attention_of(kind)
    memory, queries = attention.remember(random(BATCH, SOURCE, WIDTH), LENGTHS), random(BATCH, QUERIES, WIDTH)
    contexts, weights = attention(queries, memory)
    for index in range(QUERIES):
        context, weight = attention(queries[:, index : index + 1], memory)
        torch.testing.assert_close(context[:, 0], contexts[:, index], rtol=0, atol=1e-12)
        torch.testing.assert_close(weight[:, 0], weights[:, index], rtol=0, atol=1e-12)


def test_scores_follow_their_formulas() -> None:
    query, memory = random(1, 1, 3), random(1, 2, 5)
    s, h = query[0, 0], memory[0, 1]
    bilinear, added = BilinearScore(3, 5).double(), AdditiveScore(3, 5).double()
    expected = {
        bilinear: s @ bilinear.from_memory.weight @ h,
        added: added.weigh.weight[0] @ torch.tanh(added.from_query.weight @ s + added.from_memory.weight @ h),
    }
    for score, value in expected.items():
        torch.testing.assert_close(score(query, score.keys(memory))[0, 0, 1], value, rtol=0, atol=1e-12)
    dot = DotScore(3, 3)
    assert float(dot(query, dot.keys(query))[0, 0, 0]) == pytest.approx(float(s @ s), abs=1e-12)


def test_dot_attention_of_a_worked_example() -> None:
    """Scores 0 and ln 3 give weights 1/4 and 3/4; the third position is padding."""
    attention = attention_of("dot")
    values = torch.zeros(1, 3, WIDTH, dtype=torch.float64)
    values[0, 1, 0], values[0, 2, 0] = math.log(3), 100.0
    query = torch.eye(WIDTH, dtype=torch.float64)[None, :1]
    context, weights = attention(query, attention.remember(values, torch.tensor([2])))
    torch.testing.assert_close(weights[0, 0], torch.tensor([0.25, 0.75, 0.0], dtype=torch.float64))
    assert float(context[0, 0, 0]) == pytest.approx(0.75 * math.log(3))


@pytest.mark.parametrize(("kind", "count"), [("dot", 0), ("bilinear", 3 * 5), ("additive", 3 * 3 + 3 * 5 + 3)])
def test_parameter_counts(kind: str, count: int) -> None:
    score: AttentionScore = SCORES[kind](3, 5 if kind != "dot" else 3)
    assert sum(parameter.numel() for parameter in score.parameters()) == count


def test_dot_attention_refuses_unequal_widths() -> None:
    with pytest.raises(ConfigError, match=r"width 3 with a memory of width 5; .* model\.attention=bilinear"):
        DotScore(3, 5)


def test_a_sentence_of_no_tokens_gives_numbers() -> None:
    attention = attention_of("dot")
    context, _ = attention(random(1, 1, WIDTH), attention.remember(random(1, 2, WIDTH), torch.tensor([0])))
    assert context.isfinite().all()


def test_weights_have_listeners() -> None:
    attention = attention_of("dot")
    memory = attention.remember(random(BATCH, SOURCE, WIDTH), LENGTHS)
    with listen(attention, "weights") as trace:
        _, weights = attention(random(BATCH, QUERIES, WIDTH), memory)
    assert torch.equal(trace["weights"][0], weights)


@given(sentence=some.lists(some.integers(0, 3), max_size=9))
def test_rows_come_back_from_their_slots(sentence: list[int]) -> None:
    owners = owners_of(torch.tensor(sentence, dtype=torch.long), 4)
    rows = torch.arange(1.0, len(sentence) + 1)[:, None]
    table = owners.gather(rows)
    assert torch.equal(owners.rows_of(table), rows)
    for index in range(4):
        mine = [float(row) for row, owner in enumerate(sentence, 1) if owner == index]
        assert sorted(table[index].flatten().tolist()) == sorted(mine + [0.0] * (owners.slots - len(mine)))


def test_rows_in_order_need_no_table() -> None:
    assert owners_of(torch.tensor([0, 1, 2]), 3).is_plain
    assert not owners_of(torch.tensor([1, 0, 2]), 3).is_plain
    assert not owners_of(torch.tensor([0, 1]), 3).is_plain
