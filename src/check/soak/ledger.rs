//! A row a turn: what it took and what it left in memory.

use crate::check::answer::Answer;
use crate::check::client::ClientError;

pub const LEDGER_FILE: &str = "ledger.csv";

/// What is not known is empty.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Row {
    pub session: usize,
    pub turn: usize,
    /// Since the start of the run.
    pub t_ms: u64,
    /// Of the request.
    pub elapsed_ms: u64,
    pub prompt_tokens: Option<u64>,
    pub cached_tokens: Option<u64>,
    pub completion_tokens: Option<u64>,
    pub ttft_ms: Option<f64>,
    pub prefill_tps: Option<f64>,
    pub decode_tps: Option<f64>,
    pub draft_n: Option<u64>,
    pub draft_accepted: Option<u64>,
    pub gpu_before_mib: Option<f64>,
    pub gpu_peak_mib: Option<f64>,
    pub gpu_after_mib: Option<f64>,
    pub host_mib: Option<f64>,
    pub kv_fill: Option<f64>,
    pub cache_bytes: Option<f64>,
    /// ok, aborted, or the kind of the fault.
    pub status: String,
    pub error: String,
    /// Nothing was generated.
    pub is_empty: bool,
}

impl Row {
    pub const HEAD: &str = "session,turn,t_ms,prompt_tokens,cached_tokens,completion_tokens,ttft_ms,prefill_tps,decode_tps,\
        draft_n,draft_accepted,gpu_before_mib,gpu_peak_mib,gpu_after_mib,host_mib,kv_fill,cache_bytes,status,error";

    pub(super) fn take(&mut self, answer: &Answer) {
        self.elapsed_ms = answer.elapsed.as_millis() as u64;
        self.prompt_tokens = answer.prompt_tokens;
        self.cached_tokens = answer.cached_tokens;
        self.completion_tokens = answer.completion_tokens;
        self.ttft_ms = answer.first.map(|first| first.as_secs_f64() * 1000.0);
        self.prefill_tps = answer.prefill_rate();
        self.decode_tps = answer.decode_rate();
        self.draft_n = answer.drafted;
        self.draft_accepted = answer.draft_accepted;
        self.is_empty = answer.is_empty();
    }

    pub(super) fn fail(&mut self, error: &ClientError) {
        error.kind().clone_into(&mut self.status);
        self.error = error.to_string();
    }

    pub fn is_fault(&self) -> bool {
        !matches!(self.status.as_str(), "ok" | "aborted")
    }

    pub fn csv(&self) -> String {
        let count = |value: Option<u64>| value.map_or(String::new(), |n| n.to_string());
        let real = |value: Option<f64>| value.map_or(String::new(), |x| format!("{x:.1}"));
        [
            self.session.to_string(),
            self.turn.to_string(),
            self.t_ms.to_string(),
            count(self.prompt_tokens),
            count(self.cached_tokens),
            count(self.completion_tokens),
            real(self.ttft_ms),
            real(self.prefill_tps),
            real(self.decode_tps),
            count(self.draft_n),
            count(self.draft_accepted),
            real(self.gpu_before_mib),
            real(self.gpu_peak_mib),
            real(self.gpu_after_mib),
            real(self.host_mib),
            real(self.kv_fill),
            real(self.cache_bytes),
            self.status.clone(),
            quoted(&self.error),
        ]
        .join(",")
    }

    /// For people.
    pub fn line(&self) -> String {
        let count = |value: Option<u64>| value.map_or("?".to_owned(), |n| n.to_string());
        let real = |value: Option<f64>, unit: &str| value.map_or(String::new(), |x| format!("  {x:.0} {unit}"));
        format!(
            "session {} turn {}  {}  prompt {} (cached {})  {} tokens{}{}{}{}",
            self.session,
            self.turn,
            self.status,
            count(self.prompt_tokens),
            count(self.cached_tokens),
            count(self.completion_tokens),
            real(self.ttft_ms, "ms to the first"),
            real(self.decode_tps, "tok/s"),
            real(self.gpu_after_mib, "MiB used"),
            if self.error.is_empty() { String::new() } else { format!("  {}", self.error) }
        )
    }
}

fn quoted(text: &str) -> String {
    let text = text.replace(['\n', '\r'], " ");
    if text.contains([',', '"']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_field_for_every_column_and_text_is_quoted() {
        let row = Row { error: "a, \"b\"\nc".to_owned(), gpu_peak_mib: Some(1.25), ..Row::default() };
        assert_eq!(row.csv(), "0,0,0,,,,,,,,,,1.2,,,,,,\"a, \"\"b\"\" c\"");
        let plain = Row { error: "x".to_owned(), ..row };
        assert_eq!(plain.csv().split(',').count(), Row::HEAD.split(',').count());
    }
}
