"""The page of a beam search: one file that needs nothing else, and escapes everything it shows."""

import json
import re
from html.parser import HTMLParser

import pytest

from look.beams import long_search, searched, tree_of
from seqloom.look.beam_page import DIGITS, beam_page
from seqloom.look.beam_tree import BeamTree, lay_out

VOID = {"meta", "input", "br"}


class Page(HTMLParser):
    """A page, read: that its elements close in the order in which they open, and what they hold."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.rows: list[list[str]] = []
        self.scripts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")
        elif tag == "script":
            self.scripts.append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif {"td", "th"} & set(self.open):
            self.rows[-1][-1] += data


def hostile() -> BeamTree:
    trace, found = searched(seed=2, beam=3, nbest=3)
    return lay_out(
        trace,
        found,
        piece=lambda symbol: f"</script><script>alert({symbol})</script>"[-30:] + "{{DATA}}",
        text=lambda ids: f"<img src=x onerror=alert({len(ids)})> {{{{TREE}}}}",
    )


def test_the_page_is_well_formed_and_its_data_have_every_node_once() -> None:
    tree = long_search()
    page = Page(beam_page(tree, source="a sentence", settings="beam 4"))
    data = json.loads(page.scripts[0])
    assert [node["number"] for node in data["nodes"]] == [place.node.number for place in tree.places]
    assert data["steps"] == tree.steps
    ids = [found["id"] for _, found in page.elements if "id" in found]
    assert len(ids) == len(set(ids))
    wanted = re.findall(r'getElementById\("(\w+)"\)', page.scripts[1])
    assert wanted
    assert set(wanted) <= set(ids)


def test_the_page_names_no_outside_address() -> None:
    page = beam_page(long_search(), source="a sentence")
    page = page.replace("http://www.w3.org/2000/svg", "")  # the name of SVG
    assert not re.search(r"https?:|//\w|\burl\(|@import|\bsrc=|<link", page)
    assert "default-src 'none'" in page


def test_what_a_model_says_is_text_and_never_markup() -> None:
    page = Page(beam_page(hostile(), source="<script>alert(1)</script> {{SCRIPT}}", settings="<b>"))
    assert [tag for tag, _ in page.elements].count("script") == 2  # the data and our own
    assert not any(tag == "img" for tag, _ in page.elements)
    assert not any(name.startswith("on") for _, found in page.elements for name in found)
    assert "<img src=x onerror=alert(" in page.rows[1][1]


def test_the_terms_of_the_table_add_up_to_its_scores() -> None:
    trace, found = searched(seed=3, beam=4, nbest=3, coverage=0.4, reward=0.1, end_normalisation=1.1)
    page = Page(beam_page(tree_of(trace, found), source="x"))
    head, *rows = page.rows
    assert head == ["", "hypothesis", "symbols", "score", "log_prob", "end", "length", "coverage", "reward", ""]
    assert [row[1] for row in rows[: len(found)]] == [" ".join(map(str, each.symbols)) for each in found]
    for row in rows:
        score, *terms = (float(figure.replace("−", "-")) for figure in row[3:-1])
        assert sum(terms) == pytest.approx(score, abs=6 * 0.5 * 10**-DIGITS)
    assert [row[-1].startswith("returned") for row in rows[:4]] == [True, True, True, False][: len(rows)]


def test_the_data_of_the_script_are_those_of_the_search() -> None:
    tree = hostile()
    values = {node["number"]: node for node in json.loads(Page(beam_page(tree, source="x")).scripts[0])["nodes"]}
    for place in tree.places:
        shown = values[place.node.number]
        assert (shown["shown"], shown["parent"], shown["rank"]) == (place.symbol, place.node.parent, place.rank)
        assert sum(shown["terms"].values()) == pytest.approx(shown["score"], abs=1e-12)
        assert shown["parent"] is None or values[shown["parent"]]["step"] == shown["step"] - 1
