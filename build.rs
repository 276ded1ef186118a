//! Makes the executable a host for ggml plug-ins, and compiles the guard that keeps C++ exceptions out of Rust.
//!
//! The core (ggml-base, the CPU backend, libllama) is linked statically. A plug-in such as `libggml-cuda.so` is built
//! without a copy of ggml-base and takes those functions from the executable that loads it. So every symbol of ggml-base
//! and of the backend registry is kept, although nothing here may call it, and is put into the dynamic symbol table
//! (docs/adr/0002). Nothing is done when llama.cpp is not built.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "native")]
    native::run();
}

#[cfg(feature = "native")]
mod native {
    use std::path::{Path, PathBuf};
    use std::{env, fs};

    /// The archives whose symbols a plug-in may use.
    const HOST_LIBRARIES: [&str; 2] = ["libggml-base.a", "libggml.a"];
    const GUARD: [&str; 2] = ["src/llama/guard.cpp", "src/llama/vision.cpp"];
    const GUARD_HEADER: &str = "src/llama/guard.h";

    pub fn run() {
        let install = core_install_folder();
        let source = core_source_folder(&install);
        compile_guard(&source);
        export_symbols(&install);
        // For tests/native_plugin.rs, which builds a plug-in from the same source and the same archive.
        println!("cargo::rustc-env=PLATEAU_CORE_SOURCE={}", source.display());
        println!("cargo::rustc-env=PLATEAU_CORE_INSTALL={}", install.display());
        // A plug-in says which it was built for (src/llama/kernels.rs).
        println!("cargo::rustc-env=PLATEAU_CORE_VERSION={}", core_version(&source));
    }

    /// llama-cpp-sys-2 tells its direct dependents where ggml's CMake package lies: `INSTALL/lib/cmake`.
    #[expect(clippy::disallowed_methods, reason = "cargo talks to build scripts through the environment")]
    fn core_install_folder() -> PathBuf {
        let cmake = env::var("DEP_LLAMA_GGML_CMAKE_DIR").expect("llama-cpp-sys-2 exports its CMake folder");
        Path::new(&cmake).ancestors().nth(2).expect("the CMake folder lies two levels deep").to_owned()
    }

    /// The folder of llama.cpp's source inside the crate, as CMake recorded it.
    fn core_source_folder(install: &Path) -> PathBuf {
        let cache = install.join("build/CMakeCache.txt");
        let text = fs::read_to_string(&cache).unwrap_or_else(|error| panic!("{}: {error}", cache.display()));
        let home = text.lines().find_map(|line| line.strip_prefix("CMAKE_HOME_DIRECTORY:INTERNAL="));
        PathBuf::from(home.expect("CMakeCache.txt names the source folder"))
    }

    /// "0.1.161": the crate's folder is named after its version.
    fn core_version(source: &Path) -> String {
        let folder = source.ancestors().find_map(|path| path.file_name()?.to_str()?.strip_prefix("llama-cpp-sys-2-"));
        folder.expect("the source lies in the crate's folder").to_owned()
    }

    fn compile_guard(source: &Path) {
        for file in GUARD.iter().chain([&GUARD_HEADER]) {
            println!("cargo::rerun-if-changed={file}");
        }
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .include(source.join("include"))
            .include(source.join("src"))
            .include(source.join("ggml/include"))
            .include(source.join("tools/mtmd"))
            .files(GUARD)
            .compile("plateau_guard");
    }

    /// Two files understood by GNU ld and lld alike: a linker script that keeps the symbols (`EXTERN`), and a dynamic list
    /// that exports them.
    #[expect(clippy::disallowed_methods, reason = "cargo talks to build scripts through the environment")]
    fn export_symbols(install: &Path) {
        let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
        let mut symbols: Vec<String> = Vec::new();
        for name in HOST_LIBRARIES {
            let path = install.join("lib").join(name);
            let archive = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            let index = archive_symbols(&archive).unwrap_or_else(|| panic!("{}: no symbol index", path.display()));
            symbols.extend(index.into_iter().filter(|symbol| is_ggml(symbol)));
        }
        symbols.sort();
        symbols.dedup();
        assert!(symbols.iter().any(|symbol| symbol == "ggml_backend_register"), "the core lacks its backend registry");

        let keep = out.join("host-keep.ld");
        let export = out.join("host-export.list");
        fs::write(&keep, format!("EXTERN({})\n", symbols.join("\n"))).expect("OUT_DIR can be written");
        fs::write(&export, format!("{{\n{};\n}};\n", symbols.join(";\n"))).expect("OUT_DIR can be written");
        println!("cargo::rustc-link-arg={}", keep.display());
        println!("cargo::rustc-link-arg=-Wl,--dynamic-list={}", export.display());
    }

    /// ggml's own functions and data, without what the C++ library instantiated beside them.
    fn is_ggml(symbol: &str) -> bool {
        let c = ["ggml_", "gguf_", "quantize_", "dequantize_", "iq2xs_", "iq3xs_"];
        let cpp = ["ggml_", "gguf_"];
        let unmangled = symbol.strip_prefix("_Z").map(|rest| rest.trim_start_matches(|c: char| c.is_ascii_digit()));
        c.iter().any(|prefix| symbol.starts_with(prefix))
            || unmangled.is_some_and(|name| cpp.iter().any(|prefix| name.starts_with(prefix)))
    }

    /// The names in the symbol index of a Unix archive: after the magic, member "/" holds a big-endian count, as many
    /// 32-bit offsets, then NUL-terminated names.
    fn archive_symbols(archive: &[u8]) -> Option<Vec<String>> {
        let header = archive.strip_prefix(b"!<arch>\n")?;
        if header.get(..2)? != b"/ " {
            return None;
        }
        let size: usize = std::str::from_utf8(header.get(48..58)?).ok()?.trim().parse().ok()?;
        let index = header.get(60..60 + size)?;
        let count = u32::from_be_bytes(index.get(..4)?.try_into().ok()?) as usize;
        let names = index.get(4 + 4 * count..)?;
        let mut symbols = Vec::with_capacity(count);
        for name in names.split(|byte| *byte == 0).take(count) {
            symbols.push(String::from_utf8(name.to_vec()).ok()?);
        }
        Some(symbols)
    }
}
