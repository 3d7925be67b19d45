"""Which look counts."""

import pytest
import torch

from seqloom.core.errors import UsageError
from seqloom.nn.multihead import HeadPolicy

WEIGHTS = torch.tensor([[[[0.5, 0.5, 0.0]], [[0.1, 0.9, 0.0]]]])  # one sentence, two heads, one query, three keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("mean", [0.3, 0.7, 0.0]),
        ("max", [0.5 / 1.4, 0.9 / 1.4, 0.0]),
        ("2/1", [0.1, 0.9, 0.0]),
        ("0/mean", [0.3, 0.7, 0]),
    ],
)
def test_policies_of_a_worked_example(text: str, expected: list[float]) -> None:
    policy = HeadPolicy.of(text, layers=3, heads=2)
    torch.testing.assert_close(policy.choose(WEIGHTS), torch.tensor([[expected]]))
    assert policy.layer == (int(text[0]) if text[0].isdigit() else 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("3/0", "layers 0 to 2 with heads 0 to 1"),
        ("0/2", "search.heads=0/2 is not in this model"),
        ("2", "is not a valid choice of heads"),
        ("best", "use mean, max, or LAYER/HEAD"),
        ("1/", "is not a valid choice"),
    ],
)
def test_unknown_layers_and_heads_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        HeadPolicy.of(text, layers=3, heads=2)
