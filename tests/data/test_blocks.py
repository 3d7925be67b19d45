"""Blocks are the lines of the corpus, whatever the files look like; processes change nothing."""

import gzip
import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data.helping import die_at_five, fail_at_five, leave_workers, square
from seqloom.core.errors import DataError, SeqloomError
from seqloom.data import corpus as corpus_module
from seqloom.data.corpus import RangeBlock, TextBlock, hold_out, open_corpus
from seqloom.data.encoding import PairEncoder, encode_corpus
from seqloom.data.workers import in_order
from seqloom.text.tokenizer import TextConfig, Tokenizers
from seqloom.text.tokenizer_training import train_tokenizers

PIECES = ("a", "b c", "\r", "é", "中", "\u2028", "\x0b", "\ufeff", " ", "")
LINES = st.lists(st.lists(st.sampled_from(PIECES), max_size=4).map("".join), min_size=1, max_size=9)


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_bytes(content.encode())
    return path


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpus_module, "BLOCK", 3)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("is_ended", [True, False])
def test_blocks_hold_what_is_read_line_by_line(
    tmp_path_factory: pytest.TempPathFactory, ending: str, is_ended: bool
) -> None:
    seen = {"parts": 0}

    @given(LINES, LINES)
    def check(some: list[str], others: list[str]) -> None:
        folder = tmp_path_factory.mktemp("blocks")
        count = min(len(some), len(others))
        texts = [ending.join([*lines[: count - 1], "z"]) + (ending if is_ended else "") for lines in (some, others)]
        corpus = open_corpus([write(folder, f"a.{name}", text) for name, text in zip("xy", texts, strict=True)])
        found = list(corpus.blocks())
        assert all(isinstance(block, RangeBlock) for block in found)
        assert [line for block in found for line in block.lines()] == list(corpus)
        seen["parts"] = max(seen["parts"], len(found))

    check()
    assert seen["parts"] == 3


@pytest.mark.usefixtures("small_blocks")
def test_several_parts_of_several_kinds_are_numbered_on(tmp_path: Path) -> None:
    one = [write(tmp_path, "a.x", "1\n2\n3\n4\n"), write(tmp_path, "a.y", "1\n2\n3\n4\n")]
    two = [write(tmp_path, "b.x", "5\n6\n"), write(tmp_path, "b.y", "5\n6\n")]
    corpus = open_corpus([*one, *two])
    assert [line for block in corpus.blocks() for line in block.lines()] == list(corpus)
    table = open_corpus([write(tmp_path, "t.tsv", "".join(f"{at}\t{at}\n" for at in range(7)))])
    parts = list(table.blocks())
    assert [len(block.lines()) for block in parts] == [3, 3, 1]
    assert all(isinstance(block, TextBlock) for block in parts)
    assert [line for block in parts for line in block.lines()] == list(table)
    # In UTF-16 a byte 0x0A is no line end, so its lines cannot be found by their bytes.
    for name in "xy":
        (tmp_path / f"w.{name}").write_bytes("\u0a0a\nb\n".encode("utf-16"))
    wide = open_corpus([tmp_path / "w.x", tmp_path / "w.y"], encoding="utf-16")
    assert [line.source for block in wide.blocks() for line in block.lines()] == ["\u0a0a", "b"]


@pytest.mark.usefixtures("small_blocks")
def test_what_is_held_out_is_left_out_of_blocks(tmp_path: Path) -> None:
    text = "".join(f"{at}\n" for at in range(20))
    corpus = open_corpus([write(tmp_path, "a.x", text), write(tmp_path, "a.y", text)])
    split = hold_out(corpus, 6, seed=3)
    for part in (split.rest, split.held):
        assert [line for block in part.blocks() for line in block.lines()] == list(part)
    assert len(list(split.held)) == 6


def test_a_file_that_changes_after_it_was_checked_is_noticed(tmp_path: Path) -> None:
    paths = [write(tmp_path, "a.x", "1\n2\n"), write(tmp_path, "a.y", "1\n2\n")]
    corpus = open_corpus(paths)
    (block,) = corpus.blocks()
    write(tmp_path, "a.y", "1\n2 3 4\n5\n")
    with pytest.raises(DataError, match="changed while it was being read"):
        next(iter(corpus.blocks())).lines()
    paths[1].write_bytes(b"1\n\xff\n")
    with pytest.raises(DataError, match="changed while it was being read"):
        block.lines()


# --- processes -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("texts")
    lines = [f"{'ab' * (at % 5)} word{at % 97} {at}" if at % 50 else "" for at in range(6000)]
    return [write(folder, f"a.{name}", "\n".join(lines) + "\n") for name in "xy"]


@pytest.fixture(scope="module")
def tokenizers(texts: list[Path]) -> Tokenizers:
    lines = texts[0].read_text().split("\n")
    return train_tokenizers(lines, lines, TextConfig(size=100))


@pytest.mark.parametrize("kind", ["bpe", "unigram", "word"])
def test_stores_have_the_same_bytes_for_one_and_two_processes(texts: list[Path], tmp_path: Path, kind: str) -> None:
    lines = texts[0].read_text().split("\n")
    tokenizers = train_tokenizers(lines, lines, TextConfig.model_validate({"kind": kind, "size": 100}))
    encoder = PairEncoder(tokenizers.source.encode_flat, tokenizers.target.encode_flat, 30)
    reports = [
        encode_corpus(open_corpus(texts), encoder, tmp_path / str(workers), symbols=200, workers=workers)
        for workers in (1, 2)
    ]
    assert reports[0] == reports[1]
    assert reports[0].empty.count == 120
    names = sorted(path.name for path in (tmp_path / "1").iterdir())
    assert len(names) == 6
    for name in names:
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()


@pytest.mark.parametrize("workers", [1, 2])
def test_results_come_in_order_and_errors_as_they_are(workers: int) -> None:
    assert list(in_order(square, range(20), workers=workers)) == [number * number for number in range(20)]
    results = in_order(fail_at_five, range(20), workers=workers)
    with pytest.raises(DataError, match="five is not wanted"):
        list(results)


def test_a_process_that_dies_is_noticed() -> None:
    with pytest.raises(SeqloomError, match="processes ended, perhaps out of memory"):
        list(in_order(die_at_five, range(20), workers=2))


def test_processes_end_with_the_one_that_started_them(tmp_path: Path) -> None:
    parent = multiprocessing.get_context("spawn").Process(target=leave_workers, args=(str(tmp_path),))
    parent.start()
    parent.join()
    worker = int((tmp_path / "worker").read_text())
    for _ in range(300):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    os.kill(worker, signal.SIGKILL)
    pytest.fail("a worker goes on without anybody to work for")


def test_a_compressed_file_that_changes_is_noticed(tmp_path: Path) -> None:
    paths = [tmp_path / "a.x.gz", tmp_path / "a.y.gz"]
    for path in paths:
        path.write_bytes(gzip.compress(b"1\n2\n3\n"))
    corpus = open_corpus(paths)
    for path in paths:
        path.write_bytes(gzip.compress(b"1\n2\n"))
    with pytest.raises(DataError, match="changed while it was being read"):
        list(corpus.blocks())


def test_a_tokeniser_is_the_same_in_another_process(tokenizers: Tokenizers) -> None:
    (found,) = in_order(tokenizers.source.encode_many, [["ab word5", "中"]], workers=2)
    assert found == tokenizers.source.encode_many(["ab word5", "中"])


def test_processes_that_the_program_has_started_itself_are_left_alone() -> None:
    results = in_order(square, range(8), workers=2)
    assert next(results) == 0
    own = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    own.start()
    assert list(results) == [number * number for number in range(1, 8)]
    assert own.is_alive()
    own.kill()
    own.join()
