"""Pairs of Tatoeba, of which no sentence is in two sets."""

import gzip
import sys
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "benchmarks"))

import tatoeba_split

WORDS = st.sampled_from(["a", "b", "c", "d", "e", "f"])
PAIRS = st.lists(st.tuples(WORDS, WORDS.map(str.upper)), unique=True, min_size=1)


@given(PAIRS)
def test_groups_share_no_sentence_and_cannot_be_divided(pairs: list[tuple[str, str]]) -> None:
    groups = tatoeba_split.group_pairs(pairs)
    assert sorted(pair for group in groups for pair in group) == sorted(pairs)
    for one, other in combinations(groups, 2):
        assert not any({a[0] for a in one} & {a[0] for a in other})
        assert not any({a[1] for a in one} & {a[1] for a in other})
    for group in groups:
        reached = {group[0]}
        while more := {p for p in group if p not in reached and any(p[0] == r[0] or p[1] == r[1] for r in reached)}:
            reached |= more
        assert len(reached) == len(group)


def test_a_file_becomes_three_sets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [(f"Sentence {n}.", f"第{n}句。") for n in range(60)]
    rows += [(f"sentence  {n}!", f"另{n}句，Tom。") for n in range(60)]  # the same sentence but for case and marks
    path = tmp_path / "cmn.txt.gz"
    path.write_bytes(gzip.compress("".join(f"{a}\t{b}\tCC-BY\n" for a, b in rows).encode()))
    arguments = [str(path), "--dev", "10", "--test", "20", "--out", str(tmp_path / "out")]
    assert tatoeba_split.main(arguments) == 0
    read = {
        (name, side): (tmp_path / "out" / f"{name}.{side}").read_text().splitlines()
        for name in ("train", "dev", "test")
        for side in ("zh", "en")
    }
    assert {key: len(lines) for key, lines in read.items() if key[1] == "en"} == {
        ("train", "en"): 60,
        ("dev", "en"): 10,
        ("test", "en"): 20,
    }
    keys = {name: set(map(tatoeba_split.sentence_key, read[name, "en"])) for name in ("train", "dev", "test")}
    assert not any(keys[one] & keys[other] for one, other in combinations(keys, 2))
    assert any(line.endswith("句，Tom。") for line in read["train", "zh"])
    assert tatoeba_split.main([*arguments[:-1], str(tmp_path / "more"), "--test", "50"]) == 2
    assert "groups" in capsys.readouterr().err
    (tmp_path / "bad.txt").write_text("English only\n")
    assert tatoeba_split.main([str(tmp_path / "bad.txt"), "--out", str(tmp_path / "bad")]) == 3
    assert "bad.txt:1" in capsys.readouterr().err
