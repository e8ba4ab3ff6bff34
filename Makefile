# make setup | quickstart | test | bench | docs | wheel | lint | clean; parts of test: test-cpp test-asan test-tsan test-python test-frameworks test-wheel

export jobs ?= $(shell nproc)
python := .venv/bin/python

.NOTPARALLEL:
.PHONY: setup build build-asan build-tsan quickstart test test-cpp test-asan test-tsan test-python test-frameworks test-wheel bench docs wheel lint format clean

setup:
	@scripts/setup.sh

build:
	@scripts/prepare.sh dev

quickstart:
	@scripts/prepare.sh run product
	@$(python) examples/python/quickstart.py

test: build
	@scripts/test.sh

test-cpp: build
	@scripts/run_tests.sh ctest --preset dev --parallel $(jobs)

build-asan build-tsan: build-%: setup
	@scripts/build.sh $*

test-asan test-tsan: test-%: build-%
	ctest --preset $* --parallel $(jobs)

test-python: build
	@scripts/environments.sh ray
	@scripts/run_tests.sh pytest $(python) $(pytest)

test-frameworks: build
	@scripts/environments.sh tf jax horovod libs
	@scripts/run_tests.sh pytest .venv-tf/bin/python python/tests/tensorflow
	@scripts/run_tests.sh pytest .venv-jax/bin/python python/tests/jax
	@scripts/run_tests.sh pytest .venv-horovod/bin/python python/tests/horovod
	@scripts/run_tests.sh pytest .venv-libs/bin/python python/tests/libs

test-wheel: setup
	scripts/test_wheel.sh

bench: build
	$(python) benchmarks/run.py

docs: setup
	@scripts/docs.sh

wheel: setup
	@scripts/wheel.sh

lint: setup
	$(python) scripts/lint.py

format: setup
	$(python) scripts/lint.py --fix

clean:
	rm -rf build build-wheel dist .venv/bin/lockstep python/lockstep/bin python/lockstep/cmake python/lockstep/_core*.so python/lockstep/torch/_c10d_*.so python/lockstep/data/_arrow_*.so .mypy_cache .pytest_cache .ruff_cache
	find python tests examples scripts -name __pycache__ -type d -prune -exec rm -rf {} +
