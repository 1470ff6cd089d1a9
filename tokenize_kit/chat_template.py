"""A chat template for tokenizer_config.json: Jinja, as transformers reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenize_kit.errors import TokenizerError


def read_template(path: Path) -> str:
    """The template; raises TokenizerError naming the file, and the line that does not parse."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _wrong(path, str(error.strerror)) from None
    except UnicodeDecodeError:
        raise _wrong(path, "not UTF-8 text") from None
    if not text.strip():
        raise _wrong(path, "it is empty")
    try:
        from jinja2 import Environment, TemplateSyntaxError, nodes
        from jinja2.ext import Extension
    except ModuleNotFoundError:
        raise _wrong(path, "checking it needs jinja2: pip install jinja2") from None

    class Generation(Extension):
        """transformers' block around what the assistant says."""

        tags = {"generation"}

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    environment = Environment(extensions=[Generation, "jinja2.ext.loopcontrols"])
    try:
        environment.parse(text)
    except TemplateSyntaxError as error:
        raise _wrong(path, f"line {error.lineno}: {error.message}") from None
    return text


def _wrong(path: Path, what: str) -> TokenizerError:
    return TokenizerError(f"chat template {path}: {what}", exit_code=2)
