//! What this machine tells of a server that runs on it: the memory that it fills, and what the machine is.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};

use crate::check::client::Client;
use crate::check::facts::{Facts, Kind};
use crate::check::memory::{Memory, ReadMemory, Reading};
use crate::gpu::{Gpu, GpuReading};

/// Which memory to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Which {
    /// The host's where the server says that it runs on the processor, else a GPU's
    Auto,
    /// The GPU's, here or in the server's metrics
    GpuReading,
    /// Of the server's process on this machine
    Host,
    /// None: what needs it is inconclusive
    None,
}

const MIB: f64 = 1_048_576.0;

/// Finds a way to read the memory that the server fills.
pub async fn memory(which: Which, gpu: Option<u32>, client: &Client, facts: &Facts) -> Memory {
    let host = which == Which::Host || (which == Which::Auto && facts.is_on_cpu());
    match which {
        Which::None => Memory::Absent("--memory none".to_owned()),
        _ if host => host_memory(client),
        _ => gpu_memory(gpu, client, facts).await,
    }
}

fn host_memory(client: &Client) -> Memory {
    match process_memory(client) {
        Some((process, read)) => Memory::Local { what: format!("host memory of process {process}"), read },
        None => Memory::Absent("the server's process is not on this machine, or not to be seen".to_owned()),
    }
}

/// The memory of the server's process, and what the host has left.
pub fn process_memory(client: &Client) -> Option<(u32, ReadMemory)> {
    let process = client.port().filter(|_| client.is_local()).and_then(process_on)?;
    let read: ReadMemory = Arc::new(move || {
        let used = field_kib(&format!("/proc/{process}/status"), "RssAnon:")?;
        let free = field_kib("/proc/meminfo", "MemAvailable:")?;
        Some(Reading { used: used / 1024.0, free: free / 1024.0 })
    });
    Some((process, read))
}

async fn gpu_memory(gpu: Option<u32>, client: &Client, facts: &Facts) -> Memory {
    if client.is_local()
        && let Some((name, read)) = local_gpu(gpu)
    {
        return Memory::Local { what: name, read };
    }
    let metrics = Memory::Metrics { client: client.clone(), gpu };
    if facts.kind == Kind::Plateau && metrics.read().await.is_some() {
        return metrics;
    }
    Memory::Absent("no GPU of this machine, and the server's metrics have none".to_owned())
}

fn local_gpu(index: Option<u32>) -> Option<(String, ReadMemory)> {
    let nvml = Gpu::open();
    let gpu = pick(nvml.gpus(), index)?;
    let name = format!("GPU {} ({})", gpu.index, gpu.name.as_deref().unwrap_or("?"));
    let read: ReadMemory = Arc::new(move || {
        let memory = pick(nvml.gpus(), Some(gpu.index))?.memory?;
        Some(Reading { used: memory.used.0 as f64 / MIB, free: memory.free.0 as f64 / MIB })
    });
    Some((name, read))
}

/// The GPU of this number, else the largest.
fn pick(gpus: Vec<GpuReading>, index: Option<u32>) -> Option<GpuReading> {
    let readable = gpus.into_iter().filter(|gpu| gpu.memory.is_some());
    let wanted = readable.filter(|gpu| index.is_none_or(|index| index == gpu.index));
    wanted.max_by_key(|gpu| gpu.memory.map(|memory| memory.total))
}

fn field_kib(path: &str, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(path).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// The process that listens on a port of this machine.
fn process_on(port: u16) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let texts = tables.iter().filter_map(|path| std::fs::read_to_string(path).ok());
    let socket = texts.into_iter().find_map(|text| text.lines().find_map(|line| listener(line, port)))?;
    let wanted = format!("socket:[{socket}]");
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).find(|process| {
        let open = std::fs::read_dir(format!("/proc/{process}/fd"));
        open.into_iter()
            .flatten()
            .flatten()
            .any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target == Path::new(&wanted)))
    })
}

/// The socket's number in a line of /proc/net/tcp, where it listens on this port.
fn listener(line: &str, port: u16) -> Option<u64> {
    const LISTEN: &str = "0A";
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (address, state, socket) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    let (_, hex) = address.rsplit_once(':')?;
    let is_it = *state == LISTEN && u16::from_str_radix(hex, 16).ok()? == port;
    is_it.then(|| socket.parse().ok())?
}

/// What a measurement was made on, as far as it is this machine.
pub fn rig(client: &Client, facts: &Facts, gpu: Option<u32>) -> Value {
    let kernels: Vec<&str> = facts.kernels.iter().filter(|k| k.on).map(|k| k.name.as_str()).collect();
    if !client.is_local() {
        return json!({"local": false, "kernels_on": kernels});
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let nvml = Gpu::open();
    let reading = pick(nvml.gpus(), gpu).map(|gpu| {
        json!({
            "name": gpu.name,
            "total_mib": gpu.memory.map(|memory| (memory.total.0 as f64 / MIB).round()),
            "power_limit_watts": gpu.power_limit_milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3),
        })
    });
    json!({
        "local": true,
        "gpu": reading,
        "driver": nvml.driver(),
        "kernel": release,
        "wsl": release.to_ascii_lowercase().contains("microsoft"),
        "kernels_on": kernels,
    })
}

/// The SM clock of the GPU in MHz, where it is on this machine.
pub fn clock_mhz(client: &Client, gpu: Option<u32>) -> Option<u32> {
    if !client.is_local() {
        return None;
    }
    pick(Gpu::open().gpus(), gpu)?.sm_clock_mhz
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::GpuMemory;
    use crate::units::Bytes;

    #[test]
    fn a_listener_is_found_with_its_memory() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(process_on(port), Some(std::process::id()));
        let client = Client::new(&format!("http://127.0.0.1:{port}"), None).unwrap();
        let Memory::Local { what, read } = host_memory(&client) else { panic!("not read") };
        let reading = read().unwrap();
        assert!(
            what.contains(&std::process::id().to_string()) && reading.used > 0.1 && reading.free > 1.0,
            "{reading:?}"
        );
        drop(listener);
        assert!(matches!(host_memory(&client), Memory::Absent(_)));
        let remote = Client::new("http://192.0.2.1", None).unwrap();
        assert!(matches!(host_memory(&remote), Memory::Absent(_)));
    }

    #[test]
    fn the_largest_gpu_is_taken_unless_one_is_named() {
        let gpu = |index, total| GpuReading {
            index,
            memory: Some(GpuMemory { total: Bytes(total), free: Bytes(1), used: Bytes(1) }),
            ..GpuReading::default()
        };
        let gpus = || vec![gpu(0, 8), gpu(1, 24), GpuReading { index: 2, ..GpuReading::default() }];
        assert_eq!(pick(gpus(), None).unwrap().index, 1);
        assert_eq!(pick(gpus(), Some(0)).unwrap().index, 0);
        assert_eq!(pick(gpus(), Some(2)), None);
    }
}
