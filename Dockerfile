# The guard as a proxy: docker build -t ctxguard . && docker run --rm -p 127.0.0.1:8787:8787 ctxguard
FROM python:3.13-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY ctxguard ctxguard
COPY adapters adapters
RUN python -m venv /opt/ctxguard \
 && /opt/ctxguard/bin/pip install --no-cache-dir '.[cli,proxy,tokens,vault,postgres,redis,otel]'

FROM python:3.13-slim
COPY --from=build /opt/ctxguard /opt/ctxguard
RUN useradd --uid 10001 --create-home --home-dir /data ctxguard
ENV PATH=/opt/ctxguard/bin:$PATH PYTHONUNBUFFERED=1
# Mount a volume here for --store vault.db, --audit, and ctxguard.yaml.
WORKDIR /data
USER 10001
EXPOSE 8787
HEALTHCHECK --interval=30s --timeout=5s --start-period=30s \
  CMD ["python", "-c", "from urllib.request import urlopen; urlopen('http://127.0.0.1:8787/healthz', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["ctxguard", "serve", "--host", "0.0.0.0", "--port", "8787"]
CMD ["--upstream", "https://api.openai.com"]
