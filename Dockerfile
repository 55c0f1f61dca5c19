# The worker of docker-compose.yml: durableq, installed from this checkout, and the examples.
FROM python:3.13.15-slim

# Lines are seen when they are printed, and nothing is written beside the code.
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1

WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY durableq durableq
COPY lua lua
RUN pip install --no-cache-dir --disable-pip-version-check --root-user-action=ignore -c constraints.txt .

WORKDIR /app
COPY examples examples
# A checkout may be readable by its owner only.
RUN chmod -R a+rX examples

# A number needs no entry in /etc/passwd, and whoever runs the image can see that it is not root.
USER 10001:10001
CMD ["python", "examples/worker.py"]
