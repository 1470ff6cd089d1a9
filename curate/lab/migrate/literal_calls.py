"""The calls in a Python script, with the arguments that are constants. The script is only parsed.

A value counts as constant if it can be computed from constants. This covers names that are assigned
once in their function or module, f-strings and sums, `os.path.join`, keyword arguments that are
read from an object (`config.size` is 5 after `config = Config(size=5)`), and defaults of argparse.
Any other value, such as a lambda, is an `Expression`.
"""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llmcurate.base.errors import UsageError
from llmcurate.base.terminal import one_line

MOST_DEPTH = 60  # of an expression, including the values of its names
MOST_VALUES = 200_000  # evaluated per script: a chain of names that double each other never ends
MOST_CHARS = 10_000  # of a string
_SHOWN = 60  # characters of an expression in a message
_UNKNOWN = object()


@dataclass(frozen=True)
class Expression:
    """A value in a script that is not constant."""

    text: str  # as written in the script
    node: ast.AST = field(compare=False, repr=False)  # parsed

    @property
    def line(self) -> int:
        return int(getattr(self.node, "lineno", 0))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Call:
    """A call in a script."""

    name: str  # of the function, without its module or an alias
    line: int
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]  # with the key `**` for a mapping that is not constant

    def __str__(self) -> str:
        return f"{self.name}(...)"


def parsed(text: str, path: Path) -> ast.Module:
    """Return the tree of a script. Raise UsageError for a text that is not Python."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise UsageError(f"{path}:{error.lineno or 1}: not Python: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError):  # null bytes, deep nesting
        raise UsageError(f"{path}: not Python: null bytes, or nested too deeply") from None


def calls_of(text: str, path: Path, known: Container[str]) -> list[Call | Expression]:
    """Return the calls of functions in `known`, in the order of the script. If such a call is in a
    list, the list's other entries are returned too. Raise UsageError for a text that is not
    Python."""
    tree = parsed(text, path)
    reader = _Reader(text, tree)
    return [value for value, is_known in reader.entries(tree, known) if is_known]


class _Reader:
    def __init__(self, text: str, tree: ast.Module) -> None:
        self.lines = text.split("\n")
        self.values = 0  # evaluated so far
        self.imported = {
            alias.asname: alias.name.rpartition(".")[2]
            for node in ast.walk(tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
            if alias.asname
        }
        self.options = dict(_options(tree))
        self.scopes: list[dict[str, ast.expr | None]] = []

    def entries(self, node: ast.AST, known: Container[str]) -> Iterator[tuple[Any, bool]]:
        """Yield (value, wanted) for calls and list entries, in the order of the script: for each
        call of a function in `known`, and for each other entry of a list that has such a call as an
        entry. `wanted` is False if the entry is only a name. Callers skip such entries."""
        stack = [(node, False)]
        while stack:
            node, listed = stack.pop()
            if isinstance(node, _Leave):
                self.scopes.pop()
                continue
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
                self.scopes.append(_names(node))
                stack.append((_Leave(), False))
            if isinstance(node, ast.expr):
                call = isinstance(node, ast.Call) and self._name(node.func) in known
                if call or listed:
                    yield self.value(node), call or not isinstance(node, ast.Name)
            below = isinstance(node, ast.List) and any(
                isinstance(each, ast.Call) and self._name(each.func) in known for each in node.elts
            )
            stack += [(child, below) for child in reversed([*ast.iter_child_nodes(node)])]

    def value(self, node: ast.expr, depth: int = 0) -> Any:
        """Return the value of an expression: a constant, a `Call` or an `Expression`."""
        self.values += 1
        if depth > MOST_DEPTH or self.values > MOST_VALUES:
            return self._expression(node)
        value = self._evaluated(node, depth + 1)
        too_long = isinstance(value, (str, bytes)) and len(value) > MOST_CHARS
        return self._expression(node) if value is _UNKNOWN or too_long else value

    def _evaluated(self, node: ast.expr, depth: int) -> Any:
        """Return the value of an expression, or _UNKNOWN if it is neither constant nor a call."""
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                scope = next((each for each in reversed(self.scopes) if node.id in each), {})
                assigned = scope.get(node.id)
                return self.value(assigned, depth) if assigned else _UNKNOWN
            case ast.List() | ast.Tuple() | ast.Set():
                return tuple(self.value(each, depth) for each in node.elts)
            case ast.Dict():
                keys = [self.value(key, depth) if key else _UNKNOWN for key in node.keys]
                if not all(map(_plain, keys)):
                    return _UNKNOWN
                values = [self.value(each, depth) for each in node.values]
                return dict(zip(keys, values, strict=True))
            case ast.JoinedStr():
                parts = [self.value(each, depth) for each in node.values]
                return "".join(map(str, parts)) if all(map(_plain, parts)) else _UNKNOWN
            case ast.FormattedValue(conversion=-1, format_spec=None):
                return self.value(node.value, depth)
            case ast.UnaryOp(op=ast.USub()):
                number = self.value(node.operand, depth)
                return -number if isinstance(number, (int, float)) else _UNKNOWN
            case ast.BinOp(op=ast.Add()):
                left, right = self.value(node.left, depth), self.value(node.right, depth)
                return left + right if _plain(left) and type(left) is type(right) else _UNKNOWN
            case ast.Attribute():
                owner = self.value(node.value, depth)
                of_call = isinstance(owner, Call) and node.attr in owner.keywords
                return owner.keywords[node.attr] if of_call else self._option(node, depth)
            case ast.Call():
                return self._call(node, depth)
        return _UNKNOWN

    def _call(self, node: ast.Call, depth: int) -> Any:
        name = self._name(node.func)
        arguments: tuple[Any, ...] = ()
        for each in node.args:
            inner = self.value(each.value, depth) if isinstance(each, ast.Starred) else None
            arguments += inner if isinstance(inner, tuple) else (self.value(each, depth),)
        if name == "join" and arguments and all(isinstance(each, str) for each in arguments):
            return posixpath.join(*arguments)
        keywords: dict[str, Any] = {}
        for keyword in node.keywords:
            value = self.value(keyword.value, depth)
            expanded = keyword.arg is None and isinstance(value, dict)
            keywords |= value if expanded else {keyword.arg or "**": value}
        return Call(name, node.lineno, arguments, keywords)

    def _option(self, node: ast.Attribute, depth: int) -> Any:
        """Return the default of an argparse option that is read as `args.option`."""
        default = self.options.get(node.attr) if isinstance(node.value, ast.Name) else None
        return self.value(default, depth) if default else _UNKNOWN

    def _name(self, function: ast.expr) -> str:
        if isinstance(function, ast.Attribute):
            return function.attr
        name = function.id if isinstance(function, ast.Name) else ""
        return self.imported.get(name, name)

    def _expression(self, node: ast.expr) -> Expression:
        end = node.end_col_offset if node.end_lineno == node.lineno else None
        written = self.lines[node.lineno - 1].encode()[node.col_offset : end]
        return Expression(one_line(written.decode("utf-8", "replace"))[:_SHOWN], node)


class _Leave(ast.AST):
    """A marker on the stack of nodes for the end of a function, whose names are then dropped."""


def _names(block: ast.AST) -> dict[str, ast.expr | None]:
    """Return {name: value} of the names that a module or function assigns once. Other names that it
    binds, such as parameters and loop variables, have the value None."""
    names: dict[str, ast.expr | None] = {}
    stack = [*ast.iter_child_nodes(block)]
    while stack:
        node = stack.pop()
        match node:
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                names[name] = None if name in names else node.value
                stack += [node.value] if node.value else []
                continue
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                names[name] = None
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            stack += ast.iter_child_nodes(node)
    return names


def _options(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Yield the names and defaults of options that a script adds to an argparse parser."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument":
            flags = [each.value for each in node.args if isinstance(each, ast.Constant)]
            for keyword in node.keywords:
                if keyword.arg == "default" and flags and str(flags[-1]).startswith("--"):
                    yield str(flags[-1])[2:].replace("-", "_"), keyword.value


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float)) and not isinstance(value, bool)
