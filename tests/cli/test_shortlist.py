"""`seqloom shortlist`: the lexicon of a run, and translating with it."""

import shutil
from pathlib import Path

from cli.calling import call
from cli.conftest import Tiny


def test_a_run_gets_a_lexicon_and_translates_with_it(tiny: Tiny, tmp_path: Path) -> None:
    run = shutil.copytree(tiny.run, tmp_path / "run")
    made = call("shortlist", run, "--json")
    assert made.code == 0, made.err
    record = made.records[-1]
    assert record["path"] == str(run / "model" / "lexicon.safetensors")
    assert record["pairs"] == 60
    done = call("translate", run, tiny.dev[0], "search.shortlist=5", "search.precision=int8")
    assert done.code == 0, done.err
    assert len(done.lines) == 6


def test_a_model_without_its_run_needs_text(tiny: Tiny, tmp_path: Path) -> None:
    model = shutil.copytree(tiny.run / "model", tmp_path / "alone")
    refused = call("shortlist", model)
    assert refused.code == 2
    assert "name text: --train SOURCE --train TARGET" in refused.err
    made = call("shortlist", model, "--train", f"{tiny.train[0]},{tiny.train[1]}")
    assert made.code == 0, made.err
    assert made.lines[0].startswith(f"Written  {model}")
    assert made.lines[1].endswith("search.shortlist=50")


def test_translating_without_a_lexicon_says_what_to_do(tiny: Tiny) -> None:
    refused = call("translate", tiny.run, tiny.dev[0], "search.shortlist=5")
    assert refused.code == 2
    assert "create it with: seqloom shortlist" in refused.err
