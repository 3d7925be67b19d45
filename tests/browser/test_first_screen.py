"""The first screen before a real model: what it shows is what the server says, and stays where it was."""

from urllib.parse import quote

import pytest

from browser.conftest import Watched

pytestmark = pytest.mark.browser

SOURCE = "The small dog sees a tree."


def look(page: Watched, **changes: object) -> dict[str, object]:
    body = {"model": "en-de", "source": SOURCE, "prefix": None, "off": [], "search": {}, "terms": []} | changes
    return page.api("look", body)


def written(page: Watched) -> str:
    page.page.locator("[data-translation] .words").wait_for()
    page.until("document.querySelector('.box [aria-busy]').ariaBusy === 'false'")
    return page.page.locator("[data-translation]").inner_text()


def test_writing_translates_and_a_reload_brings_everything_back(real_page: Watched) -> None:
    page = real_page.page
    real_page.open()
    page.locator(".examples button").nth(2).wait_for()  # three sentences of the dev set to try
    page.keyboard.press("/")
    page.keyboard.type(SOURCE, delay=5)
    assert written(real_page) == look(real_page)["translation"]
    asked = page.evaluate(
        "performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/api/translate')).length"
    )
    assert asked == 1  # 26 keys, one pause
    page.get_by_role("tab", name="Search").click()
    page.locator(".picker-model select").select_option("gru")
    page.locator(".beam-tree").first.wait_for()
    shown = written(real_page)
    page.reload()
    assert written(real_page) == shown
    assert page.locator("#source").input_value() == SOURCE
    assert page.locator(".picker-model select").input_value() == "gru"
    assert page.get_by_role("tab", name="Search").get_attribute("aria-selected") == "true"
    assert quote(SOURCE[:9], safe="").replace("%20", "+") in page.url.partition("#")[2]
    assert "#" not in page.evaluate("performance.getEntriesByType('resource').map((e) => e.name).join(' ')")


def test_a_rival_keeps_what_is_before_it_and_searches_the_rest(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(text=SOURCE)
    before = written(real_page)
    page.locator(".word").nth(0).click()
    page.locator(".rival").first.wait_for()
    assert page.locator(".rival").count() == 5
    page.locator(".rival").nth(2).click()
    page.locator(".chip").wait_for()
    chosen = look(real_page)["target"]["pieces"][0]["rivals"][2]["id"]  # type: ignore[index]
    assert real_page.state()["prefix"] == f"[{chosen}]"
    real_page.until("(text) => document.querySelector('[data-translation]').textContent !== text", before)
    assert written(real_page) == look(real_page, prefix=[chosen])["translation"]
    page.get_by_role("button", name="Release the fixed beginning").click()
    real_page.until("(text) => document.querySelector('[data-translation]').textContent === text", before)


def test_pointing_at_a_word_tints_what_it_looked_at(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(text=SOURCE)
    written(real_page)
    attention = look(real_page)["words"]["attention"]  # type: ignore[index]
    page.locator(".word").first.hover()
    page.wait_for_timeout(300)
    tints = page.locator(".mirror mark").evaluate_all(
        "(all) => all.map((each) => getComputedStyle(each).backgroundColor)"
    )
    row = attention[0][: len(tints)]
    assert [text not in ("rgba(0, 0, 0, 0)", "transparent") for text in tints] == [share > 0.02 for share in row]
    box = page.locator(".mirror mark").nth(1).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    real_page.until("[...document.querySelectorAll('.word')].some((each) => each.style.backgroundColor)")


def test_attention_is_that_of_the_server_and_rows_of_words_sum_to_one(real_page: Watched) -> None:
    import json

    page = real_page.page
    real_page.open(text=SOURCE)
    page.locator(".heads .head").first.wait_for()
    found = look(real_page)
    shown = json.loads(real_page.saved("JSON"))
    assert shown["matrix"] == found["words"]["attention"]  # type: ignore[index]
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in shown["matrix"])
    page.get_by_role("button", name="Pieces", exact=True).click()
    assert json.loads(real_page.saved("JSON"))["matrix"] == found["attention"]
    page.locator(".head").nth(3).click()  # layer 2, head 2
    target = [piece["id"] for piece in found["target"]["pieces"]]  # type: ignore[index]
    heads = real_page.api("attention", {"model": "en-de", "source": SOURCE, "target": target})
    page.get_by_text("Attention of layer 2, head 2").wait_for()
    assert json.loads(real_page.saved("JSON"))["matrix"] == heads["weights"][1][1]
    page.get_by_role("button", name="Words", exact=True).click()
    merged = json.loads(real_page.saved("JSON"))["matrix"]
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in merged)
    page.get_by_role("button", name="Switch 2.2 off").click()
    page.get_by_role("button", name="Switch all on").wait_for()
    assert written(real_page) == look(real_page, off=[[1, 1]])["translation"]


def test_leaves_are_the_n_best_and_a_pruned_node_is_forced(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(text=SOURCE, lens="search")
    page.locator("table.figures tbody tr").first.wait_for()
    found = look(real_page)
    tree = found["tree"]
    leaves = page.locator("table.figures tbody .link").all_inner_texts()
    assert leaves[: len(found["hypotheses"])] == [each["text"] or "(empty)" for each in found["hypotheses"]]  # type: ignore[index,arg-type,attr-defined]
    for leaf in tree["leaves"]:  # type: ignore[index]
        assert sum(leaf["terms"].values()) == pytest.approx(leaf["score"], abs=1e-9)
    node = next(each for each in tree["nodes"] if each["fate"] == "pruned" and each["step"] == 2)  # type: ignore[index]
    by_number = {each["number"]: each for each in tree["nodes"]}  # type: ignore[index]
    path = [by_number[node["parent"]]["symbol"], node["symbol"]]
    page.locator(f'[data-number="{node["number"]}"]').click()
    page.locator(".chip").wait_for()
    assert real_page.state()["prefix"] == f"[{path[0]},{path[1]}]"
    assert written(real_page) == look(real_page, prefix=path)["translation"]


def test_a_model_beside_itself_has_equal_columns(real_page: Watched) -> None:
    import json

    page = real_page.page
    real_page.open(text=SOURCE, compare=["en-de"], lens="attention")
    page.locator(".compared").get_by_text("The same translation.").wait_for()
    page.locator(".column").nth(1).locator(".heads").wait_for()
    first, second = (json.loads(real_page.saved("JSON", figure=at)) for at in (0, 1))
    assert first == second


def test_a_model_without_heads_or_a_lens_says_why(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(text=SOURCE, model="gru", lens="attention")
    page.locator(".heat").first.wait_for()
    assert page.locator(".heads").count() == 0
    for lens in ("reasons", "reach", "pieces"):
        page.locator(f"#tab-{lens}").click()
        page.locator(".lens .figure").first.wait_for()


def test_dev_lines_come_worst_first_and_open_the_first_screen(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(view="sentences", other="gru")
    page.get_by_role("button", name="Translate lines").click()
    page.locator("table.lines tbody tr").first.wait_for()
    shown = [float(text) for text in page.locator("table.lines tbody tr td:first-child").all_inner_texts()]
    assert shown == sorted(shown)
    assert len(shown) == 20
    page.locator(".contest").wait_for()
    first = page.locator("table.lines .link").nth(1)
    source = first.inner_text()
    first.click()
    assert page.locator("#source").input_value() == source
    written(real_page)


def test_pairs_without_a_tab_and_too_many_are_refused_with_the_number(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(view="sentences")
    page.get_by_role("button", name="Own pairs").click()
    page.locator("#pairs").fill("A tree.\tEin Baum.\nA dog.")
    page.get_by_role("alert").get_by_text("Line 2 has no tab").wait_for()
    page.locator("#pairs").fill("\n".join("a\tb" for _ in range(501)))
    page.get_by_role("alert").get_by_text("line 501").wait_for()
    assert page.get_by_role("button", name="Translate lines").is_disabled()
    page.locator("#pairs").fill("A tree.\tEin Baum.")
    page.get_by_role("button", name="Translate lines").click()
    page.locator("table.lines tbody tr").first.wait_for()


def test_a_token_is_appended_and_the_temperature_redraws(real_page: Watched) -> None:
    page = real_page.page
    real_page.open(view="write", prompt="The small")
    page.locator(".bars li").nth(9).wait_for()
    page.get_by_text("Perplexity of what stands there").wait_for()
    body = {"model": "lm", "prompt": "The small", "temperature": 1, "top_p": 1}
    tokens = real_page.api("next", body)["tokens"]
    assert page.locator(".bar-text").all_inner_texts()[0].strip() == tokens[0]["shown"].replace("▁", "·").strip()
    page.locator(".bars button").first.click()
    real_page.until("(text) => document.querySelector('#source').value === text", "The small" + tokens[0]["text"])
