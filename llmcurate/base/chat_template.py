"""The sandbox in which chat templates run, because strangers may have written them. The sandbox is
the template environment of transformers with limits on steps and sizes. It has no clock
(``strftime_now``), so the same conversation always gives the same text."""

from __future__ import annotations

import functools
import json
from collections.abc import Collection, Iterable
from typing import Any

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_STEPS = 10_000_000  # per conversation: entries of loops plus sizes of arguments
MOST_SIZE = 16_000_000  # characters of a text, entries of a list
BEGIN, END = "\ufdd0", "\ufdd1"  # noncharacters, which no text should have (Unicode 16, 23.7)


class Generation(Extension):
    """The template block ``generation``, which holds the assistant's words. Its text is written
    between the characters BEGIN and END."""

    tags = {"generation"}

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        begin, end = (nodes.Output([nodes.TemplateData(mark)]) for mark in (BEGIN, END))
        return nodes.Scope([begin, *body, end], lineno=line)


class Limited(NodeTransformer):
    """Rewrite a template to enforce limits: entries of loops are counted (MOST_STEPS), and ``~``
    becomes ``+``, whose result has a limited size (MOST_SIZE)."""

    def visit_For(self, node: nodes.For) -> nodes.For:
        self.generic_visit(node)
        node.iter = nodes.Call(nodes.Name("charged", "load"), [node.iter], [], None, None)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Expr:
        self.generic_visit(node)
        texts = (nodes.Filter(each, "string", [], [], None, None) for each in node.nodes)
        return functools.reduce(nodes.Add, texts)  # type: ignore[arg-type]


class Sandbox(ImmutableSandboxedEnvironment):
    """The environment of transformers' chat templates, with limits."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        loops = "jinja2.ext.loopcontrols"
        super().__init__(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loops])
        self.steps = 0
        for name in ("center", "format", "indent"):  # they can write texts of any width
            del self.filters[name]
        self.filters |= {
            "tojson": lambda value, ensure_ascii=False, **asked: json.dumps(  # Jinja's escapes HTML
                value, ensure_ascii=ensure_ascii, **asked
            ),
            "join": lambda items, mark="": self.call(None, mark.join, [str(one) for one in items]),
            "replace": lambda text, *asked: self.call(None, str(text).replace, *asked),
        }
        self.globals |= {"raise_exception": _fail, "charged": self.charged}

    def template(self, text: str) -> Template:
        """Compile a template. Raises jinja2.TemplateSyntaxError."""
        return self.from_string(Limited().visit(self.parse(text)))

    def write(self, template: Template, values: dict[str, Any]) -> str:
        """Return the text that a template writes. Exceptions of the template's code are raised."""
        self.steps, parts, size = 0, list[str](), 0
        for part in template.generate(values):
            parts.append(part)
            size += len(part)
            if size > MOST_SIZE:
                _fail(f"a text of more than {MOST_SIZE:,} characters")
        return "".join(parts)

    def wrap_str_format(self, value: Any) -> None:
        """Return None (no wrapper): `is_safe_attribute` refuses ``str.format``, because padding to
        a large width could fill the memory."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in ("format", "format_map") and super().is_safe_attribute(obj, attr, value)

    def charge(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MOST_STEPS:
            _fail(f"more than {MOST_STEPS:,} steps for one conversation")

    def charged(self, items: Iterable[Any]) -> Collection[Any]:
        held = items if isinstance(items, Collection) else list(items)
        self.charge(len(held))
        return held

    def call(self, context: Any, function: Any, /, *given: Any, **named: Any) -> Any:
        sizes = [1, *map(_size, given), *map(_size, named.values())]
        owner = getattr(function, "__self__", None)
        if isinstance(owner, str) and len(owner) * max(sizes) > MOST_SIZE:
            _fail(f"a text of more than {MOST_SIZE:,} characters")
        self.charge(sum(sizes))
        if context is None:
            return function(*given)
        return super().call(context, function, *given, **named)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        sizes = _size(left), _size(right)
        most = sizes[0] * sizes[1] if operator == "*" else sum(sizes)
        formats = operator == "%" and isinstance(left, str)
        if operator == "**" or formats or (operator != "%" and most > MOST_SIZE):
            _fail(f"{operator} may give a value of a size over {MOST_SIZE:,}")
        return super().call_binop(context, operator, left, right)


def _size(value: Any) -> int:
    if isinstance(value, list | tuple):
        return sum(len(each) if isinstance(each, str) else 1 for each in value)
    return int(abs(value)) if isinstance(value, int | float) else len(str(value))


def _fail(message: str) -> None:
    raise TemplateError(message)
