"""Where sentences end, and where they only seem to."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

import nasty
from seqloom.text.sentences import clause_borders, pieces, sentence_borders


def split_sentences(text: str) -> list[str]:
    return list(pieces(text, sentence_borders(text)))


@pytest.mark.parametrize(
    "sentences",
    [
        ["It rains.", "We stay at home!", "Do you?", "Well…", "Then come."],
        ["Dr. Smith met Mrs. Jones at St. Mary's.", "They left."],
        ["J. S. Bach wrote No. 5 in the U.S. Army style.", "He knew it."],
        ["It costs 3.50 euros.", "See www.example.org for more."],
        ["Er kam am 3. Mai, z.B. mit Dr. Weiß.", "Sie nicht."],
        ["In 1990 it ended in 1990.", "Then came peace."],
        ['He said: "Stop!"', "(It was late.)", "She went."],
        ['"Stop!" he said.', "“Why?” she asked."],
        ["Quoi ?", "Bien sûr !", "« Non. »", "M. Dupont part."],
        ["¿Qué pasa?", "¡Nada!", "El Sr. López duerme."],
        ["Well... perhaps not.", "Yes."],
        ["Really?!", "Yes!!!", "No."],
        ["Он живёт на ул. Ленина.", "Она — нет."],
        ["यह घर है।", "वह पेड़ है।"],
        ["هل أنت هنا؟", "نعم."],
        ["یہ گھر ہے۔", "وہ نہیں ہے۔"],
        ["Սա տուն է։", "Այո։"],
    ],
)
def test_sentences_come_back_from_their_text(sentences: list[str]) -> None:
    assert split_sentences(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [["你好。", "你好吗？", "好！"], ["「行く。」", "彼は言った。"], ["今日は3.5度です。", "寒い！？", "はい。"]],
)
def test_scripts_without_spaces_need_none(sentences: list[str]) -> None:
    assert split_sentences("".join(sentences)) == sentences


@pytest.mark.parametrize("text", ["", "  ", "no end", "one.", "3.5", "a.b.c", "...", "。", "e.g. this", "I. Newton"])
def test_what_is_one_sentence_stays_one(text: str) -> None:
    assert split_sentences(text) == ([text] if text.strip() else [])


@given(st.text(alphabet="aB1 .!?…。」\"')(,Dr\u0301é", max_size=60))
def test_nothing_but_spaces_is_lost_and_a_sentence_is_not_split_again(text: str) -> None:
    found = split_sentences(text)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(split_sentences(sentence) == [sentence] for sentence in found)


@given(nasty.texts())
def test_any_text_is_taken(text: str) -> None:
    assert "".join("".join(split_sentences(text)).split()) == "".join(text.split())


def test_clauses_end_at_their_marks() -> None:
    text = "In 1,000 cases, he said; she - who knew: nothing"
    assert list(pieces(text, clause_borders(text))) == ["In 1,000 cases,", "he said;", "she - who knew:", "nothing"]
    text = "他来了，她走了、天黑了"
    assert list(pieces(text, clause_borders(text))) == ["他来了，", "她走了、", "天黑了"]
