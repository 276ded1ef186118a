//! The prefix cache's settings from a profile, a model file and the machine.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use crate::config::Profile;
use crate::engine::PrefixSettings;
use crate::engine::prefix::{DiskSettings, Fingerprint};
use crate::units::Bytes;

use super::failure::Failure;
use super::model::{ModelFile, ProjectorFile};

/// `auto` is this part of the free memory: a quarter.
const RAM_PART: u64 = 4;
/// And no more than this: 32 GiB hold 200 states of a 27B model.
const MAX_AUTO_BYTES: u64 = 32 << 30;

/// Pieces of the model file that the fingerprint is made of, spread evenly, and the bytes of each.
/// Reading all of 16 GB would take longer than loading them; a model trained on differs in nearly
/// every tensor.
const N_SAMPLES: u64 = 256;
const SAMPLE_BYTES: usize = 16 << 10;

/// What a state depends on beside the profile.
pub struct ModelFiles<'a> {
    pub model: &'a ModelFile,
    pub projector: Option<&'a ProjectorFile>,
    pub template: &'a [u8],
}

/// What the profile says of the cache. `free`: host memory.
pub fn settings(profile: &Profile, files: &ModelFiles<'_>, free: Bytes) -> Result<PrefixSettings, Failure> {
    let config = &profile.cache;
    let disk = config.disk_dir.clone().map(|folder| DiskSettings { folder, bytes: u64::from(config.disk_mib) << 20 });
    let fingerprint = match &disk {
        Some(_) => fingerprint(profile, files)?,
        // Nothing outlives the process, so there is nothing to tell apart.
        None => Fingerprint::default(),
    };
    Ok(PrefixSettings {
        ram_bytes: ram_bytes(profile, free).0,
        disk,
        interval_tokens: config.interval_tokens.map(|n| n as usize),
        fingerprint,
        check_every: config.check_every,
    })
}

/// Host memory for saved states.
pub fn ram_bytes(profile: &Profile, free: Bytes) -> Bytes {
    match profile.cache.ram_mib {
        Some(mib) => Bytes(u64::from(mib) << 20),
        None => Bytes((free.0 / RAM_PART).min(MAX_AUTO_BYTES)),
    }
}

/// Of everything that makes the states of one run useless to another: model (its header holds the
/// rope), template, types of the caches, attention, the MTP head, what encodes images, build.
fn fingerprint(profile: &Profile, files: &ModelFiles<'_>) -> Result<Fingerprint, Failure> {
    let ModelFiles { model, projector, template } = *files;
    let unreadable =
        |name: String| move |error: std::io::Error| Failure::Unavailable(format!("cannot read {name}: {error}"));
    let samples_of = |path: &Path, name: String| samples(path).map_err(unreadable(name));
    let model = samples_of(model.path(), model.display())?;
    let projector = projector.map(|file| samples_of(file.path(), file.display())).transpose()?;
    let (engine, drafts) = (&profile.engine, &profile.speculative);
    let caches = format!(
        "{:?} {:?} {:?} mtp {} {:?} {:?}",
        engine.cache_type_k,
        engine.cache_type_v,
        engine.flash_attention,
        drafts.mtp && drafts.n_max > 0,
        drafts.cache_type_k,
        drafts.cache_type_v
    );
    let build = super::process::version();
    let parts = [
        ("model", model.as_slice()),
        ("template", template),
        ("caches", caches.as_bytes()),
        ("build", build.as_bytes()),
    ];
    // An image's bounds change its grid, which is part of the key.
    Ok(Fingerprint::of(parts.into_iter().chain(projector.as_ref().map(|bytes| ("projector", bytes.as_slice())))))
}

/// The file's size and samples of its bytes, the beginning (the header) among them.
fn samples(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let size = file.metadata()?.len();
    let mut out = size.to_le_bytes().to_vec();
    let step = (size / N_SAMPLES).max(SAMPLE_BYTES as u64);
    let mut at = 0;
    while at < size {
        file.seek(SeekFrom::Start(at))?;
        file.by_ref().take(SAMPLE_BYTES as u64).read_to_end(&mut out)?;
        at += step;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::model::Header;
    use crate::config::{CacheType, ModelConfig};

    fn file(bytes: &[u8]) -> (tempfile::TempDir, ModelFile) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("m.gguf");
        std::fs::write(&path, bytes).unwrap();
        let config = ModelConfig { path: Some(path), ..Profile::demo().model };
        (dir, ModelFile::locate(&config).unwrap())
    }

    #[test]
    fn states_of_another_model_cache_type_or_template_are_not_mixed_up() {
        let mut bytes = vec![7u8; 6 << 20];
        let profile = Profile::demo();
        let of = |profile: &Profile, model: &ModelFile, template: &[u8]| {
            fingerprint(profile, &ModelFiles { model, projector: None, template }).unwrap()
        };
        let (_dir, model) = file(&bytes);
        let mine = of(&profile, &model, b"template");
        assert_eq!(of(&profile, &model, b"template"), mine);
        assert_ne!(of(&profile, &model, b"other"), mine);
        let mut other = profile.clone();
        other.engine.cache_type_v = CacheType::Q8_0;
        assert_ne!(of(&other, &model, b"template"), mine);
        bytes.iter_mut().skip(3 << 20).for_each(|b| *b = 8);
        let (_dir, trained_on) = file(&bytes);
        assert_ne!(of(&profile, &trained_on, b"template"), mine);
        // The same model with vision encoder: images are in its states.
        let demo = ModelFile::locate(&profile.model).unwrap();
        let header = Header::read(&demo).unwrap();
        let projector = ProjectorFile::read(&profile.model, &header).unwrap();
        let seeing = ModelFiles { model: &model, projector: projector.as_ref(), template: b"template" };
        let blind = of(&profile, &model, b"template");
        assert_ne!(fingerprint(&profile, &seeing).unwrap(), blind);
    }

    #[test]
    fn automatic_memory_is_a_quarter_of_what_is_free() {
        let (_dir, model) = file(b"x");
        let ram = |mib: Option<u32>, free: u64| {
            let mut profile = Profile::demo();
            profile.cache.ram_mib = mib;
            settings(&profile, &ModelFiles { model: &model, projector: None, template: b"" }, Bytes(free))
                .unwrap()
                .ram_bytes
        };
        assert_eq!(ram(None, 8 << 30), 2 << 30);
        assert_eq!(ram(None, 1 << 40), MAX_AUTO_BYTES);
        assert_eq!(ram(Some(0), 8 << 30), 0);
        assert_eq!(ram(Some(3), 8 << 30), 3 << 20);
    }
}
