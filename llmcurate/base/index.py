"""The index of a package: what its modules declare by decorators, known without loading them.

`@step("c4")` stands above a class, `@reader("pdf", endings=(".pdf",))` above a function. The file
index.json of the package keeps name, module and what else the decorator says, so that help and
checks of recipes read one small file. `make reference` writes it. The sources are what holds: who
misses a name there looks through them by `declared`.
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
    """name: as users write it; place: `module:Class`; facts: what the decorator says beside it."""

    name: str
    place: str
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def module(self) -> str:
        """The module that declares it."""
        return self.place.partition(":")[0]

    def load(self) -> Any:
        """The class or the function itself."""
        return getattr(import_module(self.module), self.place.partition(":")[2])


def index_of(package: str) -> dict[str, dict[str, Declared]]:
    """What index.json of a package holds: by decorator, then by name."""
    text = Path(HOME, package, FILE).read_text(encoding="utf-8")
    return {
        word: {each["name"]: Declared(**each) for each in entries}
        for word, entries in json.loads(text).items()
    }


@cache
def declared(package: str, word: str) -> dict[str, Declared]:
    """What the sources of a package, or of a folder of it (`curate.formats`), declare by a
    decorator, by name. Nothing is loaded."""
    sign = re.compile(rf"^@(?:\w+\.)?{word}\(".encode(), re.MULTILINE)
    found = {}
    for path in sorted(Path(HOME, *package.split(".")).rglob("*.py")):
        if sign.search(content := path.read_bytes()):
            module = ".".join(path.relative_to(HOME).with_suffix("").parts)
            found.update({each.name: each for each in _of_module(module, content, word)})
    return found


def _of_module(module: str, content: bytes, word: str) -> Iterator[Declared]:
    """What a module declares. A call whose first argument is no text, as `@app.command()`, declares
    its function under the place of it."""
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
            else:
                yield Declared(place, place)


def modules_of(package: str) -> list[ModuleType]:
    """Import every module of a folder, in the order of names; [] if there is no such folder. So a
    module adds to a table by being in the folder."""
    names = sorted(path.stem for path in Path(HOME, *package.split(".")).glob("*.py"))
    return [import_module(f"{package}.{name}") for name in names if name != "__init__"]


def index_text(package: str, words: tuple[str, ...]) -> str:
    """The text of index.json, by the sources: a line a name, known names in the order that they
    have, new ones behind them."""
    known = index_of(package)
    parts = []
    for word in words:
        found = declared(package, word)
        order = [*(name for name in known.get(word, {}) if name in found), *found]
        lines = ",\n  ".join(json.dumps(asdict(found[name])) for name in dict.fromkeys(order))
        parts.append(f' "{word}": [\n  {lines}\n ]')
    return "{\n" + ",\n".join(parts) + "\n}\n"
