"""Load and build classes from a user's own file as parts of the model. A class gets the arguments
of the class that it replaces: ``FeedForward(config)``, ``SelfAttention(config, backend)``,
``Positions(config)``, ``SerialBlock(config, layer, backend)``. The keyword arguments after ``*``
are its settings. An exception in its code becomes one line with file and line number.
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

_PREFIX = "_own_part_"  # of the names of modules made from users' files


def chosen(own: Any, table: Mapping[type, Callable[..., nn.Module]]) -> Callable[..., Any]:
    """Return the class or function that builds a part of the model from the settings ``own``: for a
    ``Plugin`` the class in the user's file, for other settings the entry in ``table`` for their
    type. Modules of train/lab/model add entries to ``table`` when they are imported. Raises
    ``LlmcurateError`` if the user's class cannot be used."""
    if not isinstance(own, Plugin):
        if type(own) not in table:
            modules_of("train.lab.model")
        return table[type(own)]
    kind = class_of(own)
    options = _options(own, kind)

    def build(*args: Any) -> nn.Module:
        with plugin_errors():
            return kind(*args, **options)

    return build


def plugins(config: ModelConfig) -> dict[str, Plugin]:
    """Return the parts of a model that come from users' files, by the names of their settings."""
    parts = {name: getattr(config, name) for name in ("attention", "feed_forward")}
    parts |= {name: getattr(config, name) for name in ("position", "residual")}
    return {name: part for name, part in parts.items() if isinstance(part, Plugin)}


def class_of(own: Plugin) -> type[nn.Module]:
    """Return the class that the settings name. The file of the class runs once. Raises
    ``LlmcurateError`` if the user does not trust the file, or the file has no such class."""
    file, _, name = own.kind.rpartition(":")
    if not trusted(own.code):
        raise UsageError(
            f"{file} of this model is Python code that can do anything you can do on this machine:"
            f" read it (`code` in the checkpoint's config.json), then allow it with --trust-code or"
            f" {TRUST_CODE}=1"
        )
    module = _module(file, own.code)
    kind = getattr(module, name, None)
    if not isinstance(kind, type) or not issubclass(kind, nn.Module):
        names = [
            key
            for key, value in vars(module).items()
            if isinstance(value, type) and value.__module__ == module.__name__
        ]
        close = difflib.get_close_matches(name, names, n=1)
        hint = f"; did you mean {close[0]}?" if close else f": it has {', '.join(names) or 'none'}"
        raise UsageError(f"{file}: no class {name} that is a torch.nn.Module{hint}")
    return kind


@lru_cache(maxsize=64)
def _module(file: str, code: str) -> types.ModuleType:
    module = types.ModuleType(_PREFIX + text_digest(code)[:16])
    module.__file__ = file
    linecache.cache[file] = len(code), None, code.splitlines(keepends=True), file
    sys.modules[module.__name__] = module
    try:
        with plugin_errors():
            exec(compile(code, file, "exec"), module.__dict__)
    except SyntaxError as error:
        raise UsageError(f"{file}:{error.lineno}: {error.msg}") from None
    return module


def _options(own: Plugin, kind: type[nn.Module]) -> dict[str, Any]:
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
def plugin_errors() -> Iterator[None]:
    """Turn an exception from a user's file into an error that names file and line."""
    try:
        yield
    except Exception as error:
        if (failure := failure_of(error)) is None:
            raise
        raise failure from error


def failure_of(error: BaseException) -> LlmcurateError | None:
    """Return the error for an exception in a user's file or in code called by it, else None."""
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
