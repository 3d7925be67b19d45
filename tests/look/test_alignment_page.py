"""The page of word links: all pairs are on it, nothing comes from elsewhere, and links are compared with gold ones."""

import json
import re
from html.parser import HTMLParser

import numpy as np

from seqloom.apps.align import LinkedPair
from seqloom.look.alignment import alignment_page, kinds_of_links
from seqloom.text.formats.pharaoh import GoldLinks

PAIRS = [
    LinkedPair(["der", "<b>hund</b>", "￭."], ["the", "dog", "￭."], [(0, 0), (1, 1)], np.eye(3) * 0.75),
    LinkedPair([], ["alone"], [], np.zeros((0, 1))),
    LinkedPair(["我", "爱", "你"], ["i", "love", "you"], [(0, 0), (2, 1)], np.full((3, 3), 0.001)),
]
GOLD = [
    GoldLinks(frozenset({(0, 0), (2, 2)}), frozenset({(0, 0), (2, 2), (1, 1)})),
    GoldLinks(frozenset(), frozenset()),
    GoldLinks(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1)})),
]


class Reader(HTMLParser):
    """What a page shows, and whether its elements are closed in their order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.classes: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes.append(dict(attrs).get("class") or "")
        if tag not in ("meta", "path", "rect", "input"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.classes.append(dict(attrs).get("class") or "")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "text":
            self.words.append(data)


def test_every_pair_is_on_the_page_and_nothing_comes_from_elsewhere() -> None:
    page = alignment_page(PAIRS, GOLD, name="a.de & <a.en>", facts="AER 0.5")
    found = Reader(page)
    assert found.open == []
    assert found.words == ["der", "<b>hund</b>", ".", "the", "dog", ".", "alone", "我", "爱", "你", "i", "love", "you"]
    assert "<b>hund</b>" not in page
    assert "a.de &amp; &lt;a.en&gt;" in page
    assert not re.search(r"https?:|//\w|\burl\(|@import|\bsrc=|<link", page.replace("</", ""))
    data = json.loads(re.findall(r'id="data">(.*?)</script>', page)[0])
    assert data[0]["likely"] == [[0, 0, 750], [1, 1, 750], [2, 2, 750]]
    assert data[2]["likely"] == []
    assert [kind for *_, kind in data[0]["links"]] == ["sure", "possible", "missed"]
    drawn = [each for each in found.classes if each.startswith("link ")]
    assert sorted(drawn[4:]) == sorted(f"link {kind}" for pair in data for *_, kind in pair["links"])


def test_links_are_compared_with_gold_ones_where_there_are_any() -> None:
    assert kinds_of_links([(0, 0), (2, 1)], None) == {(0, 0): "found", (2, 1): "found"}
    assert kinds_of_links([(0, 0), (2, 1)], GOLD[2]) == {(0, 0): "sure", (2, 1): "wrong", (1, 1): "missed"}
    assert "only pairs with errors" not in alignment_page(PAIRS, name="x")
    assert "only pairs with errors" in alignment_page(PAIRS, GOLD, name="x")
