//! The executable as a host of plug-ins: a backend is built as a shared library without ggml-base, loaded from a folder, and
//! the demo model runs on its device. One that was built for another core is refused.
#![cfg(feature = "native")]

mod native;

use std::path::Path;
use std::process::Command;

use plateau::config::ModelConfig;
use plateau::llama::backend::load_plugins;
use plateau::llama::{ContextOptions, Device, DeviceKind, LlamaRunner, Model, PluginOutcome, backend};
use plateau::units::{Bytes, Token};

#[test]
fn a_plugin_without_ggml_base_runs_the_model_inside_this_executable() {
    let folder = tempfile::tempdir().expect("a folder");
    native::build_plugin(&folder.path().join("libggml-hostcheck.so"), &[]);
    let prompt = native::tokens(60, 1);
    let on_cpu = generate_with(native::model_config(), &prompt);

    let plugins = load_plugins(folder.path());
    assert_eq!(plugins.len(), 1, "{plugins:?}");
    assert_eq!(plugins[0].outcome, PluginOutcome::Loaded("HostCheck".to_owned()));
    assert_eq!(load_plugins(folder.path())[0].outcome, PluginOutcome::AlreadyLoaded);
    let device = device();
    assert_eq!(device.kind, DeviceKind::Gpu);
    assert!(device.memory_total > Bytes(0));
    assert_eq!(device.description, "0 graphs");

    assert_eq!(generate_with(native::model_config(), &prompt), on_cpu);
    let graphs = device_graphs();
    assert!(graphs >= 16, "16 tokens in {graphs} graphs of the plug-in");

    // With no layer on it, the device is left alone.
    assert_eq!(generate_with(ModelConfig { gpu_layers: Some(0), ..native::model_config() }, &prompt), on_cpu);
    assert_eq!(device_graphs(), graphs);
}

#[test]
fn a_plugin_for_another_core_is_refused_with_both_versions() {
    let folder = tempfile::tempdir().expect("a folder");
    let status = Command::new("c++")
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.path().join("libggml-othercore.so"))
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/plugin/other_core.cpp"))
        .status()
        .expect("a C++ compiler");
    assert!(status.success());
    let plugins = load_plugins(folder.path());
    let PluginOutcome::Failed(reason) = &plugins[0].outcome else { panic!("{plugins:?}") };
    assert!(reason.contains("llama-cpp-sys-2 0.0.1") && reason.contains("this executable carries"), "{reason}");
    assert!(backend::devices().iter().all(|device| !device.name.contains("OTHER")));
}

fn generate_with(config: ModelConfig, prompt: &[Token]) -> Vec<Token> {
    let model = Model::load(&config, &mut |_| true).expect("the model loads");
    let options = ContextOptions::default();
    let mut runner = LlamaRunner::new(model, &native::engine_config(512, 1), options).expect("a context");
    native::generate(&mut runner, 0, prompt, 512, 16)
}

fn device() -> Device {
    backend::devices().into_iter().find(|device| device.name == "HOSTCHECK0").expect("the plug-in's device")
}

/// How many graphs the plug-in has computed, by its description.
fn device_graphs() -> u32 {
    device().description.strip_suffix(" graphs").expect("a count").parse().expect("a number")
}
