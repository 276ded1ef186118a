//! The machine under us: system, processor, memory and its limits. An image of one moment; what
//! cannot be read is `None`.

use sysinfo::{CpuRefreshKind, MemoryRefreshKind, RefreshKind, System};

use crate::units::Bytes;

#[derive(Clone, Debug)]
pub struct Machine {
    pub system: Option<String>,
    pub kernel: Option<String>,
    pub cpu: Option<String>,
    /// Vector extensions that the kernels can use, of those that this processor has.
    pub cpu_features: Vec<&'static str>,
    pub physical_cores: Option<usize>,
    /// What this process may use: affinity and CPU quota count.
    pub usable_threads: Option<usize>,
    pub memory: HostMemory,
}

/// RAM and swap as this process sees them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostMemory {
    pub total: Bytes,
    /// Free or free at once (page cache).
    pub available: Bytes,
    pub swap_total: Bytes,
    pub swap_free: Bytes,
    /// Limit of the control group, where it is lower than the machine's memory, and what is used of
    /// it (page cache aside).
    pub limit: Option<(Bytes, Bytes)>,
}

impl HostMemory {
    pub fn read() -> HostMemory {
        let kind = RefreshKind::nothing().with_memory(MemoryRefreshKind::everything());
        System::new_with_specifics(kind).map_or_else(|_| HostMemory::default(), |system| HostMemory::of(&system))
    }

    fn of(system: &System) -> HostMemory {
        let total = Bytes(system.total_memory());
        let limit = system
            .cgroup_limits()
            .map(|c| (Bytes(c.total_memory), Bytes(c.rss)))
            .filter(|(limit, _)| *limit > Bytes(0) && *limit < total);
        HostMemory {
            total,
            available: Bytes(system.available_memory()),
            swap_total: Bytes(system.total_swap()),
            swap_free: Bytes(system.free_swap()),
            limit,
        }
    }

    /// What a model may take: available memory, or what the control group leaves where that is
    /// less. Swap is not counted: weights in swap are slower than no answer.
    pub fn free(&self) -> Bytes {
        match self.limit {
            Some((limit, used)) => self.available.min(Bytes(limit.0.saturating_sub(used.0))),
            None => self.available,
        }
    }
}

impl Machine {
    pub fn read() -> Machine {
        let kind =
            RefreshKind::nothing().with_cpu(CpuRefreshKind::nothing()).with_memory(MemoryRefreshKind::everything());
        let system = System::new_with_specifics(kind).ok();
        Machine {
            system: System::long_os_version().ok(),
            kernel: System::kernel_version().ok(),
            cpu: system.as_ref().and_then(|s| s.cpus().first().map(|cpu| cpu.brand().trim().to_owned())),
            cpu_features: cpu_features(),
            physical_cores: System::physical_core_count().ok(),
            usable_threads: std::thread::available_parallelism().ok().map(usize::from),
            memory: system.as_ref().map(HostMemory::of).unwrap_or_default(),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn cpu_features() -> Vec<&'static str> {
    let known = [
        ("avx", std::arch::is_x86_feature_detected!("avx")),
        ("avx2", std::arch::is_x86_feature_detected!("avx2")),
        ("fma", std::arch::is_x86_feature_detected!("fma")),
        ("f16c", std::arch::is_x86_feature_detected!("f16c")),
        ("avx512f", std::arch::is_x86_feature_detected!("avx512f")),
        ("avx512vnni", std::arch::is_x86_feature_detected!("avx512vnni")),
        ("avx512bf16", std::arch::is_x86_feature_detected!("avx512bf16")),
        ("avxvnni", std::arch::is_x86_feature_detected!("avxvnni")),
    ];
    known.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

#[cfg(target_arch = "aarch64")]
fn cpu_features() -> Vec<&'static str> {
    let known = [
        ("neon", std::arch::is_aarch64_feature_detected!("neon")),
        ("dotprod", std::arch::is_aarch64_feature_detected!("dotprod")),
        ("fp16", std::arch::is_aarch64_feature_detected!("fp16")),
        ("sve", std::arch::is_aarch64_feature_detected!("sve")),
        ("i8mm", std::arch::is_aarch64_feature_detected!("i8mm")),
    ];
    known.into_iter().filter(|(_, there)| *there).map(|(name, _)| name).collect()
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cpu_features() -> Vec<&'static str> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(available: u64, limit: Option<(u64, u64)>) -> HostMemory {
        let limit = limit.map(|(limit, used)| (Bytes(limit), Bytes(used)));
        HostMemory { available: Bytes(available), limit, ..HostMemory::default() }
    }

    #[test]
    fn a_container_has_what_its_limit_leaves_and_not_what_the_machine_has() {
        assert_eq!(memory(100, Some((50, 20))).free(), Bytes(30));
        assert_eq!(memory(10, Some((50, 20))).free(), Bytes(10));
        assert_eq!(memory(10, Some((50, 60))).free(), Bytes(0));
        assert_eq!(memory(10, None).free(), Bytes(10));
    }
}
