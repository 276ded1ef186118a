//! What was written -> what will run: layers settings over each other, remembers where each value comes from, checks the
//! result as a whole.

use std::path::Path;

use super::builtin;
use super::check;
use super::env::{self, Variable};
use super::error::{ConfigError, Origin};
use super::file::{ProfileFile, nearest};
use super::profile::Profile;
use super::settings::{SETTINGS, Setting};
use super::value::Value;

/// Longest chain of `extends`.
const MAX_EXTENDS: usize = 4;

/// Everything that may say something about settings.
#[derive(Clone, Debug, Default)]
pub struct Layers {
    /// `--profile`: a built-in name or the path of a file.
    pub profile: Option<String>,
    /// Variables with our prefix (`env::variables`).
    pub env: Vec<Variable>,
    /// (key of the setting, flag as typed, text).
    pub flags: Vec<FlagValue>,
}

/// A setting given on the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagValue {
    pub key: &'static str,
    /// With its dashes, for messages.
    pub flag: String,
    pub text: String,
}

/// A validated profile with the origin of each value.
#[derive(Debug)]
pub struct Resolved {
    pub profile: Profile,
    origins: Vec<Origin>,
    /// Variables with our prefix that look like a setting's and are none: said aloud at start, not passed over in silence.
    pub doubtful_env: Vec<String>,
}

impl Resolved {
    pub fn origin(&self, setting: &Setting) -> &Origin {
        origin_of(&self.origins, setting.key)
    }
    /// Every setting with its value as a profile file writes it, and where it comes from.
    pub fn rows(&self) -> impl Iterator<Item = (&'static Setting, String, &Origin)> {
        SETTINGS.iter().zip(&self.origins).map(|(setting, origin)| (setting, setting.show(&self.profile), origin))
    }
}

fn origin_of<'a>(origins: &'a [Origin], key: &str) -> &'a Origin {
    let index = SETTINGS.iter().position(|s| s.key == key);
    index.and_then(|i| origins.get(i)).unwrap_or(&Origin::Default)
}

/// Defaults, then the profile (and what it extends), then the environment, then flags.
pub fn resolve(layers: &Layers) -> Result<Resolved, ConfigError> {
    let mut stack = Stack { profile: Profile::demo(), origins: SETTINGS.iter().map(|_| Origin::Default).collect() };
    for file in chain(&choose(layers), layers.profile.is_none())?.iter().rev() {
        stack.file(file)?;
    }
    let doubtful_env = stack.env(&layers.env)?;
    for given in &layers.flags {
        let setting =
            Setting::find(given.key).ok_or_else(|| not_a_setting(given.key, &Origin::Flag(given.flag.clone())))?;
        stack.text(setting, &given.text, Origin::Flag(given.flag.clone()))?;
    }
    check::whole(&stack.profile, &|key| origin_of(&stack.origins, key).clone())?;
    Ok(Resolved { profile: stack.profile, origins: stack.origins, doubtful_env })
}

/// The profile to start from: the flag, the environment, or what fits the model.
fn choose(layers: &Layers) -> String {
    let model = Setting::find("model.path");
    let env_model = model.and_then(|setting| env::value(&layers.env, &setting.env()));
    let flag_model = layers.flags.iter().rev().find(|f| f.key == "model.path").map(|f| f.text.as_str());
    let has_model = flag_model.or(env_model).is_some_and(|path| Some(path) != model.and_then(|s| s.absent));
    match (&layers.profile, env::value(&layers.env, env::PROFILE)) {
        (Some(name), _) => name.clone(),
        (None, Some(name)) => name.to_owned(),
        (None, None) if has_model => builtin::ANY_MODEL.to_owned(),
        (None, None) => builtin::DEFAULT.to_owned(),
    }
}

/// The chosen file and what it extends, strongest first.
fn chain(chosen: &str, from_env: bool) -> Result<Vec<ProfileFile>, ConfigError> {
    let origin = if from_env { Origin::Env(env::PROFILE.to_owned()) } else { Origin::Flag("--profile".to_owned()) };
    let mut files = vec![load(chosen, &origin)?];
    while let Some(base) = files.last().and_then(|file| file.extends.clone()) {
        let label = files.last().map(|file| file.label.clone()).unwrap_or_default();
        let at = Origin::File { file: label, line: 1 };
        if files.len() > MAX_EXTENDS {
            return Err(ConfigError {
                key: "extends".to_owned(),
                origin: at,
                message: format!("more than {MAX_EXTENDS} profiles extend each other"),
                fix: "extend a profile that stands alone".to_owned(),
            });
        }
        let file = builtin::load(&base).ok_or_else(|| no_such_profile("extends", &base, at))??;
        files.push(file);
    }
    Ok(files)
}

fn load(chosen: &str, origin: &Origin) -> Result<ProfileFile, ConfigError> {
    if let Some(file) = builtin::load(chosen) {
        return file;
    }
    if chosen.contains(std::path::MAIN_SEPARATOR) || chosen.ends_with(".toml") {
        return ProfileFile::read(Path::new(chosen));
    }
    Err(no_such_profile("profile", chosen, origin.clone()))
}

fn no_such_profile(key: &str, name: &str, origin: Origin) -> ConfigError {
    ConfigError {
        key: key.to_owned(),
        origin,
        message: format!("there is no built-in profile `{name}`"),
        fix: format!(
            "use one of {}, or the path of a file that ends in .toml",
            builtin::names().collect::<Vec<_>>().join(", ")
        ),
    }
}

fn not_a_setting(key: &str, origin: &Origin) -> ConfigError {
    ConfigError {
        key: key.to_owned(),
        origin: origin.clone(),
        message: "not a setting".to_owned(),
        fix: match nearest(key) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "`plateau profile show` lists the keys".to_owned(),
        },
    }
}

/// A profile under construction.
struct Stack {
    profile: Profile,
    origins: Vec<Origin>,
}

impl Stack {
    fn file(&mut self, file: &ProfileFile) -> Result<(), ConfigError> {
        self.profile.name.clone_from(&file.name);
        self.profile.description.clone_from(&file.description);
        for written in &file.written {
            let origin = Origin::File { file: file.label.clone(), line: written.line };
            self.value(written.setting, &written.value, origin)?;
        }
        Ok(())
    }

    /// A variable that names a section and then no setting of it is a slip of the pen and an error. Returns others that are
    /// close to a setting: orchestrators set names such as PLATEAU_PORT by themselves, so they cannot be errors.
    fn env(&mut self, variables: &[Variable]) -> Result<Vec<String>, ConfigError> {
        let mut doubtful = Vec::new();
        for (name, text) in variables {
            let origin = Origin::Env(name.clone());
            let alias = if name == env::KERNELS { Setting::find("model.kernels") } else { None };
            if let Some(setting) = alias.or_else(|| SETTINGS.iter().find(|s| s.is_env(name))) {
                self.text(setting, text, origin)?;
            } else if ![env::PROFILE, env::LOG, env::LOG_JSON].contains(&name.as_str()) {
                let key = name[env::PREFIX.len()..].to_lowercase().replacen('_', ".", 1);
                let section = key.split('.').next().unwrap_or(&key);
                if SETTINGS.iter().any(|s| s.is_of(section)) {
                    return Err(not_a_setting(&key, &origin));
                }
                if nearest(&name[env::PREFIX.len()..].to_lowercase()).is_some() {
                    doubtful.push(name.clone());
                }
            }
        }
        Ok(doubtful)
    }

    fn text(&mut self, setting: &'static Setting, text: &str, origin: Origin) -> Result<(), ConfigError> {
        match setting.parse(text) {
            Ok(value) => self.value(setting, &value, origin),
            Err(message) => Err(refused(setting, origin, message)),
        }
    }

    fn value(&mut self, setting: &'static Setting, value: &Value, origin: Origin) -> Result<(), ConfigError> {
        if !setting.write(&mut self.profile, value) {
            return Err(refused(setting, origin, format!("{value} does not fit")));
        }
        let index = SETTINGS.iter().position(|s| s.key == setting.key);
        if let Some(slot) = index.and_then(|i| self.origins.get_mut(i)) {
            *slot = origin;
        }
        Ok(())
    }
}

fn refused(setting: &Setting, origin: Origin, message: String) -> ConfigError {
    ConfigError { key: setting.key.to_owned(), origin, message, fix: format!("use {}", setting.accepts()) }
}
