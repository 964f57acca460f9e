//! Matrices as the vectors they are made of: sufficient factor broadcasting (Xie et al., 2016). The gradient of a
//! linear layer over b rows is Σ uᵢ vᵢᵀ with b terms, so b (rows + columns) numbers tell the same as
//! rows · columns. The learner emits the vectors; whoever folds contributions multiplies them out. Exact: no
//! number is rounded on the way. Blocks that are no such matrices travel as raw numbers.
//!
//! Cost: 8 b (rows + columns) bytes a contribution, and b · rows · columns multiplications for each contribution
//! that arrives. It pays where batches are small beside the matrix; see `auto`.

use super::BuildCodec;
use crate::Scheme;
use starlings_core::{Ability, Entry};

pub(super) const ENTRY: Entry<BuildCodec> = Entry {
    name: "factors",
    summary: "Matrices travel as the vectors whose outer products they are the sum of",
    reference: "Xie et al.: Lighter-communication distributed machine learning via sufficient factor broadcasting, UAI 2016",
    params: &[],
    gives: &[Ability::Lossless],
    needs: &[Ability::Contributions, Ability::Factors],
    build: |_| Ok(Scheme::Factors),
};
