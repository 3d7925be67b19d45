"""Ranks wait for what the first one does for all of them, however long it takes."""

from pathlib import Path

import pytest

from training.processes import start
from training.waiting import main


@pytest.mark.slow
@pytest.mark.parametrize("patient", [True, False])
def test_what_the_first_rank_does_alone_may_take_longer_than_torch_waits(tmp_path: Path, patient: bool) -> None:
    running = start(tmp_path, ranks=2, program=main, patient=patient)
    codes = running.codes()
    assert (codes == [0, 0]) is patient  # the control: other exchanges keep torch's limit
    assert len(list(tmp_path.glob("done.*"))) == (2 if patient else 0)
