"""The captioner: the encoder is a ViT, both decoders keep the laws of stepping, and a tiny model learns its images."""

import pytest
import torch
from torch import Tensor

from laws.stepping import check_stepper_laws
from seqloom.core.errors import ConfigError
from seqloom.core.stepping import Source, State, Step, Stepper
from seqloom.core.symbols import BEGIN, END, PAD
from seqloom.models.captioner import Captioner, CaptionerConfig, RecurrentCaptioner
from seqloom.models.vision import VitConfig
from seqloom.nn.embeddings import Symbols
from seqloom.search.decode import decode
from seqloom.search.settings import SearchConfig

SYMBOLS = Symbols(11, 11, is_shared=True)
SIZES = {"image_size": (6, 4), "patch": 2, "width": 8, "heads": 2, "feed_forward": 12}


def tiny(decoder: str = "transformer", **settings: object) -> Captioner | RecurrentCaptioner:
    config = CaptionerConfig.model_validate({**SIZES, "decoder": decoder, "encoder_layers": 2, **settings})
    return config.build(SYMBOLS, seed=3)


class NamedImages:
    """A stepper whose sources name images: the first symbol of each is the number of one."""

    def __init__(self, model: Captioner | RecurrentCaptioner, images: Tensor) -> None:
        self.model, self.images, self.stepper = model, images, model.stepper()
        self.begin, self.end = self.stepper.begin, self.stepper.end

    def start(self, source: Source) -> State:
        return self.stepper.start(self.model.source(self.images[source.ids[:, 0]]))

    def step(self, state: State, last: Tensor) -> Step:
        return self.stepper.step(state, last)


@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
def test_captioner_keeps_the_laws_of_stepping(decoder: str) -> None:
    model = tiny(decoder).double().eval()
    images = torch.randn(20, 3, 6, 4, dtype=torch.float64)

    def make_stepper() -> Stepper:
        return NamedImages(model, images)

    def teacher_forced(source: Source, prefix: Tensor) -> Tensor:
        lengths = torch.full((len(prefix),), prefix.shape[1])
        features = model(model.source(images[source.ids[:, 0]]), prefix, lengths)
        return model.output.log_probs(features).view(*prefix.shape, -1)

    check_stepper_laws(make_stepper, 20, target_symbols=SYMBOLS.target, teacher_forced=teacher_forced)


@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
def test_attention_covers_the_class_token_and_all_patches(decoder: str) -> None:
    model = tiny(decoder).eval()
    stepper = model.stepper(attention=True)
    step = stepper.step(stepper.start(model.source(torch.randn(2, 3, 6, 4))), torch.tensor([stepper.begin] * 2))
    assert step.attention is not None
    assert step.attention.shape == (2, 1 + 3 * 2)
    torch.testing.assert_close(step.attention.sum(1), torch.ones(2))


def test_encoder_is_the_vision_transformer_of_the_same_weights() -> None:
    model = tiny().eval()
    vit = VitConfig(image_size=(6, 4), patch=2, width=8, layers=2, heads=2, feed_forward=12).build(seed=9)
    vit.load_state_dict(model.encoder.state_dict())
    images = torch.randn(2, 3, 6, 4)
    memory, packing, mask = model.encode(model.source(images))  # type: ignore[operator]
    torch.testing.assert_close(memory.view(2, 7, 8), vit.eval()(images), rtol=0, atol=0)
    assert packing.is_full
    assert not mask.any()


def test_convolutions_see_a_shape_alike_wherever_it_is() -> None:
    sizes = {**SIZES, "image_size": (16, 16), "patch": 4, "embedding": "convolutions"}
    embedding = CaptionerConfig.model_validate(sizes).build(SYMBOLS, seed=3).encoder.embedding.double()
    shape, images = torch.randn(3, 3, 3, dtype=torch.float64), torch.zeros(2, 3, 16, 16, dtype=torch.float64)
    images[0, :, 4:7, 5:8] = shape
    images[1, :, 8:11, 9:12] = shape  # a patch farther down, and one to the right
    one, other = embedding(images).view(2, 4, 4, 8)
    torch.testing.assert_close(one[1:3, 1:3], other[2:4, 2:4], rtol=0, atol=1e-12)
    assert not torch.equal(one[1:3, 1:3], one[2:4, 2:4])
    with pytest.raises(ConfigError, match="a patch of 6 pixels is not 2, 4, 8"):
        CaptionerConfig(image_size=(12, 12), patch=6, embedding="convolutions").build(SYMBOLS, seed=1)


def test_text_is_refused_as_a_source() -> None:
    with pytest.raises(ConfigError, match="reads images"):
        tiny().stepper().start(Source(torch.ones(1, 2, dtype=torch.long), torch.tensor([2])))


@pytest.mark.parametrize("decoder", ["transformer", "recurrent"])
def test_tiny_model_learns_which_caption_belongs_to_which_image(decoder: str) -> None:
    model = tiny(decoder, dropout_rate=0.0, width=16, decoder_layers=1)
    images = torch.randn(4, 3, 6, 4, generator=torch.Generator().manual_seed(1))
    captions = torch.tensor([[5, 6, 7, END], [5, 8, 9, END], [10, 6, END, PAD], [9, END, PAD, PAD]])
    lengths = torch.tensor([4, 4, 3, 2])
    previous = torch.cat([torch.full((4, 1), BEGIN), captions[:, :-1]], 1)
    labels = torch.cat([row[:length] for row, length in zip(captions, lengths, strict=True)])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(80):
        optimiser.zero_grad()
        loss = model.output.cross_entropy(model(model.source(images), previous, lengths), labels)
        loss.backward()
        optimiser.step()
    assert all(each.grad is not None for each in model.encoder.layers.parameters())
    for beam in (1, 3):
        found = decode(model.eval().stepper(), model.source(images), SearchConfig(beam=beam))
        expected = [row[: length - 1].tolist() for row, length in zip(captions, lengths, strict=True)]
        assert [list(best.symbols) for best, *_ in found] == expected
