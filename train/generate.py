"""Continue or fill texts with a trained model."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from llmcurate.base.disk.units import counted
from llmcurate.base.errors import RunFailed, UsageError
from llmcurate.base.tokenizer_file import load_tokenizer, size_of
from train.attention.choice import fix_for_compiler
from train.data.chat import Chat
from train.data.vocabulary import first_of, nameless, roles_of_run, token_of
from train.device import pick_device
from train.generation_settings import Filling, Sampling
from train.measure.accounting import parameters
from train.model.cache import Cache
from train.model.config import ModelConfig
from train.model.decoder import Decoder
from train.objectives.causal import PARTS
from train.objectives.objectives import both_ways
from train.runs.checkpoint import (
    checkpoint_to_use,
    load_model,
    load_plan,
    step_of,
    tokenizer_of,
    weights_of,
)

GREEDY = Sampling(temperature=0.0, top_k=0)


def penalise(logits: Tensor, seen: list[list[int]], penalty: float) -> Tensor:
    """Return ``logits`` [rows, vocab], lowered for the tokens that are in each row's text."""
    if penalty == 1:
        return logits
    logits = logits.clone()
    for row, text in zip(logits, seen, strict=True):
        held = torch.tensor(sorted(set(text)), dtype=torch.long)
        values = row[held]
        row[held] = torch.where(values > 0, values / penalty, values * penalty)
    return logits


def probabilities(logits: Tensor, sampling: Sampling) -> tuple[Tensor, Tensor]:
    """Return the tokens that may be drawn and their probabilities, int64 and float64 [rows,
    candidates], from penalised logits [rows, vocab] at a temperature over 0. Tokens are in
    ascending order. Some may have the probability 0."""
    tokens = torch.arange(logits.shape[-1]).expand(logits.shape)
    least: Tensor | None = None
    if 0 < sampling.top_k < logits.shape[-1]:
        likeliest = logits.topk(sampling.top_k, dim=-1)
        least = likeliest.values[:, -1:]
        if (most := int((logits >= least).sum(dim=-1).max())) > sampling.top_k:
            likeliest = logits.topk(most, dim=-1)
        tokens = likeliest.indices.sort(dim=-1).values
    scores = logits.gather(-1, tokens).double()
    # Relative to the likeliest, so that no temperature makes scores infinite.
    scores = (scores - scores.max(dim=-1, keepdim=True).values) / sampling.temperature
    if least is not None:
        scores = scores.masked_fill(logits.gather(-1, tokens) < least, -math.inf)
    chances = scores.softmax(dim=-1)
    if sampling.top_p < 1:
        ordered, order = chances.sort(dim=-1, descending=True, stable=True)
        before = ordered.cumsum(dim=-1) - ordered
        before[:, 0] = 0
        kept = ordered.masked_fill(before >= sampling.top_p, 0.0)
        chances = torch.zeros_like(chances).scatter(-1, order, kept)
    if sampling.min_p > 0:
        least = chances.max(dim=-1, keepdim=True).values * sampling.min_p
        chances = chances.masked_fill(chances < least, 0.0)
    return tokens, chances / chances.sum(dim=-1, keepdim=True)


class Chooser:
    """The choice of tokens for several texts, each with its own random stream. The result for a
    text depends only on ``seed`` and on the text's number in ``numbers``, not on the other texts.
    ``never``: bool [vocab], True for tokens that must not be chosen; None: all may be.
    """

    def __init__(
        self, sampling: Sampling, seed: int, numbers: list[int], never: Tensor | None = None
    ) -> None:
        self.sampling, self._never = sampling, never
        self._draws = [torch.Generator().manual_seed(_stream(seed, number)) for number in numbers]

    def choose(self, logits: Tensor, seen: list[list[int]]) -> list[int]:
        """Return a token for each row of ``logits`` [rows, vocab]. ``seen``: each text so far."""
        if not torch.stack(logits.aminmax()).isfinite().all():
            raise RunFailed("the model's logits are not finite: its weights are damaged")
        logits = penalise(logits, seen, self.sampling.repetition_penalty)
        if self._never is not None:
            logits = logits.masked_fill(self._never, NEVER)
        if self.sampling.temperature == 0:
            return logits.argmax(dim=-1).tolist()
        tokens, chances = probabilities(logits, self.sampling)
        # The token with the shortest exponential waiting time wins, as in ``torch.multinomial``.
        # Only candidates' logarithms: those of all tokens take longer than a small model's step.
        waits = torch.empty(logits.shape, dtype=torch.float64)
        for row, draw in zip(waits, self._draws, strict=True):
            torch.rand(row.shape, generator=draw, out=row)
        waits = -torch.log1p(-waits.gather(-1, tokens)).clamp(max=-(2.0**-54))  # never 0
        winners = (chances / waits).argmax(dim=-1, keepdim=True)
        chosen: list[int] = tokens.gather(-1, winners)[:, 0].tolist()
        return chosen

    def keep(self, rows: list[int]) -> None:
        """From now on, choose tokens for these texts only."""
        self._draws = [self._draws[row] for row in rows]

    def permuted(self, count: int) -> Tensor:
        """Return 0 .. count - 1 in random order, from the first text's own random generator."""
        return torch.randperm(count, generator=self._draws[0])


def _stream(seed: int, number: int) -> int:
    if number == 0:
        return seed
    digest = hashlib.blake2b(f"{seed} {number}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


MOST = 100  # new tokens of a text, by default
NEVER = -1e30  # the logit of a token that must not be chosen
# Takes ids [texts, length] and flags; returns logits [places, vocab], on the CPU, of the flagged
# places.
Read = Callable[[Tensor, Tensor], Tensor]


def with_masks(tokenizer: Tokenizer, prompt: str, mask: int) -> tuple[list[int], str]:
    """Return the ids of a prompt, and the prompt's text before the first mask token. Both leave out
    spaces before a mask token, because a mask stands for a word and the space before the word."""
    *before, last = prompt.split(tokenizer.id_to_token(mask))
    ids: list[int] = []
    for part in before:
        ids += [*tokenizer.encode(part.rstrip(" "), add_special_tokens=False).ids, mask]
    ids += tokenizer.encode(last, add_special_tokens=False).ids
    return ids, before[0].rstrip(" ") if before else prompt


def filled(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: Sequence[str],
    masks: int | None,
    filling: Filling,
    sampling: Sampling,
    *,
    seed: int,
    batch: int,
) -> list[Completion]:
    """Fill the masks of prompts, ``batch`` texts at a time. A prompt without masks gets ``masks``
    masks at its end, by default ``MOST`` or as many as the context has room for. Raises
    ``LlmcurateError`` if the tokenizer has no mask or a text is longer than the model's context."""
    mask, never = model.special.mask, nameless(tokenizer, model.config.vocab)
    if mask is None:
        raise UsageError("the model's tokenizer has no mask token, such as [MASK], to fill")
    start = [] if model.special.end is None else [model.special.end]
    texts, before, whole = [], [], []
    for prompt in prompts:
        ids, shown = with_masks(tokenizer, prompt, mask)
        room = max(1, model.config.context - len(start) - len(ids))
        added = min(MOST, room) if masks is None else masks
        texts.append([*start, *ids] if mask in ids else [*start, *ids, *[mask] * added])
        before.append(shown)
    for first in range(0, len(texts), batch):
        part = texts[first : first + batch]
        numbers = list(range(first, first + len(part)))
        whole += fill(model, part, mask, filling, sampling, never, seed=seed, numbers=numbers)
    return [
        Completion(
            prompt=shown,
            text=tokenizer.decode(new[text.index(mask) :]),
            tokens=text.count(mask),
            stopped="length",
        )
        for shown, text, new in zip(before, texts, whole, strict=True)
    ]


@torch.no_grad()
def fill(
    model: Decoder,
    texts: Sequence[list[int]],
    mask: int,
    filling: Filling,
    sampling: Sampling,
    never: Tensor | None = None,
    *,
    seed: int,
    numbers: Sequence[int],
) -> list[list[int]]:
    """Return the texts with tokens instead of masks. Text n uses the random stream ``numbers[n]``.
    ``never``: as in ``Chooser``. Raises ``LlmcurateError`` if a text is longer than the model's
    context."""
    width = max(map(len, texts))
    ids = torch.zeros(len(texts), width, dtype=torch.long)
    documents = torch.full_like(ids, -1)
    for row, text in enumerate(texts):
        ids[row, : len(text)], documents[row, : len(text)] = torch.tensor(text), 0
    blank = (ids == mask) & (documents == 0)
    read = _reader(model, documents, mask, never)
    if filling.method == "gibbs":
        choosers = [Chooser(sampling, seed, [number]) for number in numbers]
        filled = gibbs(read, ids, blank, mask, filling.rounds, choosers)
    else:
        filled = mask_predict(read, ids, blank, mask, filling.rounds)
    return [row[: len(text)].tolist() for row, text in zip(filled, texts, strict=True)]


def _reader(model: Decoder, documents: Tensor, mask: int, never: Tensor | None) -> Read:
    """Return a function from ids [texts, length] and flags of places (bool) to the logits at these
    places. Raises ``LlmcurateError`` if the texts are longer than the model's context."""
    device, width = model.embedding.weight.device, documents.shape[1]
    if width > model.config.context:
        raise UsageError(
            f"a text has {counted(width, 'token')} with its masks, but the model's context is"
            f" {model.config.context}: give a shorter one, or a lower --max-tokens"
        )

    def read(shown: Tensor, places: Tensor) -> Tensor:
        features = model.features(shown.to(device), documents=documents.to(device))
        logits = model.logits(features[places.to(device)]).float().cpu()
        if not logits.isfinite().all():
            raise RunFailed("the model's logits are not finite: its weights are damaged")
        logits[:, mask] = NEVER
        return logits if never is None else logits.masked_fill(never, NEVER)

    return read


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A token for a mask, and its probability."""

    token: str
    id: int
    probability: float


@torch.no_grad()
def candidates(
    model: Decoder, tokenizer: Tokenizer, prompt: str, count: int
) -> list[list[Candidate]]:
    """Return the ``count`` likeliest tokens of each mask in a prompt, the likeliest first. The
    other masks are not filled. Raises ``LlmcurateError`` if the model cannot fill masks, or if the
    prompt has no mask or is too long."""
    mask, end = model.special.mask, model.special.end
    if not model.config.fills or mask is None:
        raise UsageError("top lists the candidates of masks: it needs an encoder with a mask token")
    ids, _ = with_masks(tokenizer, prompt, mask)
    if mask not in ids:
        raise UsageError(
            f"top lists the candidates of masks, but a prompt has no {tokenizer.id_to_token(mask)}"
        )
    text = torch.tensor([([] if end is None else [end]) + ids])
    never = nameless(tokenizer, model.config.vocab)
    read = _reader(model, torch.zeros_like(text), mask, never)
    best = read(text, text == mask).softmax(-1).topk(min(count, model.config.vocab))
    return [
        [
            Candidate(token=tokenizer.decode([number]), id=number, probability=chance)
            for number, chance in zip(numbers, chances, strict=True)
        ]
        for numbers, chances in zip(best.indices.tolist(), best.values.tolist(), strict=True)
    ]


def mask_predict(read: Read, ids: Tensor, blank: Tensor, mask: int, rounds: int) -> Tensor:
    """Return ``ids`` [texts, length] with a token at each ``blank`` (True where a token is
    missing). In round t of T, counted from 0, a share (T - t) / T of the blanks is masked and
    predicted again: the blanks whose tokens have the lowest probability."""
    ids, chances = ids.clone(), torch.full(ids.shape, -math.inf)
    counts = blank.sum(-1, keepdim=True)
    for turn in range(rounds):
        order = chances.masked_fill(~blank, math.inf).sort(stable=True, dim=-1).indices
        again = blank & (order.argsort(-1) < counts * (rounds - turn) // rounds)
        if not again.any():
            break
        likeliest = read(ids.masked_fill(again, mask), again).log_softmax(-1).max(-1)
        ids[again], chances[again] = likeliest.indices, likeliest.values
    return ids


def gibbs(
    read: Read,
    ids: Tensor,
    blank: Tensor,
    mask: int,
    rounds: int,
    choosers: Sequence[Chooser],
) -> Tensor:
    """Return ``ids`` [texts, length] with a token in each ``blank`` (True where a token is
    missing). All blanks start as masks. In each round every blank, in random order, is masked and
    drawn again given the other tokens."""
    ids = ids.masked_fill(blank, mask)
    for _ in range(rounds):
        orders = [
            row.nonzero()[:, 0][chooser.permuted(int(row.sum()))]
            for row, chooser in zip(blank, choosers, strict=True)
        ]
        for turn in range(max(map(len, orders))):
            rows = [row for row, order in enumerate(orders) if turn < len(order)]
            places = [int(orders[row][turn]) for row in rows]
            ids[rows, places] = mask
            drawn = torch.zeros_like(blank)
            drawn[rows, places] = True
            for row, place, logits in zip(rows, places, read(ids, drawn), strict=True):
                known = [ids[row][blank[row] & (ids[row] != mask)].tolist()]
                ids[row, place] = choosers[row].choose(logits[None], known)[0]
    return ids


Agree = Callable[[Tensor], Tensor]


def unbounded(config: ModelConfig) -> bool:
    """Return True if a text may grow longer than the model's context. This is so if every layer's
    attention has a window, so that memory does not grow, and positions are not looked up in a table
    of limited size."""
    return None not in config.windows and not config.position.table


class Texts:
    """A batch of texts that grow by a token at a time. Shorter texts are padded in front.

    When a text gets longer than the model's context, its beginning is dropped: the last half
    context of tokens stays, and grows again. An ``unbounded`` model has no such limit. A model
    trained to read prompts in both directions reads each prompt in both directions, up to the
    length of the context. ``known``: the tokens of each text. ``agree``: function that returns the
    logits to use when several processes compute them together. ``sources``: for an encoder-decoder,
    the ids that its encoder reads for each text. ``compiled``: True to compile the step that reads
    each text's newest token."""

    def __init__(
        self,
        model: Decoder,
        prompts: list[list[int]],
        agree: Agree | None = None,
        sources: list[list[int]] | None = None,
        compiled: bool = False,
    ) -> None:
        if not all(prompts) or not all(sources or [[0]]):
            raise ValueError("every prompt needs a token, and so does every source")
        if not model.config.writes:
            kind = model.config.described
            raise UsageError(f"{kind} does not continue text: give a decoder or an encoder-decoder")
        self.model, self.known = model, [list(prompt) for prompt in prompts]
        self._agree = agree or (lambda logits: logits)
        if compiled:
            fix_for_compiler()
        # Lengths are symbols, so that a longer text is not compiled again.
        self._read_newest = torch.compile(_logits, dynamic=True) if compiled else _logits
        self._context = model.config.context
        self._endless = unbounded(model.config)
        self._start = [0 if self._endless else max(0, len(p) - self._context) for p in prompts]
        self._cache: Cache | None = None
        self._device = model.embedding.weight.device
        self._source: dict[str, Any] = {}
        if sources is not None:
            tokens, documents = _padded(sources, self._device, before=False)
            self._source = {"source": tokens, "source_documents": documents}

    @property
    def cache_bytes(self) -> int:
        return 0 if self._cache is None else self._cache.bytes

    @torch.no_grad()
    def logits(self) -> Tensor:
        """Return the next tokens' logits, [texts, vocab], on the CPU. Call once per ``append``."""
        if self._outgrown() or self._cache is None:
            logits = self.model.logits(self._read_all()[:, -1])
        else:
            newest = torch.tensor([[text[-1]] for text in self.known], device=self._device)
            logits = self._read_newest(self.model, newest, self._cache)
        return self._agree(logits.cpu())

    def append(self, tokens: list[int]) -> None:
        for text, token in zip(self.known, tokens, strict=True):
            text.append(token)

    def keep(self, rows: list[int]) -> None:
        """Continue only these texts."""
        self.known = [self.known[row] for row in rows]
        self._start = [self._start[row] for row in rows]
        kept = torch.tensor(rows, device=self._device)
        self._source = {name: tokens[kept] for name, tokens in self._source.items()}
        if self._cache is not None:
            self._cache.keep(kept)

    def _outgrown(self) -> bool:
        moved = False
        for row, text in enumerate(self.known):
            if not self._endless and len(text) - self._start[row] > self._context:
                self._start[row] = len(text) - max(1, self._context // 2)
                moved = True
        return moved

    def _read_all(self) -> Tensor:
        self._cache = cache = self.model.empty_cache()
        views = [text[start:] for text, start in zip(self.known, self._start, strict=True)]
        tokens, documents = _padded(views, self._device, before=True)
        padded = bool((documents < 0).any())
        for first in range(0, tokens.shape[1], self._context):
            part = slice(first, first + self._context)
            inside = documents[:, part]
            both_ways = self.model.both_ways and first == 0
            features = self.model.features(
                tokens[:, part],
                documents=inside if padded else None,
                prefix=inside >= 0 if both_ways else None,
                cache=cache,
                **(self._source if first == 0 else {}),
            )
        return features


def _logits(model: Decoder, newest: Tensor, cache: Cache) -> Tensor:
    return model.logits(model.features(newest, cache=cache)[:, -1])


def _padded(texts: list[list[int]], device: torch.device, *, before: bool) -> tuple[Tensor, Tensor]:
    width = max(map(len, texts))
    tokens = torch.zeros(len(texts), width, dtype=torch.long)
    documents = torch.full_like(tokens, -1)
    for row, text in enumerate(texts):
        first = width - len(text) if before else 0
        tokens[row, first : first + len(text)] = torch.tensor(text)
        documents[row, first : first + len(text)] = 0
    return tokens.to(device), documents.to(device)


def load(model_dir: Path, *, device: str = "cpu", which: str = "best") -> tuple[Decoder, Tokenizer]:
    """Load a checkpoint of the run in ``model_dir``, and its tokenizer. ``which``: ``best`` (lowest
    held-out loss) or ``last``. ``device``: with ``auto`` a GPU if there is one.
    """
    place = pick_device(device)
    checkpoint = checkpoint_to_use(model_dir, which)
    if not model_dir.exists():
        raise UsageError(f"{model_dir}: no such folder: give the folder of a trained model")
    if checkpoint is None:
        raise UsageError(
            f"{model_dir}: no finished checkpoint; give the folder of a trained model (for a"
            f" transformers model run `llmcurate import {model_dir} -o OUT` first)"
        )
    plan = load_plan(checkpoint)
    config = plan.model_at(step_of(checkpoint))
    # A foreign config must not make us allocate more memory than its weights take.
    if 4 * parameters(config) > weights_of(checkpoint).bytes:
        raise RunFailed(
            f"{checkpoint}: it has fewer weights than its config.json says; delete the folder"
        )
    model = Decoder(config)
    load_model(checkpoint, model, average=True)
    model.both_ways = both_ways(plan.train)
    tokenizer = load_tokenizer(tokenizer_of(checkpoint))
    if size_of(tokenizer) > config.vocab:
        raise RunFailed(f"{model_dir / 'tokenizer.json'}: not the tokenizer of this model")
    model.special = roles_of_run(tokenizer_of(checkpoint), tokenizer)
    return model.eval().to(place), tokenizer


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A prompt and its continuation. If masks were filled, ``prompt`` is the text before the first
    mask and ``text`` the filled text from there on. ``tokens``: how many were written. ``stopped``:
    ``end`` after an end-of-text token, ``length`` after the number of tokens asked for."""

    prompt: str
    text: str
    tokens: int
    stopped: str


def generate(
    model_dir: Path,
    prompt: str,
    *,
    max_tokens: int = 100,
    temperature: float = 0.8,
    top_k: int = 50,
    seed: int = 0,
    checkpoint: str = "best",
) -> str:
    """Return the continuation of ``prompt``, without ``prompt``. ``checkpoint``: best or last."""
    model, tokenizer = load(model_dir, which=checkpoint)
    sampling = Sampling(temperature=temperature, top_k=top_k)
    completions = complete(
        model, tokenizer, [prompt], max_tokens=max_tokens, sampling=sampling, seed=seed
    )
    return completions[0].text


def complete(
    model: Decoder,
    tokenizer: Tokenizer,
    prompts: list[str],
    *,
    max_tokens: int | None,
    sampling: Sampling,
    seed: int,
    batch: int = 32,
    agree: Agree | None = None,
    compiled: bool = False,
    filling: Filling | None = None,
    suffix: str | None = None,
    chat: Chat | None = None,
    system: str | None = None,
) -> list[Completion]:
    """Continue each prompt by at most ``max_tokens`` tokens (by default ``MOST``), ``batch``
    prompts at a time.

    A decoder reads the tokens that came before each text in training, then the prompt. Any token
    that ends a text ends the continuation. With ``suffix``, a model trained with objective fim
    writes the text between prompt and suffix, as far as its context allows. With ``chat``, a prompt
    is what a user says after the message ``system``, if any, and the text is the answer. In an
    encoder-decoder, the encoder reads the prompt, and the decoder writes the text. In this prompt
    and this text, special tokens are written by name. An encoder fills the masks of a prompt by the
    method ``filling``. A prompt without masks gets ``max_tokens`` masks at its end, by default at
    most as many as the context has room for. ``agree`` and ``compiled``: see ``Texts``.

    Ids to which the tokenizer assigns no token are never chosen. The same seed gives the same text
    on the same device. Each prompt has its own random stream, whatever the other prompts are.
    Raises ``LlmcurateError``, for instance if the model cannot write before a ``suffix``."""
    if (max_tokens is not None and max_tokens < 1) or batch < 1:
        raise UsageError("give max_tokens and batch of 1 or more")
    if not 0 <= seed < 1 << 63:
        raise UsageError(f"seed is {seed}: give 0 to 2**63 - 1")
    if model.config.fills:
        how = max_tokens, filling or Filling(), sampling
        return filled(model, tokenizer, prompts, *how, seed=seed, batch=batch)
    max_tokens = MOST if max_tokens is None else max_tokens
    if chat is None:
        ids, sources = _starts(model, tokenizer, prompts)
    else:
        ids, sources = [_asked(chat, prompt, system) for prompt in prompts], None
    if suffix is not None:
        ids = _with_suffix(model, tokenizer, prompts, suffix)
        max_tokens = min(max_tokens, model.config.context - max(map(len, ids)))
    continued = continue_ids(
        model,
        tokenizer,
        ids,
        max_tokens=max_tokens,
        sampling=sampling,
        seed=seed,
        batch=batch,
        sources=sources,
        agree=agree,
        compiled=compiled,
    )
    return [
        Completion(
            prompt=prompt,
            text=tokenizer.decode(produced, skip_special_tokens=sources is None),
            tokens=len(produced),
            stopped="end" if ended else "length",
        )
        for prompt, (produced, ended) in zip(prompts, continued, strict=True)
    ]


def continue_ids(
    model: Decoder,
    tokenizer: Tokenizer,
    ids: list[list[int]],
    *,
    max_tokens: int,
    sampling: Sampling,
    seed: int,
    batch: int,
    sources: list[list[int]] | None = None,
    agree: Agree | None = None,
    compiled: bool = False,
    stops: Callable[[list[int]], bool] | None = None,
) -> list[tuple[list[int], bool]]:
    """Return (new ids, ended) for each text. ``ended`` is True if a token that ends texts was
    chosen or ``stops`` returned True for the new ids. ``sources``, ``agree``, ``compiled``: see
    ``Texts``. The other parameters: see ``complete``."""
    ends, never = model.special.ends, nameless(tokenizer, model.config.vocab)
    results: dict[int, tuple[list[int], bool]] = {}
    read = ids if sources is None else sources
    # Texts of similar lengths together need the least padding.
    order = sorted(range(len(ids)), key=lambda number: -len(read[number]))
    for first in range(0, len(ids), batch):
        part = order[first : first + batch]
        chooser = Chooser(sampling, seed, part, never)
        encoded = None if sources is None else [sources[number] for number in part]
        texts = Texts(model, [ids[number] for number in part], agree, encoded, compiled)
        continued = _continue(texts, chooser, max_tokens, ends, stops)
        results |= dict(zip(part, continued, strict=True))
    return [results[number] for number in range(len(ids))]


def _starts(
    model: Decoder, tokenizer: Tokenizer, prompts: list[str]
) -> tuple[list[list[int]], list[list[int]] | None]:
    config, roles = model.config, model.special
    encoder, end = config.encoder, roles.end
    if encoder is None:
        ids = [
            [*roles.before, *_ids(tokenizer, words)] or list(first_of(roles)) for words in prompts
        ]
        if not all(ids):
            raise UsageError("no token of this tokenizer begins or ends a text: give a prompt")
        return ids, None
    start = end if encoder.start is None else encoder.start
    if start is None:
        raise UsageError("this tokenizer has no end-of-text token: set model.encoder.start")
    tokenizer.encode_special_tokens = False
    sources = [tokenizer.encode(words).ids for words in prompts]
    tokenizer.encode_special_tokens = True
    sources = [ids if ids[-1:] == [end] or end is None else [*ids, end] for ids in sources]
    longest = max(map(len, sources))
    if config.position.table and longest > config.context:
        raise UsageError(
            f"a text has {counted(longest, 'token')}, but the model's context is "
            f"{config.context}: give a shorter one"
        )
    return [[start] for _ in prompts], sources


def _asked(chat: Chat, prompt: str, system: str | None) -> list[int]:
    before = [] if system is None else [{"role": "system", "content": system}]
    ids, _ = chat.encode([*before, {"role": "user", "content": prompt}], prompt=True)
    return ids.tolist()


def _with_suffix(
    model: Decoder, tokenizer: Tokenizer, prompts: list[str], suffix: str
) -> list[list[int]]:
    config, roles = model.config, model.special
    known = tokenizer.get_vocab(with_added_tokens=True)
    marks = [token_of(f"fim {part}", roles, known) for part in PARTS]
    if not config.writes or config.form != "decoder" or None in marks:
        raise UsageError("suffix: give a decoder that was trained with objective fim")
    before, behind, middle = ([mark] for mark in marks if mark is not None)
    last = _ids(tokenizer, suffix)
    ids = [
        [*roles.before, *before, *_ids(tokenizer, prompt), *behind, *last, *middle]
        for prompt in prompts
    ]
    longest = max(map(len, ids))
    if longest >= config.context:
        raise UsageError(
            f"a prompt and the suffix have {counted(longest, 'token')}, but the model's context is "
            f"{config.context}: give shorter ones"
        )
    return ids


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
    return ids


def _continue(
    texts: Texts,
    chooser: Chooser,
    max_tokens: int,
    ends: Sequence[int],
    stops: Callable[[list[int]], bool] | None,
) -> list[tuple[list[int], bool]]:
    """Return the result of ``continue_ids`` for a batch. Texts that have ended are removed from the
    batch when they are half of it."""
    written: list[list[int]] = [[] for _ in texts.known]
    ended, numbers = [False] * len(written), list(range(len(written)))
    for _ in range(max_tokens):
        tokens = chooser.choose(texts.logits(), texts.known)
        texts.append(tokens)
        for number, token in zip(numbers, tokens, strict=True):
            ended[number] |= token in ends
            if not ended[number]:
                written[number].append(token)
                ended[number] = stops is not None and stops(written[number])
        left = [row for row, number in enumerate(numbers) if not ended[number]]
        if not left:
            break
        if 2 * len(left) <= len(numbers):
            texts.keep(left)
            chooser.keep(left)
            numbers = [numbers[row] for row in left]
    return list(zip(written, ended, strict=True))
