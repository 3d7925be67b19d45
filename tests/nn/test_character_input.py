"""Words from their letters: the formula by hand, words never seen, and nothing that depends on padding."""

import pytest
import torch
from torch.nn import functional as F

from seqloom.core.errors import ConfigError
from seqloom.core.symbols import RESERVED
from seqloom.nn.embeddings import LETTERS, CharacterInput, spell, spell_vocabulary
from seqloom.nn.init import seeded

PIECES = (*RESERVED, "bear", "bears", "Bär", "熊", "<unk>", "a")


def reader(*, highways: int = 2, longest: int = 12) -> CharacterInput:
    with seeded(5):
        return CharacterInput(
            spell_vocabulary(PIECES, longest=longest),
            6,
            character_width=4,
            filter_widths=(1, 2, 3),
            filters=3,
            highways=highways,
            longest=longest,
        ).double()


def test_words_are_spelled_in_bytes_between_marks() -> None:
    letters = spell(["ab", "", "熊"], longest=10)
    assert letters.shape == (3, 5)
    assert letters[0].tolist() == [257, 98, 99, 258, 0]
    assert letters[1].tolist() == [257, 258, 0, 0, 0]
    assert letters[2].tolist() == [257, *(1 + byte for byte in "熊".encode()), 258]
    assert spell(["a" * 50], longest=7).tolist() == [[257, *[98] * 5, 258]]


def test_reserved_symbols_are_letters_that_no_word_has() -> None:
    letters = spell_vocabulary(PIECES, longest=12)
    assert letters[:4, 1].tolist() == [259, 260, 261, 262]
    assert int(letters.max()) < LETTERS
    assert letters[8].tolist()[1:6] == [1 + byte for byte in b"<unk>"]
    with pytest.raises(ConfigError, match="begins with"):
        spell_vocabulary(["a", "b"], longest=12)


def test_it_computes_its_formula() -> None:
    model = reader()
    word = spell(["bears"], longest=12)[0].long()
    x = model.letters.weight[word]
    seen = []
    for convolution in model.convolutions:
        size = convolution.kernel_size[0]
        padded = torch.cat([x, x.new_zeros(size - 1, 4)])
        places = [padded[t : t + size].t() for t in range(len(word))]
        sums = torch.stack([(convolution.weight * place).sum((1, 2)) + convolution.bias for place in places])
        seen.append(sums.amax(0).relu())
    y = torch.cat(seen)
    for gate, change in zip(model.gates, model.changes, strict=True):
        t = torch.sigmoid(F.linear(y, gate.gate.weight, gate.gate.bias))
        y = t * change(y).relu() + (1 - t) * y
    torch.testing.assert_close(model(torch.tensor(5)), model.projection(y), rtol=0, atol=1e-12)


def test_the_same_word_has_the_same_vector_known_or_not() -> None:
    model = reader()
    known = model(torch.tensor([[4, 5, 4], [7, 6, 4]]))
    assert torch.equal(known[0, 0], known[0, 2])
    assert torch.equal(known[0, 0], known[1, 2])
    torch.testing.assert_close(model.written(["bear", "熊"]), known[[0, 1], [0, 0]], rtol=0, atol=1e-12)
    unseen = model.written(["unbearable", "bear"])
    assert unseen.isfinite().all()
    assert not torch.allclose(unseen[0], unseen[1], atol=1e-3)


def test_padding_and_neighbours_change_nothing() -> None:
    model = reader()
    alone, beside = model.written(["a"]), model.written(["a", "a longer word"])
    torch.testing.assert_close(alone[0], beside[0], rtol=0, atol=1e-12)
    # Negative control: a letter more is another word.
    assert not torch.allclose(alone[0], model.written(["aa"])[0], atol=1e-3)


def test_all_weights_learn() -> None:
    model = reader()
    model(torch.tensor([4, 5, 6, 7, 8])).square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
    assert not model.letters.weight.grad[0].any()  # type: ignore[index]


def test_the_spelling_is_not_stored_with_the_weights() -> None:
    assert "spelling" not in reader().state_dict()
