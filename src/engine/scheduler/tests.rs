//! The scheduler as a function: a state is written down, the plan is looked at. No model, no
//! thread.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use proptest::prelude::*;
use tokio::sync::Semaphore;

use super::Scheduler;
use super::admission::{Demand, admissible, reserve_tokens};
use super::plan::{DraftBudget, PlannedPart, StepPlan};
use super::relief::{Relief, relieve};
use super::state::{Limits, Pressure, Running, SlotState};
use crate::engine::lost::Lost;
use crate::engine::request::breakpoint::CacheUse;
use crate::engine::request::draft::SpeculativeParams;
use crate::engine::request::error::EngineError;
use crate::engine::request::generation::GenerationRequest;
use crate::engine::request::item::{Extent, PromptItem};
use crate::engine::runner::ModelRunner;
use crate::engine::runner::fake::FakeRunner;
use crate::engine::sequence::Sequence;
use crate::engine::sequence::context::EngineContext;
use crate::engine::sequence::sink::{EventStream, Sink};
use crate::engine::vision::encoder_cache::EncoderCache;
use crate::sampling::SamplingParams;
use crate::text::Tokenizer;
use crate::units::Token;

const LIMITS: Limits = Limits { n_ctx: 1000, n_batch: 64, n_ubatch: 32, prefill_chunk: 16 };

fn idle(n_fill: usize, last_used: u64) -> SlotState {
    SlotState { n_fill, last_used, running: None }
}

fn busy(n_fill: usize, running: Running) -> SlotState {
    SlotState { n_fill, last_used: 0, running: Some(running) }
}

fn decoding(serial: u64, n_drafted: usize) -> Running {
    Running { serial, reserve: 100, elastic: true, begun: true, n_pending: 1, n_ready: 1, n_drafted }
}

fn prefilling(serial: u64, n_pending: usize) -> Running {
    Running { serial, reserve: 100, elastic: true, n_pending, n_ready: n_pending, ..Running::default() }
}

fn part(slot: usize, n_items: usize, n_drafted: usize) -> PlannedPart {
    PlannedPart { slot, n_items, n_drafted }
}

fn planned(slots: &[SlotState], limits: Limits, pressure: Pressure) -> StepPlan {
    let mut plan = StepPlan::default();
    plan.begin(slots, limits, pressure);
    plan.share_rows(slots, limits, pressure);
    plan
}

#[test]
fn a_promise_is_prompt_and_answer_or_prompt_and_headroom() {
    let demand = |max_tokens, n_tokens| Demand { max_tokens, n_prompt: 100, n_tokens };
    assert_eq!(reserve_tokens(demand(Some(50), 100), 1000), 150);
    assert_eq!(reserve_tokens(demand(Some(50), 120), 1000), 150, "set back in its answer");
    assert_eq!(reserve_tokens(demand(Some(u32::MAX), 100), 1000), 1000);
    assert_eq!(reserve_tokens(demand(None, 120), 1000), 120 + 1000 / 16);
}

#[test]
fn nobody_comes_in_whose_promise_does_not_fit_or_while_memory_is_tight() {
    let head = Demand { max_tokens: Some(100), n_prompt: 400, n_tokens: 400 };
    let running = |reserve| [busy(10, Running { reserve, ..decoding(0, 0) }), idle(900, 1)];
    assert_eq!(admissible(head, &running(500), Pressure::NONE, 1000), Some(500), "what idle slots hold does not count");
    assert_eq!(admissible(head, &running(501), Pressure::NONE, 1000), None);
    let held = Pressure { hold_admission: true, ..Pressure::NONE };
    assert_eq!(admissible(head, &running(1), held, 1000), None);
    assert_eq!(admissible(head, &[idle(0, 0)], held, 1000), Some(500), "nobody is in its way");
}

#[test]
fn decoding_goes_first_and_prefill_shares_the_rest_in_the_order_of_arrival() {
    let slots = [busy(50, prefilling(9, 400)), busy(20, decoding(3, 2)), busy(0, prefilling(5, 3)), idle(0, 0)];
    let plan = planned(&slots, LIMITS, Pressure::NONE);
    // 16 rows while one decodes: 3 of them are its own, the short prompt goes whole.
    assert_eq!(plan.parts, [part(1, 1, 2), part(2, 3, 0), part(0, 10, 0)]);
    let alone = planned(&slots[..1], LIMITS, Pressure::NONE);
    assert_eq!(alone.parts, [part(0, LIMITS.n_ubatch, 0)], "one device pass where nothing decodes");
}

#[test]
fn prefill_gets_a_row_however_many_decode() {
    let limits = Limits { prefill_chunk: 1, ..LIMITS };
    let plan = planned(&[busy(9, decoding(0, 0)), busy(0, prefilling(1, 50))], limits, Pressure::NONE);
    assert_eq!(plan.parts, [part(0, 1, 0), part(1, 1, 0)]);
}

#[test]
fn a_chunk_ends_at_its_boundary_and_an_image_that_is_not_encoded_holds_up_nobody_else() {
    let bounded = Running { n_ready: 7, ..prefilling(0, 400) };
    let blind = Running { n_ready: 0, ..prefilling(1, 400) };
    let plan = planned(&[busy(0, blind), busy(0, bounded)], LIMITS, Pressure::NONE);
    assert_eq!(plan.parts, [part(1, 7, 0)]);
}

#[test]
fn the_newest_elastic_sequences_give_way_when_promises_outgrow_the_cache() {
    let of = |serial, reserve, elastic| busy(40, Running { reserve, elastic, ..decoding(serial, 0) });
    let slots = [of(1, 400, true), of(4, 300, false), of(3, 300, true), of(2, 250, true)];
    let mut plan = StepPlan::default();
    plan.begin(&slots, LIMITS, Pressure::NONE);
    assert_eq!(plan.preempt, [2], "1250 promised: the one of 300 is enough");
    assert_eq!(plan.drafts, DraftBudget { n_free: 1000 - 3 * 40, n_rows: 64 });
    plan.begin(&slots, Limits { n_ctx: 700, ..LIMITS }, Pressure::NONE);
    assert_eq!(plan.preempt, [2, 3]);
}

#[test]
fn idle_state_gives_way_oldest_first_and_no_more_than_needed() {
    let slots = [idle(300, 7), idle(300, 3), idle(0, 1), busy(380, prefilling(0, 90)), idle(10, 5)];
    let plan = planned(&slots, LIMITS, Pressure::NONE);
    assert_eq!((plan.n_rows(), plan.evict), (32, vec![1]));
    let tighter = planned(&slots, Limits { n_ctx: 700, ..LIMITS }, Pressure::NONE);
    assert_eq!(tighter.evict, [1, 4, 0]);
}

#[test]
fn drafts_that_do_not_fit_are_dropped_and_nothing_else() {
    let slots = [busy(480, decoding(0, 9)), busy(480, prefilling(1, 35)), idle(20, 0)];
    let plan = planned(&slots, LIMITS, Pressure::NONE);
    assert_eq!((plan.drop_drafts, plan.n_rows(), plan.evict.as_slice()), (false, 16, &[][..]));
    let plan = planned(&slots, Limits { n_ctx: 976, ..LIMITS }, Pressure::NONE);
    assert_eq!((plan.drop_drafts, plan.evict.as_slice()), (false, &[2][..]), "idle state goes before drafts");
    let plan = planned(&slots, Limits { n_ctx: 975, ..LIMITS }, Pressure::NONE);
    assert!(plan.drop_drafts);
    assert_eq!(plan.parts, [part(0, 1, 0), part(1, 15, 0)]);
}

#[test]
fn under_pressure_nothing_is_drafted_and_chunks_are_capped() {
    let slots = [busy(0, prefilling(0, 90))];
    let tight = Pressure { hold_drafts: true, prefill_cap: 5, ..Pressure::NONE };
    let plan = planned(&slots, LIMITS, tight);
    assert_eq!((plan.drafts.n_free, plan.drafts.n_rows), (0, 63), "a row is left to prefill");
    assert_eq!(plan.parts, [part(0, 5, 0)]);
}

#[test]
fn relief_is_sought_where_it_costs_least() {
    let mut slots = vec![busy(9, decoding(0, 2)), busy(9, Running { elastic: false, ..decoding(1, 0) }), idle(5, 0)];
    assert_eq!(relieve(&slots, 5), Relief::Evict(2));
    slots[2] = idle(0, 0);
    assert_eq!(relieve(&slots, 5), Relief::DropDrafts);
    slots[0] = busy(9, decoding(0, 0));
    assert_eq!(relieve(&slots, 2), Relief::Preempt(0), "the newest that said how far it goes stays");
    slots[0] = busy(9, Running { elastic: false, ..decoding(0, 0) });
    assert_eq!(relieve(&slots, 2), Relief::Preempt(1));
    slots[1] = idle(0, 0);
    assert_eq!(relieve(&slots, 5), Relief::SmallerChunks(2));
    assert_eq!(relieve(&slots, 1), Relief::End { slot: 0, begun: true });
    slots[0] = idle(0, 0);
    assert_eq!(relieve(&slots, 1), Relief::Nothing);
}

/// The scheduler with real requests: what the numbers above are read from.
struct Bench {
    scheduler: Scheduler,
    context: EngineContext,
    streams: Vec<EventStream>,
    places: Arc<Semaphore>,
}

impl Bench {
    fn new(n_slots: usize, limits: Limits) -> Bench {
        let facts = FakeRunner::saying("").with_facts(|facts| facts.n_ctx = limits.n_ctx).facts().clone();
        let context = EngineContext { facts, tokenizer: Tokenizer::bytes_for_tests() };
        let places = Arc::new(Semaphore::new(64));
        Bench { scheduler: Scheduler::new(n_slots, limits), context, streams: Vec::new(), places }
    }

    fn sequence(&mut self, n_prompt: usize, max_tokens: Option<u32>) -> Box<Sequence> {
        let request = GenerationRequest {
            id: format!("of {n_prompt}"),
            prompt: vec![PromptItem::Token(Token(65)); n_prompt].into(),
            images: Vec::new(),
            sampling: SamplingParams::greedy(),
            stop: Vec::new(),
            max_tokens,
            ignore_eos: false,
            logprobs: None,
            cache_prompt: true,
            cache: CacheUse::NO_BREAKPOINTS,
            progress: false,
            show_control: false,
            speculative: SpeculativeParams::OFF,
            constraint: Default::default(),
            arrived: Instant::now(),
        };
        let (sink, stream) = Sink::open(Arc::clone(&self.places).try_acquire_owned().unwrap(), &Lost::new());
        self.streams.push(stream);
        Box::new(Sequence::new(request, sink, &self.context))
    }

    fn ask(&mut self, n_prompt: usize, max_tokens: Option<u32>) {
        let sequence = self.sequence(n_prompt, max_tokens);
        assert!(self.scheduler.accept(sequence).is_ok());
    }

    /// Admits who may come in; returns their prompts' lengths.
    fn admit(&mut self) -> Vec<usize> {
        let mut admitted = Vec::new();
        while let Some(reserve) = self.scheduler.admissible() {
            let Some(slot) = self.scheduler.slots.iter().position(|slot| slot.is_idle()) else { break };
            let sequence = self.scheduler.take_head().unwrap();
            admitted.push(sequence.n_prompt);
            self.scheduler.place(slot, sequence, reserve);
        }
        admitted
    }
}

#[test]
fn a_head_that_does_not_fit_is_not_overtaken() {
    let mut bench = Bench::new(4, LIMITS);
    for (n_prompt, max_tokens) in [(500, 100), (600, 100), (10, 10)] {
        bench.ask(n_prompt, Some(max_tokens));
    }
    assert_eq!(bench.admit(), [500]);
    assert_eq!(bench.scheduler.n_waiting(), 2);
    assert!(bench.scheduler.release(0).is_some());
    assert_eq!(bench.admit(), [600, 10], "in the order of arrival");
}

#[test]
fn a_preempted_sequence_is_the_next_to_come_in_and_its_promise_is_given_back() {
    let mut bench = Bench::new(2, LIMITS);
    [900, 40, 30].iter().for_each(|n_prompt| bench.ask(*n_prompt, Some(10)));
    assert_eq!(bench.admit(), [900, 40]);
    assert_eq!(bench.scheduler.preempt(1).map(|sequence| sequence.n_prompt), Some(40));
    assert_eq!(bench.scheduler.slots[1].reserve, 0);
    assert_eq!(bench.admit(), [40]);
}

#[test]
fn what_has_no_prompt_or_comes_after_the_stop_is_refused() {
    let mut bench = Bench::new(1, LIMITS);
    let empty = bench.sequence(0, None);
    let refused = bench.scheduler.accept(empty).err().map(|refused| refused.error);
    assert!(matches!(refused, Some(EngineError::Runner(_))));
    bench.ask(5, None);
    bench.scheduler.stop_accepting();
    let late = bench.sequence(5, None);
    let refused = bench.scheduler.accept(late).err().map(|refused| refused.error);
    assert!(matches!(refused, Some(EngineError::Stopping)));
    assert_eq!(bench.admit(), [5], "what was there before goes on");
}

#[test]
fn promises_to_elastic_sequences_grow_with_them_and_to_others_they_do_not() {
    let mut bench = Bench::new(2, LIMITS);
    bench.ask(100, None);
    bench.ask(100, Some(50));
    bench.admit();
    for slot in bench.scheduler.slots.iter_mut() {
        slot.occupant.as_mut().unwrap().n_tokens = 140;
        slot.fill = Extent { n_items: 99, n_tokens: 99, n_pos: 99 };
    }
    bench.scheduler.slots[0].occupant.as_mut().unwrap().n_tokens = 400;
    let mut plan = StepPlan::default();
    bench.scheduler.begin_step(&EncoderCache::EMPTY, &mut plan);
    assert_eq!([0, 1].map(|slot| bench.scheduler.slots[slot].reserve), [400, 150]);
    bench.scheduler.plan_rows(&EncoderCache::EMPTY, &mut plan);
    assert_eq!(plan.parts, [part(0, 1, 0), part(1, 1, 0)]);
}

#[test]
fn who_ran_out_of_memory_twice_gives_way_and_chunks_shrink_to_a_bound() {
    let mut bench = Bench::new(2, Limits { n_ubatch: 64, ..LIMITS });
    [400, 300].iter().for_each(|n_prompt| bench.ask(*n_prompt, Some(10)));
    bench.admit();
    let parts = [part(0, 16, 0), part(1, 16, 0)];
    assert_eq!(bench.scheduler.ran_out_of_memory(&parts), None);
    assert_eq!(bench.scheduler.ran_out_of_memory(&parts), Some(1), "the newest");
    let mut chunk = |n_rows| {
        bench.scheduler.shrink_chunks(n_rows);
        let mut plan = StepPlan::default();
        bench.scheduler.begin_step(&EncoderCache::EMPTY, &mut plan);
        bench.scheduler.plan_rows(&EncoderCache::EMPTY, &mut plan);
        plan.n_rows()
    };
    assert_eq!([chunk(100), chunk(8)], [50, 32]);
}

/// Limits of a small context for `n_slots` sequences.
fn limits(n_slots: usize) -> impl Strategy<Value = Limits> {
    (40usize..400, n_slots + 1..80, 1usize..80, 1usize..40).prop_map(|(n_ctx, n_batch, n_ubatch, prefill_chunk)| {
        Limits { n_ctx, n_batch, n_ubatch: n_ubatch.min(n_batch), prefill_chunk }
    })
}

/// Any slots whose promises fit, with any drafts.
fn any_slots(n_ctx: usize) -> impl Strategy<Value = Vec<SlotState>> {
    let slot = (any::<bool>(), 0usize..120, 1usize..60, 0usize..20, 0u64..5, any::<bool>(), any::<bool>());
    prop::collection::vec(slot, 1..5).prop_map(move |slots| {
        let n_slots = slots.len();
        let states =
            slots.into_iter().enumerate().map(|(i, (idle, fill, pending, drafted, last_used, elastic, blind))| {
                if idle {
                    return SlotState { n_fill: fill.min(n_ctx / n_slots), last_used, running: None };
                }
                let reserve = n_ctx / n_slots;
                let n_fill = fill.min(reserve - 1);
                let n_pending = pending.min(reserve - n_fill);
                let n_ready = if n_pending == 1 { 1 } else { n_pending / (1 + usize::from(blind) * 100) };
                let n_drafted = if n_pending == 1 { drafted } else { 0 };
                let serial = (i as u64 * 3 + 1) % 5;
                let running = Running { serial, reserve, elastic, begun: false, n_pending, n_ready, n_drafted };
                SlotState { n_fill, last_used, running: Some(running) }
            });
        states.collect()
    })
}

fn case() -> impl Strategy<Value = (Limits, Vec<SlotState>)> {
    limits(4).prop_flat_map(|limits| (Just(limits), any_slots(limits.n_ctx)))
}

proptest! {
    #[test]
    fn a_plan_fits_batch_and_cache_whatever_was_drafted((limits, slots) in case(), cap in 1usize..100) {
        let pressure = Pressure { prefill_cap: cap, ..Pressure::NONE };
        let plan = planned(&slots, limits, pressure);
        prop_assert!(plan.preempt.is_empty());
        prop_assert!(plan.n_rows() <= limits.n_batch);
        let evicted = |slot: &usize| plan.evict.contains(slot);
        let kept = (0..slots.len()).filter(|slot| !evicted(slot)).map(|slot| slots[slot].n_fill).sum::<usize>();
        prop_assert!(kept + plan.n_rows() <= limits.n_ctx);
        prop_assert!(plan.evict.iter().all(|&slot| slots[slot].running.is_none()));
    }

    #[test]
    fn a_plan_serves_all_who_decode_and_some_who_prefill((limits, slots) in case(), cap in 1usize..100) {
        let plan = planned(&slots, limits, Pressure { prefill_cap: cap, ..Pressure::NONE });
        let of = |slot: usize| plan.parts.iter().find(|part| part.slot == slot);
        let mut n_prefill = 0;
        for (slot, running) in slots.iter().enumerate().filter_map(|(i, slot)| Some((i, slot.running?))) {
            match of(slot) {
                Some(part) if running.n_pending == 1 => {
                    let n_drafted = if plan.drop_drafts { 0 } else { running.n_drafted };
                    prop_assert_eq!((part.n_items, part.n_drafted), (1, n_drafted));
                }
                Some(part) => {
                    prop_assert!(part.n_drafted == 0 && (1..=running.n_ready).contains(&part.n_items));
                    n_prefill += part.n_items;
                }
                None => prop_assert!(running.n_pending > 1, "a sequence that decodes has its row"),
            }
        }
        let ready = slots.iter().filter_map(|slot| slot.running).any(|r| r.n_pending > 1 && r.n_ready > 0);
        prop_assert!(!ready || n_prefill > 0);
        prop_assert!(n_prefill <= cap.max(1));
    }

    #[test]
    fn no_more_give_way_than_must((limits, slots) in case(), n_ctx in 1usize..400) {
        let limits = Limits { n_ctx, ..limits };
        let mut plan = StepPlan::default();
        plan.begin(&slots, limits, Pressure::NONE);
        let of = |slot: usize| slots[slot].running.unwrap();
        let promised = |gone: &[usize]| -> usize {
            let stay = (0..slots.len()).filter(|slot| slots[*slot].running.is_some() && !gone.contains(slot));
            stay.map(|slot| of(slot).reserve).sum()
        };
        let elastic_left = (0..slots.len()).any(|slot| {
            slots[slot].running.is_some_and(|running| running.elastic) && !plan.preempt.contains(&slot)
        });
        prop_assert!(promised(&plan.preempt) <= n_ctx || !elastic_left);
        if let Some((_, before)) = plan.preempt.split_last() {
            prop_assert!(promised(before) > n_ctx, "the last one had to");
        }
        prop_assert!(plan.preempt.iter().all(|&slot| of(slot).elastic));
        prop_assert!(plan.preempt.is_sorted_by_key(|&slot| std::cmp::Reverse(of(slot).serial)));
    }

    #[test]
    fn everybody_is_served_in_the_order_of_arrival(
        limits in limits(3),
        requests in prop::collection::vec((1usize..39, prop::option::of(1u32..30), 1usize..40), 1..12),
        drafts in prop::collection::vec(0usize..6, 1..20),
    ) {
        let mut model = Simulation::new(limits, requests, drafts);
        for _ in 0..4000 {
            if model.is_done() {
                break;
            }
            model.turn()?;
        }
        prop_assert!(model.is_done(), "somebody starves");
        prop_assert!(model.first_admitted.is_sorted());
    }
}

/// A request of the simulation: it ends after `n_wanted` tokens or at its bounds.
#[derive(Clone, Copy, Debug)]
struct Request {
    serial: u64,
    demand: Demand,
    n_generated: usize,
    n_wanted: usize,
    admitted: bool,
}

/// Stands in for the executor: does what plans say and counts, nothing else.
struct Simulation {
    limits: Limits,
    waiting: VecDeque<Request>,
    slots: Vec<(SlotState, Option<Request>)>,
    first_admitted: Vec<u64>,
    drafts: Vec<usize>,
    n_turns: usize,
}

impl Simulation {
    fn new(limits: Limits, requests: Vec<(usize, Option<u32>, usize)>, drafts: Vec<usize>) -> Simulation {
        let request = |(serial, (n_prompt, max_tokens, n_wanted))| {
            let demand = Demand { max_tokens, n_prompt, n_tokens: n_prompt };
            Request { serial, demand, n_generated: 0, n_wanted, admitted: false }
        };
        let waiting = (0..).zip(requests).map(request).collect();
        let slots = vec![(SlotState::default(), None); 3];
        Simulation { limits, waiting, slots, first_admitted: Vec::new(), drafts, n_turns: 0 }
    }

    fn is_done(&self) -> bool {
        self.waiting.is_empty() && self.slots.iter().all(|(_, request)| request.is_none())
    }

    fn states(&self) -> Vec<SlotState> {
        self.slots.iter().map(|(state, _)| *state).collect()
    }

    fn admit(&mut self) {
        while let Some(head) = self.waiting.front() {
            let free = self.slots.iter().position(|(_, request)| request.is_none());
            let reserve = admissible(head.demand, &self.states(), Pressure::NONE, self.limits.n_ctx);
            let (Some(slot), Some(reserve)) = (free, reserve) else { break };
            let mut request = self.waiting.pop_front().unwrap();
            if !request.admitted {
                self.first_admitted.push(request.serial);
            }
            request.admitted = true;
            let n_pending = request.demand.n_tokens;
            let elastic = request.demand.max_tokens.is_none();
            let serial = request.serial;
            let running =
                Running { serial, reserve, elastic, begun: false, n_pending, n_ready: n_pending, n_drafted: 0 };
            self.slots[slot] = (SlotState { n_fill: 0, last_used: 0, running: Some(running) }, Some(request));
        }
    }

    fn turn(&mut self) -> Result<(), TestCaseError> {
        self.n_turns += 1;
        self.admit();
        for (state, request) in &mut self.slots {
            if let (Some(running), Some(request)) = (&mut state.running, request) {
                running.reserve = running.reserve.max(request.demand.n_tokens);
                running.n_drafted = 0;
            }
        }
        let mut plan = StepPlan::default();
        plan.begin(&self.states(), self.limits, Pressure::NONE);
        for &slot in &plan.preempt {
            let (_, request) = std::mem::take(&mut self.slots[slot]);
            self.waiting.push_front(request.unwrap());
        }
        self.draft(plan.drafts);
        plan.share_rows(&self.states(), self.limits, Pressure::NONE);
        for &slot in &plan.evict {
            self.slots[slot].0.n_fill = 0;
        }
        let n_fill: usize = self.states().iter().map(|slot| slot.n_fill).sum();
        prop_assert!(n_fill + plan.n_rows() <= self.limits.n_ctx);
        prop_assert!(plan.n_rows() <= self.limits.n_batch);
        for part in &plan.parts {
            self.process(*part);
        }
        Ok(())
    }

    /// As much as is allowed, and as the case says.
    fn draft(&mut self, budget: DraftBudget) {
        let wanted = self.drafts[self.n_turns % self.drafts.len()];
        let decodes = |state: &SlotState| state.running.is_some_and(|running| running.n_pending == 1);
        let n = self.slots.iter().filter(|(state, _)| decodes(state)).count().max(1);
        let each = |total: usize| (total / n).saturating_sub(1);
        let n_drafted = wanted.min(each(budget.n_free)).min(each(budget.n_rows));
        for (state, _) in self.slots.iter_mut().filter(|(state, _)| decodes(state)) {
            state.running.as_mut().unwrap().n_drafted = n_drafted;
        }
    }

    /// Half of a draft is right.
    fn process(&mut self, part: PlannedPart) {
        let n_ctx = self.limits.n_ctx;
        let (state, request) = &mut self.slots[part.slot];
        let (Some(running), Some(asked)) = (&mut state.running, request.as_mut()) else { return };
        state.n_fill += part.n_items;
        state.last_used = self.n_turns as u64;
        running.n_pending -= part.n_items;
        if running.n_pending == 0 {
            for _ in 0..=part.n_drafted / 2 {
                asked.n_generated += 1;
                asked.demand.n_tokens += 1;
                let full = asked.demand.n_tokens >= n_ctx;
                let most = asked.demand.max_tokens.map_or(usize::MAX, |max| max as usize);
                if full || asked.n_generated >= asked.n_wanted.min(most) {
                    state.running = None;
                    *request = None;
                    return;
                }
            }
            state.n_fill = asked.demand.n_tokens - 1;
            running.n_pending = 1;
        }
        running.n_ready = running.n_pending;
    }
}
