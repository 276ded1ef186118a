//! Cutting a sequence of the hybrid model, and the traps of its recurrent state: each test fails if the guard goes.
#![cfg(feature = "native")]

mod native;

use native::{engine_config, feed, max_difference, runner, runner_with_rollback, tokens};
use plateau::engine::ModelRunner;
use plateau::units::{Pos, SeqId};

const SEQ: SeqId = SeqId(0);

#[test]
fn a_recurrent_state_cannot_be_cut_and_nothing_changes() {
    let prompt = tokens(40, 1);
    let mut runner = runner(&engine_config(512, 1));
    assert!(runner.facts().hybrid);
    feed(&mut runner, 0, 0, &prompt);
    assert!(!runner.truncate(SEQ, Pos(20)).expect("no error"));
    assert!(!runner.truncate(SEQ, Pos(39)).expect("no error"));
    assert!(runner.truncate(SEQ, Pos(40)).expect("no error"), "nothing to remove");
    assert!(runner.truncate(SEQ, Pos(1000)).expect("no error"), "nothing to remove");
    let untouched = {
        let mut fresh = native::runner(&engine_config(512, 1));
        feed(&mut fresh, 0, 0, &prompt);
        feed(&mut fresh, 0, 40, &tokens(1, 2))
    };
    assert!(feed(&mut runner, 0, 40, &tokens(1, 2)) == untouched);
}

#[test]
fn a_cleared_sequence_keeps_nothing() {
    let mut runner = runner(&engine_config(512, 2));
    let prompt = tokens(30, 1);
    let first = feed(&mut runner, 0, 0, &prompt);
    for seed in 2..6 {
        feed(&mut runner, 1, 0, &tokens(50, seed));
        runner.clear(SEQ);
        runner.clear(SeqId(1));
        assert!(feed(&mut runner, 0, 0, &prompt) == first);
        runner.clear(SEQ);
    }
    assert!(runner.truncate(SeqId(2), Pos(0)).is_err(), "the context has two sequences");
}

#[test]
fn every_allowed_rollback_continues_as_if_the_rest_had_never_been() {
    let text = tokens(12, 1);
    for n_cut in 1..=3u32 {
        let mut runner = runner_with_rollback(3, 1);
        assert_eq!(runner.rollback_tokens(), 3);
        feed(&mut runner, 0, 0, &text[..8]);
        feed(&mut runner, 0, 8, &text[8..]);
        let keep = 12 - n_cut;
        assert!(runner.truncate(SEQ, Pos(keep)).expect("no error"));
        let other = tokens(5, 9);
        let rolled_back = feed(&mut runner, 0, keep, &other);
        let mut fresh = runner_with_rollback(3, 1);
        feed(&mut fresh, 0, 0, &text[..keep as usize]);
        let expected = feed(&mut fresh, 0, keep, &other);
        assert!(max_difference(&rolled_back, &expected) == 0.0, "cut {n_cut}");
    }
}

#[test]
fn a_rollback_beyond_the_last_batch_is_refused_although_llama_cpp_says_yes() {
    let text = tokens(12, 1);
    let mut runner = runner_with_rollback(3, 1);
    feed(&mut runner, 0, 0, &text[..8]);
    feed(&mut runner, 0, 8, &text[8..9]);
    // One row in the last batch: its snapshots hold the state after that row only.
    assert!(!runner.truncate(SEQ, Pos(8)).expect("no error"));
    assert!(!runner.truncate(SEQ, Pos(7)).expect("no error"));
    let mut fresh = runner_with_rollback(3, 1);
    feed(&mut fresh, 0, 0, &text[..9]);
    let expected = feed(&mut fresh, 0, 9, &text[9..]);
    assert!(max_difference(&feed(&mut runner, 0, 9, &text[9..]), &expected) == 0.0);
}

#[test]
fn a_second_rollback_waits_for_the_next_step() {
    let text = tokens(12, 1);
    let mut runner = runner_with_rollback(3, 1);
    feed(&mut runner, 0, 0, &text[..8]);
    assert!(runner.truncate(SEQ, Pos(7)).expect("no error"));
    assert!(!runner.truncate(SEQ, Pos(6)).expect("no error"));
    assert!(runner.truncate(SEQ, Pos(7)).expect("no error"), "already so");
    feed(&mut runner, 0, 7, &text[7..11]);
    assert!(runner.truncate(SEQ, Pos(9)).expect("no error"));
    let mut fresh = runner_with_rollback(3, 1);
    feed(&mut fresh, 0, 0, &text[..9]);
    let expected = feed(&mut fresh, 0, 9, &text[9..]);
    assert!(max_difference(&feed(&mut runner, 0, 9, &text[9..]), &expected) == 0.0);
}

#[test]
fn a_step_of_other_sequences_ends_the_chance_to_roll_back() {
    let mut runner = runner_with_rollback(3, 3);
    for seq in 0..3 {
        feed(&mut runner, seq, 0, &tokens(8, seq));
    }
    assert!(!runner.truncate(SeqId(0), Pos(7)).expect("no error"));
    assert!(runner.truncate(SeqId(2), Pos(7)).expect("no error"));
}

#[test]
fn a_pending_rollback_survives_steps_of_other_sequences() {
    let text = tokens(12, 1);
    let mut runner = runner_with_rollback(3, 3);
    feed(&mut runner, 1, 0, &tokens(8, 5));
    feed(&mut runner, 0, 0, &text[..8]);
    assert!(runner.truncate(SEQ, Pos(6)).expect("no error"));
    feed(&mut runner, 2, 0, &tokens(9, 6));
    feed(&mut runner, 1, 8, &tokens(3, 7));
    let rolled_back = feed(&mut runner, 0, 6, &text[6..]);
    let mut fresh = runner_with_rollback(3, 3);
    feed(&mut fresh, 0, 0, &text[..6]);
    let expected = feed(&mut fresh, 0, 6, &text[6..]);
    assert!(max_difference(&rolled_back, &expected) == 0.0);
}
