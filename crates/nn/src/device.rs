//! Where networks are computed: on the backend of Burn that the program was built for, a cargo feature each, and without
//! one on the CPU by `flex`. A build with several takes the first of `cuda`, `rocm`, `metal` and `wgpu`.

use burn_tensor::Device;

/// Whether networks are computed by `flex`, whose tensors lie in this process's memory.
pub(crate) const ON_FLEX: bool =
    !cfg!(any(feature = "cuda", feature = "rocm", feature = "metal", feature = "wgpu"));

/// The device of this process. Of several, the one that its environment shows it first (`CUDA_VISIBLE_DEVICES`).
pub(crate) fn device() -> Device {
    chosen()
}

#[cfg(feature = "cuda")]
fn chosen() -> Device {
    Device::cuda(burn_tensor::DeviceIndex::Default)
}

#[cfg(all(feature = "rocm", not(feature = "cuda")))]
fn chosen() -> Device {
    Device::rocm(burn_tensor::DeviceIndex::Default)
}

#[cfg(all(feature = "metal", not(any(feature = "cuda", feature = "rocm"))))]
fn chosen() -> Device {
    Device::metal(burn_tensor::DeviceKind::DefaultDevice)
}

#[cfg(all(feature = "wgpu", not(any(feature = "cuda", feature = "rocm", feature = "metal"))))]
fn chosen() -> Device {
    Device::wgpu(burn_tensor::DeviceKind::DefaultDevice)
}

#[cfg(not(any(feature = "cuda", feature = "rocm", feature = "metal", feature = "wgpu")))]
fn chosen() -> Device {
    Device::flex()
}
