# The demo, and every command; once this is built none needs a network:
#   docker build -t llmcurate .
#   docker run --rm --network none llmcurate
#   docker run --rm -v "$PWD:/work" llmcurate run c4 crawl/ -o out
FROM python:3.12-slim

ENV PIP_NO_CACHE_DIR=1 NUMBA_CACHE_DIR=/opt/kernels
WORKDIR /src
COPY . .
# hadolint ignore=DL3013
RUN pip install ".[train,verify]" && rm -rf /src/*
# For the processor that builds the image, once for all containers.
RUN llmcurate warmup && chmod -R a+rwX /opt/kernels
WORKDIR /work
ENTRYPOINT ["llmcurate"]
CMD ["demo", "-o", "/tmp/demo"]
