"""The last layer: scores by the formula, log-probabilities that sum to one, and a table that may be shared."""

import torch
from torch import nn

from seqloom.nn.embeddings import Embedding
from seqloom.nn.outputs import Output


def test_scores_follow_the_formula() -> None:
    output = Output(nn.Parameter(torch.randn(5, 3)), has_bias=True)
    assert output.bias is not None
    with torch.no_grad():
        output.bias.normal_()
    x = torch.randn(2, 4, 3)
    expected = torch.einsum("ijw,sw->ijs", x, output.weight) + output.bias
    torch.testing.assert_close(output(x), expected)
    torch.testing.assert_close(output.log_probs(x), output(x) - output(x).logsumexp(-1, keepdim=True))
    torch.testing.assert_close(output.log_probs(x).exp().sum(-1), torch.ones(2, 4))


def test_there_is_no_bias_by_default() -> None:
    assert [name for name, _ in Output(nn.Parameter(torch.randn(5, 3))).named_parameters()] == ["weight"]


def test_a_tied_output_learns_in_the_table_of_the_embedding() -> None:
    embedding = Embedding(5, 3)
    output = Output(embedding.weight)
    output(torch.ones(1, 3)).sum().backward()
    assert embedding.weight.grad is not None
    torch.testing.assert_close(embedding.weight.grad, torch.ones(5, 3))
