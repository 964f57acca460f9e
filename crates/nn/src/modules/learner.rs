//! A network of a user's own as a learner, so that all that a job file says of training, plans, topologies, consistency,
//! codecs and checkpoints is there for it too. It is one stage: what is inside is the user's, so nothing can cut it.
//!
//! Its parameters lie in the model under the names of their fields; for each pass they are lent to a copy of the network.
//! First weights are those that its initialisers draw from Burn's generator, seeded with the job's seed. A network that draws
//! masks or keeps running means is shown the rows of one shard after another, so that neither depends on the number of workers.

use super::own::Whole;
use crate::flow::Form;
use crate::learner::{Design, Network};
use crate::networks::{LABEL_SMOOTHING, LOSS, TASK, goal};
use crate::precision::Precision;
use crate::recipe::{self, Recipe};
use crate::stage::Stage;
use burn_core::module::Module;
use burn_tensor::{Device, Tensor};
use starlings_core::{Ability, Entry, Fault, Param, Params, Result};
use starlings_learn::{BuildLearner, Learner};
use std::sync::{Arc, OnceLock};

/// A network of a user's own.
pub trait OwnNetwork: Module + Sync + 'static {
    /// Whether it has floats that follow no gradient: running means and variances of batch normalisation, or frozen
    /// parameters. Its rows of a step then go through it shard by shard, and what moved is averaged over all rows.
    const STATEFUL: bool = false;

    /// The network for rows of so many features. It gives so many numbers for a row: one for each class, or one where numbers
    /// are predicted.
    fn build(features: usize, outputs: usize, device: &Device) -> Self;

    /// Rows in, outputs out: as many rows. For classes they are scores, before any softmax.
    fn forward(&self, rows: Tensor<2>) -> Tensor<2>;
}

/// The entry of a network for the catalogue of learners: it has the parameters that all networks share.
#[must_use]
pub const fn own_network<N: OwnNetwork>(
    name: &'static str,
    summary: &'static str,
) -> Entry<BuildLearner> {
    Entry {
        name,
        summary,
        reference: "a network of a user's own",
        params: PARAMS,
        // What a pass moves is no sum over rows of a tensor: owners of rows could not apply it.
        gives: if N::STATEFUL {
            &[Ability::LocalSteps, Ability::StagedModel]
        } else {
            &[Ability::RowWise, Ability::LocalSteps, Ability::StagedModel]
        },
        needs: &[],
        build: learner::<N>,
    }
}

const OWN: &[Param] = &[TASK, LOSS, LABEL_SMOOTHING];
const PARAMS: &[Param] = &recipe::joined::<{ OWN.len() + recipe::PARAMS.len() }>(OWN);

fn learner<N: OwnNetwork>(params: &Params) -> Result<Box<dyn Learner>> {
    let design = Box::new(Own::<N> { known: OnceLock::new() });
    let recipe = Recipe::of(params)?;
    if recipe.precision != Precision::Single {
        return Err(Fault::caller("precision means nothing to a network of one's own")
            .hint("leave it out, and cast tensors in the network itself"));
    }
    Ok(Box::new(Network::new(design, goal(params)?, recipe)))
}

struct Own<N> {
    /// Looking into a network means building it, which draws all its weights: once is enough.
    known: OnceLock<Arc<Whole<N>>>,
}

impl<N: OwnNetwork> Design for Own<N> {
    fn input(&self, features: usize) -> Result<Form> {
        Ok(Form::Flat(features))
    }

    fn lines(&self, _: usize) -> Vec<String> {
        Vec::new()
    }

    fn closes(&self) -> bool {
        false
    }

    fn tracks(&self) -> bool {
        N::STATEFUL
    }

    fn whole(&self, features: usize, outputs: usize) -> Option<Result<Box<dyn Stage>>> {
        let sizes = (features, outputs);
        if let Some(whole) = self.known.get().filter(|known| known.sizes() == sizes) {
            return Some(Ok(Box::new(whole.clone())));
        }
        Some(Whole::<N>::new(sizes).map(|whole| {
            let whole = Arc::new(whole);
            let _ = self.known.set(whole.clone());
            Box::new(whole) as Box<dyn Stage>
        }))
    }
}
