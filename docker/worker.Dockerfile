# The image of a job's pods: everstep-supervisor and everstep-worker, with the libraries they need.
# docker/README.md says how to build it.
#
#   DEVICE=cpu     the default
#   DEVICE=cuda    also LibTorch's CUDA part and NVIDIA's libraries, several GB
ARG DEVICE=cpu
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
WORKDIR /source
# In a step of its own, since it changes seldom: the compilers, Rust and LibTorch.
COPY scripts/setup scripts/
RUN scripts/setup
COPY . .
RUN scripts/setup && cmake --preset release && \
    cmake --build build --target everstep-worker everstep-supervisor && strip build/bin/everstep-*

# Whoever has the programs or LibTorch already gives a folder under the stage's name, with
# --build-context; then nothing is built here.
FROM scratch AS programs
COPY --from=build /source/build/bin/everstep-worker /source/build/bin/everstep-supervisor /

FROM scratch AS libtorch
COPY --from=build /root/.cache/everstep/libtorch-2.15.0 /

FROM ${BASE} AS base
RUN apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates libfmt9 libspdlog1.10 libssl3 libxxhash0 libyaml-cpp0.7 && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*
# The wheel's own layout, in which its libraries find each other. Without a GPU, libtorch_cpu.so
# still needs CUDA's runtime and profiler.
COPY --from=libtorch torch/lib/libc10.so torch/lib/libgomp.so.1 torch/lib/libtorch_cpu.so \
     /everstep/libtorch/torch/lib/
COPY --from=libtorch nvidia/cu13/lib/libcudart.so.13 nvidia/cu13/lib/libcupti.so.13 \
     /everstep/libtorch/nvidia/cu13/lib/
RUN echo /everstep/libtorch/torch/lib >/etc/ld.so.conf.d/everstep.conf && ldconfig

FROM base AS with-cpu

FROM ${BASE} AS wheels
RUN apt-get update && apt-get install -y --no-install-recommends ca-certificates python3-pip && \
    pip install --no-cache-dir --no-compile --target /wheels torch==2.15.0 && \
    find /wheels -type f ! -name '*.so*' -delete

FROM base AS with-cuda
COPY --from=wheels /wheels/torch/lib /everstep/libtorch/torch/lib
COPY --from=wheels /wheels/nvidia /everstep/libtorch/nvidia
RUN ldconfig
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM with-${DEVICE}
ARG VERSION=unknown
LABEL org.opencontainers.image.title="everstep-worker" \
      org.opencontainers.image.description="Trains one replica of an Everstep TrainingJob" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=programs everstep-worker everstep-supervisor /everstep/
ENV PATH=/everstep:/usr/local/bin:/usr/bin:/bin
# By number, since Kubernetes must see that it is not root.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["everstep-supervisor"]
