# The model of all experiments here, 295 thousand parameters, and how it is trained: sourced by each
# run.sh, whose $here is its own folder.
PYTHON=${PYTHON:-python3}
PYTHONPATH=$here/../..${PYTHONPATH:+:$PYTHONPATH}  # for experiments.texts
export PYTHONPATH
small="--vocab 1024 --context 128 --rows 8 --seeds 3
  --set model.layers=2 --set model.hidden=96 --set model.attention.heads=3
  --set model.attention.kv_heads=1 --set model.feed_forward.width=256"
