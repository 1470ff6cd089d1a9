"""Write the floor plan (docs/architecture.md) and docs/modules.md from docstrings.

python scripts/floor_plan.py            # writes it
python scripts/floor_plan.py --check    # exit status 1 where a page differs
"""

from __future__ import annotations

import ast
import sys
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGES = tuple(ROOT / "docs" / name for name in ("architecture.md", "modules.md"))
# Rooms of curate in the order of import-linter's layers: each may import those below it.
ROOMS = (
    "lab", "cli", "experiment", "api", "refresh", "demo", "inspect", "run", "engines", "products",
    "mix", "dedup", "scoring", "extract", "filters", "corpus", "steps", "formats", "fetch",
    "documents", "text",
)  # fmt: skip
PACKAGES = ("curate", "tokenize_kit", "train", "llmcurate")


@cache
def first_sentence(path: Path) -> str:
    """The first paragraph of a module's docstring up to its first full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".")


def described(path: Path) -> str:
    """A module's or a package's first sentence."""
    return first_sentence(path / "__init__.py" if path.is_dir() else path)


def entries(folder: Path) -> list[Path]:
    """Packages and modules of a folder: those of curate in the order of layers."""
    paths = [p for p in folder.iterdir() if (p / "__init__.py").exists() or p.suffix == ".py"]
    order = {name: place for place, name in enumerate(ROOMS)} if folder.name == "curate" else {}
    names = sorted(paths, key=lambda p: (order.get(p.name, len(order)), p.is_file(), p.name))
    return [p for p in names if p.name != "__init__.py"]


def rooms(folder: Path, depth: int = 0) -> list[str]:
    """One line a package and one a room of it; rooms within rooms are in docs/modules.md."""
    name = f"{'  ' * depth}{folder.name}/"
    lines = [f"{name:<22} {described(folder)}"]
    for path in entries(folder):
        if path.is_dir() and depth == 0:
            lines += rooms(path, depth + 1)
        elif depth == 0 and folder.name == "curate":
            lines.append(f"{'  ' + path.name:<22} {described(path)}")
    return lines


def modules(folder: Path) -> list[str]:
    """Markdown: a heading a package, a line a module."""
    files = [p for p in entries(folder) if p.is_file()]
    lines = []
    if files:
        lines += ["", f"**{folder.relative_to(ROOT)}/**: {described(folder)}.", ""]
        lines += [f"- `{path.name}`: {described(path)}." for path in files]
    for path in entries(folder):
        if path.is_dir():
            lines += modules(path)
    return lines


def written(page: str) -> str:
    """The page with its generated parts as the tree has them."""
    parts = {
        "rooms": ["```", *(line for name in PACKAGES for line in rooms(ROOT / name)), "```"],
        "modules": [line for name in PACKAGES for line in modules(ROOT / name)][1:],
    }
    for part, lines in parts.items():
        begin, end = f"<!-- {part}: made by scripts/floor_plan.py -->", f"<!-- end of {part} -->"
        if begin in page:
            before, _, rest = page.partition(begin)
            _, _, after = rest.partition(end)
            page = f"{before}{begin}\n" + "\n".join(lines) + f"\n{end}{after}"
    return page


def main() -> int:
    differ = [path for path in PAGES if written(text := path.read_text(encoding="utf-8")) != text]
    for path in differ:
        if "--check" in sys.argv:
            print(f"{path.relative_to(ROOT)} differs: run python scripts/floor_plan.py")
        else:
            path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    return int("--check" in sys.argv and bool(differ))


if __name__ == "__main__":
    sys.exit(main())
