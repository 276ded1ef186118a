//! Stop strings are found at the same place however the text is cut, and never shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use plateau::text::StopMatcher;

fn run<'a>(stops: &[String], pieces: impl Iterator<Item = &'a str>) -> (String, Option<String>) {
    let (mut matcher, mut out) = (StopMatcher::new(stops.to_vec()), String::new());
    for piece in pieces {
        if matcher.push(piece, &mut out).is_some() {
            break;
        }
    }
    if matcher.matched().is_none() {
        matcher.finish(&mut out);
    }
    (out, matcher.matched().map(str::to_owned))
}

fuzz_target!(|input: (Vec<String>, String)| {
    let (stops, text) = input;
    let whole = run(&stops, std::iter::once(text.as_str()));
    let by_character = run(&stops, text.split_inclusive(|_: char| true));
    assert_eq!(whole, by_character);
    match &whole.1 {
        None => assert_eq!(whole.0, text),
        Some(stop) => assert!(text.starts_with(&format!("{}{stop}", whole.0))),
    }
    assert!(stops.iter().filter(|stop| !stop.is_empty()).all(|stop| !whole.0.contains(stop.as_str())));
});
