#!/bin/sh
# Resolves the default extras for every supported Python, from wheels alone and under the tested
# constraints: where this succeeds no compiler is needed. Nothing is installed. torch is left out,
# since its wheels depend on the index (see Makefile), and pybloom-live (for tests), which has no
# wheel and is pure Python.
set -eu
cd "$(dirname "$0")/.."
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
for version in 3.10 3.11 3.12 3.13; do
  # pip evaluates markers for the Python it runs on, so they are evaluated here.
  .venv/bin/python - "$version" "$folder" <<'PY'
import sys
from pathlib import Path

from packaging.requirements import Requirement

try:
    import tomllib
except ImportError:
    import tomli as tomllib
version, folder = sys.argv[1], Path(sys.argv[2])
project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
wanted = [*project["dependencies"], *extras["train"], *extras["dev"], *extras["docs"]]
lines = []
for line in wanted:
    need = Requirement(line)
    here = need.marker is None or need.marker.evaluate({"python_version": version})
    if need.name not in ("torch", "pybloom-live") and here:
        need.marker = None
        lines.append(str(need))
(folder / "wanted").write_text("\n".join(lines))
pins = []
for line in Path("constraints.txt").read_text().split("\n"):
    if line.strip():
        pin = Requirement(line)
        if pin.name not in ("torch", "pybloom_live") and (
            pin.marker is None or pin.marker.evaluate({"python_version": version})
        ):
            pins.append(f"{pin.name}{pin.specifier}")
(folder / "pins").write_text("\n".join(pins))
PY
  .venv/bin/python -m pip install -q --dry-run --ignore-installed --only-binary=:all: \
    --python-version "$version" --target "$folder/target" -c "$folder/pins" -r "$folder/wanted"
  echo "Python $version: resolved"
done
