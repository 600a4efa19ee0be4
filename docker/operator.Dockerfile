# The operator's image, and the small one of the two: beside everstep-operator it carries
# everstep-supervisor, which an init container installs from here (--install) into pods with other
# people's images. docker/README.md says how to build it.
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS build
WORKDIR /source
# In a step of its own, since it changes seldom: the compilers, Rust and LibTorch. The worker's
# image begins with the same steps, which are then done once.
COPY scripts/setup scripts/
RUN scripts/setup
COPY . .
RUN scripts/setup && cmake --preset release -DEVERSTEP_WORKER=OFF && \
    cmake --build build --target everstep-operator everstep-supervisor && strip build/bin/everstep-*

# Whoever has the programs already gives a folder under this name, with --build-context; then
# nothing is built here.
FROM scratch AS programs
COPY --from=build /source/build/bin/everstep-operator /source/build/bin/everstep-supervisor /

FROM ${BASE}
RUN apt-get update && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends \
      ca-certificates libcpprest2.10 libfmt9 libprometheus-cpp-core1.0 libspdlog1.10 libssl3 \
      libyaml-cpp0.7 && \
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*
ARG VERSION=unknown
LABEL org.opencontainers.image.title="everstep-operator" \
      org.opencontainers.image.description="Runs TrainingJobs on Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}"
COPY --from=programs everstep-operator /usr/local/bin/
COPY --from=programs everstep-supervisor /everstep/
# By number, since Kubernetes must see that it is not root.
USER 65532:65532
WORKDIR /tmp
ENTRYPOINT ["everstep-operator"]
