"""Triton's interpreter without what it does again and again: at each call of a function it looked
through its language, to replace what it had replaced; and of each whole number it computed another
of 64 bits, to see whether it overflows."""

from __future__ import annotations

import dataclasses
import functools
import os
from types import FunctionType, ModuleType

import pytest

os.environ.setdefault("TRITON_INTERPRET", "1")
if pytest.importorskip("triton") and os.environ["TRITON_INTERPRET"] != "0":
    from triton import language
    from triton.runtime import interpreter

    _replace = interpreter._patch_lang

    @functools.cache
    def _seen_by(function: FunctionType) -> list[ModuleType]:
        modules = (language, language.core)
        return [one for one in modules if one in function.__globals__.values()]

    def _replace_once(function: FunctionType) -> interpreter._LangPatchScope:
        whole = any(language.core.is_builtin(one.load) for one in _seen_by(function))
        return _replace(function) if whole else interpreter._LangPatchScope()

    interpreter._patch_lang = _replace_once
    _builder = interpreter.interpreter_builder
    _builder.options = dataclasses.replace(_builder.options, sanitize_overflow=False)


@pytest.fixture(autouse=True)
def _flex_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    """FlexAttention computes on a CPU what it would trace first; its gradients need the trace."""
    name = "torch.nn.attention.flex_attention._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG"
    monkeypatch.setattr(name, True)
