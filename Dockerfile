# Crewel in a container: the command `crewel`, listening on port 8080, with its data under /data.
# It listens on all addresses, so it starts only with a security policy or with CREWEL_SECURITY__ALLOW_OPEN=true.
# docker-compose.yml runs it with a store of its own; docs/how-to/docker.md tells the rest.

# By digest, so that each build has the same. Build arguments name other ones; docs/contributing/releasing.md tells how to renew them.
# 22.23.2 and 3.13.15.
ARG NODE_IMAGE=node:22-slim@sha256:48e4b67d85f87bd551df43704e24d252f56cc5f8e9718841aace50f19948f0f9
ARG PYTHON_IMAGE=python:3.13-slim@sha256:7c61056e61ac89e852de05f3dc6fa51a6dd2181797bceed46aa725dd7cb2cd3b

FROM ${NODE_IMAGE} AS pages
WORKDIR /pages
COPY static/package.json static/package-lock.json ./
RUN npm ci --no-audit --no-fund --loglevel=error

FROM ${PYTHON_IMAGE} AS wheel
WORKDIR /source
COPY pyproject.toml setup.py README.md LICENSE ./
COPY app app
COPY extensions extensions
COPY pipeline pipeline
COPY static static
COPY --from=pages /pages/vendor static/vendor
RUN pip wheel --quiet --no-deps --wheel-dir /wheel .

# The data pipeline, with Spark and Java: master, worker and jobs are this image with other commands. The server is the one below.
FROM ${PYTHON_IMAGE} AS pipeline
# The base image settles the versions: Debian removes old ones, and a pinned build would fail.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-21-jre-headless procps tini \
    && rm -r /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /data --no-create-home crewel \
    && install --directory --owner=crewel --mode=0700 /data
COPY requirements-pipeline.lock /tmp/
COPY --from=wheel /wheel/ /tmp/wheel/
RUN pip install --quiet --no-cache-dir --require-hashes --requirement /tmp/requirements-pipeline.lock \
    && pip install --quiet --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && ln -s "$(python -c 'import pyspark; print(pyspark.__path__[0])')" /opt/spark \
    && rm -r /tmp/wheel /tmp/requirements-pipeline.lock
ENV SPARK_HOME=/opt/spark \
    PYSPARK_PYTHON=python \
    CREWEL_PIPELINE__DIR=/data/tables \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
ENTRYPOINT ["tini", "--"]
CMD ["crewel", "pipeline", "live"]

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --home-dir /data --no-create-home crewel \
    && install --directory --owner=crewel --mode=0700 /data
COPY requirements-server.lock /tmp/
COPY --from=wheel /wheel/ /tmp/wheel/
RUN pip install --quiet --no-cache-dir --require-hashes --requirement /tmp/requirements-server.lock \
    && pip install --quiet --no-cache-dir --no-deps /tmp/wheel/*.whl \
    && rm -r /tmp/wheel /tmp/requirements-server.lock
ENV CREWEL_HTTP__HOST=0.0.0.0 \
    CREWEL_HTTP__PORT=8080 \
    CREWEL_STORAGE__DATA_DIR=/data \
    PYTHONUNBUFFERED=1
USER 10001
WORKDIR /data
VOLUME /data
EXPOSE 8080
STOPSIGNAL SIGTERM
# Where the variables say that the server listens. Its certificate has another name than 127.0.0.1, so it is not verified.
HEALTHCHECK --interval=5s --timeout=3s --start-period=30s --retries=3 \
    CMD ["python", "-c", "import os, ssl, urllib.request as u; of = os.environ.get; u.urlopen('http' + 's' * bool(of('CREWEL_HTTP__TLS_CERT')) + '://127.0.0.1:' + of('CREWEL_HTTP__PORT') + '/health/live', timeout=2, context=ssl._create_unverified_context())"]
ENTRYPOINT ["crewel"]
CMD ["serve"]
