//! The flags of settings, generated from the table in `config`: one flag a setting, with its short names, its documentation,
//! its range and its environment variable in the help.

use clap::builder::Str;
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};

use crate::config::resolve::{FlagValue, Layers};
use crate::config::{ConfigError, Resolved, SETTINGS, env, resolve};

/// What the command line says about settings and the profile. Variables of the environment are added by `resolve`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SettingFlags {
    pub profile: Option<String>,
    pub given: Vec<FlagValue>,
}

impl SettingFlags {
    /// The validated profile. Says aloud which variables of the environment look like settings and are none.
    pub fn resolve(&self, env: &[env::Variable]) -> Result<Resolved, ConfigError> {
        let resolved =
            resolve(&Layers { profile: self.profile.clone(), env: env.to_vec(), flags: self.given.clone() })?;
        for name in &resolved.doubtful_env {
            tracing::warn!(name, "this environment variable is not a setting; `plateau profile show` lists them");
        }
        Ok(resolved)
    }
}

impl Args for SettingFlags {
    fn augment_args(cmd: Command) -> Command {
        let profile = Arg::new("profile")
            .long("profile")
            .value_name("NAME|FILE")
            .help("Built-in profile, or path of a profile file that ends in .toml [env: PLATEAU_PROFILE]");
        SETTINGS.iter().fold(cmd.arg(profile), |cmd, setting| {
            let help = format!("{} [{}] [env: {}]", setting.doc(), setting.accepts(), setting.env());
            let arg = Arg::new(Str::from(setting.key))
                .long(Str::from(setting.flag()))
                .visible_aliases(setting.short_flags.to_vec())
                .aliases(setting.old_flag().map(Str::from))
                .value_name(setting.kind.placeholder())
                .allow_hyphen_values(true)
                .overrides_with(setting.key)
                .help(help)
                .help_heading(format!("Settings: {}", setting.section()));
            cmd.arg(arg)
        })
    }

    fn augment_args_for_update(cmd: Command) -> Command {
        SettingFlags::augment_args(cmd)
    }
}

impl FromArgMatches for SettingFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<SettingFlags, clap::Error> {
        let given = |key: &str| matches.get_one::<String>(key).cloned();
        let flags = SETTINGS.iter().filter_map(|setting| {
            given(setting.key).map(|text| FlagValue { key: setting.key, flag: format!("--{}", setting.flag()), text })
        });
        Ok(SettingFlags { profile: given("profile"), given: flags.collect() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = SettingFlags::from_arg_matches(matches)?;
        Ok(())
    }
}
