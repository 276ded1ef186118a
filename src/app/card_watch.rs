//! The gauges of the graphics cards: a thread reads NVML once a second while the server runs.
//! Without a card there is no thread and there are no gauges.
//!
//! A thread of its own, because a driver that hangs must hold up nobody.

use std::sync::mpsc;
use std::time::Duration;

use crate::gpu::{Card, Gpu};
use crate::telemetry::{CardGauges, Metrics};

const PERIOD: Duration = Duration::from_secs(1);
/// What a reading that runs gets to end, so that the process does not go away under the driver's
/// library.
const LAST_READING: Duration = Duration::from_secs(1);

/// Stops the thread when it is dropped.
pub struct CardWatch {
    stop: Option<mpsc::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

impl CardWatch {
    /// `None`: there is no card.
    pub fn start(metrics: Metrics) -> Option<CardWatch> {
        let gpu = Gpu::open();
        watch(move || gpu.cards(), metrics, PERIOD)
    }
}

impl Drop for CardWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Nothing is ever sent: it is an error in any case, at the end of the thread or after the
        // time.
        let _ = self.ended.recv_timeout(LAST_READING);
    }
}

fn watch(read: impl Fn() -> Vec<Card> + Send + 'static, metrics: Metrics, period: Duration) -> Option<CardWatch> {
    let mut known = read();
    if known.is_empty() {
        return None;
    }
    known.iter().for_each(|card| metrics.set_card(&gauges(card)));
    let (stop, stopped) = mpsc::channel::<()>();
    let (end, ended) = mpsc::channel();
    let body = move || {
        let _end = end;
        while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
            let cards = read();
            for lost in known.iter().filter(|card| cards.iter().all(|other| other.index != card.index)) {
                metrics.set_card(&CardGauges { index: lost.index, ..CardGauges::default() });
            }
            cards.iter().for_each(|card| metrics.set_card(&gauges(card)));
            known = cards;
        }
    };
    match std::thread::Builder::new().name("cards".to_owned()).spawn(body) {
        Ok(_) => Some(CardWatch { stop: Some(stop), ended }),
        Err(error) => {
            tracing::warn!(%error, "the card's gauges stay as they are: no thread for them");
            None
        }
    }
}

fn gauges(card: &Card) -> CardGauges {
    let hertz = |mhz: Option<u32>| mhz.map(|mhz| f64::from(mhz) * 1e6);
    CardGauges {
        index: card.index,
        memory_used_bytes: card.memory.map(|memory| memory.used.0 as f64),
        memory_total_bytes: card.memory.map(|memory| memory.total.0 as f64),
        temperature_celsius: card.temperature_celsius.map(f64::from),
        power_watts: card.power_milliwatts.map(|power| f64::from(power) / 1e3),
        sm_clock_hertz: hertz(card.sm_clock_mhz),
        memory_clock_hertz: hertz(card.memory_clock_mhz),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gpu::CardMemory;
    use crate::units::Bytes;

    fn card() -> Card {
        let memory = CardMemory { total: Bytes(24), free: Bytes(4), used: Bytes(20) };
        Card {
            index: 0,
            memory: Some(memory),
            sm_clock_mhz: Some(1695),
            power_milliwatts: Some(250_500),
            ..Card::default()
        }
    }

    #[test]
    fn without_a_card_there_is_no_thread_and_there_are_no_gauges() {
        let metrics = Metrics::new();
        assert!(watch(Vec::new, metrics.clone(), Duration::ZERO).is_none());
        assert!(!metrics.render().contains("plateau_card"));
    }

    #[test]
    fn video_memory_shows_in_the_metrics_from_the_first_reading_on() {
        let metrics = Metrics::new();
        let watch = watch(|| vec![card()], metrics.clone(), PERIOD);
        let text = metrics.render();
        for line in [
            "plateau_card_memory_used_bytes{card=\"0\"} 20.0\n",
            "plateau_card_memory_total_bytes{card=\"0\"} 24.0\n",
            "plateau_card_sm_clock_hertz{card=\"0\"} 1695000000.0\n",
            "plateau_card_power_watts{card=\"0\"} 250.5\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(watch);
    }

    #[test]
    fn a_card_that_falls_off_the_bus_loses_its_gauges_and_the_thread_ends_with_the_watch() {
        let metrics = Metrics::new();
        let n_readings = AtomicUsize::new(0);
        let (tell, told) = mpsc::channel();
        let read = move || {
            let _ = tell.send(());
            if n_readings.fetch_add(1, Ordering::Relaxed) == 0 { vec![card()] } else { Vec::new() }
        };
        let watch = watch(read, metrics.clone(), Duration::ZERO);
        // The third reading comes after the second was shown.
        for _ in 0..3 {
            told.recv().unwrap();
        }
        assert!(!metrics.render().contains("plateau_card"), "{}", metrics.render());
        drop(watch);
        while told.recv().is_ok() {}
    }
}
