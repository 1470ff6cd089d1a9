"""YAML from untrusted sources: bounded size and depth, no duplicate keys, line numbers in errors.

PyYAML alone would keep the last of two equal keys, recurse until Python's stack ends, and expand
aliases without limit.
"""

from __future__ import annotations

from typing import Any, get_args

import yaml

from llmcurate.base.disk.units import as_whole
from llmcurate.base.errors import UsageError

MOST_BYTES = 4 << 20
MOST_NODES = 300_000  # with aliases followed
MOST_DEPTH = 40
MOST_DIGITS = 100  # characters of a number or a date
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"


def within_64_bits(value: Any) -> Any:
    """Return `value` unchanged. Raises ValueError for a whole number of more than 64 bits."""
    if isinstance(value, int) and abs(value) >= 1 << 63:
        raise ValueError("a number of more than 64 bits")
    return value


def read_counts(cls: Any, value: Any, info: Any) -> Any:
    """Convert a text such as `100k` to a whole number, if the setting takes only whole numbers.
    Other values are returned unchanged. `cls` is the class that has the setting."""
    kinds = {kind := cls.model_fields[info.field_name].annotation, *get_args(kind)}
    return as_whole(value) if int in kinds and kinds.isdisjoint({str, float}) else value


def read_yaml(text: str, source: str, lines: bool = True) -> tuple[Any, yaml.Node | None]:
    """Return (value, root node) of a YAML text; `line_of` finds line numbers in the tree of nodes.
    Raises UsageError with the problem, the `source` (file or option) and, if `lines`, the line."""
    if len(text) > MOST_BYTES:
        raise UsageError(f"{source}: it has more than {MOST_BYTES >> 20} MiB of YAML")
    try:
        _check_events(text, source)
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if root is None:
                return None, None
            _Check(loader, source).weight(root)
            return loader.construct_document(root), root
        finally:
            loader.dispose()
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark and lines else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        if problem.startswith("but "):
            problem = f"{getattr(error, 'context', None)}, {problem}"
        if mark and "".join(text.split("\n")[mark.line : mark.line + 1]).lstrip(" ")[:1] == "\t":
            problem = "the line begins with a tab: indent it with spaces"
        raise UsageError(f"{source}{line}: not YAML: {problem}") from None


def line_of(root: yaml.Node | None, *keys: Any) -> int | None:
    """Return the line number of the value at the path `keys` (keys and indices) below `root`. If
    the path ends early, return the line of its last key that exists, or None."""
    node, line = root, None
    for key in keys:
        child = None
        if isinstance(node, yaml.MappingNode):
            for k, v in node.value:
                if k.value == str(key):
                    child, line = v, k.start_mark.line + 1
        elif isinstance(node, yaml.SequenceNode) and key in range(len(node.value)):
            child = node.value[key]
            line = child.start_mark.line + 1
        if child is None:
            break
        node = child
    return line


def _check_events(text: str, source: str) -> None:
    """Raise UsageError if a YAML text is too deep or too long to build a tree by recursion."""
    depth = 0
    for number, event in enumerate(yaml.parse(text, _Loader)):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > MOST_DEPTH:
            line = f":{event.start_mark.line + 1}" if event.start_mark else ""
            raise UsageError(f"{source}{line}: nested more than {MOST_DEPTH} levels deep")
        if number == 2 * MOST_NODES:
            raise _too_many(source)


def _too_many(source: str) -> UsageError:
    return UsageError(f"{source}: it has more than {MOST_NODES:,} keys, values and entries")


class _Check:
    """A check of a tree of YAML nodes. A node is checked once, even if it has several aliases."""

    def __init__(self, loader: Any, source: str) -> None:
        self.loader, self.source = loader, source
        self._weights: dict[int, int] = {}  # 0 while a node's children are being checked

    def weight(self, node: yaml.Node) -> int:
        """Return the number of nodes in a node's tree. Aliases count like the values they name."""
        at = f"{self.source}:{node.start_mark.line + 1}"
        weight_before = self._weights.get(id(node))
        if weight_before == 0:
            raise UsageError(f"{at}: an alias inside the value that it names")
        if weight_before is not None:
            return weight_before
        self._weights[id(node)] = 0
        children: list[yaml.Node] = []
        if isinstance(node, yaml.MappingNode):
            children = [child for pair in node.value for child in pair]
            self._keys(node)
        elif isinstance(node, yaml.SequenceNode):
            children = node.value
        else:
            self._value(node, at)
        weight = 1 + sum(map(self.weight, children))
        if weight > MOST_NODES:
            raise _too_many(self.source)
        self._weights[id(node)] = weight
        return weight

    def _keys(self, node: yaml.MappingNode) -> None:
        seen: dict[Any, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == _MERGE:
                continue
            line = key.start_mark.line + 1
            value = self._value(key, f"{self.source}:{line}")
            if value in seen:
                raise UsageError(
                    f"{self.source}:{line}: the key {key.value!r} appears twice, first in line"
                    f" {seen[value]}: remove one of them"
                )
            seen[value] = line

    def _value(self, node: yaml.Node, at: str) -> Any:
        if node.tag in (_TEXT, _MERGE):
            return node.value
        if len(node.value) > MOST_DIGITS:
            raise UsageError(f"{at}: {node.value[:20]}... is too long for a number or a date")
        try:
            return self.loader.construct_object(node)
        except ValueError as error:
            raise UsageError(f"{at}: {node.value}: {error}") from None
