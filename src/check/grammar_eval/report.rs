//! What the results say: a row a condition, each held against free thinking on the same problems, and a verdict.

use std::collections::HashMap;

use serde::Serialize;

use super::condition::Condition;
use super::journal::Settings;
use super::problem::Problem;
use super::record::{Counted, Outcome, Record};
use super::sandbox::Guards;
use super::statistics::{Spread, interval, sign_test, spread};

/// Below it a difference is called one.
const SIGNIFICANT: f64 = 0.05;

/// The whole report; the JSON form is this.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    pub settings: Settings,
    pub sandbox: Guards,
    pub problems: usize,
    pub rows: Vec<Row>,
    /// What is wrong with the server or the run: empty when every grammar held and every request was answered.
    pub faults: Vec<String>,
    pub verdict: Vec<String>,
    pub not_proven: Vec<String>,
}

/// One condition.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    pub condition: String,
    /// Problems with an answer.
    pub answered: usize,
    pub passed: usize,
    /// Of the answered; nothing without any.
    pub pass_at_1: Option<f64>,
    /// Of 95 %.
    pub interval: Option<(f64, f64)>,
    pub no_code: usize,
    /// Programs that a limit stopped.
    pub stopped: usize,
    /// Answers that `max_tokens` cut.
    pub cut: usize,
    pub errors: usize,
    /// Nothing where there is no shape.
    pub shape_violations: Option<usize>,
    /// Answers that hold a tag of thinking.
    pub leaks: usize,
    pub thinking_tokens: Option<Spread>,
    /// Who counted them.
    pub counted: Vec<Counted>,
    pub completion_tokens: Option<Spread>,
    /// A request, from sending to the whole answer.
    pub request_ms: Option<Spread>,
    pub against_free: Option<Against>,
}

/// Against free thinking, on the problems that both have answered.
#[derive(Clone, Debug, Serialize)]
pub struct Against {
    pub both_answered: usize,
    /// Problems that pass here and not with free thinking.
    pub won: usize,
    pub lost: usize,
    /// Of the exact sign test.
    pub p: f64,
    /// Thinking tokens of free over those of this condition; nothing where one of them is 0 or unknown.
    pub times_fewer_tokens: Option<f64>,
}

type ByTask<'a> = HashMap<&'a str, &'a Record>;

impl Report {
    pub(super) fn new(settings: Settings, sandbox: Guards, problems: &[Problem], records: Vec<Record>) -> Report {
        let mut by_condition: HashMap<&str, ByTask> = HashMap::new();
        // A later result of the same problem replaces an error.
        for record in &records {
            by_condition.entry(&record.condition).or_default().insert(&record.task, record);
        }
        let mut order = Condition::standard();
        order.extend([Condition::Budget, Condition::Reference]);
        let free = by_condition.get(Condition::Free.name());
        let of = |condition: &Condition| Some((*condition, by_condition.get(condition.name())?));
        let rows: Vec<Row> = order.iter().filter_map(of).map(|(condition, all)| row(condition, all, free)).collect();
        let faults = rows.iter().flat_map(|row| faults(row, problems.len())).collect();
        let mut verdict: Vec<String> = rows.iter().map(sentence).collect();
        let judged = rows.iter().filter(|row| row.condition != Condition::Reference.name());
        if judged.clone().count() > 0 && judged.map(|row| row.passed).sum::<usize>() == 0 {
            verdict.push(
                "No answer passes: these problems are beyond the model, and say nothing about its thinking.".to_owned(),
            );
        }
        let mut not_proven = limits(problems.len(), &rows);
        if !sandbox.no_network {
            not_proven.push("The programs had a network here: unshare gave none of its own.".to_owned());
        }
        Report { verdict, problems: problems.len(), settings, sandbox, rows, faults, not_proven }
    }

    /// Did every request get an answer, and every shape hold?
    pub fn is_clean(&self) -> bool {
        self.faults.is_empty()
    }
}

fn row(condition: Condition, all: &ByTask, free: Option<&ByTask>) -> Row {
    let answered: Vec<&Record> = all.values().copied().filter(|record| record.outcome != Outcome::Error).collect();
    let count = |is: &dyn Fn(&Record) -> bool| answered.iter().filter(|record| is(record)).count();
    let n = answered.len();
    let passed = count(&|record| record.outcome == Outcome::Passed);
    let mut counted: Vec<Counted> = answered.iter().filter_map(|record| record.counted).collect();
    counted.sort_unstable_by_key(|counted| *counted as u8);
    counted.dedup();
    let free = free.filter(|_| !matches!(condition, Condition::Free | Condition::Reference));
    Row {
        condition: condition.name().to_owned(),
        answered: n,
        passed,
        pass_at_1: (n > 0).then(|| passed as f64 / n as f64),
        interval: (n > 0).then(|| interval(passed, n)),
        no_code: count(&|record| record.outcome == Outcome::NoCode),
        stopped: count(&|record| record.outcome == Outcome::Stopped),
        cut: count(&|record| record.finish == "length"),
        errors: all.len() - n,
        shape_violations: condition.shape().map(|_| count(&|record| record.fits == Some(false))),
        leaks: count(&|record| record.leaked),
        thinking_tokens: spread(answered.iter().filter_map(|record| record.thinking_tokens).collect()),
        counted,
        completion_tokens: spread(answered.iter().filter_map(|record| record.completion_tokens).collect()),
        request_ms: spread(answered.iter().map(|record| record.request_ms).collect()),
        against_free: free.map(|free| against(&answered, free)),
    }
}

fn against(answered: &[&Record], free: &ByTask) -> Against {
    let pairs: Vec<(&Record, &Record)> = answered
        .iter()
        .filter_map(|record| Some((*record, *free.get(record.task.as_str())?)))
        .filter(|(_, free)| free.outcome != Outcome::Error)
        .collect();
    let passes = |record: &Record| record.outcome == Outcome::Passed;
    let won = pairs.iter().filter(|(here, free)| passes(here) && !passes(free)).count();
    let lost = pairs.iter().filter(|(here, free)| !passes(here) && passes(free)).count();
    let tokens: Option<Vec<(u64, u64)>> =
        pairs.iter().map(|(here, free)| Some((here.thinking_tokens?, free.thinking_tokens?))).collect();
    let sums = tokens.map(|all| all.iter().fold((0, 0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1)));
    let times_fewer_tokens =
        sums.filter(|(here, free)| *here > 0 && *free > 0).map(|(here, free)| free as f64 / here as f64);
    Against { both_answered: pairs.len(), won, lost, p: sign_test(won, lost), times_fewer_tokens }
}

fn faults(row: &Row, problems: usize) -> Vec<String> {
    let name = &row.condition;
    let mut faults = Vec::new();
    let missing = problems.saturating_sub(row.answered + row.errors);
    if row.errors + missing > 0 {
        faults.push(format!("{name}: {} of {problems} problems have no answer", row.errors + missing));
    }
    if let Some(n) = row.shape_violations.filter(|n| *n > 0) {
        let why = "the grammar was not enforced, or the thinking was cut before its end";
        faults.push(format!("{name}: the thinking of {n} answers is not in shape: {why}"));
    }
    if row.leaks > 0 {
        faults.push(format!("{name}: {} answers hold a tag of thinking", row.leaks));
    }
    faults
}

fn sentence(row: &Row) -> String {
    let name = &row.condition;
    let Some(share) = row.pass_at_1 else { return format!("{name}: no answer.") };
    let mut text = format!("{name}: {:.1} % pass ({} of {})", share * 100.0, row.passed, row.answered);
    if let Some(against) = &row.against_free {
        let judged = match (against.p < SIGNIFICANT, against.won > against.lost) {
            (true, true) => "better than free thinking",
            (true, false) => "worse than free thinking",
            (false, _) => "no difference to free thinking is shown",
        };
        text += &format!(": {judged} ({} won, {} lost, p = {:.2})", against.won, against.lost, against.p);
        if let Some(times) = against.times_fewer_tokens {
            let (times, word) = if times < 1.0 { (1.0 / times, "more") } else { (times, "fewer") };
            text += &format!("; thinking has {times:.1} times {word} tokens");
        }
    }
    text + "."
}

fn limits(problems: usize, rows: &[Row]) -> Vec<String> {
    let mut all = vec![
        format!(
            "One answer to each of {problems} problems: no difference shown is not no difference, and among several conditions \
             one in twenty seems better or worse by chance."
        ),
        "Problems and tests of public sets are in the training data of most models; passing says little about other work."
            .to_owned(),
        "A test that passes does not make a function right.".to_owned(),
        "Times hold for this machine, its load, and the number of requests at once; they are no speed of the server.".to_owned(),
    ];
    if rows.iter().any(|row| row.counted.contains(&Counted::Share)) {
        all.push("Thinking tokens are an estimate: the server counts none and has no tokenizer to ask.".to_owned());
    }
    if rows.iter().any(|row| row.condition == Condition::Terse.name()) {
        all.push("The terse prompt is one wording of many.".to_owned());
    }
    all
}
