//! `plateau doctor`: what this machine, this build and this model are, and whether the profile fits. Loads no weights.

use std::fmt::Write as _;

use crate::app::Failure;
use crate::app::devices::{self, Device};
use crate::app::fit::{Fit, free_memory};
use crate::app::machine::Machine;
use crate::app::model::{Header, ModelFile, ProjectorFile};
use crate::config::Profile;
use crate::engine::prefix::disk;
use crate::gpu::{Gpu, GpuReading};
use crate::telemetry::KernelState;
use crate::units::Bytes;

/// The whole report. `fits` is the verdict.
pub struct Report {
    pub text: String,
    pub fits: bool,
}

pub fn report(profile: &Profile) -> Result<Report, Failure> {
    let machine = Machine::read();
    let devices = devices::start(&profile.model);
    let gpu = Gpu::open();
    let mut text = machine_part(&machine);
    text.push_str(&build_part(&devices));
    text.push_str(&kernels_part(&devices::kernels()));
    text.push_str(&gpus_part(&gpu.gpus(), gpu.driver().as_deref(), devices.iter().any(|d| d.is_gpu)));
    let file = ModelFile::locate(&profile.model)?;
    let header = Header::read(&file)?;
    text.push_str(&model_part(&file, &header));
    let projector = ProjectorFile::read(&profile.model, &header)?;
    row(&mut text, "images", Some(projector_line(projector.as_ref(), profile)));
    let sizes = header.sizes_with(projector.as_ref(), &profile.vision);
    let fit = Fit::new(profile, sizes, free_memory(&machine.memory, &devices))?;
    let _ = write!(text, "\nprofile {}: {}", profile.name, fit.table());
    text.push_str(&cache_part(profile, machine.memory.free()));
    Ok(Report { text, fits: fit.fits() })
}

fn row(out: &mut String, name: &str, value: Option<String>) {
    let _ = writeln!(out, "  {name:<14}{}", value.unwrap_or_else(|| "unknown".to_owned()));
}

fn machine_part(machine: &Machine) -> String {
    let mut out = "machine\n".to_owned();
    let memory = &machine.memory;
    let count = |n: Option<usize>| n.map_or("?".to_owned(), |n| n.to_string());
    row(&mut out, "system", machine.system.clone());
    row(&mut out, "kernel", machine.kernel.clone());
    row(&mut out, "cpu", machine.cpu.clone());
    row(&mut out, "extensions", Some(machine.cpu_features.join(" ")).filter(|f| !f.is_empty()));
    let threads =
        format!("{} physical, {} threads usable", count(machine.physical_cores), count(machine.usable_threads));
    row(&mut out, "cores", Some(threads));
    row(&mut out, "memory", Some(format!("{} available of {}", memory.available, memory.total)));
    row(&mut out, "swap", Some(format!("{} free of {} (never planned with)", memory.swap_free, memory.swap_total)));
    if let Some((limit, used)) = memory.limit {
        row(&mut out, "limit", Some(format!("{limit} by the control group, {used} used")));
    }
    out
}

fn build_part(devices: &[Device]) -> String {
    let mut out = format!("\nbuild\n  plateau       {}\n", crate::app::version());
    if devices.is_empty() {
        out.push_str(
            "  backends      none: this build has no model runtime (it was built without the feature `native`)\n",
        );
    }
    for device in devices {
        let _ = writeln!(
            out,
            "  {:<14}{}, {} free of {} ({})",
            device.name, device.description, device.free, device.total, device.backend
        );
    }
    out
}

/// What the model sees images with.
fn projector_line(projector: Option<&ProjectorFile>, profile: &Profile) -> String {
    let Some(projector) = projector else { return "none: no projector (model.mmproj)".to_owned() };
    let facts = &projector.facts;
    let (min, max) = profile.vision.bounds(facts.min_tokens, facts.max_tokens);
    let loaded = if profile.vision.keep_loaded { "" } else { ", loaded for each image" };
    format!(
        "{}, {}, {min} to {max} tokens of {} x {} pixels, on the {}{loaded}",
        projector.display(),
        facts.tensor_bytes,
        facts.token_px,
        facts.token_px,
        profile.vision.device.word(),
    )
}

/// What the prefix cache may take, and what its folder holds.
fn cache_part(profile: &Profile, free: Bytes) -> String {
    let mut out = "\nprefix cache\n".to_owned();
    let cache = &profile.cache;
    let ram = match cache.ram_mib {
        Some(0) => "off (cache.ram_mib is 0)".to_owned(),
        _ => {
            format!("up to {} of host memory, not part of the plan above", crate::app::cache::ram_bytes(profile, free))
        }
    };
    row(&mut out, "memory", Some(ram));
    let disk = cache.disk_dir.as_ref().map_or("none (cache.disk_dir)".to_owned(), |dir| {
        let budget = Bytes(u64::from(cache.disk_mib) << 20);
        match disk::offline::list(dir) {
            Ok(listings) => {
                let held: Bytes = listings.iter().map(|listing| Bytes(listing.bytes())).sum();
                format!("{}, up to {budget} a configuration, {held} of {} there", dir.display(), listings.len())
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                format!("{}, up to {budget}, made at the first start", dir.display())
            }
            Err(error) => format!("{}: {error}: states will not survive a restart", dir.display()),
        }
    });
    row(&mut out, "disk", Some(disk));
    out
}

/// Kernels of the plug-in; nothing without one.
fn kernels_part(kernels: &[KernelState]) -> String {
    let mut out = String::new();
    for kernel in kernels {
        let switch = if kernel.on { "on" } else { "off" };
        let _ = writeln!(out, "  kernel        {} {switch}: {}", kernel.name, kernel.purpose);
    }
    out
}

fn gpus_part(gpus: &[GpuReading], driver: Option<&str>, usable: bool) -> String {
    let mut out = "\ncards\n".to_owned();
    if gpus.is_empty() {
        out.push_str("  none that NVML knows of: the model runs on the CPU or another backend\n");
    }
    if !gpus.is_empty() && !usable {
        out.push_str(
            "  not used: no plug-in for it is loaded (libggml-cuda.so beside the executable or in model.plugin_dir)\n",
        );
    }
    if let Some(driver) = driver {
        row(&mut out, "driver", Some(driver.to_owned()));
    }
    for gpu in gpus {
        let name = gpu.name.clone().unwrap_or_else(|| "unknown".to_owned());
        let _ = writeln!(
            out,
            "  {}: {name}{}",
            gpu.index,
            gpu.compute_capability.map_or(String::new(), |(a, b)| format!(", compute {a}.{b}"))
        );
        if let Some(memory) = gpu.memory {
            let _ = writeln!(out, "     {} free of {}, {} used by others", memory.free, memory.total, memory.used);
        }
        let watts = |milliwatts: u32| format!("{} W", milliwatts / 1000);
        let readings = [
            gpu.sm_clock_mhz.map(|mhz| format!("SM {mhz} MHz")),
            gpu.memory_clock_mhz.map(|mhz| format!("memory {mhz} MHz")),
            gpu.power_milliwatts.map(watts),
            gpu.power_limit_milliwatts.map(|limit| format!("limit {}", watts(limit))),
            gpu.temperature_celsius.map(|degrees| format!("{degrees} C")),
        ];
        let readings: Vec<String> = readings.into_iter().flatten().collect();
        if !readings.is_empty() {
            let _ = writeln!(out, "     {}", readings.join(", "));
        }
    }
    out
}

fn model_part(file: &ModelFile, header: &Header) -> String {
    let model = &header.model;
    let mut out = "\nmodel\n".to_owned();
    row(&mut out, "file", Some(format!("{}, {}", file.display(), Bytes(header.gguf.file_bytes))));
    row(&mut out, "name", Some(model.name.clone()).filter(|name| !name.is_empty()));
    let billions = model.n_params as f64 / 1e9;
    row(
        &mut out,
        "architecture",
        Some(format!("{}, {billions:.3} B parameters, {}", model.architecture, model.quantization)),
    );
    let recurrent = model.recurrent.map_or(0, |r| r.n_layer);
    let layers = format!(
        "{} ({} with attention, {recurrent} recurrent), {} MTP",
        model.n_layer, model.n_layer_attention, model.n_layer_mtp
    );
    row(&mut out, "layers", Some(layers));
    let heads = format!(
        "{} query, {} key/value, {}/{} wide",
        model.n_head, model.n_head_kv, model.head_dim_k, model.head_dim_v
    );
    row(&mut out, "heads", Some(heads));
    row(&mut out, "trained to", Some(format!("{} tokens", model.n_ctx_train)));
    if let Some(recurrent) = model.recurrent {
        let state = format!(
            "{} a sequence ({} conv + {} delta)",
            recurrent.conv_bytes + recurrent.state_bytes,
            recurrent.conv_bytes,
            recurrent.state_bytes
        );
        row(&mut out, "state", Some(state));
    }
    let vocab = &header.vocab;
    let pre = if vocab.pre.is_empty() { "none named" } else { &vocab.pre };
    row(&mut out, "tokenizer", Some(format!("{}, pre-tokenizer {pre}, {} tokens", vocab.model, model.n_vocab)));
    let template = match model.chat_template {
        Some(_) => "in the file",
        None => "none: chats are rendered as ChatML; set chat.template to change that",
    };
    row(&mut out, "chat template", Some(template.to_owned()));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::GpuMemory;

    #[test]
    fn a_kernel_is_listed_with_its_switch() {
        let purpose = "attention in place".to_owned();
        let kernel = KernelState { name: "fattn_quant".to_owned(), on: false, calls: 0, fallbacks: 0, purpose };
        assert_eq!(kernels_part(&[kernel]), "  kernel        fattn_quant off: attention in place\n");
        assert_eq!(kernels_part(&[]), "");
    }

    #[test]
    fn a_gpu_that_reads_nothing_is_listed_and_nothing_is_invented() {
        let text = gpus_part(&[GpuReading { index: 0, ..GpuReading::default() }], None, true);
        assert!(text.contains("0: unknown\n"), "{text}");
        assert!(!text.contains("MHz") && !text.contains(" W") && !text.contains("MiB"), "{text}");
    }

    #[test]
    fn the_cache_shows_its_budgets_and_what_is_wrong_with_its_folder() {
        let dir = tempfile::tempdir().unwrap();
        let mut profile = Profile::demo();
        let text = cache_part(&profile, Bytes(8 << 30));
        assert!(text.contains("up to 2048.0 MiB") && text.contains("none"), "{text}");
        std::fs::write(dir.path().join("file"), b"").unwrap();
        profile.cache.disk_dir = Some(dir.path().join("file"));
        profile.cache.ram_mib = Some(0);
        let text = cache_part(&profile, Bytes(0));
        assert!(text.contains("off") && text.contains("will not survive"), "{text}");
    }

    #[test]
    fn a_gpu_shows_what_others_use_of_it() {
        let memory = GpuMemory { total: Bytes(24 << 30), free: Bytes(23 << 30), used: Bytes(1 << 30) };
        let gpu = GpuReading {
            name: Some("NVIDIA GeForce RTX 3090".into()),
            memory: Some(memory),
            power_milliwatts: Some(31_500),
            power_limit_milliwatts: Some(370_000),
            ..GpuReading::default()
        };
        let text = gpus_part(&[gpu], Some("580.1"), false);
        for part in [
            "RTX 3090",
            "23.00 GiB free of 24.00 GiB, 1024.0 MiB used",
            "31 W, limit 370 W",
            "580.1",
            "not used: no plug-in",
        ] {
            assert!(text.contains(part), "no `{part}` in\n{text}");
        }
    }
}
