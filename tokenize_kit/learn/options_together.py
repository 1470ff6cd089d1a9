"""Options of a training that do not go together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from llmcurate.base.errors import UsageError
from tokenize_kit.learn.weights import parse_weights

if TYPE_CHECKING:
    from tokenize_kit.learn.options import TrainingOptions


def check_together(options: TrainingOptions) -> None:
    """Raises LlmcurateError (exit code 2) for the first that do not."""
    _check_mixture(options)
    _check_model(options)
    _check_superwords(options)
    if options.character_seeds:
        _check_character_seeds(options)
    if options.model == "unigram":
        _check_unigram(options)


def _refuse(given: dict[str, bool], reason: str) -> None:
    for name, is_given in given.items():
        if is_given:
            raise UsageError(f"{name}: {reason}")


def _check_model(options: TrainingOptions) -> None:
    if options.model == "wordpiece":
        excluded = {
            "pattern": options.pattern not in (None, "bert"),
            "graphemes": options.graphemes,
            "regex": bool(options.regex),
            "newlines": options.newlines is not None,
            "space-runs": bool(options.space_runs),
            "space-token": options.space_token is not None,
        }
        _refuse(excluded, "wordpiece is cut as BERT cuts; leave it out")
    if options.model not in ("wordpiece", "unigram") and options.pattern == "bert":
        raise UsageError("pattern bert: only for wordpiece, which leaves white space out")
    if options.model == "bpe" and options.character_coverage is not None:
        raise UsageError("character-coverage: bpe merges bytes; leave it out, or use char-bpe")


def _check_unigram(options: TrainingOptions) -> None:
    if options.normalise == "nfc":
        raise UsageError("normalise nfc: SentencePiece has no such rule; use nfkc or nmt_nfkc")
    if options.digits not in (None, "single"):
        raise UsageError("unigram splits digits one by one: use digits single")
    excluded = {
        "pattern": options.pattern not in (None, "metaspace"),  # SentencePiece's own
        "regex": bool(options.regex),
        "graphemes": options.graphemes,
        "forbid": bool(options.forbid),
        "newlines": options.newlines is not None,
        "space-runs": bool(options.space_runs),
        "script-boundaries": options.script_boundaries,  # SentencePiece's has them by itself
        "min-frequency": options.min_frequency != 2,
        "max-token-length": options.max_token_length is not None,
    }
    _refuse(excluded, "not for unigram; use bpe or char-bpe")


def _check_character_seeds(options: TrainingOptions) -> None:
    if (options.model, options.learner) != ("unigram", "own"):
        raise UsageError("character-seeds: only for the model unigram and the backend own")
    given = {"dictionary": options.dictionary is not None}
    _refuse(given, "not with character-seeds; leave one of them out")


def _check_superwords(options: TrainingOptions) -> None:
    if options.superwords is None:
        return
    if (options.model, options.learner) != ("bpe", "own"):
        raise UsageError("superwords: only for the model bpe and the backend own")
    excluded = {
        "regex": bool(options.regex),
        "graphemes": options.pattern_name == "graphemes",
        "dictionary": options.dictionary is not None,
        "space-token": options.space_token is not None,
    }
    _refuse(excluded, "not with superwords; leave one of them out")
    least, size = options.least_size, min(options.sizes, default=0)
    if not least <= options.superwords < size:
        raise UsageError(f"superwords {options.superwords}: give {least} to {size - 1}")


def _check_mixture(options: TrainingOptions) -> None:
    if options.weights is not None:
        parse_weights(options.weights)
        if options.temperature is not None:
            raise UsageError("weights and temperature: give one of them")
    if options.by is not None and options.temperature is None:
        raise UsageError("by: only with temperature")
