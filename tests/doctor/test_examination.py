"""The doctor finds what was planted into a text, and is silent about a sound one."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import numpy as np
import pytest

from doctor.damage import CHANGES, Pairs, Planted, damage, move_borders, plant, read_pairs, write_pairs
from seqloom.core.errors import UsageError
from seqloom.core.events import Event
from seqloom.data.corpus import open_corpus
from seqloom.data.phrasebook import sample_pairs
from seqloom.doctor import repairs
from seqloom.doctor.examination import Diagnosis, diagnose
from seqloom.doctor.faults import LineRun
from seqloom.doctor.page import doctor_page
from seqloom.doctor.repairs import REPAIRS, SAFE, choose_repairs, left_over, repair

LANGUAGES = ("en", "de")
LARGEST_FALSE_ALARM = 0.01
"""The share of a sound text's lines that one examination may name."""


MULTI30K_FALSE_ALARM = 0.002
"""The same of Multi30k."""

RECALL = {"markup": 1.0, "accents": 0.7, "cut": 0.85, "one-sided": 1.0}
"""The share of planted lines that is found at least; the accent of a word that occurs once cannot be missed."""


@dataclass(frozen=True)
class Case:
    """A text as it was, damaged, and what the doctor says."""

    pairs: Pairs
    planted: Planted
    files: list[Path]
    found: Diagnosis

    def lines(self, kind: str, split: str = "train") -> set[int]:
        return {
            int(number)
            for fault in self.found.faults
            if fault.kind == kind and fault.split == split
            for number in fault.lines
        }


def phrases(split: str, count: int, seed: int) -> Pairs:
    drawn = sample_pairs("en", "de", count=count, seed=seed, split=split)  # type: ignore[arg-type]
    return [(pair.source, pair.target) for pair in drawn]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Diagnosis:
    folder = tmp_path_factory.mktemp("sound")
    files = write_pairs(phrases("train", 1500, 1), folder, "train", LANGUAGES)
    test = write_pairs(phrases("test", 100, 2), folder, "test", LANGUAGES)
    return diagnose(files, test=test)


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Case:
    folder = tmp_path_factory.mktemp("damaged")
    pairs, leaked = phrases("train", 1500, 1), phrases("test", 100, 2)
    long_enough = [pair for pair in leaked if len(pair[0].split()) >= 5]
    planted = damage(pairs, long_enough, seed=3, shifted=60, swapped=40, copies=30, others=15)
    files = write_pairs(planted.pairs, folder, "train", LANGUAGES)
    test = write_pairs(leaked, folder, "test", LANGUAGES)
    return Case(pairs, planted, files, diagnose(files, test=test))


def test_a_sound_text_raises_no_alarm(sound: Diagnosis) -> None:
    assert sound.verdict.is_fit
    assert [fault.kind for fault in sound.faults if fault.severity != "note"] == []
    for fault in sound.faults:
        lines = len(sound.train.survey) if fault.split == "train" else 100
        assert len(fault.lines) <= LARGEST_FALSE_ALARM * lines, fault.sentence


def test_a_shifted_run_is_found_with_its_shift(damaged: Case) -> None:
    (fault,) = (fault for fault in damaged.found.faults if fault.kind == "misaligned")
    wanted = damaged.planted.lines["misaligned"]
    (run,) = fault.runs
    assert run.shift == 3
    assert run.first == min(wanted)
    assert run.last == max(damaged.planted.lines["lost"]) == max(wanted) + 3, "three have lost their translations"
    assert f"lines {run.first:,} to {run.last:,} by +3" in fault.sentence
    assert damaged.found.place("train", run.first) == f"{damaged.files[0]}:{run.first}"


@pytest.mark.parametrize(("kind", "missed"), [("swapped", 0.05), ("copies", 0.0), ("script", 0.0), ("duplicates", 0.0)])
def test_single_faults_are_found(damaged: Case, kind: str, missed: float) -> None:
    wanted, found = damaged.planted.lines[kind], damaged.lines(kind)
    if kind == "copies":  # two words are no copy: names and numbers are written so in both languages
        wanted = {number for number in wanted if len(damaged.planted.pairs[number - 1][0].split()) > 2}
    assert len(wanted - found) <= missed * len(wanted)
    assert len(found - wanted) <= LARGEST_FALSE_ALARM * len(damaged.pairs)


UNLIKE = (
    ("Wenn x < 3 und y > 5, dann gilt a < b > c.", "If x < 3 and y > 5, then a < b > c."),
    ("Ã ist ein Buchstabe: SÃO PAULO.", "Ã is a letter: SÃO PAULO."),
    ("Schreibe &amp;lt; für <.", "Write &amp;lt; for <."),
    ("List<String> ist ein Typ.", "List<String> is a type."),
    ("क्‍ष ist ein Zeichen mit Verbinder.", "क्‍ष is a sign with a joiner."),
    ("Familie 👨‍👩‍👧 hier, été ist Sommer.", "Family 👨‍👩‍👧 here, été is summer."),
    ("for i in range(9): print(a[i])  # gib jedes aus", "for i in range(9): print(a[i])  # print each"),
    ("Siehe https://www.example.org/a/b?c=1&d=2 (3,5 MB)", "See https://www.example.org/a/b?c=1&d=2 (3.5 MB)"),
    ("Wolfgang Amadeus Mozart, KV 525, Wien 1787", "Wolfgang Amadeus Mozart, K. 525, Vienna 1787"),
    ("Grzegorz Brzęczyszczykiewicz, Łódź, Polen", "Grzegorz Brzęczyszczykiewicz, Łódź, Poland"),
    ("SELECT name FROM users WHERE id = 7; -- Abfrage", "SELECT name FROM users WHERE id = 7; -- query"),
    ("7 × 8 = 56, 1 000,5 € · 20 % MwSt.", "7 × 8 = 56, 1,000.5 € · 20% VAT"),
)
"""Sound pairs of German and English, unlike any sentence about what people do."""


def test_sound_pairs_unlike_the_rest_are_not_swapped_and_single_swaps_are(tmp_path: Path) -> None:
    pairs = [(german, english) for english, german in phrases("train", 1200, 1)]
    turned = {number for number in range(50, 1200, 50) if min(len(side.split()) for side in pairs[number - 1]) > 3}
    pairs = [(b, a) if number in turned else (a, b) for number, (a, b) in enumerate(pairs, 1)]
    found = diagnose(write_pairs([*pairs, *UNLIKE], tmp_path, "train", ("de", "en")))
    named = {
        kind: {int(n) for fault in found.faults if fault.kind == kind for n in fault.lines}
        for kind in ("swapped", "language")
    }
    assert {kind: {number for number in lines if number > 1200} for kind, lines in named.items()} == {
        "swapped": set(),
        "language": set(),
    }
    assert len(turned - named["swapped"]) <= 0.1 * len(turned) > 1


def test_leaked_lines_are_reported_for_the_test_set(damaged: Case) -> None:
    leaked = {damaged.planted.pairs[number - 1] for number in damaged.planted.lines["leaked"]}
    test = [line for line in damaged.found.splits[1].corpus if (line.source, line.target) in leaked]
    assert damaged.lines("leakage", "test") == {line.number for line in test} != set()


def test_the_worst_comes_first_and_the_verdict_says_what_to_mend(damaged: Case) -> None:
    assert damaged.found.verdict.severity == "fix"
    assert damaged.found.verdict.first[0].startswith("Source and target swapped")
    severities = [fault.severity for fault in damaged.found.faults]
    assert severities == sorted(severities, key=["stop", "fix", "note"].index)


def test_swapped_files_stop(tmp_path: Path) -> None:
    pairs = phrases("train", 300, 1)
    wrong = write_pairs([(target, source) for source, target in pairs], tmp_path, "train", LANGUAGES)
    found = diagnose(wrong)
    assert not found.verdict.is_fit
    assert found.faults[0].kind == "names"
    assert "the sides are named en and de" in found.faults[0].sentence
    right = diagnose(write_pairs(pairs, tmp_path, "right", LANGUAGES))
    assert "names" not in {fault.kind for fault in right.faults}


def test_a_memory_is_examined_in_the_requested_languages(tmp_path: Path) -> None:
    pairs = phrases("train", 60, 1)
    variant = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
    units = [
        "".join([variant.format("en", source), variant.format("fr", "Bonjour."), variant.format("de", target)])
        for source, target in pairs
    ]
    path = tmp_path / "memory.tmx"
    path.write_text(
        f'<tmx version="1.4"><header srclang="en"/><body>{"".join(f"<tu>{unit}</tu>" for unit in units)}</body></tmx>'
    )
    plain = write_pairs(pairs, tmp_path, "train", LANGUAGES)
    german, french = (diagnose([path], languages=("en", code)) for code in ("de", "fr"))
    assert german.train.survey.exact.tolist() == diagnose(plain).train.survey.exact.tolist()
    assert {line.target for line in french.train.corpus} == {"Bonjour."}
    with pytest.raises(UsageError, match="holds texts in en, fr and de; choose two of them"):
        diagnose([path])
    swapped = diagnose([path], languages=("de", "en"))
    assert [line.source for line in swapped.train.corpus] == [target for _, target in pairs]


def test_a_swapped_test_set_stops(tmp_path: Path) -> None:
    train = write_pairs(phrases("train", 600, 1), tmp_path, "train", ("a", "b"))
    turned = [(target, source) for source, target in phrases("test", 60, 2)]
    found = diagnose(train, test=write_pairs(turned, tmp_path, "test", ("a", "b")))
    assert [(fault.kind, fault.split) for fault in found.faults if fault.severity == "stop"] == [("swapped", "test")]


def test_a_text_that_is_shifted_as_a_whole_stops(tmp_path: Path) -> None:
    pairs = phrases("train", 600, 1)
    shifted = [(pair[0], pairs[at - 1][1]) for at, pair in enumerate(pairs)]
    found = diagnose(write_pairs(shifted, tmp_path, "train", LANGUAGES))
    assert found.faults[0].kind == "sides"
    assert "+1" in found.faults[0].sentence


@pytest.mark.parametrize("pairs", [[("a", "b")], [("", "")], [("", "x"), ("y", "")], [("Hello there.", "你好。")] * 3])
def test_very_little_text_is_examined_too(tmp_path: Path, pairs: Pairs) -> None:
    found = diagnose(write_pairs(pairs, tmp_path, "train", ("a", "b")))
    assert found.verdict.is_fit == (pairs[0] != ("", "") and pairs[0] != ("", "x"))
    assert "</html>" in doctor_page(found)


# --- repairs ---------------------------------------------------------------------------------------------------------


def test_repairs_write_a_copy_with_a_log_and_leave_the_text_alone(damaged: Case, tmp_path: Path) -> None:
    before = [path.read_bytes() for path in damaged.files]
    repaired = repair(damaged.found, choose_repairs("all"), tmp_path / "repaired")
    assert [path.read_bytes() for path in damaged.files] == before
    sides = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in repaired.files]
    assert len(sides[0]) == len(sides[1]) == repaired.kept
    assert repaired.kept + repaired.dropped == len(damaged.pairs)
    right = set(damaged.pairs)
    wrong = [pair for pair in zip(*sides, strict=True) if pair not in right]
    assert len(wrong) <= 3, "re-aligned, swapped and cleaned, all pairs are true pairs again"
    head, *rows = (tmp_path / "repaired" / "repairs.tsv").read_text(encoding="utf-8").split("\n")[:-1]
    assert head == "line\tfile\twhat\twhy"
    number, file, what, why = next(row for row in rows if "paired" in row).split("\t")
    assert (file, what) == (str(damaged.files[1]), "paired with the target +3 lines away")
    assert int(number) in damaged.planted.lines["misaligned"]
    assert why == "misaligned: its translation is in another line"


@pytest.mark.parametrize("shift", [-3, -2, 2])
def test_of_shifted_lines_those_are_dropped_that_have_lost_their_translations(tmp_path: Path, shift: int) -> None:
    """Targets too few (or too many) in line 301, and the rest of the run two lines before (or after) its place."""
    pairs, junk = phrases("train", 600, 1), [pair[1] for pair in phrases("test", abs(shift), 2)]
    targets = [target for _, target in pairs[300:360]]
    moved = [*targets[-shift:], *junk] if shift < 0 else [*junk, *targets[:-shift]]
    wrong = [*pairs[:300], *zip([source for source, _ in pairs[300:360]], moved, strict=True), *pairs[360:]]
    found = diagnose(write_pairs(wrong, tmp_path, "train", LANGUAGES))
    assert found.train.runs == (LineRun(301, 360, shift),)
    repaired = repair(found, ("misaligned",), tmp_path / "repaired")
    lost = range(301, 301 - shift) if shift < 0 else range(361 - shift, 361)
    kept = [(line.source, line.target) for line in open_corpus(repaired.files)]
    assert kept == [pair for at, pair in enumerate(pairs, start=1) if at not in lost]
    rows = [row.split("\t") for row in repaired.log.read_text(encoding="utf-8").split("\n")[1:-1]]
    dropped = [(int(number), why) for number, file, what, why in rows if what == "dropped" and file.endswith(".en")]
    assert dropped == [(number, "misaligned: no translation found nearby") for number in lost]


def test_the_log_names_the_files_that_were_changed(tmp_path: Path) -> None:
    """Of each file, the log names exactly the lines that its repaired copy lacks or has otherwise."""
    files = []
    for part in range(2):
        pairs = phrases("train", 40, part)
        pairs[3] = (pairs[3][0], f"{pairs[3][1]} fÃ¼r")
        pairs[5] = (f"{pairs[5][0]} &amp;", f"{pairs[5][1]} &amp;")
        pairs[7] = (f"{pairs[7][0]}\u200b", pairs[7][1])
        pairs[9] = ("", pairs[9][1])
        files += write_pairs(pairs, tmp_path, f"part{part}", LANGUAGES)
    repaired = repair(diagnose(files), choose_repairs("empty,garbled,invisible,spelling"), tmp_path / "repaired")
    rows = [row.split("\t") for row in repaired.log.read_text(encoding="utf-8").split("\n")[1:-1]]
    assert [row[1] for row in rows if row[0] == "4"] == [str(files[1]), str(files[3])]
    for file, copy in zip(files, repaired.files, strict=True):
        old, new = (path.read_text(encoding="utf-8").split("\n")[:-1] for path in (file, copy))
        new.insert(9, "dropped")
        differ = [str(at) for at, (one, other) in enumerate(zip(old, new, strict=True), start=1) if one != other]
        assert [number for number, named, *_ in rows if named == str(file)] == differ


def test_a_dictionary_of_words_and_sounds_is_examined(tmp_path: Path) -> None:
    """No word comes again, so the alignment is unknown; the text is not refused and no runs are found."""
    words = [f"{a}{b}{c}{d}" for a in "bdfk" for b in "aeiou" for c in "lmnrst" for d in ("a", "ing", "o", "est")]
    table = tmp_path / "train.tsv"
    for sounds in (lambda word: " ".join(word.upper()), str.upper):
        table.write_text("".join(f"{word}\t{sounds(word)}\n" for word in words), encoding="utf-8")
        found = diagnose([table])
        assert found.verdict.is_fit
        assert not found.train.evidence.any()
        assert {fault.kind for fault in found.faults} & {"misaligned", "unrelated", "sides"} == set()


def test_safe_repairs_do_not_judge_meaning(damaged: Case, tmp_path: Path) -> None:
    repaired = repair(damaged.found, choose_repairs("safe"), tmp_path)
    assert set(repaired.reasons) <= set(SAFE)
    assert repaired.reasons["copies"] >= 20
    again = diagnose(list(repaired.files), test=list(damaged.found.splits[1].corpus.parts[0]))
    assert {fault.kind for fault in again.faults} & {"copies", "script", "duplicates", "leakage"} == set()
    assert "misaligned" in {fault.kind for fault in again.faults}, "what was not requested stays"


def test_what_was_not_repaired_is_named_with_its_repair(damaged: Case, tmp_path: Path) -> None:
    left = repair(damaged.found, choose_repairs("safe"), tmp_path / "safe").left
    assert {"swapped", "misaligned"} <= {each.repair for each in left} <= set(REPAIRS) - set(SAFE)
    (shifted,) = (each for each in left if each.repair == "misaligned")
    assert (shifted.title, shifted.split) == ("Shifted lines", "train")
    assert shifted.count == len(damaged.lines("misaligned"))
    left = repair(damaged.found, choose_repairs("copies"), tmp_path / "copies").left
    assert "leakage" in {each.repair for each in left}
    assert repair(damaged.found, choose_repairs("all"), tmp_path / "all").left == ()


def test_a_test_set_is_not_repaired(damaged: Case, tmp_path: Path) -> None:
    swapped = write_pairs([(b, a) for a, b in phrases("test", 100, 2)], tmp_path, "test", LANGUAGES)
    found = diagnose(damaged.files, test=swapped)
    left = [each for each in left_over(found, choose_repairs("all")) if each.split == "test"]
    assert [each.repair for each in left if each.title == "The sides of test are swapped"] == [None]


def test_the_log_gives_the_fault_of_the_report(tmp_path: Path) -> None:
    pairs = phrases("train", 20, 1)
    pairs[3] = (pairs[3][0] + " &amp; more", pairs[3][1])
    pairs[5] = (pairs[5][0] + "\u200b", pairs[5][1])
    pairs[7] = (pairs[7][0] + " fÃ¼r &amp; more", pairs[7][1])
    found = diagnose(write_pairs(pairs, tmp_path, "train", LANGUAGES))
    repaired = repair(found, choose_repairs("garbled,invisible,spelling"), tmp_path / "repaired")
    rows = [row.split("\t") for row in repaired.log.read_text(encoding="utf-8").split("\n")[1:-1]]
    assert [(number, why) for number, _, _, why in rows] == [
        ("4", "spelling: an HTML entity, or decomposed accents"),
        ("6", "invisible: invisible characters"),
        ("8", "garbled: a double encoding, or control characters"),
    ]


def test_cut_sides_and_moved_borders_are_found(tmp_path: Path) -> None:
    """And nothing of the kind where nothing was planted."""
    sound = [pair for pair in phrases("train", 1500, 1) if min(len(side.split()) for side in pair) >= 5][:900]
    before = diagnose(write_pairs(sound, tmp_path, "sound", LANGUAGES))
    planted = plant(sound, {name: CHANGES[name][1] for name in ("cut targets", "cut sources")}, count=20, seed=1)
    free = [at for at in range(1, len(sound) - 3, 3) if not {at, at + 1, at + 2} & set.union(*planted.lines.values())]
    planted.lines["boundaries"] = move_borders(planted.pairs, free[:40:2])
    case = Case(sound, planted, [], diagnose(write_pairs(planted.pairs, tmp_path, "train", LANGUAGES)))
    wanted = {
        "cut": planted.lines["cut targets"] | planted.lines["cut sources"],
        "boundaries": planted.lines["boundaries"],
    }
    for kind, lines in wanted.items():
        false = [fault for fault in before.faults if fault.kind == kind]
        assert sum(len(fault.lines) for fault in false) <= 0.002 * len(sound), kind
        assert len(lines & case.lines(kind)) >= 0.6 * len(lines), kind
        assert len(case.lines(kind) - lines) <= 0.3 * len(lines), kind


def test_tags_are_removed_and_what_is_lost_is_dropped(tmp_path: Path) -> None:
    pairs = phrases("train", 60, 1)
    pairs[3] = (f"<p>{pairs[3][0]}</p>", f"<i>{pairs[3][1]}</i><br>Neu &amp; mehr")
    pairs[5] = (pairs[5][0], f"{pairs[5][1]} f?r")
    pairs[7] = (f"{pairs[7][0]} 😀", pairs[7][1])
    found = diagnose(write_pairs(pairs, tmp_path, "train", LANGUAGES))
    repaired = repair(found, choose_repairs("markup,accents,one-sided"), tmp_path / "repaired")
    assert repaired.reasons == {"markup": 1, "accents": 1, "one-sided": 1}
    clean = [(line.source, line.target) for line in open_corpus(repaired.files)]
    original = phrases("train", 60, 1)
    assert clean[3] == (original[3][0], f"{original[3][1]} Neu &amp; mehr"), "entities are another repair"
    assert len(clean) == 58
    assert {"markup", "accents", "one-sided", "cut", "boundaries", "templates", "near-leakage"}.isdisjoint(SAFE)


def test_names_of_columns_are_reported_and_dropped(tmp_path: Path) -> None:
    table = tmp_path / "train.tsv"
    rows = [("Deutsch", "Englisch"), *phrases("train", 30, 1)]
    table.write_text("".join(f"{source}\t{target}\n" for source, target in rows), encoding="utf-8")
    found = diagnose([table])
    (fault,) = (fault for fault in found.faults if fault.kind == "header")
    assert [place for place, _ in found.shown(fault)] == [f"{table}:1"]
    repaired = repair(found, choose_repairs("safe"), tmp_path / "repaired")
    assert (repaired.kept, repaired.dropped) == (30, 1)
    assert repaired.log.read_text().split("\n")[1] == f"1\t{table}\tdropped\theader: header line"


def test_a_line_with_spaces_that_do_not_break_is_like_the_rest(tmp_path: Path) -> None:
    pairs = phrases("train", 400, 1)
    at = max(range(400), key=lambda line: len(pairs[line][1]))
    pairs[at] = (pairs[at][0], pairs[at][1].replace(" ", "\u00a0"))
    found = diagnose(write_pairs(pairs, tmp_path, "train", LANGUAGES))
    assert [fault.kind for fault in found.faults if at + 1 in fault.lines] == []


def test_a_carriage_return_stays_unless_its_repair_is_requested(tmp_path: Path) -> None:
    pairs = phrases("train", 20, 1)
    pairs[3] = (f"one\rand {pairs[3][0]}", pairs[3][1])
    pairs[5] = (f"{pairs[5][0]}\r", f"{pairs[5][1]}\r\r")
    table = tmp_path / "train.tsv"
    table.write_text("".join(f"{source}\t{target}\r\n" for source, target in pairs), encoding="utf-8", newline="")
    for at, files in enumerate(([table], write_pairs(pairs, tmp_path, "train", LANGUAGES))):
        text = b"".join(path.read_bytes() for path in files)
        assert text.count(b"\r") > 3
        found = diagnose(files)
        before = [(line.source, line.target) for line in found.train.corpus]
        same = repair(found, ("empty",), tmp_path / f"same{at}")
        assert [(line.source, line.target) for line in open_corpus(same.files)] == before
        assert same.changed == same.dropped == 0
        repaired = repair(found, ("garbled",), tmp_path / f"repaired{at}")
        assert all(b"\r" not in path.read_bytes() for path in repaired.files)
        assert repaired.changed == len(repaired.log.read_text(encoding="utf-8").split("\n")) - 2 >= 1


def test_parts_are_opened_one_after_another_and_appear_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        path for at in range(6) for path in write_pairs(phrases("train", 10, at), tmp_path, f"part{at}", LANGUAGES)
    ]
    found, open_now, most = diagnose(files), set[Path](), 0
    whole = repairs.open_output

    @contextmanager
    def counted(path: Path) -> Iterator[TextIOWrapper]:
        nonlocal most
        open_now.add(path)
        most = max(most, len(open_now))
        assert not list((tmp_path / "repaired").glob("*part*")), "nothing is there before all is"
        with whole(path) as stream:
            yield stream
        open_now.remove(path)

    monkeypatch.setattr(repairs, "open_output", counted)
    repaired = repair(found, ("empty",), tmp_path / "repaired")
    assert most == 3, "both sides of a part, and the log"
    assert [path.read_bytes() for path in repaired.files] == [path.read_bytes() for path in files]
    assert {path.name for path in (tmp_path / "repaired").iterdir()} == {
        path.name for path in (*repaired.files, repaired.log)
    }


def test_progress_counts_pairs_and_begins_at_nothing(tmp_path: Path) -> None:
    told: dict[str, list[tuple[int, int]]] = {}

    def listen(event: Event) -> None:
        if event.kind == "progress":
            told.setdefault(str(event["what"]), []).append((event["done"], event["all"]))

    train = write_pairs(phrases("train", 300, 1), tmp_path, "train", LANGUAGES)
    test = write_pairs(phrases("test", 40, 2), tmp_path, "test", LANGUAGES)
    diagnose(train, test=test, listener=listen)
    assert told["judging the languages of test"] == told["judging the alignment of test"] == [(0, 40), (40, 40)]
    assert {name for name, steps in told.items() if steps[0][0] != 0 or steps[-1][0] != steps[-1][1]} == set()


def test_repairs_have_names() -> None:
    assert choose_repairs("copies, duplicates,copies") == ("copies", "duplicates")
    assert set(choose_repairs("all")) == set(REPAIRS)
    with pytest.raises(UsageError, match="--fix copys: unknown repair"):
        choose_repairs("copys")


def test_the_text_itself_is_never_written(damaged: Case) -> None:
    with pytest.raises(UsageError, match="is the input itself"):
        repair(damaged.found, ("copies",), damaged.files[0].parent)


# --- real data -------------------------------------------------------------------------------------------------------


def _find_what_is_planted(pairs: Pairs, leaked: Pairs, files: dict[str, list[Path]], folder: Path) -> None:
    """Each kind of damage to single texts, moved borders, lines in a third language, leaks with a word added."""
    french = read_pairs(files["train"][0], files["train"][0].with_name("train.fr.gz"))
    changes = {name: change for name, (_, change) in CHANGES.items()}
    planted = plant(pairs, changes, count=150, seed=1)
    free = iter(
        [at for at in range(1, len(pairs) - 3, 3) if not {at, at + 1, at + 2} & set.union(*planted.lines.values())]
    )
    borders = move_borders(planted.pairs, [next(free) for _ in range(150)])
    third = {next(free) + 1 for _ in range(150)}
    for number in third:
        planted.pairs[number - 1] = french[number - 1]
    long_enough = [number for number, pair in enumerate(leaked, start=1) if len(pair[0].split()) > 7][:100]
    for number in long_enough:
        planted.pairs[next(free)] = (f"Now {leaked[number - 1][0]}", leaked[number - 1][1])
    found = diagnose(write_pairs(planted.pairs, folder, "planted", LANGUAGES), test=files["test"])
    case = Case(pairs, planted, [], found)
    for name, (kind, _) in CHANGES.items():
        wanted = planted.lines[name]
        assert len(wanted & case.lines(kind)) >= RECALL[kind] * len(wanted), name
    for kind, wanted, split in (
        ("boundaries", borders, "train"),
        ("foreign", third, "train"),
        ("near-leakage", set(long_enough), "test"),
    ):
        assert len(wanted & case.lines(kind, split)) >= 0.75 * len(wanted), kind


@pytest.mark.slow
def test_multi30k_sound_and_damaged(real_data: Path, tmp_path: Path) -> None:
    folder = real_data / "multi30k"
    names = {"train": "train", "dev": "val", "test": "test_2016_flickr"}
    files = {split: [folder / f"{name}.{code}.gz" for code in LANGUAGES] for split, name in names.items()}
    clean = diagnose(files["train"], dev=files["dev"], test=files["test"])
    assert clean.verdict.severity == "note"
    shares = {
        (fault.split, fault.kind): len(fault.lines) / len(split.survey)
        for fault in clean.faults
        for split in clean.splits
        if split.name == fault.split
    }
    assert max(shares.values()) <= MULTI30K_FALSE_ALARM, json.dumps({str(key): share for key, share in shares.items()})

    pairs, leaked = read_pairs(*files["train"]), read_pairs(*files["test"])
    planted = damage(pairs, leaked, seed=1, shifted=300, swapped=200, copies=200, others=100)
    found = diagnose(write_pairs(planted.pairs, tmp_path, "train", LANGUAGES), test=files["test"])
    case = Case(pairs, planted, [], found)
    for kind in ("misaligned", "swapped", "copies", "script", "duplicates"):
        wanted, told = planted.lines[kind], case.lines(kind)
        assert wanted <= told, f"{kind}: {sorted(wanted - told)[:10]} were missed"
        assert len(told - wanted) <= 10, f"{kind}: {sorted(told - wanted)[:20]} are false alarms"
    assert len(case.lines("leakage", "test")) == 100
    (fault,) = (fault for fault in found.faults if fault.kind == "misaligned")
    assert [run.shift for run in fault.runs] == [planted.shift]
    assert np.array_equal(fault.lines, sorted(planted.lines["misaligned"] | planted.lines["lost"]))

    _find_what_is_planted(pairs, leaked, files, tmp_path)
    turned = write_pairs([(target, source) for source, target in pairs[:5000]], tmp_path, "turned", LANGUAGES)
    assert diagnose(turned).faults[0].title == "Swapped files"
