"""Generated catalogues: whatever is in them and whatever an engine says, no placeholder is lost and no byte moves."""

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import hypothesis
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import nasty
from seqloom.text.formats.carry import has_all_of
from seqloom.text.formats.placeholders import count_placeholders
from seqloom.text.formats.readers import open_catalogue
from seqloom.text.formats.segments import Catalogue, Code, Filling, Segment, text_of
from text.formats.generated import FORBIDDEN, WRITERS, Message, Unit, Written, messages, read_string
from text.formats.samples import Engine, fill, inventing, reversed_words, shouting


def _junk(text: str) -> Engine:
    return lambda line: f"{text} {line[::-1]} {text}"


_engines = st.one_of(
    st.sampled_from([reversed_words, shouting, inventing, lambda line: f"{line} {line}", lambda _: "x"]),
    nasty.line(most=3, longest=12).map(_junk),
)
# Files are written in the test, not in the strategy: the type check of the package draws random numbers.
_files = st.one_of(*(st.tuples(st.just(name), drawn, st.integers(0, 11)) for name, (_, drawn) in WRITERS.items()))


def _check(folder: Path, drawn: tuple[str, list[Unit], int], engine: Engine, *, aligned: bool, fuzzy: bool) -> None:
    name, units, style = drawn
    written = WRITERS[name][0](units, style)
    path = folder / name
    path.write_bytes(written.text.encode())
    catalogue = open_catalogue(path, languages=("en", "de"))
    _check_read(catalogue, written)
    assert catalogue.filled({}, target="de") == written.text.encode()
    states = ("untranslated", "fuzzy") if fuzzy else ("untranslated",)
    fillings = fill(catalogue, engine, states=states, aligned=aligned)
    for number, filling in fillings.items():
        _check_filling(filling, written, number)
    data = catalogue.filled(fillings, target="de")
    _check_bytes(data, written, fillings)
    path.write_bytes(data)
    _check_again(open_catalogue(path, languages=("en", "de")), written, fillings)


def _check_read(catalogue: Catalogue, written: Written) -> None:
    """Sources with their codes, contexts, translations and states are those that were written."""
    assert len(catalogue.segments) == len(written.known)
    for segment, known in zip(catalogue.segments, written.known, strict=True):
        assert (segment.text, _codes(segment)) == (known.message.text, known.message.codes)
        assert (segment.target, segment.state, segment.context) == (known.target, known.state, known.context)


def _codes(segment: Segment) -> list[str]:
    return [piece.text for piece in segment.source if isinstance(piece, Code)]


def _check_filling(filling: Filling, written: Written, number: int) -> None:
    message = written.known[number].message
    pieces = tuple(_plain(piece) for piece in filling.content)
    assert has_all_of(message.pieces, pieces, is_format=written.known[number].is_format)
    # A second opinion: those that nobody could take for anything else, counted as characters between spaces or marks.
    text = text_of(filling.content)
    for placeholder, times in Counter(message.placeholders).items():
        is_half = re.fullmatch("</?[^/]+>", placeholder)  # of a pair, which goes around words without a space
        pattern = re.escape(placeholder) if is_half else rf"(?<!\w){re.escape(placeholder)}(?!\w)"
        found = re.findall(pattern, text)
        assert len(found) >= times, placeholder
    assert text.count("%%") >= message.percents + sum(each.count("%%") for each in message.placeholders)


def _plain(piece: str | Code) -> str | Code:
    """A code as the generator makes it, which leaves out what pairs are called."""
    return piece if isinstance(piece, str) else Code(piece.text)


def _check_bytes(data: bytes, written: Written, fillings: Mapping[int, Filling]) -> None:
    """Outside of what had to change every byte is as it was; inside stands what was filled in."""
    found = written.matched(data, fillings)
    assert found is not None, "something moved that no filling touches, or a filling is not where it belongs"
    for group, said in found.groupdict().items():
        number = int(group[1:])
        if said is not None:
            assert read_string(written.name, said) == text_of(fillings[number].content)


def _check_again(again: Catalogue, written: Written, fillings: Mapping[int, Filling]) -> None:
    """Read once more, the segments have their fillings, and exactly those that must be are fuzzy."""
    is_xml = written.name not in ("a.po", "a.jsonl")
    assert len(again.segments) == len(written.known)
    for number, (segment, known) in enumerate(zip(again.segments, written.known, strict=True)):
        assert (segment.text, segment.context) == (known.message.text, known.context)
        target = text_of(fillings[number].content) if number in fillings else known.target
        assert segment.target == (FORBIDDEN.sub("", target) if is_xml else target)
        if number in fillings and not known.message.codes:  # what codes part is one text without them
            found, wanted = (
                count_placeholders(text, is_format=known.is_format) for text in (segment.target, known.message.text)
            )
            assert found == wanted
        is_empty = not segment.target.strip() if is_xml else not segment.target
        is_fuzzy = _is_fuzzy_after(number, written, fillings)
        assert segment.state == ("untranslated" if is_empty else "fuzzy" if is_fuzzy else "translated")


def _is_fuzzy_after(number: int, written: Written, fillings: Mapping[int, Filling]) -> bool:
    """A mark goes when all of a message is translated without doubt, and comes with one doubt about any of it."""
    known = written.known[number]
    group = [at for at, each in enumerate(written.known) if at == number or (each.group == known.group != -1)]
    made = [fillings[at] for at in group if at in fillings]
    return any(filling.is_fuzzy for filling in made) or (known.is_marked and len(made) < len(group))


def _one(*pieces: str) -> tuple[str, list[Unit], int]:
    """A PO file of one message."""
    return "a.po", [Unit(Message(("Save " + " now ".join(pieces) + " here",), pieces), None, "", 0, 0)], 0


@given(_files, _engines, st.booleans(), st.booleans())
@example(drawn=_one("100%%", "%*1$d"), engine=lambda _: "x", aligned=True, fuzzy=False)
@example(drawn=_one("%d%%", "{0}{1}"), engine=shouting, aligned=True, fuzzy=False)
@settings(max_examples=60)
def test_no_placeholder_is_lost_and_no_other_byte_moves(
    tmp_path_factory: pytest.TempPathFactory,
    drawn: tuple[str, list[Unit], int],
    engine: Engine,
    aligned: bool,
    fuzzy: bool,
) -> None:
    _check(tmp_path_factory.mktemp("generated"), drawn, engine, aligned=aligned, fuzzy=fuzzy)


@pytest.mark.slow
@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_lost_in_a_thousand_catalogues_of_each_format(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    writer = st.tuples(st.just(name), WRITERS[name][1], st.integers(0, 11))

    @given(writer, _engines, st.booleans(), st.booleans())
    @settings(max_examples=1_000, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no fault
    def check(drawn: tuple[str, list[Unit], int], engine: Engine, aligned: bool, fuzzy: bool) -> None:
        _check(tmp_path_factory.mktemp("generated"), drawn, engine, aligned=aligned, fuzzy=fuzzy)

    check()


@pytest.mark.parametrize("name", WRITERS)
def test_the_check_of_bytes_sees_one_that_moved(tmp_path: Path, name: str) -> None:
    """What the laws above rely on: each byte outside of the holes counts, and each inside, too."""
    written = WRITERS[name][0]([Unit(Message(("Save %s",), ("%s",)), None, "", 0, 0)], 0)
    path = tmp_path / name
    path.write_bytes(written.text.encode())
    catalogue = open_catalogue(path, languages=("en", "de"))
    fillings = fill(catalogue, shouting, aligned=True)
    data = catalogue.filled(fillings, target="de")
    _check_bytes(data, written, fillings)
    for at in range(len(data)):
        for changed in (data[:at] + data[at + 1 :], data[:at] + b"~" + data[at + 1 :]):
            with pytest.raises((AssertionError, UnicodeDecodeError)):
                _check_bytes(changed, written, fillings)
    with pytest.raises(AssertionError, match="%s"):
        _check_filling(Filling(("SAVE %S",)), written, 0)


@given(messages())
@settings(max_examples=50)
def test_an_engine_of_good_will_fills_every_message(message: Message) -> None:
    """So that the laws above are not kept by filling nothing."""
    source = message.text
    hypothesis.assume(
        "%" not in source.replace("%s", "").replace("%d", "") and "\\" not in source and "--" not in source
    )
    made = fill(_One(source), lambda line: line, aligned=True)
    assert set(made) == {0}


class _One:
    """A catalogue of one message."""

    languages = (None, None)

    def __init__(self, source: str) -> None:
        self.segments = [Segment((source,), "", "untranslated", 1)]

    def filled(self, fillings: object, *, target: str | None = None) -> bytes:
        raise AssertionError
