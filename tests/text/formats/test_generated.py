"""Generated catalogues: whatever is in them and whatever an engine says, no placeholder is lost and no byte moves."""

from pathlib import Path
from xml.sax.saxutils import escape

import hypothesis
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.text.formats.carrying import has_all_of
from seqloom.text.formats.catalogues import open_catalogue
from seqloom.text.formats.po_text import write_strings
from seqloom.text.formats.segments import Segment, text_of
from text.formats.samples import Engine, fill, inventing, reversed_words, shouting

WORDS = ["Save", "the", "file", "now!", "Größe,", "(old)", "日本語", "100%", "don't", "a\tb", "№", "x_y", "…"]
PLACEHOLDERS = [
    *("%s", "%d", "%1$s", "%(name)s", "%-5.2f", "%%", "{0}", "{name}", "{{x}}", "${y}", "%1", "$HOME"),
    *("<b>", "</b>", "<br/>", '<a href="%s">', "</a>", "&amp;", "&nbsp;", "\\n", "https://a.b/%s", "--help", "\n"),
]
INLINE = ['<x id="{n}"/>', '<ph id="{n}">&lt;i></ph>', '<g id="{n}">', '<bpt id="{n}">a</bpt>']
CLOSING = {INLINE[2]: "</g>", INLINE[3]: '<ept id="{n}">b</ept>'}

_pieces = st.lists(st.one_of(st.sampled_from(WORDS), st.sampled_from(PLACEHOLDERS)), min_size=1, max_size=9)
_spaces = st.sampled_from([" ", " ", " ", "", "  "])


@st.composite
def messages(draw: st.DrawFn) -> str:
    """Text of a program, with placeholders among its words."""
    return "".join(piece + draw(_spaces) for piece in draw(_pieces)).strip(" ") or "x"


@st.composite
def inline_messages(draw: st.DrawFn) -> str:
    """The same as XML, with codes among the words and around them."""
    parts, number = [], 0
    for piece in draw(_pieces):
        text = escape(piece)
        if draw(st.booleans()):
            code, number = draw(st.sampled_from(INLINE)), number + 1
            text = f"{code}{text}{CLOSING.get(code, '')}".replace("{n}", str(number))
        parts.append(text + draw(_spaces))
    return "".join(parts)


def _po(sources: list[str]) -> str:
    head = (
        'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\nPlural-Forms: nplurals=2; plural=(n != 1);\\n"\n'
    )
    entries = []
    for number, source in enumerate(sources):
        forms = 'msgstr ""'
        if number % 3 == 2:
            forms = f'msgid_plural {write_strings(source + "s", column=13)}\nmsgstr[0] ""\nmsgstr[1] ""'
        written = write_strings(source, column=6)
        entries.append(f'#: a.c:{number}\nmsgctxt "{number}"\nmsgid {written}\n{forms}\n')
    return "\n".join([head, *entries])


def _xliff(sources: list[str]) -> str:
    units = (f'<trans-unit id="{n}">\n <source>{each}</source>\n</trans-unit>\n' for n, each in enumerate(sources))
    return f'<xliff version="1.2"><file source-language="en"><body>\n{"".join(units)}</body></file></xliff>\n'


def _tmx(sources: list[str]) -> str:
    units = (f'<tu>\n <tuv xml:lang="en"><seg>{each}</seg></tuv>\n</tu>\n' for each in sources)
    return f'<tmx version="1.4"><header srclang="en"/><body>\n{"".join(units)}</body></tmx>\n'


def _junk(text: str) -> Engine:
    return lambda line: f"{text} {line[::-1]} {text}"


_engines = st.one_of(
    st.sampled_from([reversed_words, shouting, inventing, lambda line: f"{line} {line}", lambda _: "x"]),
    st.text(max_size=12).map(_junk),
)
# Files are written in the test, not in the strategy: the type check of the package draws random numbers.
_kinds = st.one_of(
    st.tuples(st.just("a.po"), st.lists(messages(), min_size=1, max_size=4)),
    st.tuples(st.sampled_from(["a.xlf", "a.tmx"]), st.lists(inline_messages(), min_size=1, max_size=4)),
)
_WRITERS = {"a.po": _po, "a.xlf": _xliff, "a.tmx": _tmx}


def _check(folder: Path, name: str, sources: list[str], engine: Engine, *, aligned: bool) -> None:
    path, text = folder / name, _WRITERS[name](sources)
    path.write_bytes(text.encode())
    catalogue = open_catalogue(path, languages=("en", "de"))
    assert catalogue.filled({}) == text.encode()
    fillings = fill(catalogue, engine, aligned=aligned)
    for number, filling in fillings.items():
        assert has_all_of(catalogue.segments[number].source, filling.content)
    path.write_bytes(catalogue.filled(fillings, target="de"))
    again = open_catalogue(path, languages=("en", "de"))
    for number, (old, new) in enumerate(zip(catalogue.segments, again.segments, strict=True)):
        assert (new.source, new.context) == (old.source, old.context)
        filling = fillings.get(number)
        expected = old.target if filling is None else text_of(filling.content)
        assert _shown(new.target, name) == _shown(expected, name)
        assert new.state == _state(old, filling is not None and bool(new.target.strip()), new)
    # Without what was filled in, the file is as it was: reading it so gives the same lines in the same order.
    kept = iter(path.read_bytes().decode().split("\n"))
    assert all(any(line in other for other in kept) for line in _fixed_lines(text))


def _shown(target: str, name: str) -> str:
    """XML cannot write some characters, and line ends in it mean a space."""
    if name == "a.po":
        return target
    return " ".join("".join(each for each in target if each.isprintable() or each.isspace()).split())


def _state(old: Segment, is_filled: bool, new: Segment) -> str:
    return new.state if is_filled and new.state in ("fuzzy", "translated") else old.state


def _fixed_lines(text: str) -> list[str]:
    return [
        line
        for line in text.split("\n")
        if line.startswith(("#:", "msgctxt", "msgid", " <source", " <tuv", "<tu", "<trans"))
    ]


@given(_kinds, _engines, st.booleans())
@settings(max_examples=50)
def test_no_placeholder_is_lost(
    tmp_path_factory: pytest.TempPathFactory, kind: tuple[str, list[str]], engine: Engine, aligned: bool
) -> None:
    _check(tmp_path_factory.mktemp("generated"), *kind, engine, aligned=aligned)


@pytest.mark.slow
@given(_kinds, _engines, st.booleans())
@settings(max_examples=1_000)
def test_no_placeholder_is_lost_in_a_thousand_catalogues(
    tmp_path_factory: pytest.TempPathFactory, kind: tuple[str, list[str]], engine: Engine, aligned: bool
) -> None:
    _check(tmp_path_factory.mktemp("generated"), *kind, engine, aligned=aligned)


@given(messages())
@settings(max_examples=50)
def test_an_engine_of_good_will_fills_every_message(source: str) -> None:
    """So that the laws above are not kept by filling nothing."""
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
