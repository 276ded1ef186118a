//! Does it fit: the plan of a profile and a model against what is free here and now, as a value and
//! as the table that `doctor` prints and that a refused start prints.

use std::fmt::Write as _;

use crate::config::plan::{Alternative, FreeMemory, Item, ModelSizes, Place, Plan, alternatives, cache_types_fit};
use crate::config::{Profile, Setting, SpeculativeConfig};
use crate::units::Bytes;

use super::devices::Device;
use super::failure::Failure;
use super::machine::HostMemory;

/// The answer with everything that it rests on.
pub struct Fit {
    pub plan: Plan,
    pub free: FreeMemory,
    sizes: ModelSizes,
    /// Why the MTP block of the file is not loaded.
    mtp_off: Option<&'static str>,
    /// Empty when the plan fits.
    pub alternatives: Vec<Alternative>,
}

impl Fit {
    /// Fails with `Failure::Usage` where the cache types suit no plan of this model at all.
    pub fn new(profile: &Profile, sizes: ModelSizes, free: FreeMemory) -> Result<Fit, Failure> {
        cache_types_fit(&sizes, &profile.engine, &profile.speculative).map_err(Failure::Usage)?;
        let (engine, speculative, gpu_layers) = (&profile.engine, &profile.speculative, profile.model.gpu_layers);
        let plan = Plan::new(&sizes, engine, speculative, gpu_layers, free.gpu.is_some());
        let alternatives = match plan.fits(&free) {
            true => Vec::new(),
            false => alternatives(&sizes, engine, speculative, gpu_layers, &free),
        };
        let mtp_off = match speculative {
            _ if sizes.mtp == Bytes(0) || speculative.in_effect(sizes.has_mtp_head()).mtp => None,
            SpeculativeConfig { mtp: false, .. } => Some("speculative.mtp is off"),
            _ => Some("speculative.n_max is 0"),
        };
        Ok(Fit { plan, free, sizes, mtp_off, alternatives })
    }

    pub fn fits(&self) -> bool {
        self.plan.fits(&self.free)
    }

    /// The table, the verdict and what would fit.
    pub fn table(&self) -> String {
        let mut out = format!("memory with {} tokens in the cache (~ marks estimates)\n", self.plan.ctx_tokens);
        for place in [Place::Gpu, Place::Host] {
            let items: Vec<&Item> = self.plan.items.iter().filter(|item| item.place == place).collect();
            if items.is_empty() {
                continue;
            }
            let _ = writeln!(out, "  {}", place.name());
            for item in items {
                let mark = if item.estimate { '~' } else { ' ' };
                line(&mut out, item.what, mark, item.bytes, &item.note);
            }
            let need = self.plan.need(place);
            line(&mut out, "margin", ' ', self.plan.margin(place), "kept free");
            line(&mut out, "total", ' ', need + self.plan.margin(place), "");
            line(&mut out, "free now", ' ', self.free_at(place), "");
        }
        if let Some(why) = self.mtp_off {
            let _ = writeln!(out, "  MTP block in the file: {}, not loaded: {why}", self.sizes.mtp);
        }
        out.push_str(&self.verdict());
        out
    }

    fn free_at(&self, place: Place) -> Bytes {
        match place {
            Place::Gpu => self.free.gpu.unwrap_or(Bytes(0)),
            Place::Host => self.free.host,
        }
    }

    fn verdict(&self) -> String {
        let mut out = String::new();
        for short in self.plan.shortfalls(&self.free) {
            let missing = Bytes(short.need.0 - short.free.0);
            let _ = writeln!(out, "does not fit: {} short on the {}", missing, short.place.name());
        }
        if out.is_empty() {
            let trained = self.sizes.n_ctx_train;
            out.push_str("fits at full context\n");
            if self.plan.ctx_tokens > trained.next_multiple_of(256) {
                let _ = writeln!(out, "note: the model was trained for {trained} tokens; longer sequences degrade");
            }
            return out;
        }
        if self.alternatives.is_empty() {
            out.push_str("nothing that can be set makes it fit: take a smaller quantization or a smaller model\n");
        } else {
            out.push_str("what would fit:\n");
        }
        for alternative in &self.alternatives {
            let flags: Vec<String> =
                alternative.changes.iter().map(|c| format!("{} {}", flag(c.key), c.value)).collect();
            let _ = writeln!(out, "  {}", flags.join(" "));
        }
        out
    }
}

fn line(out: &mut String, what: &str, mark: char, bytes: Bytes, note: &str) {
    let text = format!("    {what:<18}{mark}{:>12}  {note}", bytes.to_string());
    out.push_str(text.trim_end());
    out.push('\n');
}

/// The shortest flag of a setting.
fn flag(key: &str) -> String {
    let setting = Setting::find(key);
    let short = setting.and_then(|s| s.short_flags.last().copied()).map(str::to_owned);
    format!("--{}", short.or(setting.map(Setting::flag)).unwrap_or_else(|| key.to_owned()))
}

/// What a model may take: the first GPU that the runtime can use, and the host.
pub fn free_memory(host: &HostMemory, devices: &[Device]) -> FreeMemory {
    let gpu: Option<Bytes> = devices.iter().find(|device| device.is_gpu).map(|device| device.free);
    FreeMemory { gpu, host: host.free() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes() -> ModelSizes {
        ModelSizes {
            trunk: Bytes(100 << 20),
            token_embedding: Bytes(10 << 20),
            output_head: None,
            mtp: Bytes(5 << 20),
            recurrent: Some(Bytes(1 << 20)),
            n_layer: 8,
            n_layer_mtp: 1,
            n_layer_attention: 2,
            n_embd: 256,
            n_ff: 768,
            n_vocab: 4096,
            n_head: 4,
            n_head_kv: 2,
            head_dim_k: 256,
            head_dim_v: 256,
            n_ctx_train: 8192,
            images: None,
        }
    }

    fn fit_of(profile: &Profile, host_mib: u64) -> Fit {
        Fit::new(profile, sizes(), FreeMemory { gpu: None, host: Bytes(host_mib << 20) }).unwrap()
    }

    fn fit(host_mib: u64) -> Fit {
        fit_of(&Profile::demo(), host_mib)
    }

    #[test]
    fn a_refusal_prints_the_plan_and_the_flags_that_would_fit() {
        let refused = fit(710);
        assert!(!refused.fits());
        let table = refused.table();
        for text in [
            "KV cache",
            "recurrent state",
            "does not fit",
            "short on the host",
            "what would fit:\n  --cache-type-k q8_0 --cache-type-v q8_0\n  --mtp false\n",
        ] {
            assert!(table.contains(text), "no `{text}` in\n{table}");
        }
    }

    #[test]
    fn what_fits_says_so_and_names_what_is_not_loaded_and_what_is_too_long() {
        let mut profile = Profile::demo();
        profile.speculative.mtp = false;
        let table = fit_of(&profile, 4000).table();
        assert!(table.contains("fits at full context"), "{table}");
        assert!(table.contains("MTP block in the file: 5.0 MiB, not loaded: speculative.mtp is off"), "{table}");
        assert!(!fit(4000).table().contains("not loaded"), "{table}");
        assert!(table.contains("trained for 8192 tokens"), "{table}");
    }

    #[test]
    fn estimates_are_marked() {
        let table = fit(4000).table();
        let row = |what: &str| table.lines().find(|l| l.trim_start().starts_with(what)).unwrap().to_owned();
        assert!(row("activations").contains('~'));
        assert!(!row("KV cache").contains('~'));
    }

    fn device(name: &str, is_gpu: bool, free: u64) -> Device {
        let text = || name.to_owned();
        Device { name: text(), description: text(), backend: text(), is_gpu, free: Bytes(free), total: Bytes(free) }
    }

    #[test]
    fn a_gpu_without_a_backend_for_it_is_not_planned_with() {
        let host = HostMemory { available: Bytes(7), ..HostMemory::default() };
        let cpu = device("CPU", false, 7);
        assert_eq!(free_memory(&host, std::slice::from_ref(&cpu)), FreeMemory { gpu: None, host: Bytes(7) });
        let both = [cpu, device("CUDA0", true, 24)];
        assert_eq!(free_memory(&host, &both).gpu, Some(Bytes(24)));
    }
}
