#!/bin/sh
# Builds the virtual environment of the library we compare with, in .bench/datatrove (git-ignored).
# Beside DataTrove stand what its readers, extractor and filters import without declaring it, and
# the versions it needs: trafilatura before 1.12 (its arguments), xxhash before 4 (its strings).
set -eu
cd "$(dirname "$0")/.."
home=.bench/datatrove
if [ -f "$home/.ready-3" ]; then
  exit 0
fi
"${PYTHON:-python3}" -m venv --clear "$home"
"$home/bin/python" -m pip --disable-pip-version-check install -q \
  "datatrove==0.10.1" "trafilatura>=1.8,<1.12" "xxhash<4" lxml_html_clean spacy tldextract \
  regex warcio faust-cchardet python-magic orjson fasttext-numpy2-wheel fasteners tokenizers
touch "$home/.ready-3"
