#!/bin/sh
# Proof of outcome: whose corpus of the same archives makes the better model?
#
# Paper: Penedo et al. 2024 (FineWeb, arXiv:2406.17557): plots of accuracy on tasks, FineWeb's
# filters against C4's and against none. No value looked up.
# Reads: CORPORA/wcxb/dev.warc.gz and CORPORA/news/dev.warc.gz, or in their place the archives of
# ARCHIVES, words of one line; CORPORA/models/lid.176.ftz; novels, PEPs and the Rust book of
# CORPORA/longtext are scored. DATATROVE: a Python with DataTrove (benchmarks/peer_env.sh); without
# it that row is left out.
# Lists of URLs and of bad words, which have to be fetched, are left out of all corpora.
# TOKENS, SEEDS and MODEL: for a larger machine.
# Takes an hour on two cores shared with other work.
#
#   sh pipelines/experiments/outcome/run.sh CORPORA OUT
set -eu
. "$(dirname "$0")/../small.sh"
archives=${ARCHIVES:-"$corpora/wcxb/dev.warc.gz $corpora/news/dev.warc.gz"}
model=${MODEL:-$small}
lid=language.model=$corpora/models/lid.176.ftz
free="--set url_filter.domains=null --set url_filter.urls=null --set url_filter.banned_words=null
  --set url_filter.soft_words=null --set url_filter.banned_subwords=null"

# shellcheck disable=SC2086 # lists of words
llmcurate run fineweb $archives $free --set "$lid" -o "$out/ours"
# shellcheck disable=SC2086
llmcurate run c4 $archives --set c4.badwords=null --set "$lid" -o "$out/c4"
# shellcheck disable=SC2086
llmcurate run c4-unfiltered $archives --set "$lid" -o "$out/unfiltered"
theirs=
datatrove=${DATATROVE:-$here/../../../.bench/datatrove/bin/python}
if [ -x "$datatrove" ]; then
  # shellcheck disable=SC2086
  "$datatrove" "$here/their_fineweb.py" "$corpora/models/lid.176.ftz" "$out/datatrove" $archives
  theirs="datatrove=$out/datatrove/corpus"
else
  echo "no DataTrove at $datatrove: its row is left out"
fi
# shellcheck disable=SC2086
llmcurate compare ours="$out/ours" $theirs c4="$out/c4" unfiltered="$out/unfiltered" \
  --on novels="$corpora/longtext/en-novels.jsonl.zst" \
  --on peps="$corpora/longtext/en-peps.jsonl.zst" \
  --on rust="$corpora/longtext/en-rustbook.jsonl.zst" \
  --tokens "${TOKENS:-400000}" $model -o "$out/comparison"
