//! Profiles through their layers: what wins, what is refused and how the refusal names the place.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use plateau::config::resolve::FlagValue;
use plateau::config::{CacheType, ConfigError, Layers, Origin, Profile, Resolved, SETTINGS, Setting, builtin, resolve};

fn layers(profile: Option<&str>, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Layers {
    Layers {
        profile: profile.map(str::to_owned),
        env: env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect(),
        flags: flags
            .iter()
            .map(|(key, text)| FlagValue {
                key,
                flag: format!("--{}", key.replace(['.', '_'], "-")),
                text: (*text).to_owned(),
            })
            .collect(),
    }
}

fn from(profile: Option<&str>, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> Resolved {
    resolve(&layers(profile, env, flags)).unwrap()
}

fn refused(profile: Option<&str>, env: &[(&str, &str)], flags: &[(&'static str, &str)]) -> ConfigError {
    resolve(&layers(profile, env, flags)).unwrap_err()
}

/// A profile file in a folder that lives as long as the test.
fn file(text: &str) -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    std::fs::write(&path, text).unwrap();
    let path = path.display().to_string();
    (folder, path)
}

fn origin<'a>(resolved: &'a Resolved, key: &str) -> &'a Origin {
    resolved.origin(Setting::find(key).unwrap())
}

#[test]
fn the_demo_file_equals_the_built_in_defaults() {
    let mut defaults = Profile::demo();
    let resolved = from(Some("demo"), &[], &[]);
    defaults.description.clone_from(&resolved.profile.description);
    assert_eq!(resolved.profile, defaults);
}

#[test]
fn every_built_in_profile_is_valid_and_carries_its_name() {
    for name in builtin::names() {
        let resolved = from(Some(name), &[], &[]);
        assert_eq!(resolved.profile.name, name);
        assert!(resolved.doubtful_env.is_empty());
    }
}

/// A value without a reason is a guess that nobody can check later.
#[test]
fn every_value_in_configs_carries_a_comment() {
    for name in builtin::names() {
        let path = format!("{}/configs/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let mut in_section = false;
        for (number, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            in_section |= line.starts_with('[');
            if in_section && line.contains('=') {
                let reason = line.split_once(" # ").map_or("", |(_, reason)| reason);
                assert!(reason.len() > 7, "{path}:{}: no reason", number + 1);
            }
        }
    }
}

#[test]
fn the_reference_profiles_have_the_promised_sizes() {
    let agent = from(Some("agent"), &[], &[]).profile;
    assert_eq!(agent.engine.ctx_tokens, Some(200 * 1024));
    assert_eq!(agent.engine.cache_type_k, CacheType::Q4_0);
    assert_eq!((agent.sampling.temperature, agent.sampling.top_p), (0.6, 0.95));
    assert_eq!((agent.sampling.top_k, agent.sampling.min_p), (20, 0.0));
    assert_eq!(from(Some("vision"), &[], &[]).profile.engine.ctx_tokens, Some(150 * 1024));
    let bounded = from(Some("bounded-thinking"), &[], &[]).profile;
    assert_eq!((bounded.engine.ctx_tokens, bounded.chat.thinking), (Some(200 * 1024), Some(true)));
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let (_folder, path) = file("name = \"m\"\ndescription = \"d\"\n[engine]\nparallel = 2\n");
    let env = [("PLATEAU_ENGINE_PARALLEL", "3")];
    assert_eq!(from(None, &[], &[]).profile.engine.parallel, Profile::demo().engine.parallel);
    assert_eq!(from(Some(&path), &[], &[]).profile.engine.parallel, 2);
    assert_eq!(from(Some(&path), &env, &[]).profile.engine.parallel, 3);
    assert_eq!(from(Some(&path), &env, &[("engine.parallel", "5")]).profile.engine.parallel, 5);
}

#[test]
fn each_value_knows_where_it_comes_from() {
    let (_folder, path) = file("name = \"m\"\ndescription = \"d\"\n\n[engine]\nparallel = 2\nctx_tokens = 4096\n");
    let resolved = from(Some(&path), &[("PLATEAU_SERVER_PORT", "9")], &[("engine.ctx_tokens", "8192")]);
    assert_eq!(*origin(&resolved, "engine.parallel"), Origin::File { file: path, line: 5 });
    assert_eq!(*origin(&resolved, "server.port"), Origin::Env("PLATEAU_SERVER_PORT".into()));
    assert_eq!(*origin(&resolved, "engine.ctx_tokens"), Origin::Flag("--engine-ctx-tokens".into()));
    assert_eq!(*origin(&resolved, "server.host"), Origin::Default);
    assert_eq!(resolved.rows().count(), SETTINGS.len());
}

#[test]
fn a_file_that_extends_keeps_the_lines_of_both() {
    let (_folder, path) = file("name = \"m\"\ndescription = \"d\"\nextends = \"agent\"\n[engine]\nparallel = 1\n");
    let resolved = from(Some(&path), &[], &[]);
    assert_eq!(resolved.profile.name, "m");
    assert_eq!(resolved.profile.engine.ctx_tokens, Some(204_800));
    assert_eq!(*origin(&resolved, "engine.parallel"), Origin::File { file: path, line: 5 });
    let Origin::File { file, .. } = origin(&resolved, "engine.ctx_tokens") else { panic!("not from a file") };
    assert_eq!(file, "configs/agent.toml");
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_the_nearest_one() {
    let (_folder, path) = file("name = \"m\"\ndescription = \"d\"\n[engine]\nparalell = 2\n");
    let error = refused(Some(&path), &[], &[]);
    assert_eq!(error.key, "engine.paralell");
    assert_eq!(error.origin, Origin::File { file: path.clone(), line: 4 });
    assert!(error.to_string().contains(&format!("{path}:4")), "{error}");
    assert!(error.fix.contains("engine.parallel"), "{error}");
}

#[test]
fn unknown_sections_and_top_level_keys_are_refused() {
    for (text, key) in [("[motor]\nx = 1\n", "motor"), ("parallel = 1\n", "parallel"), ("name = 3\n", "name")] {
        let (_folder, path) = file(&format!("description = \"d\"\n{text}"));
        let error = refused(Some(&path), &[], &[]);
        assert_eq!((error.key.as_str(), &error.origin), (key, &Origin::File { file: path, line: 2 }));
    }
}

#[test]
fn a_file_must_say_what_it_is() {
    let (_folder, path) = file("name = \"m\"\n");
    assert_eq!(refused(Some(&path), &[], &[]).key, "description");
}

#[test]
fn broken_toml_is_refused_with_its_line() {
    let (_folder, path) = file("name = \"m\"\ndescription = \"d\"\n[engine\n");
    assert_eq!(refused(Some(&path), &[], &[]).origin, Origin::File { file: path, line: 3 });
}

#[test]
fn values_out_of_range_name_their_place_and_the_range() {
    let (_folder, path) = file("name = \"m\"\ndescription = \"d\"\n[engine]\nparallel = 9\n");
    let errors = [
        refused(Some(&path), &[], &[]),
        refused(None, &[("PLATEAU_ENGINE_PARALLEL", "9")], &[]),
        refused(None, &[], &[("engine.parallel", "9")]),
    ];
    for (error, place) in errors.iter().zip([":4", "PLATEAU_ENGINE_PARALLEL", "--engine-parallel"]) {
        assert!(error.to_string().contains(place), "{error}");
        assert!(error.fix.contains("1..=8"), "{error}");
    }
}

#[test]
fn a_value_of_the_wrong_type_is_refused() {
    for line in ["parallel = \"2\"", "cache_type_k = \"q9_9\"", "ctx_tokens = 1.5", "parallel = 99999999999999999999"] {
        let (_folder, path) = file(&format!("name = \"m\"\ndescription = \"d\"\n[engine]\n{line}\n"));
        assert_eq!(refused(Some(&path), &[], &[]).origin, Origin::File { file: path, line: 4 }, "{line}");
    }
}

#[test]
fn a_misspelt_variable_of_a_section_is_refused_and_others_are_reported() {
    let error = refused(None, &[("PLATEAU_ENGINE_PARALEL", "2")], &[]);
    assert_eq!(error.origin, Origin::Env("PLATEAU_ENGINE_PARALEL".into()));
    assert!(error.fix.contains("engine.parallel"), "{error}");
    let resolved =
        from(None, &[("PLATEAU_PORT", "tcp://10.0.0.1:80"), ("PLATEAU_LOG", "debug"), ("PLATEAU_BIN", "x")], &[]);
    assert_eq!(resolved.doubtful_env, ["PLATEAU_PORT"]);
}

#[test]
fn values_that_are_wrong_together_are_refused_with_the_origin_of_one() {
    let cases = [
        ("engine.ubatch_tokens", "4096"),
        ("engine.prefill_chunk_tokens", "4096"),
        ("chat.late_system_wrapper", "no place for the text"),
    ];
    for (key, text) in cases {
        let error = refused(None, &[], &[(key, text)]);
        assert_eq!(error.key, key);
        assert!(matches!(error.origin, Origin::Flag(_)), "{error}");
    }
    let small = [("engine.batch_tokens", "4"), ("engine.ubatch_tokens", "4"), ("engine.prefill_chunk_tokens", "4")];
    assert_eq!(refused(None, &[], &small).key, "engine.parallel");
    let error = refused(None, &[], &[("engine.cache_type_v", "q4_0"), ("engine.flash_attention", "off")]);
    assert_eq!(error.key, "engine.cache_type_v");
}

#[test]
fn drafts_that_cannot_be_made_or_checked_are_refused() {
    let rows = |ubatch| [("engine.ubatch_tokens", ubatch), ("speculative.lookup_n_max", "15")];
    assert_eq!(refused(None, &[], &rows("16")).key, "engine.ubatch_tokens");
    from(None, &[], &rows("17"));
    from(None, &[], &[("engine.ubatch_tokens", "2"), ("speculative.lookup", "false"), ("speculative.mtp", "false")]);
    let error = refused(None, &[], &[("speculative.n_min", "4")]);
    assert_eq!(error.key, "speculative.n_min");
    assert!(error.message.contains("speculative.n_max = 3"), "{error}");
    let head = [("speculative.cache_type_v", "q8_0"), ("engine.flash_attention", "off")];
    assert_eq!(refused(None, &[], &head).key, "speculative.cache_type_v");
    from(None, &[], &[head[0], head[1], ("speculative.mtp", "false")]);
}

#[test]
fn a_source_that_may_draft_nothing_is_off() {
    let speculative = |flags: &[(&'static str, &str)]| from(None, &[], flags).profile.speculative;
    let on = speculative(&[]);
    assert_eq!((on.in_effect(true), on.in_effect(true).draft_tokens_max()), (on.clone(), 8));
    assert!(!on.in_effect(false).mtp, "no head");
    let no_mtp = speculative(&[("speculative.n_max", "0"), ("speculative.lookup_n_max", "2")]).in_effect(true);
    assert_eq!((no_mtp.mtp, no_mtp.lookup, no_mtp.draft_tokens_max()), (false, true, 2));
    let none = speculative(&[("speculative.mtp", "off"), ("speculative.lookup_n_max", "0")]).in_effect(true);
    assert_eq!((none.mtp, none.lookup, none.draft_tokens_max()), (false, false, 0));
}

#[test]
fn the_profile_fits_what_is_served_when_none_is_named() {
    let name = |env: &[(&str, &str)], flags: &[(&'static str, &str)]| from(None, env, flags).profile.name;
    assert_eq!(name(&[], &[]), "demo");
    assert_eq!(name(&[], &[("model.path", "x.gguf")]), "generic");
    assert_eq!(name(&[("PLATEAU_MODEL_PATH", "x.gguf")], &[]), "generic");
    assert_eq!(name(&[("PLATEAU_MODEL_PATH", "x.gguf")], &[("model.path", "embedded")]), "demo");
    assert_eq!(name(&[("PLATEAU_PROFILE", "agent")], &[("model.path", "x.gguf")]), "agent");
}

#[test]
fn a_profile_that_does_not_exist_names_those_that_do() {
    let error = refused(Some("agnet"), &[], &[]);
    assert_eq!(error.origin, Origin::Flag("--profile".into()));
    assert!(error.fix.contains("agent"), "{error}");
    assert!(refused(Some("./absent.toml"), &[], &[]).message.contains("cannot be read"));
    assert_eq!(refused(None, &[("PLATEAU_PROFILE", "agnet")], &[]).origin, Origin::Env("PLATEAU_PROFILE".into()));
}

#[test]
fn the_word_for_no_value_undoes_a_lower_layer() {
    let resolved = from(Some("agent"), &[], &[("engine.ctx_tokens", "model"), ("chat.thinking", "template")]);
    assert_eq!(resolved.profile.engine.ctx_tokens, None);
    assert_eq!(resolved.profile.chat.thinking, None);
}

#[test]
fn the_old_name_of_a_section_is_read_for_one_release() {
    let (_folder, path) = file("name = \"mine\"\ndescription = \"d\"\n[pictures]\nmax_bytes = 4096\n");
    assert_eq!(from(Some(&path), &[], &[]).profile.images.max_bytes, 4096);
    let env = from(None, &[("PLATEAU_PICTURES_MAX_SIDE", "64")], &[]);
    assert_eq!(env.profile.images.max_side, 64);
    let slip = refused(None, &[("PLATEAU_PICTURES_MAX_SIDES", "64")], &[]);
    assert!(slip.to_string().contains("pictures.max_sides"), "{slip}");
}
