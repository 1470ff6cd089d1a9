"""Continue a text with a trained model, one token at a time, with a cache of keys and values."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer

from train.accounting import parameters
from train.checkpoint import load_model, load_plan, newest
from train.data.shards import end_of_text
from train.errors import TrainError
from train.model.decoder import Decoder


def load(model_dir: Path) -> tuple[Decoder, Tokenizer]:
    """The newest checkpoint under ``model_dir`` and its tokenizer, on the CPU."""
    checkpoint = newest(model_dir / "checkpoints")
    if checkpoint is None:
        raise TrainError(
            f"{model_dir}: no finished checkpoint; give the folder a model was trained into",
            exit_code=2,
        )
    config = load_plan(checkpoint).model
    # A config from elsewhere must not make us allocate more than the weights that came with it.
    weights = checkpoint / "model.safetensors"
    if not weights.is_file() or 4 * parameters(config) > weights.stat().st_size:
        raise TrainError(f"{weights}: missing, or smaller than config.json says; delete the folder")
    model = Decoder(config)
    load_model(checkpoint, model, average=True)
    tokenizer = load_tokenizer(model_dir / "tokenizer.json")
    largest = max(tokenizer.get_vocab(with_added_tokens=True).values(), default=0)
    if largest >= config.vocab:
        raise TrainError(f"{model_dir / 'tokenizer.json'}: not the tokenizer of this model")
    return model.eval(), tokenizer


def load_tokenizer(path: Path) -> Tokenizer:
    """Read ``tokenizer.json`` so that the spelling of a special token in a text stays text."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises bare Exception
        raise TrainError(f"{path}: cannot be read ({error})") from error
    tokenizer.encode_special_tokens = True
    return tokenizer


def generate(
    model_dir: Path,
    prompt: str,
    *,
    max_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int = 50,
    seed: int = 0,
) -> str:
    """The continuation of ``prompt`` (without it), as text; at most ``max_tokens`` tokens.

    The model reads the prompt as the beginning of a document; an end-of-text token ends the
    continuation. ``temperature`` 0 takes the likeliest token; ``top_k`` 0 draws from all. The same
    seed gives the same text on the same device. Raises ``TrainError``.
    """
    model, tokenizer = load(model_dir)
    return continue_text(
        model,
        tokenizer,
        prompt,
        max_tokens=max_tokens,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
    )


def continue_text(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    temperature: float,
    top_k: int,
    seed: int,
) -> str:
    """``generate`` for a model and a tokenizer in memory."""
    if max_tokens < 1 or temperature < 0 or top_k < 0:
        raise TrainError(
            "give max_tokens over 0, and temperature and top_k of 0 or more", exit_code=2
        )
    added = tokenizer.get_added_tokens_decoder()
    end = end_of_text({token.content: index for index, token in added.items() if token.special})
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    if end is not None:
        ids = [end, *ids]
    if not ids:
        raise TrainError("this tokenizer has no end-of-text token: give a prompt", exit_code=2)
    stream = continue_ids(model, ids, temperature=temperature, top_k=top_k, seed=seed)
    produced: list[int] = []
    for token in stream:
        if token == end:
            break
        produced.append(token)
        if len(produced) == max_tokens:
            break
    return tokenizer.decode(produced)


@torch.no_grad()
def continue_ids(
    model: Decoder, ids: list[int], *, temperature: float, top_k: int, seed: int
) -> Iterator[int]:
    """Token after token, without end. Past the model's context, it goes on from the last half."""
    context, device = model.config.context, model.embedding.weight.device
    generator = torch.Generator().manual_seed(seed)
    known = list(ids)
    fresh = known[-context:]
    cache, held = model.empty_cache(), 0
    while True:
        if held + len(fresh) > context:
            cache, held, fresh = model.empty_cache(), 0, known[-max(1, context // 2) :]
        held += len(fresh)
        logits = model(torch.tensor([fresh], device=device), cache=cache)[0, -1].cpu()
        token = pick(logits, temperature=temperature, top_k=top_k, generator=generator)
        known.append(token)
        fresh = [token]
        yield token


def pick(
    logits: torch.Tensor, *, temperature: float, top_k: int, generator: torch.Generator
) -> int:
    """Draw a token from ``logits`` [vocab]."""
    if temperature == 0:
        return int(logits.argmax())
    if 0 < top_k < len(logits):
        least = logits.topk(top_k).values[-1]
        logits = logits.masked_fill(logits < least, float("-inf"))
    weights = (logits.double() / temperature).softmax(dim=-1)
    return int(torch.multinomial(weights, 1, generator=generator))
