"""The shape check of the test run must be switched on, or every annotation is only a comment."""

from pathlib import Path

import pytest
import torch
from pydantic import BaseModel

from seqloom.core.errors import Problem
from seqloom.core.stepping import Source, Step


class _State:
    def select(self, rows: torch.Tensor) -> "_State":
        return self


def test_shapes_of_a_dataclass_are_checked() -> None:
    Source(torch.zeros(2, 3, dtype=torch.long), torch.ones(2, dtype=torch.long))
    with pytest.raises(Exception, match="batch"):
        Source(torch.zeros(2, 3, dtype=torch.long), torch.ones(3, dtype=torch.long))


def test_a_value_may_stand_where_a_protocol_is_named() -> None:
    state = _State()
    assert Step(torch.zeros(2, 3), state).state is state
    with pytest.raises(Exception, match="state"):
        Step(torch.zeros(2, 3), "no state")  # type: ignore[arg-type]


def test_types_of_plain_values_are_checked() -> None:
    with pytest.raises(Exception, match="line"):
        Problem("message", "file", "not a number")  # type: ignore[arg-type]


def test_pydantic_classes_still_work_beside_the_check() -> None:
    class Model(BaseModel):
        path: Path

    assert Model(path=Path("a")).path == Path("a")


def test_there_is_one_thread() -> None:
    assert torch.get_num_threads() == 1
