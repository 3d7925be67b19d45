"""Pages and pictures show what models and files say; they never take it for markup, formulas or script."""

from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from defusedxml.ElementTree import parse

from look.beams import searched
from seqloom.apps.contextual import draw_similarities
from seqloom.drawing.curves import plot_attention
from seqloom.look.beam_page import beam_page, draw_beam
from seqloom.look.beam_tree import lay_out
from seqloom.look.embedding_map import EmbeddingMap, draw_map, map_page

PAYLOADS = [
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    "</title></style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x="',
    "' onfocus='alert(1)' autofocus='",
    "<!--",
    "--><svg onload=alert(1)>",
    "]]><script>alert(1)</script>",
    "&lt;script&gt;",
    "&#60;script&#62;",
    "{{DATA}}{{SCRIPT}}{{TITLE}}",
    "javascript:alert(1)",
    "</textarea><iframe srcdoc='<script>alert(1)</script>'>",
    "$\\frac{$",
    "$\\mathrm{",
    "\x00\x1b[2J\u202e\ud800"[:-1],
]


DRAWN = ["]]></script><b x='", "--><svg onload=1>", "$\\frac{$ \x00\x1b\u202e"]
"""The same in few words, because drawing takes long."""


class Outline(HTMLParser):
    """The elements of a page and the names of their attributes, without what they hold."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, tuple[str, ...]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, tuple(name for name, _ in attrs)))


def page_of_beam(text: str) -> str:
    trace, found = searched(seed=2, beam=3, nbest=3)
    tree = lay_out(trace, found, piece=lambda _: text, text=lambda _: text)
    return beam_page(tree, source=text, settings=text)


def map_of(text: str) -> EmbeddingMap:
    points = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 0.5]])
    return EmbeddingMap((text, f"{text}b", "c"), points, "pca", neighbours=((text,), (text,), ()))


def page_of_map(text: str) -> str:
    return map_page(map_of(text), title=text)


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("page", [page_of_beam, page_of_map])
def test_a_page_has_the_same_elements_whatever_it_shows(page: Callable[[str], str], payload: str) -> None:
    plain, hostile = Outline(page("word")).found, Outline(page(payload)).found
    assert hostile == plain
    assert "Content-Security-Policy" in page(payload)


def test_an_outline_changes_where_markup_gets_through() -> None:
    assert Outline(page_of_map("word").replace("word", PAYLOADS[2])).found != Outline(page_of_map("word")).found


@pytest.mark.filterwarnings("ignore:constrained_layout not applied")  # such names leave no room
@pytest.mark.parametrize("payload", DRAWN)
def test_a_picture_shows_names_as_they_are_written(tmp_path: Path, payload: str) -> None:
    picture = tmp_path / "picture.svg"
    plot_attention(np.eye(2), picture, source=[payload, "b"], target=["a", payload], title=payload)
    _require_harmless(picture)
    draw_map(map_of(payload), title=payload).savefig(picture)
    _require_harmless(picture)
    draw_similarities(np.ones((1, 2, 2)), labels=[payload, "b"], names=["layer"]).savefig(picture)
    _require_harmless(picture)
    trace, found = searched(seed=2, beam=2, nbest=2)
    tree = lay_out(trace, found, piece=lambda _: payload, text=lambda _: payload)
    draw_beam(tree, source=payload, target=payload).savefig(picture)
    _require_harmless(picture)


def _require_harmless(picture: Path) -> None:
    """A drawing that every reader of XML takes, without script, links or handlers."""
    for element in parse(picture).iter():
        tag = str(element.tag).rpartition("}")[2]
        assert tag not in {"script", "foreignObject", "iframe", "a"}
        assert not any(name.lower().startswith("on") for name in element.attrib)
