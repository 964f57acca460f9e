//! Burn's extension point: its tensors as those of the backend, which kernels read as slices, and back. A kernel that has
//! gradients is a step of `burn_autodiff`, which runs when a backward pass comes by.

use burn_autodiff::Autodiff;
use burn_backend::TensorMetadata;
use burn_backend::tensor::FloatTensor;
use burn_flex::{Flex, FlexTensor};
use burn_tensor::{Tensor, TensorData};

/// The backend while gradients are recorded.
pub(super) type Recorded = Autodiff<Flex>;

/// The backend's tensor with its numbers one after another, if no gradients are recorded.
pub(super) fn plain<const D: usize>(tensor: &Tensor<D>) -> Option<FlexTensor> {
    tensor.clone().try_into_primitive::<Flex>().ok().map(|tensor| tensor.to_contiguous())
}

/// The tensor of a backend that records; what was not recorded so far is a constant.
///
/// # Panics
/// If it is on another device: networks compute on one.
pub(super) fn recorded<const D: usize>(tensor: Tensor<D>) -> FloatTensor<Recorded> {
    match tensor.clone().try_into_primitive::<Flex>() {
        Ok(tensor) => FloatTensor::<Recorded>::new(tensor),
        Err(_) => tensor.try_into_primitive::<Recorded>().expect("networks compute on flex"),
    }
}

/// The numbers of a tensor that has them one after another.
pub(super) fn slice(tensor: &FlexTensor) -> &[f32] {
    tensor.as_slice().expect("f32 one after another")
}

/// The sizes of a tensor.
pub(super) fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    tensor.shape().dims()
}

/// A tensor of numbers.
pub(super) fn made<const D: usize>(numbers: Vec<f32>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::from_data(TensorData::new(numbers, shape))
}
