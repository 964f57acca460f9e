//! A training loop of a user's own, written with Burn: everyone begins with the same weights, and before each step of the
//! optimiser the gradients become their mean over all members. Since all hold the same bits of both, all optimisers stay in
//! the same state, and nothing else has to travel.

use super::Flock;
use super::surviving::Offer;
use starlings_core::{Block, Fault, Result, Seat, Update, contributing};
use starlings_nn::modules::{
    Gradients, GradientsParams, Module, digest, shapes, weights, with_weights,
};

impl Flock {
    /// Gives everyone rank 0's weights: before the first step, since each process draws its own. All floats of the network
    /// are weights here, the running means of normalisation among them.
    ///
    /// # Errors
    /// A lost member; a member with another network.
    pub fn broadcast_weights<M: Module>(&mut self, model: M) -> Result<M> {
        let mine = i64::from(digest(&model));
        let word = |_: Seat| Update { blocks: vec![Block::counts("network", vec![mine, 1])] };
        let told = self.sum(false, &mut Offer::Made(&word))?;
        let [sum, members] = told.i64("network") else { unreachable!("two numbers") };
        // Where all have the same number their sum is a multiple of it; where two differ, it is not so for one of them.
        if *sum != mine * members {
            let what = "the members do not have the same network";
            return Err(Fault::caller(what).hint("build it with the same sizes in every process"));
        }
        let mut blocks = vec![weights(&model)];
        self.broadcast(&mut blocks)?;
        with_weights(model, &blocks[0])
    }

    /// The mean of all members' gradients, each counted by its rows: `rows` is how many rows of the batch these are the mean
    /// of. So the result is what one process would have had from the rows of all, whether or not they are dealt out evenly.
    /// When a member is lost the others finish the same mean, over their own rows. Everyone gets the same bits.
    ///
    /// # Errors
    /// As for [`merge`](Flock::merge).
    pub fn mean_gradients<M: Module>(
        &mut self,
        gradients: GradientsParams,
        model: &M,
        rows: usize,
    ) -> Result<GradientsParams> {
        let alone = |name: &str| self.options.shapes.contains_key(name);
        let gradients = Gradients::of(model, gradients, rows, &alone);
        let sum = self.merge_made(|| contributing(|| gradients.blocks()))?;
        // They would lie beside the sum and its mean otherwise.
        drop(gradients);
        Gradients::mean(sum, model)
    }
}

impl super::FlockOptions {
    /// Lets the carriage compress the gradients of a network's matrices; biases and the like travel as they are.
    #[must_use]
    pub fn for_network<M: Module>(mut self, model: &M) -> Self {
        self.shapes.extend(shapes(model));
        self
    }
}
