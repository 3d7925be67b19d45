"""Briefly trained GPT-2 and Llama: our searches write what `generate` writes, and a folder works with our commands."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from generated import generated
from pretrained.test_decoder_only import GPT2, SIZES, Imported, Tensors, built, family
from seqloom.apps.language_model import LanguageModel
from seqloom.core.stepping import Source, State, Step
from seqloom.models.gpt import GptStepper
from seqloom.search.peers.rules import rules_of
from seqloom.search.peers.search import peer_search

pytestmark = pytest.mark.parity

transformers = pytest.importorskip("transformers")

PROMPTS, LIMIT, STEPS = 200, 12, 150
SEPARATOR, SYMBOLS = 12, 61
ARCHITECTURES: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2LMHeadModel", {**GPT2, "initializer_range": 0.02, "resid_pdrop": 0.0, "embd_pdrop": 0.0}),
    "llama": ("LlamaForCausalLM", {**SIZES, "initializer_range": 0.02, "eos_token_id": 9}),
}


def words(rows: int, length: int, *, seed: int) -> Tensor:
    return torch.randint(13, 40, (rows, length), generator=torch.Generator().manual_seed(seed))


@cache
def trained(name: str) -> Any:
    """A model that copies a word after a separator and leaves out some symbols: what comes next is uncertain."""
    architecture, options = ARCHITECTURES[name]
    config = transformers.AutoConfig.for_model(name, **options)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        model = getattr(transformers, architecture)(config)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    begin, end = config.bos_token_id, config.eos_token_id
    generator = torch.Generator().manual_seed(5)
    for step in range(STEPS):
        word = words(32, 1 + step % 6, seed=1000 + step)
        kept = torch.rand(word.shape, generator=generator) < 0.8
        rows = [
            torch.tensor([begin, *given.tolist(), SEPARATOR, *given[keep].tolist(), end])
            for given, keep in zip(word, kept, strict=True)
        ]
        ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=end)
        mask = torch.nn.utils.rnn.pad_sequence([torch.ones_like(row) for row in rows], batch_first=True)
        loss = model(input_ids=ids, attention_mask=mask, labels=ids.masked_fill(mask == 0, -100)).loss
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return model.eval()


def ours(name: str) -> Imported:
    model = trained(name)
    tensors = {each: tensor.detach() for each, tensor in model.state_dict().items()}
    return built(family(name), model.config.to_dict(), Tensors(tensors), torch.float32, {})


@dataclass(frozen=True)
class PromptedRows:
    """A stepper whose rows have prompts of their own, all as long, which are read in one pass."""

    stepper: GptStepper
    prompts: Tensor
    begin: int
    end: int

    def start(self, source: Source) -> State:
        return self.stepper.read(self.stepper.start(source), self.prompts)

    def step(self, state: State, last: Tensor) -> Step:
        return self.stepper.step(state, last)


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("name", list(ARCHITECTURES))
def test_searches_equal_generate(name: str, beam: int) -> None:
    """Token for token, unless scores are as good as equal; another length penalty is another search."""
    model, found = trained(name), ours(name)
    begin, end = model.config.bos_token_id, model.config.eos_token_id
    numbers = torch.from_numpy(found.numbers.ours)
    differing, ended, others = 0, 0, 0
    for length in range(1, 6):
        word = words(PROMPTS // 5, length, seed=length)
        rows = len(word)
        prompt = torch.cat([torch.full((rows, 1), begin), word, torch.full((rows, 1), SEPARATOR)], 1)
        expected = generated(
            model,
            end=end,
            written=prompt.shape[1],
            input_ids=prompt,
            attention_mask=torch.ones_like(prompt),
            num_beams=beam,
            max_new_tokens=LIMIT,
            length_penalty=1.0,
            early_stopping=False,
            pad_token_id=end,
        )
        prompted = PromptedRows(
            found.model.stepper(), numbers[prompt[:, :-1]], int(numbers[SEPARATOR]), int(numbers[end])
        )
        source = Source(prompt[:, :1], torch.ones(rows, dtype=torch.long))
        with torch.inference_mode():
            for alpha in (1.0, 0.0):
                rules = replace(rules_of("huggingface", alpha), early_stopping=False)
                lists = peer_search(prompted, source, rules, beam=beam, nbest=1, limits=[LIMIT] * rows)
                mine = [[found.numbers.foreign[symbol] for symbol in each[0].symbols] for each in lists]
                unequal = expected.differing(mine, [each[0].score for each in lists])
                if alpha == 1.0:
                    differing += unequal
                    ended += sum(each[0].is_finished for each in lists)
                else:
                    others += unequal
    assert differing == 0
    assert ended > PROMPTS / 2
    assert beam == 1 or others > 0


def lines() -> Sequence[str]:
    nouns, verbs = ["the old man", "a dog", "my neighbour's cat", "Zoë"], ["sees", "reads", "forgets", "likes 3"]
    return [f"{one} {verb} {other}." for one in nouns for verb in verbs for other in nouns]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of GPT-2's shape, with a tokeniser of byte pairs."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    folder = tmp_path_factory.mktemp("folder") / "gpt2-tiny"
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=330, special_tokens=["<|endoftext|>"], initial_alphabet=alphabet, show_progress=False
    )
    pieces.train_from_iterator(lines(), trainer)
    tokenizer = transformers.GPT2TokenizerFast(tokenizer_object=pieces)
    tokenizer.save_pretrained(folder)
    end = tokenizer.eos_token_id
    options = {**GPT2, "vocab_size": len(tokenizer), "bos_token_id": end, "eos_token_id": end, "n_positions": 24}
    with torch.random.fork_rng():
        torch.manual_seed(3)
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**options)).save_pretrained(folder)
    return folder


def test_a_folder_measures_and_writes_what_transformers_does(folder: Path) -> None:
    model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
    tokenizer = transformers.GPT2TokenizerFast.from_pretrained(folder)
    end = tokenizer.eos_token_id
    opened = LanguageModel.load(folder)
    given = list(lines()[:20])
    for line, score in zip(given, opened.score(given), strict=True):
        ids = torch.tensor([[end, *tokenizer(line)["input_ids"], end]])
        with torch.no_grad():
            log_probs = model(input_ids=ids[:, :-1]).logits.log_softmax(-1)
        expected = float(log_probs[0].gather(1, ids[0, 1:, None]).sum())
        assert score.tokens == ids.shape[1] - 1
        assert score.log_prob == pytest.approx(expected, abs=1e-4)
    prompt = "the old man reads"
    ids = torch.tensor([[end, *tokenizer(prompt)["input_ids"]]])
    written = model.generate(
        input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False, pad_token_id=end
    )
    (found,) = opened.generate(prompt, length_constant=8)
    theirs = tokenizer.decode(written[0, 1:], skip_special_tokens=True)
    # A model that has learned nothing writes control characters, which we do not.
    shown = [re.sub(r"[\x00-\x20\x7f]", "", text) for text in (found.text, theirs)]
    assert shown[0] == shown[1]
    # The positions end at 24: the text does, too, and is not finished.
    (longest,) = opened.generate(prompt, length_constant=100)
    assert longest.tokens == 24 - ids.shape[1] + 1
    assert not longest.is_finished
