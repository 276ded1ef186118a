//! The drafting of one request: the profile's, or less of it. Contexts are made for the profile's
//! longest draft, so a longer one is refused and not clamped.

use super::error::RequestError;
use super::fields::SpeculativeFields;
use super::number::Int;
use super::sampling::{float, integer};
use crate::config::SpeculativeConfig;
use crate::engine::SpeculativeParams;

/// Checks every field.
pub fn check(fields: SpeculativeFields, profile: &SpeculativeConfig) -> Result<SpeculativeParams, RequestError> {
    let SpeculativeFields { n_max, n_min, p_min, lookup, adaptive } = fields;
    let limit = if profile.mtp { profile.n_max } else { 0 };
    let mtp_max = match n_max {
        None => limit,
        Some(Int(asked)) => {
            u32::try_from(asked).ok().filter(|n| *n <= limit).ok_or_else(|| out_of_range(asked, limit))?
        }
    };
    let lookup_max = match (lookup, profile.lookup) {
        (Some(true), false) => {
            let message = "the server's profile has lookup off (`speculative.lookup`); leave the field out";
            return Err(RequestError::unsupported("speculative.lookup", message));
        }
        (Some(false), _) | (None, false) => 0,
        (Some(true) | None, true) => profile.lookup_n_max,
    };
    // A least length above the greatest would drop every draft.
    let most = if mtp_max > 0 { mtp_max } else { lookup_max };
    let n_min = integer("speculative.n_min", n_min, i64::from(profile.n_min.min(most)), 0..=i64::from(most))?;
    Ok(SpeculativeParams {
        mtp_max,
        lookup_max,
        adaptive: adaptive.unwrap_or(profile.adaptive),
        n_min: n_min as u32,
        p_min: float("speculative.p_min", p_min, profile.p_min, 0.0..=1.0)?,
    })
}

fn out_of_range(asked: i64, limit: u32) -> RequestError {
    let message = format!(
        "`speculative.n_max` is {asked}; the server's profile allows 0 to {limit}, which its contexts were made for"
    );
    RequestError::invalid("speculative.n_max", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Profile;

    fn profile() -> SpeculativeConfig {
        SpeculativeConfig { n_max: 5, n_min: 2, p_min: 0.25, lookup_n_max: 8, ..Profile::demo().speculative }
    }

    fn checked(fields: SpeculativeFields) -> Result<SpeculativeParams, RequestError> {
        check(fields, &profile())
    }

    #[test]
    fn absent_fields_are_the_profiles() {
        let params = checked(SpeculativeFields::default()).unwrap();
        assert_eq!(params, SpeculativeParams { mtp_max: 5, lookup_max: 8, adaptive: true, n_min: 2, p_min: 0.25 });
        let off = SpeculativeConfig { mtp: false, lookup: false, ..profile() };
        let params = check(SpeculativeFields::default(), &off).unwrap();
        assert_eq!(params, SpeculativeParams { p_min: 0.25, ..SpeculativeParams::OFF });
    }

    #[test]
    fn each_source_is_switched_off_for_one_request() {
        let no_mtp = checked(SpeculativeFields { n_max: Some(Int(0)), ..SpeculativeFields::default() }).unwrap();
        assert_eq!((no_mtp.mtp_max, no_mtp.lookup_max, no_mtp.n_min), (0, 8, 2));
        let no_lookup = checked(SpeculativeFields { lookup: Some(false), ..SpeculativeFields::default() }).unwrap();
        assert_eq!((no_lookup.mtp_max, no_lookup.lookup_max), (5, 0));
        let neither = SpeculativeFields { n_max: Some(Int(0)), lookup: Some(false), ..SpeculativeFields::default() };
        assert_eq!(checked(neither).unwrap(), SpeculativeParams { p_min: 0.25, ..SpeculativeParams::OFF });
    }

    #[test]
    fn a_request_may_ask_for_the_longest_drafts_whether_they_pay_or_not() {
        let fixed = SpeculativeFields { adaptive: Some(false), ..SpeculativeFields::default() };
        assert!(!checked(fixed).unwrap().adaptive);
        let profile = SpeculativeConfig { adaptive: false, ..profile() };
        assert!(!check(SpeculativeFields::default(), &profile).unwrap().adaptive);
    }

    #[test]
    fn a_shorter_draft_lowers_the_profiles_least_length_with_it() {
        let one = checked(SpeculativeFields { n_max: Some(Int(1)), ..SpeculativeFields::default() }).unwrap();
        assert_eq!((one.mtp_max, one.n_min), (1, 1));
    }

    #[test]
    fn what_the_contexts_were_not_made_for_is_refused_with_the_limit() {
        for n_max in [6, -1, i64::MAX] {
            let error =
                checked(SpeculativeFields { n_max: Some(Int(n_max)), ..SpeculativeFields::default() }).unwrap_err();
            assert_eq!(error.param.as_deref(), Some("speculative.n_max"));
            assert!(error.message.contains("0 to 5"), "{error}");
        }
        let off = SpeculativeConfig { mtp: false, lookup: false, ..profile() };
        let one = SpeculativeFields { n_max: Some(Int(1)), ..SpeculativeFields::default() };
        assert!(check(one, &off).unwrap_err().message.contains("0 to 0"));
        let lookup = SpeculativeFields { lookup: Some(true), ..SpeculativeFields::default() };
        assert_eq!(check(lookup, &off).unwrap_err().param.as_deref(), Some("speculative.lookup"));
    }

    #[test]
    fn a_least_length_above_the_greatest_is_refused() {
        for (n_max, n_min) in [(None, 6), (Some(3), 4), (Some(0), 9), (None, -1)] {
            let fields =
                SpeculativeFields { n_max: n_max.map(Int), n_min: Some(Int(n_min)), ..SpeculativeFields::default() };
            assert_eq!(checked(fields).unwrap_err().param.as_deref(), Some("speculative.n_min"), "{n_max:?} {n_min}");
        }
        let p_min = SpeculativeFields { p_min: Some(f64::NAN), ..SpeculativeFields::default() };
        assert_eq!(checked(p_min).unwrap_err().param.as_deref(), Some("speculative.p_min"));
    }
}
