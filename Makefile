PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test check clean

demo: .venv/ready  ## train the shipped nano policy on math + tools + word, a few minutes on two cores
	$(BIN)/polygym rl run multi_env

test: .venv/ready  ## the whole test suite
	$(BIN)/python -m pytest

check: .venv/ready  ## style and types
	$(BIN)/ruff check .
	$(BIN)/mypy

# Set up once, and again only when the requirements change.
.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; v = sys.version_info; v >= (3, 11) or sys.exit("polygym needs Python 3.11 or newer, %s is %d.%d; run: make PYTHON=/path/to/python3.11 ..." % (sys.executable, v[0], v[1]))'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[train,serve,data,view,dev]'
	touch $@

clean:
	rm -rf .venv build dist
