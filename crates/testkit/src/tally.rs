//! The smallest learner that can be served: it counts. Its model after any run is known in closed form, so
//! simulations and end-to-end tests of consistency can tell a lost or doubled update from a good one.

use starlings_core::{Ability, Block, Kind, Model, Result, Role, Rows, Tensor, Update, Values};
use starlings_data::{Batch, LabelNeed};
use starlings_learn::{Appetite, Facts, Grade, Learner, Moment, Outcome, Place, Task, Work};

/// Counts rows by their number modulo the size of its table.
#[derive(Clone, Copy, Debug)]
pub struct Tally {
    /// Rows of the table.
    pub size: u32,
}

/// The name of its table.
pub const TABLE: &str = "table";

impl Tally {
    /// The update that adds `amount` to each of these rows.
    #[must_use]
    pub fn adds(&self, index: Vec<u32>, amount: i64) -> Update {
        let values = Values::I64(vec![amount; index.len()]);
        let rows = Rows { total: self.size, width: 1, index, values };
        Update { blocks: vec![Block::rows(TABLE, rows)] }
    }
}

impl Learner for Tally {
    fn task(&self) -> Task {
        Task::Topics
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn gives(&self) -> &'static [Ability] {
        &[Ability::RowWise]
    }

    fn requires(&self) -> &'static [Ability] {
        &[]
    }

    fn init(&self, _: &Facts, _: Place) -> Result<Model> {
        let mut model = Model::new();
        model.set(TABLE, Tensor::zeros(Kind::I64, &[self.size as usize, 1], Role::Weight));
        Ok(model)
    }

    fn contribute(&self, work: &mut Work<'_>) -> Result<()> {
        let mut counts = vec![0; self.size as usize];
        for slice in &work.batch.slices {
            for row in slice.rows() {
                let number = slice.origin + (row - slice.start) as u64;
                counts[(number % u64::from(self.size)) as usize] += 1;
            }
        }
        let index = (0..self.size).collect();
        let rows = Rows { total: self.size, width: 1, index, values: Values::I64(counts) };
        work.outbox.emit(Block::rows(TABLE, rows));
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        if let Some(rows) = update.rows(TABLE) {
            let counts = rows.values.as_i64().expect("counts are integers");
            let table = model.i64_mut(TABLE);
            rows.index.iter().zip(counts).for_each(|(&row, count)| table[row as usize] += count);
        }
        Ok(Outcome::default())
    }

    fn score(&self, _: &mut Work<'_>) -> Result<Vec<f64>> {
        Ok(vec![0.0])
    }

    fn grade(&self, _: &Model, _: &[f64], _: u64) -> Grade {
        Grade::default()
    }

    fn outputs(&self, _: &Model) -> usize {
        1
    }

    fn predict(&self, _: &Model, batch: &Batch<'_>, out: &mut Vec<f64>) -> Result<()> {
        out.extend(batch.rows().map(|_| 0.0));
        Ok(())
    }
}
