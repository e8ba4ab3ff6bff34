#!/usr/bin/env bash
# `pip install .` into a clean environment, and what a user then has: the package, the command, the C++ API.
# Everything runs outside of the source tree, in a home directory of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
python=${PYTHON:-python3.11}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "[test-wheel] $1" >&2
  exit 1
}

# As deep as build/, with its compiler, flags and pybind11: the compiler cache then serves this build from that one.
pybind11=$(.venv/bin/python -m pybind11 --cmakedir)
libtorch=$(.venv/bin/python -c 'import torch; print(torch.__path__[0])')
pyarrow=$(.venv/bin/python -c 'import pyarrow; print(pyarrow.__path__[0])')
export CXX=${CXX:-c++}
rm -rf build-wheel
"$python" -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
  -C build-dir=build-wheel -C cmake.define.LOCKSTEP_WERROR=ON -C cmake.define.pybind11_DIR="$pybind11" \
  -C cmake.define.LOCKSTEP_LIBTORCH="$libtorch" -C cmake.define.LOCKSTEP_ARROW="$pyarrow" .

cd "$work"
mkdir home
cache=$(ccache --get-config cache_dir 2>/dev/null || true)
export HOME=$work/home
unset PYTHONPATH
package=$(venv/bin/python -c 'import lockstep, os; print(os.path.dirname(lockstep.__file__))')
case $package in
  "$work"/venv/*) ;;
  *) fail "lockstep was imported from $package, not from the environment" ;;
esac

version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$source/pyproject.toml")
command=$(venv/bin/lockstep --version)
[[ $command == *"$version"* ]] || fail "lockstep --version printed '$command', expected $version"

for binary in "$package"/_core*.so "$package/bin/lockstep-agent" "$package/bin/lockstep-dashboard" venv/bin/lockstep; do
  foreign=$(readelf -d "$binary" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
    grep -v -E '^(libsqlite3|libc|libm|libstdc\+\+|libgcc_s|libpthread|libdl|librt|ld-linux.*)\.so\.[0-9]+$' || true)
  [ -z "$foreign" ] || fail "$binary needs libraries that a user may not have: $foreign"
done
for file in py.typed torch/__init__.py train/torch.py integrations/mlflow.py include/lockstep/lockstep.h include/nlohmann/json.hpp include/nlohmann/LICENSE.txt; do
  [ -e "$package/$file" ] || fail "the wheel lacks $file"
done

cp "$source/examples/python/first_run.py" .
venv/bin/python first_run.py | tee first_run.out
grep -q "{'epoch': 4, 'loss': 0.2}" first_run.out || fail "the first program printed other metrics"
message=$(venv/bin/python -c 'import lockstep.torch' 2>&1 || true)
[[ $message == *"pip install torch"* ]] || fail "without torch, lockstep.torch says: $message"
message=$(venv/bin/python -c 'import lockstep.data' 2>&1 || true)
[[ $message == *"pip install pyarrow"* ]] || fail "without pyarrow, lockstep.data says: $message"
readelf -d "$package"/data/_arrow_*.so | grep -q 'RUNPATH.*\[$ORIGIN/../../pyarrow\]' || fail "the data module would not find Arrow"

directory=$(venv/bin/lockstep --cmake-dir)
[ "$directory" = "$package/cmake" ] || fail "lockstep --cmake-dir printed '$directory', expected $package/cmake"
[ ! -e "$directory/lockstepBuildTargets.cmake" ] || fail "the wheel holds the build tree's CMake package"
cmake -S "$source/tests/wheel/consumer" -B consumer -G Ninja -DLockstep_DIR="$directory" >consumer.log ||
  fail "a C++ project cannot find the package: $(cat consumer.log)"
cmake --build consumer >consumer.log || fail "a C++ program does not build: $(cat consumer.log)"
[ "$(consumer/consumer | tail -n 1)" = "step=2 workers=2" ] || fail "the C++ program printed other metrics"
[ "$(consumer/search | tail -n 1)" = "x=-1" ] || fail "the C++ search found another minimum"
readelf -d consumer/consumer | grep -q sqlite && fail "a program without a Tuner loads SQLite"

# A new project is as deep as the environment, so that the compiler sees the same relative paths in every run and its cache
# serves them. The environment has no torch: the checkout's is given as an unpacked LibTorch archive would be.
mkdir libtorch
for part in include lib share; do ln -s "$libtorch/$part" "libtorch/$part"; done
export CCACHE_BASEDIR=$work CCACHE_DIR=${CCACHE_DIR:-$cache}
if command -v ccache >/dev/null; then export CMAKE_CXX_COMPILER_LAUNCHER=ccache; fi
(
  export PATH=$work/venv/bin:$PATH
  lockstep new cpp first >/dev/null
  cd first
  if cmake -S . -B build >configure.log 2>&1; then fail "a new project was configured without LibTorch"; fi
  grep -q "LibTorch was not found" configure.log || fail "without LibTorch, CMake says: $(cat configure.log)"
  cmake -S . -B build -DCMAKE_PREFIX_PATH="$work/libtorch" >configure.log 2>&1 ||
    fail "a new project cannot be configured: $(cat configure.log)"
  cmake --build build -j 2 >build.log 2>&1 || fail "a new project does not build: $(cat build.log)"
  [ ! -e build/liblockstep_torch.a ] || fail "a new project compiles what the wheel holds compiled: $(cat build.log)"
  ./build/first >first.out || fail "a new project does not train"
  grep -q -E "^epoch 9: loss [0-9.]+, accuracy 9[5-9]" first.out || fail "a new project printed: $(cat first.out)"
  cmake -S . -B sources -DCMAKE_PREFIX_PATH="$work/libtorch" -DLOCKSTEP_TORCH_FROM_SOURCES=ON >configure.log 2>&1 ||
    fail "a new project cannot be configured for another LibTorch: $(cat configure.log)"
  cmake --build sources -j 2 >build.log 2>&1 || fail "Lockstep::torch cannot be compiled: $(cat build.log)"
  [ -e sources/liblockstep_torch.a ] || fail "LOCKSTEP_TORCH_FROM_SOURCES compiled nothing: $(cat build.log)"
  ./sources/first >first.out || fail "a new project does not train with what it compiled"
  ln -s "$libtorch" "$(dirname "$package")/torch" # as if it were installed beside Lockstep
  cmake -S . -B beside >configure.log 2>&1 || fail "torch beside Lockstep is not found: $(cat configure.log)"
)

# Data sets as tensors: Arrow and LibTorch in one program.
(
  mkdir data
  cd data
  cp "$source/tests/wheel/data/CMakeLists.txt" "$source/examples/cpp/torch_data.cpp" .
  if cmake -S . -B build -DLockstep_DIR="$directory" >configure.log 2>&1; then fail "data sets were found without Arrow"; fi
  grep -q "which was not found" configure.log || fail "without Arrow, CMake says: $(cat configure.log)"
  cmake -S . -B build -DLockstep_DIR="$directory" -DLOCKSTEP_ARROW="$pyarrow" >configure.log 2>&1 ||
    fail "a project with data sets cannot be configured: $(cat configure.log)"
  cmake --build build >build.log 2>&1 || fail "a project with data sets does not build: $(cat build.log)"
  ./build/torch_data results >data.out || fail "a project with data sets does not train"
  grep -q -F "y = 2.00 a - 1.00 b + 0.50" data.out || fail "a project with data sets printed: $(cat data.out)"
)

# Where torch came after Lockstep there is no backend for it yet: that can be made afterwards.
rm "$package"/torch/_c10d_*.so
site=$("$source/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')
cat >backend.py <<'END'
import lockstep.torch.backend as backend
import torch
import torch.distributed as dist

if __name__ == "__main__":
    assert backend.is_available()
    dist.init_process_group("lockstep")
    ones = torch.ones(1000)
    dist.all_reduce(ones)
    assert ones.eq(2).all()
END
(
  export PYTHONPATH=$site TMPDIR=$work OMP_NUM_THREADS=1
  message=$(venv/bin/python -c 'import lockstep.torch.backend; lockstep.torch.backend.load()' 2>&1 || true)
  [[ $message == *"python -m lockstep.torch.build_backend"* ]] || fail "without the backend, Python says: $message"
  venv/bin/python -c 'import lockstep.data; assert lockstep.data.range(3).take(1) == [{"id": 0}]' ||
    fail "data sets do not work"
  venv/bin/python -m lockstep.torch.build_backend || fail "the backend cannot be built"
  venv/bin/python -m torch.distributed.run --standalone --nproc-per-node=2 backend.py || fail "the backend does not work"
)

echo "[test-wheel] ok: $(du -sh "$package" | cut -f1) installed"
