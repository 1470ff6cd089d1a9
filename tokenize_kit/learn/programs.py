"""The programs that will open a tokenizer, decided from the options of its training.

For byte-level BPE, a tokenizer with the pattern of the options and one merge is converted to the
formats of llama.cpp and tiktoken. A program is left out if its format cannot hold this one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from llmcurate.base.disk.units import either
from llmcurate.base.errors import LlmcurateError
from llmcurate.base.roles import Roles
from llmcurate.base.tokenizer_file import MOST_IDS
from tokenize_kit.formats.forms import Added, ByteBpe, CannotHold
from tokenize_kit.formats.gguf import known_difference, to_metadata
from tokenize_kit.formats.tiktoken import to_ranks
from tokenize_kit.learn.options import TrainingOptions
from tokenize_kit.pattern.automaton import compile_pattern
from tokenize_kit.pattern.named import PATTERNS
from tokenize_kit.pattern.parse import UnsupportedPattern

_SMALL = ByteBpe(
    {bytes([byte]): byte for byte in range(256)} | {b"ab": 256},
    ((b"a", b"b"),),
    (),
    (Added("<|endoftext|>", 257, special=True),),
    roles=Roles(ends=(257,)),
)
# Options that can prevent llama.cpp from opening byte-level BPE.
_CLOSING = (
    *("normalize", "space_token", "superwords", "regex", "graphemes", "digits", "forbid"),
    *("newlines", "space_runs", "script_boundaries"),
)


def _refusal(write: Callable[[ByteBpe], Any], form: ByteBpe) -> str:
    try:
        write(form)
    except (CannotHold, UnsupportedPattern) as error:
        return str(error)
    return ""


def refusals(options: TrainingOptions) -> dict[str, str]:
    """Return {program: why it cannot open the tokenizer of these options, or "" if it can} for
    llama.cpp, tiktoken and SentencePiece. transformers and tokenizers open every tokenizer."""
    model = f"its model is {options.learner.title}"
    if not options.lossless and (options.learner.bytes_only or options.space_token is not None):
        model = "it normalizes text or has a token for spaces"
    elif options.learner.bytes_only:
        form = replace(_SMALL, parts=options.cutting.parts)
        difference = known_difference(form).removeprefix("; ")
        syntax = _refusal(lambda form: compile_pattern(form.parts[0], "rust"), form)
        return {
            "llama.cpp": _refusal(to_metadata, form) or difference,
            "tiktoken": _refusal(to_ranks, form) or syntax,
            "SentencePiece": model,
        }
    opens = options.learner.has_model_file and options.space_token is None
    return {"llama.cpp": model, "tiktoken": model, "SentencePiece": "" if opens else model}


def _opens_llama_cpp(options: TrainingOptions, **changes: Any) -> bool:
    try:
        return not refusals(replace(options, **changes))["llama.cpp"]
    except LlmcurateError:
        return False  # these options exclude one another


def way_to_llama_cpp(options: TrainingOptions) -> str:
    """Return the smallest change of command-line options with which llama.cpp opens the tokenizer,
    such as "leave out --digits"."""
    default = TrainingOptions()
    use = [] if options.learner.bytes_only else ["--model bpe"]
    if use:
        others: dict[str, Any] = {"pattern": None, "character_coverage": None, "sizes": (MOST_IDS,)}
        options = replace(options, model="bpe", character_seeds=False, **others)
    given = [name for name in _CLOSING if getattr(options, name) != getattr(default, name)]
    named = [options.pattern, *(name for name, pattern in PATTERNS.items() if pattern.gguf)]
    for left_out in ([], *([name] for name in given), given):
        changes = {name: getattr(default, name) for name in left_out}
        patterns = [p for p in named if _opens_llama_cpp(options, **changes | {"pattern": p})]
        if patterns:
            break
    if options.pattern not in patterns:
        use.append(f"--pattern {either(tuple(map(str, patterns)))}")
    flags = [f"--{name}".replace("_", "-").replace("regex", "pattern-file") for name in left_out]
    steps = [f"leave out {' and '.join(flags)}"] if flags else []
    return " and ".join(steps + ([f"use {' '.join(use)}"] if use else []))


def opening_lines(options: TrainingOptions) -> list[str]:
    """Return a line that names the programs that will open the tokenizer. If llama.cpp will not,
    add a line that says which options to change."""
    reasons = refusals(options)
    opens = ["transformers", *(name for name, reason in reasons.items() if not reason)]
    closed = tuple(name for name, reason in reasons.items() if reason)
    lines = [f"opens in {', '.join(opens)}; not in {either(closed)}"]
    return lines + [f"for llama.cpp, {way_to_llama_cpp(options)}"] * bool(reasons["llama.cpp"])
