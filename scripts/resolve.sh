#!/bin/sh
# Resolves the default extras for every supported Python from wheels alone: no compiler is needed
# where this succeeds. Downloads metadata only.
set -eu
cd "$(dirname "$0")/.."
pip="${PIP:-.venv/bin/python -m pip}"
requirements=$(.venv/bin/python - <<'PY'
import tomllib
project = tomllib.load(open("pyproject.toml", "rb"))["project"]
wanted = project["dependencies"] + [r for r in project["optional-dependencies"]["train"] if not r.startswith("torch")]
print("\n".join(wanted))
PY
)
for version in 3.10 3.11 3.12 3.13; do
  printf '%s\n' "$requirements" >"/tmp/llmcurate-resolve.$$"
  if $pip install -q --dry-run --ignore-installed --only-binary=:all: --python-version "$version" \
    --target /tmp/llmcurate-resolve-target -r "/tmp/llmcurate-resolve.$$"; then
    echo "Python $version: resolved"
  else
    echo "Python $version: FAILED"; rm -f "/tmp/llmcurate-resolve.$$"; exit 1
  fi
done
rm -f "/tmp/llmcurate-resolve.$$"
