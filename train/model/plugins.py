"""Classes from a user's own file, as parts of the model: loaded, built, and their errors named.

A class is built as those are that it stands in for: ``FeedForward(config)``,
``SelfAttention(config, backend)``, ``Positions(config)``, ``SerialBlock(config, layer, backend)``.
Its keyword arguments after ``*`` are its settings. Whatever its code raises is one line with file
and line.
"""

from __future__ import annotations

import difflib
import inspect
import linecache
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from torch import nn

from llmcurate.base.disk.files import text_digest
from llmcurate.base.errors import LlmcurateError, RunFailed, UsageError
from llmcurate.base.index import modules_of
from train.model.config import ModelConfig
from train.model.plugin_settings import TRUST_CODE, Plugin, trusted

_PREFIX = "_own_part_"  # of modules that are made of users' files


def chosen(own: Any, table: Mapping[type, Callable[..., nn.Module]]) -> Callable[..., Any]:
    """What builds the part of these settings: the class that ``table`` has for their type, which
    modules of the lab add to, or the one in the file that they name, with its own settings. Raises
    ``LlmcurateError``.
    """
    if not isinstance(own, Plugin):
        if type(own) not in table:
            modules_of("train.lab.model")
        return table[type(own)]
    kind = class_of(own)
    options = _options(own, kind)

    def build(*args: Any) -> nn.Module:
        with blamed():
            return kind(*args, **options)

    return build


def plugins(config: ModelConfig) -> dict[str, Plugin]:
    """The parts of a model that come from files, by the names of their settings."""
    parts = {name: getattr(config, name) for name in ("attention", "feed_forward")}
    parts |= {name: getattr(config, name) for name in ("position", "residual")}
    return {name: part for name, part in parts.items() if isinstance(part, Plugin)}


def class_of(own: Plugin) -> type[nn.Module]:
    """The class that the settings name; runs the file, once. Raises ``LlmcurateError``."""
    file, _, name = own.kind.rpartition(":")
    if not trusted(own.code):
        raise UsageError(
            f"{file} of this model is Python that could do what you can on this machine: read it"
            f" (`code` in the checkpoint's config.json), then allow it by --trust-code, or"
            f" {TRUST_CODE}=1"
        )
    module = _module(file, own.code)
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        names = [key for key, value in vars(module).items() if _is_part(value, module)]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {close[0]}?" if close else f": it has {', '.join(names) or 'none'}"
        raise UsageError(f"{file}: no class {name} that is a torch.nn.Module{hint}")
    return kind


def _is_part(value: Any, module: types.ModuleType) -> bool:
    return isinstance(value, type) and value.__module__ == module.__name__


@lru_cache(maxsize=64)
def _module(file: str, code: str) -> types.ModuleType:
    module = types.ModuleType(_PREFIX + text_digest(code)[:16])
    module.__file__ = file
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    sys.modules[module.__name__] = module
    try:
        with blamed():
            exec(compile(code, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise UsageError(f"{file}:{error.lineno}: {error.msg}") from None
    return module


def _options(own: Plugin, kind: type[nn.Module]) -> dict[str, Any]:
    """The keyword arguments of a class: what is set, and what the settings of such a part say."""
    keywords = [
        name
        for name, parameter in inspect.signature(kind).parameters.items()
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    ]
    for name in own.options:
        if name not in keywords:
            close = difflib.get_close_matches(name, keywords, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise UsageError(f"{own.kind}: no keyword {name!r} after `*` in its __init__{hint}")
    stated = {name: getattr(own, name) for name in keywords if hasattr(own, name)}
    return stated | own.options


@contextmanager
def blamed() -> Iterator[None]:
    """Turn an exception that a user's file raised into a line that names the place."""
    try:
        yield
    except Exception as error:
        if (failure := failure_of(error)) is None:
            raise
        raise failure from error


def failure_of(error: BaseException) -> LlmcurateError | None:
    """The line of an exception that was raised in a user's file, or in what that called; None of
    any other.
    """
    if isinstance(error, LlmcurateError):
        return None
    place, trace = None, error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__")).startswith(_PREFIX):
            place = f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    if place is None:
        return None
    reason = " ".join(str(error).split())[:200]
    kind = type(error).__name__
    return RunFailed(f"{place}: {kind}: {reason}" if reason else f"{place}: {kind}")
