"""The files of the page: what is vendored is what its makers published, and nothing in them writes markup."""

import gzip
import hashlib
import json
import re
from importlib.resources import files
from pathlib import Path

import pytest
from starlette.routing import Router
from starlette.testclient import TestClient

from seqloom.serve.pages import page_files, page_policy, page_routes

PAGE = Path(str(files("seqloom.serve") / "page"))
OURS = sorted([*PAGE.glob("*.js"), Path(str(files("seqloom.drawing") / "templates" / "beam_tree.js"))])

RAW = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|DOMParser|srcdoc|"
    r"dangerouslySetInnerHTML|setHTML|\beval\b|new Function|javascript:|style=\"|\bon[a-z]+=\"|https?://(?!www\.w3\.org/)"
)


def test_vendored_files_are_those_of_the_record() -> None:
    record = json.loads((PAGE / "vendor" / "vendor.json").read_text(encoding="utf-8"))
    named = {}
    for each in record:
        assert each["version"] in each["source"]
        assert each["licence"] in ("MIT", "Apache-2.0")
        named |= {name: file["sha256"] for name, file in each["files"].items()}
    found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (PAGE / "vendor").iterdir()}
    del found["vendor.json"]
    assert found == named


def test_the_page_is_less_than_200_kb() -> None:
    sent = {name: len(file.packed) for name, file in page_files().items() if not name.endswith(("LICENSE", ".json"))}
    assert sum(sent.values()) < 200_000


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.name)
def test_no_script_of_ours_writes_markup(file: Path) -> None:
    found = [match[0] for match in RAW.finditer(file.read_text(encoding="utf-8"))]
    assert found == []


@pytest.mark.parametrize("line", ["a.innerHTML = b", 'html`<p style="x">`', "eval(x)", "fetch('https://a.b')"])
def test_the_scan_finds_what_it_looks_for(line: str) -> None:
    assert RAW.search(line)


def words() -> dict[str, dict[str, str]]:
    text = (PAGE / "words.js").read_text(encoding="utf-8")
    parts = re.split(r"^  (en|zh): \{$", text, flags=re.MULTILINE)
    return {
        language: dict(re.findall(r'^    (\w+):\s*"(.*)",$', part, flags=re.MULTILINE))
        for language, part in zip(parts[1::2], parts[2::2], strict=True)
    }


def test_both_languages_have_the_same_keys_and_places() -> None:
    english, chinese = words()["en"], words()["zh"]
    assert len(english) > 200
    assert list(english) == list(chinese)
    for key, text in english.items():
        places = re.findall(r"\{\w+\}", text)
        assert sorted(places) == sorted(re.findall(r"\{\w+\}", chinese[key])), key


def test_every_text_that_is_asked_for_is_there_and_the_other_way_round() -> None:
    sources = "".join(file.read_text(encoding="utf-8") for file in OURS if file.name != "words.js")
    english = words()["en"]
    asked = set(re.findall(r'\bt\(\s*"(\w+)"', sources))
    assert asked <= set(english)
    quoted = set(re.findall(r'"(\w+)"', sources))
    prefixes = ("tree_", *set(re.findall(r"\bt\(`(\w+)\$\{", sources)))
    unused = [key for key in english if key not in quoted and not key.startswith(prefixes)]
    assert unused == []
    tree = Path(str(files("seqloom.drawing") / "templates" / "beam_tree.js")).read_text(encoding="utf-8")
    own = re.findall(r"^  (\w+):", tree.partition("ENGLISH = {")[2].partition("\n};")[0], flags=re.MULTILINE)
    assert [f"tree_{key}" for key in own] == [key for key in english if key.startswith("tree_")]


def test_files_are_served_by_name_only_with_a_strict_policy() -> None:
    client = TestClient(Router(page_routes(), redirect_slashes=False))
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert policy == page_policy(page.content)
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    assert not re.search(r"<style|<script(?! type=\"importmap\"| type=\"module\" src=)|\son\w+=|\sstyle=", page.text)
    script = client.get("/page/main.js")
    assert script.headers["content-type"] == "text/javascript; charset=utf-8"
    assert script.headers["cache-control"] == "no-cache"
    assert gzip.decompress(gzip.compress(script.content)) == (PAGE / "main.js").read_bytes()
    again = client.get("/page/main.js", headers={"if-none-match": script.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert len(client.get("/page/main.js", headers={"range": "bytes=0-1"}).content) == len(script.content)
    for name in ("../pages.py", "..%2fpages.py", "index.html", "vendor", "vendor/", "%00", "main.js/"):
        assert client.get(f"/page/{name}").status_code == 404
