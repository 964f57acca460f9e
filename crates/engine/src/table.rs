//! A shared table for a caller's own loop: its rows live at owners, pushes add to them, pulls read them under
//! the gate that was chosen (Ho et al. 2013: the tables of SSP). The parameter server without a learner.

use crate::exchange::served::{Asks, Shard};
use crate::net::Net;
use crate::serve::{self, Client, Codecs};
use starlings_consistency::Gate;
use starlings_core::{
    Ability, Block, Body, Fault, Kind, Model, Result, Role, Rows, Step, Tensor, Update, Values,
};
use starlings_data::{Batch, LabelNeed};
use starlings_learn::{Appetite, Facts, Grade, Learner, Moment, Needs, Outcome, Place, Task, Work};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// The table's name on the wire.
const NAME: &str = "table";

/// One member's door to the shared table.
pub(crate) struct Table {
    client: Client,
    model: Model,
    pushes: u64,
}

impl Table {
    /// Opens a table of f64 zeros. All members open it with the same size and gate.
    pub(crate) fn open(
        net: &Arc<Net>,
        (rows, width): (u32, u32),
        gate: Arc<dyn Gate>,
        codecs: Codecs,
        patience: Duration,
    ) -> Result<Table> {
        let mut model = Model::new();
        let shape = [rows as usize, width as usize];
        model.set(NAME, Tensor::zeros(Kind::F64, &shape, Role::Weight));
        let place = (net.seat(), net.world());
        let shard = Shard::new(Arc::new(Sums), gate, model.clone(), place, Step(0));
        // The thread ends with the net.
        drop(serve::start(net.clone(), shard, codecs.clone(), Arc::new(AtomicU64::new(0)))?);
        Ok(Table { client: Client::new(net.clone(), codecs, patience), model, pushes: 0 })
    }

    /// Adds rows to the table. One push is one step of this member's clock.
    pub(crate) fn push(&mut self, rows: Rows) -> Result<()> {
        let moment = Moment { step: Step(self.pushes), pass: 0, seed: 0, rows: 1 };
        self.check(&rows.index)?;
        let update = Update { blocks: vec![Block::rows(NAME, rows)] };
        self.pushes += 1;
        self.client.push(&moment, &update, &self.model)
    }

    /// Reads rows, no staler than the gate allows.
    pub(crate) fn pull(&mut self, index: &[u32]) -> Result<Rows> {
        self.check(index)?;
        let needs = Needs::Rows(BTreeMap::from([(NAME.to_string(), index.to_vec())]));
        self.client.pull(Step(self.pushes), &needs, Asks::default(), &mut self.model)?;
        let tensor = self.model.get(NAME).expect("made when the table was opened");
        Ok(crate::exchange::served::pick(tensor, index.to_vec()))
    }

    /// This member pushes no more: nobody waits for it.
    pub(crate) fn close(&self) -> Result<()> {
        self.client.finished(Step(self.pushes))
    }

    fn check(&self, index: &[u32]) -> Result<()> {
        let total = self.model.get(NAME).map_or(0, Tensor::rows) as u32;
        let sound = index.windows(2).all(|pair| pair[0] < pair[1])
            && index.last().is_none_or(|&last| last < total);
        let wrong = || Fault::caller(format!("row numbers must increase and stay below {total}"));
        if sound { Ok(()) } else { Err(wrong()) }
    }
}

/// The rule of the table's owners: what is pushed is added. It never sees a row of data.
struct Sums;

impl Learner for Sums {
    fn task(&self) -> Task {
        Task::Regression
    }

    fn appetite(&self) -> Appetite {
        Appetite::Batches
    }

    fn label(&self) -> LabelNeed {
        LabelNeed::None
    }

    fn gives(&self) -> &'static [Ability] {
        &[Ability::Sum, Ability::RowWise]
    }

    fn requires(&self) -> &'static [Ability] {
        &[]
    }

    fn init(&self, _: &Facts, _: Place) -> Result<Model> {
        Ok(Model::new())
    }

    fn contribute(&self, _: &mut Work<'_>) -> Result<()> {
        Ok(())
    }

    fn apply(&self, model: &mut Model, update: &Update, _: &Moment) -> Result<Outcome> {
        let rows = match update.get(NAME).map(|block| &block.body) {
            Some(Body::Rows(rows))
                if rows.width as usize == model.get(NAME).map_or(0, Tensor::width) =>
            {
                rows
            }
            _ => return Err(Fault::caller("a push of rows of another table")),
        };
        let Values::F64(values) = &rows.values else {
            return Err(Fault::caller("the table holds f64"));
        };
        let width = rows.width as usize;
        let table = model.f64_mut(NAME);
        for (at, &row) in rows.index.iter().enumerate() {
            let into = &mut table[row as usize * width..(row as usize + 1) * width];
            into.iter_mut().zip(&values[at * width..]).for_each(|(into, value)| *into += value);
        }
        Ok(Outcome::default())
    }

    fn score(&self, _: &mut Work<'_>) -> Result<Vec<f64>> {
        Ok(Vec::new())
    }

    fn grade(&self, _: &Model, _: &[f64], _: u64) -> Grade {
        Grade::default()
    }

    fn outputs(&self, _: &Model) -> usize {
        0
    }

    fn predict(&self, _: &Model, _: &Batch<'_>, _: &mut Vec<f64>) -> Result<()> {
        Ok(())
    }
}
