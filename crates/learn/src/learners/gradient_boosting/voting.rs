//! Voting (PV-Tree, Meng et al., 2016): before histograms are summed, every voter names the features that would
//! split its own rows best; only the histograms of the features most named travel. Voters are the shards of rows and
//! not the workers, so that the trees do not depend on the number of workers.

use super::grow::View;
use super::options::Parallelism;
use super::resident::Resident;
use super::state::Setup;
use crate::trees::columns::whole;
use crate::trees::histogram::{self, Form, Sums};
use crate::trees::split::{self, Rules, Subject};
use crate::{Moment, Work};
use starlings_core::{Block, Model, Role, Update};

/// Whether features are elected at all.
pub(super) fn votes(setup: &Setup<'_>) -> bool {
    setup.options.parallelism == Parallelism::Voting
}

/// The features elected for the node at a place among those being looked at; none where all are looked at.
pub(super) fn elected(model: &Model, place: usize) -> Option<Vec<usize>> {
    let words = model.i64("elected");
    let each = *words.first()? as usize;
    let from = 1 + place * each;
    Some(words[from..from + each].iter().map(|&feature| feature as usize).collect())
}

/// Emits how many voters name each feature, for each node being looked at.
pub(super) fn contribute(setup: &Setup<'_>, resident: Option<&mut Resident>, work: &mut Work<'_>) {
    let view = View::new(setup, work.model, work.moment.seed);
    let features = view.layout.features.len();
    let built = view.growing.built(setup.options);
    let mut votes = vec![0; built.len() * features];
    if let Some(resident) = resident {
        let mut rules = setup.rules(work.model, view.clock.rows);
        let voters = work.model.i64("voters")[0];
        rules.min_rows_leaf = (rules.min_rows_leaf / voters).max(1);
        rules.min_hessian /= voters as f64;
        for (&node, votes) in built.iter().zip(votes.chunks_mut(features.max(1))) {
            let mut from = 0;
            for at in 0..resident.segments.len() {
                let end = resident.segments[at].first + resident.segments[at].len;
                let rows = resident.partition.rows(node);
                let to = rows.partition_point(|&row| (row as usize) < end);
                let rows = rows[from..to].to_vec();
                vote(setup, (&view, &rules), (resident, &rows), votes);
                from = to;
            }
        }
    }
    work.outbox.emit(Block::counts("votes", votes));
}

/// One voter's choice.
fn vote(
    setup: &Setup<'_>,
    (view, rules): (&View, &Rules),
    (resident, rows): (&mut Resident, &[u32]),
    votes: &mut [i64],
) {
    let form = Form::Three;
    let mut words = vec![0; view.layout.bins() * form.words()];
    let Resident { store, grid, bench, .. } = resident;
    histogram::build((rows, store), grid, (&view.layout, form), bench, &mut words);
    let sums = histogram::read(form, &words);
    let all = rows.iter().fold(Sums::default(), |all, &row| all + grid.row(row as usize));
    let subject = Subject { sums: all, bounds: [f64::NEG_INFINITY, f64::INFINITY] };
    let sides = (&view.columns, &view.layout);
    let mut gains: Vec<(f64, usize)> = (0..votes.len())
        .filter_map(|place| {
            let best = split::best(rules, sides, subject, &sums, |other| other == place);
            best.map(|split| (split.gain, place))
        })
        .collect();
    gains.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    gains.truncate(setup.options.votes);
    gains.iter().for_each(|&(_, place)| votes[place] += 1);
}

/// Elects twice as many features as each voter named.
pub(super) fn apply(setup: &Setup<'_>, model: &mut Model, update: &Update, moment: &Moment) {
    let view = View::new(setup, model, moment.seed);
    let features = view.layout.features.len();
    let each = (2 * setup.options.votes).min(features);
    let mut words = vec![each as i64];
    for votes in update.i64("votes").chunks_exact(features.max(1)) {
        let mut order: Vec<usize> = (0..features).collect();
        order.sort_by(|&a, &b| votes[b].cmp(&votes[a]).then(a.cmp(&b)));
        order.truncate(each);
        order.sort_unstable();
        words.extend(order.iter().map(|&place| view.layout.features[place] as i64));
    }
    model.set("elected", whole(words, Role::State));
}
