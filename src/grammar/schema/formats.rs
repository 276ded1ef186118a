//! The formats that are enforced, as expressions. Narrower than the standards where readers do not agree.

use std::fmt::Write as _;

/// Days that exist, of years with four digits.
const DATE: &str = concat!(
    "(?:[1-9][0-9]{3}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
    "|(?:[1-9][0-9](?:0[48]|[2468][048]|[13579][26])|(?:[2468][048]|[13579][26])00)-02-29)",
);
/// Without leap seconds, which exist on some days alone and which most programs refuse.
const TIME: &str = concat!(
    "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?",
    "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])",
);
const BYTE: &str = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
/// A part of a host's name: no two hyphens in a row, which mark names in other scripts.
const LABEL: &str = "[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}";
const HOST: &str = "(?:[A-Za-z0-9](?:-?[A-Za-z0-9]){0,30}\\.)*[A-Za-z](?:-?[A-Za-z0-9]){0,30}";
const MAILBOX: &str = "[A-Za-z0-9!#$%&'*+/=?_{|}~-](?:\\.?[A-Za-z0-9!#$%&'*+/=?_{|}~-]){0,60}";
const UUID: &str = "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}";
const DURATION: &str = concat!(
    "P(?:[0-9]{1,9}W|(?:[0-9]{1,9}Y(?:[0-9]{1,9}M(?:[0-9]{1,9}D)?)?|[0-9]{1,9}M(?:[0-9]{1,9}D)?|[0-9]{1,9}D)",
    "(?:T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))?",
    "|T(?:[0-9]{1,9}H(?:[0-9]{1,9}M(?:[0-9]{1,9}S)?)?|[0-9]{1,9}M(?:[0-9]{1,9}S)?|[0-9]{1,9}S))",
);
/// A path character of an address.
const PCHAR: &str = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";

/// The pattern of a format, and the most characters of its texts.
pub(super) fn find(name: &str) -> Option<(String, Option<u64>)> {
    let (body, max) = match name {
        "date" => (DATE.to_owned(), None),
        "time" => (TIME.to_owned(), None),
        "date-time" => (format!("{DATE}T{TIME}"), None),
        "duration" => (DURATION.to_owned(), None),
        "uuid" => (UUID.to_owned(), None),
        "ipv4" => (format!("{BYTE}(?:\\.{BYTE}){{3}}"), None),
        "ipv6" => (ipv6(), None),
        "hostname" => (HOST.to_owned(), Some(253)),
        "email" => (format!("{MAILBOX}@(?:{LABEL}\\.)*[A-Za-z](?:-?[A-Za-z0-9]){{0,30}}"), Some(254)),
        "uri" => (uri(), None),
        _ => return None,
    };
    Some((format!("^(?:{body})$"), max))
}

fn ipv6() -> String {
    const GROUP: &str = "[0-9A-Fa-f]{1,4}";
    let mut all = format!("{GROUP}(?::{GROUP}){{7}}");
    for left in 0..=7_usize {
        let before = if left == 0 { String::new() } else { format!("{GROUP}(?::{GROUP}){{{}}}", left - 1) };
        let right = 7 - left;
        let after = if right == 0 { String::new() } else { format!("(?:{GROUP}(?::{GROUP}){{0,{}}})?", right - 1) };
        let _ = write!(all, "|{before}::{after}");
    }
    all
}

fn uri() -> String {
    let authority = format!("//(?:[A-Za-z0-9._~-]{{1,40}}@)?{HOST}(?::[0-9]{{1,4}})?(?:/{PCHAR}*)*");
    let path = format!("/?{PCHAR}+(?:/{PCHAR}*)*");
    let more = format!("(?:{PCHAR}|[/?])*");
    format!("[A-Za-z][A-Za-z0-9+.-]*:(?:{authority}|{path})(?:\\?{more})?(?:#{more})?")
}
