//! The GPU as NVML sees it: name, memory, clocks, power, temperature. What is absent is `None`; nothing here can
//! fail, and a machine without a driver has no GPUs.

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};

use crate::units::Bytes;

/// A reading of one GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GpuReading {
    pub index: u32,
    pub name: Option<String>,
    /// Major and minor compute capability.
    pub compute_capability: Option<(i32, i32)>,
    pub memory: Option<GpuMemory>,
    pub sm_clock_mhz: Option<u32>,
    pub memory_clock_mhz: Option<u32>,
    pub power_milliwatts: Option<u32>,
    pub power_limit_milliwatts: Option<u32>,
    pub temperature_celsius: Option<u32>,
}

/// Memory of a GPU, as the driver counts it: other programs and the desktop are in `used`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GpuMemory {
    pub total: Bytes,
    pub free: Bytes,
    pub used: Bytes,
}

/// An open connection to NVML; cheap to read from again and again.
pub struct Gpu {
    nvml: Option<Nvml>,
}

impl Gpu {
    /// Loads the driver's library if it is there.
    pub fn open() -> Gpu {
        Gpu { nvml: Nvml::init().ok() }
    }

    /// The version of the driver.
    pub fn driver(&self) -> Option<String> {
        self.nvml.as_ref()?.sys_driver_version().ok()
    }

    /// All GPUs that can be read.
    pub fn gpus(&self) -> Vec<GpuReading> {
        let Some(nvml) = &self.nvml else { return Vec::new() };
        (0..nvml.device_count().unwrap_or(0)).filter_map(|index| read(nvml, index)).collect()
    }
}

fn read(nvml: &Nvml, index: u32) -> Option<GpuReading> {
    let device = nvml.device_by_index(index).ok()?;
    let memory = device.memory_info().ok();
    Some(GpuReading {
        index,
        name: device.name().ok(),
        compute_capability: device.cuda_compute_capability().ok().map(|c| (c.major, c.minor)),
        memory: memory.map(|m| GpuMemory { total: Bytes(m.total), free: Bytes(m.free), used: Bytes(m.used) }),
        sm_clock_mhz: device.clock_info(Clock::SM).ok(),
        memory_clock_mhz: device.clock_info(Clock::Memory).ok(),
        power_milliwatts: device.power_usage().ok(),
        power_limit_milliwatts: device.enforced_power_limit().ok(),
        temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_without_a_driver_has_no_cards_and_no_error() {
        let gpu = Gpu { nvml: None };
        assert_eq!(gpu.gpus(), []);
        assert_eq!(gpu.driver(), None);
    }
}
