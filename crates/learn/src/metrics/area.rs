//! The area under the curve of true over false positives: the chance that a positive row scores above a negative one,
//! ties counting half (Hanley and McNeil, 1982). Exact, also on a flock: distinct scores, with the weights of positives
//! and negatives beside them, are sorted by everyone, cut into as many ranges as there are members by splitters drawn
//! from regular samples (Shi and Schaeffer, 1992), and each range is brought to one owner, who counts its wins. Equal
//! scores never part, for ranges are cut by value. What is then summed is three numbers a range and class.

use super::company::{Company, read, write};
use starlings_core::Result;

/// Samples of each member's scores for each range.
const SAMPLES_A_RANGE: usize = 8;

/// All rows of one score.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Run {
    pub(super) score: f64,
    /// Weight of the rows that belong to the class.
    pub(super) positive: f64,
    /// Weight of those that do not.
    pub(super) negative: f64,
}

/// One class against the rest.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Curve {
    /// The weight of positives.
    pub(super) positives: f64,
    /// The area, where there are positives and negatives.
    pub(super) area: Option<f64>,
}

/// The curve of each class, from the runs of this member's rows.
pub(super) fn areas(company: &mut dyn Company, classes: Vec<Vec<Run>>) -> Result<Vec<Curve>> {
    let count = classes.len();
    let classes: Vec<Vec<Run>> = classes.into_iter().map(folded).collect();
    let splitters = splitters(company, &classes)?;
    let (me, world) = company.place();
    let mut parts = vec![Vec::new(); world];
    for (class, runs) in classes.iter().enumerate() {
        let mut rest = &runs[..];
        for (owner, part) in parts.iter_mut().enumerate() {
            let end = match splitters[class].get(owner) {
                Some(splitter) => rest.partition_point(|run| run.score <= *splitter),
                None => rest.len(),
            };
            let (mine, later) = rest.split_at(end);
            write(&[mine.len() as f64], part);
            mine.iter().for_each(|run| write(&[run.score, run.positive, run.negative], part));
            rest = later;
        }
    }
    drop(classes);
    let received = company.shuffle(parts)?;
    let mut ranges = vec![0.0; world * count * 3];
    for (class, runs) in joined(&received, count).into_iter().enumerate() {
        let [wins, positives, negatives] = wins(&folded(runs));
        ranges[(me * count + class) * 3..][..3].copy_from_slice(&[wins, positives, negatives]);
    }
    let ranges = company.sum(ranges)?;
    Ok((0..count).map(|class| curve(ranges.chunks_exact(3).skip(class).step_by(count))).collect())
}

/// Runs in the order of scores, one for each score.
fn folded(mut runs: Vec<Run>) -> Vec<Run> {
    runs.sort_by(|a, b| a.score.total_cmp(&b.score));
    runs.dedup_by(|later, first| {
        let same = later.score == first.score;
        if same {
            first.positive += later.positive;
            first.negative += later.negative;
        }
        same
    });
    runs
}

/// The scores that part the ranges, one fewer than there are members, for each class: the same for all.
fn splitters(company: &mut dyn Company, classes: &[Vec<Run>]) -> Result<Vec<Vec<f64>>> {
    let (_, world) = company.place();
    if world == 1 {
        return Ok(vec![Vec::new(); classes.len()]);
    }
    let most = world * SAMPLES_A_RANGE;
    let mut own = Vec::new();
    for runs in classes {
        let samples = most.min(runs.len());
        let sample = |at: usize| runs[(2 * at + 1) * runs.len() / (2 * samples)].score;
        write(&[samples as f64], &mut own);
        write(&(0..samples).map(sample).collect::<Vec<f64>>(), &mut own);
    }
    let gathered = company.gather(own)?;
    let mut all = vec![Vec::new(); classes.len()];
    for bytes in &gathered {
        let mut numbers = read(bytes);
        for samples in &mut all {
            let count = numbers.next().unwrap_or(0.0) as usize;
            samples.extend(numbers.by_ref().take(count));
        }
    }
    let part = |mut samples: Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        let cut = |range: usize| samples.get(range * samples.len() / world).copied();
        (1..world).filter_map(cut).collect()
    };
    Ok(all.into_iter().map(part).collect())
}

/// What all members had for this one, class by class.
fn joined(received: &[Vec<u8>], classes: usize) -> Vec<Vec<Run>> {
    let mut all = vec![Vec::new(); classes];
    for bytes in received {
        let mut numbers = read(bytes);
        let mut number = || numbers.next().unwrap_or(0.0);
        for runs in &mut all {
            for _ in 0..number() as usize {
                runs.push(Run { score: number(), positive: number(), negative: number() });
            }
        }
    }
    all
}

/// Wins of a range's positives over its negatives, and the weight of both.
fn wins(runs: &[Run]) -> [f64; 3] {
    let (mut wins, mut positives, mut below) = (0.0, 0.0, 0.0);
    for run in runs {
        wins += run.positive * (below + 0.5 * run.negative);
        positives += run.positive;
        below += run.negative;
    }
    [wins, positives, below]
}

/// Ranges from the lowest scores to the highest: positives of a range also win over the negatives of all ranges below.
fn curve<'a>(ranges: impl Iterator<Item = &'a [f64]>) -> Curve {
    let (mut wins, mut positives, mut below) = (0.0, 0.0, 0.0);
    for range in ranges {
        wins += range[0] + range[1] * below;
        positives += range[1];
        below += range[2];
    }
    let defined = positives > 0.0 && below > 0.0;
    Curve { positives, area: defined.then(|| wins / (positives * below)) }
}
