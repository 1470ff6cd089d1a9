"""The index of a package: the names that its modules declare by decorators, read without imports.

`@step("c4")` declares a class, `@reader("pdf", endings=(".pdf",))` a function. The package's
index.json has each name, its module and the decorator's other arguments, so that help and recipe
checks read one small file. `make reference` writes it. If index.json lacks a name, `declared`
searches the sources for it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from llmcurate.base.start import HOME

FILE = "index.json"


@dataclass(frozen=True)
class Declared:
    """A class or function that a decorator declares."""

    name: str  # as users write it
    place: str  # module:class or module:function
    facts: dict[str, Any] = field(default_factory=dict)  # keyword arguments of the decorator

    @property
    def module(self) -> str:
        return self.place.partition(":")[0]

    def load(self) -> Any:
        return getattr(import_module(self.module), self.place.partition(":")[2])


def index_of(package: str) -> dict[str, dict[str, Declared]]:
    """Return a package's index.json as {decorator: {name: declaration}}, as in {"step": {"c4":
    ...}}."""
    text = Path(HOME, package, FILE).read_text(encoding="utf-8")
    return {
        word: {each["name"]: Declared(**each) for each in entries}
        for word, entries in json.loads(text).items()
    }


@cache
def declared(package: str, word: str) -> dict[str, Declared]:
    """Return {name: declaration} for each use of the decorator `word` in the sources of a package,
    or of one of its folders (such as `curate.formats`). No module is imported."""
    decorator = re.compile(rf"^@(?:\w+\.)?{word}\(".encode(), re.MULTILINE)
    found = {}
    for path in sorted(Path(HOME, *package.split(".")).rglob("*.py")):
        if decorator.search(content := path.read_bytes()):
            module = ".".join(path.relative_to(HOME).with_suffix("").parts)
            found.update({each.name: each for each in _of_module(module, content, word)})
    return found


def _of_module(module: str, content: bytes, word: str) -> Iterator[Declared]:
    for node in ast.parse(content).body:
        for call in getattr(node, "decorator_list", ()):
            function = getattr(call, "func", None)
            if word not in (getattr(function, "id", None), getattr(function, "attr", None)):
                continue
            place = f"{module}:{getattr(node, 'name', '')}"
            name = getattr(call.args[0], "value", None) if call.args else None
            if isinstance(function, ast.Name) and isinstance(name, str):
                facts = {str(key.arg): ast.literal_eval(key.value) for key in call.keywords}
                yield Declared(name, place, facts)
            else:  # a decorator without a name, such as `@app.command()`
                yield Declared(place, place, {"word": _first_word(node, call)})


def _first_word(node: ast.stmt, call: ast.Call) -> str:
    """Return the first word after `llmcurate` in the command that the function `node` defines: the
    group of the command (`dedup` for `dedup_app`), the NAME in `@app.command(NAME)` or
    `@command(app, SETTINGS, NAME)`, or the name of the function."""
    is_method = isinstance(call.func, ast.Attribute)
    owner = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
    group = ast.unparse(owner)
    if group != "app":
        return group.removesuffix("_app")
    names = call.args if is_method else call.args[2:]
    name = ast.literal_eval(names[0]) if names else getattr(node, "name", "")
    return str(name).replace("_", "-")


def modules_of(package: str) -> list[ModuleType]:
    """Import every module of a folder and return the modules, sorted by name. So a new module need
    not be registered anywhere. For a missing folder, return []."""
    names = sorted(path.stem for path in Path(HOME, *package.split(".")).glob("*.py"))
    return [import_module(f"{package}.{name}") for name in names if name != "__init__"]


def index_text(package: str, words: tuple[str, ...]) -> str:
    """Return the text of a package's index.json, made from the sources: for each decorator in
    `words`, the classes or functions that it declares, one per line. Those that are already in the
    file keep their order."""
    known = index_of(package)
    parts = []
    for word in words:
        found = declared(package, word)
        order = [*(name for name in known.get(word, {}) if name in found), *found]
        lines = ",\n  ".join(json.dumps(asdict(found[name])) for name in dict.fromkeys(order))
        parts.append(f' "{word}": [\n  {lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"
