# The daemon's image: the locked dependencies and the package in one virtual environment, no compiler, no uv, no root.
#
# A tag may be another image tomorrow, so a release gives BASE by digest: `make image-multiarch` takes nothing else. A tag, as
# the default, is for a base that is here already, or for a build to try something out.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG UV_VERSION=0.13.9
RUN pip install --no-cache-dir "uv==${UV_VERSION}"
ENV UV_PROJECT_ENVIRONMENT=/opt/gangsched \
    UV_PYTHON_DOWNLOADS=never \
    UV_COMPILE_BYTECODE=1 \
    UV_LINK_MODE=copy \
    UV_NO_CACHE=1
WORKDIR /src
# Dependencies first, so that an edit of the source does not fetch them again. Packages of the workspace that the image
# leaves out are not looked at: --frozen trusts the lock and --no-dev leaves the development group out.
COPY pyproject.toml uv.lock ./
COPY packages/kubernetes-cel/pyproject.toml packages/kubernetes-cel/
RUN uv sync --frozen --no-dev --extra scheduler --extra uvloop --no-install-workspace
COPY README.md LICENSE ./
COPY packages/kubernetes-cel packages/kubernetes-cel
COPY gangsched gangsched
RUN uv sync --frozen --no-dev --extra scheduler --extra uvloop --no-editable
# What is never loaded: more than half of the environment's size. What is left must start.
COPY hack/image/trim.py ./
RUN python trim.py /opt/gangsched && /opt/gangsched/bin/gangsched version

# The same base as above: the environment's interpreter is a link to this one's.
FROM ${BASE}
LABEL org.opencontainers.image.title="gangsched" \
      org.opencontainers.image.description="A gang scheduler for Kubernetes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/gangsched /opt/gangsched
# NumPy's BLAS would start a thread per core for work we never give it.
ENV PATH=/opt/gangsched/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1
# A number, not a name: the kubelet can only check runAsNonRoot against a number.
USER 65532:65532
WORKDIR /tmp
EXPOSE 8080
ENTRYPOINT ["gangsched"]
CMD ["run", "--health-port", "8080"]
