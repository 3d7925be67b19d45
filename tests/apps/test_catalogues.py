"""Catalogues and placeholders through a real model, however little it has learnt."""

import re
from collections import Counter
from random import Random

import pytest

from seqloom.apps.catalogues import CatalogueWork, fill_catalogue, finish_work, plan_work
from seqloom.apps.request import Request
from seqloom.apps.translator import Translator
from seqloom.runs.train import Trained
from seqloom.text.formats.html import html_catalogue, xml_catalogue
from seqloom.text.formats.readers import parse_catalogue

WORDS = ("The cat sleeps", "we see", "a red house", "Good morning", "two", "on the table", "and", "I", "not today,")
SINGLE = ("[X{}X]", '<x id="{}"></x>', "{{{}}}", "%s", "%{}$d", "<br/>", "&amp;", "${{name{}}}")
PLACEHOLDER = re.compile(r'\[X\d+X\]|<x id="\d+"></x>|\$?\{\w+\}|%(?:\d+\$)?[sd]|<br/>|&amp;|</?[bi]>')


def placeholder_text(random: Random) -> str:
    """Words and placeholders, some inside pairs that are inside each other."""
    pieces: list[str] = []
    opened: list[str] = []
    for number in range(random.randint(1, 7)):
        kind = random.random()
        if kind < 0.45:
            pieces.append(random.choice(WORDS))
        elif kind < 0.8:
            pieces.append(random.choice(SINGLE).format(number))
        elif opened and kind < 0.9:
            pieces.append(f"</{opened.pop()}>")
        elif name := next((each for each in "bi" if each not in opened), None):
            opened.append(name)
            pieces.append(f"<{name}>")
        is_printf = bool(pieces) and pieces[-1].startswith("%")  # "%sure" is a word
        pieces.append(random.choice((" " if is_printf else "", " ", " ", ", ", ". ")))
    return "".join([*pieces, *(f"</{name}>" for name in reversed(opened))])


def is_nested(text: str) -> bool:
    opened: list[str] = []
    for slash, name in re.findall("<(/?)([bi])>", text):
        if not slash:
            opened.append(name)
        elif not opened or opened.pop() != name:
            return False
    return not opened


@pytest.fixture(scope="module")
def translator(tiny: Trained) -> Translator:
    return Translator.load(tiny.run / "model")


@pytest.mark.parametrize(("texts", "seed"), [(200, 1), pytest.param(1000, 2, marks=pytest.mark.slow)])
def test_every_placeholder_comes_back_exactly_once(translator: Translator, texts: int, seed: int) -> None:
    random = Random(seed)
    lines = [placeholder_text(random) for _ in range(texts)]
    for line, (best, *_) in zip(lines, translator.search(lines, tags=True), strict=True):
        assert Counter(PLACEHOLDER.findall(line)) == Counter(PLACEHOLDER.findall(best.text)), (line, best.text)
        assert is_nested(best.text), (line, best.text)
    for catalogues in (
        [html_catalogue(line) for line in lines[::5]],
        [xml_catalogue(line, ignore_tags=["x"]) for line in lines[::5]],
    ):
        works = [plan_work(catalogue) for catalogue in catalogues]
        for line, work, found in zip(lines[::5], works, _filled(translator, works), strict=True):
            assert len(work.carriers) == len(work.catalogue.segments)
            counts = (Counter(PLACEHOLDER.findall(each.replace("&amp;", "and"))) for each in (line, found))
            assert next(counts) == next(counts), (line, found)  # where &amp; is a word like others
            assert is_nested(found), (line, found)


def _filled(translator: Translator, works: list[CatalogueWork]) -> list[str]:
    """What a server does: the lines of all requests together, then each its own."""
    results = iter(translator.run([line for work in works for line in work.lines], Request(align=True)))
    normalise = translator.tokenizers.source.normaliser
    return [
        finish_work(work, [next(results)[0] for _ in work.lines], normalise=normalise).data.decode() for work in works
    ]


def test_filling_is_planning_translating_and_finishing(translator: Translator) -> None:
    data = b'msgid ""\nmsgstr ""\n\nmsgid "The cat sleeps %s on [X1X]."\nmsgstr ""\n\nmsgid "I"\nmsgstr "Ich"\n'
    work = plan_work(parse_catalogue("a.po", data))
    assert work.lines == ("The cat sleeps on.",)
    request = Request(align=True)
    at_once = fill_catalogue(work, translator, request)
    found = [best[0] for best in translator.run(work.lines, request)]
    apart = finish_work(work, found, normalise=translator.tokenizers.source.normaliser)
    assert at_once.data == apart.data != data
    assert (apart.wanted, len(apart.fillings), apart.rest.translated) == (1, 1, 1)
    assert b"%s" in apart.data.partition(b"[X1X].")[2]
