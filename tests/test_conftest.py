"""The shape check of the test run must be switched on, or every annotation is only a comment."""

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float
from pydantic import BaseModel
from torch import Tensor

from checking import check
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


def test_axes_are_the_same_in_arguments_and_result_of_one_call_only() -> None:
    def turn(table: Float[Tensor, "rows width"], row: "Float[Tensor, ' width'] | None") -> Float[Tensor, "width rows"]:
        return table

    turned = check(turn)
    for size in (2, 3):
        assert turned(torch.ones(size, size), None) is not None
    with pytest.raises(Exception, match="turn"):
        turned(torch.ones(2, 2), torch.ones(3))
    with pytest.raises(Exception, match="return"):
        turned(torch.ones(2, 3), None)


def test_results_without_axes_are_checked_too() -> None:
    @check
    def first(words: list[str]) -> int:
        return words[0]  # type: ignore[return-value]

    with pytest.raises(Exception, match="return"):
        first(["a"])


def _adder(step: int, *, given: object = None) -> Any:
    @check
    def add(table: Float[Tensor, "rows width"], to: int = 1, *, times: int = 1) -> Float[Tensor, "rows width"]:
        """Add."""
        return table + (step + to) * times if given is None else given  # type: ignore[return-value]

    return add


def test_a_function_made_again_and_again_is_checked_each_time_with_its_own_values() -> None:
    zero = torch.zeros(1, 1)
    adders = [_adder(step) for step in range(3)]
    assert [int(add(zero, times=2)) for add in adders] == [2, 4, 6]
    assert [int(add(zero, 0)) for add in adders] == [0, 1, 2]
    assert {add.__doc__ for add in adders} == {"Add."}
    for add in adders:
        with pytest.raises(TypeError, match="to"):
            add(zero, "1")
        with pytest.raises(Exception, match="add"):
            add(zero[0])
    with pytest.raises(Exception, match="return"):
        _adder(0, given="no table")(zero)
    with pytest.raises(Exception, match="return"):
        _adder(0, given=torch.zeros(2, 1))(zero)


def test_the_check_of_a_function_inside_a_function_does_not_keep_outer_values_alive() -> None:
    held = torch.zeros(1)
    alive = weakref.ref(held)
    add = _adder(1, given=held)
    del held
    assert alive() is not None
    del add
    gc.collect()
    assert alive() is None


def test_annotations_of_a_function_inside_a_function_may_differ_from_call_to_call() -> None:
    def taker(kind: type) -> Any:
        def take(value: kind) -> None: ...  # type: ignore[valid-type]

        return check(take)

    taker(int)(1)
    taker(str)("1")
    for kind, wrong in ((int, "1"), (str, 1)):
        with pytest.raises(TypeError, match="value"):
            taker(kind)(wrong)


def test_pydantic_classes_still_work_beside_the_check() -> None:
    class Model(BaseModel):
        path: Path

    assert Model(path=Path("a")).path == Path("a")


def test_there_is_one_thread() -> None:
    assert torch.get_num_threads() == 1
