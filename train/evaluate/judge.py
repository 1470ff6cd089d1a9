"""Judge a model, trained by llmcurate or saved by transformers, on texts and questions."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from llmcurate.base.disk.files import file_digest, write_atomic
from llmcurate.base.disk.sealed_json import read_json
from llmcurate.base.errors import UsageError
from llmcurate.base.tokenizer_file import load_tokenizer, roles_of
from train.data.shards import Shards, read_shards
from train.data.vocabulary import first_of
from train.device import pick_device
from train.evaluate.paired import Figure, interval
from train.evaluate.questions import Question, score_questions
from train.generate import load as load_own
from train.hf.load import check_ids, tokenizer_file
from train.hf.load import load as load_folder
from train.loop.distributed import Ranks
from train.loop.evaluate import Scores, Scoring, Text
from train.loop.start import start_of
from train.model.decoder import Decoder
from train.runs.checkpoint import checkpoint_to_use, tokenizer_of


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A model to be judged. ``begin`` is the id of the token placed before each text: the token
    before each text in training or, for a transformers folder, the last token that its tokenizer
    adds before a text. If there is no such token, ``begin`` is the tokenizer's token for the start
    of a text. If that is missing too, ``begin`` is the token for the end of a text."""

    folder: Path
    model: Decoder
    tokenizer: Tokenizer
    tokenizer_file: Path
    begin: int | None


def load_judged(folder: Path, *, device: str = "auto", which: str = "best") -> Judged:
    """Load a run's checkpoint or a transformers model. Raises ``LlmcurateError`` on failure."""
    place, checkpoint = pick_device(device), checkpoint_to_use(folder, which)
    if checkpoint is not None or not (folder / "config.json").is_file():
        model, tokenizer = load_own(folder, device=device, which=which)
        assert checkpoint is not None
        path = tokenizer_of(checkpoint)
    else:
        path = tokenizer_file(folder)
        tokenizer = load_tokenizer(path)
        config, weights = load_folder(folder)
        check_ids(path, tokenizer, config)
        model = Decoder(config)
        model.load_state_dict(weights)
        model = model.eval().to(place)
        model.special = roles_of(path, tokenizer)
    begin = next(reversed(first_of(model.special)), None)
    return Judged(folder=folder, model=model, tokenizer=tokenizer, tokenizer_file=path, begin=begin)


def open_model(folder: Path, *, device: str = "auto", which: str = "best") -> Judged:
    """Load a language model. Raises ``LlmcurateError`` for a model of another kind."""
    judged = load_judged(folder, device=device, which=which)
    if judged.model.config.form != "decoder" or not judged.model.config.writes:
        raise UsageError(
            f"{folder}: {judged.model.config.described} assigns no likelihood to a text; its"
            " held-out loss is in train.json"
        )
    return judged


@dataclass(frozen=True, kw_only=True)
class TextScores(Scores):
    """The scores of a text. ``bits_per_byte_interval``: the interval from resampling the documents.
    ``word_perplexity``: exp(nats / number of words and line ends), the measure of Penn Treebank and
    WikiText (Merity et al. 2017); None if that number is not known."""

    bits_per_byte_interval: list[float] | None
    word_perplexity: float | None


@dataclass(frozen=True, kw_only=True)
class Judgement:
    """The scores of a model: of each text, each set of questions and each task of
    lm-evaluation-harness, by name."""

    model: Path
    context: int
    seed: int
    device: str
    texts: dict[str, TextScores]
    questions: dict[str, dict[str, Figure]]
    tasks: dict[str, dict[str, Any]] = field(default_factory=dict)


def judge(
    judged: Judged,
    *,
    texts: Mapping[str, Path],
    questions: Mapping[str, Sequence[Question]],
    words: Mapping[str, int] | None = None,
    context: int | None = None,
    batch_rows: int = 8,
    precision: str = "auto",
    seed: int = 0,
) -> Judgement:
    """Score the model on ``texts`` (folders of shards) and ``questions``. ``words``: the number of
    words and line ends of each text. Confidence intervals come from resampling with ``seed``.
    ``context`` is in tokens, by default the model's context. Raises ``LlmcurateError`` if a file or
    the context does not suit the model."""
    model = judged.model
    width = model.config.context if context is None else context
    if width > model.config.context:
        raise UsageError(
            f"context is {width}, the model's is {model.config.context}: give that or less"
        )
    device = model.embedding.weight.device
    scoring = Scoring(Ranks(device=device), batch_rows, precision)
    opened_texts = {
        name: Text(shards_of(judged, path), width, judged.begin) for name, path in texts.items()
    }
    counted_words = words or {}
    text_scores = {
        name: _scores(text, model, scoring, seed, counted_words.get(name))
        for name, text in opened_texts.items()
    }
    question_scores = {
        name: score_questions(
            model, judged.tokenizer, judged.begin, own_questions, scoring, context=width, seed=seed
        )
        for name, own_questions in questions.items()
    }
    return Judgement(
        model=judged.folder,
        context=width,
        seed=seed,
        device=device.type,
        texts=text_scores,
        questions=question_scores,
    )


def shards_of(judged: Judged, folder: Path) -> Shards:
    """Open token shards. Raises ``LlmcurateError`` if another tokenizer encoded them."""
    shards = read_shards(folder)
    own = shards.tokenizer
    if own is None or not _encode_alike(own, judged.tokenizer_file):
        raise UsageError(
            f"{folder}: encoded by another tokenizer than {judged.tokenizer_file}: give the"
            " text itself"
        )
    vocab = min(shards.vocab_size, judged.model.config.vocab)
    return replace(shards, vocab_size=vocab)


def _encode_alike(first: Path, second: Path) -> bool:
    """Return True if two tokenizer.json differ at most in the tokens that they add around texts."""
    if file_digest(first) == file_digest(second):
        return True
    one, other = (read_json(path, limit=256 << 20) for path in (first, second))
    return {**one, "post_processor": None} == {**other, "post_processor": None}


def _scores(
    text: Text, model: Decoder, scoring: Scoring, seed: int, words: int | None
) -> TextScores:
    nats = text.nats(model, scoring)
    sizes, limits = text.shards.bytes, None
    if sizes is not None and sizes.sum():
        limits = interval(nats / math.log(2), sizes, seed)
    return TextScores(
        **vars(text.score(nats)),
        bits_per_byte_interval=limits,
        word_perplexity=math.exp(min(nats.sum() / words, 700)) if words else None,
    )


FILE = "scores.npz"
_MADE_OF = "made of"

Values = dict[str, npt.NDArray[np.float64]]  # by text


def document_nats(
    run: Path,
    texts: Mapping[str, Path],
    *,
    context: int,
    batch_rows: int = 8,
    precision: str = "auto",
    device: str = "auto",
) -> Values:
    """Return the loss in nats of every document of ``texts`` (folders of shards), in shard order.
    The newest checkpoint computes it, unless a file in the run's folder already has the values."""

    def nats(missing: Sequence[str]) -> Values:
        judged = open_model(run, device=device)
        place = judged.model.embedding.weight.device
        scoring = Scoring(Ranks(device=place), batch_rows, precision)
        opened = {
            name: Text(shards_of(judged, texts[name]), context, judged.begin) for name in missing
        }
        return {name: text.nats(judged.model, scoring) for name, text in opened.items()}

    content = {name: read_shards(path).fingerprint for name, path in texts.items()}
    return stored_values(run, content, str(context), nats)


def stored_values(
    run: Path, content: Mapping[str, str], how: str, compute: Callable[[Sequence[str]], Values]
) -> Values:
    """Return the values of each text. Those in a file in the run's folder are read; missing ones
    are computed with ``compute`` and stored. ``content``: a digest of each text. ``how``: settings
    of scoring."""
    weights = start_of(run).digest
    made_of = {name: f"{digest} {weights} {how}" for name, digest in content.items()}
    stored, stored_of = _read_stored(run / FILE)
    values = {name: stored[name] for name in content if stored_of.get(name) == made_of[name]}
    missing = [name for name in content if name not in values]
    if missing:
        values |= compute(missing)
        buffer = io.BytesIO()
        held = {**values, _MADE_OF: np.array(json.dumps(made_of))}
        np.savez(buffer, **held)  # type: ignore[arg-type]
        write_atomic(run / FILE, buffer.getvalue())
    return values


def _read_stored(path: Path) -> tuple[Values, dict[str, str]]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            made_of = json.loads(str(arrays[_MADE_OF]))
            return {name: arrays[name] for name in made_of}, made_of
    except (OSError, ValueError, KeyError, EOFError, MemoryError, zipfile.BadZipFile):
        return {}, {}
