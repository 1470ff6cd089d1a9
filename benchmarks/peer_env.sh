#!/bin/sh
# Builds the virtual environment of the library we compare with, in .bench/datatrove (git-ignored).
# DataTrove imports more than it declares for its own filters; the list below is what they need.
set -eu
cd "$(dirname "$0")/.."
home=.bench/datatrove
if [ -x "$home/bin/python" ] && [ -f "$home/.ready" ]; then
  exit 0
fi
"${PYTHON:-python3}" -m venv "$home"
"$home/bin/python" -m pip --disable-pip-version-check install -q \
  "datatrove==0.10.1" "trafilatura>=1.8,<1.12" "lxml_html_clean" "spacy" "nltk>=3.9" "tldextract" \
  "xxhash<4" "warcio" "orjson" "zstandard" "regex" "fasttext-numpy2-wheel" "faust-cchardet" "python-magic" "inscriptis"
touch "$home/.ready"
