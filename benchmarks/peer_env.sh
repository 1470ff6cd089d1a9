#!/bin/sh
# Builds the virtual environments of the libraries we compare with, in .bench (git-ignored): without
# an argument DataTrove's, with `rensa`, `litgpt`, `lm_eval`, `llama_cpp` or `rustbpe` that of these, with `extract`
# other extractors of main text.
# Beside DataTrove stand what its readers, extractor and filters import without declaring it, and
# the versions it needs: trafilatura before 1.12 (its arguments), xxhash before 4 (its strings).
set -eu
cd "$(dirname "$0")/.."
case "${1:-datatrove}" in
  rensa)
    home=.bench/rensa
    ready=.ready-1
    packages="rensa==0.5.0 numpy pyarrow psutil xxhash"
    ;;
  extract)
    home=.bench/extract
    ready=.ready-2
    packages="trafilatura==2.0.0 jusText==3.0.2 readability-lxml==0.8.4.1 lxml_html_clean"
    ;;
  llama_cpp)
    home=.bench/llama_cpp
    ready=.ready-1
    packages="xllamacpp==2026.10.11549"
    ;;
  litgpt)
    home=.bench/litgpt
    ready=.ready-1
    packages="torch==2.13.0 litgpt==0.5.13"
    ;;
  lm_eval)
    home=.bench/lm_eval
    ready=.ready-1
    packages="lm_eval==0.4.13 torch==2.13.0 transformers==5.23.0 accelerate"
    ;;
  rustbpe)
    home=.bench/rustbpe
    ready=.ready-1
    packages="rustbpe==0.1.0"
    ;;
  datatrove)
    home=.bench/datatrove
    ready=.ready-4
    packages="datatrove==0.10.1 trafilatura>=1.8,<1.12 xxhash<4 lxml_html_clean spacy tldextract
      pyarrow regex warcio faust-cchardet python-magic orjson fasttext-numpy2-wheel fasteners tokenizers"
    ;;
  *)
    echo "peer_env.sh: datatrove, extract, litgpt, llama_cpp, lm_eval, rensa or rustbpe" >&2
    exit 2
    ;;
esac
if [ -f "$home/$ready" ]; then
  exit 0
fi
"${PYTHON:-python3}" -m venv --clear "$home"
# shellcheck disable=SC2086 # a list of words
"$home/bin/python" -m pip --disable-pip-version-check install -q $packages
touch "$home/$ready"
