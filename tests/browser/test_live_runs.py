"""A run that trains while the page looks at it, is killed in the middle of a line, and resumed."""

import json
import shutil
from pathlib import Path

import pytest

from browser.conftest import Watched

pytestmark = pytest.mark.browser


def test_a_run_that_trains_shows_its_steps_live(real_page: Watched, tiny_folder: Path) -> None:
    run = tiny_folder / "growing"
    shutil.copytree(tiny_folder / "en-de", run)
    events = run / "events.jsonl"
    lines = [json.loads(line) for line in events.read_text(encoding="utf-8").splitlines()]
    last = max((line for line in lines if line.get("event") == "step"), key=lambda line: line["step"])
    page = real_page.page
    try:
        real_page.open(view="runs", runs=["growing"])
        page.locator(".uplot").first.wait_for()
        with events.open("a", encoding="utf-8") as file:
            file.write(json.dumps(last | {"step": 777, "loss": 0.3125}) + "\n")
            file.flush()
            page.locator(".readout", has_text="0.3125").first.wait_for()
            whole = json.dumps(last | {"step": 778, "loss": 0.4375}) + "\n"
            file.write(whole[:30])  # torn: the rest is not there yet
            file.flush()
            page.wait_for_timeout(1500)
            assert page.locator(".readout", has_text="0.4375").count() == 0
            file.write(whole[30:])
            file.flush()
            page.locator(".readout", has_text="0.4375").first.wait_for()
    finally:
        shutil.rmtree(run)
