//! What a client sees of a generation: text, tokens, logprobs, progress, reasons, counts.

mod scripted;

use plateau::engine::fake::{IM_END, Next};
use plateau::engine::{FakeRunner, FinishReason, GenerationRequest};
use plateau::sampling::SamplingParams;
use plateau::units::Token;
use scripted::*;

fn stopping(prompt: &str, stop: &[&str]) -> GenerationRequest {
    GenerationRequest { stop: stop.iter().map(|s| (*s).to_owned()).collect(), ..request(prompt) }
}

#[tokio::test]
async fn a_stop_string_over_token_borders_is_found_and_nothing_of_it_is_sent() {
    let rig = start(FakeRunner::saying("alpha beta gamma delta"));
    let answer = rig.ask(stopping("q", &["beta gamma"])).await;
    assert_eq!((answer.text.as_str(), answer.reason()), ("alpha ", FinishReason::Stop("beta gamma".into())));
    assert_eq!(answer.tokens, tokens("alpha "));
    assert_eq!(
        answer.finish().usage.completion,
        "alpha beta gamma".len(),
        "the tokens of the stop string were generated"
    );
    rig.close().await;
}

#[tokio::test]
async fn text_held_back_for_a_stop_string_is_sent_at_the_end() {
    let rig = start(FakeRunner::saying("alpha beta gam"));
    let answer = rig.ask(stopping("q", &["beta gamma"])).await;
    assert_eq!((answer.text.as_str(), answer.reason()), ("alpha beta gam", FinishReason::Eos(IM_END)));
    rig.close().await;
}

#[tokio::test]
async fn characters_of_several_tokens_come_whole_and_a_cut_one_is_replaced_once() {
    let rig = start(FakeRunner::saying("caf\u{e9} \u{1f638}\u{1f638}"));
    let answer = rig.ask(request("q")).await;
    assert_eq!(answer.text, "caf\u{e9} \u{1f638}\u{1f638}");
    let cut = rig.ask(GenerationRequest { max_tokens: Some(12), ..request("q") }).await;
    assert_eq!((cut.text.as_str(), cut.tokens.len()), ("caf\u{e9} \u{1f638}\u{fffd}", 12));
    rig.close().await;
}

#[tokio::test]
async fn ignore_eos_goes_on_to_max_tokens() {
    let rig = start(FakeRunner::saying("abc"));
    let request = GenerationRequest { ignore_eos: true, max_tokens: Some(8), ..request("q") };
    let answer = rig.ask(request).await;
    assert_eq!((answer.text.as_str(), answer.reason()), ("abcabcab", FinishReason::MaxTokens));
    rig.close().await;
}

#[tokio::test]
async fn the_token_that_ends_a_generation_is_counted_and_not_sent() {
    let rig = start(FakeRunner::saying("abc"));
    let answer = rig.ask(GenerationRequest { logprobs: Some(0), ..request("hello") }).await;
    assert_eq!(answer.reason(), FinishReason::Eos(IM_END));
    assert_eq!((answer.tokens.len(), answer.logprobs.len()), (3, 3));
    let usage = answer.finish().usage;
    assert_eq!((usage.prompt, usage.cached, usage.completion), (5, 0, 4));
    let timings = answer.finish().timings;
    assert_eq!((timings.prompt_n, timings.predicted_n), (5, 4));
    assert!(timings.ttft_ms >= timings.prompt_ms);
    rig.close().await;
}

#[tokio::test]
async fn no_tokens_asked_no_tokens_given() {
    let rig = start(FakeRunner::saying("abc"));
    let answer = rig.ask(GenerationRequest { max_tokens: Some(0), ..request("hello") }).await;
    assert_eq!((answer.text.as_str(), answer.reason()), ("", FinishReason::MaxTokens));
    assert_eq!(answer.finish().usage.completion, 0);
    assert!(rig.metric("plateau_empty_completion_total 1"));
    rig.close().await;
}

#[tokio::test]
async fn control_tokens_are_shown_only_where_asked() {
    let rig = start(FakeRunner::saying("a<|im_start|>b<think>c"));
    assert_eq!(rig.ask(request("q")).await.text, "ab<think>c");
    let raw = rig.ask(GenerationRequest { show_control: true, ..request("q") }).await;
    assert_eq!(raw.text, "a<|im_start|>b<think>c");
    rig.close().await;
}

#[tokio::test]
async fn logprobs_have_text_bytes_and_alternatives() {
    let runner = FakeRunner::function(|history| {
        if history.len() > 1 {
            return Next::Token(IM_END);
        }
        let mut row = vec![f32::NEG_INFINITY; 266];
        row[usize::from(b'x')] = 2.0_f32.ln();
        row[usize::from(b'y')] = 0.0;
        Next::Row(row)
    });
    let rig = start(runner);
    let answer = rig.ask(GenerationRequest { logprobs: Some(2), ..request("q") }).await;
    let [logprob] = &answer.logprobs[..] else { panic!("{answer:?}") };
    assert_eq!((logprob.token, logprob.text.as_str(), &logprob.bytes[..]), (Token(120), "x", &b"x"[..]));
    assert!((logprob.logprob - (2.0_f32 / 3.0).ln()).abs() < 1e-5);
    let top: Vec<_> = logprob.top.iter().map(|(_, text, _, p)| (text.as_str(), (p.exp() * 300.0).round())).collect();
    assert_eq!(top, [("x", 200.0), ("y", 100.0)]);
    rig.close().await;
}

#[tokio::test]
async fn progress_tells_done_and_cached_tokens_and_ends_with_the_prompt() {
    let rig = start(FakeRunner::saying("ok"));
    let asked = |prompt: &str| GenerationRequest { progress: true, ..request(prompt) };
    let long = "p".repeat(1200);
    let passes: Vec<_> = (1..=9).map(|n| (n * 128, 0)).chain([(1200, 0)]).collect();
    assert_eq!(rig.ask(asked(&long)).await.progress, passes);
    assert_eq!(rig.ask(asked(&format!("{}?", &long[..1100]))).await.progress, [(1101, 1100)]);
    assert!(rig.ask(request("silent")).await.progress.is_empty());
    rig.close().await;
}

#[tokio::test]
async fn a_seed_gives_the_same_answer_beside_others_as_alone() {
    // All letters are equally likely, so only the random stream decides.
    let letters = |history: &[Token]| {
        let mut row = vec![f32::NEG_INFINITY; 266];
        row[97..123].fill(0.0);
        row[IM_END.index()] = if history.len() > 60 { 50.0 } else { f32::NEG_INFINITY };
        Next::Row(row)
    };
    let drawn = |seed| {
        let sampling = SamplingParams { temperature: 1.0, seed, ..SamplingParams::greedy() };
        GenerationRequest { sampling, ..request("q") }
    };
    let (runner, gate) = FakeRunner::function(letters).with_facts(|f| f.n_ctx = 150).gated();
    let rig = start(runner);
    gate.allow(61);
    let alone = rig.ask(drawn(7)).await.text;
    let streams: Vec<_> = [7, 8, 7, 9].map(|seed| rig.handle.submit(drawn(seed)).unwrap()).into_iter().collect();
    drop(gate);
    let mut together = Vec::new();
    for stream in streams {
        together.push(read(stream).await.text);
    }
    assert_eq!((&together[0], &together[2]), (&alone, &alone));
    assert_ne!(together[1], alone);
    assert!(!rig.metric("plateau_preemptions_total 0"), "the cache was small enough to set somebody back");
    rig.close().await;
}

#[tokio::test]
async fn repeat_penalties_look_at_the_prompt_too() {
    // `a` is likelier than `b` by less than the penalty for having been in the prompt.
    let runner = FakeRunner::function(|_| {
        let mut row = vec![0.0; 266];
        row[usize::from(b'a')] = 5.0;
        row[usize::from(b'b')] = 4.5;
        Next::Row(row)
    });
    let rig = start(runner);
    let sampling = SamplingParams { presence_penalty: 1.0, ..SamplingParams::greedy() };
    let answer = rig.ask(GenerationRequest { sampling, max_tokens: Some(1), ..request("a") }).await;
    assert_eq!(answer.text, "b");
    rig.close().await;
}

#[tokio::test]
async fn the_published_state_shows_who_does_what() {
    let (runner, gate) = FakeRunner::saying("abc").with_facts(|f| f.n_seq_max = 1).gated();
    let rig = start(runner);
    let mut stream = rig.handle.submit(request("hello")).unwrap();
    let waiting = rig.handle.submit(request("later")).unwrap();
    gate.allow(1);
    first_text(&mut stream).await;
    gate.allow(1);
    first_text(&mut stream).await;
    let stats = rig.handle.stats();
    let slot = &stats.sequences[0];
    assert_eq!((slot.request.as_deref(), slot.n_prompt, slot.n_prompt_done), (Some("test-5"), 5, 5));
    assert!(stats.n_fill >= 5 && stats.n_ctx == 4096);
    drop(gate);
    read(stream).await;
    read(waiting).await;
    let stats = rig.handle.stats();
    assert_eq!((stats.sequences[0].request.as_deref(), stats.n_queued), (None, 0));
    assert!(rig.metric("plateau_active_sequences 0") && rig.metric("plateau_kv_size_tokens 4096"));
    rig.close().await;
}
