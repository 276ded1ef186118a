//! The gauges of the GPUs: a thread reads NVML once a second while the server runs.
//! Without a GPU there is no thread and there are no gauges.
//!
//! A thread of its own, because a driver that hangs must hold up nobody.

use std::sync::mpsc;
use std::time::Duration;

use crate::gpu::{Gpu, GpuReading};
use crate::telemetry::{GpuGauges, Metrics};

const PERIOD: Duration = Duration::from_secs(1);
/// What a reading that runs gets to end, so that the process does not go away under the driver's
/// library.
const LAST_READING: Duration = Duration::from_secs(1);

/// Stops the thread when it is dropped.
pub struct GpuWatch {
    stop: Option<mpsc::Sender<()>>,
    ended: mpsc::Receiver<()>,
}

impl GpuWatch {
    /// `None`: there is no GPU.
    pub fn start(metrics: Metrics) -> Option<GpuWatch> {
        let gpu = Gpu::open();
        watch(move || gpu.gpus(), metrics, PERIOD)
    }
}

impl Drop for GpuWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        // Nothing is ever sent: it is an error in any case, at the end of the thread or after the
        // time.
        let _ = self.ended.recv_timeout(LAST_READING);
    }
}

fn watch(read: impl Fn() -> Vec<GpuReading> + Send + 'static, metrics: Metrics, period: Duration) -> Option<GpuWatch> {
    let mut known = read();
    if known.is_empty() {
        return None;
    }
    known.iter().for_each(|gpu| metrics.set_gpu(&gauges(gpu)));
    let (stop, stopped) = mpsc::channel::<()>();
    let (end, ended) = mpsc::channel();
    let body = move || {
        let _end = end;
        while stopped.recv_timeout(period) == Err(mpsc::RecvTimeoutError::Timeout) {
            let gpus = read();
            for lost in known.iter().filter(|gpu| gpus.iter().all(|other| other.index != gpu.index)) {
                metrics.set_gpu(&GpuGauges { index: lost.index, ..GpuGauges::default() });
            }
            gpus.iter().for_each(|gpu| metrics.set_gpu(&gauges(gpu)));
            known = gpus;
        }
    };
    match std::thread::Builder::new().name("GPUs".to_owned()).spawn(body) {
        Ok(_) => Some(GpuWatch { stop: Some(stop), ended }),
        Err(error) => {
            tracing::warn!(%error, "the GPU's gauges stay as they are: no thread for them");
            None
        }
    }
}

fn gauges(gpu: &GpuReading) -> GpuGauges {
    let hertz = |mhz: Option<u32>| mhz.map(|mhz| f64::from(mhz) * 1e6);
    GpuGauges {
        index: gpu.index,
        memory_used_bytes: gpu.memory.map(|memory| memory.used.0 as f64),
        memory_total_bytes: gpu.memory.map(|memory| memory.total.0 as f64),
        temperature_celsius: gpu.temperature_celsius.map(f64::from),
        power_watts: gpu.power_milliwatts.map(|power| f64::from(power) / 1e3),
        sm_clock_hertz: hertz(gpu.sm_clock_mhz),
        memory_clock_hertz: hertz(gpu.memory_clock_mhz),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::gpu::GpuMemory;
    use crate::units::Bytes;

    fn gpu() -> GpuReading {
        let memory = GpuMemory { total: Bytes(24), free: Bytes(4), used: Bytes(20) };
        GpuReading {
            index: 0,
            memory: Some(memory),
            sm_clock_mhz: Some(1695),
            power_milliwatts: Some(250_500),
            ..GpuReading::default()
        }
    }

    #[test]
    fn without_a_gpu_there_is_no_thread_and_there_are_no_gauges() {
        let metrics = Metrics::new();
        assert!(watch(Vec::new, metrics.clone(), Duration::ZERO).is_none());
        assert!(!metrics.render().contains("plateau_gpu"));
    }

    #[test]
    fn video_memory_shows_in_the_metrics_from_the_first_reading_on() {
        let metrics = Metrics::new();
        let watch = watch(|| vec![gpu()], metrics.clone(), PERIOD);
        let text = metrics.render();
        for line in [
            "plateau_gpu_memory_used_bytes{gpu=\"0\"} 20.0\n",
            "plateau_gpu_memory_total_bytes{gpu=\"0\"} 24.0\n",
            "plateau_gpu_sm_clock_hertz{gpu=\"0\"} 1695000000.0\n",
            "plateau_gpu_power_watts{gpu=\"0\"} 250.5\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(watch);
    }

    #[test]
    fn a_gpu_that_falls_off_the_bus_loses_its_gauges_and_the_thread_ends_with_the_watch() {
        let metrics = Metrics::new();
        let n_readings = AtomicUsize::new(0);
        let (tell, told) = mpsc::channel();
        let read = move || {
            let _ = tell.send(());
            if n_readings.fetch_add(1, Ordering::Relaxed) == 0 { vec![gpu()] } else { Vec::new() }
        };
        let watch = watch(read, metrics.clone(), Duration::ZERO);
        // The third reading comes after the second was shown.
        for _ in 0..3 {
            told.recv().unwrap();
        }
        assert!(!metrics.render().contains("plateau_gpu"), "{}", metrics.render());
        drop(watch);
        while told.recv().is_ok() {}
    }
}
