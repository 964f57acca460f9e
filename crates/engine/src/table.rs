//! A shared table for a caller's own loop: its rows live at owners, pushes change them by a rule, pulls read them under
//! the gate that was chosen (Ho et al. 2013: the tables of SSP). The parameter server without a learner.

use crate::choices::{Carriage, raw};
use crate::exchange::ownership::Ownership;
use crate::exchange::served::{Asks, Office, Shard};
use crate::net::Net;
use crate::rules::Rule;
use crate::serve::{self, Client, Service};
use starlings_consistency::{Blending, Gate};
use starlings_core::{Block, Fault, Kind, Model, Result, Role, Rows, Seat, Step, Tensor, Update};
use starlings_learn::{Moment, Needs};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// The table's name on the wire.
const NAME: &str = "table";

/// How a table is made.
pub(crate) struct TableOptions {
    pub(crate) rows: u32,
    pub(crate) width: u32,
    pub(crate) gate: Arc<dyn Gate>,
    pub(crate) rule: Arc<dyn Rule>,
    pub(crate) carriage: Carriage,
    pub(crate) patience: Duration,
}

/// One member's door to the shared table.
pub(crate) struct Table {
    client: Client,
    model: Model,
    pushes: u64,
}

impl Table {
    /// Opens a table of f64 zeros. All members open it alike.
    pub(crate) fn open(net: &Arc<Net>, options: TableOptions) -> Result<Table> {
        let TableOptions { rows, width, gate, rule, carriage, patience } = options;
        let mut model = Model::new();
        let shape = [rows as usize, width as usize];
        model.set(NAME, Tensor::zeros(Kind::F64, &shape, Role::Weight));
        rule.prepare(&mut model);
        let owners = Arc::new(Ownership::of(&model, net.world()));
        let service = Service {
            push: carriage,
            pull: raw(),
            owners: owners.clone(),
            gate: gate.clone(),
            patience,
        };
        let blending = Arc::new(Blending::Plain);
        let pushers = (0..net.world()).map(Seat).collect();
        let office =
            Office { rule: rule.clone(), gate, blending, owners, seat: net.seat(), pushers };
        let shard = Shard::new(office, model.clone(), Step(0));
        // The thread ends with the net.
        drop(serve::start(net.clone(), shard, service.clone(), Arc::default())?);
        let client = Client::new(net.clone(), service, 0).seeing_its_own(rule);
        Ok(Table { client, model, pushes: 0 })
    }

    /// Adds rows to the table. One push is one step of this member's clock.
    pub(crate) fn push(&mut self, rows: Rows) -> Result<()> {
        let moment = Moment { step: Step(self.pushes), pass: 0, seed: 0, rows: 1 };
        self.check(&rows.index)?;
        let update = Update { blocks: vec![Block::rows(NAME, rows)] };
        self.pushes += 1;
        self.client.step(&moment, &update, &mut self.model)?;
        self.client.push(&moment, &update, true)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bridge::adder::{PATIENCE, flock};
    use crate::choices::{gate, rule};
    use starlings_core::Values;

    #[test]
    fn a_member_reads_what_it_has_pushed() {
        for parameters in ["bound = 2\npush = true", "bound = 2\npush = false"] {
            flock(3, |perch| {
                let options = TableOptions {
                    rows: 3,
                    width: 1,
                    gate: gate("ssp", parameters).unwrap(),
                    rule: rule("sum", "").unwrap(),
                    carriage: Carriage::Numbers(raw()),
                    patience: PATIENCE,
                };
                let mut table = Table::open(&perch.net, options).unwrap();
                let own = perch.net.seat().0;
                for number in 1..40 {
                    let values = Values::F64(vec![1.0]);
                    table.push(Rows { total: 3, width: 1, index: vec![own], values }).unwrap();
                    let read = table.pull(&[0, 1, 2]).unwrap().values;
                    let seen = read.as_f64().unwrap()[own as usize];
                    assert_eq!(seen, f64::from(number), "{parameters}");
                }
                table.close().unwrap();
                // Whoever leaves takes its rows along.
                perch.exact(3).merge(Update::default()).unwrap();
            });
        }
    }
}
