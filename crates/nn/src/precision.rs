//! In which numbers the products of linear layers and convolutions are computed. Weights, sums, losses and optimisers are f32
//! in any case: mixed precision (Micikevicius et al., "Mixed precision training", 2018). Losses are sums over rows, not means, so
//! that gradients are large enough for narrow numbers without being scaled.

use crate::device::ON_FLEX;
use burn_tensor::{FloatDType, Tensor};
use starlings_core::{Fault, Param, ParamKind, Params, Result};

/// The parameter of every network.
pub(crate) const PARAM: Param = Param {
    name: "precision",
    kind: ParamKind::Text,
    default: Some("single"),
    help: "numbers of products: single (f32), or half where the program was built for a GPU",
};

/// Which numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Precision {
    /// f32.
    Single,
    /// 16 bits: those that the backend multiplies fastest.
    Half,
}

/// `bfloat16` where GPUs have it, for its range is that of f32; shaders know only `f16`.
const NARROW: FloatDType = match cfg!(any(feature = "cuda", feature = "rocm")) {
    true => FloatDType::BF16,
    false => FloatDType::F16,
};

impl Precision {
    /// From a job's parameters.
    ///
    /// # Errors
    /// A word that means nothing, or halves where the backend has none.
    pub(crate) fn of(params: &Params) -> Result<Precision> {
        match (params.text(PARAM.name), ON_FLEX) {
            ("single", _) => Ok(Precision::Single),
            ("half", false) => Ok(Precision::Half),
            ("half", true) => Err(Fault::caller(
                "precision = \"half\" needs a GPU: on the CPU halves are computed by way of f32, slower than f32 itself",
            )
            .hint("leave precision out, or build the program with --features cuda, rocm, metal or wgpu")),
            (other, _) => Err(Fault::caller(format!("precision = \"{other}\" is not known"))
                .hint("there are single (f32) and half (16 bits, on GPUs)")),
        }
    }

    /// What goes into a product.
    pub(crate) fn narrowed<const D: usize>(self, numbers: Tensor<D>) -> Tensor<D> {
        match self {
            Precision::Single => numbers,
            Precision::Half => numbers.cast(NARROW),
        }
    }

    /// What comes out of one.
    pub(crate) fn widened<const D: usize>(self, numbers: Tensor<D>) -> Tensor<D> {
        match self {
            Precision::Single => numbers,
            Precision::Half => numbers.cast(FloatDType::F32),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pass::{numbers, tensor};
    use starlings_core::Entry;

    fn asked(precision: &str) -> Result<Precision> {
        let network = Entry::find("network", crate::NETWORKS, "mlp").unwrap();
        let given = [("precision".to_string(), precision.into())].into_iter().collect();
        Precision::of(&network.check("learner", &given).unwrap())
    }

    #[test]
    fn halves_are_refused_where_the_backend_has_none() {
        assert_eq!(asked("single").unwrap(), Precision::Single);
        assert!(asked("quarter").unwrap_err().to_string().contains("quarter"));
        match ON_FLEX {
            true => assert!(asked("half").unwrap_err().to_string().contains("needs a GPU")),
            false => assert_eq!(asked("half").unwrap(), Precision::Half),
        }
    }

    #[test]
    fn narrow_numbers_lose_digits_and_gradients_come_back_through_them() {
        let rows = tensor(vec![1.0, 1.0 + 1e-5, -3.0], [3]).autodiff().require_grad();
        let narrow = Precision::Half.narrowed(rows.clone());
        let back = Precision::Half.widened(narrow);
        let mut gradients = (back.clone() * 2.0).sum().backward();
        assert_eq!(numbers(back), [1.0, 1.0, -3.0]);
        assert_eq!(numbers(rows.grad_remove(&mut gradients).unwrap()), [2.0, 2.0, 2.0]);
    }
}
