//! The memory that a server fills, read while it works. How it is read is for the caller to say: `check` knows no driver.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::client::Client;

/// The time of a reading over HTTP.
const METRICS_TIMEOUT: Duration = Duration::from_secs(5);
const LOCAL_PERIOD: Duration = Duration::from_millis(200);
const METRICS_PERIOD: Duration = Duration::from_secs(1);

/// One reading, in MiB.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reading {
    pub used: f64,
    pub free: f64,
}

/// Reads memory of this machine. `None`: it cannot be read now.
pub type ReadMemory = Arc<dyn Fn() -> Option<Reading> + Send + Sync>;

/// Where readings come from.
#[derive(Clone)]
pub enum Memory {
    /// This machine, every 200 ms.
    Local { what: String, read: ReadMemory },
    /// The gauges of a plateau server, which it renews once a second. The GPU, or nothing: the largest.
    Metrics { client: Client, gpu: Option<u32> },
    /// Nowhere, and why.
    Absent(String),
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.source())
    }
}

impl Memory {
    /// For the report.
    pub fn source(&self) -> String {
        match self {
            Memory::Local { what, .. } => format!("{what}, every {} ms", LOCAL_PERIOD.as_millis()),
            Memory::Metrics { .. } => "metrics, 1 Hz, may miss peaks".to_owned(),
            Memory::Absent(why) => format!("none: {why}"),
        }
    }

    pub async fn read(&self) -> Option<Reading> {
        match self {
            Memory::Local { read, .. } => read(),
            Memory::Metrics { client, gpu } => {
                from_metrics(&client.get_text("/metrics", METRICS_TIMEOUT).await.ok()?, *gpu)
            }
            Memory::Absent(_) => None,
        }
    }

    /// Reads again and again until the watch is stopped or dropped.
    pub fn watch(&self) -> Watch {
        let seen = Arc::new(Seen { lowest: AtomicU64::new(NONE), last: AtomicU64::new(NONE), peak: AtomicU64::new(0) });
        let (memory, shared) = (self.clone(), Arc::clone(&seen));
        let period = if matches!(memory, Memory::Local { .. }) { LOCAL_PERIOD } else { METRICS_PERIOD };
        let task = (!matches!(memory, Memory::Absent(_))).then(|| {
            tokio::spawn(async move {
                loop {
                    shared.take(memory.read().await);
                    tokio::time::sleep(period).await;
                }
            })
        });
        Watch { task, seen }
    }
}

/// No reading yet.
const NONE: u64 = u64::MAX;

/// In KiB: a reading fits an atomic.
struct Seen {
    lowest: AtomicU64,
    last: AtomicU64,
    peak: AtomicU64,
}

impl Seen {
    fn take(&self, reading: Option<Reading>) {
        let Some(Reading { used, free }) = reading else { return };
        let kib = |mib: f64| (mib.max(0.0) * 1024.0) as u64;
        self.lowest.fetch_min(kib(free), Ordering::Relaxed);
        self.last.store(kib(free), Ordering::Relaxed);
        self.peak.fetch_max(kib(used), Ordering::Relaxed);
    }
}

/// A watch over memory.
pub struct Watch {
    task: Option<tokio::task::JoinHandle<()>>,
    seen: Arc<Seen>,
}

fn mib(kib: &AtomicU64) -> Option<f64> {
    let kib = kib.load(Ordering::Relaxed);
    (kib != NONE).then(|| kib as f64 / 1024.0)
}

impl Watch {
    /// A reading that was taken elsewhere counts, too.
    pub fn also(&self, reading: Option<Reading>) {
        self.seen.take(reading);
    }

    /// The least that was free so far, in MiB.
    pub fn lowest(&self) -> Option<f64> {
        mib(&self.seen.lowest)
    }

    /// What was free at the last reading.
    pub fn last(&self) -> Option<f64> {
        mib(&self.seen.last)
    }

    /// The most that was used so far.
    pub fn peak(&self) -> Option<f64> {
        self.lowest().and_then(|_| mib(&self.seen.peak))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

/// The GPU's used and free memory in the text of `/metrics`.
fn from_metrics(text: &str, gpu: Option<u32>) -> Option<Reading> {
    let total = labelled(text, "plateau_gpu_memory_total_bytes");
    let (label, total) = match gpu {
        Some(gpu) => total.into_iter().find(|(label, _)| *label == format!("gpu=\"{gpu}\""))?,
        None => total.into_iter().max_by(|(_, a), (_, b)| a.total_cmp(b))?,
    };
    let used = labelled(text, "plateau_gpu_memory_used_bytes");
    let (_, used) = used.into_iter().find(|(other, _)| *other == label)?;
    let mib = |bytes: f64| bytes / f64::from(1 << 20);
    Some(Reading { used: mib(used), free: mib(total - used) })
}

/// The values of a metric with their labels' text.
fn labelled<'a>(text: &'a str, name: &str) -> Vec<(&'a str, f64)> {
    let value = |line: &'a str| {
        let (labels, value) = line.strip_prefix(name)?.strip_prefix('{')?.rsplit_once("} ")?;
        Some((labels, value.trim().parse().ok()?))
    };
    text.lines().filter_map(value).collect()
}

/// A counter or gauge without labels, or the sum over its labels.
pub fn metric(text: &str, name: &str) -> Option<f64> {
    let value = |line: &str| {
        let rest = line.strip_prefix(name)?;
        let value = if rest.starts_with('{') { rest.rsplit_once("} ")?.1 } else { rest.strip_prefix(' ')? };
        value.split(' ').next()?.parse::<f64>().ok()
    };
    let mut values = text.lines().filter_map(value).peekable();
    values.peek()?;
    Some(values.sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# TYPE x gauge\nplateau_gpu_memory_used_bytes{gpu=\"0\"} 1048576.0\n\
        plateau_gpu_memory_used_bytes{gpu=\"1\"} 2097152.0\nplateau_gpu_memory_total_bytes{gpu=\"0\"} 3145728.0\n\
        plateau_gpu_memory_total_bytes{gpu=\"1\"} 8388608.0\nplateau_kv_fill_tokens 7\n";

    #[test]
    fn the_largest_gpu_is_read_unless_one_is_named() {
        assert_eq!(from_metrics(TEXT, None), Some(Reading { used: 2.0, free: 6.0 }));
        assert_eq!(from_metrics(TEXT, Some(0)), Some(Reading { used: 1.0, free: 2.0 }));
        assert_eq!(from_metrics(TEXT, Some(2)), None);
        assert_eq!(from_metrics("", None), None);
        assert_eq!(metric(TEXT, "plateau_kv_fill_tokens"), Some(7.0));
        assert_eq!(metric(TEXT, "plateau_gpu_memory_used_bytes"), Some(3_145_728.0));
        assert_eq!(metric(TEXT, "plateau_kv_fill"), None);
    }

    #[test]
    fn a_watch_keeps_the_least_that_was_free() {
        let left = Arc::new(AtomicU64::new(10));
        let reader = Arc::clone(&left);
        let read: ReadMemory = Arc::new(move || {
            let free = reader.load(Ordering::Relaxed) as f64;
            Some(Reading { used: 100.0 - free, free })
        });
        let run = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        run.block_on(async {
            let watch = Memory::Local { what: "test".to_owned(), read }.watch();
            assert_eq!((watch.lowest(), watch.peak()), (None, None));
            for free in [10, 3, 8] {
                left.store(free, Ordering::Relaxed);
                tokio::time::sleep(LOCAL_PERIOD + Duration::from_millis(20)).await;
            }
            assert_eq!((watch.lowest(), watch.peak()), (Some(3.0), Some(97.0)));
            watch.also(Some(Reading { used: 1.0, free: 2.0 }));
            assert_eq!((watch.lowest(), watch.last()), (Some(2.0), Some(2.0)));
            let none = Memory::Absent("no GPU".to_owned()).watch();
            assert_eq!(none.lowest(), None);
        });
    }
}
